"""What a dataset author writes, and how it becomes shards that are the same on every run and machine.

    class Squares(DatasetBuilder):              builder.py        what the author writes
        ...                                     discovery.py      how it is found
    builder -> keyed examples                   generation.py     author code, checked
            -> records                          encoding.py       encoded by this process or by workers
            -> sorted by key                    sorter.py         in bounded memory
            -> shards in a staged folder        build.py

The names below are all that others use. Those that run a build are loaded when they are first used: naming a builder,
or asking which are installed, takes neither features nor storage.
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
