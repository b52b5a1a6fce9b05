"""Open files of a store, and the conversion of OSError to StorageError.

store.open(name)  ->  StoredFile  .read, .seek    in order
                                  .read_ranges    many ranges at once, each as soon as it has arrived
                                  .pieces         all bytes from the start; the next ones are fetched meanwhile
                                  .mapping        the file's bytes in memory, for files of this machine
"""

from __future__ import annotations

import abc
import errno
import hashlib
import io
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from registry.errors import AlreadyStoredError, FolderExistsError, NotStoredError, ReplacedError, StorageError
from registry.masking import mask

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


Range: TypeAlias = tuple[int, int]
"""Bytes start to stop of a file; stop is excluded."""

RawFile: TypeAlias = io.RawIOBase
"""An open file without buffers: from the operating system, from fsspec, or read by requests."""

E = TypeVar("E", bound=StorageError)

_PIECE_BYTES: Final = 4 * 2**20
_ELSEWHERE: Final = "another data directory"
_HINTS: Final = {
    errno.ENOSPC: "The disk is full. Free some space or choose another data directory, then try again.",
    errno.EDQUOT: "Your disk quota is used up. Free some space or choose another data directory, then try again.",
    errno.EFBIG: "The file would be larger than its file system or your limit allows (see `ulimit -f`).",
    errno.EACCES: "Permission is missing. Check who owns the file and its folder, or choose another data directory.",
    errno.EPERM: "Permission is missing. Check who owns the file and its folder, or choose another data directory.",
    errno.EROFS: "The file system is mounted read-only. Choose another data directory.",
    errno.EMFILE: "Too many files are open. Raise the limit with `ulimit -n`, or use fewer processes.",
    errno.ENFILE: "Too many files are open on this machine. Close other programs, then try again.",
    errno.ENAMETOOLONG: "The path is longer than the file system allows. Choose a shorter name or folder.",
    errno.ELOOP: "Symbolic links point to each other. Check the path with `ls -l`.",
    errno.EISDIR: "A file is expected at this path. Check the path.",
    errno.EIO: "The disk or the network file system failed. Check it (see `dmesg`), then try again.",
    errno.ESTALE: "The network file system has lost this file. Mount it again, then try again.",
    errno.EEXIST: "Existing files are never replaced. Choose another name, or remove the old file first.",
    errno.ENOTDIR: "A part of this path is a file, not a folder. Check the path, or choose another data directory.",
    errno.ENOENT: "Check the name, and that its disk or bucket is available.",
}
_KINDS: Final[dict[int | None, type[StorageError]]] = {
    errno.EEXIST: AlreadyStoredError,
    errno.ENOTEMPTY: AlreadyStoredError,
    errno.ENOENT: NotStoredError,
}


class HintedError(OSError):
    """An OSError with a hint for the StorageError that ``storage_errors`` converts it to."""

    def __init__(self, number: int, reason: str, *, hint: str) -> None:
        super().__init__(number, reason)
        self.hint = hint


def storage_error(error: OSError, *, doing: str, path: str, elsewhere: str = _ELSEWHERE) -> StorageError:
    """Convert ``error`` to a StorageError "cannot <doing> <path>: ..."; raise it ``from error``.

    ``errno`` is kept as an attribute and, with ``path``, in ``details``. A StorageError is returned unchanged.
    """
    if isinstance(error, StorageError):
        return error
    number = error.errno
    if number is None:  # fsspec raises FileNotFoundError(path) without a number
        number = {FileNotFoundError: errno.ENOENT, FileExistsError: errno.EEXIST, PermissionError: errno.EACCES}.get(
            type(error)
        )
    reason = error.strerror or (os.strerror(number) if number is not None else str(error)) or type(error).__name__
    hint = error.hint if isinstance(error, HintedError) else _HINTS.get(number) if number is not None else None
    hint = hint and hint.replace(_ELSEWHERE, elsewhere)
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
    """Make the error "cannot <doing> <path>: <reason>" of class ``kind``; ``number`` is the system's errno."""
    error = kind(
        f"cannot {doing} {path}: {reason}",
        hint=hint,
        details={"path": path, "errno": number, "doing": doing, **details},
    )
    error.errno = number
    return error


