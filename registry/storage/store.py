"""The interface of a place that holds bytes, and the staging of whole folders in it.

    store.stage("mnist/1.0.0")  ->  mnist/incomplete.5f0a9c31_1.0.0/  ->  .commit()  ->  mnist/1.0.0/

While a staged folder is filled, an owner file in it names its process and machine. A later run removes folders whose
owner is dead, and never one whose owner lives or may live: a folder of another machine, or with files but without an
owner file, is kept. A single file that is being written has the mark of its owner in its name, and is removed alike.
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
    """The files below one folder. Names are relative to it, joined by ``/``; none can lead out of it.

    Made by ``open_store``. A store holds no connection and no open file, so it may be shared and kept.

    Every method raises StorageError: ``NotStoredError`` where a file is missing, ``AlreadyStoredError`` where one is in
    the way, ``StorageUnavailableError`` where another machine does not answer as it should, though it was asked again
    (see ``network``), and otherwise with the operating system's ``errno``.
    """

    url: str
    """The root as a URL that ``open_store`` takes back, e.g. ``file:///data/mnist`` or ``s3://bucket/mnist``."""

    local_root: Path | None
    """The root as an absolute path where it is on this machine, else None."""

    @abc.abstractmethod
    def locate(self, name: str) -> str:
        """The whole path or URL of ``name``, for messages and for people."""

    @abc.abstractmethod
    def open(self, name: str) -> StoredFile:
        """Open a stored file for reading: in order, or by many ranges at once.

        It gives the bytes that are stored now. Where they are replaced meanwhile, an open file of a disk gives the old
        ones, and an object of a store that has ETags an error; elsewhere nothing is promised.
        """

    def read_ranges(
        self, name: str, ranges: Sequence[Range], *, in_order: bool = False
    ) -> Iterator[tuple[int, memoryview]]:
        """The bytes of many ranges of a stored file; see ``StoredFile.read_ranges``. Nobody has to close a file."""
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
        """A text that another one stands for as soon as the file is written anew, as far as the store can tell."""
        return str(self.size(name))

    def entity_tag(self, name: str) -> str | None:
        """The store's own tag (ETag) of the bytes that are stored now; None where the store has no such tags."""
        check_relative_name(name)
        return None

    @abc.abstractmethod
    def exists(self, name: str) -> bool:
        """Whether ``name`` is a stored file or folder."""

    def is_regular(self, name: str) -> bool:
        """Whether ``name``, one of ``list``, is a file of bytes within the root; links out of it and pipes are listed.

        Whether it can be read is another question. All that an object store lists is.
        """
        check_relative_name(name)
        return True

    @abc.abstractmethod
    def list(self, folder: str = "") -> Names:
        """Every file below ``folder``, folders within folders included: names relative to the store, sorted.

        Left out: files and folders that are unfinished (``incomplete.*``) and owner files. No such folder: no names.
        """

    @abc.abstractmethod
    def folders(self, parent: str = "") -> Names:
        """The folders directly in ``parent``, their last parts only, sorted, unfinished ones included."""

    def create(self, name: str, *, overwrite: bool = False) -> AbstractContextManager[BinaryIO]:
        """Write a new file in one step: a context manager that gives a binary file to write to.

        The bytes go to a unique temporary name; when the block ends they are on disk, then renamed to ``name``. When
        it ends with an exception, or the process dies, nothing of that name is visible and what was there before is
        as it was. Folders on the way are made.

        Raises:
            AlreadyStoredError: the name is taken and ``overwrite`` is False; also where another process takes it
                while this one writes, as far as the store can tell.
        """
        return self._create(check_relative_name(name), overwrite=overwrite)

    @abc.abstractmethod
    def _create(self, name: str, *, overwrite: bool) -> AbstractContextManager[BinaryIO]: ...

    @abc.abstractmethod
    def child(self, name: str) -> Store:
        """The store rooted at the folder ``name``, which need not exist yet."""

    @abc.abstractmethod
    def remove_tree(self, name: str) -> None:
        """Remove a file, or a folder and all that is in it. Nothing there: nothing to do."""

    @abc.abstractmethod
    def publish(self, staged: str, final: str) -> None:
        """Make the staged folder visible as ``final``; called by ``StagedFolder.commit``.

        On disks by one rename. An object store copies the objects to names that it finds free, one visible after the
        other, then removes the staged ones; whoever goes by the catalog sees none of them before its row. Other stores
        look whether names are free, and two publishers may both find them so.

        Raises:
            FolderExistsError: something is stored at ``final``.
        """

    def prove(self, names: Iterable[str]) -> None:  # noqa: B027 (nothing is what most stores have to do)
        """Prepare to open ``names``, where opening one has to prove something first, see ``registry.shards.proved``.

        Nobody has promised anything of the files of a plain store.
        """

    def exclusive(self, name: str) -> AbstractContextManager[None]:
        """Within the block no other process or thread of this machine is in it for ``name`` or a folder beside it.

        Only an advice, and nothing is kept on disk: the lock goes with its process. Object stores, and file systems
        without locks, have none; there the order of steps and the catalog's constraints have to do.
        """
        check_relative_name(name)
        return nullcontext()

    def remove_stump(self, name: str) -> bool:
        """Remove a staged folder whose process died before it said who it is; False where it is more than that.

        Object stores have none: a folder without objects is not there.
        """
        check_relative_name(name)
        return False

    def retract(self, name: str) -> None:
        """Remove a folder that was published: out of sight in one step, then file by file."""
        with self.stage(name) as staged:
            self.publish(name, f"{staged.name}/retracted")

    def read_bytes(self, name: str, *, limit: int = DEFAULT_READ_LIMIT) -> bytes:
        """The whole content of a small file.

        Raises:
            StorageError: it is longer than ``limit`` bytes; no more than that is held in memory.
        """
        with self.open(name) as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise StorageError(
                f"cannot read {self.locate(name)}: it is longer than {limit} bytes",
                hint="A file of this kind is small; this is another file, or a damaged one.",
                details={"path": self.locate(name), "limit": limit},
            )
        return content

    def copy(self, name: str, target: Store) -> None:
        """Copy a stored file to the same name in another store, some megabytes at a time."""
        with self.open(name) as source, target.create(name) as file:
            file.writelines(source.pieces())

    def copy_to(self, name: str, final: str) -> None:
        """Copy a stored file to another name in this store; an object store does so by itself. Never overwrites.

        Raises:
            AlreadyStoredError: ``final`` is taken; also where another process takes it meanwhile.
            NotStoredError: there is no file ``name``.
        """
        with self.open(name) as source, self.create(final) as file:
            file.writelines(source.pieces())

    def move(self, name: str, final: str) -> None:
        """Give a stored file the name ``final``: on this machine's disks in one step, elsewhere it is copied.

        Raises:
            AlreadyStoredError: the name is taken.
        """
        self.copy_to(name, final)
        self.remove_tree(name)

    def stage(self, final: str) -> StagedFolder:
        """A fresh folder of this process beside ``final``, ``incomplete.<8 hex>_<last part>``, to fill and commit."""
        parent, slash, last_part = check_relative_name(final).rpartition("/")
        for attempt in range(1, _STAGING_ATTEMPTS + 1):
            name = parent + slash + new_unfinished_name(last_part)
            try:
                with self.create(f"{name}/{OWNER_FILE}") as file:
                    file.write(json.dumps(asdict(Owner.this_process()), sort_keys=True).encode())
            except NotStoredError:  # a rival took the empty folder for a dead process's and removed it: once more
                if attempt == _STAGING_ATTEMPTS:
                    raise
            else:
                break
        return StagedFolder(self, name=name, final=final)

    def clear_abandoned(self, parent: str = "") -> Names:
        """Remove staged folders in ``parent`` whose process died; their names. A live process keeps its own.

        One that cannot be removed is left, with a warning: nobody reads it, and the work can go on.
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
    """A folder being filled beside the name it will have. Leaving its ``with`` block without ``commit`` discards it.

    Attributes:
        store: rooted at the staged folder; what is written there is published by ``commit``.
        name: the staged folder's name, relative to the store that staged it.
        final: the name it will have.
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
            FolderExistsError: something is stored under the final name. The staged folder is left as it is.
            StorageError: the folder was committed or discarded before.
        """
        if not self._open:
            raise StorageError(
                f"{self._parent.locate(self.name)} was committed or discarded before",
                hint="Stage a new folder.",
                details={"path": self._parent.locate(self.name)},
            )
        self._parent.publish(self.name, self.final)
        self._open = False

    def discard(self) -> None:
        """Remove the folder and all that is in it; after ``commit`` or another ``discard``, nothing."""
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
        """``discard``, at the end of the work: what cannot be removed is a warning, for the work was done, or failed.

        The error that ended the work stays the one that is told.
        """
        try:
            self.discard()
        except StorageError as error:
            warn_of_leftover(self._parent.locate(self.name), error)


def warn_of_leftover(place: str, error: StorageError) -> None:
    """Warn that files which nobody needs could not be removed."""
    warnings.warn(
        f"{place} is not needed any more and could not be removed ({error.message}); a later run removes it",
        LeftoverWarning,
        stacklevel=2,
    )


def abandoned_folders(store: Store, parent: str) -> Iterator[str]:
    """The staged folders directly in ``parent`` whose owner is dead, relative to the store."""
    return (name for name, owner in _staged_folders(store, parent) if owner is not None and owner.is_dead())


def _staged_folders(store: Store, parent: str) -> Iterator[tuple[str, Owner | None]]:
    prefix = f"{check_folder_name(parent)}/" if parent else ""
    for folder in filter(is_unfinished, store.folders(parent)):
        yield prefix + folder, _read_owner(store, f"{prefix}{folder}/{OWNER_FILE}")


def _read_owner(store: Store, name: str) -> Owner | None:
    """The owner of a staged folder, or None where its file is missing or is not ours."""
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
    """A store to which nothing can be written; ``refusal`` says why, ``refusal_hint`` what to do instead."""

    refusal: str
    refusal_hint: str | None = None

    def _create(self, name: str, *, overwrite: bool) -> AbstractContextManager[BinaryIO]:  # noqa: ARG002
        self._refuse("write", name)

    def copy_to(self, name: str, final: str) -> None:  # noqa: ARG002
        """Refused."""
        self._refuse("write", final)

    def remove_tree(self, name: str) -> None:
        """Refused."""
        self._refuse("remove", name)

    def publish(self, staged: str, final: str) -> None:  # noqa: ARG002
        """Refused."""
        self._refuse("publish", final)

    def _refuse(self, doing: str, name: str) -> NoReturn:
        path = self.locate(check_relative_name(name))
        raise cannot(doing, path, self.refusal, number=errno.EROFS, hint=self.refusal_hint)


class WrappedStore(ReadOnlyStore):
    """Another store, seen through rules of its own; ``_inner`` is the name in that store, or an error."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = store.url
        self.local_root = store.local_root

    def _inner(self, name: str) -> str:
        return name

    def locate(self, name: str) -> str:
        """The whole path or URL of the file."""
        return self._store.locate(name)

    def open(self, name: str) -> StoredFile:
        """Open a stored file for reading."""
        return self._store.open(self._inner(name))

    def size(self, name: str) -> int:
        """Size of a stored file, in bytes."""
        return self._store.size(self._inner(name))

    def stamp(self, name: str) -> str:
        """As the store's own."""
        return self._store.stamp(self._inner(name))

    def entity_tag(self, name: str) -> str | None:
        """As the store's own."""
        return self._store.entity_tag(self._inner(name))

    def is_regular(self, name: str) -> bool:
        """As the store's own."""
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
        """The folder ``name`` as it is."""
        return self._store.child(name)


class RenamedStore(WrappedStore):
    """Some files of another store under other names. A file without a new name is not there.

    ``locate`` gives the place of the file itself, so that messages name what a person finds on disk.
    """

    refusal = "files under other names are only read"

    def __init__(self, store: Store, names: Mapping[str, str]) -> None:
        """``names`` are the names in ``store`` by the new ones."""
        super().__init__(store)
        self._names = dict(names)

    def locate(self, name: str) -> str:
        """The whole path or URL of the file that has the new name ``name``."""
        return self._store.locate(self._names.get(name, name))

    def exists(self, name: str) -> bool:
        """Whether ``name`` is a new name, or a folder of some."""
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
        """The files below the folder ``name``, under the rest of their new names."""
        own = {one[len(name) + 1 :]: self._names[one] for one in self.list(check_relative_name(name))}
        return RenamedStore(self._store, own)

    def _inner(self, name: str) -> str:
        found = self._names.get(check_relative_name(name))
        if found is None:
            raise cannot(
                "read", self.locate(name), "there is no such file", number=errno.ENOENT, hint=None, kind=NotStoredError
            )
        return found
