"""How do the files of a pin come to this machine? Fetched from where any are right, into a data directory.

Only right bytes get their name, and what is there and right is left alone: so a restore that was stopped, however
hard, goes on where it was when it is run again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any, Final

from registry.engines import num_cpus
from registry.errors import AlreadyStoredError, NotStoredError, ShardMismatchError, StorageError
from registry.masking import mask
from registry.pins.measure import AdvanceBytes
from registry.pins.pin_file import PinFile
from registry.pins.places import (
    PinnedFile,
    Places,
    RejectedSource,
    ShardLocator,
    Source,
    copy_checked,
    list_files,
    no_right_bytes,
)
from registry.storage import Store, open_store
from registry.storage.names import is_own_staged
from registry.tfrecord.stamps import Watch

_MOST_THREADS: Final = 8
_MOST_TOLD: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredFile:
    """What became of one file.

    Attributes:
        path: below the target, ``name[/config]/version/file``.
        num_bytes: its size.
        source: where it was copied from; None where it was there already.
        problems: places that were passed over, each with what was wrong there.
    """

    path: str
    num_bytes: int
    source: str | None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """What a restore did, or, with ``dry_run``, would do; files sorted by path."""

    target: str
    files: tuple[RestoredFile, ...]
    dry_run: bool

    @property
    def copied(self) -> tuple[RestoredFile, ...]:
        """The files that were not there, or wrong."""
        return tuple(file for file in self.files if file.source is not None)

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.num_bytes for file in self.files)

    @property
    def num_bytes_copied(self) -> int:
        """Bytes that were copied."""
        return sum(file.num_bytes for file in self.copied)


def restore(
    pin_file: PinFile,
    names: Collection[str] | None,
    target_folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    dry_run: bool = False,
    advance: AdvanceBytes | None = None,
    threads: int | None = None,
    fetch: bool = False,
    allow_hosts: Iterable[str] = (),
) -> RestoreReport:
    """Put the files of some pins, or all, into a data directory, as ``<target>/<name>[/<config>]/<version>/<file>``.

    Each file is taken from the first place that has it right: the candidates of ``pin_file.places``, then the file's
    own locations, unless a ``data_dir`` was named, beside which nothing is looked at. Afterwards
    ``Places(data_dir=target_folder)`` finds the pins.

    Args:
        pin_file: the pins.
        names: which of them, by name or expression; None is all.
        target_folder: a path or URL; made where it is missing.
        overwrite: replace files that are there with other bytes.
        dry_run: say what would be done; files that are there are hashed, and of others only the size is looked at.
        advance: called with the number of bytes hashed or copied since the last call, by one thread at a time.
        threads: how many files at once; None is a few more than there are cores.
        fetch: whether places that the pins name may be asked, as long as their addresses are public.
        allow_hosts: hosts, buckets and folders that may be asked; what ``pin_file`` was loaded with counts as well.

    Raises:
        PinNotFoundError: no such pin.
        ConflictError: two pins want different bytes in one file.
        AlreadyStoredError: a file is there with other bytes, and ``overwrite`` is False; nothing was copied.
        ShardMismatchError: a file is nowhere as it was pinned, and somewhere as it was not.
        NotStoredError: a file is nowhere at all. Files that were found are in place in both cases.
        FetchNotAllowedError: the same, and places that the pins name were not asked.
        StorageError: the target cannot be written.
    """
    files = list_files(pin.entry for pin in pin_file.choose(names))
    target = open_store(target_folder)
    places = pin_file.places.allowing(fetch=fetch, hosts=allow_hosts)
    work = _Work(target, places, advance, overwrite=overwrite)
    count = threads or min(_MOST_THREADS, num_cpus() + 2)
    # One restore into a folder at a time: what another one left unfinished is then of a dead process.
    with nullcontext() if dry_run else _exclusive(target, files):
        if not dry_run:
            _clear_unfinished(target, files)
        restored = _restore(files, work, target, dry_run=dry_run, threads=count)
    return RestoreReport(target=mask(target.url), files=restored, dry_run=dry_run)


def _restore(
    files: list[PinnedFile], work: _Work, target: Store, *, dry_run: bool, threads: int
) -> tuple[RestoredFile, ...]:
    with _each(files, work.is_right, threads=threads, stop=work.stop) as answers:
        there = [answer.result() for answer in answers]
    if not work.overwrite:
        _refuse_other(target, [file for file, right in zip(files, there, strict=True) if right is False])
    restored = [
        RestoredFile(path=file.path, num_bytes=file.file.num_bytes, source=None)
        for file, right in zip(files, there, strict=True)
        if right
    ]
    wanted = [file for file, right in zip(files, there, strict=True) if not right]
    missing = []
    with _each(wanted, work.plan if dry_run else work.copy, threads=threads, stop=work.stop) as answers:
        for file, answer in zip(wanted, answers, strict=True):
            found, finding = answer.result()
            if found is None:
                missing.append((file, finding.refusals))
                continue
            problems = tuple(str(refusal) for refusal in finding.refusals)
            restored.append(
                RestoredFile(path=file.path, num_bytes=file.file.num_bytes, source=found.url, problems=problems)
            )
    if missing:
        raise no_right_bytes(missing)
    return tuple(sorted(restored, key=lambda file: file.path))


class _Work:
    """What threads do with one file each."""

    def __init__(self, target: Store, places: Places, advance: AdvanceBytes | None, *, overwrite: bool) -> None:
        self.stop = Event()
        self.overwrite = overwrite
        self._target = target
        self._places = places
        self._advance = advance
        self._lock = Lock()

    def is_right(self, wanted: PinnedFile) -> bool | None:
        """Whether the file is in the target as it was pinned; None where it is not there."""
        try:
            if self._target.size(wanted.path) != wanted.file.num_bytes:
                return False
            watch = Watch.begin(self._target, wanted.path)
            copy_checked(wanted, Source(store=self._target, name=wanted.path), self._count)
            if (indexes := self._places.indexes()) is not None:
                indexes.stamps.keep_watched(watch, wanted.sha256)
        except NotStoredError:
            return None
        except ShardMismatchError:
            return False
        return True

    def plan(self, wanted: PinnedFile) -> tuple[Source | None, ShardLocator]:
        """The place that a file would be copied from."""
        finding = ShardLocator(wanted, self._places)
        return next(finding.sources(), None), finding

    def copy(self, wanted: PinnedFile) -> tuple[Source | None, ShardLocator]:
        """Copy a file from the first place that has it right; None where none has."""
        finding = ShardLocator(wanted, self._places)
        for source in finding.sources():
            try:
                with self._target.create(wanted.path, overwrite=self.overwrite) as file:
                    copy_checked(wanted, source, _Writing(file.write, self._count))
            except (ShardMismatchError, StorageError) as error:
                # A target that cannot be written is no fault of the source, and no other source would help.
                if error.details.get("doing") == "write":
                    raise
                finding.refusals.append(RejectedSource.of(source.url, error))
            else:
                return source, finding
        return None, finding

    def _count(self, piece: bytes) -> None:
        if self.stop.is_set():
            raise _StoppedError("the restore was stopped")
        if self._advance is not None:
            with self._lock:
                self._advance(len(piece))


class _StoppedError(Exception):
    """Another file failed in a way that ends the restore, or a person ended it; never seen outside of here."""


@dataclass(frozen=True, slots=True)
class _Writing:
    write: Callable[[bytes], object]
    count: Callable[[bytes], None]

    def __call__(self, piece: bytes) -> None:
        self.write(piece)
        self.count(piece)


@contextmanager
def _each(
    files: list[PinnedFile], work: Callable[[PinnedFile], Any], *, threads: int, stop: Event
) -> Iterator[list[Future[Any]]]:
    """Futures of ``work`` for each file, by threads; they are stopped soon where the block ends with an error."""
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="restore") as pool:
        futures = [pool.submit(work, file) for file in files]
        try:
            yield futures
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


@contextmanager
def _exclusive(target: Store, files: list[PinnedFile]) -> Iterator[None]:
    """Alone in the target. Where the block fails, the folders that it made and put nothing into are removed."""
    root = target.local_root  # object stores have no folders
    paths = [] if root is None else [root / file.path for file in files if ".." not in file.path]
    folders = sorted({folder for path in paths for folder in path.parents}, reverse=True)
    missing = [folder for folder in folders if not os.path.exists(folder)]  # noqa: PTH110 (it raises for closed folders)
    try:
        with target.exclusive("data"):
            yield
    except BaseException:
        for folder in missing:  # one that lies in another comes before it
            with suppress(OSError):  # it is not empty, or was not made
                folder.rmdir()
        raise


def _clear_unfinished(target: Store, files: list[PinnedFile]) -> None:
    """Remove what restores that were killed left of these files; object stores show it to nobody."""
    if target.local_root is None:
        return
    folders: dict[str, set[str]] = {}
    for file in files:
        folder, _, last_part = file.path.rpartition("/")
        folders.setdefault(folder, set()).add(last_part)
    for folder, last_parts in folders.items():
        with suppress(OSError):  # no such folder yet; or not ours to clear, and the restore will say so
            for path in (target.local_root / folder).iterdir():
                if is_own_staged(path.name) and path.name.partition("_")[2] in last_parts:
                    path.unlink()


def _refuse_other(target: Store, files: list[PinnedFile]) -> None:
    if not files:
        return
    listed = "".join(f"\n  {target.locate(file.path)}" for file in files[:_MOST_TOLD])
    more = f"\n  and {len(files) - _MOST_TOLD} more" if len(files) > _MOST_TOLD else ""
    count = "1 file is" if len(files) == 1 else f"{len(files)} files are"
    raise AlreadyStoredError(
        f"{count} there already, with other bytes than the pinned ones{listed}{more}",
        hint="Choose another folder, or replace them with --force (overwrite=True in Python).",
        details={"paths": [target.locate(file.path) for file in files[:100]]},
    )
