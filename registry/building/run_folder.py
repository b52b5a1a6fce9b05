"""Stores the runs of a build where all machines of a cluster can read them, and where an interrupted build continues.

    <dataset>/incomplete.<8 hex>_<version>.runs/
        .owner.json                     the process that builds
        train/0-7.<16 hex>.facts        tables and counts of the run of 7 inputs from input 0 on; written last
        train/0-7.<16 hex>.<8 hex>      the run, as one task wrote it
        train/0-7.<16 hex>.<8 hex>.keys  the run of its keys, if keys do not determine the order
        train/merged.<16 hex>.<8 hex>.5  range 5 of the sort keys of many runs, merged by one process
        shards-<8 hex>/                 shards of one process that are uploaded from here

The name of the folder depends on the builder's code, version and features; the names of files depend on their inputs.
So a build never uses files of different code or inputs. Runs of the same records may have other blocks, because the
clock decides where encoding is interrupted, so each task writes files of its own. ``publishing.garbage`` recognizes the
folder.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
import pickle
import re
import secrets
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

import numpy as np

from registry.building.builder_code import CodeReader, encoder_versions
from registry.building.keys import SORT_KEY_BYTES
from registry.building.run_files import FACTS_SUFFIX, NamedRunFile
from registry.building.run_format import BlockTable, KeyRange, Run
from registry.errors import StorageError, StorageUnavailableError
from registry.features import FeaturesDict, features_to_json
from registry.storage import Store, open_store
from registry.storage.names import RUNS_SUFFIX
from registry.storage.staged import write_owner
from registry.storage.store import warn_of_leftover

if TYPE_CHECKING:
    from registry.building.builder import DatasetBuilder

_FORMAT: Final = 6
_MOST_FACTS_BYTES: Final = 2**30
_SHA256_BYTES: Final = 32
_HEADER_BYTES: Final = struct.Struct("<I")

Facts: TypeAlias = tuple[int, bool | None]
"""The sum of the lengths of the records of a run; without shuffling, whether their keys are numbers."""

_DIGITS: Final = 16
_TASK: Final = re.compile("[0-9a-f]{8}")
_MOST_FILES: Final = 100_000
_URL: Final = re.compile(r"(s3|s3a|gs|az|https?)://[^/]+/.*[^/]$")
_OBJECT_URL: Final = re.compile(r"(s3|s3a|gs|az)://[^/]+/.*[^/]$")  # not the homepage of a dataset
MOST_INPUTS: Final = 99_999
"""The most inputs of one run: a task holds all of them in memory, and a name in the folder may be forged."""

_RUN: Final = re.compile(r"(?P<first>[0-9]{1,18})-(?P<count>[1-9][0-9]{0,4})\.[0-9a-f]{16}" + re.escape(FACTS_SUFFIX))


class RunFolder:
    """The runs of one build, in the store that receives its shards."""

    def __init__(self, store: Store, final: str, builder: DatasetBuilder, features: FeaturesDict) -> None:
        """``final`` is the folder of the version. Nothing is written before ``open``."""
        self._parent = store
        self._final = final
        self._builder = builder
        self._features = features
        self._code = CodeReader()
        self._is_open = False
        self._process = secrets.token_hex(4)

    @cached_property
    def key(self) -> str:
        """A digest of everything that determines the runs, except for the inputs."""
        return _key_of(self._builder, self._features, self._code)

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
        """The folder of shards that are not written to their final place; each build has its own."""
        return self.store.child(f"shards-{self._process}")

    def open(self) -> None:
        """Write the name of this process into the folder."""
        if not self._is_open:
            write_owner(self._parent, self._name)
            self._is_open = True

    def of_split(self, split: str, generate: Callable[[Any], Any]) -> SplitRuns:
        """The runs of a split whose examples come from ``generate``."""
        return SplitRuns(self.store, split, _key_of_function(self.key, generate, self._code), self._process)

    def remove(self) -> None:
        """Remove the folder. Files that cannot be removed cause a warning."""
        if self._is_open:
            try:
                self._parent.remove_tree(self._name)
            except StorageError as error:
                warn_of_leftover(self.store.locate(""), error)


@dataclass(frozen=True, slots=True)
class SplitRuns:
    """The runs of one split. A task that writes one receives this.

    Attributes:
        store: rooted at the folder of the build.
        split: the name of the split.
        key: a digest of what the runs depend on, besides the inputs. None: unknown, so no other build uses the runs.
        process: a name for the process that builds.
    """

    store: Store
    split: str
    key: str | None
    process: str

    def finished(self) -> Mapping[int, int]:
        """The runs that an earlier process finished: the first input of each, and its number of inputs."""
        result = (_RUN.fullmatch(name.rpartition("/")[2]) for name in self.store.list(self.split))
        return {int(facts["first"]): int(facts["count"]) for facts in result if facts is not None}

    def digest(self, inputs: list[Any]) -> str:
        """A digest of the key, of inputs, and of stamps of the files that they name; random if one is unknown."""
        if self.key is not None:
            with suppress(Exception):  # an input cannot be pickled, or a file not be found: its run is written anew
                return digest_inputs(self.key, inputs)
        return os.urandom(32).hex()

    def facts(self, first: int, count: int, digest: str) -> RunFacts:
        """The facts of the run of ``count`` inputs from input ``first`` on."""
        return RunFacts(self.store, f"{self.split}/{first}-{count}.{digest[:_DIGITS]}", digest)

    def file(self, name: str) -> NamedRunFile:
        """A run, by the name that ``RunFacts`` gave it."""
        return NamedRunFile(self.store, name)

    def merged_name(self, runs: Sequence[Run], ranges: Sequence[KeyRange]) -> str:
        """The name of the run that is merged from others, by ranges of sort keys; the same for the same runs."""
        parts = [run.file.name for run in runs], [(keys.start.hex(), keys.stop and keys.stop.hex()) for keys in ranges]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        return f"{self.split}/merged.{digest[:_DIGITS]}.{self.process}"


def digest_inputs(key: str, inputs: list[Any]) -> str:
    """A digest of the key of a split, of inputs, and of the stamps of the files that they name.

    Raises:
        Exception: an input cannot be pickled, the object at a URL cannot be found, or a folder has too many files.
    """
    pickled = pickle_with_names((key, inputs))
    stamps = [stamp for text in pickled.texts for stamp in _stamps(text, _URL)]
    return hashlib.sha256(pickled.content + json.dumps(stamps).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The file that records that a run is complete, and where it is.

    Its format may change with each release::

        file   := sha256(rest) rest
        rest   := header_bytes (u32) header table*
        header := {"digest": text, "facts": [number, bool or null], "blocks": {name: number, ...}, "task": text}
        table  := first_key (16 bytes)* position (i64)* offset (i64)*

    Attributes:
        store: contains the file.
        stem: its name without its end; the names of its runs begin with it.
        digest: a digest of everything that determines the run.
    """

    store: Store
    stem: str
    digest: str

    def new_file(self) -> NamedRunFile:
        """Return a file for the run. No other task writes it."""
        return NamedRunFile(self.store, f"{self.stem}.{secrets.token_hex(4)}")

    def save(self, run: NamedRunFile, tables: Mapping[str, BlockTable], facts: Facts) -> None:
        """Write the facts of a run that is complete. ``tables`` has its table as ``run``, and that of its ``keys``."""
        blocks = {name: len(table.first_keys) for name, table in tables.items()}
        task = run.name.removeprefix(f"{self.stem}.")
        header = json.dumps({"digest": self.digest, "facts": facts, "blocks": blocks, "task": task}).encode()
        arrays = (array.tobytes() for table in tables.values() for array in table)
        content = b"".join((_HEADER_BYTES.pack(len(header)), header, *arrays))
        name = self.stem + FACTS_SUFFIX
        self.store.write_bytes(name, hashlib.sha256(content).digest() + content, overwrite=True)

    def load(self) -> tuple[NamedRunFile, dict[str, BlockTable], Facts] | None:
        """Read what ``save`` wrote for the same digest.

        Returns None if anything is missing or damaged, and if the files of the run do not have the sizes of the tables.
        """
        try:
            content = self.store.read_bytes(self.stem + FACTS_SUFFIX, limit=_MOST_FACTS_BYTES)
            task, tables, facts = _read_tables(content, self.digest)
            run = NamedRunFile(self.store, f"{self.stem}.{task}")
            for name, table in tables.items():
                if (run if name == "run" else run.keys).num_bytes != table.offsets[-1]:
                    return None
        except StorageUnavailableError:
            raise
        except (StorageError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error):
            return None
        return run, tables, facts


