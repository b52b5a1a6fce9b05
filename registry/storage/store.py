"""The interface ``Store``, which every kind of storage implements, and views of other stores."""

from __future__ import annotations

import abc
import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, NoReturn, Self, TypeAlias, TypeVar

from registry.errors import LeftoverWarning, NotStoredError, StorageError, warn
from registry.masking import mask
from registry.storage.faults import HashedFile, Range, StoredFile, cannot, replaced, too_long
from registry.storage.names import new_unfinished_name

T = TypeVar("T")

DEFAULT_READ_LIMIT: Final = 64 * 2**20
_PIECE_BYTES: Final = 4 * 2**20

Names: TypeAlias = list[str]  # in the classes here, `list` is a method


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    """A file that a store contains, whatever its name, or a folder of this machine.

    Attributes:
        name: relative to the store.
        num_bytes: its size; 0 for a folder.
        changed_at: when it was last written, renamed or linked, in UTC; None if the store does not say.
        is_folder: True for a folder of a local disk; other stores have no folders of their own.
        unlisted: only ``scan_listable`` sets it, for an object with an invalid name such as ``a//b``: the folder in
            which nothing else can be listed because of this object. None for all others.
    """

    name: str
    num_bytes: int
    changed_at: datetime | None
    is_folder: bool = False
    unlisted: str | None = None