def already_stored(path: str) -> AlreadyStoredError:
    """Make the error for a name that is taken."""
    hint = _HINTS[errno.EEXIST]
    return cannot("write", path, "it exists already", number=errno.EEXIST, hint=hint, kind=AlreadyStoredError)


def folder_exists(path: str) -> FolderExistsError:
    """Make the error for a folder whose final name is taken."""
    hint = "Another process has published it, or was killed while it published. Look at what the folder contains."
    return cannot("publish", path, "it exists already", number=errno.EEXIST, hint=hint, kind=FolderExistsError)


def replaced(path: str) -> ReplacedError:
    """Make the error for a file that has another ETag now."""
    hint = "Read it again. `registry verify` checks whether it is the published file."
    return cannot("read", path, "it was replaced while it was read", number=errno.EIO, hint=hint, kind=ReplacedError)


def too_long(path: str, limit: int) -> StorageError:
    """Make the error for a small file that is longer than ``limit`` bytes."""
    return StorageError(
        f"cannot read {path}: it is longer than {limit} bytes",
        hint="Files of this kind are small. It may be damaged, or a different file with the same name.",
        details={"path": path, "limit": limit},
    )


@contextmanager
def storage_errors(doing: str, path: str, *, elsewhere: str = _ELSEWHERE) -> Iterator[None]:
    """Convert every OSError of the block to a StorageError that names the action and the path.

    ``elsewhere`` is the alternative that the hint suggests if ``path`` cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise storage_error(error, doing=doing, path=path, elsewhere=elsewhere) from printable_cause(error)
    except RecursionError as error:  # os.walk
        raise cannot(doing, path, "its folders are nested too deeply", hint="Check the path.") from error


def printable_cause(error: BaseException) -> BaseException:
    """Return ``error``, or a masked copy if its traceback, or that of one of its causes, would print a password.

    Libraries repeat the URL that they received in their messages. Use it as ``raise ... from printable_cause(error)``.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        cause = waiting.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        if mask(text := str(cause)) != text:
            masked = OSError(f"{type(error).__name__}: {mask(str(error))}")
            return masked.with_traceback(error.__traceback__)
        waiting += [cause.__cause__, cause.__context__]
    return error


