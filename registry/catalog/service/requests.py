"""Requests of a client to a service, with limits of time and bytes; a request that got no answer is sent again.

A write that is sent again has the same idempotency key, so that the service makes it once, and gives its first answer.
No redirect is followed: it could lead to a server that must not get the token.
"""

from __future__ import annotations

import errno
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from registry.catalog.service.problems import UNAVAILABLE, load_error
from registry.catalog.site.requests import SiteServer
from registry.catalog.web_urls import is_loopback
from registry.catalog.wrapper import IS_BRIEF
from registry.errors import (
    CatalogError,
    CatalogRefusedError,
    CatalogUnavailableError,
    KeyRunningError,
    UsageError,
)
from registry.storage.network import Limits, TransientFault

if TYPE_CHECKING:
    import urllib3

_MOST_BYTES: Final = 2**30
_PIECE_BYTES: Final = 2**18
_DONE: Final = frozenset({200, 201, 206, 307})
_UNAUTHORIZED: Final = 401
_TRANSIENT: Final = frozenset({408, 425, 429, 500, 502, UNAVAILABLE, 504})
_END: Final = 0
_FAULT: Final = 2**32 - 1
"""Lengths of a piece of a stream: the stream is complete, or an error follows."""

Receive: TypeAlias = Callable[[Any, float], Any]
Body: TypeAlias = Callable[[], Any]


