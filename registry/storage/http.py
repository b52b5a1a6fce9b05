"""The read-only store for web servers.

Data packages are usually fetched whole, so a file that is read in order is one response of any length and duration; a
seek starts a new one. If the server is silent or very slow, the connection is closed and a new request continues at the
position that was reached. A server without range requests can still be read from the start.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import io
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from registry.errors import MissingExtraError, StorageError
from registry.masking import mask
from registry.storage.faults import HintedError, StoredFile, cannot, printable_cause, storage_errors
from registry.storage.network import Limits, Operation, TransientFault, begin, call_with_retries, retried, run
from registry.storage.remote import PathStore, RangeReader, RemoteFile
from registry.storage.store import Names, ReadOnlyStore, check_relative_name

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

    from registry.storage.consent import Allowed

MakeSession: TypeAlias = Callable[..., "Coroutine[Any, Any, ClientSession]"]
"""Creates a session with these options, in addition to its own restrictions on where it may connect."""

_LEAST_BYTES: Final = 1024
"""A server that sends fewer bytes a second, over the read timeout, counts as failed."""

_PIECE_SECONDS: Final = 1
"""A read returns after this time with the bytes that have arrived, so that a slow server is noticed."""

_HEADERS: Final = {"Accept-Encoding": "identity"}
"""Requests the bytes as they are stored: the client must not decompress a .gz file."""

_MISSING: Final = frozenset({404, 410})
_PASSING: Final = frozenset({408, 425, 429})
_REFUSED: Final = frozenset({401, 403})
_PARTIAL: Final = 206
_FIRST_FAULT: Final = 300
"""A redirect that reaches this code has no target, because the client follows all others."""

_FIRST_SERVER_FAULT: Final = 500
_INHERITED: Final[list[object]] = []
"""Never collected: the client would close them with a warning."""


class HttpStore(ReadOnlyStore, PathStore):
    """The files below one URL of a web server, read-only."""

    refusal = "a web server is read-only"
    refusal_hint = "Pass a local folder, or the URL of an object store, e.g. s3://bucket/datasets."

    def __init__(self, file_system: Any, root: str, *, url: str, make_session: MakeSession) -> None:
        super().__init__(file_system, root, url=url)
        self._make_session = make_session
        self._limits = Limits.from_environment()

    def child(self, name: str) -> HttpStore:
        """The store rooted at the prefix ``name``, which may connect to the same hosts."""
        path = self._path(check_relative_name(name))
        return HttpStore(self._files, path, url=self._url(name), make_session=self._make_session)

    def open(self, name: str) -> StoredFile:
        """Open a file for reading: one response, as long as it is read in order."""
        url, location, size = self._path(check_relative_name(name)), self.locate(name), self.size(name)
        return HttpFile(url, location=location, num_bytes=size, limits=self._limits, make_session=self._make_session)

    def size(self, name: str) -> int:
        """Size of a file, in bytes, as the server reports it."""
        size = self._ask(name, _size_of)
        if size is None:
            hint = "The server must send Content-Length. Download the file, and read the local copy."
            reason = "the server does not report its size"
            raise cannot("read", self.locate(name), reason, number=errno.ENOTSUP, hint=hint)
        return int(size)

    def exists(self, name: str) -> bool:
        """Whether the server has a file or page of this name."""
        with storage_errors("read", self.locate(name)):
            try:
                self._ask(name, _size_of)
            except FileNotFoundError:
                return False
        return True

    def _ask(self, name: str, ask: Callable[[ClientSession, str], Coroutine[Any, Any, Any]]) -> Any:
        path, location = self._path(check_relative_name(name)), self.locate(name)

        async def asked() -> Any:
            return await ask(await _session(self._limits, self._make_session), path)

        def attempt(seconds: float) -> Any:
            with http_errors(self._limits):
                # Time for a redirect and a GET after the HEAD. It also ends answers that arrive byte by byte.
                return run(asked(), seconds=min(seconds, 3 * self._limits.read_seconds))

        with storage_errors("read", location):
            return call_with_retries(Operation("read", location, _server_of(path), self._limits), attempt)

    def _all_names(self, folder: str) -> Names:
        """The files that the server's pages link to, found by fsspec."""
        top, location = self._path(folder), self.locate(folder)

        def attempt(_: float) -> Names:
            with http_errors(self._limits), storage_errors("list", location):
                self._files.invalidate_cache()
                names: Names = [path for path in self._files.find(top) if path.startswith(f"{top}/")]
                return sorted(path[len(self._root) + 1 :] for path in names)

        with storage_errors("list", location):
            return call_with_retries(Operation("list", location, _server_of(self.url), self._limits), attempt)


