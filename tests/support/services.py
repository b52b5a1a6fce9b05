"""A service over HTTP for the catalogs of tests, and a client that is a different person for each actor."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from registry.catalog import CatalogBackend
from registry.catalog.service import ServiceCatalog
from registry.catalog.sql_catalog import SqlCatalog
from registry.catalog.wrapper import CatalogWrapper, pass_call
from registry.model import Role, new_secret
from registry.server.browse import listen
from registry.server.service import Service, make_service_app


class TestServer:
    """A server in a thread of this process. It answers for ``service``, whose catalog a test may exchange.

    Attributes:
        url: its URL.
        service: what makes the calls.
    """

    __test__ = False

    def __init__(self) -> None:
        import uvicorn

        self.service = Service(cast("SqlCatalog", None))
        self._listener = listen(0)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        app = make_service_app(self.service)
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
            self._clients[actor] = ServiceCatalog(self._address, make_token(self._catalog, actor))
        return self._clients[actor]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


@contextmanager
def served(catalog: CatalogBackend, server: TestServer) -> Iterator[CatalogBackend]:
    """A client of ``catalog``, which ``server`` answers for."""
    server.service.catalog = cast("SqlCatalog", catalog)
    with ServedCatalog(catalog, server.url) as client:
        yield cast("CatalogBackend", client)
