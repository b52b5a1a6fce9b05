"""The store for local disks, which writes each file so that a power cut leaves the whole file or none.

A new file is written under a temporary name in the same folder, synced, and linked to its name; then the folder is
synced. A staged folder is synced file by file and renamed once.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

from registry.errors import StorageError
from registry.storage.faults import (
    Range,
    RawFile,
    StoredFile,
    TypedFile,
    already_stored,
    cannot,
    check_ranges,
    folder_exists,
    storage_errors,
)
from registry.storage.names import (
    OWNER_FILE,
    Owner,
    clear_abandoned_files,
    is_content,
    is_unfinished,
    new_unfinished_file,
)
from registry.storage.staged import InnerFolder, clear_abandoned, release_owner, write_owner
from registry.storage.store import Names, StagedFolder, Store, StoredEntry, check_folder_name, check_relative_name

_BUFFER_BYTES: Final = 256 * 1024
_SYNCS_AT_ONCE: Final = 16
_REMOVALS: Final = 5
"""The maximum number of times that a folder is emptied while workers of a failed build still write files into it."""

_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class LocalStore(Store):
    """The files below a local folder, which need not exist until something is written.

    Symbolic links are followed only if they stay inside the root.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.realpath(root)
        self.local_root = Path(self._root)
        self.url = self.local_root.as_uri()
        self._cleared: set[str] = set()
        self._parent: LocalStore | None = None

    def locate(self, name: str) -> str:
        """The absolute path of ``name``."""
        return os.path.join(self._root, name)

    def open(self, name: str) -> StoredFile:
        """Open a stored file for reading, buffered."""
        path = self._inside(check_relative_name(name))
        with storage_errors("read", path):
            _check_regular(path)
            return LocalFile(open_raw(path, "rb"), path=path)

    def size(self, name: str) -> int:
        """Size of a stored file, in bytes."""
        path = self._inside(check_relative_name(name))
        with storage_errors("read", path):
            return _check_regular(path).st_size

    def stamp(self, name: str) -> str:
        """A text of the file's device, inode, size and change time (ctime), which programs cannot set back."""
        path = self._inside(check_relative_name(name))
        with storage_errors("read", path):
            facts = _check_regular(path)
        return f"{facts.st_dev} {facts.st_ino} {facts.st_size} {facts.st_ctime_ns}"

    def exists(self, name: str) -> bool:
        """Whether ``name`` is a stored file or folder."""
        return os.path.exists(self._inside(check_relative_name(name)))

    def is_regular(self, name: str) -> bool:
        """Whether ``name`` is a regular file, or a link to one, inside the root."""
        path = os.path.realpath(os.path.join(self._root, check_relative_name(name)))
        return os.path.commonpath([self._root, path]) == self._root and os.path.isfile(path)

    def list(self, folder: str = "") -> Names:
        """Every file below ``folder``; linked folders are not entered."""
        top = self._inside(check_folder_name(folder))
        result = []
        with storage_errors("list", top):
            for path, _, files in os.walk(top, onerror=_raise_unless_missing):
                inside = os.path.relpath(path, top).replace(os.sep, "/")
                result += [file if inside == "." else f"{inside}/{file}" for file in files]
        # Only the part below `folder` decides: for the store of a staged folder, its files are content.
        return sorted(f"{folder}/{name}" if folder else name for name in result if is_content(name))

    def scan(self, folder: str = "") -> Iterator[StoredEntry]:
        """Every file and folder below ``folder``. ``changed_at`` is the ctime, which programs cannot set back."""
        waiting = [check_folder_name(folder)]
        with storage_errors("list", self._inside(folder)):
            while waiting:
                inside = waiting.pop()
                try:
                    facts = os.lstat(self._inside(inside)) if inside in ("", folder) else os.lstat(self.locate(inside))
                except (FileNotFoundError, NotADirectoryError):  # it was removed just now, or never existed
                    continue
                is_folder = stat.S_ISDIR(facts.st_mode)
                if inside not in ("", folder):
                    yield StoredEntry(
                        name=inside,
                        num_bytes=0 if is_folder else facts.st_size,
                        changed_at=datetime.fromtimestamp(max(facts.st_ctime, facts.st_mtime), UTC),
                        is_folder=is_folder,
                    )
                if is_folder:
                    # The next entry is the first name of this folder, so that the entries of a folder come together.
                    with suppress(FileNotFoundError):
                        names = sorted(os.listdir(self.locate(inside)), reverse=True)
                        waiting += [f"{inside}/{name}" if inside else name for name in names]

    def folders(self, parent: str = "") -> Names:
        """The folders directly in ``parent``, without links."""
        top = self._inside(check_folder_name(parent))
        with storage_errors("list", top):
            try:
                with os.scandir(top) as entries:
                    return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
            except FileNotFoundError:
                return []

    @contextmanager
    def _create(self, name: str, *, overwrite: bool) -> Iterator[BinaryIO]:
        with self._named_when_done(name, overwrite=overwrite) as (temporary, path):
            with storage_errors("write", path):
                raw = open_raw(temporary, "xb")
            file = io.BufferedWriter(TypedFile(raw, path=path, writing=True), _BUFFER_BYTES)
            try:
                yield file
                file.flush()
                with storage_errors("write", path):
                    os.fsync(raw.fileno())
            finally:
                # After a failed write, closing fails again. The first error is already on its way to the caller.
                try:
                    file.close()
                except OSError:
                    raw.close()

    @contextmanager
    def create_path(self, name: str, *, overwrite: bool = False) -> Iterator[str]:
        """Write a new file as ``create`` does, for libraries that open files themselves: provides a temporary path.

        The block must write a file at that path.
        """
        with self._named_when_done(name, overwrite=overwrite) as (temporary, path):
            yield temporary
            with storage_errors("write", path):
                _sync_file(temporary)

    @contextmanager
    def _named_when_done(self, name: str, *, overwrite: bool) -> Iterator[tuple[str, str]]:
        """Provide a temporary path and the final path; when the block ends, the file gets its final name."""
        folder_name, _, last_part = check_relative_name(name).rpartition("/")
        folder = self._inside(folder_name)
        path = os.path.join(folder, last_part)
        self._clear(folder)
        if not overwrite and os.path.lexists(path):
            raise already_stored(path)
        if overwrite and os.path.exists(path) and not os.path.isfile(path):
            # A rename would replace a device by a file: as root, /dev/null of the whole machine.
            raise cannot("replace", path, "it is not a regular file", hint="Name a file.", number=errno.EINVAL)
        with storage_errors("write", path):
            make_folders(folder)
        temporary = os.path.join(folder, new_unfinished_file(last_part, Owner.this_process().mark()))
        try:
            yield temporary, path
            with storage_errors("write", path):
                _give_name(temporary, path, overwrite=overwrite)
                sync_folder(folder)
        finally:
            # The file is gone if it was renamed; and a fault here must not hide the first error
            with suppress(OSError):
                os.unlink(temporary)

    def _clear(self, folder: str) -> None:
        """Once for each folder, remove the files that killed processes left; staged folders are removed as a whole."""
        if folder not in self._cleared:
            self._cleared.add(folder)
            if not any(map(is_unfinished, folder.split(os.sep))):
                clear_abandoned_files(folder)

    def child(self, name: str) -> LocalStore:
        """The store rooted at the folder ``name``."""
        result = LocalStore(self._inside(check_relative_name(name)))
        result._parent = self  # a temporary folder is removed when no store in it is in use any more
        return result

    def remove_tree(self, name: str) -> None:
        """Remove a file, or a folder and everything in it. A link is removed, not its target."""
        folder_name, _, last_part = check_relative_name(name).rpartition("/")
        path = os.path.join(self._inside(folder_name), last_part)
        with storage_errors("remove", path), suppress(FileNotFoundError):
            if stat.S_ISDIR(os.lstat(path).st_mode):
                _remove_folder(path)
            else:
                os.unlink(path)
            sync_folder(os.path.dirname(path))

    def move(self, name: str, final: str) -> None:
        """Rename a stored file to ``final`` in one step. A link is renamed, not its target."""
        folder_name, _, last_part = check_relative_name(name).rpartition("/")
        source, target = os.path.join(self._inside(folder_name), last_part), self._inside(check_relative_name(final))
        with storage_errors("write", target):
            if not os.path.islink(source):
                _check_regular(source)
            make_folders(os.path.dirname(target))
            _give_name(source, target, overwrite=False)
            with suppress(FileNotFoundError):  # it was renamed, not linked
                os.unlink(source)
            sync_folder(os.path.dirname(target))

    def move_in(self, name: str, source: Store, *, content_type: str) -> None:  # noqa: ARG002 (files have none)
        """Rename the file ``name`` of another folder, whose ``sync`` was called, replacing the one that is here."""
        path = self._inside(check_relative_name(name))
        with storage_errors("write", path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.replace(source.locate(name), path)

    def sync(self) -> None:
        """Wait until every file and folder is on the disk. The stores that write in one step have done so."""
        with storage_errors("write", self._root):
            _sync_tree(self._root)

    @contextmanager
    def exclusive(self, name: str) -> Iterator[None]:
        """Lock the folder that contains ``name``, without a lock file that could remain or be removed.

        Systems and file systems without ``flock`` are not locked.
        """
        folder = self._inside(check_relative_name(name).rpartition("/")[0])
        with storage_errors("lock", folder):
            make_folders(folder)
        self._clear(folder)
        if sys.platform == "win32":
            yield
            return
        import fcntl

        with storage_errors("lock", folder):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def require_writable(self, folder: str) -> None:
        """Check the permissions of the first folder above ``folder`` that exists."""
        path = os.path.dirname(self._inside(check_relative_name(folder)))
        while not os.path.lexists(path):
            path = os.path.dirname(path)
        with storage_errors("write", path):
            if not os.path.isdir(path):
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if not os.access(path, os.W_OK | os.X_OK):
                is_frozen = bool(os.statvfs(path).f_flag & os.ST_RDONLY) if hasattr(os, "statvfs") else False
                number = errno.EROFS if is_frozen else errno.EACCES
                raise OSError(number, os.strerror(number), path)

    def stage(self, final: str) -> StagedFolder:
        """Create a staged folder next to ``final``."""
        return StagedOnDisk(self, final=final)

    def missing_folders(self, name: str) -> Sequence[str]:
        """The paths of the folders that have to be created before ``name`` can be written, the innermost first."""
        return _missing_folders(self._inside(check_relative_name(name).rpartition("/")[0]))

    def remove_empty(self, folders: Sequence[str]) -> None:
        """Remove those of ``missing_folders`` that exist now and are empty. The others are in use."""
        for path in folders:
            with suppress(OSError):  # it is not empty, or was not created
                os.rmdir(path)

    def clear_abandoned(self, parent: str = "") -> Names:
        """Remove the staged folders in ``parent`` that dead processes left, and return their names."""
        return clear_abandoned(self, parent)

    def remove_stump(self, name: str) -> bool:
        """Remove a staged folder whose process died before it wrote the owner file; False if it contains other files.

        Such a folder is empty, or contains only an unfinished owner file.
        """
        path = self._inside(check_relative_name(name))
        with storage_errors("remove", path), suppress(FileNotFoundError):
            names = os.listdir(path)
            if not all(is_unfinished(file) and file.endswith(OWNER_FILE) for file in names):
                return False
            for file in names:
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(path, file))
            try:
                os.rmdir(path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                return False  # its process is alive and has just finished the owner file
            sync_folder(os.path.dirname(path))
        return True

    def rename_folder(self, staged: str, final: str) -> None:
        """Sync every file and folder of ``staged``, then rename it. An empty folder named ``final`` is replaced.

        Raises:
            FolderExistsError: something is stored at ``final``.
        """
        source, target = self._inside(check_relative_name(staged)), self._inside(check_relative_name(final))
        with storage_errors("write", target):
            _sync_tree(source)
            try:
                os.rename(source, target)
            except OSError as error:
                # ENOTDIR: a file has the name. The rename itself decides races: the second publisher gets here.
                if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise folder_exists(target) from error
                raise
            # Only now: a process that is killed before this line leaves a folder that can be cleared; after it, the
            # process leaves a complete version with a file that is never listed.
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(target, OWNER_FILE))
            sync_folder(target)
            sync_folder(os.path.dirname(target))

    def _inside(self, name: str) -> str:
        """Return the real path of ``name``; raises StorageError if a link leads out of the root."""
        path = os.path.realpath(os.path.join(self._root, name)) if name else self._root
        if os.path.commonpath([self._root, path]) != self._root:
            raise StorageError(
                f"{self.locate(name)} leads out of {self._root}",
                hint="A symbolic link points outside the folder. Put the files themselves there.",
                details={"path": self.locate(name), "root": self._root},
            )
        return path


