"""Requests files of a site from a web server, with limits: of time, of bytes, of redirects.

A redirect leads to http or https, and never from https to http. The user and password of the site's URL are sent to the
server that the URL names, and to no other one. Answers are not decompressed here.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote, urljoin, urlsplit

from registry.errors import (
    CatalogError,
    CatalogRefusedError,
    CatalogUnavailableError,
    StorageUnavailableError,
    UsageError,
    require_extra,
)
from registry.masking import mask
from registry.storage.network import Limits, Operation, TransientFault, call_with_retries

if TYPE_CHECKING:
    import urllib3

T = TypeVar("T")

_MOST_REDIRECTS: Final = 5
_PIECE_BYTES: Final = 2**16
_MOST_CONNECTIONS: Final = 8
"""That stay open: threads of a client of a service share them."""

_LEAST_BYTES_PER_SECOND: Final = 1024
"""A server that sends less, beyond the time of one operation, counts as failed."""

_UNCHANGED: Final = 304
_MISSING: Final = frozenset({404, 410})
_REFUSED: Final = {401: "password", 403: "other"}
_PASSING: Final = frozenset({408, 425, 429})
_FIRST_SERVER_FAULT: Final = 500
_OK: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A server's answer whose body was taken.

    Attributes:
        is_unchanged: the file is still the one that the conditions of the request describe; there is no body.
        headers: the header fields, whose names ignore case.
        body: the bytes that nobody else received.
    """

    is_unchanged: bool
    headers: Mapping[str, str]
    body: bytes = b""


