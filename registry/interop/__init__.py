"""Reads the file layouts of other tools, and writes versions in them. ``api/`` imports and exports with them.

tfds        finds the version folders of a TFDS data_dir; writes a version as a folder that TFDS loads
croissant   describes a version as Croissant JSON-LD
parquet     describes a folder of Parquet shards as a prepared version
"""