class Store(abc.ABC):
    """The files below one folder. Names are relative to it, joined by ``/``, and cannot lead out of it.

    ``open_store`` makes one. A store has no connection and no open file, so it may be shared and kept.

    Every method raises StorageError: ``NotStoredError`` if a file is missing, ``AlreadyStoredError`` if a name is
    taken, ``StorageUnavailableError`` if another machine does not answer even after retries (see ``network``), and
    otherwise a StorageError with the operating system's ``errno``.
    """

    url: str
    """The root as a URL that ``open_store`` accepts, e.g. ``file:///data/mnist`` or ``s3://bucket/mnist``."""

    local_root: Path | None
    """The root as an absolute path if it is on this machine, else None."""

    keeps_writers: bool = False
    """Whether ``writer_of`` returns the writers of files."""

    catalog: str | None = None
    """The identity of the catalog whose data directory this is, or None. Unfinished folders contain it."""

    @abc.abstractmethod
    def locate(self, name: str) -> str:
        """The complete path or URL of ``name``, for messages."""

    @abc.abstractmethod
    def open(self, name: str) -> StoredFile:
        """Open a stored file for reading: in order, or by many ranges at once.

        It returns the bytes that are stored now. If the file is replaced meanwhile, an open local file returns the old
        bytes, and a store with ETags raises an error; other stores promise nothing.
        """

    def open_known(self, name: str, *, num_bytes: int, entity_tag: str) -> StoredFile:
        """Open a file whose size and ETag are known. If the store has ETags, no request is sent.

        Raises:
            ReplacedError: the file has another ETag now. Raised here or while reading.
        """
        file = self.open(name)
        if (file.entity_tag, file.num_bytes) != (entity_tag, num_bytes):
            file.close()
            raise replaced(self.locate(name))
        return file

    def read_ranges(
        self, name: str, ranges: Sequence[Range], *, in_order: bool = False
    ) -> Iterator[tuple[int, memoryview]]:
        """Open a file, read many ranges and close it; see ``StoredFile.read_ranges``."""
        file = self.open(name)
        try:
            views = file.read_ranges(ranges, in_order=in_order)
        except BaseException:
            file.close()
            raise
        return _and_close(views, file)

    def attempt(self, name: str, call: Callable[[Store], T]) -> T:
        """Call ``call`` with the store from which to read ``name``: this one, or a mirror (``shards.mirrored``).

        For code that opens a file by its path, or needs to know whether it is on this machine.
        """
        check_relative_name(name)
        return call(self)

    def source_of(self, name: str) -> Store:
        """The store with the bytes of ``name``: this store, unless another store lent the file (``upload``)."""
        check_relative_name(name)
        return self

    def sources_of(self, names: Iterable[str]) -> tuple[Store, ...]:
        """The stores with the bytes of ``names``, each once; see ``source_of``."""
        return tuple({source.url: source for source in map(self.source_of, names)}.values())

    @abc.abstractmethod
    def size(self, name: str) -> int:
        """Size of a stored file, in bytes."""

    def stamp(self, name: str) -> str:
        """A text that changes whenever the file is rewritten, as far as the store can tell."""
        return str(self.size(name))

    def entity_tag(self, name: str) -> str | None:
        """The store's tag (ETag) of the bytes that are stored now, or None if the store has no such tags."""
        check_relative_name(name)
        return None

    @abc.abstractmethod
    def exists(self, name: str) -> bool:
        """Whether ``name`` is a stored file or folder."""

    def is_regular(self, name: str) -> bool:
        """Whether ``name``, one of ``list()``, is a regular file inside the root.

        ``list()`` also returns pipes, and links that lead out of the root. A regular file may still be unreadable.
        Every name that an object store lists is a regular file.
        """
        check_relative_name(name)
        return True

    @abc.abstractmethod
    def list(self, folder: str = "") -> Names:
        """Every file below ``folder``, at any depth: names relative to the store, sorted.

        Unfinished files and folders (``incomplete.*``) and owner files are left out. If the folder does not exist, the
        list is empty.
        """

    def scan(self, folder: str = "") -> Iterator[StoredEntry]:
        """Every file below ``folder`` with its size, including unfinished files, owner files and markers.

        Files that have the first part of their names in common come together. Linked folders are not entered.
        """
        for name in self.list(folder):
            yield StoredEntry(name=name, num_bytes=self.size(name), changed_at=None)

    def scan_listable(self, folder: str = "") -> Iterator[StoredEntry]:
        """Like ``scan``, but continue after a folder that cannot be listed because of an object with an invalid name.

        The entry of that object names the folder: see ``StoredEntry.unlisted``.
        """
        return self.scan(folder)

    def now(self) -> datetime | None:
        """Return the time of the clock that dates the files of the store, in UTC, or None if files have no dates.

        Writes a file and removes it, because its time shows the clock of another machine.

        Raises:
            StorageError: the file cannot be written or listed.
        """
        folder = new_unfinished_name("clock")
        self.write_bytes(f"{folder}/now", b"")
        try:
            return next((entry.changed_at for entry in self.scan(folder) if not entry.is_folder), None)
        finally:
            self.remove_tree(folder)

    @abc.abstractmethod
    def folders(self, parent: str = "") -> Names:
        """The last parts of the names of the folders directly in ``parent``, sorted, including unfinished ones."""

    def create(self, name: str, *, overwrite: bool = False) -> AbstractContextManager[BinaryIO]:
        """Write a new file in one step: a context manager that provides a binary file to write to.

        The bytes are written under a unique temporary name. When the block ends, the file is synced to disk and renamed
        to ``name``. If the block raises an exception, or the process dies, the name does not appear, and an earlier
        file of this name is unchanged. Missing parent folders are created.

        Raises:
            AlreadyStoredError: the name is taken and ``overwrite`` is False. Also raised if another process takes the
                name during the block, as far as the store can tell.
        """
        return self._create(check_relative_name(name), overwrite=overwrite)

    @abc.abstractmethod
    def _create(self, name: str, *, overwrite: bool) -> AbstractContextManager[BinaryIO]: ...

    @abc.abstractmethod
    def child(self, name: str) -> Store:
        """The store rooted at the folder ``name``, which need not exist yet."""

    @abc.abstractmethod
    def remove_tree(self, name: str) -> None:
        """Remove a file, or a folder and everything in it. A missing name is not an error."""

    def prove(self, names: Iterable[str]) -> None:  # noqa: B027 (most stores have nothing to do)
        """Check files that are about to be opened, several at a time; see ``registry.shards.proved``.

        A plain store has no digests to check files against, so it does nothing.
        """

    def forget(self, name: str) -> bool:
        """Delete the cached parts of a file, because its content is damaged. Returns False if nothing was cached."""
        check_relative_name(name)
        return False

    def exclusive(self, name: str) -> AbstractContextManager[None]:
        """Lock the folder that contains ``name`` against other processes and threads of this machine.

        The lock is advisory, leaves nothing on disk and ends with its process. Object stores and file systems without
        locks provide none; there, the order of steps and the catalog's constraints decide races.
        """
        check_relative_name(name)
        return nullcontext()

    def remove_stump(self, name: str) -> bool:
        """Remove a staged folder whose process died before it wrote the owner file.

        Returns False if it has other files.

        Object stores have no such folders: a folder without objects does not exist.
        """
        check_relative_name(name)
        return False

    def remove(self, name: str) -> None:
        """Remove a file. A missing name is not an error."""
        self.remove_tree(name)

    def read_bytes(self, name: str, *, limit: int = DEFAULT_READ_LIMIT) -> bytes:
        """Read a small file.

        Raises:
            StorageError: the file is longer than ``limit`` bytes. No more bytes are read into memory.
        """
        with self.open(name) as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise too_long(self.locate(name), limit)
        return content

    def sha256(self, name: str) -> str:
        """Hash a stored file; 64 hex digits."""
        with self.open(name) as file:
            return file.sha256()

    def write_bytes(self, name: str, content: bytes, *, overwrite: bool = False) -> None:
        """Write a small file in one step.

        Raises:
            AlreadyStoredError: the name is taken and ``overwrite`` is False.
        """
        with self.create(name, overwrite=overwrite) as file:
            file.write(content)

    def require_writable(self, folder: str) -> None:
        """Check that files may be written below ``folder`` before long work begins. No file is left behind.

        Web servers and stores of fsspec are not checked.

        Raises:
            StorageError: files may not be written.
        """
        check_relative_name(folder)

    def create_from(
        self,
        name: str,
        source: Store,
        source_name: str,
        *,
        sha256: str | None = None,
        writer: str = "",
        require_reserved: Callable[[], None] | None = None,
    ) -> str | None:
        """Copy a complete file to a free name.

        Args:
            name: the new name.
            source: the store of the file.
            source_name: its name there.
            sha256: the expected digest of its bytes.
            writer: stored with the file if the store has ``keeps_writers``.
            require_reserved: passed if the name is reserved, so that only callers with the same bytes write to it
                meanwhile. An object store may then upload a large file directly, without a copy in the store. It is
                called once all bytes were sent, right before they appear, and raises if the reservation was lost.

        Returns:
            The ETag of the new file, or None if the store has no such tags.

        Raises:
            AlreadyStoredError: the name is taken.
            StorageError: the file has another digest. It then does not appear under the new name.
        """
        del writer, require_reserved
        with source.open(source_name) as file, self.create(name) as target:
            if sha256 is None:
                target.writelines(file.pieces())
            else:
                hashed = HashedFile(file)
                while piece := hashed.read(_PIECE_BYTES):
                    target.write(piece)
                hashed.require(sha256)
        return self.entity_tag(name)

    def sign(self, name: str, *, seconds: int) -> str | None:  # noqa: ARG002 (most stores sign nothing)
        """Return a URL with which anybody can read a file for some time, or None if the store cannot sign URLs."""
        check_relative_name(name)
        return None

    def writer_of(self, name: str) -> str | None:
        """Return the ``writer`` that was passed to ``create_from`` for a file, or None if it is unknown."""
        check_relative_name(name)
        return None

    def copy_to(self, name: str, final: str) -> None:
        """Copy a stored file to another name in this store, without overwriting; an object store copies on its server.

        Raises:
            AlreadyStoredError: ``final`` is taken, or another process takes it meanwhile.
            NotStoredError: the file ``name`` does not exist.
        """
        self.create_from(final, self, name)

    def move(self, name: str, final: str) -> None:
        """Rename a stored file to ``final``: in one step on local disks; other stores copy it.

        Raises:
            AlreadyStoredError: the name is taken.
        """
        self.copy_to(name, final)
        self.remove_tree(name)

    def move_in(self, name: str, source: Store, *, content_type: str) -> None:
        """Move the file ``name`` here from a local folder, and replace the file of that name, in one step.

        A local store requires the folder to be on its own disk. An object store sends the ``content_type`` to readers.
        """
        del content_type
        with source.open(name) as file, self.create(name, overwrite=True) as target:
            target.writelines(file.pieces())

    @abc.abstractmethod
    def stage(self, final: str) -> StagedFolder:
        """Create a folder on this machine, to be filled and committed as ``final``: see ``staged``."""

    def clear_abandoned(self, parent: str = "") -> Names:
        """Remove the staged folders in ``parent`` that dead processes left, and return their names.

        A folder that cannot be removed causes a LeftoverWarning rather than an error, because nothing reads it. Stores
        of other machines contain no staged folders.
        """
        check_folder_name(parent)
        return []

    def __repr__(self) -> str:
        return f"{type(self).__name__}({mask(self.url)!r})"


