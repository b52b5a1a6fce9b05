"""``registry browse``: serves the pages of a catalog on this machine, to its owner."""

from __future__ import annotations

import secrets
import socket
import webbrowser
from collections.abc import Callable
from contextlib import closing

from registry.api import Catalog
from registry.errors import require_extra
from registry.server.app import make_app


def serve_pages(
    catalog: Catalog, path: tuple[str, ...] = (), *, port: int = 0, opens: bool = True, ready: Callable[[str], None]
) -> None:
    """Serve the pages of a catalog on the loopback interface until Ctrl-C.

    Args:
        catalog: the catalog.
        path: the address of the page to begin at, below the root.
        port: the port; 0 is a free one.
        opens: whether to open the browser.
        ready: called with the URL of the first page as soon as it is served. The URL has a secret: whoever has it can
            read what the caller can read.

    Raises:
        MissingExtraError: Starlette, uvicorn or Jinja is not installed (extra ``server``).
        OSError: the port is taken.
    """
    with require_extra("server", package="uvicorn", needed_for="registry browse"):
        import uvicorn

    secret = secrets.token_urlsafe(24)
    with closing(socket.socket()) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        taken = listener.getsockname()[1]
        app = make_app(catalog, secret=secret, hosts={f"127.0.0.1:{taken}", f"localhost:{taken}"})
        config = uvicorn.Config(app, log_level="critical", access_log=False, lifespan="off", server_header=False)
        url = "/".join((f"http://127.0.0.1:{taken}", secret, *path, ""))

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                ready(url)
                if opens:
                    webbrowser.open(url)

        Server(config).run(sockets=[listener])
