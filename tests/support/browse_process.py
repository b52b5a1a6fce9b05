"""``registry browse`` and ``registry serve`` in separate processes, to which tests send requests like a client."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

from support.warm_python import PROGRAM, Popen


class Answer(NamedTuple):
    """The status, the headers and the body of an answer."""

    status: int
    headers: dict[str, str]
    body: bytes


class Browse:
    """A running ``registry browse`` of the catalog ``catalog``; ``url`` is the address that it prints."""

    command = "browse"

    def __init__(self, catalog: Path | str, *options: str, start_new_session: bool = False, **environment: str) -> None:
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 (of the object): nobody reads a pipe meanwhile
        self.process = Popen(
            [PROGRAM, self.command, *options],
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            start_new_session=start_new_session,
            env=os.environ | {"REGISTRY_CATALOG": str(catalog)} | environment,
        )
        self.url = self.process.stdout.readline().strip()

    def __enter__(self) -> Browse:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self._stderr.close()

    @property
    def place(self) -> tuple[str, int]:
        return "127.0.0.1", urlsplit(self.url).port or 0

    def get(self, path: str = "", *, method: str = "GET", **more: str) -> Answer:
        """Get the content at an address, which may be relative to ``url``."""
        connection = http.client.HTTPConnection(*self.place, timeout=60)
        url = urlsplit(urljoin(self.url, path))
        target = url.path + (f"?{url.query}" if url.query else "")
        connection.request(method, target, headers={"Connection": "close"} | more)
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        answer = Answer(response.status, headers, response.read())
        connection.close()
        return answer

    def end(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """Exit code and stderr after a signal."""
        self.process.send_signal(number)
        self.process.communicate(timeout=20)
        return self.process.returncode, self.printed()

    def printed(self) -> str:
        """The output on stderr so far."""
        return os.pread(self._stderr.fileno(), 2**24, 0).decode()


class Serve(Browse):
    """A running ``registry serve`` of a catalog at a free port. ``token`` is the admin's token, if it created one."""

    command = "serve"

    def __init__(
        self, catalog: Path, *options: str, is_new: bool = True, start_new_session: bool = False, **environment: str
    ) -> None:
        """``is_new``: whether ``--init`` makes the token."""
        super().__init__(catalog, "--port", "0", *options, start_new_session=start_new_session, **environment)
        assert self.process.stdout is not None
        self.token = self.process.stdout.readline().strip() if is_new and "--init" in options else ""

    def open_call(self, call: str, body: bytes = b"{}", *, sent: int | None = None, **headers: str) -> socket.socket:
        """A connection with the beginning of the request of a call: its head and ``sent`` bytes of its body."""
        connection = socket.create_connection(self.place, timeout=60)
        lines = {"Host": "test", "Content-Length": str(len(body)), "Authorization": f"Bearer {self.token}"} | headers
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
        connection.sendall(f"POST /api/v1/{call} HTTP/1.1\r\n{head}\r\n".encode() + body[:sent])
        return connection

    def call(self, call: str, body: bytes = b"{}", **headers: str) -> Answer:
        """The answer to a call."""
        with self.open_call(call, body, **headers) as connection:
            return read_answer(connection)

    def workers(self) -> list[int]:
        """The process ids of the workers."""
        process = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        children = process.read_text(encoding="ascii").split()
        return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def read_answer(connection: socket.socket) -> Answer:
    """The answer that comes over a connection."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read())
