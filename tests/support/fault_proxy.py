"""An HTTP proxy for tests: counts and logs the requests to a server behind it, and injects faults into some of them.

with FaultProxy(server_port) as proxy:
    proxy.inject("drop", at=3)                                    the fourth request from now on
    proxy.inject("slow down", when=lambda request: request.method == "PUT", times=2)
    ...
    assert [request.method for request in proxy.requests] == ["HEAD", "GET"]
"""

from __future__ import annotations

import http.client
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http.server import ThreadingHTTPServer
from typing import Final, Literal, Self, get_args
from urllib.parse import unquote, urlsplit

from support import http_servers

Fault = Literal[
    "drop",
    "cut",
    "forbidden",
    "error",
    "slow down",
    "too many",
    "truncate",
    "corrupt",
    "silence",
    "delay",
    "retag",
    "weaken",
    "unconditional",
    "hook",
    "hook after",
    "echo",
]
"""What happens to a request.

drop: the connection is closed, and the server never sees the request. cut: the server handles it, and the connection is
closed in place of the answer. forbidden, error, slow down, too many: 403, 500, 503 and 429 in place of the server,
the last with Retry-After.
truncate: half of the answer's body, then the connection is closed. corrupt: one bit of the body differs, another one
each time. silence: no answer, until the client leaves. delay: the answer comes late.
retag: the ETag has the form of a digest and is none, as from a store that encrypts; to be injected into all requests.
weaken: the ETag is a weak one, as from a proxy that compresses.
unconditional: the server does not see If-Match, as if it did not know it.
echo: 403, and the body repeats the headers of the request, as S3 does if a signature is wrong.
hook: a function is called before the server sees the request; hook after: when the server has answered.
"""

FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)
_STATUS: Final[dict[Fault, tuple[int, str]]] = {
    "forbidden": (403, "AccessDenied"),
    "error": (500, "InternalError"),
    "slow down": (503, "SlowDown"),
    "too many": (429, "TooManyRequests"),
}
_HOP_BY_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to the proxy.

    ``index`` counts from the last ``reset``; names of ``headers`` are in lower case; ``fault`` is what was injected.
    """

    index: int
    method: str
    path: str
    query: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    fault: Fault | None = None

    @property
    def key(self) -> str:
        """The object's key: the path without the bucket, and the account that Azure's emulator has before it."""
        return unquote(self.path.lstrip("/").removeprefix("devstoreaccount1/").partition("/")[2])


@dataclass(slots=True, kw_only=True)
class _Rule:
    fault: Fault
    when: Callable[[Request], bool]
    times: int | None
    delay_seconds: float
    hook: Callable[[], None]


class FaultProxy:
    """A proxy on a port of 127.0.0.1, before the server on ``server_port`` there; see the module."""

    def __init__(self, server_port: int) -> None:
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []
        self._numbers = 0
        self.requests: list[Request] = []
        self.closed = threading.Event()
        handler = type("Handler", (_Handler,), {"proxy": self, "server_port": server_port})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def inject(
        self,
        fault: Fault,
        *,
        at: int | None = None,
        when: Callable[[Request], bool] | None = None,
        times: int | None = None,
        delay_seconds: float = 0.2,
        hook: Callable[[], None] = lambda: None,
    ) -> None:
        """Inject ``fault`` into the request with index ``at``, into requests that ``when`` selects, or into all.

        Args:
            fault: the kind of fault.
            at: index of the request since the last ``reset``, from 0.
            when: selects the requests.
            times: the maximum number of times; None: always.
            delay_seconds: the length of a "delay".
            hook: called by "hook" before the request is passed on, e.g. to kill a process.
        """
        if at is not None:
            when = lambda request: request.index == at  # noqa: E731
        rule = _Rule(fault=fault, when=when or (lambda _: True), times=times, delay_seconds=delay_seconds, hook=hook)
        with self._lock:
            self._rules.append(rule)

    def reset(self) -> None:
        """Forget requests and faults, and count from 0 again."""
        with self._lock:
            self._rules.clear()
            self.requests.clear()
            self._numbers = 0

    def count(self, method: str | None = None) -> int:
        """The number of requests, with one method or with any."""
        return sum(method in (None, request.method) for request in list(self.requests))

    def admit(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> tuple[Request, _Rule | None]:
        """Log a request. Returns the rule that applies to it."""
        parts = urlsplit(target)
        with self._lock:
            request = Request(
                index=self._numbers, method=method, path=parts.path, query=parts.query, headers=headers, body=body
            )
            self._numbers += 1
            rule = next((one for one in self._rules if one.times != 0 and one.when(request)), None)
            if rule is not None and rule.times is not None:
                rule.times -= 1
            request = replace(request, fault=rule.fault if rule else None)
            self.requests.append(request)
        return request, rule

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores errors: the tests let clients disconnect in the middle."""


