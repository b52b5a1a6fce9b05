"""Reads the files of a version that has several locations: where one fails, the next one is read.

    first location  --fails-->  warning  -->  next location  ...  -->  the error of the first one

A location fails if it cannot be reached, lacks the file, or has a file that differs from the published one. It may also
fail in the middle of a read, or because a record turns out to be damaged. Every location has the same proof:
``proved.ProvedStore``. A process remembers failed locations, and tries them last.
"""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias, TypeVar

from registry.errors import (
    MirrorWarning,
    MissingExtraError,
    RegistryError,
    StorageError,
    StorageUnavailableError,
    VerificationError,
    warn,
)
from registry.shards.lazy_file import LazyFile
from registry.shards.proved import ProvedStore
from registry.storage import Store, open_store
from registry.storage.faults import StoredFile
from registry.storage.store import WrappedStore

T = TypeVar("T")

_Failed: TypeAlias = list[tuple[int, RegistryError]]

_REST_SECONDS: Final = 60.0
"""A location that did not answer is tried last for this number of seconds."""


class MirroredStore(WrappedStore):
    """The files of a version with several locations, read-only; each is proved when it is opened.

    Threads may share it, and it can be pickled for other processes.
    """

    def __init__(self, first: ProvedStore, others: Sequence[str], *, reference: str) -> None:
        """Read from ``first``, or if it fails, from ``others``.

        Args:
            first: the first location.
            others: paths and URLs of the other locations, in order. One is opened when it is needed.
            reference: the version, for hints.
        """
        super().__init__(first)
        self._first = first
        self._others = tuple(others)
        self._reference = reference
        self._opened: dict[str, int] = {}  # the files that were opened last at another location than the first

    def open(self, name: str) -> StoredFile:
        """Open a file at the first location that has it, and prove that it is the published one.

        Raises:
            ShardMismatchError, CorruptRecordError, StorageError: no location has it; see ``ProvedStore.open``.
        """
        return self.attempt(name, lambda store: store.open(name))

    def size(self, name: str) -> int:
        """Size of a stored file, in bytes."""
        return self.attempt(name, lambda store: store.size(name))

    def attempt(self, name: str, call: Callable[[Store], T]) -> T:
        """Call ``call`` with the store of each location, until one succeeds for the file ``name``."""
        place, result = self._attempt(name, lambda place, store: call(self._falling_over(place, store)), [])
        self._note_opened(name, place)
        return result

    def prove(self, names: Iterable[str]) -> None:
        """Prove files that are about to be opened, several at a time, at the first location that answers."""
        wanted = list(names)

        def prove(_: int, store: ProvedStore) -> None:
            store.prove(wanted)

        self._attempt("", prove, [])

    def forget(self, name: str) -> bool:
        """Do not read a file again from its present location: records are damaged there, or were damaged in transit.

        Its cached parts are deleted. Returns False if there is no other location.
        """
        result = False
        for place in range(1 + len(self._others)):
            with suppress(_UnopenedError):
                result = self._at(place).forget(name) or result
        place = self._opened.get(name, 0)
        _troubles.add(self._url(place), name)
        after = min(range(1 + len(self._others)), key=self._rank(name))
        if after == place:
            return result
        self._warn(place, f"{name} is damaged", after)
        return True

    def _falling_over(self, place: int, store: ProvedStore) -> Store:
        """Wrap ``store`` so that its files continue at the next location after a fault.

        Local files are opened directly, because libraries map them, or open them by their path.
        """
        return store if store.local_root is not None else _FallOverStore(self, place, store)

    def open_after(self, name: str, failed: _Failed) -> tuple[int, StoredFile]:
        """Open a file that failed at the last of ``failed`` at the next location; also returns its number."""
        place, file = self._attempt(name, lambda _, store: store.open(name), failed)
        self._note_opened(name, place)
        return place, file

    def _note_opened(self, name: str, place: int) -> None:
        if place:
            self._opened[name] = place
        else:
            self._opened.pop(name, None)

    def _attempt(self, name: str, call: Callable[[int, ProvedStore], T], failed: _Failed) -> tuple[int, T]:
        if failed:
            self._note(name, *failed[-1])
        while True:
            place = self._next(name, failed)
            if failed:
                self._warn(failed[-1][0], failed[-1][1].message, place)
            try:
                return place, call(place, self._at(place))
            except (StorageError, VerificationError, _UnopenedError) as fault:
                error = fault.error if isinstance(fault, _UnopenedError) else fault
                if _is_final(error):
                    raise error from fault.__cause__
                failed.append((place, error))
                self._note(name, place, error)

    def _at(self, place: int) -> ProvedStore:
        if place == 0:
            return self._first
        try:
            return self._first.over(open_store(self._others[place - 1]))
        except (StorageError, MissingExtraError) as error:
            raise _UnopenedError(error) from error

    def _url(self, place: int) -> str:
        """The path or URL of a location."""
        if place:
            return self._others[place - 1]
        root = self._first.local_root
        return self._first.url if root is None else str(root)

    def _next(self, name: str, failed: _Failed) -> int:
        """The next location to try; raises an error if all have failed.

        Raises:
            StorageUnavailableError: one of them did not answer, so trying again may help.
            StorageError, VerificationError: the error of the first one.
        """
        tried = {place for place, _ in failed}
        left = [place for place in range(1 + len(self._others)) if place not in tried]
        if left:
            return min(left, key=self._rank(name))
        errors = [error for _, error in sorted(failed, key=lambda failure: failure[0])]
        error = next((candidate for candidate in errors if isinstance(candidate, StorageUnavailableError)), errors[0])
        hint = f"All {len(errors)} locations failed. To see why: registry mirror check {self._reference}"
        error.rephrase(hint=hint if error.hint is None else f"{error.hint}\n{hint}")
        raise error

    def _rank(self, name: str) -> Callable[[int], tuple[bool, int]]:
        """The order in which locations are tried for a file: those that failed come last."""
        return lambda place: (_troubles.has(self._url(place), name), place)

    def _note(self, name: str, place: int, error: RegistryError) -> None:
        _troubles.add(self._url(place), "" if isinstance(error, StorageUnavailableError) or not name else name)

    def _warn(self, failed: int, reason: str, place: int) -> None:
        url = self._url(failed)
        if _troubles.is_first(url):
            warn(
                f"{self._reference}: the location {url} failed ({reason}); reading from "
                f"{self._url(place)} instead. To check every location: registry mirror check {self._reference}",
                MirrorWarning,
            )


