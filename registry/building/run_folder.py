"""Stores the runs of a build where all machines of a cluster can read them, and where an interrupted build continues.

    <dataset>/incomplete.<8 hex>_<version>.runs/
        .owner.json                     the process that builds
        <16 hex>.key                    the key of the build: its features, version and options
        train/0-7.<16 hex>.facts        tables and counts of the run of 7 inputs from input 0 on; written last
        train/0-7.<16 hex>.<8 hex>      the run, as one task wrote it
        train/0-7.<16 hex>.<8 hex>.keys  the run of its keys, if keys do not determine the order
        train/merged.<16 hex>.<8 hex>.5  range 5 of the sort keys of many runs, merged by one process
        shards-<8 hex>/                 shards of one process that are uploaded from here

Each build has its own folder. With ``finished=True``, it continues from the folder of an earlier build with the same
key: the caller decides that the code and the contents of the inputs are the same. The names of runs depend on their
inputs and on the values of the function, so a changed list of inputs is noticed. Runs of the same records may have
other blocks, because the clock decides where encoding is interrupted, so each task writes files of its own.
``publishing.garbage`` recognizes the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from registry.building.keys import SORT_KEY_BYTES
from registry.building.run_files import FACTS_SUFFIX, NamedRunFile
from registry.building.run_format import BlockTable, KeyRange, Run
from registry.building.value_keys import key_of_values
from registry.errors import StorageError, StorageUnavailableError
from registry.storage import Store
from registry.storage.names import OWNER_FILE, RUNS_SUFFIX, is_own_staged, new_unfinished_name
from registry.storage.staged import is_left, read_claim, release_owner, write_owner
from registry.storage.store import warn_of_leftover

_MOST_FACTS_BYTES: Final = 2**30
_SHA256_BYTES: Final = 32
_HEADER_BYTES: Final = struct.Struct("<I")

Facts: TypeAlias = tuple[int, bool | None]
"""The sum of the lengths of the records of a run; without shuffling, whether their keys are numbers."""

_DIGITS: Final = 16
_TASK: Final = re.compile("[0-9a-f]{8}")
MOST_INPUTS: Final = 99_999
"""The most inputs of one run: a task holds all of them in memory, and a name in the folder may be forged."""

_RUN: Final = re.compile(r"(?P<first>[0-9]{1,18})-(?P<count>[1-9][0-9]{0,4})\.[0-9a-f]{16}" + re.escape(FACTS_SUFFIX))


class RunFolder:
    """The runs of one build, in the store that receives its shards."""

    def __init__(self, store: Store, final: str, key: str) -> None:
        """``final`` is the folder of the version, ``key`` digests the options. Nothing is written before ``open``."""
        self._parent = store
        self._folder, _, self._version = final.rpartition("/")
        self._key = key
        self._name = f"{self._folder}/{new_unfinished_name(self._version)}{RUNS_SUFFIX}"
        self._is_open = False
        self._process = secrets.token_hex(4)

    @property
    def store(self) -> Store:
        """The store rooted at the folder."""
        return self._parent.child(self._name)

    @property
    def is_local(self) -> bool:
        """Whether the folder is in a file system."""
        return self._parent.local_root is not None

    @property
    def shards(self) -> Store:
        """The folder of shards that are not written to their final place; each build has its own."""
        return self.store.child(f"shards-{self._process}")

    def open(self) -> None:
        """Write the name of this process, and the key, into the folder."""
        if not self._is_open:
            self._is_open = True
            write_owner(self._parent, self._name)
            self.store.write_bytes(self._key_file, b"", overwrite=True)

    def find_left(self) -> str | None:
        """The name of the folder from which this build can continue: the largest with its key, or None.

        A process of another machine may have left it: whether that has ended is unknown, and the caller decides.
        """
        names = (name for name in self._left(elsewhere=True) if self._parent.exists(f"{name}/{self._key_file}"))
        return max(names, key=lambda name: len(self._parent.child(name).list()), default=None)

    def take_over(self) -> bool:
        """Continue from the runs that ``find_left`` finds. False if there are none."""
        name = self.find_left()
        if name is not None:
            self._name = name
            self.open()
        return name is not None

    def of_split(self, split: str, generate: Callable[[Any], Any]) -> SplitRuns:
        """The runs of a split whose examples come from ``generate``."""
        return SplitRuns(self.store, split, key_of_values((self._key, generate)), self._process)

    def release(self) -> None:
        """Let a later build continue from the folder."""
        if self._is_open:
            with suppress(StorageError):  # the error that ends the build is more important
                release_owner(self.store, self._parent.catalog)

    def remove(self, *, with_left: bool) -> None:
        """Remove the folder, or also those that builds of the version left. Files that stay cause a warning."""
        if self._is_open:
            for name in (self._name, *(self._left(elsewhere=False) if with_left else ())):
                try:
                    self._parent.remove_tree(name)
                except StorageError as error:
                    warn_of_leftover(self._parent.locate(name), error)

    @property
    def _key_file(self) -> str:
        return f"{self._key[:_DIGITS]}.key"

    def _left(self, *, elsewhere: bool) -> Iterator[str]:
        """The folders of this version and catalog whose processes have ended; ``elsewhere``: or may have ended."""
        for part in self._parent.folders(self._folder):
            if is_own_staged(part) and part.endswith(f"_{self._version}{RUNS_SUFFIX}"):
                name = f"{self._folder}/{part}"
                owner, claim = read_claim(self._parent, f"{name}/{OWNER_FILE}")
                is_elsewhere = owner is not None and not owner.is_of_this_machine()
                if claim in (None, self._parent.catalog) and (
                    is_left(self._parent.child(name)) or (elsewhere and is_elsewhere)
                ):
                    yield name


@dataclass(frozen=True, slots=True)
class SplitRuns:
    """The runs of one split. A task that writes one receives this.

    Attributes:
        store: rooted at the folder of the build.
        split: the name of the split.
        key: a digest of the values that the runs depend on, besides the inputs. None: no other build uses the runs.
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
        """A digest of the key and of inputs; random if one cannot be pickled, so that its run is written anew."""
        digest = None if self.key is None else key_of_values((self.key, inputs))
        return digest or os.urandom(32).hex()

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