class _Handler(http_servers.Handler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy
    server_port: int

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # the client was killed; a server would wait for the rest
            self.close_connection = True
            return
        request, rule = self.proxy.admit(
            self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body
        )
        fault = rule.fault if rule else None
        if rule is not None and fault == "hook":
            rule.hook()
        if fault == "drop":
            self._leave()
        elif fault == "silence":
            self._wait_for_the_client_to_leave()
        elif fault in _STATUS:
            self._refuse(*_STATUS[fault])
        elif fault == "echo":
            self._refuse(403, "SignatureDoesNotMatch", f"<CanonicalRequest>{self.headers}</CanonicalRequest>")
        else:
            if rule is not None and fault == "delay":
                time.sleep(rule.delay_seconds)
            self._forward(body, fault, request.index, rule.hook if rule is not None and fault == "hook after" else None)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _forward(self, body: bytes, fault: Fault | None, index: int, hook: Callable[[], None] | None) -> None:
        server = http.client.HTTPConnection("127.0.0.1", self.server_port, timeout=60)
        try:
            headers = dict(self.headers.items())
            if fault == "unconditional":
                headers = {name: value for name, value in headers.items() if name.lower() != "if-match"}
            if fault == "retag" and "if-match" in headers:
                headers["if-match"] = _other_tag(headers["if-match"])
            server.request(self.command, self.path, body=body, headers=headers)
            answer = server.getresponse()
            content = answer.read()
        finally:
            server.close()
        if hook is not None:
            hook()
        if fault == "cut":
            self._leave()
            return
        if fault == "corrupt" and content:
            place = (index * 7919 + len(content) // 2) % len(content)
            content = content[:place] + bytes([content[place] ^ 1 << index % 8]) + content[place + 1 :]
        length = answer.headers["Content-Length"] if self.command == "HEAD" else str(len(content))
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.headers.items():
            if name.lower() not in _HOP_BY_HOP:
                if name.lower() == "etag" and fault in ("retag", "weaken"):
                    value = _other_tag(value) if fault == "retag" else f"W/{value}"  # noqa: PLW2901 (what is sent)
                self.send_header(name, value)
        if length is not None and answer.status not in (204, 304):
            self.send_header("Content-Length", length)
        if fault == "truncate" and not content:
            self._leave()  # in the middle of the head
            return
        self.end_headers()
        if fault == "truncate":
            self.wfile.write(content[: len(content) // 2])
            self._leave()
        else:
            self.wfile.write(content)

    def _refuse(self, status: int, code: str, more: str = "") -> None:
        content = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code>{more}</Error>'.encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        if status == 429:
            self.send_header("Retry-After", "1")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _wait_for_the_client_to_leave(self) -> None:
        while not self.proxy.closed.is_set():
            if select.select([self.connection], [], [], 0.05)[0]:
                break
        self._leave()

    def _leave(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)


def _other_tag(tag: str) -> str:
    """Another tag of the same form; of that one, the first again."""
    return tag[::-1]
