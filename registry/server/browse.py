"""``registry browse``: serves the pages of a catalog on this machine, to its owner."""

from __future__ import annotations

import gc
import os
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from registry.api import Catalog
from registry.errors import ConflictError, require_extra
from registry.server.app import make_app


def serve_pages(
    catalog: Catalog, path: tuple[str, ...] = (), *, port: int = 0, opens: bool = True, ready: Callable[[str], None]
) -> None:
    """Serve the pages of a catalog on the loopback interface until Ctrl-C or SIGTERM.

    Pages in progress are finished first; a second signal ends the process at once.

    Args:
        catalog: the catalog.
        path: the address of the first page, below the root.
        port: the port; 0 chooses a free one.
        opens: whether to open the browser, if there is one.
        ready: called with the URL of the first page as soon as it is served. The URL contains a secret that lets
            anybody read what the caller can read.

    Raises:
        MissingExtraError: Starlette, uvicorn or Jinja is not installed (extra ``server``).
        ConflictError: the port is in use, or reserved for the system.
    """
    with require_extra("server", package="uvicorn", needed_for="registry browse"):
        import uvicorn

    secret, invitation = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    with listen(port) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        hosts = {address, address.replace("127.0.0.1", "localhost")}
        app = make_app(catalog, secret=secret, hosts=hosts, invitation=invitation)
        config = uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=2,
        )

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                ready("/".join((f"http://{address}", secret, *path, "")))
                if opens:  # in a thread: a browser for terminals runs until its user ends it
                    url = "/".join((f"http://{address}", invitation, *path, ""))
                    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

            def handle_exit(self, sig: int, frame: FrameType | None) -> None:
                if self.should_exit:
                    os._exit(0)
                super().handle_exit(sig, frame)

        gc.freeze()
        gc.set_threshold(10_000)  # templates leave cycles; with that of commands, each 60th page took 0.2 s longer
        with suppress(KeyboardInterrupt):  # uvicorn sends itself the signal again when it has stopped
            Server(config).run(sockets=[listener])


def listen(port: int, host: str = "127.0.0.1", *, hint: str | None = None) -> socket.socket:
    """A socket that listens on a port, or on a free one (0), by default on the loopback interface.

    Its connections send without delay. Otherwise the body of an answer would wait 40 ms, until the browser acknowledges
    the head: asyncio sets this option only for its own sockets.

    Raises:
        ConflictError: the port is in use or reserved for the system, or ``host`` is not an address of this machine.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        place = f"port {port}" if host == "127.0.0.1" else f"port {port} of {host}"
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise ConflictError(
            f"{place} cannot be used: {str(reason).lower()}",
            hint=hint or "Choose another port, or leave out --port to get a free one: registry browse",
        ) from error
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
