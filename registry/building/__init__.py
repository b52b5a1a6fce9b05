"""Defines what dataset authors write, and builds it: shards that are the same on every run and machine.

    class Squares(DatasetBuilder):              builder.py        what the author writes
        ...                                     discovery.py      finds it
    builder -> keyed examples                   generation.py     runs and checks author code (author_code.py: errors)
            -> records                          encoding.py       encodes in this process or in workers
            -> sorted by key                    sorter.py         in bounded memory
            -> shards in a staged folder        build.py

Other folders use only the names below. Those that run a build are imported on first use, so that finding a builder or
listing the installed ones imports neither features nor storage.
"""

from typing import TYPE_CHECKING

from registry.building.builder import BuilderConfig, DatasetBuilder
from registry.building.discovery import ENTRY_POINT_GROUP, find_builder, list_builders, load_builder, open_builder
from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.building.build import StagedBuild, build_dataset

__all__ = [
    "ENTRY_POINT_GROUP",
    "BuilderConfig",
    "DatasetBuilder",
    "StagedBuild",
    "build_dataset",
    "find_builder",
    "list_builders",
    "load_builder",
    "open_builder",
]

__getattr__, __dir__ = lazy_exports(__name__, {"build": "StagedBuild build_dataset"})
