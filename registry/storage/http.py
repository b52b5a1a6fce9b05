"""How are bytes read from a web server? From front to back in one request; from another place by a new one.

Nothing can be written, and what lies in a folder is not to be learned: names have to be known. Packages of data are
fetched whole, so a file is one response that is read as it comes, whatever its length and however long it takes: only a
server that is silent, or next to it, is given up. One that knows no ranges can still be read from the start.
"""

from __future__ import annotations

import errno
import io
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NoReturn

from registry.errors import MissingExtraError, StorageError
from registry.masking import mask
from registry.storage.faults import StoredFile, storage_errors
from registry.storage.names import check_relative_name
from registry.storage.range_reader import RangeReader
from registry.storage.remote import RemoteStore

if TYPE_CHECKING:
    from registry.storage.consent import Allowed

_READ_BYTES: Final = 2**20
_SILENCE_SECONDS: float = 60
"""A server that says nothing for so long is given up."""

_LEAST_BYTES: Final = 1024
"""A server that sends fewer a second, for as long as that, is given up."""

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
            # Two requests, and no server needs longer for their heads, a byte at a time.
            size = self._files.info(path, timeout=3 * _SILENCE_SECONDS)["size"]
            if size is None:
                raise OSError(errno.ENOTSUP, "the server does not say how long it is")
            return int(size)

    def stamp(self, name: str) -> str:
        """Of the file's size."""
        return str(self.size(name))

    def entity_tag(self, name: str) -> str | None:
        """None: what a web server says of its files is not relied on."""
        check_relative_name(name)
        return None

    def create(self, name: str, *, overwrite: bool = False) -> AbstractContextManager[BinaryIO]:
        """Nothing is written to a web server."""
        del overwrite
        self._refuse("write", name)

    def copy_to(self, name: str, final: str) -> None:
        """Nothing is copied on a web server."""
        del name
        self._refuse("write", final)

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

    from registry.storage.guarded_http import RefusedConnection

    try:
        yield
    except (aiohttp.ClientError, TimeoutError) as error:
        raise _as_os_error(error) from error
    except RefusedConnection as refused:
        raise refused.error from None
    except FileNotFoundError as error:  # fsspec says so of every failure; the cause is the true one
        cause = error.__cause__
        if isinstance(cause, RefusedConnection):
            raise cause.error from None
        if isinstance(cause, aiohttp.ClientError | OSError):
            raise _as_os_error(cause) from error
        raise


def _as_os_error(error: Exception) -> OSError:
    import aiohttp

    if isinstance(error, TimeoutError):
        return OSError(errno.ETIMEDOUT, f"the server said nothing for {_SILENCE_SECONDS:g} seconds")
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
    _waited: float = 0
    _received: int = 0

    def __init__(self, files: Any, path: str, *, size: int) -> None:
        super().__init__(lambda _start, _stop: b"", size=size)
        self._files = files
        self._path = path

    def readinto(self, buffer: memoryview) -> int:
        if self._place >= self._size:
            return 0
        with http_errors():
            if self._stream is None:
                self._stream = self._request()
            begun = time.monotonic()
            content = self._stream.read(min(len(buffer), self._size - self._place))
        self._check_pace(len(content), time.monotonic() - begun)
        buffer[: len(content)] = content
        self._place += len(content)
        return len(content)

    def _check_pace(self, num_bytes: int, seconds: float) -> None:
        """Give up a server that sends a byte now and then. What the reader does between two reads does not count."""
        self._received += num_bytes
        self._waited += seconds
        if self._waited < _SILENCE_SECONDS:
            return
        if self._received < _LEAST_BYTES * self._waited and self._place + num_bytes < self._size:
            told = f"the server sent {self._received} bytes in {self._waited:.0f} seconds"
            raise OSError(errno.ETIMEDOUT, told)
        self._waited, self._received = 0, 0

    def _request(self) -> Any:
        headers = _IDENTITY | ({"Range": f"bytes={self._place}-"} if self._place else {})
        stream = self._files.open(self._path, "rb", block_size=0, size=self._size, headers=headers)
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


def open_http(url: str, *, allowed: Allowed | None = None) -> HttpStore:
    """The store at an ``http://`` or ``https://`` URL. No connection is made yet.

    The URL is the reader's own, unless ``allowed`` says what was agreed to; then every connection is held against it.

    Raises:
        MissingExtraError: aiohttp is not installed.
    """
    try:
        from aiohttp import ClientTimeout
        from fsspec.config import conf
        from fsspec.implementations.http import HTTPFileSystem
    except ImportError as error:
        raise MissingExtraError(package="aiohttp", extra="http", needed_for=f"reading {mask(url)[:200]}") from error
    # The client's own limit is five minutes for the whole file.
    timeout = ClientTimeout(total=None, sock_connect=_SILENCE_SECONDS, sock_read=_SILENCE_SECONDS)
    if allowed is None:
        # Credentials come from fsspec's configuration, e.g. $FSSPEC_HTTP_CLIENT_KWARGS: a URL with them is not stored.
        configured = conf.get("http", {}).get("client_kwargs", {})
        return HttpStore(HTTPFileSystem(client_kwargs={**configured, "timeout": timeout}), url, url=url)
    from registry.storage.guarded_http import GuardedFiles, guarded_client

    client = guarded_client(allowed, is_secure=url.startswith("https://"))
    return HttpStore(GuardedFiles(client_kwargs={"timeout": timeout}, get_client=client), url, url=url)