class SiteServer:
    """The web server of a site. Use it in one thread and one process; ``close`` ends its connections."""

    def __init__(self, url: str) -> None:
        """``url`` is that of the site (``web_urls.site_url``).

        Raises:
            MissingExtraError: urllib3 is not installed.
            UsageError: a setting of the limits is invalid.
        """
        with require_extra("http", package="urllib3", needed_for="a catalog on the web"):
            import urllib3
        self.url = mask(url)
        self._limits = Limits.from_environment()
        user, at, _ = urlsplit(url).netloc.rpartition("@")
        self._base = url.replace(f"{user}@", "", 1) if at else url
        self._login = urllib3.make_headers(basic_auth=unquote(user)) if at else {}
        seconds = urllib3.Timeout(connect=self._limits.connect_seconds, read=self._limits.read_seconds)
        self._pool = urllib3.PoolManager(timeout=seconds, retries=False, maxsize=_MOST_CONNECTIONS)

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def get(
        self,
        path: str,
        *,
        most_bytes: int,
        start: Callable[[], Callable[[bytes], object]] | None = None,
        conditions: Mapping[str, str] | None = None,
        most_tries: int | None = None,
    ) -> Answer | None:
        """Request a file of the site; None if the server has no such file.

        Args:
            path: the path of the file below the site's URL.
            most_bytes: reading ends after the first piece that exceeds this size.
            start: called at the beginning of each attempt; the result is called with each piece of the body.
            conditions: headers such as ``If-None-Match``.
            most_tries: fewer attempts than ``REGISTRY_TRIES``.

        Raises:
            CatalogUnavailableError: the server does not answer, is silent, slow or overloaded.
            CatalogRefusedError: it asks for a user and password, or forbids the request.
            CatalogError: another answer, a wrong certificate, or redirects that are not followed.
            UsageError: the host's name is invalid.
        """
        limits = (
            self._limits if most_tries is None else replace(self._limits, tries=min(most_tries, self._limits.tries))
        )
        attempt = partial(self._attempt, f"{self._base}{path}", most_bytes, start, conditions or {})
        return self._retry("read", path, attempt, limits)

    def _retry(self, action: str, path: str, attempt: Callable[[float], T], limits: Limits) -> T:
        """Attempt a request until the server answers it."""
        operation = Operation(action, f"{self.url}{path}", urlsplit(self._base).netloc, limits)
        try:
            return call_with_retries(operation, attempt)
        except StorageUnavailableError as error:
            is_refused = error.details.get("errno") == errno.ECONNREFUSED
            hint = f"{'Check the host and the port in the URL. ' if is_refused else ''}{error.hint or ''}" or None
            raise CatalogUnavailableError(error.message, hint=hint, details=error.details) from error

    def _attempt(
        self,
        url: str,
        most_bytes: int,
        start: Callable[[], Callable[[bytes], object]] | None,
        conditions: Mapping[str, str],
        seconds: float,
    ) -> Answer | None:
        import urllib3

        body: list[bytes] = []
        take = body.append if start is None else start()
        end = time.monotonic() + seconds
        try:
            answer = self._follow(url, conditions)
            try:
                if answer.status in _MISSING:
                    return None
                if answer.status == _UNCHANGED and conditions:
                    return Answer(is_unchanged=True, headers=answer.headers)
                if answer.status != _OK:
                    raise self._refusal(answer)
                num_bytes = 0
                while num_bytes <= most_bytes and (piece := answer.read1(_PIECE_BYTES)):
                    num_bytes += len(piece)
                    take(piece)
                    if time.monotonic() > end + num_bytes / _LEAST_BYTES_PER_SECOND:
                        raise TransientFault("the server is too slow", number=errno.ETIMEDOUT)
                return Answer(is_unchanged=False, headers=answer.headers, body=b"".join(body))
            finally:
                # A body that was not read to its end would be read by the next request.
                answer.close()
        except urllib3.exceptions.HTTPError as error:
            raise self._typed(error) from error

    def _follow(self, url: str, conditions: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        """The response at the end of the redirects, without its body."""
        target = url
        # Caches between must ask the server: an older index would look as if the site was rolled back.
        headers = {"Accept-Encoding": "identity", "Cache-Control": "no-cache", **conditions}
        for _ in range(_MOST_REDIRECTS + 1):
            is_ours = urlsplit(target)[:2] == urlsplit(url)[:2]
            answer = self._pool.request(
                "GET",
                target,
                headers={**headers, **(self._login if is_ours else {})},
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            place = answer.get_redirect_location()
            if not place:
                return answer
            answer.close()
            before, target = target, urljoin(target, place)
            scheme = urlsplit(target).scheme
            if scheme not in ("http", "https") or (scheme == "http" and before.startswith("https:")):
                raise CatalogError(
                    f"cannot read {self.url}: the server redirects to {mask(target)[:200]}, which is not followed",
                    hint="A site moves from http to https, and not back. Ask its publisher for its URL.",
                )
        raise CatalogError(
            f"cannot read {self.url}: the server redirects again and again", hint="Ask its publisher for its URL."
        )

    def _refusal(self, answer: urllib3.BaseHTTPResponse) -> CatalogError | TransientFault:
        problem = f"the server answered {answer.status} {answer.reason or ''}".rstrip()[:200]
        if answer.status >= _FIRST_SERVER_FAULT or answer.status in _PASSING:
            return TransientFault(problem)
        if answer.status in _REFUSED:
            return CatalogRefusedError(
                f"cannot read {self.url}: {problem}",
                hint="If the site needs a login: https://USER:PASSWORD@host/path/ in REGISTRY_CATALOG.",
                details={"reason": _REFUSED[answer.status], "sqlstate": None},
            )
        return CatalogError(f"cannot read {self.url}: {problem}", hint="Check the URL.")

    def _typed(self, error: urllib3.exceptions.HTTPError) -> Exception:
        from urllib3 import exceptions

        if isinstance(error, exceptions.LocationValueError):
            return UsageError(f"cannot read {self.url}: the name of the host is invalid", hint="Check the URL.")
        if isinstance(error, exceptions.SSLError):
            is_plain = "WRONG_VERSION_NUMBER" in str(error)  # registry serve does not speak TLS
            hint = "The server speaks plain HTTP: write http://" if is_plain else "Check the server's certificate."
            return CatalogError(f"cannot read {self.url}: {error!s:.200}", hint=hint)
        if isinstance(error, exceptions.ReadTimeoutError):
            silence = f"the server said nothing for {self._limits.read_seconds:g} seconds"
            return TransientFault(silence, number=errno.ETIMEDOUT)
        if isinstance(error, exceptions.ConnectTimeoutError):  # a NewConnectionError is one, too
            cause: Any = error.__cause__
            reason = getattr(cause, "strerror", None) or "it does not answer"
            return TransientFault(f"the server cannot be reached: {reason}", number=errno.ECONNREFUSED)
        return TransientFault("the server ended the response too early")
