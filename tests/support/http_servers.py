"""Runs an HTTP server in a thread of this process for the length of a block; a test's handler says what it answers."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """Logs nothing, because tests check the requests, and sends head and body without waiting between them."""

    disable_nagle_algorithm = True

    def body(self) -> bytes:
        """The body of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        """Send a complete answer, without its body to HEAD."""
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002 (its name in the base class)
        """Logs nothing."""


@contextmanager
def running(handler: Callable[..., BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of 127.0.0.1 at which requests are answered, with ``tls`` over https."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads, server.block_on_close = True, False
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    options: dict[str, Any] = {"poll_interval": 0.02}
    thread = threading.Thread(target=server.serve_forever, kwargs=options, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
