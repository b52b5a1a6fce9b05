"""Keeps the runs of a build where all machines of a cluster read them; an interrupted build goes on from those there.

    <dataset>/incomplete.<8 hex>_<version>.runs/
        .owner.json                the process that builds
        train/0-7                  the run of 7 inputs from input 0 on
        train/0-7.keys             the run of their keys, if keys do not determine the order
        train/0-7.facts            its table and its counts, written last: the run is complete
        train/merged-0-2.5         range 5 of the sort keys of many runs, merged
        shards/                    shards that are uploaded from here

The name of the folder and the facts depend on the builder's code, version and features, and on the inputs. So a build
never uses runs of other code or inputs: it writes its own. ``publishing.garbage`` recognizes the folder.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
import pickle
import re
import sys
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from registry.building.run_files import ChainedRunFile, NamedRunFile
from registry.building.sorter import BlockTable
from registry.errors import StorageError
from registry.features import FeaturesDict, features_to_json
from registry.storage import Store
from registry.storage.names import OWNER_FILE, RUNS_SUFFIX, Owner
from registry.storage.staged import warn_of_leftover

if TYPE_CHECKING:
    from registry.building.builder import DatasetBuilder

_FORMAT: Final = 1
_MOST_FACTS_BYTES: Final = 2**30
_MOST_SOURCES: Final = 10_000
_RUN: Final = re.compile(r"(?P<first>[0-9]{1,18})-(?P<count>[0-9]{1,18})\.facts")


class RunFolder:
    """The runs of one build, in the store that receives its shards."""

    def __init__(self, store: Store, final: str, builder: DatasetBuilder, features: FeaturesDict) -> None:
        """``final`` is the folder of the version. Nothing is written before ``open``."""
        self._parent = store
        self._final = final
        self._builder = builder
        self._features = features
        self._is_open = False

    @cached_property
    def key(self) -> str:
        """A digest of what the runs depend on, besides the inputs."""
        return _key_of(self._builder, self._features)

    @cached_property
    def store(self) -> Store:
        """The store rooted at the folder."""
        return self._parent.child(self._name)

    @property
    def _name(self) -> str:
        folder, slash, version = self._final.rpartition("/")
        return f"{folder}{slash}incomplete.{self.key[:8]}_{version}{RUNS_SUFFIX}"

    @property
    def is_local(self) -> bool:
        """Whether the folder is in a file system."""
        return self._parent.local_root is not None

    @property
    def shards(self) -> Store:
        """The folder of shards that are not written where they belong."""
        return self.store.child("shards")

    def open(self) -> None:
        """Write the name of this process into the folder."""
        if not self._is_open:
            owner = json.dumps(asdict(Owner.this_process()), sort_keys=True)
            self.store.write_bytes(OWNER_FILE, owner.encode(), overwrite=True)
            self._is_open = True

    def finished(self, split: str) -> Mapping[int, int]:
        """The runs of a split that an earlier process finished: the first input of each, and its number of inputs."""
        found = (_RUN.fullmatch(name.rpartition("/")[2]) for name in self.store.list(split))
        return {int(one["first"]): int(one["count"]) for one in found if one is not None}

    def file(self, split: str, first: int, count: int) -> NamedRunFile:
        """The file of the run of ``count`` inputs from input ``first`` on."""
        return NamedRunFile(self.store, f"{split}/{first}-{count}")

    def keys_file(self, split: str, first: int, count: int) -> NamedRunFile:
        """The file of the run of their keys."""
        return NamedRunFile(self.store, f"{split}/{first}-{count}.keys")

    def merged_part(self, split: str, level: int, index: int, part: int) -> NamedRunFile:
        """The file of one range of sort keys of a run that is merged from others."""
        return ChainedRunFile.part(self.store, _merged_name(split, level, index), part)

    def merged(self, split: str, level: int, index: int, sizes: Sequence[int]) -> ChainedRunFile:
        """The run whose ranges are in files of these sizes."""
        return ChainedRunFile(self.store, _merged_name(split, level, index), sizes)

    def remove(self) -> None:
        """Remove the folder. Files that cannot be removed cause a warning."""
        if self._is_open:
            try:
                self._parent.remove_tree(self._name)
            except StorageError as error:
                warn_of_leftover(self.store.locate(""), error)


def _merged_name(split: str, level: int, index: int) -> str:
    return f"{split}/merged-{level}-{index}"


def digest_inputs(key: str, inputs: list[Any]) -> str:
    """A digest of the key of a folder, of inputs, and of the size and time of each local file that an input names.

    Raises:
        Exception: an input cannot be pickled.
    """
    stamps = [_stamps(one) for one in inputs]
    return hashlib.sha256(pickle.dumps((key, inputs, stamps), protocol=5)).hexdigest()


def save_tables(file: NamedRunFile, digest: str, tables: Mapping[str, BlockTable | None], facts: Any) -> None:
    """Write the tables of a run that is complete, and the facts about it, which are JSON."""
    arrays = {
        f"{name}.{field}": getattr(table, field)
        for name, table in tables.items()
        if table is not None
        for field in table._fields
    }
    text = json.dumps({"digest": digest, "facts": facts})
    content = io.BytesIO()
    np.savez(content, about=np.frombuffer(text.encode(), np.uint8), **arrays)
    file.write_beside(".facts", content.getvalue())


def load_tables(file: NamedRunFile, digest: str) -> tuple[dict[str, BlockTable], Any] | None:
    """Read what ``save_tables`` wrote for the same digest; None if the run is missing, damaged or of other inputs."""
    try:
        content = file.read_beside(".facts", limit=_MOST_FACTS_BYTES)
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            about = json.loads(arrays["about"].tobytes())
            if about["digest"] != digest:
                return None
            names = {name.partition(".")[0] for name in arrays.files} - {"about"}
            tables = {name: BlockTable(*(arrays[f"{name}.{field}"] for field in BlockTable._fields)) for name in names}
            return tables, about["facts"]
    except (StorageError, ValueError, KeyError, TypeError, OSError, zipfile.BadZipFile):
        return None


def _stamps(value: Any) -> list[tuple[str, int, int]]:
    """Size and time of the local files that ``value``, or an item in it, names."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [stamp for one in value for stamp in _stamps(one)]
    if isinstance(value, str | os.PathLike):
        with suppress(OSError, ValueError):  # not a path
            facts = os.stat(value)  # noqa: PTH116 (most texts are not paths)
            return [(os.fspath(value), facts.st_size, facts.st_mtime_ns)]
    return []


