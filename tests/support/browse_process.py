"""``registry browse`` as a process of its own, which tests ask as a browser would."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

from support.warm_python import PROGRAM


class Answer(NamedTuple):
    """The status, the headers and the body of an answer."""

    status: int
    headers: dict[str, str]
    body: bytes


class Browse:
    """A running ``registry browse`` of the catalog ``catalog``; ``url`` is the address that it prints."""

    def __init__(self, catalog: Path, *options: str, **environment: str) -> None:
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 (of the object): nobody reads a pipe meanwhile
        self.process = subprocess.Popen(
            [PROGRAM, "browse", *options],
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env=os.environ | {"REGISTRY_CATALOG": str(catalog)} | environment,
        )
        assert self.process.stdout is not None
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

    def get(self, path: str = "", *, method: str = "GET") -> Answer:
        """What is at an address, which may be relative to ``url``."""
        connection = http.client.HTTPConnection(*self.place, timeout=60)
        url = urlsplit(urljoin(self.url, path))
        target = url.path + (f"?{url.query}" if url.query else "")
        connection.request(method, target, headers={"Connection": "close"})
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
        """What it has written to stderr until now."""
        return os.pread(self._stderr.fileno(), 2**24, 0).decode()