class ServiceServer(SiteServer):
    """A service. Threads may share it; a forked process makes connections of its own."""

    def __init__(self, url: str, token: str | None, *, needs_encryption: bool = False) -> None:
        """``url`` is that of the service; ``needs_encryption``: also without a token.

        Raises:
            UsageError: the token would be sent without encryption to another machine.
            MissingExtraError: urllib3 is not installed.
        """
        super().__init__(url)
        is_secret = token is not None or needs_encryption
        if is_secret and urlsplit(url).scheme == "http" and not is_loopback(url):
            raise UsageError(
                f"an access token is not sent to {self.url}: everybody between could read it",
                hint="Use https://, which a proxy in front of the service offers.",
            )
        self._token = token
        self.token_id = token.split("_")[1] if token else ""
        self._process = os.getpid()

    def call(self, path: str, body: Mapping[str, Any], *, is_write: bool = False) -> Any:
        """The JSON that the service answers to a POST.

        Raises:
            CatalogUnavailableError: it does not answer, is overloaded, or its catalog is unreachable.
            CatalogRefusedError: it wants a token, or another one.
            CatalogError: it is not a service, or the answer is malformed.
            RegistryError: the error of the call.
        """
        headers = {"Content-Type": "application/json"}
        if is_write:
            headers["Idempotency-Key"] = uuid.uuid4().hex
        return self._parse(self._request(path, json.dumps(body).encode(), headers, self._body))

    def get_json(self, path: str) -> Any:
        """The JSON that the service answers to a GET; raises as ``call``."""
        return self._parse(self._request(path, b"", {}, self._body, "GET"))

    def stream(self, path: str, body: Mapping[str, Any]) -> Iterator[bytes]:
        """The pieces of a stream; see ``framed``. The connection is closed when the iterator is."""
        headers = {"Content-Type": "application/json"}
        answer = self._request(path, json.dumps(body).encode(), headers, lambda answer, _: answer)
        import urllib3

        def take(num_bytes: int) -> bytes:
            result = bytearray()
            while len(result) < num_bytes:
                if not (piece := answer.read(num_bytes - len(result), decode_content=True)):
                    raise CatalogUnavailableError(f"cannot read {self.url}: the server ended the response too early")
                result += piece
            return bytes(result)

        try:
            while (length := int.from_bytes(take(4), "big")) != _END:
                is_fault = length == _FAULT
                length = int.from_bytes(take(4), "big") if is_fault else length
                if length > _MOST_BYTES:
                    raise self._malformed()
                if is_fault:
                    raise self._error(self._parse(take(length)))
                yield take(length)
        except urllib3.exceptions.HTTPError as error:
            raise CatalogUnavailableError(f"cannot read {self.url}: {self._typed(error)}") from error
        finally:
            answer.close()

    def transfer(
        self,
        method: str,
        path: str,
        receive: Receive,
        *,
        headers: Mapping[str, str],
        body: Body | None = None,
        any_status: bool = False,
    ) -> Any:
        """Send a request about stored bytes; returns ``receive(answer, end)``.

        Args:
            method: the method.
            path: below the URL of the service.
            receive: takes an answer; ``end`` is when the attempt should end.
            headers: of the request.
            body: makes the body of an attempt: a file, or bytes.
            any_status: whether ``receive`` takes errors, too: those without a problem document.

        Raises:
            CatalogUnavailableError, CatalogRefusedError, CatalogError, RegistryError: see ``call``.
        """
        headers = {"Accept-Encoding": "identity", **headers}
        return self._request(path, body or (lambda: b""), headers, receive, method, any_status=any_status)

    def _request(
        self,
        path: str,
        body: bytes | Body,
        headers: Mapping[str, str],
        receive: Receive,
        method: str = "POST",
        *,
        any_status: bool = False,
    ) -> Any:
        if self._process != os.getpid():
            self._pool.clear()
            self._process = os.getpid()
        limits = self._limits.brief() if IS_BRIEF.get() else self._limits
        send = partial(self._send, method, path, body, headers, receive, any_status, limits)
        return self._retry("ask", path, send, limits)

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | Body,
        headers: Mapping[str, str],
        receive: Receive,
        any_status: bool,
        limits: Limits,
        seconds: float,
    ) -> Any:
        import urllib3

        login = {"Authorization": f"Bearer {self._token}"} if self._token else self._login
        coding = "gzip, zstd" if "zstd" in urllib3.util.request.ACCEPT_ENCODING else "gzip"
        sent = {"Accept-Encoding": coding, "Accept": "application/json", **headers, **login}
        end = time.monotonic() + seconds
        answer = None
        is_open = False
        try:
            answer = self._pool.request(
                method,
                f"{self._base}{path}",
                body=body() if callable(body) else body,
                headers=sent,
                redirect=False,
                preload_content=False,
                timeout=urllib3.Timeout(connect=limits.connect_seconds, read=limits.read_seconds),
            )
            if answer.status not in _DONE and not any_status:
                raise self._answered(answer, self._body(answer, end))
            result = receive(answer, end)
            is_open = result is answer
            return result
        except urllib3.exceptions.HTTPError as error:
            raise self._typed(error) from error
        finally:
            if answer is not None and not is_open:  # the rest of a body may be endless
                answer.drain_conn() if answer.status in _DONE and answer.length_remaining == 0 else answer.close()

    def _body(self, answer: urllib3.BaseHTTPResponse, end: float) -> bytes:
        pieces, num_bytes = [], 0
        while piece := answer.read(_PIECE_BYTES, decode_content=True):
            pieces.append(piece)
            num_bytes += len(piece)
            if num_bytes > _MOST_BYTES:
                raise self._malformed()
            if time.monotonic() > end:
                raise TransientFault("the server is too slow", number=errno.ETIMEDOUT)
        return b"".join(pieces)

    def _answered(self, answer: urllib3.BaseHTTPResponse, body: bytes) -> Exception:
        """The error of an answer that is not a result."""
        problem = None
        with suppress(ValueError, RecursionError):
            problem = json.loads(body)
        error = load_error(problem) if isinstance(problem, dict) else None
        is_transient = error is None or isinstance(error, CatalogUnavailableError)
        if (answer.status in _TRANSIENT and is_transient) or isinstance(error, KeyRunningError):
            reason = f"the server answered {answer.status}" if error is None else error.message
            pause = answer.headers.get("Retry-After", "0")
            return TransientFault(reason, pause=int(pause) if pause.isdecimal() and len(pause) < 5 else 0)
        if error is not None:
            return error
        if answer.status == _UNAUTHORIZED:
            return CatalogRefusedError(
                f"cannot read {self.url}: it wants a token",
                hint="Get one from an admin of the catalog, then: registry login URL",
                details={"reason": "password", "sqlstate": None},
            )
        return CatalogError(
            f"{self.url} is not a service of a catalog: the server answered {answer.status}",
            hint="Check the URL. It is the one that `registry serve` prints, or its setting `public_url`.",
        )

    def _error(self, problem: Any) -> Exception:
        error = load_error(problem) if isinstance(problem, dict) else None
        return self._malformed() if error is None else error

    def _parse(self, content: bytes) -> Any:
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise self._malformed() from error

    def _malformed(self) -> CatalogError:
        return CatalogError(
            f"the answer of {self.url} is malformed",
            hint="A program between may have changed it, or this release is too old: ask an admin of the catalog.",
        )


def framed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes of a stream of pieces: each after its length, in four bytes; length 0 says that it is complete.

    A stream that ends otherwise was cut. ``fault`` makes the end of one that failed.
    """
    for piece in pieces:
        if piece:
            yield len(piece).to_bytes(4, "big") + piece
    yield _END.to_bytes(4, "big")


def fault(problem: bytes) -> bytes:
    """The end of a stream that failed: its problem document."""
    return _FAULT.to_bytes(4, "big") + len(problem).to_bytes(4, "big") + problem
