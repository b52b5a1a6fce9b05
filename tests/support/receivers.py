"""Receivers of webhooks: servers in threads, which accept messages, fail, hang, or never end their answer."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from registry.api.team import verify_webhook
from support import http_servers
from support.http_servers import running

SECONDS = 60

Behaviour = Callable[["Handler", int], int | None]
"""The status of the answer to the request with this number, from 0; None if the behaviour has answered itself."""


class Handler(http_servers.Handler):
    """Passes each message to its receiver."""

    receiver: Receiver

    def do_POST(self) -> None:
        body = self.body()
        number = self.receiver.note(dict(self.headers.items()), body)
        status = self.receiver.behaviour(self, number)
        if status is None:
            return
        if 200 <= status < 300:
            self.receiver.accept(dict(self.headers.items()), body)
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", self.path)
        self.end_headers()


class Receiver:
    """A receiver of webhooks and its requests.

    Attributes:
        url: its URL.
        secret: verifies the messages that are accepted; None accepts all.
        behaviour: the way in which it answers.
        requests: the headers and the body of each request.
        accepted: the messages that it has answered with success, verified.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.secret: str | None = None
        self.behaviour: Behaviour = lambda _handler, _number: 204
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.accepted: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def note(self, headers: dict[str, str], body: bytes) -> int:
        with self._lock:
            self.requests.append((headers, body))
            return len(self.requests) - 1

    def accept(self, headers: dict[str, str], body: bytes) -> None:
        if self.secret is not None:
            self.accepted.append(verify_webhook(self.secret, headers, body))

    @property
    def ids(self) -> list[int]:
        """The ids of the events that it has accepted."""
        return [message["data"]["id"] for message in self.accepted]

    def wait_for(self, *ids: int) -> None:
        """Wait until it has accepted the events with these ids."""
        wait_until(lambda: set(ids) <= set(self.ids))


@contextmanager
def receiver(behaviour: Behaviour | None = None, *, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """A receiver at a free port, for the block; with ``tls``, it speaks https."""

    class OwnHandler(Handler):
        pass

    with running(OwnHandler, tls) as port:
        OwnHandler.receiver = Receiver(f"{'http' if tls is None else 'https'}://127.0.0.1:{port}/hook")
        if behaviour is not None:
            OwnHandler.receiver.behaviour = behaviour
        yield OwnHandler.receiver


def wait_until(condition: Callable[[], bool], *, seconds: float = SECONDS) -> None:
    """Wait until a condition holds; it must within some seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
