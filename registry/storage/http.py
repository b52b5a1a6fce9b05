"""How are bytes read from a web server? From front to back in one request; from another place by a new one.

Nothing can be written, and what lies in a folder is not to be learned: names have to be known. Packages of data are
fetched whole, so a file is one response that is read as it comes, whatever its length and without a limit of time but
between two pieces. A server that knows no ranges can still be read from the start.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, BinaryIO, Final, NoReturn

from registry.errors import MissingExtraError, StorageError
from registry.storage.faults import StoredFile, storage_errors
from registry.storage.names import check_relative_name
from registry.storage.remote import RangeReader, RemoteStore

_READ_BYTES: Final = 2**20
_SILENCE_SECONDS: Final = 60
"""A server that says nothing for so long is given up."""

_IDENTITY: Final = {"Accept-Encoding": "identity"}
"""Bytes as they are stored: a .gz file must not be inflated on the way."""

_MISSING: Final = frozenset({404, 410})
_PARTIAL: Final = 206


class HttpStore(RemoteStore):
    """The files below one URL of a web server; to be read, not written."""

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading: one response, as long as nothing but the next bytes is asked for."""
        path, shown = self._path(check_relative_name(name)), self.locate(name)
        raw = _Response(self._files, path, size=self.size(name))
        return io.BufferedReader(StoredFile(raw, path=shown), _READ_BYTES)

    def size(self, name: str) -> int:
        """Size of a file, in bytes, as the server tells it."""
        path = self._path(check_relative_name(name))
        with storage_errors("read", self.locate(name)), http_errors():
            size = self._files.info(path)["size"]
            if size is None:
                raise OSError(errno.ENOTSUP, "the server does not say how long it is")
            return int(size)

    def create(self, name: str, *, overwrite: bool = False) -> AbstractContextManager[BinaryIO]:
        """Nothing is written to a web server."""
        del overwrite
        self._refuse("write", name)

    def remove_tree(self, name: str) -> None:
        """Nothing is removed from a web server."""
        self._refuse("remove", name)

    def publish_folder(self, staged: str, final: str) -> None:
        """Nothing is published on a web server."""
        del staged
        self._refuse("write", final)

    def _refuse(self, doing: str, name: str) -> NoReturn:
        raise StorageError(
            f"cannot {doing} {self.locate(check_relative_name(name))}: what lies on a web server is only read",
            hint="Give a local folder, or the URL of an object store, e.g. s3://bucket/datasets.",
            details={"path": self.locate(name), "errno": errno.EROFS, "doing": doing},
        )


@contextmanager
def http_errors() -> Iterator[None]:
    """Within the block, what the HTTP client raises becomes the OSError that says what the server did."""
    import aiohttp

    try:
        yield
    except aiohttp.ClientError as error:
        raise _as_os_error(error) from error
    except FileNotFoundError as error:  # fsspec says so of every failure; the cause is the true one
        cause = error.__cause__
        if isinstance(cause, aiohttp.ClientError | OSError):
            raise _as_os_error(cause) from error
        raise


def _as_os_error(error: Exception) -> OSError:
    import aiohttp

    status = getattr(error, "status", None)
    if status in _MISSING:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if status is not None:
        return OSError(errno.EIO, f"the server answered {status} {getattr(error, 'message', '')}".rstrip())
    if isinstance(error, aiohttp.ClientPayloadError):
        return OSError(errno.EIO, "the server ended the response too early")
    return OSError(errno.EIO, f"the server is not to be reached: {str(error) or type(error).__name__}")


class _Response(RangeReader):
    """A file of a web server as a raw file. It has a response of its own, so readers may share a store."""

    _stream: Any = None

    def readinto(self, buffer: memoryview) -> int:
        if self._place >= self._size:
            return 0
        with http_errors():
            if self._stream is None:
                self._stream = self._request()
            content = self._stream.read(min(len(buffer), self._size - self._place))
        buffer[: len(content)] = content
        self._place += len(content)
        return len(content)

    def _request(self) -> Any:
        import aiohttp

        headers = _IDENTITY | ({"Range": f"bytes={self._place}-"} if self._place else {})
        # The client's own limit is five minutes for the whole file.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_SILENCE_SECONDS, sock_read=_SILENCE_SECONDS)
        stream = self._files.open(self._path, "rb", block_size=0, size=self._size, headers=headers, timeout=timeout)
        if self._place and stream.r.status != _PARTIAL:
            stream.close()
            raise OSError(errno.ESPIPE, "the server gives the file from its start alone")
        return stream

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        before = self._place
        if super().seek(offset, whence) != before:
            self.close()
        return self._place

    def close(self) -> None:
        """End the response, read or not."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


def open_http(url: str, *, shown: str) -> HttpStore:
    """The store at an ``http://`` or ``https://`` URL, which messages call ``shown``. No connection is made yet.

    Raises:
        MissingExtraError: aiohttp is not installed.
    """
    try:
        from fsspec.implementations.http import HTTPFileSystem
    except ImportError as error:
        raise MissingExtraError(package="aiohttp", extra="http", needed_for=f"reading {shown}") from error
    return HttpStore(HTTPFileSystem(), url, url=url)