class StagedFolder(abc.ABC):
    """A folder that is being filled. Leaving its ``with`` block without ``commit`` discards it.

    Attributes:
        store: rooted at the staged folder, which is on this machine; ``commit`` publishes the files in it.
        final: the name that ``commit`` gives it, relative to the store that staged it.
    """

    def __init__(self, store: Store, *, final: str) -> None:
        self._open = True
        self.store = store
        self.final = final

    def commit(self) -> None:
        """Make the folder visible under its final name, complete and safely stored.

        On a disk this is one rename. An object store receives the files one by one; readers of the catalog see none of
        them before its row exists.

        Raises:
            FolderExistsError: something is stored under the final name. The staged folder is unchanged.
            StorageError: the folder was already committed or discarded.
        """
        if not self._open:
            raise StorageError(
                f"{self.store.locate('')} was already committed or discarded",
                hint="Stage a new folder.",
                details={"path": self.store.locate("")},
            )
        self._commit()
        self._open = False

    def take(self, source: Store, name: str, *, sha256: str | None = None) -> None:
        """Make a file of ``source`` part of the folder, under the same name.

        Raises:
            StorageError: a copy was made, and its digest is not ``sha256``.
        """
        self.store.create_from(name, source, name, sha256=sha256)

    def discard(self) -> None:
        """Remove the folder and everything in it. After ``commit`` or another ``discard`` it does nothing."""
        if self._open:
            self._open = False
            self._remove()

    def give_up(self) -> None:
        """Discard the folder after the work has ended. Files that cannot be removed cause a warning, not an error.

        The caller therefore sees the error that ended the work.
        """
        try:
            self.discard()
        except StorageError as error:
            warn_of_leftover(self.store.locate(""), error)

    def keep(self) -> str:
        """Leave the folder, complete or not, for a later run. Returns its path for messages."""
        if self._open:
            self._open = False
            self._release()
        return self.store.locate("").rstrip("/")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_up()

    @abc.abstractmethod
    def _commit(self) -> None: ...

    @abc.abstractmethod
    def _remove(self) -> None: ...

    @abc.abstractmethod
    def _release(self) -> None:
        """Let other processes use the folder."""


