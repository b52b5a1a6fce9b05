"""Copies the files of pins into a data directory, each from the first place that has the pinned bytes.

A file gets its final name only with the right bytes, and existing right files are kept. A restore that was stopped or
killed therefore continues when it is run again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from threading import Event, Lock
from typing import Final, TypeVar

from registry.engines import Engine, Piece, choose_engine
from registry.errors import AlreadyStoredError, NotStoredError, ShardMismatchError, StorageError, spell
from registry.masking import mask
from registry.model import Advance, listed_below
from registry.pins.pin_file import PinFile
from registry.pins.places import (
    FileLocation,
    PinnedFile,
    Places,
    ShardLocator,
    copy_checked,
    list_files,
    no_right_bytes,
)
from registry.storage import Store, open_store
from registry.storage.memory import Watch

_MOST_TOLD: Final = 10

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredFile:
    """The result for one file.

    Attributes:
        path: below the target, ``name[/config]/version/file``.
        num_bytes: its size.
        source: the place that it was copied from; None if the target already had it.
        problems: the rejected places, and what is wrong at each.
    """

    path: str
    num_bytes: int
    source: str | None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """The result of a restore, or of its dry run.

    Attributes:
        target: the path or URL of the data directory.
        files: the files of the pins, sorted by path.
        dry_run: whether this was a dry run, which copies nothing.
    """

    target: str
    files: tuple[RestoredFile, ...]
    dry_run: bool

    @property
    def copied(self) -> tuple[RestoredFile, ...]:
        """The files that were missing or wrong."""
        return tuple(file for file in self.files if file.source is not None)

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.num_bytes for file in self.files)

    @property
    def num_bytes_copied(self) -> int:
        """Bytes of the copied files."""
        return sum(file.num_bytes for file in self.copied)


def restore(
    pin_file: PinFile,
    names: Collection[str] | None,
    target_folder: str | os.PathLike[str],
    *,
    force: bool = False,
    dry_run: bool = False,
    advance: Advance | None = None,
    threads: int | None = None,
    fetch: bool = False,
    allow_hosts: Iterable[str] = (),
) -> RestoreReport:
    """Copy the files of pins into a data directory, as ``<target>/<name>[/<config>]/<version>/<file>``.

    Each file comes from the first place that has the pinned bytes: the folders of ``pin_file.places``, then the
    file's own locations; if a ``data_dir`` was named, only from there. Afterwards ``Places(data_dir=target_folder)``
    finds the files.

    Args:
        pin_file: the pins.
        names: names or split expressions of some of them. None means all.
        target_folder: a path or URL; created if it is missing.
        force: replace existing files that have other bytes.
        dry_run: only report. Existing files are hashed; at the sources, only sizes are compared.
        advance: called with the number of bytes hashed or copied since the last call, by one thread at a time.
        threads: number of files to copy at the same time. None means eight.
        fetch: allow downloads from every place that the pins name, if its address is public.
        allow_hosts: hosts, buckets and folders to allow, in addition to those that ``pin_file`` was loaded with.

    Returns:
        A report on every file: its source, and the places that were rejected.

    Raises:
        PinNotFoundError: a name is unknown.
        ConflictError: two pins need different bytes in one file.
        AlreadyStoredError: a file exists with other bytes, and ``force`` is False; nothing was copied.
        ShardMismatchError: no place has a file as pinned, and one has other bytes; the other files were restored.
        NotStoredError: no place has a file at all; the other files were restored.
        StorageUnavailableError: no place has a file, and one could not be reached; the other files were restored.
        FetchNotAllowedError: no place has a file, and the pins name places that you did not allow; the other files were
            restored.
        StorageError: the target cannot be written.
    """
    files = list_files(pin.entry for pin in pin_file.choose(names))
    target = open_store(target_folder)
    places = pin_file.places.allowing(fetch=fetch, hosts=allow_hosts)
    work = _Work(target, places, advance, force=force)
    # Only one restore writes to a folder at a time. The store removes unfinished files of killed ones.
    with (
        nullcontext() if dry_run else _exclusive(target, files),
        choose_engine(threads, num_bytes=None, is_local=False, is_unlocked=True) as engine,
    ):
        restored = _restore(files, work, target, engine, dry_run=dry_run)
    return RestoreReport(target=mask(target.url), files=restored, dry_run=dry_run)


def _restore(
    files: list[PinnedFile], work: _Work, target: Store, engine: Engine, *, dry_run: bool
) -> tuple[RestoredFile, ...]:
    there = list(_each(files, work.is_right, engine, work.stop))
    if not work.force:
        _refuse_other(target, [file for file, is_right in there if is_right is False])
    wanted = [file for file, is_right in there if not is_right]
    found = [one for _, one in _each(wanted, work.plan if dry_run else work.copy, engine, work.stop)]
    if missing := [locator for source, locator in found if source is None]:
        raise no_right_bytes(missing)
    restored = [
        RestoredFile(path=file.path, num_bytes=file.file.num_bytes, source=None) for file, is_right in there if is_right
    ]
    for source, locator in found:
        if source is not None:  # always: files without a source raised above
            file, problems = locator.wanted, tuple(map(str, locator.rejected))
            restored.append(
                RestoredFile(path=file.path, num_bytes=file.file.num_bytes, source=source.url, problems=problems)
            )
    return tuple(sorted(restored, key=lambda file: file.path))


class _Work:
    """The work that threads do, one file each."""

    def __init__(self, target: Store, places: Places, advance: Advance | None, *, force: bool) -> None:
        self.stop = Event()
        self.force = force
        self._target = target
        self._places = places
        self._advance = advance
        self._lock = Lock()

    def is_right(self, file: PinnedFile) -> bool | None:
        """Whether the target has the file as pinned; None if the file does not exist."""
        try:
            if self._target.size(file.path) != file.file.num_bytes:
                return False
            watch = Watch(self._target, file.path)
            copy_checked(file, FileLocation(store=self._target, name=file.path), self._count)
            if (indexes := self._places.indexes()) is not None:
                indexes.stamps.keep_watched(watch, file.sha256)
        except NotStoredError:
            return None
        except ShardMismatchError:
            return False
        return True

    def plan(self, file: PinnedFile) -> tuple[FileLocation | None, ShardLocator]:
        """The place from which the file would be copied, or None, and the locator with the rejected places."""
        locator = ShardLocator(file, self._places)
        return next(locator.sources(), None), locator

    def copy(self, pinned_file: PinnedFile) -> tuple[FileLocation | None, ShardLocator]:
        """Copy a file from the first place that has it as pinned. Returns that place, or None, and the locator."""
        locator = ShardLocator(pinned_file, self._places)
        for source in locator.sources():
            try:
                with self._target.create(pinned_file.path, overwrite=self.force) as file:

                    def write(piece: memoryview, write_piece: Callable[[memoryview], object] = file.write) -> None:
                        write_piece(piece)
                        self._count(piece)

                    copy_checked(pinned_file, source, write)
            except (ShardMismatchError, StorageError) as error:
                # If the target cannot be written, another source would not help.
                if error.details.get("doing") == "write":
                    raise
                locator.reject(source, error)
            else:
                return source, locator
        return None, locator

    def _count(self, piece: memoryview) -> None:
        if self.stop.is_set():
            raise _StoppedError("the restore was stopped")
        if self._advance is not None:
            with self._lock:
                self._advance(len(piece))


class _StoppedError(Exception):
    """The restore ends: another file failed, or it was interrupted. Raised and caught in this module only."""


def _each(
    files: list[PinnedFile], work: Callable[[PinnedFile], R], engine: Engine, stop: Event
) -> Iterator[tuple[PinnedFile, R]]:
    """Each file and the result of ``work``, in order. If one fails, the others stop soon."""
    pieces = (Piece(work, file) for file in files)
    try:
        yield from engine.run(pieces, doing="restored files", failure=StorageError)
    except BaseException:
        stop.set()
        raise


@contextmanager
def _exclusive(target: Store, files: list[PinnedFile]) -> Iterator[None]:
    """Hold the lock of the target. If the block fails, empty folders that it created are removed."""
    root = target.local_root  # object stores have no folders
    paths = [] if root is None else [root / file.path for file in files if ".." not in file.path]
    folders = sorted({folder for path in paths for folder in path.parents}, reverse=True)
    missing = [folder for folder in folders if not os.path.exists(folder)]  # noqa: PTH110 (it raises for closed folders)
    try:
        with target.exclusive("data"):
            yield
    except BaseException:
        for folder in missing:  # a folder comes before the one that holds it
            with suppress(OSError):  # it is not empty, or was not created
                folder.rmdir()
        raise


def _refuse_other(target: Store, files: list[PinnedFile]) -> None:
    if not files:
        return
    paths = [target.locate(file.path) for file in files]
    count = "1 file exists" if len(files) == 1 else f"{len(files)} files exist"
    raise AlreadyStoredError(
        f"{count} with other bytes than the pinned ones{listed_below(paths, _MOST_TOLD)}",
        hint=f"Choose another folder, or replace them with {spell('force', True)}.",
        details={"paths": paths[:100]},
    )
