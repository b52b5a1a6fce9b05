"""Writes records as the files of an export: numbered files of a limited size, and the mixer after all of them.

    <prefix>-00000.tfrecord.gz  <prefix>-00001.tfrecord.gz  ...  <prefix>-mixer.json

They are written in a staged folder beside their place and moved when all are complete and on disk, the first file and
the mixer last. A reader that finds the mixer, or the file 00000 of an export without one, finds the whole export.

Files that a dead process left in a staged folder are no export, and the next export clears them away. A process that
dies while it moves files leaves a note: all files of its export are complete in the staged folder then, and the next
writer ends what it had begun. Files of the replaced export are removed, and the others get their names.
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Final, Self

from registry.builders.earth_engine.exporting.record_file import FRAME_BYTES, RecordFile, check_prefix
from registry.errors import AlreadyStoredError, StorageError, UsageError
from registry.storage import StagedFolder, Store
from registry.storage.store import abandoned_folders

_ASIDE: Final = "replaced"
"""Where the files are that are replaced, until the others have their names."""
_NOTE: Final = "commit.json"
_MOST_BYTES: Final = 10_000
_SUFFIXES: Final = (".tfrecord", ".tfrecord.gz")
_FIVE_DIGITS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFiles:
    """What was written.

    Attributes:
        filenames: of the records, in order.
        records: how many each of them has.
        mixer: name of the sidecar, None without one.
        num_bytes: of all files together, as they are stored.
    """

    filenames: tuple[str, ...]
    records: tuple[int, ...]
    mixer: str | None
    num_bytes: int


class ExportFiles:
    """The files of one export while they are written: a context manager; what is not committed is removed.

    Args:
        store: the folder.
        prefix: what all names begin with. It may lie in folders within the folder: ``2024/summer``.
        compressed: gzip.
        max_file_size: most bytes of a file before compression, the framing of records included; a larger record has a
            file of its own.
        overwrite: remove the files of an export of this prefix when the new one is complete.

    Raises:
        UsageError: an invalid prefix.
        AlreadyStoredError: there is an export of this prefix, and ``overwrite`` is False.
        StorageError: a file cannot be written.

    >>> from registry.storage import open_store
    >>> with ExportFiles(open_store("memory://docs"), "two", compressed=False, max_file_size=20) as files:
    ...     files.write(b"abc")
    ...     files.write(b"def")
    ...     files.commit(None).filenames
    ('two-00000.tfrecord', 'two-00001.tfrecord')
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        *,
        compressed: bool = True,
        max_file_size: int = 2**30,
        overwrite: bool = False,
    ) -> None:
        self._store = store
        self._prefix = check_image_prefix(prefix)
        self._parent = prefix.rpartition("/")[0]
        self._suffix = ".tfrecord.gz" if compressed else ".tfrecord"
        self._compressed = compressed
        self._limit = max_file_size
        self._overwrite = overwrite
        self._staged: StagedFolder | None = None
        self._stack = ExitStack()
        self._file: RecordFile | None = None
        self._records: list[int] = []

    def write(self, record: bytes) -> None:
        """Append one record, to a new file where the last has no room for it."""
        if self._file is None or self._is_full(self._file, len(record)):
            self._file = self._next_file()
        self._file.write(record)
        self._records[-1] += 1

    def commit(self, mixer: bytes | None) -> WrittenFiles:
        """Make the export visible, the ``mixer`` last; with ``overwrite``, remove first what is there of this prefix.

        Raises:
            AlreadyStoredError: another process has written files of this prefix meanwhile.
        """
        folder = self._folder()
        self._stack.close()
        begun = BegunCommit(prefix=self._prefix, suffix=self._suffix, count=len(self._records), mixer=mixer is not None)
        if mixer is not None:
            with folder.store.create("mixer.json") as file:
                file.write(mixer)
        moves = begun.moves(folder.name)
        num_bytes = sum(self._store.size(staged) for staged, _ in moves)
        with self._store.exclusive(self._prefix):
            end_begun(self._store, self._parent)
            self._refuse_others()
            found = self._found()  # the mixer first, then 00000: never is there what looks like a whole export
            aside = [(name, f"{folder.name}/{_ASIDE}/{name.rpartition('/')[2]}") for name in found]
            begun.note(folder)
            self._move(aside + moves)
            folder.discard()
        return WrittenFiles(
            filenames=tuple(begun.filenames),
            records=tuple(self._records),
            mixer=begun.mixer_name,
            num_bytes=num_bytes,
        )

    def __enter__(self) -> Self:
        if any(abandoned_folders(self._store, self._parent)):
            with self._store.exclusive(self._prefix):
                end_begun(self._store, self._parent)
        self._refuse_others()
        self._store.clear_abandoned(self._parent)
        self._staged = self._store.stage(self._prefix)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stack.__exit__(kind, error, trace)
        finally:
            self._folder().discard()

    def _folder(self) -> StagedFolder:
        if self._staged is None:
            raise UsageError("files are written within a with block", hint="Write: with ExportFiles(...) as files:")
        return self._staged

    def _is_full(self, file: RecordFile, num_bytes: int) -> bool:
        return bool(file.num_records) and file.num_content_bytes + FRAME_BYTES + num_bytes > self._limit

    def _next_file(self) -> RecordFile:
        self._stack.close()  # the file before is on disk then
        number = len(self._records)
        file = self._stack.enter_context(self._folder().store.create(f"{number:05}"))
        self._records.append(0)
        return self._stack.enter_context(RecordFile(file, compressed=self._compressed))

    def _move(self, pairs: list[tuple[str, str]]) -> None:
        """Give the files other names; give them their own again where that fails half-way."""
        moved: list[tuple[str, str]] = []
        try:
            for name, final in pairs:
                moved.append((name, final))  # first: an interrupt may come just after the move
                self._store.move(name, final)
        except BaseException as error:
            if isinstance(error, AlreadyStoredError):
                moved.pop()  # the file of that name is another process's
            for name, final in reversed(moved):
                if self._store.exists(name):  # not moved, or only half
                    self._store.remove_tree(final)
                else:
                    self._store.move(final, name)
            raise

    def _found(self) -> list[str]:
        return find_files(self._store, self._prefix)

    def _refuse_others(self) -> None:
        found = [] if self._overwrite else self._found()
        if found:
            raise AlreadyStoredError(
                f"there is an export with the prefix {self._prefix!r} already: "
                f"{self._store.locate(found[0])}" + (f" and {len(found) - 1} more" if len(found) > 1 else ""),
                hint="Choose another prefix (--prefix), or replace it: overwrite=True; --overwrite.",
                details={"path": self._store.locate(found[0]), "files": found[:100]},
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunCommit:
    """Which files an export has: staged as ``00000``, ``00001``, ..., and ``mixer.json``.

    Attributes:
        prefix, suffix: of their names.
        count: files of records.
        mixer: whether there is one.
    """

    prefix: str
    suffix: str
    count: int
    mixer: bool

    @property
    def filenames(self) -> list[str]:
        """The files of records by the names they get."""
        return [f"{self.prefix}-{number:05}{self.suffix}" for number in range(self.count)]

    @property
    def mixer_name(self) -> str | None:
        """The name that the sidecar gets."""
        return f"{self.prefix}-mixer.json" if self.mixer else None

    def moves(self, folder: str) -> list[tuple[str, str]]:
        """The files in the staged ``folder`` with the names they get: the first and the mixer last."""
        pairs = [(f"{folder}/{number:05}", name) for number, name in enumerate(self.filenames)]
        sidecar = [(f"{folder}/mixer.json", name) for name in [self.mixer_name] if name is not None]
        return pairs[1:][::-1] + pairs[:1] + sidecar

    def note(self, folder: StagedFolder) -> None:
        """Write down in the staged folder that the names are given from now on."""
        with folder.store.create(_NOTE) as file:
            file.write(json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, store: Store, folder: str) -> BegunCommit | None:
        """The note in a staged folder; None without one, and for a file that another program made."""
        try:
            content: Any = json.loads(store.read_bytes(f"{folder}/{_NOTE}", limit=_MOST_BYTES))
            made = cls(**content)
            is_ours = (
                check_image_prefix(made.prefix).rpartition("/")[0] == folder.rpartition("/")[0]
                and made.suffix in _SUFFIXES
                and type(made.count) is int
                and type(made.mixer) is bool
            )
        except (StorageError, UsageError, ValueError, TypeError, AttributeError, RecursionError):
            return None
        return made if is_ours else None


def end_begun(store: Store, parent: str) -> None:
    """End what dead processes had begun in the folder ``parent``, which the caller has locked."""
    for folder in abandoned_folders(store, parent):
        begun = BegunCommit.read(store, folder)
        if begun is None:
            continue
        found = find_files(store, begun.prefix)
        if begun.count > len(store.child(folder).list()) + len(found):  # a note may say anything
            continue
        moves = begun.moves(folder)
        left = {name: staged for staged, name in moves if store.exists(staged)}
        if not left or not all(name in left or store.exists(name) for _, name in moves):
            continue  # it was done; or these are not all of its files
        names = {name for _, name in moves}
        for name in found:
            if name in left or name not in names:
                store.remove_tree(name)
        for staged, name in moves:
            if name in left:
                store.move(staged, name)


def check_image_prefix(prefix: str) -> str:
    """``prefix`` if the names of an image's files can begin with it, folders before them included.

    Raises:
        UsageError: a part of it is no name, or one that this registry gives to unfinished files.
    """
    for part in prefix.split("/"):
        check_prefix(part)
    return prefix


def find_files(store: Store, prefix: str) -> list[str]:
    """The files of the image export that ``prefix`` has: its mixer first, then the others by number.

    Also those of the older style, without a dash, whose numbers have five digits. A longer number is of a file among
    so many others, else a date: ``samples-20240131.tfrecord.gz`` is a table of another prefix.
    """
    folder, _, last = prefix.rpartition("/")
    ours = re.compile(
        rf"{re.escape(last)}(?:(?P<mixer>-?mixer\.json)|(?:-(?P<number>\d{{5,}})|(?P<old>\d{{5}}))\.tfrecord(?:\.gz)?)",
        re.ASCII,
    )
    inside = len(folder) + 1 if folder else 0
    found = [(one, name) for name in store.list(folder) if (one := ours.fullmatch(name[inside:])) is not None]
    numbered = sorted((-1 if one["mixer"] else int(one["number"] or one["old"]), name) for one, name in found)
    names: list[str] = []
    before = -1
    for number, name in numbered:
        if number >= _FIVE_DIGITS and number > before + 1:
            break
        names.append(name)
        before = number
    return names