class TypedFile(io.RawIOBase):
    """An open file whose errors are StorageErrors that name it, even far from the code that opened it."""

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
        """Whether it was opened for reading; a file that is written is written in order."""
        return not self._writing

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        """Fill ``buffer`` from the file and return the number of bytes read, 0 at the end."""
        with storage_errors("read", self._path):
            return self._file.readinto(memoryview(buffer))

    def write(self, data: ReadableBuffer) -> int | None:
        """Write ``data`` and return the number of bytes written."""
        with storage_errors("write", self._path):
            return self._file.write(memoryview(data))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position and return it."""
        with storage_errors("read", self._path):
            return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def fileno(self) -> int:
        """Return the file descriptor; raises ``io.UnsupportedOperation`` for a file of another machine."""
        return self._file.fileno()

    def close(self) -> None:
        """Close the file. An object store may report a failed write only here."""
        if not self.closed:
            try:
                with storage_errors("write" if self._writing else "read", self._path):
                    self._file.close()
            finally:
                super().close()


class StoredFile(io.BufferedReader, abc.ABC):
    """A stored file that is open for reading: in order (``read``, ``seek``), or by many ranges at once.

    It returns the bytes that were stored when it was opened, and no others: if the file is replaced meanwhile, reading
    continues with the old bytes or raises an error. Only one thread may use it at a time. A closed file raises
    ValueError, as Python's own files do.

    Attributes:
        path: the whole path or URL, for messages.
        entity_tag: the store's tag (ETag) of these bytes, or None if the store has no such tags.
        published_sha256: the digest of these bytes if they are a published file, or None if nothing proves it.
    """

    published_sha256: str | None = None

    def __init__(self, raw: RawFile, *, path: str, buffer_bytes: int, entity_tag: str | None = None) -> None:
        super().__init__(TypedFile(raw, path=path), buffer_bytes)
        self.path = path
        self.entity_tag = entity_tag

    @property
    @abc.abstractmethod
    def num_bytes(self) -> int:
        """Size of the file, in bytes."""

    @abc.abstractmethod
    def read_ranges(self, ranges: Sequence[Range], *, in_order: bool = False) -> Iterator[tuple[int, memoryview]]:
        """Read many ranges, and yield each one as soon as it has arrived.

        A file of another machine sends its first requests before this call returns, so that they run while the caller
        does something else. An iterator that is dropped cancels its requests.

        Ranges may overlap, be empty, and be in any order. Memory holds the views that the caller keeps, and a bounded
        number of bytes that were fetched ahead. The position of ``read`` does not change. An iterator that was made
        before the file is closed can still be used.

        Args:
            ranges: (start, stop) in bytes, stop excluded. The more ranges one call has, the fewer requests it sends.
            in_order: yield the ranges in the order of ``ranges``.

        Yields:
            The index of a range, and a read-only view of its bytes. The view may belong to a larger buffer: copy the
            bytes that you keep.

        Raises:
            StorageError: a range is outside the file (raised by the call itself), or its bytes cannot be read (raised
                while iterating).
            ValueError: the file is closed.
        """

    def mapping(self) -> mmap.mmap | None:
        """Map the file into memory, without a copy; None if it is on another machine, or empty."""
        return None

    def pieces(self) -> Iterator[memoryview]:
        """Yield all bytes from the start, in order. A piece is valid until the next one is requested."""
        self.seek(0)
        buffer = memoryview(bytearray(_PIECE_BYTES))
        while count := self.readinto(buffer):
            yield buffer[:count]

    def sha256(self) -> str:
        """Hash all bytes from the start; 64 hex digits."""
        digest = hashlib.sha256()
        for piece in self.pieces():
            digest.update(piece)
        return digest.hexdigest()


class HashedFile(io.RawIOBase):
    """A stored file that is read in order while it is copied, and hashed."""

    def __init__(self, file: StoredFile) -> None:
        super().__init__()
        self._file = file
        self._digest = hashlib.sha256()

    def readable(self) -> bool:
        """Always True."""
        return True

    def seekable(self) -> bool:
        """Always True: a copy that failed starts again."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Read the next ``size`` bytes, or the rest."""
        content = self._file.read(size)
        self._digest.update(content)
        return content

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to the start, the only place that hashing can begin at again."""
        if (offset, whence) != (0, io.SEEK_SET):
            raise io.UnsupportedOperation("only the start")
        self._digest = hashlib.sha256()
        return self._file.seek(0)

    def require(self, sha256: str | None) -> None:
        """Check the digest of what was read.

        Raises:
            StorageError: the digest differs.
        """
        digest = self._digest.hexdigest()
        if sha256 not in (None, digest):
            raise cannot(
                "copy",
                self._file.path,
                f"it changed during the copy: expected sha256 {sha256}, found {digest}",
                number=errno.EIO,
                hint="Run the command again once no program writes to the file.",
            )


def check_ranges(ranges: Sequence[Range], num_bytes: int, path: str) -> Sequence[Range]:
    """Return ``ranges`` if all of them are within a file of ``num_bytes``.

    Raises:
        StorageError: a range is outside the file; the message names the range.
    """
    for start, stop in ranges:
        if not 0 <= start <= stop <= num_bytes:
            reason = f"bytes {start} to {stop} were requested, but the file has {num_bytes} bytes"
            hint = "The file was truncated or replaced. `registry verify` checks it."
            raise cannot("read", path, reason, number=errno.EINVAL, hint=hint, start=start, stop=stop)
    return ranges
