"""A real web server in this process for tests: serves a folder, or misbehaves as configured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Literal

from support import http_servers
from support.http_servers import running

Manner = Literal["plain", "ranges", "cut", "error", "stall", "drip", "silent", "no length"]


class _Handler(http_servers.Handler, SimpleHTTPRequestHandler):
    """Serves files; the standard library's handler knows no ranges."""

    protocol_version = "HTTP/1.1"
    manner: Manner = "plain"

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if self.manner == "error":
            self.send_error(503, "Out of order")
        elif self.manner == "silent":
            self._wait()
        elif self.manner == "plain" or not path.is_file():
            super().do_GET()
        else:
            self._send(path.read_bytes())

    def do_HEAD(self) -> None:
        if self.manner == "error":
            self.send_error(503, "Out of order")
        elif self.manner == "silent":
            self._wait()
        elif self.manner == "no length":
            self._send(b"")
        else:
            super().do_HEAD()

    def _send(self, data: bytes) -> None:
        start, asked = 0, self.headers.get("Range")
        if self.manner == "ranges" and asked:
            start = int(asked.removeprefix("bytes=").partition("-")[0])
        self.send_response(206 if start else 200)
        if self.manner == "no length":
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)
            self.close_connection = True
            return
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if self.manner in ("cut", "stall"):
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            if self.manner == "stall":
                time.sleep(30)
            self.close_connection = True
        elif self.manner == "drip":
            with suppress(OSError):  # the reader has left
                for place in range(start, len(data)):
                    self.wfile.write(data[place : place + 1])
                    time.sleep(0.02)
        else:
            self.wfile.write(data[start:])

    def _wait(self) -> None:
        """Say nothing until the reader leaves."""
        self.rfile.read(1)
        self.close_connection = True


@contextmanager
def serve(folder: Path, manner: Manner = "plain") -> Iterator[str]:
    """The URL of ``folder`` on a server that runs for as long as the block."""
    handler = type("Handler", (_Handler,), {"manner": manner})
    with running(partial(handler, directory=str(folder))) as port:
        yield f"http://127.0.0.1:{port}"