class LocalFile(StoredFile):
    """An open local file. Ranges are views of its mapping, which is created when it is first needed."""

    def __init__(self, raw: RawFile, *, path: str) -> None:
        super().__init__(raw, path=path, buffer_bytes=_BUFFER_BYTES)
        self._mapped: mmap.mmap | None = None

    @property
    def num_bytes(self) -> int:
        """Size of the file, in bytes."""
        with storage_errors("read", self.path):
            return os.fstat(self.fileno()).st_size

    def mapping(self) -> mmap.mmap | None:
        """Map the file. The mapping may be used after the file is closed."""
        if self._mapped is None and self.num_bytes:
            with storage_errors("read", self.path):
                self._mapped = mmap.mmap(self.fileno(), 0, access=mmap.ACCESS_READ)
        return self._mapped

    def read_ranges(self, ranges: Sequence[Range], *, in_order: bool = False) -> Iterator[tuple[int, memoryview]]:
        """Yield views of the mapping in the order of ``ranges``, without a copy."""
        del in_order
        view = memoryview(self.mapping() or b"")
        return self._views(check_ranges(ranges, min(self.num_bytes, len(view)), self.path), view)

    def _views(self, ranges: Sequence[Range], view: memoryview) -> Iterator[tuple[int, memoryview]]:
        for index, (start, stop) in enumerate(ranges):
            # If the file was truncated meanwhile, reading the lost pages would kill the process (SIGBUS).
            if self._mapped is not None and (size := self._mapped.size()) < stop:
                check_ranges([(start, stop)], size, self.path)
            yield index, view[start:stop]


