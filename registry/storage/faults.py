"""Open files of a store, and the border at which OSError becomes StorageError."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from registry.errors import AlreadyStoredError, NotStoredError, StorageError
from registry.masking import mask

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


_HINTS: Final = {
    errno.ENOSPC: "The disk is full. Free some space or choose another data directory, then try again.",
    errno.EDQUOT: "Your disk quota is used up. Free some space or choose another data directory, then try again.",
    errno.EFBIG: "The file would be larger than its file system or your limit allows (see `ulimit -f`).",
    errno.EACCES: "Permission is missing. Check who owns the file and its folder, or choose another data directory.",
    errno.EPERM: "Permission is missing. Check who owns the file and its folder, or choose another data directory.",
    errno.EROFS: "The file system is mounted read-only. Choose another data directory.",
    errno.EMFILE: "Too many files are open. Raise the limit with `ulimit -n`, or use fewer processes.",
    errno.EEXIST: "Existing files are never replaced. Choose another name, or remove the old file first.",
    errno.ENOTDIR: "A file stands where a folder should be. Check the path, or choose another data directory.",
    errno.ENOENT: "Check the name, and that the disk or bucket that holds it is there.",
}
_KINDS: Final[dict[int | None, type[StorageError]]] = {
    errno.EEXIST: AlreadyStoredError,
    errno.ENOTEMPTY: AlreadyStoredError,
    errno.ENOENT: NotStoredError,
}


def storage_error(error: OSError, *, doing: str, path: str) -> StorageError:
    """The StorageError for ``error``; ``doing`` completes "cannot ...", e.g. ``"write"``.

    Raise it ``from error``. An error that is a StorageError already is handed back as it is. ``errno`` is kept as an
    attribute and, with ``path``, in ``details``.
    """
    if isinstance(error, StorageError):
        return error
    number = error.errno
    if number is None:  # fsspec raises FileNotFoundError(path) without a number
        number = {FileNotFoundError: errno.ENOENT, FileExistsError: errno.EEXIST, PermissionError: errno.EACCES}.get(
            type(error)
        )
    reason = error.strerror or (os.strerror(number) if number is not None else str(error)) or type(error).__name__
    made = _KINDS.get(number, StorageError)(
        f"cannot {doing} {path}: {reason}",
        hint=_HINTS.get(number) if number is not None else None,
        details={"path": path, "errno": number, "doing": doing},
    )
    made.errno = number
    return made


def already_stored(path: str) -> AlreadyStoredError:
    """The error for a name that is taken."""
    return AlreadyStoredError(
        f"cannot write {path}: it exists already",
        hint=_HINTS[errno.EEXIST],
        details={"path": path, "errno": errno.EEXIST, "doing": "write"},
    )


@contextmanager
def storage_errors(doing: str, path: str) -> Iterator[None]:
    """Within the block, every OSError becomes the StorageError that says what was being done, and to which path."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, doing=doing, path=path) from printable_cause(error)


def printable_cause(error: BaseException) -> BaseException:
    """``error``, or what stands for it where a traceback of it, or of its causes, would print a password.

    Libraries put the URL that they were given into their messages. Use it as ``raise ... from printable_cause(error)``.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if mask(text := str(one)) != text:
            shown = OSError(f"{type(error).__name__}: {mask(str(error))}")
            return shown.with_traceback(error.__traceback__)
        waiting += [one.__cause__, one.__context__]
    return error


class RawFile(Protocol):
    """What is needed of an open file: those of the operating system and those of fsspec alike."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read into ``buffer``; the number of bytes read."""

    def write(self, data: memoryview, /) -> int | None:
        """Write; the number of bytes taken."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a place; which one that is."""

    def tell(self) -> int:
        """The place in the file."""

    def fileno(self) -> int:
        """The operating system's descriptor."""

    def close(self) -> None:
        """Close the file."""


class StoredFile(io.RawIOBase):
    """An open file whose errors are StorageErrors that name it, also far from the place that opened it.

    Meant to be wrapped in ``io.BufferedReader`` or ``io.BufferedWriter``, which call it once per buffer.

    Attributes:
        entity_tag: of an object that is read, the ETag of the bytes that are read and no others; else None.
    """

    def __init__(self, file: RawFile, *, path: str, writing: bool = False, entity_tag: str | None = None) -> None:
        super().__init__()
        self._file = file
        self._path = path
        self._writing = writing
        self.entity_tag = entity_tag

    def readable(self) -> bool:
        """Whether it was opened for reading."""
        return not self._writing

    def writable(self) -> bool:
        """Whether it was opened for writing."""
        return self._writing

    def seekable(self) -> bool:
        """Reading can go anywhere, writing only on."""
        return not self._writing

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        """Fill ``buffer`` from the file; the number of bytes read, 0 at the end."""
        with storage_errors("read", self._path):
            return self._file.readinto(memoryview(buffer))

    def write(self, data: ReadableBuffer) -> int | None:
        """Write ``data``; the number of bytes taken."""
        with storage_errors("write", self._path):
            return self._file.write(memoryview(data))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place in the file."""
        with storage_errors("read", self._path):
            return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The place in the file."""
        return self._file.tell()

    def fileno(self) -> int:
        """The descriptor; ``io.UnsupportedOperation`` where there is none."""
        return self._file.fileno()

    def close(self) -> None:
        """Close the file; what an object store says only now is a StorageError too."""
        if not self.closed:
            try:
                with storage_errors("write" if self._writing else "read", self._path):
                    self._file.close()
            finally:
                super().close()


def entity_tag_of(file: object) -> str | None:
    """The ETag of the bytes that a file gives which a store opened for reading; None where the store has none."""
    tag: str | None = getattr(getattr(file, "raw", None), "entity_tag", None)
    return tag


class RangeReader:
    """An object as a raw file: each ``readinto`` is one request. It has a place of its own, so readers may share."""

    def __init__(self, fetch: Callable[[int, int], Any], *, size: int) -> None:
        """``fetch(start, stop)`` gives the bytes of one range, whole or not at all."""
        self._fetch = fetch
        self._size = size
        self._place = 0

    def readinto(self, buffer: memoryview) -> int:
        """The next bytes, as many as there are, up to the length of ``buffer``: one request."""
        stop = min(self._place + len(buffer), self._size)
        if self._place >= stop:
            return 0
        content = self._fetch(self._place, stop)
        buffer[: len(content)] = content
        self._place += len(content)
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; nothing is asked for."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, "the place is before the start of the file")
        self._place = start + offset
        return self._place

    def tell(self) -> int:
        """The place of the next byte."""
        return self._place

    def write(self, _: memoryview) -> int:
        """Nothing is written here."""
        raise io.UnsupportedOperation("write")

    def fileno(self) -> int:
        """There is no descriptor."""
        raise io.UnsupportedOperation("fileno")

    def close(self) -> None:
        """Nothing is open between two requests."""
