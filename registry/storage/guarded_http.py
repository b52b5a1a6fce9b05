"""Checks connections to web servers whose URLs come from somebody else: each host and address must be allowed.

    request, and every redirect  ->  host allowed?  ->  resolve it  ->  keep allowed addresses  ->  connect to one

The connection uses the address that was checked, so a host name that resolves differently a moment later has no effect.
Proxies of the environment are not used, and no cookie, password or header of the reader's configuration is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from fsspec.implementations.http import HTTPFileSystem

from registry.errors import FetchNotAllowedError
from registry.masking import mask
from registry.storage.consent import Allowed, canonical_host, entry_for


class RefusedConnection(Exception):  # noqa: N818 (it never leaves this folder)
    """A connection that is not allowed. Not an OSError, which aiohttp would treat as a network fault."""

    def __init__(self, error: FetchNotAllowedError) -> None:
        super().__init__(error.message)
        self.error = error


class _Resolver(AbstractResolver):  # type: ignore[misc]  # aiohttp is an extra
    """Resolves a host to those of its addresses that are allowed."""

    def __init__(self, allowed: Allowed, scheme_of: Callable[[str, int], str]) -> None:
        self._allowed = allowed
        self._scheme_of = scheme_of
        self._inner = ThreadedResolver()

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        scheme = self._scheme_of(host, port)
        result = [address for address in found if self._allowed.covers_address(scheme, host, port, address["host"])]
        if found and not result:
            raise _refused_address(host, found[0]["host"])
        return result

    async def close(self) -> None:
        await self._inner.close()


class _Connector(aiohttp.TCPConnector):  # type: ignore[misc]  # the same
    """Checks that every request and every redirect is allowed."""

    def __init__(self, allowed: Allowed, *, is_secure: bool) -> None:
        self._schemes: dict[tuple[str, int], str] = {}
        resolver = _Resolver(allowed, lambda host, port: self._schemes.get((host, port), ""))
        super().__init__(resolver=resolver, force_close=True)  # a connection that is kept alive may be dead when reused
        self._allowed_places = allowed
        self._is_secure = is_secure

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:
        url = req.url
        host, port = url.host or "", url.port or 0
        if self._is_secure and url.scheme != "https":
            raise _refused(
                f"the server redirects from https to {mask(str(url))}, which others could change in transit",
                path=str(url),
                allow=None,
            )
        if not self._allowed_places.covers(str(url)):
            raise _refused(
                f"the server redirects to {mask(str(url))}, a host that you have not allowed",
                path=str(url),
                allow=entry_for(str(url)),
            )
        name = canonical_host(host)
        try:
            is_open = self._allowed_places.covers_address(url.scheme, host, port, name)
        except ValueError:  # a name: its addresses are checked once they are known
            self._schemes[host, port] = url.scheme
        else:
            if not is_open:
                raise _refused_address(host, name)
        return await super().connect(req, traces, timeout)


def _refused_address(host: str, address: str) -> RefusedConnection:
    leads = "is" if canonical_host(host) == address else f"resolves to {address},"
    return _refused(
        f"{host} {leads} an address that is not public and that you have not allowed",
        path=host,
        allow=f"[{address}]" if ":" in address else address,
    )


def _refused(problem: str, *, path: str, allow: str | None) -> RefusedConnection:
    return RefusedConnection(FetchNotAllowedError(problem, details={"path": mask(path), "allow": allow}))


@lru_cache(maxsize=256)
def guarded_client(allowed: Allowed, *, is_secure: bool) -> Callable[..., Coroutine[Any, Any, aiohttp.ClientSession]]:
    """Return a function that creates sessions restricted to ``allowed``; cached, so that sessions are shared."""

    async def make(**options: Any) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=_Connector(allowed, is_secure=is_secure),
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            **options,
        )

    return make


class GuardedFiles(HTTPFileSystem):  # type: ignore[misc]  # fsspec has no types
    """fsspec's HTTP file system under another protocol name: settings for ``http`` may contain a password."""

    protocol = "registry-guarded-http"