class StagedOnDisk(StagedFolder):
    """A staged folder next to its final place. Discarding it also removes the empty folders that were made for it."""

    def __init__(self, parent: LocalStore, *, final: str, name: str = "") -> None:
        """``name`` is that of a folder that an earlier process left."""
        # A dry run or a failed build must not leave empty folders of a dataset that was never published.
        self._missing = parent.missing_folders(final)
        self._folder = InnerFolder(parent, final, name=name)
        super().__init__(self._folder.store, final=final)
        self._parent = parent
        self.name = self._folder.name

    def _commit(self) -> None:
        self._parent.rename_folder(self.name, self.final)
        self.store = self._parent.child(self.final)

    def retract(self) -> None:
        """Undo ``commit``: hide the folder in one step. It may be committed under another name, or is discarded."""
        self._parent.rename_folder(self.final, self.name)
        write_owner(self._parent, self.name)
        self.store, self._open = self._folder.store, True

    def _remove(self) -> None:
        self._folder.discard()
        self._parent.remove_empty(self._missing)

    def _release(self) -> None:
        release_owner(self.store, self._parent.catalog)


class PlacedFolder(StagedFolder):
    """A folder that has its final name already, because an earlier process ended before the row was written."""

    def __init__(self, parent: LocalStore, *, final: str) -> None:
        super().__init__(parent.child(final), final=final)

    def _commit(self) -> None:
        raise folder_exists(self.store.locate("").rstrip("/"))

    def _remove(self) -> None:
        """Do nothing: others may rely on the folder."""

    def _release(self) -> None:
        """Do nothing: no process owns the folder."""