@contextmanager
def http_errors(limits: Limits) -> Iterator[None]:
    """Convert the HTTP client's errors of the block to TransientFault or OSError."""
    import aiohttp

    from registry.storage.guarded_http import RefusedConnection

    try:
        yield
    except RefusedConnection as refused:
        raise refused.error from None
    except TransientFault as fault:
        if isinstance(fault.__cause__, TimeoutError):
            raise _typed(fault.__cause__, limits) from None
        raise
    except StorageError as error:
        # fsspec reports every failure as a missing file; the cause is the real error.
        cause = error.__cause__.__cause__ if error.__cause__ else None
        if isinstance(cause, RefusedConnection):
            raise cause.error from None
        if isinstance(cause, aiohttp.ClientError | TimeoutError):
            raise _typed(cause, limits) from printable_cause(cause)
        raise
    except (aiohttp.ClientError, TimeoutError) as error:
        raise _typed(error, limits) from printable_cause(error)


def _typed(error: Exception, limits: Limits) -> OSError | TransientFault:
    import aiohttp

    if isinstance(error, TimeoutError):
        told = f"the server sent nothing for {limits.read_seconds:g} seconds"
        return TransientFault(told, number=errno.ETIMEDOUT)
    if isinstance(error, aiohttp.TooManyRedirects):
        return HintedError(errno.EIO, "the server redirects again and again", hint="Check the URL.")
    if isinstance(error, getattr(aiohttp, "NonHttpUrlClientError", ())):  # older clients have no such class
        told = f"the server redirects to {mask(str(error))}, which is not on a web server"
        return HintedError(errno.EIO, told, hint="Check the URL.")
    if isinstance(error, aiohttp.ClientResponseError):
        return _typed_status(error.status, error.message)
    if isinstance(error, aiohttp.ClientPayloadError):
        return TransientFault("the server ended the response too early")
    reason = mask(str(error)) or type(error).__name__
    if isinstance(error, aiohttp.InvalidURL | aiohttp.ClientConnectorCertificateError):
        hint = "Check the URL, and the server's certificate."
        return HintedError(errno.EIO, f"the server cannot be reached: {reason}", hint=hint)
    return TransientFault(f"the server cannot be reached: {reason}", number=errno.ECONNREFUSED)


def _typed_status(status: int, reason: str | None) -> OSError | TransientFault:
    if status in _MISSING:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    told = f"the server answered {status} {reason or ''}".rstrip()
    if status >= _FIRST_SERVER_FAULT or status in _PASSING:
        return TransientFault(told)
    hint = "Check the URL, and whether it needs a login." if status in _REFUSED else "Check the URL."
    return HintedError(errno.EACCES if status in _REFUSED else errno.EIO, told, hint=hint)


async def _session(limits: Limits, make_session: MakeSession) -> ClientSession:
    """Return this process's session for ``make_session``; it caches addresses for some seconds."""
    from aiohttp import ClientTimeout

    key = (os.getpid(), make_session, limits)
    if key not in _SESSIONS:
        # No limit for a whole response: the client's default is five minutes, too short for large files.
        seconds = limits.connect_seconds
        timeout = ClientTimeout(total=None, connect=seconds, sock_connect=seconds, sock_read=limits.read_seconds)
        session = _SESSIONS[key] = await make_session(timeout=timeout, auto_decompress=False)
        session._retry_connection = False  # no public option exists; True would send some requests twice
    return _SESSIONS[key]


def _close_sessions() -> None:
    """Close the sessions at the end of the process: the client warns about unclosed ones."""

    async def close() -> None:
        for (process, *_), session in _SESSIONS.items():
            if process == os.getpid():
                await session.close()

    if _SESSIONS:
        with suppress(TransientFault, StorageError):
            run(close(), seconds=1)