def _read_tables(content: bytes, digest: str) -> tuple[str, dict[str, BlockTable], Facts]:
    """Return the task that wrote the run, its tables and its facts. Raises what ``load`` catches for a wrong file."""
    rest = content[_SHA256_BYTES:]
    if hashlib.sha256(rest).digest() != content[:_SHA256_BYTES]:
        raise ValueError("the sha256 differs")
    (header_bytes,) = _HEADER_BYTES.unpack_from(rest)
    place = _HEADER_BYTES.size + header_bytes
    header = json.loads(rest[_HEADER_BYTES.size : place])
    (num_payload_bytes, is_numbered), blocks, task = header["facts"], header["blocks"], header["task"]
    if header["digest"] != digest or type(num_payload_bytes) is not int or is_numbered not in (None, True, False):
        raise ValueError("these are other facts")
    if not _TASK.fullmatch(task):
        raise ValueError("no task has this name")
    if "run" not in blocks or not blocks.keys() <= {"run", "keys"}:
        raise ValueError("these are other tables")
    tables = {}
    for name, count in blocks.items():
        if type(count) is not int or count < 0:
            raise ValueError("this is not a number of blocks")
        first_keys = np.frombuffer(rest, np.uint8, count * SORT_KEY_BYTES, place).reshape(count, SORT_KEY_BYTES)
        positions = np.frombuffer(rest, np.int64, count + 1, place + first_keys.nbytes)
        offsets = np.frombuffer(rest, np.int64, count + 1, place + first_keys.nbytes + positions.nbytes)
        if positions[0] or offsets[0] or (np.diff(positions) <= 0).any() or (np.diff(offsets) <= 0).any():
            raise ValueError("the blocks do not follow each other")
        tables[name] = BlockTable(first_keys, positions, offsets)
        place += first_keys.nbytes + positions.nbytes + offsets.nbytes
    if place != len(rest):
        raise ValueError("the length differs")
    return task, tables, (num_payload_bytes, is_numbered)


