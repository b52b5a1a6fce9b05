"""Open files of a store, and the border at which OSError becomes StorageError.

store.open(name)  ->  StoredFile  .read, .seek    in order
.read_ranges    many ranges at once, each as soon as it has arrived
.pieces         all bytes from the start, the next ones fetched meanwhile
.mapping        the file's bytes in memory, on this machine
"""

from __future__ import annotations

import abc
import errno
import io
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from registry.errors import AlreadyStoredError, FolderExistsError, NotStoredError, StorageError
from registry.masking import mask

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


Range: TypeAlias = tuple[int, int]
"""Bytes start to stop of a file; stop is excluded."""

RawFile: TypeAlias = io.RawIOBase
"""An open file without buffers: of the operating system, of fsspec, or read by requests."""

E = TypeVar("E", bound=StorageError)

_PIECE_BYTES: Final = 4 * 2**20
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
    hint = _HINTS.get(number) if number is not None else None
    return cannot(doing, path, reason, number=number, hint=hint, kind=_KINDS.get(number, StorageError))


def cannot(
    doing: str,
    path: str,
    reason: str,
    *,
    hint: str | None,
    number: int | None = None,
    kind: type[E] = StorageError,  # type: ignore[assignment]  # mypy gives no default to a type that varies
    **details: Any,
) -> E:
    """The error "cannot <doing> <path>: <reason>", of a ``kind``; ``number`` is the operating system's errno."""
    error = kind(
        f"cannot {doing} {path}: {reason}",
        hint=hint,
        details={"path": path, "errno": number, "doing": doing, **details},
    )
    error.errno = number
    return error


def already_stored(path: str) -> AlreadyStoredError:
    """The error for a name that is taken."""
    hint = _HINTS[errno.EEXIST]
    return cannot("write", path, "it exists already", number=errno.EEXIST, hint=hint, kind=AlreadyStoredError)


def folder_exists(path: str) -> FolderExistsError:
    """The error for a folder that cannot be published where something is stored."""
    hint = "Another process published there, or a run died while it did. See what it holds."
    return cannot("publish", path, "it exists already", number=errno.EEXIST, hint=hint, kind=FolderExistsError)


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


class TypedFile(io.RawIOBase):
    """An open file whose errors are StorageErrors that name it, also far from the place that opened it."""

    def __init__(self, file: RawFile, *, path: str, writing: bool = False) -> None:
        super().__init__()
        self._file = file
        self._path = path
        self._writing = writing

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
        """Close the file; an object store may report a failed write only now."""
        if not self.closed:
            try:
                with storage_errors("write" if self._writing else "read", self._path):
                    self._file.close()
            finally:
                super().close()


class StoredFile(io.BufferedReader, abc.ABC):
    """A stored file that is open for reading: in order (``read``, ``seek``), or by many ranges at once.

    It gives the bytes that were stored when it was opened, and no others: a file that is replaced meanwhile is read on,
    or is an error. Used by one thread at a time.

    Attributes:
        path: the whole path or URL, for messages.
        entity_tag: the store's own tag (ETag) of these bytes; None where the store has no such tags.
    """

    def __init__(self, raw: RawFile, *, path: str, buffer_bytes: int, entity_tag: str | None = None) -> None:
        super().__init__(TypedFile(raw, path=path), buffer_bytes)
        self.path = path
        self.entity_tag = entity_tag

    @property
    @abc.abstractmethod
    def num_bytes(self) -> int:
        """Size of the file."""

    @abc.abstractmethod
    def read_ranges(self, ranges: Sequence[Range], *, in_order: bool = False) -> Iterator[tuple[int, memoryview]]:
        """The bytes of each of ``ranges`` (start and stop, stop excluded), as they arrive, with its index.

        Ranges may overlap, be empty, and be in any order. What is given is a read-only view, maybe of a larger buffer:
        copy what is kept. Memory holds the ranges that were given and not dropped, and a bounded number of bytes that
        were fetched ahead. The place of ``read`` stays where it is.

        Args:
            ranges: what to read; the more are asked for at once, the fewer requests are sent.
            in_order: give the ranges in the order of ``ranges``.

        Raises:
            StorageError: at once where a range does not lie within the file; else where its bytes cannot be read.
        """

    def mapping(self) -> mmap.mmap | None:
        """The file's bytes in memory, without a copy; None where they are on another machine, or there are none."""
        return None

    def pieces(self) -> Iterator[memoryview]:
        """All bytes from the start, in order. A piece counts until the next one is asked for."""
        self.seek(0)
        buffer = memoryview(bytearray(_PIECE_BYTES))
        while count := self.readinto(buffer):
            yield buffer[:count]


def check_ranges(ranges: Sequence[Range], num_bytes: int, path: str) -> Sequence[Range]:
    """``ranges`` if all of them lie within a file of ``num_bytes``.

    Raises:
        StorageError: one does not; it is named.
    """
    for start, stop in ranges:
        if not 0 <= start <= stop <= num_bytes:
            reason = f"bytes {start} to {stop} were asked for, and it has {num_bytes}"
            hint = "It was cut off, or is another file. `registry verify` checks it."
            raise cannot("read", path, reason, number=errno.EINVAL, hint=hint, start=start, stop=stop)
    return ranges
