"""Stores the runs of a build where all machines of a cluster can read them, and where an interrupted build continues.

    <dataset>/incomplete.<8 hex>_<version>.runs/
        .owner.json                     the process that builds
        <16 hex>.key                    the key of the build: its features, version and options
        train/0-7.<16 hex>.<8 hex>      the run of 7 inputs from input 0 on, as one task wrote it, with its table
        train/0-7.<16 hex>.<8 hex>.keys  the run of its keys, if keys do not determine the order; written before
        train/0-7.<16 hex>.<8 hex>.damaged  marks a run that was found damaged, so that no build uses it again
        train/merged.<16 hex>.5         range 5 of the sort keys of many runs
        shards-<8 hex>/                 shards of one process that are uploaded from here

Each build has its own folder. With ``finished=True``, it continues from the folder of an earlier build with the same
key: the caller decides that the code and the contents of the inputs are the same. The names of runs depend on their
inputs and on the values of the function, so a changed list of inputs is noticed. Runs of the same records may have
other blocks, because the clock decides where encoding is interrupted, so each task writes files of its own.
``publishing.garbage`` recognizes the folder.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from registry.building.run_files import DAMAGED_SUFFIX, NamedRunFile
from registry.building.value_keys import key_of_values
from registry.errors import StorageError
from registry.storage import Store
from registry.storage.names import OWNER_FILE, RUNS_SUFFIX, is_own_staged, new_unfinished_name
from registry.storage.staged import is_left, read_claim, release_owner, write_owner
from registry.storage.store import warn_of_leftover

_DIGITS: Final = 16
MOST_INPUTS: Final = 99_999
"""The most inputs of one run: a task holds all of them in memory, and a name in the folder may be forged."""

_RUN: Final = re.compile(r"(?P<first>[0-9]{1,18})-(?P<count>[1-9][0-9]{0,4})\.[0-9a-f]{16}\.[0-9a-f]{8}")


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
        """Continue from the earlier runs of ``find_left``. Return False if there are none."""
        with self._parent.exclusive(self._name):  # otherwise the build that ends first removes the runs of the other
            name = self.find_left()
            if name is not None:
                self._name = name
                self.open()
        return name is not None

    def of_split(self, split: str, generate: Callable[[Any], Any]) -> SplitRuns:
        """The runs of a split whose examples come from ``generate``."""
        return SplitRuns(self.store, split, key_of_values((self._key, generate)))

    def release(self) -> None:
        """Let a later build continue from the folder."""
        if self._is_open:
            with suppress(StorageError):  # the error that ends the build is more important
                release_owner(self.store, self._parent.catalog)

    def remove(self, *, with_left: bool) -> None:
        """Remove the folder, or also those that builds of the version left. Files that stay cause a warning."""
        names = [self._name] if self._is_open else []
        if with_left:
            with suppress(StorageError):  # `registry gc` removes them later
                names += self._left(elsewhere=False)
        for name in names:
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
    """

    store: Store
    split: str
    key: str | None

    def finished(self) -> Mapping[int, tuple[int, str]]:
        """The runs that an earlier process finished: the first input of each, its number of inputs, and its name."""
        names = dict.fromkeys(self.store.list(self.split))
        sound = (name for name in names if name + DAMAGED_SUFFIX not in names)
        matches = ((_RUN.fullmatch(name.rpartition("/")[2]), name) for name in sound)
        return {int(run["first"]): (int(run["count"]), name) for run, name in matches if run is not None}

    def stem(self, first: int, inputs: list[Any]) -> str:
        """How the names of runs of ``inputs``, from input ``first`` on, begin; random if they cannot be pickled."""
        digest = None if self.key is None else key_of_values((self.key, inputs))
        return f"{self.split}/{first}-{len(inputs)}.{(digest or os.urandom(32).hex())[:_DIGITS]}"

    def new_name(self, stem: str) -> str:
        """The name of a run that no other task writes."""
        return f"{stem}.{secrets.token_hex(4)}"

    def file(self, name: str) -> NamedRunFile:
        """A run, by its name."""
        return NamedRunFile(self.store, name)

    def new_merged_name(self) -> str:
        """The name of a run that is merged from others; no other build writes it."""
        return f"{self.split}/merged.{secrets.token_hex(8)}"