_PLAIN_CLIENTS: Final[dict[str, MakeSession]] = {}
_SESSIONS: Final[dict[tuple[object, ...], Any]] = {}
atexit.register(_close_sessions)


async def _size_of(session: ClientSession, url: str) -> int | None:
    """Ask for the size by HEAD, or by GET if the server refuses HEAD; None if it does not report the size."""
    for method in ("HEAD", "GET"):
        async with session.request(method, url, headers=_HEADERS, allow_redirects=True) as answer:
            if answer.status < _FIRST_FAULT:
                length, encoding = answer.headers.get("Content-Length"), answer.headers.get("Content-Encoding")
                # A server may compress although we asked for identity; its length is then that of the compressed bytes.
                if length is not None and length.isdecimal() and encoding in (None, "", "identity"):
                    answer.close()
                    return int(length)
            elif method == "GET":
                raise _typed_status(answer.status, answer.reason)
            answer.close()  # without reading the body of a GET
    return None


def _server_of(url: str) -> str:
    return "/".join(url.split("/", 3)[:3])


class HttpFile(RemoteFile):
    """A file of a web server: reading in order uses one response, and each range is a request."""

    def __init__(self, url: str, *, location: str, num_bytes: int, limits: Limits, make_session: MakeSession) -> None:
        self._response = _Response(
            url, location=location, num_bytes=num_bytes, limits=limits, make_session=make_session
        )
        super().__init__(self._response.begin_range, path=location, num_bytes=num_bytes, raw=self._response)

    def pieces(self) -> Iterator[memoryview]:
        """Yield all bytes from the start, from one response."""
        return StoredFile.pieces(self)

    def read(self, size: int | None = -1, /) -> bytes:
        """Read the next bytes from the same response."""
        return io.BufferedReader.read(self, size)


