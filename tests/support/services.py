"""A service over HTTP for the catalogs of tests, and a client that is a different person for each actor."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from registry.catalog import CatalogBackend
from registry.catalog.service import ServiceCatalog
from registry.catalog.sql_catalog import SqlCatalog
from registry.catalog.wrapper import CatalogWrapper, pass_call
from registry.model import Role, new_secret
from registry.server.browse import listen
from registry.server.config import ServiceConfig
from registry.server.issuers import Issuer
from registry.server.service import RouteMaker, Service, make_service_app
from support import http_servers
from support.http_servers import running


class TestServer:
    """A server in a thread of this process. It answers for ``service``, whose catalog a test may exchange.

    Attributes:
        url: its URL.
        service: what makes the calls.
    """

    __test__ = False

    def __init__(
        self,
        config: ServiceConfig | None = None,
        more_routes: RouteMaker | None = None,
        *,
        issuers: tuple[Issuer, ...] = (),
        wrap: Callable[[Any], Any] = lambda app: app,
    ) -> None:
        """Start it.

        Args:
            config: its settings.
            more_routes: makes routes of an extra.
            issuers: the issuers with which people and programs sign in at ``url``.
            wrap: wraps the application, for example in a proxy.
        """
        import uvicorn

        config = config or ServiceConfig(requests_per_minute=0, failed_logins_per_minute=0)
        self.service = Service(cast("SqlCatalog", None), anonymous=config.anonymous_reads)
        self._listener = listen(0)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        config = replace(config, issuers=issuers, public_url=self.url) if issuers else config
        app = wrap(make_service_app(self.service, config, more_routes=more_routes))
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", ws="none"))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)

    def stop(self) -> None:
        """End the server."""
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()


def make_token(catalog: CatalogBackend, name: str, role: Role = Role.ADMIN, *datasets: str, **options: Any) -> str:
    """The text of a new token of a catalog."""
    token_id, text, digest = new_secret()
    patterns = datasets or ("*",)
    catalog.access.create_token(token_id, digest, name, role, datasets=patterns, actor="root", **options)
    return text


class ServedCatalog(CatalogWrapper):
    """The client of a service over ``catalog``: a call with another actor is made with another token."""

    def __init__(self, catalog: CatalogBackend, url: str) -> None:
        self.url, self.file = catalog.url, catalog.file
        self._catalog = catalog
        self._address = url
        self._clients: dict[str, ServiceCatalog] = {}

    def _call(self, call: str, *args: Any, **kwargs: Any) -> Any:
        return pass_call(self.client(kwargs.get("actor") or "tester"), call, *args, **kwargs)

    def client(self, actor: str) -> ServiceCatalog:
        """The client of this person, who is an admin."""
        if actor not in self._clients:
            token = make_token(self._catalog, actor)
            self._clients[actor] = ServiceCatalog(self._address, token=lambda _: token)
        return self._clients[actor]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


@dataclass
class CuttingProxy:
    """A proxy that closes connections instead of passing on answers.

    Attributes:
        url: its URL.
        cut: whether the answer to a request with these headers is lost.
        seen: the path and the idempotency key of each request.
    """

    url: str = ""
    cut: Callable[[Mapping[str, str]], bool] = lambda _: False
    seen: list[tuple[str, str | None]] = field(default_factory=list)

    def lose_first_answers(self) -> None:
        """Lose the first answer to each write."""
        keys: set[str] = set()

        def is_first(headers: Mapping[str, str]) -> bool:
            key = headers.get("Idempotency-Key")
            is_new = key is not None and key not in keys
            keys.update([key] if key else [])
            return is_new

        self.cut = is_first


@contextmanager
def cutting_proxy(target: str) -> Iterator[CuttingProxy]:
    """A proxy in front of ``target`` that runs for as long as the block."""
    import urllib3

    proxy, pool = CuttingProxy(), urllib3.PoolManager()

    class Handler(http_servers.Handler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.body()
            path = self.path.lstrip("/")
            proxy.seen.append((path, self.headers.get("Idempotency-Key")))
            answer = pool.request(
                self.command, target + path, body=body, headers=dict(self.headers), decode_content=False, retries=False
            )
            if proxy.cut(self.headers):
                self.close_connection = True
                return
            own = ("content-length", "transfer-encoding", "connection")
            headers = {name: value for name, value in answer.headers.items() if name.lower() not in own}
            self.answer(answer.status, headers, answer.data)

        do_POST = do_PUT = do_HEAD = do_GET

    with running(Handler) as port:
        proxy.url = f"http://127.0.0.1:{port}/"
        yield proxy
    pool.clear()


@contextmanager
def served(catalog: CatalogBackend, server: TestServer) -> Iterator[CatalogBackend]:
    """A client of ``catalog``, which ``server`` serves.

    Pages have four items, so that long lists have several pages.
    """
    server.service.catalog = cast("SqlCatalog", catalog)
    with ServedCatalog(catalog, server.url) as client, pytest.MonkeyPatch.context() as patches:
        patches.setattr("registry.catalog.service.calls.MOST_ITEMS", 4)
        yield cast("CatalogBackend", client)