class _Pickled(NamedTuple):
    """A pickled value, the texts in it, and the classes and functions that it names."""

    content: bytes
    texts: list[str]
    codes: list[Any]


def pickle_with_names(value: Any) -> _Pickled:
    """Pickle ``value`` for a digest, and collect all texts in it, also those of paths and of attributes of objects.

    Equal values give equal bytes, whether or not they share objects. The bytes are only for a digest.
    """
    texts: dict[str, None] = {}
    codes: list[Any] = []

    class Collecting(pickle.Pickler):
        def persistent_id(self, obj: Any) -> str | None:
            if isinstance(obj, os.PathLike):
                path = os.path.join(os.curdir, os.fsdecode(obj))  # noqa: PTH118 (marks it as a path)
                texts[path] = None
                return path  # otherwise the parts of a path would also be pickled
            if isinstance(obj, str | bytes):
                texts[os.fsdecode(obj)] = None
            elif isinstance(obj, type | FunctionType):
                codes.append(obj)
            return None

    file = io.BytesIO()
    pickler = Collecting(file, protocol=5)
    pickler.fast = True  # does not memoize objects, and refuses objects that contain themselves
    pickler.dump(value)
    return _Pickled(file.getvalue(), list(texts), list(dict.fromkeys(codes)))


def _stamps(text: str, url: re.Pattern[str]) -> Iterator[tuple[str, int, Any]]:
    """Yield stamps for a text that is a path: size and time of a file, or of all files in a folder; or an ETag."""
    if url.match(text):
        folder, _, name = text.rpartition("/")
        yield text, 0, open_store(folder).stamp(name)
        return
    with suppress(OSError, ValueError):  # not a path
        yield from _stamps_of_path(unquote(urlsplit(text).path) if text.startswith("file://") else text)


def _stamps_of_path(text: str) -> Iterator[tuple[str, int, int]]:
    path = Path(text)
    facts = path.stat()
    yield text, facts.st_size, facts.st_mtime_ns
    if path.is_dir() and os.sep in text and path.parent != path:  # not '.' or '/', which may be any text
        found = list(islice(path.rglob("*"), _MOST_FILES))
        if len(found) == _MOST_FILES:
            raise RuntimeError(f"{path} has too many files")
        for child in sorted(found):
            facts = child.lstat()
            yield os.fspath(child), facts.st_size, facts.st_mtime_ns


def _key_of(builder: DatasetBuilder, features: FeaturesDict, code: CodeReader) -> str:
    """A digest of the code and the version of a builder. Code without a file has no key that another process finds."""
    sources = code.digests(type(builder))
    parts = {
        "format": _FORMAT,
        "package": sys.modules["registry"].__version__,
        "encoders": encoder_versions(),
        "reference": str(builder.reference),
        "features": features_to_json(features),
        "shuffled": not builder.DISABLE_SHUFFLING,
        "experiments": sorted(builder.version.experiments.items()),
        "sources": sources if sources is not None else os.urandom(16).hex(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _key_of_function(key: str, generate: Callable[[Any], Any], code: CodeReader) -> str | None:
    """A digest of ``key``, of a function and of its code. A method includes the attributes of its builder.

    Functions and classes in its arguments are pickled by name, so their code is digested as well.
    """
    inner = generate
    while isinstance(inner, partial):
        inner = inner.func
    try:
        pickled = pickle_with_names(generate)
        stamps = [stamp for text in pickled.texts for stamp in _stamps(text, _OBJECT_URL)]
    except Exception:  # noqa: BLE001 (it cannot be sent to a worker either, or names what cannot be found)
        return None
    sources = code.digests(inner if inspect.isroutine(inner) else type(inner), pickled.codes)
    if sources is None:
        return None
    return hashlib.sha256(pickled.content + json.dumps([key, sources, stamps], sort_keys=True).encode()).hexdigest()