def open_raw(path: str, mode: str) -> RawFile:
    """Open ``path`` unbuffered: ``rb`` to read, ``xb`` to write a file that does not exist yet."""
    return _ReadFile(path) if mode == "rb" else io.FileIO(path, mode)


class _ReadFile(io.FileIO):
    """A file to read. Readers keep it open as long as they live, so it is closed silently when it is collected."""

    def __del__(self) -> None:
        self.close()


def make_folders(path: str) -> None:
    """Create ``path`` and its missing parents, and sync each new folder's entry in its parent."""
    for folder in reversed(_missing_folders(path)):
        with suppress(FileExistsError):  # another process created it just now; a file of that name fails below
            os.mkdir(folder)
        sync_folder(os.path.dirname(folder))


def _missing_folders(path: str) -> list[str]:
    """``path`` and its parents, if they are not folders, the innermost first."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    return missing


def sync_folder(path: str) -> None:
    """Write a folder's entries to disk. Windows has no such call and does not need it."""
    if os.name != "nt":
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _remove_folder(path: str) -> None:
    """Remove a folder, its owner file last: if the process is killed meanwhile, the rest still names its owner."""
    with os.scandir(path) as entries:
        others = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries if entry.name != OWNER_FILE]
    for inside, is_folder in others:
        if is_folder:
            _remove_filling(inside)
        else:
            os.unlink(inside)
    _remove_filling(path)