class _Response(RangeReader):
    """A file of a web server as a raw file, with its own response."""

    def __init__(self, url: str, *, location: str, num_bytes: int, limits: Limits, make_session: MakeSession) -> None:
        super().__init__(self._fetch_next, num_bytes=num_bytes)
        self._url = url
        self._reading = Operation("read", location, _server_of(url), limits)
        self._limits = limits
        self._make_session = make_session
        self._answer: ClientResponse | None = None
        self._process = os.getpid()
        self._tag: str | None = None
        self._is_broken = False
        self._waited: float = 0
        self._received = 0

    def begin_range(self, start: int, stop: int) -> Future[bytes]:
        """Start one request for bytes start..stop."""
        return begin(retried(self._reading, partial(self._read_range, start, stop)))

    async def _read_range(self, start: int, stop: int) -> bytes:
        with http_errors(self._limits):
            answer = await self._ask(start, stop, None)
            try:
                # A server without support for ranges, or only for their start, sends more.
                content: bytes = await answer.content.readexactly(stop - start)
            except asyncio.IncompleteReadError as error:
                raise TransientFault("the server ended the response too early") from error
            finally:
                answer.close()
            return content

    def _fetch_next(self, start: int, stop: int) -> bytes:
        """Read some bytes from ``start`` on; after a fault, a new response continues at the position reached."""
        broken: TransientFault | None = None

        def attempt(seconds: float) -> bytes:
            nonlocal broken
            begun = time.monotonic()
            try:
                with http_errors(self._limits):
                    content = run(self._read(start, stop, broken), seconds=seconds)
                if not self._is_broken:
                    is_last = start + len(content) == self._num_bytes
                    self._check_pace(len(content), time.monotonic() - begun, is_last=is_last)
            except TransientFault as fault:
                broken = fault
                self._leave()
                raise
            return content

        return call_with_retries(self._reading, attempt)

    async def _read(self, start: int, stop: int, broken: TransientFault | None) -> bytes:
        if self._process != os.getpid():  # a forked child: its parent still reads from this connection
            _INHERITED.append(self._answer)
            self._answer = None
        if self._answer is None:
            self._process, self._is_broken = os.getpid(), False
            self._answer = await self._ask(start, None, broken)
        pieces: list[bytes] = []
        num_bytes, end = 0, time.monotonic() + _PIECE_SECONDS
        while num_bytes < stop - start and time.monotonic() < end:
            try:
                piece = await self._answer.content.read(stop - start - num_bytes)
            except Exception:
                if not pieces:
                    raise
                self._is_broken = True  # return the bytes that have arrived; the next read meets the fault again
                break
            if not piece:
                if pieces:
                    break
                raise TransientFault("the server ended the response too early")
            pieces.append(piece)
            num_bytes += len(piece)
        return b"".join(pieces)

    async def _ask(self, start: int, stop: int | None, broken: TransientFault | None) -> ClientResponse:
        """Request the bytes from ``start`` to ``stop``, or to the end if it is None."""
        headers = {"Range": f"bytes={start}-{'' if stop is None else stop - 1}"} if start or stop is not None else {}
        if headers and self._tag is not None:
            headers["If-Range"] = self._tag
        session = await _session(self._limits, self._make_session)
        answer = await session.get(self._url, headers=_HEADERS | headers, allow_redirects=True)
        try:
            if answer.status >= _FIRST_FAULT:
                raise _typed_status(answer.status, answer.reason)
            tag = answer.headers.get("ETag")
            if self._tag is not None and tag != self._tag:
                hint = "Read it again. `registry verify` checks whether it is the published file."
                raise HintedError(errno.EIO, "it was replaced while it was read", hint=hint)
            if start and answer.status != _PARTIAL:
                hint = "Download the file, and read the local copy."
                raise broken or HintedError(errno.ESPIPE, "the server does not support range requests", hint=hint)
        except Exception:
            answer.close()
            raise
        self._tag = tag if tag and not tag.startswith("W/") else None
        return answer

    def _check_pace(self, num_bytes: int, seconds: float, *, is_last: bool) -> None:
        """Give up on a server that sends almost nothing. Time between two reads is not counted."""
        self._received += num_bytes
        self._waited += seconds
        if self._waited < self._limits.read_seconds:
            return
        received, waited = self._received, self._waited
        self._waited, self._received = 0, 0
        if received < _LEAST_BYTES * waited and not is_last:
            raise TransientFault(f"the server sent {received} bytes in {waited:.0f} seconds", number=errno.ETIMEDOUT)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position. If it differs, the response is closed."""
        before = self.tell()
        if super().seek(offset, whence) != before:
            self._leave()
        return self.tell()

    def close(self) -> None:
        """Close the response."""
        self._leave()
        super().close()

    def _leave(self) -> None:
        answer, self._answer = self._answer, None

        async def end() -> None:
            if answer is not None:
                answer.close()

        if answer is not None and self._process == os.getpid():
            begin(end())


def open_http(url: str, *, allowed: Allowed | None = None) -> HttpStore:
    """Return the store at an ``http://`` or ``https://`` URL. No connection is made yet.

    Args:
        url: the folder.
        allowed: the places that the reader has allowed, if somebody else wrote the URL: every connection is checked
            against it. None if the reader wrote the URL.

    Raises:
        MissingExtraError: aiohttp is not installed.
        UsageError: a setting of the limits is invalid.
    """
    try:
        from aiohttp import ClientSession, ClientTimeout, TCPConnector
        from fsspec.config import conf
        from fsspec.implementations.http import HTTPFileSystem
    except ImportError as error:
        raise MissingExtraError(package="aiohttp", extra="http", needed_for=f"reading {mask(url)[:200]}") from error
    seconds = Limits.from_environment().read_seconds
    timeout = ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds)
    if allowed is None:
        # Credentials come from fsspec's configuration, e.g. $FSSPEC_HTTP_CLIENT_KWARGS: URLs must not contain them.
        configured = conf.get("http", {}).get("client_kwargs", {})

        async def make(**options: Any) -> ClientSession:
            # A connection that is kept alive may be dead when it is used again, which would cost an attempt.
            return ClientSession(**{"connector": TCPConnector(force_close=True), **configured, **options})

        client = _PLAIN_CLIENTS.setdefault(repr(configured), make)
        files = HTTPFileSystem(client_kwargs={**configured, "timeout": timeout})
        return HttpStore(files, url, url=url, make_session=client)
    from registry.storage.guarded_http import GuardedFiles, guarded_client

    client = guarded_client(allowed, is_secure=url.startswith("https://"))
    files = GuardedFiles(client_kwargs={"timeout": timeout}, get_client=client)
    return HttpStore(files, url, url=url, make_session=client)