def warn_of_leftover(place: str, error: StorageError) -> None:
    """Warn that files which are no longer needed could not be removed."""
    warn(
        f"{place} is no longer needed but could not be removed ({error.message}); a later run will remove it",
        LeftoverWarning,
    )


def _and_close(views: Iterator[tuple[int, memoryview]], file: StoredFile) -> Iterator[tuple[int, memoryview]]:
    with file:
        yield from views


class ReadOnlyStore(Store):
    """A store that cannot be written to; ``refusal`` is the reason in the error, ``refusal_hint`` its hint."""

    refusal: str
    refusal_hint: str | None = None

    def _create(self, name: str, *, overwrite: bool) -> AbstractContextManager[BinaryIO]:  # noqa: ARG002
        self._refuse("write", name)

    def copy_to(self, name: str, final: str) -> None:  # noqa: ARG002
        """Raise StorageError: the store is read-only."""
        self._refuse("write", final)

    def remove_tree(self, name: str) -> None:
        """Raise StorageError: the store is read-only."""
        self._refuse("remove", name)

    def stage(self, final: str) -> StagedFolder:
        """Raise StorageError: the store is read-only."""
        self._refuse("publish", final)

    def _refuse(self, doing: str, name: str) -> NoReturn:
        path = self.locate(check_relative_name(name))
        raise cannot(doing, path, self.refusal, number=errno.EROFS, hint=self.refusal_hint)