class _FallOverStore(WrappedStore):
    """One location of another machine, whose open files continue at the next one."""

    def __init__(self, mirrored: MirroredStore, place: int, store: ProvedStore) -> None:
        super().__init__(store)
        self._mirrored = mirrored
        self._place = place

    def open(self, name: str) -> StoredFile:
        """Open and prove a file; another location takes over if it fails later."""
        place, failed = self._place, _Failed()

        def open_next(error: StorageError | VerificationError) -> StoredFile:
            nonlocal place
            if _is_final(error):
                raise error
            failed.append((place, error))
            place, file = self._mirrored.open_after(name, failed)
            return file

        return FallOverFile(self._store.open(name), open_next)


class FallOverFile(LazyFile):
    """An open file, and the function that opens its next copy after an error.

    The copies have the same bytes. After a fault, only the bytes that have not arrived are requested again.
    """

    faults = (StorageError, VerificationError)

    def __init__(self, file: StoredFile, open_next: Callable[[StorageError | VerificationError], StoredFile]) -> None:
        """``open_next`` gets the error of the present copy, and raises one if no copy is left."""
        super().__init__([], path=file.path, num_bytes=file.num_bytes, entity_tag=file.entity_tag)
        self.published_sha256 = file.published_sha256
        self._source = file
        self._open_next = open_next

    def _leave(self, source: StoredFile, error: StorageError | VerificationError) -> None:
        if source is self._source:  # else another iterator has done so
            self._source = self._open_next(error)
            source.close()


class _UnopenedError(Exception):
    """A location that cannot be opened, e.g. because the package for its protocol is not installed."""

    def __init__(self, error: RegistryError) -> None:
        super().__init__(error)
        self.error = error


class _Troubles:
    """The failures in this process: locations that did not answer, and files that a location lacks."""

    def __init__(self) -> None:
        self._files: set[tuple[str, str]] = set()
        self._silent: dict[str, float] = {}
        self._told: set[str] = set()

    def add(self, url: str, name: str) -> None:
        """Note a file, or with ``""`` a whole location."""
        if name:
            self._files.add((url, name))
        else:
            self._silent[url] = time.monotonic()

    def has(self, url: str, name: str) -> bool:
        """Whether a file, or its location, failed."""
        return (url, name) in self._files or time.monotonic() < self._silent.get(url, -_REST_SECONDS) + _REST_SECONDS

    def is_first(self, url: str) -> bool:
        """Whether there was no warning about this location yet. The next call returns False."""
        is_first = url not in self._told
        self._told.add(url)
        return is_first


_troubles: Final = _Troubles()


def _is_final(error: RegistryError) -> bool:
    """Whether no other location helps: this process was interrupted, or may not open more files."""
    if isinstance(error, StorageError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return True
    network = sys.modules.get("registry.storage.network")  # if it is not loaded, nothing was interrupted
    return network is not None and bool(network.is_interrupted())