def _key_of(builder: DatasetBuilder, features: FeaturesDict) -> str:
    """A digest of the code and the version of a builder. Code without a file has no key that another process finds."""
    sources = _sources(type(builder))
    parts = {
        "format": _FORMAT,
        "package": sys.modules["registry"].__version__,
        "reference": str(builder.reference),
        "features": features_to_json(features),
        "shuffled": not builder.DISABLE_SHUFFLING,
        "experiments": sorted(builder.version.experiments.items()),
        "sources": sources if sources is not None else os.urandom(16).hex(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _sources(kind: type) -> dict[str, str] | None:
    """The sha256 of each source file of the package that defines a class; None if it has no file."""
    module = sys.modules.get(kind.__module__)
    try:
        path = inspect.getsourcefile(kind)
    except (OSError, TypeError):
        return None
    if path is None or module is None or not Path(path).is_file():
        return None
    folder, files = Path(path).parent, [Path(path)]
    root = sys.modules.get(kind.__module__.partition(".")[0])
    if "." in kind.__module__ and root is not None and getattr(root, "__file__", None):
        folder = Path(str(root.__file__)).parent
        files = sorted(folder.rglob("*.py"))[:_MOST_SOURCES]
    return {str(one.relative_to(folder)): hashlib.sha256(one.read_bytes()).hexdigest() for one in files}