class WrappedStore(ReadOnlyStore):
    """A read-only view of another store. ``_inner`` translates a name to the name in that store, or raises an error."""

    refusal = "the files of a published version are read-only"

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = store.url
        self.local_root = store.local_root

    def _inner(self, name: str) -> str:
        return name

    def locate(self, name: str) -> str:
        """The complete path or URL of the file."""
        return self._store.locate(name)

    def open(self, name: str) -> StoredFile:
        """Open a stored file for reading."""
        return self._store.open(self._inner(name))

    def open_known(self, name: str, *, num_bytes: int, entity_tag: str) -> StoredFile:
        """Open a file whose size and ETag are known."""
        return self._store.open_known(self._inner(name), num_bytes=num_bytes, entity_tag=entity_tag)

    def size(self, name: str) -> int:
        """Size of a stored file, in bytes."""
        return self._store.size(self._inner(name))

    def stamp(self, name: str) -> str:
        """The inner store's stamp of the file."""
        return self._store.stamp(self._inner(name))

    def entity_tag(self, name: str) -> str | None:
        """The inner store's ETag of the file."""
        return self._store.entity_tag(self._inner(name))

    def is_regular(self, name: str) -> bool:
        """Whether the inner store calls it a regular file."""
        return self._store.is_regular(self._inner(name))

    def exists(self, name: str) -> bool:
        """Whether ``name`` is a stored file or folder."""
        return self._store.exists(name)

    def list(self, folder: str = "") -> Names:
        """Every file below ``folder``."""
        return self._store.list(folder)

    def folders(self, parent: str = "") -> Names:
        """The folders directly in ``parent``."""
        return self._store.folders(parent)

    def child(self, name: str) -> Store:
        """The inner store's own folder ``name``, without this view."""
        return self._store.child(name)


class RenamedStore(WrappedStore):
    """Some files of another store under new names. Files without a new name are invisible.

    ``locate`` returns the real path of the file, so that messages name the file that is on disk.
    """

    refusal = "renamed files are read-only"

    def __init__(self, store: Store, names: Mapping[str, str]) -> None:
        """``names`` maps each new name to the name in ``store``."""
        super().__init__(store)
        self._names = dict(names)

    def locate(self, name: str) -> str:
        """The complete path or URL of the file whose new name is ``name``."""
        return self._store.locate(self._names.get(name, name))

    def exists(self, name: str) -> bool:
        """Whether ``name`` is a new name, or a folder of new names."""
        check_relative_name(name)
        return name in self._names or bool(self.list(name))

    def list(self, folder: str = "") -> Names:
        """The new names below ``folder``, sorted."""
        inside = f"{check_folder_name(folder)}/" if folder else ""
        return sorted(name for name in self._names if name.startswith(inside))

    def folders(self, parent: str = "") -> Names:
        """The folders of new names directly in ``parent``."""
        start = len(parent) + 1 if parent else 0
        return sorted({name[start:].partition("/")[0] for name in self.list(parent) if "/" in name[start:]})

    def child(self, name: str) -> RenamedStore:
        """The files below the folder ``name``; their new names become relative to it."""
        own = {path[len(name) + 1 :]: self._names[path] for path in self.list(check_relative_name(name))}
        return RenamedStore(self._store, own)

    def _inner(self, name: str) -> str:
        result = self._names.get(check_relative_name(name))
        if result is None:
            raise cannot(
                "read", self.locate(name), "no such file exists", number=errno.ENOENT, hint=None, kind=NotStoredError
            )
        return result


def check_relative_name(name: str) -> str:
    """Return ``name`` if it is inside a store's root: parts joined by ``/``, none of them empty, ``.`` or ``..``.

    A backslash is refused too: it separates folders on some systems and is part of a name on others.

    >>> check_relative_name("1.0.0/features.json")
    '1.0.0/features.json'

    Raises:
        StorageError: the name is empty, absolute, or could leave the root.
    """
    parts = name.split("/")
    if "\0" in name or "\\" in name or any(part in ("", ".", "..") for part in parts):
        raise StorageError(
            f"{name[:200]!r} does not name a file inside its store",
            hint="Names are relative to the store: parts joined by '/', without '..', '.' or a leading '/'.",
            details={"path": name[:200]},
        )
    return name


def check_folder_name(name: str) -> str:
    """Check a name like ``check_relative_name``; ``""`` is the root."""
    return name and check_relative_name(name)
