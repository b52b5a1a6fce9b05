"""What do others keep, and what can they read? Foreign layouts found and described, versions written for others.

tfds        version folders that TFDS prepared, found in a data_dir; a version as a folder that TFDS loads
croissant   a version as Croissant JSON-LD
parquet     folders of Parquet shards, described as a prepared version
"""
