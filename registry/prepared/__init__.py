"""Reads and writes the files of TFDS that describe a prepared version, next to its shards.

<version>/ dataset_info.json   what the dataset is, its splits and shard lengths
           features.json       the schema (registry.features)
           *.labels.txt        the names of each ClassLabel, one per line
"""

from registry.prepared.folder import (
    default_config,
    extra_files,
    find_prepared,
    is_description,
    iter_prepared,
    read_labels,
    read_prepared,
    write_default_config,
    write_prepared,
)
from registry.prepared.info import PreparedDataset, describe, info_from_json, info_to_json

__all__ = [
    "PreparedDataset",
    "default_config",
    "describe",
    "extra_files",
    "find_prepared",
    "info_from_json",
    "info_to_json",
    "is_description",
    "iter_prepared",
    "read_labels",
    "read_prepared",
    "write_default_config",
    "write_prepared",
]