def _remove_filling(folder: str) -> None:
    """Remove a folder into which other processes may write meanwhile."""
    for _ in range(_REMOVALS - 1):
        try:
            return shutil.rmtree(folder)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
    return shutil.rmtree(folder)


def _sync_tree(top: str) -> None:
    """Sync every file and folder below ``top``, and ``top`` itself.

    Some at a time, so that the journal of the file system writes many of them at once: 20,000 small files take two
    seconds, instead of seven one by one. A call for the whole disk would also wait for the data of other programs.
    """
    found = list(os.walk(top, onerror=_raise))
    paths = [os.path.join(folder, file) for folder, _, files in found for file in files]
    with ThreadPoolExecutor(_SYNCS_AT_ONCE, thread_name_prefix="registry-sync") as threads:
        for _ in threads.map(_sync_file, paths):
            pass
        for _ in threads.map(sync_folder, [folder for folder, _, _ in found]):
            pass


def _sync_file(path: str) -> None:
    _sync(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _give_name(temporary: str, path: str, *, overwrite: bool) -> None:
    """Rename, or link where the name must be free: a link, unlike a rename, never replaces."""
    if overwrite:
        os.replace(temporary, path)
        return
    try:
        os.link(temporary, path)
    except FileExistsError as error:
        raise already_stored(path) from error
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if os.path.lexists(path):  # such a file system allows nothing better; the catalog decides races
            raise already_stored(path) from error
        os.rename(temporary, path)


def _check_regular(path: str) -> os.stat_result:
    facts = os.stat(path)
    if not stat.S_ISREG(facts.st_mode):  # a folder cannot be read; a named pipe would wait for ever
        raise IsADirectoryError(errno.EISDIR, "Not a file", path)
    return facts


def _raise(error: OSError) -> None:
    raise error


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
