"""What can be asked of a place that holds bytes? The interface that local folders and object stores share."""

from __future__ import annotations

import abc
import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from registry.errors import StorageError
from registry.masking import mask
from registry.storage.names import check_relative_name
from registry.storage.staging import StagedFolder, clear_abandoned, stage_folder

DEFAULT_READ_LIMIT: Final = 64 * 2**20

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

    has_conditional_create: bool = False
    """Whether the store itself decides who creates a name first, however many processes of however many machines try.

    Local folders and object stores do. Elsewhere ``create`` and ``copy_to`` look first and then write.
    """

    @abc.abstractmethod
    def locate(self, name: str) -> str:
        """The whole path or URL of ``name``, for messages and for people."""

    @abc.abstractmethod
    def open(self, name: str) -> BinaryIO:
        """Open a stored file for reading; buffered, seekable, with ``fileno`` where ``local_root`` is set."""

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

    @abc.abstractmethod
    def create(self, name: str, *, overwrite: bool = False) -> AbstractContextManager[BinaryIO]:
        """Write a new file in one step: a context manager that gives a binary file to write to.

        The bytes go to a unique temporary name; when the block ends they are on disk, then renamed to ``name``. When
        it ends with an exception, or the process dies, nothing of that name is visible and what was there before is
        as it was. Folders on the way are made.

        Raises:
            AlreadyStoredError: the name is taken and ``overwrite`` is False; also where another process takes it
                while this one writes (see ``has_conditional_create``).
        """

    @abc.abstractmethod
    def child(self, name: str) -> Store:
        """The store rooted at the folder ``name``, which need not exist yet."""

    @abc.abstractmethod
    def remove_tree(self, name: str) -> None:
        """Remove a file, or a folder and all that is in it. Nothing there: nothing to do."""

    @abc.abstractmethod
    def publish_folder(self, staged: str, final: str) -> None:
        """Make the staged folder visible as ``final``; called by ``StagedFolder.commit``.

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
            self.publish_folder(name, f"{staged.name}/retracted")

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
        """Copy a stored file to the same name in another store, a megabyte at a time."""
        with self.open(name) as source, target.create(name) as file:
            shutil.copyfileobj(source, file, 2**20)

    def copy_to(self, name: str, final: str) -> None:
        """Copy a stored file to another name in this store; an object store does so by itself. Never overwrites.

        Raises:
            AlreadyStoredError: ``final`` is taken; also where another process takes it meanwhile.
            NotStoredError: there is no file ``name``.
        """
        with self.open(name) as source, self.create(final) as file:
            shutil.copyfileobj(source, file, 2**20)

    def move(self, name: str, final: str) -> None:
        """Give a stored file the name ``final``: on this machine's disks in one step, elsewhere it is copied.

        Raises:
            AlreadyStoredError: the name is taken.
        """
        self.copy_to(name, final)
        self.remove_tree(name)

    def stage(self, final: str) -> StagedFolder:
        """A fresh folder beside ``final``, ``incomplete.<8 hex>_<last part>``, to be filled and then committed."""
        return stage_folder(self, final)

    def clear_abandoned(self, parent: str = "") -> Names:
        """Remove staged folders in ``parent`` whose process died; their names. A live process keeps its own."""
        return clear_abandoned(self, parent)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({mask(self.url)!r})"
