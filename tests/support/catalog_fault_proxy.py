"""A proxy in front of a real PostgreSQL that becomes silent, cuts connections, or hides answers on request."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

CUT, SILENT, CUT_ANSWER = "cut", "silent", "cut answer"


class PostgresProxy:
    """Listens on a socket in ``folder``; ``fault`` is applied to the first message that holds ``trigger``.

    "cut" ends the connection before the message reaches the server, "cut answer" after it was carried out, "silent"
    leaves the connection open and no longer forwards anything.
    """

    def __init__(self, folder: Path, server: Path) -> None:
        self.folder = folder
        self.trigger: bytes | None = None
        self.fault = CUT
        self.times = 1
        self.seen: list[bytes] = []
        self._server = str(server / ".s.PGSQL.5432")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._open: list[socket.socket] = [self._listener]
        self._start(self._accept)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={quote(str(self.folder), safe='')}"

    def close(self) -> None:
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _start(self, action: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=action, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._open += [client, server]
                state = {"silent": False, "hide": False}
                self._start(self._pass_on, client, server, state, True)
                self._start(self._pass_on, server, client, state, False)

    def _pass_on(self, source: socket.socket, target: socket.socket, state: dict[str, bool], to_server: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if state["silent"]:
                    continue
                if state["hide"] and not to_server:  # the server has answered: it is done
                    break
                if to_server and self.trigger is not None and self.trigger in data and self.times > 0:
                    self.times -= 1
                    self.seen.append(data)
                    if self.fault == CUT:
                        break
                    state["silent" if self.fault == SILENT else "hide"] = True
                    if self.fault == SILENT:
                        continue
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxied(folder: Path, server: Path) -> Iterator[PostgresProxy]:
    proxy = PostgresProxy(folder, server)
    try:
        yield proxy
    finally:
        proxy.close()
