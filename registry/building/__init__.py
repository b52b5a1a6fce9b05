"""Defines the builder classes that dataset authors write, and builds shards that are the same on every run and machine.

    class Squares(DatasetBuilder):              builder.py        what the author writes
        ...                                     discovery.py      finds it
    builder -> pairs (key, example)             generation.py     runs and checks author code (author_code.py: errors)
            -> blocks of framed records         encoding.py       encodes in this process or in workers; keys.py
            -> sorted by key                    sorter.py         in bounded memory
            -> shards                           writing.py        also of records that do not come from a builder
            -> in a staged folder               build.py
    with workers: runs.py encodes and sorts, piece_runs.py also generates (pieces.py), shard_writing.py merges

Other folders use only the names below. They are imported on first use, so that listing the installed builders imports
neither features nor storage, and a worker process imports no builders.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.building.build import StagedBuild as StagedBuild
    from registry.building.build import build_dataset as build_dataset
    from registry.building.builder import BuilderConfig as BuilderConfig
    from registry.building.builder import DatasetBuilder as DatasetBuilder
    from registry.building.discovery import find_builder as find_builder
    from registry.building.discovery import list_builders as list_builders
    from registry.building.discovery import load_builder as load_builder
    from registry.building.discovery import open_builder as open_builder
    from registry.building.keys import SORT_KEY_BYTES as SORT_KEY_BYTES
    from registry.building.keys import Key as Key
    from registry.building.keys import SortKeys as SortKeys
    from registry.building.keys import hash_contents as hash_contents
    from registry.building.keys import hash_key as hash_key
    from registry.building.keys import hash_keys as hash_keys
    from registry.building.keys import join_sort_keys as join_sort_keys
    from registry.building.keys import label_of as label_of
    from registry.building.pieces import Pieces as Pieces
    from registry.building.run_format import KeyedFrames as KeyedFrames
    from registry.building.sorter import DEFAULT_BUDGET_BYTES as DEFAULT_BUDGET_BYTES
    from registry.building.sorter import ExternalSorter as ExternalSorter
    from registry.building.writing import write_split as write_split


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "build": "StagedBuild build_dataset",
        "builder": "BuilderConfig DatasetBuilder",
        "discovery": "find_builder list_builders load_builder open_builder",
        "keys": "SORT_KEY_BYTES Key SortKeys hash_contents hash_key hash_keys join_sort_keys label_of",
        "pieces": "Pieces",
        "sorter": "DEFAULT_BUDGET_BYTES ExternalSorter KeyedFrames",
        "writing": "write_split",
    },
)
