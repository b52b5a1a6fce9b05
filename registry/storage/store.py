"""The interface ``Store``, which every kind of storage implements, and the staging of whole folders in it.

    store.stage("mnist/1.0.0")  ->  mnist/incomplete.5f0a9c31_1.0.0/  ->  .commit()  ->  mnist/1.0.0/

While a staged folder is filled, an owner file in it names its process and machine. A later run removes a staged folder
only if its owner is known to be dead: it keeps folders of other machines, and folders with files but no owner file. A
single file that is being written has its owner's mark in its name, and the same rule applies.
"""

from __future__ import annotations

import abc
import errno
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, NoReturn, Self, TypeAlias

from registry.errors import LeftoverWarning, NotStoredError, StorageError
from registry.masking import mask
from registry.storage.faults import Range, StoredFile, cannot
from registry.storage.names import (
    OWNER_FILE,
    Owner,
    check_folder_name,
    check_relative_name,
    is_own_staged,
    is_unfinished,
    new_unfinished_name,
)

DEFAULT_READ_LIMIT: Final = 64 * 2**20
_STAGING_ATTEMPTS: Final = 10

Names: TypeAlias = list[str]  # in the classes here, `list` is a method


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

    @abc.abstractmethod
    def locate(self, name: str) -> str:
        """The complete path or URL of ``name``, for messages."""

    @abc.abstractmethod
    def open(self, name: str) -> StoredFile:
        """Open a stored file for reading: in order, or by many ranges at once.

        It returns the bytes that are stored now. If the file is replaced meanwhile, an open local file returns the old
        bytes, and a store with ETags raises an error; other stores promise nothing.
        """

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

    @abc.abstractmethod
    def folders(self, parent: str = "") -> Names:
        """The last parts of the names of the folders directly in ``parent``, sorted, including unfinished ones."""

    def create(self, name: str, *, overwrite: bool = False) -> AbstractContextManager[BinaryIO]:
        """Write a new file in one step: a context manager that provides a binary file to write to.

        The bytes go to a unique temporary name. When the block ends, they are synced to disk and renamed to ``name``.
        If the block raises an exception, or the process dies, the name does not appear, and a file that had this name
        before is unchanged. Missing parent folders are created.

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

    @abc.abstractmethod
    def publish(self, staged: str, final: str) -> None:
        """Make the staged folder visible as ``final``; ``StagedFolder.commit`` calls it.

        A local store renames the folder. An object store copies the objects one by one to free names, then removes the
        staged ones; readers who go through the catalog see none of them before its row exists. Other stores check
        whether the names are free before they copy, so two publishers may both find them free.

        Raises:
            FolderExistsError: something is stored at ``final``.
        """

    def prove(self, names: Iterable[str]) -> None:  # noqa: B027 (most stores have nothing to do)
        """Check files that are about to be opened, several at a time; see ``registry.shards.proved``.

        A plain store has no digests to check files against, so it does nothing.
        """

    def exclusive(self, name: str) -> AbstractContextManager[None]:
        """Lock the folder that contains ``name`` against other processes and threads of this machine.

        The lock is advisory, leaves nothing on disk and ends with its process. Object stores and file systems without
        locks provide none; there, the order of steps and the catalog's constraints decide races.
        """
        check_relative_name(name)
        return nullcontext()

    def remove_stump(self, name: str) -> bool:
        """Remove a staged folder whose process died before it wrote the owner file; False if it contains other files.

        Object stores have no such folders: a folder without objects does not exist.
        """
        check_relative_name(name)
        return False

    def retract(self, name: str) -> None:
        """Remove a published folder: hide it in one step, then remove its files one by one."""
        with self.stage(name) as staged:
            self.publish(name, f"{staged.name}/retracted")

    def read_bytes(self, name: str, *, limit: int = DEFAULT_READ_LIMIT) -> bytes:
        """Read a small file.

        Raises:
            StorageError: it is longer than ``limit`` bytes. No more than that is read into memory.
        """
        with self.open(name) as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise StorageError(
                f"cannot read {self.locate(name)}: it is longer than {limit} bytes",
                hint="Files of this kind are small: the file is damaged, or another file has its name.",
                details={"path": self.locate(name), "limit": limit},
            )
        return content

    def copy(self, name: str, target: Store) -> None:
        """Copy a stored file to the same name in another store, some megabytes at a time."""
        with self.open(name) as source, target.create(name) as file:
            file.writelines(source.pieces())

    def copy_to(self, name: str, final: str) -> None:
        """Copy a stored file to another name in this store, without overwriting; an object store copies on its server.

        Raises:
            AlreadyStoredError: ``final`` is taken, or another process takes it meanwhile.
            NotStoredError: the file ``name`` does not exist.
        """
        with self.open(name) as source, self.create(final) as file:
            file.writelines(source.pieces())

    def move(self, name: str, final: str) -> None:
        """Rename a stored file to ``final``: in one step on local disks; other stores copy it.

        Raises:
            AlreadyStoredError: the name is taken.
        """
        self.copy_to(name, final)
        self.remove_tree(name)

    def stage(self, final: str) -> StagedFolder:
        """Create a folder ``incomplete.<8 hex>_<last part>`` next to ``final``, to be filled and committed."""
        parent, slash, last_part = check_relative_name(final).rpartition("/")
        for attempt in range(1, _STAGING_ATTEMPTS + 1):
            name = parent + slash + new_unfinished_name(last_part)
            try:
                with self.create(f"{name}/{OWNER_FILE}") as file:
                    file.write(json.dumps(asdict(Owner.this_process()), sort_keys=True).encode())
            except NotStoredError:  # another process took the empty folder for an abandoned one and removed it: retry
                if attempt == _STAGING_ATTEMPTS:
                    raise
            else:
                break
        return StagedFolder(self, name=name, final=final)

    def clear_abandoned(self, parent: str = "") -> Names:
        """Remove the staged folders in ``parent`` that dead processes left, and return their names.

        A folder that cannot be removed causes a LeftoverWarning and no error: nothing reads it.
        """
        removed = []
        for name, owner in _staged_folders(self, parent):
            if owner is not None and owner.is_dead():
                try:
                    self.remove_tree(name)
                except StorageError as error:
                    warn_of_leftover(self.locate(name), error)
                else:
                    removed.append(name)
            elif owner is None and is_own_staged(name.rpartition("/")[2]) and self.remove_stump(name):
                removed.append(name)
        return removed

    def __repr__(self) -> str:
        return f"{type(self).__name__}({mask(self.url)!r})"


class StagedFolder:
    """A folder that is being filled next to its final name. Leaving its ``with`` block without ``commit`` discards it.

    Attributes:
        store: rooted at the staged folder; ``commit`` publishes the files that are written there.
        name: the staged folder's name, relative to the store that staged it.
        final: the name that ``commit`` gives it.
    """

    def __init__(self, parent: Store, *, name: str, final: str) -> None:
        self._parent = parent
        self._open = True
        self.name = name
        self.final = final
        self.store = parent.child(name)

    def commit(self) -> None:
        """Make the folder visible under its final name, complete and on disk: see ``Store.publish``.

        Raises:
            FolderExistsError: something is stored under the final name. The staged folder is unchanged.
            StorageError: the folder was already committed or discarded.
        """
        if not self._open:
            raise StorageError(
                f"{self._parent.locate(self.name)} was already committed or discarded",
                hint="Stage a new folder.",
                details={"path": self._parent.locate(self.name)},
            )
        self._parent.publish(self.name, self.final)
        self._open = False

    def discard(self) -> None:
        """Remove the folder and everything in it. After ``commit`` or another ``discard`` it does nothing."""
        if self._open:
            self._open = False
            self._parent.remove_tree(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_up()

    def give_up(self) -> None:
        """Discard the folder when the work has ended; files that cannot be removed cause a warning, not an error.

        So an error that ended the work is the one that the caller sees.
        """
        try:
            self.discard()
        except StorageError as error:
            warn_of_leftover(self._parent.locate(self.name), error)


def warn_of_leftover(place: str, error: StorageError) -> None:
    """Warn that files which are no longer needed could not be removed."""
    warnings.warn(
        f"{place} is no longer needed but could not be removed ({error.message}); a later run removes it",
        LeftoverWarning,
        stacklevel=2,
    )


def abandoned_folders(store: Store, parent: str) -> Iterator[str]:
    """Find the staged folders directly in ``parent`` that dead processes left: names relative to the store."""
    return (name for name, owner in _staged_folders(store, parent) if owner is not None and owner.is_dead())


def _staged_folders(store: Store, parent: str) -> Iterator[tuple[str, Owner | None]]:
    prefix = f"{check_folder_name(parent)}/" if parent else ""
    for folder in filter(is_unfinished, store.folders(parent)):
        yield prefix + folder, _read_owner(store, f"{prefix}{folder}/{OWNER_FILE}")


def _read_owner(store: Store, name: str) -> Owner | None:
    """Read the owner of a staged folder; None if the owner file is missing or malformed."""
    try:
        content: Any = json.loads(store.read_bytes(name, limit=10_000))
        owner = Owner(**content)
    except (StorageError, ValueError, TypeError, RecursionError):  # a folder of TFDS's own, or one being removed
        return None
    texts = (owner.host, owner.machine, owner.boot, owner.namespace, owner.started)
    if not all(isinstance(text, str) for text in texts) or type(owner.pid) is not int or owner.pid <= 0:
        return None
    return owner


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

    def publish(self, staged: str, final: str) -> None:  # noqa: ARG002
        """Raise StorageError: the store is read-only."""
        self._refuse("publish", final)

    def _refuse(self, doing: str, name: str) -> NoReturn:
        path = self.locate(check_relative_name(name))
        raise cannot(doing, path, self.refusal, number=errno.EROFS, hint=self.refusal_hint)


class WrappedStore(ReadOnlyStore):
    """A read-only view of another store; ``_inner`` translates a name into the name in that store, or raises."""

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

    refusal = "files under other names are only read"

    def __init__(self, store: Store, names: Mapping[str, str]) -> None:
        """``names`` maps each new name to the name in ``store``."""
        super().__init__(store)
        self._names = dict(names)

    def locate(self, name: str) -> str:
        """The complete path or URL of the file with the new name ``name``."""
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
        own = {one[len(name) + 1 :]: self._names[one] for one in self.list(check_relative_name(name))}
        return RenamedStore(self._store, own)

    def _inner(self, name: str) -> str:
        found = self._names.get(check_relative_name(name))
        if found is None:
            raise cannot(
                "read", self.locate(name), "there is no such file", number=errno.ENOENT, hint=None, kind=NotStoredError
            )
        return found
