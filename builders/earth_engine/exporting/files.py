"""Writes records to the files of an export: numbered files of limited size, then the mixer.

    <prefix>-00000.tfrecord.gz  <prefix>-00001.tfrecord.gz  ...  <prefix>-mixer.json

Files are written to a staged folder and moved when all are complete and on disk, file 00000 and the mixer last. So a
reader that finds the mixer, or file 00000 of an export without a mixer, finds a complete export.

If a process dies while it writes, the next export removes its staged folder. If it dies while it moves files, it leaves
a note in the staged folder, whose files are then complete: the next writer removes the remaining files of the replaced
export and finishes the moves.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Final, Self

from registry.builders.earth_engine.exporting.record_file import FRAME_BYTES, RecordFile, check_prefix
from registry.builders.earth_engine.stored.found_files import NamedFiles, group_names
from registry.errors import AlreadyStoredError, StorageError, UsageError
from registry.storage import InnerFolder, Store, abandoned_folders, clear_abandoned

_ASIDE: Final = "replaced"
"""Subfolder for the replaced files until the new files have their names."""
_NOTE: Final = "commit.json"
_MOST_BYTES: Final = 10_000
_SUFFIXES: Final = (".tfrecord", ".tfrecord.gz")
_FIVE_DIGITS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFiles:
    """The files of a committed export.

    Attributes:
        filenames: names of the TFRecord files, in order.
        records: number of records in each file.
        mixer: name of the mixer, or None.
        num_bytes: bytes of all files as stored.
    """

    filenames: tuple[str, ...]
    records: tuple[int, ...]
    mixer: str | None
    num_bytes: int

    @property
    def num_records(self) -> int:
        """Number of records in all files."""
        return sum(self.records)


class ExportFiles:
    """Writes the files of one export. Use it as a context manager; files that are not committed are removed.

    Args:
        store: the folder to write to.
        prefix: prefix of all names; it may contain folders: ``2024/summer``.
        compressed: compress with gzip.
        max_file_size: maximum bytes of a file before compression, framing included; a larger record is written to its
            own file.
        overwrite: remove the files of an existing export with this prefix when the new one is complete.

    Raises:
        UsageError: an invalid prefix.
        AlreadyStoredError: an export with this prefix exists, and ``overwrite`` is False.
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
        self._staged: InnerFolder | None = None
        self._stack = ExitStack()
        self._file: RecordFile | None = None
        self._records: list[int] = []

    def write(self, record: bytes) -> None:
        """Append one record; start a new file if the current one would become too large."""
        if self._file is None or self._is_full(self._file, len(record)):
            self._file = self._next_file()
        self._file.write(record)
        self._records[-1] += 1

    def commit(self, mixer: bytes | None) -> WrittenFiles:
        """Make the export visible, the ``mixer`` last; with ``overwrite``, first remove the export it replaces.

        Raises:
            AlreadyStoredError: another process wrote files with this prefix in the meantime.
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
            found = self._found()  # the mixer and 00000 first: no reader sees an incomplete export as complete
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
        clear_abandoned(self._store, self._parent)
        self._staged = InnerFolder(self._store, self._prefix)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stack.__exit__(kind, error, trace)
        finally:
            self._folder().discard()

    def _folder(self) -> InnerFolder:
        if self._staged is None:
            raise UsageError(
                "ExportFiles must be used in a with block", hint="with ExportFiles(...) as files: files.write(record)"
            )
        return self._staged

    def _is_full(self, file: RecordFile, num_bytes: int) -> bool:
        return bool(file.num_records) and file.num_content_bytes + FRAME_BYTES + num_bytes > self._limit

    def _next_file(self) -> RecordFile:
        self._stack.close()  # puts the previous file on disk
        number = len(self._records)
        file = self._stack.enter_context(self._folder().store.create(f"{number:05}"))
        self._records.append(0)
        return self._stack.enter_context(RecordFile(file, compressed=self._compressed))

    def _move(self, pairs: list[tuple[str, str]]) -> None:
        """Rename the files; undo the renames if one fails."""
        moved: list[tuple[str, str]] = []
        try:
            for name, final in pairs:
                moved.append((name, final))  # appended first, because an interrupt may come just after the move
                self._store.move(name, final)
        except BaseException as error:
            if isinstance(error, AlreadyStoredError):
                moved.pop()  # the existing file belongs to another process
            for name, final in reversed(moved):
                if self._store.exists(name):  # not moved, or copied in part
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
                f"an export with the prefix {self._prefix!r} already exists: "
                f"{self._store.locate(found[0])}" + (f" and {len(found) - 1} more" if len(found) > 1 else ""),
                hint="Choose another prefix (--prefix), or replace it: overwrite=True; --overwrite.",
                details={"path": self._store.locate(found[0]), "files": found[:100]},
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunCommit:
    """The note of a commit: the files of an export, staged as ``00000``, ``00001``, ... and ``mixer.json``.

    Attributes:
        prefix: prefix of the final names.
        suffix: suffix of the final names.
        count: number of TFRecord files.
        mixer: whether the export has a mixer.
    """

    prefix: str
    suffix: str
    count: int
    mixer: bool

    @property
    def filenames(self) -> list[str]:
        """The final names of the TFRecord files."""
        return [f"{self.prefix}-{number:05}{self.suffix}" for number in range(self.count)]

    @property
    def mixer_name(self) -> str | None:
        """The final name of the mixer, or None."""
        return f"{self.prefix}-mixer.json" if self.mixer else None

    def moves(self, folder: str) -> list[tuple[str, str]]:
        """Pairs of staged and final names; file 00000 and the mixer come last."""
        pairs = [(f"{folder}/{number:05}", name) for number, name in enumerate(self.filenames)]
        sidecar = [(f"{folder}/mixer.json", name) for name in [self.mixer_name] if name is not None]
        return pairs[1:][::-1] + pairs[:1] + sidecar

    def note(self, folder: InnerFolder) -> None:
        """Write the note to the staged folder, before files are moved."""
        with folder.store.create(_NOTE) as file:
            file.write(json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, store: Store, folder: str) -> BegunCommit | None:
        """Read the note of a staged folder; None if it is missing or invalid."""
        try:
            content: Any = json.loads(store.read_bytes(f"{folder}/{_NOTE}", limit=_MOST_BYTES))
            result = cls(**content)
            is_ours = (
                check_image_prefix(result.prefix).rpartition("/")[0] == folder.rpartition("/")[0]
                and result.suffix in _SUFFIXES
                and type(result.count) is int
                and type(result.mixer) is bool
            )
        except (StorageError, UsageError, ValueError, TypeError, AttributeError, RecursionError):
            return None
        return result if is_ours else None


def end_begun(store: Store, parent: str) -> None:
    """Finish the commits that dead processes started in the folder ``parent``, which the caller has locked."""
    for folder in abandoned_folders(store, parent):
        begun = BegunCommit.read(store, folder)
        if begun is None:
            continue
        files = find_files(store, begun.prefix)
        if begun.count > len(store.child(folder).list()) + len(files):  # do not trust the note
            continue
        moves = begun.moves(folder)
        left = {name: staged for staged, name in moves if store.exists(staged)}
        if not left or not all(name in left or store.exists(name) for _, name in moves):
            continue  # the commit is complete, or files are missing
        names = {name for _, name in moves}
        for name in files:
            if name in left or name not in names:
                store.remove_tree(name)
        for staged, name in moves:
            if name in left:
                store.move(staged, name)


def check_image_prefix(prefix: str) -> str:
    """Return ``prefix`` if it is a valid prefix of an image's files; it may contain folders.

    Raises:
        UsageError: a part is not a valid name, or is reserved for unfinished files.
    """
    for part in prefix.split("/"):
        check_prefix(part)
    return prefix


def find_files(store: Store, prefix: str) -> list[str]:
    """The files of the image export with ``prefix``: its mixer first, then the others by number.

    A number of more than five digits counts only if the numbers before it exist; otherwise it is a date:
    ``samples-20240131.tfrecord.gz`` is a table with another prefix.
    """
    folder, slash, last = prefix.rpartition("/")
    inside = [name.removeprefix(folder + slash) for name in store.list(folder)]
    group = group_names(inside, last).get(last, NamedFiles())
    names, before = sorted(group.mixers), -1
    for shard in sorted(group.shards):
        if shard.number >= _FIVE_DIGITS and shard.number > before + 1:
            break
        names.append(shard.filename)
        before = shard.number
    return [folder + slash + name for name in names]
