"""``Gate``, through which every request to a service passes: limits, request ids, log lines, headers.

    request -> an id -> too many? too long? too slow? -> the route -> headers -> a line of the log, counts, an audit

The facts about a request are collected in an ``Exchange``, which ``current_exchange`` returns in every thread that
works for the request. A route only has to raise: the gate answers an error with its problem document.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import math
import mmap
import os
import re
import secrets
import threading
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from registry.catalog.service.calls import CALLS
from registry.catalog.service.problems import CONTENT_TYPE, UNAVAILABLE, dump_error, status_of
from registry.catalog.service_index import DATA_PATH
from registry.errors import CatalogUnavailableError, KeyRunningError, RegistryError, UsageError
from registry.masking import mask
from registry.model import AccessToken
from registry.server.config import ServiceConfig
from registry.server.metrics import Metrics

if TYPE_CHECKING:
    from starlette.requests import Request

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[MutableMapping[str, Any], _Receive, _Send], Awaitable[None]]

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every answer that does not set them itself."""

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_WINDOW: Final = 60
_MOST_KEYS: Final = 10_000
_SLOTS: Final = 2**16
_MOST_NOTES: Final = 60
"""Refused calls of a token that are noted in a minute."""

_MOST_WAITING: Final = 500
"""Requests that wait for events; a fifth of them with one token."""

_SLOWEST: Final = 2**14
"""Bytes of a body in a second that a client has to send after its time of grace."""

_PATIENCE: Final = 4
"""How much longer than with a body a client may be slow with an answer: it works on what it has read."""

_MOST_READING: Final = 256
"""Answers that wait for clients to read them; half of them for one token."""

_MOST_UNREAD: Final = 2**20
"""Bytes of each of them in memory."""

_IMPATIENCE: Final = 5
"""Seconds for a piece of an answer beyond those."""

_PIECE: Final = 2**16
_DRAINED: Final = 2**20
_DRAIN_SECONDS: Final = 2
_ONCE: Final = (b"authorization", b"content-encoding", b"idempotency-key")
_UNLIMITED: Final = frozenset({"/health", "/metrics"})
_BY_ADDRESS: Final = _UNLIMITED | {"/ready"}
"""Programs on the network of the service request these by its address."""

_NOT_AUTHENTICATED, _FORBIDDEN, _TOO_MANY = 401, 403, 429

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Exchange:
    """A request, and the facts about it that are collected until it is answered.

    Attributes:
        id: identifies it in the log, in errors and in the header ``X-Request-Id``.
        address: the address of the client.
        who: the token of the caller, which may have been refused.
        principal: the caller according to a refused ID token, or "".
        error: the error that is the answer.
        status: the status of the answer; 0 before it is sent.
        buffered: bytes of its body that are in memory.
        headers: additional headers of the answer.
        gate: the gate; None outside of a service.
        call: its name in the log and the counts, if the route answers several; few names.
        is_transfer: whether it is about a file. Readers of records make many of them, so their rate is not limited.
    """

    id: str
    address: str = ""
    who: AccessToken | None = None
    principal: str = ""
    error: RegistryError | None = None
    status: int = 0
    buffered: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    gate: Gate | None = None
    is_transfer: bool = False
    call: str = ""


_current: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


def current_exchange() -> Exchange:
    """The exchange that this thread works for; a new one outside of a request."""
    return _current.get() or Exchange(secrets.token_hex(8))


class Buckets:
    """A rate limiter: counts events by key, and forgets ``quota`` of them per minute, evenly.

    Threads share it, and the workers of a service through a file. Each key has two of many slots, with the moment at
    which its events will be forgotten. If other keys use one of them, the other one counts. Workers do not wait for
    each other: if two of them count at the same moment, one of the events may be lost.

    >>> buckets = Buckets(2, clock=lambda: 0.0)
    >>> buckets.take("ann"), buckets.take("ann"), buckets.take("ann"), buckets.seconds("ann")
    (True, True, False, 30)
    """

    def __init__(self, quota: int, file: Path | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        """``file`` is the one that the workers share; None if there is one worker only."""
        self.quota = quota
        self._clock = clock
        self._lock = threading.Lock()
        # Random, as the name of the file: nobody can choose a key with the slots of another one.
        self._salt = secrets.token_hex(8) if file is None else str(file)
        self._moments = memoryview(_memory(file, 8 * _SLOTS)).cast("d")

    def take(self, key: str) -> bool:
        """Count an event; False if the quota is used up."""
        with self._lock:
            if (left := self._left(key)) < 1:
                return False
            moment = self._clock() + (self.quota - left + 1) * _WINDOW / self.quota
            for slot in self._slots(key):
                self._moments[slot] = max(self._moments[slot], moment)
            return True

    def left(self, key: str) -> int:
        """How many events there may be now."""
        with self._lock:
            return int(self._left(key))

    def seconds(self, key: str, number: int = 1) -> int:
        """After how many seconds there may be ``number`` of them."""
        with self._lock:
            return max(math.ceil((number - self._left(key)) * _WINDOW / self.quota), 0)

    def _left(self, key: str) -> float:
        seconds = min(self._moments[slot] for slot in self._slots(key)) - self._clock()
        return self.quota - max(seconds, 0) * self.quota / _WINDOW

    def _slots(self, key: str) -> tuple[int, int]:
        digest = hashlib.sha256(f"{self._salt} {key}".encode(errors="surrogatepass")).digest()
        return int.from_bytes(digest[:8]) % _SLOTS, int.from_bytes(digest[8:16]) % _SLOTS


def _memory(file: Path | None, num_bytes: int) -> mmap.mmap:
    """Memory that is zero at first, and that processes share if it is in a file."""
    if file is None:
        return mmap.mmap(-1, num_bytes)
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(descriptor).st_size < num_bytes:
                os.pwrite(descriptor, bytes(num_bytes), 0)  # without holes: a full disk would end the process later
            return mmap.mmap(descriptor, num_bytes)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:  # the disk is full, or another program has removed the folder
        _logger.warning("the workers cannot share %s, so each has its own limits per minute: %s", file.name, error)
        return mmap.mmap(-1, num_bytes)


class Seats:
    """Limits the number of concurrent requests, and refuses others."""

    def __init__(self, number: int, reason: str, *, each: int | None = None) -> None:
        """``each`` is the limit of one key, and ``reason`` the message of a refusal."""
        self._number = max(number, 1)
        self._each = max(number if each is None else each, 1)
        self._reason = reason
        self._taken = Counter[str]()

    @contextmanager
    def take(self, key: str = "") -> Iterator[None]:
        """Occupy a seat during the block.

        Raises:
            CatalogUnavailableError: all seats are taken, or all of this key.
        """
        if self._taken.total() >= self._number or self._taken[key] >= self._each:
            raise _busy(self._reason)
        self._taken[key] += 1
        try:
            yield
        finally:
            self._taken[key] -= 1
            if not self._taken[key]:
                del self._taken[key]


class Gate:
    """The limits of one worker, and what it counts. Limits of rates are those of all workers together.

    Attributes:
        metrics: the counts.
        files: the seats of files that arrive: half of all, so that slow publishers block nobody else.
    """

    def __init__(
        self, config: ServiceConfig, metrics: Metrics, note: Callable[..., None], folder: Path | None = None
    ) -> None:
        """``note`` stores a refused call: ``access.note_refusal`` of the catalog. The workers share ``folder``."""
        self.metrics = metrics
        self._config = config
        self._note = note
        self._requests, self._failures, self._notes = (
            Buckets(quota, None if folder is None else folder / name)
            for name, quota in (
                ("requests", config.requests_per_minute),
                ("failures", config.failed_logins_per_minute),
                ("notes", _MOST_NOTES),
            )
        )
        self._valid: dict[bytes, None] = {}
        hosts = {*map(str.lower, (*config.allowed_hosts, config.host)), urlsplit(config.public_url or "").hostname}
        self._hosts = hosts if config.allowed_hosts else ()
        self._buffered = 0
        # A quarter for those without a token, so that they block nobody else.
        self._strangers = Seats(config.in_flight // 4, "the service is busy with other requests without a token")
        self.files = Seats(config.in_flight // 2, "the service is busy with files of other publishers")
        reason = "the service is busy with requests that wait for events"
        self._waiting = Seats(_MOST_WAITING, reason, each=_MOST_WAITING // 5)
        # Half for one token, so that it blocks nobody else, either.
        self._reading = Seats(_MOST_READING, "", each=_MOST_READING // 2)
        reason = "the service is busy with other requests of this token"
        self._bodies = Seats(config.in_flight, reason, each=config.in_flight // 2)

    def authenticate(self, authenticate: Callable[[str], AccessToken], header: str) -> AccessToken:
        """The token that the header ``Authorization`` has, by ``authenticate``; within the limits of rates.

        Raises:
            CatalogUnavailableError: there were too many requests (429).
            CatalogRefusedError: see ``Service.authenticate``.
        """
        exchange, failures, requests = current_exchange(), self._failures, self._requests
        address, digest = _network(exchange.address), hashlib.sha256(header.encode()).digest()
        # Whoever was let in before does not wait for the failures of others at the same address.
        if failures.quota and digest not in self._valid and not failures.left(address):
            raise _too_many("requests without a valid token from this address", failures.seconds(address))
        try:
            who = exchange.who = authenticate(header)
        except RegistryError as error:
            if failures.quota and status_of(error) == _NOT_AUTHENTICATED:
                failures.take(address)
                self._valid.pop(digest, None)
            raise
        if len(self._valid) >= _MOST_KEYS:
            self._valid.clear()
        self._valid[digest] = None
        if requests.quota and not exchange.is_transfer:
            key = who.id if header else address
            is_allowed = requests.take(key)
            left, seconds = requests.left(key), requests.seconds(key, requests.quota)
            exchange.headers["RateLimit-Policy"] = f'"default";q={requests.quota};w={_WINDOW}'
            exchange.headers["RateLimit"] = f'"default";r={left};t={seconds}'
            if not is_allowed:
                raise _too_many("requests with this token", requests.seconds(key))
        return who

    def may_read_metrics(self, header: str) -> bool:
        """Whether the header ``Authorization`` has the secret for ``/metrics``."""
        secret = self._config.metrics_token
        return secret is not None and hmac.compare_digest(header.encode(), f"Bearer {secret}".encode())

    async def read_body(self, request: Request, most: int) -> bytes:
        """The body of a call, which has at most ``most`` bytes.

        Raises:
            UsageError: it is too long (413), too slow (408), or ends too early (400).
            CatalogUnavailableError: the bodies of other requests fill the memory (503).
        """
        exchange, most_buffered = current_exchange(), 2 * self._config.body_bytes
        body = bytearray()
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > most:
            raise _too_long(most)
        async for piece in request.stream():
            body += piece
            exchange.buffered += len(piece)
            self._buffered += len(piece)
            if len(body) > most:
                raise _too_long(most)
            if self._buffered > most_buffered:
                self._release(exchange)
                raise _busy("the service is busy with other long requests")
        return bytes(body)

    @contextmanager
    def waiting(self, who: AccessToken) -> Iterator[None]:
        """While a request only waits for an event, it does not count as in flight.

        Raises:
            CatalogUnavailableError: too many do so.
        """
        with self._waiting.take(who.id):
            self.metrics.in_flight -= 1
            try:
                yield
            finally:
                self.metrics.in_flight += 1

    def _awaited(self, exchange: Exchange) -> AbstractContextManager[None]:
        """What holds while a body is awaited."""
        who = exchange.who
        return self._strangers.take() if who is None or not who.created_by else self._bodies.take(who.id)

    @contextmanager
    def reading(self, exchange: Exchange, num_bytes: int) -> Iterator[float]:
        """While a client reads a part of its answer, its request does not count as in flight.

        Yields the seconds for each piece of the part. If the part is long, or if too many clients do not read, the
        request does count, and is given up sooner.
        """
        seconds = self._config.body_seconds
        if num_bytes > _MOST_UNREAD:
            yield seconds
            return
        with ExitStack() as seat:
            try:
                seat.enter_context(self._reading.take("" if exchange.who is None else exchange.who.id))
            except CatalogUnavailableError:
                yield min(_IMPATIENCE, seconds)
                return
            self.metrics.in_flight -= 1
            try:
                yield _PATIENCE * seconds
            finally:
                self.metrics.in_flight += 1

    def _release(self, exchange: Exchange) -> None:
        self._buffered -= exchange.buffered
        exchange.buffered = 0

    def wrap(self, app: _App) -> _App:
        """The application ``app`` behind the gate."""

        async def answer(scope: MutableMapping[str, Any], receive: _Receive, send: _Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            sent_id = headers.get("x-request-id", "")
            is_sane = _REQUEST_ID.fullmatch(sent_id) is not None
            request_id = sent_id if is_sane else secrets.token_hex(8)
            address, is_transfer = (scope["client"] or ("",))[0], scope["path"].startswith(f"/{DATA_PATH}/")
            exchange = Exchange(request_id, address, gate=self, is_transfer=is_transfer)
            begin, reset = time.monotonic(), _current.set(exchange)
            self.metrics.in_flight += 1
            body = _Body(exchange, headers, receive, self._config.body_seconds, self._awaited)
            sender = _Sender(exchange, scope, body, send, partial(self.reading, exchange))
            try:
                await self._pass(app, scope, headers, body, sender)
            finally:
                self.metrics.in_flight -= 1
                self._release(exchange)
                call, seconds = exchange.call or _call_of(scope), time.monotonic() - begin
                self.metrics.count(call, exchange.status, seconds)
                _log(exchange, call, seconds)
                _current.reset(reset)
            await self._audit(exchange, call)

        return answer

    async def _pass(
        self, app: _App, scope: MutableMapping[str, Any], headers: Mapping[str, str], body: _Body, sender: _Sender
    ) -> None:
        """Let a request through, and answer with a problem document if an error is raised."""
        try:
            if self.metrics.in_flight > self._config.in_flight and scope["path"] not in _UNLIMITED:
                raise _busy("the service is busy")
            host = re.sub(":[0-9]*$", "", headers.get("host", "")).strip("[]").lower()
            if self._hosts and host not in self._hosts and scope["path"] not in _BY_ADDRESS:
                raise _unusable(421, "the service is not at this host: see its setting allowed_hosts")
            if {"content-length", "transfer-encoding"} <= headers.keys():  # a proxy may see another end of the body
                sender.exchange.headers["Connection"] = "close"
                raise _unusable(400, "a request must not have both a Content-Length and chunks")
            names = [name for name, _ in scope["headers"]]
            if any(names.count(name) > 1 for name in _ONCE):  # a proxy may have read another one
                raise _unusable(400, "Authorization, Content-Encoding and Idempotency-Key must not be repeated")
            if headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
                raise _unusable(415, "the body of a request must not have a content coding")
            await app(scope, body.receive, sender.send)
        except RegistryError as error:
            await sender.fail(error)
        except Exception as error:  # noqa: BLE001 (the connection survives, and the client gets a typed error)
            if sender.is_stuck:
                _logger.warning("request %s: the client does not read its answer", sender.exchange.id)
                return
            text = mask("".join(traceback.format_exception(error)))
            _logger.error("request %s failed: %s", sender.exchange.id, text)
            await sender.fail(internal_error(), status=500)

    async def _audit(self, exchange: Exchange, call: str) -> None:
        """Store that a call of a known token or an ID token was refused. A flood of them is cut, and not stored."""
        token = None if exchange.who is None else exchange.who.id
        error, principal = exchange.error, exchange.principal if exchange.who is None else exchange.who.name
        if not principal or error is None or exchange.status not in (_NOT_AUTHENTICATED, _FORBIDDEN):
            return
        if self._notes.take(token or principal):
            from starlette.concurrency import run_in_threadpool

            dataset = str(error.details.get("dataset", ""))
            try:
                await run_in_threadpool(
                    self._note, token=token, principal=principal, call=call, dataset=dataset, reason=error.message
                )
            except RegistryError as failure:
                _logger.warning("request %s: its refusal was not noted: %s", exchange.id, failure)


class _Body:
    """The body of a request as it arrives. A client that is slower than ``seconds`` allow is given up."""

    def __init__(
        self,
        exchange: Exchange,
        headers: Mapping[str, str],
        receive: _Receive,
        seconds: float,
        awaited: Callable[[Exchange], AbstractContextManager[None]],
    ) -> None:
        self._exchange = exchange
        self._receive = receive
        self._left = seconds
        self._awaited = awaited
        self._waits = "expect" in headers
        self.is_complete = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers

    async def receive(self) -> _Message:
        """The next piece.

        Raises:
            UsageError: the client is too slow, or ended the connection.
            CatalogUnavailableError: too many who have no token are slow, or too many with this one.
        """
        if self.is_complete or self._exchange.status:
            return await self._receive()
        begin = time.monotonic()
        try:
            with self._awaited(self._exchange):
                async with asyncio.timeout(self._left):
                    message = await self._receive()
        except TimeoutError:
            raise _unusable(408, "the body of the request arrives too slowly") from None
        if message["type"] == "http.disconnect":
            raise _unusable(400, "the request ended before its body")
        self.is_complete = not message.get("more_body", False)
        self._left += len(message.get("body", b"")) / _SLOWEST - (time.monotonic() - begin)
        return message

    async def drain(self) -> bool:
        """Read what was not read, if it is short, so that the client reads the answer; whether it was complete."""
        num_bytes, end = 0, time.monotonic() + _DRAIN_SECONDS
        while not self.is_complete and num_bytes < _DRAINED and not self._waits:
            try:
                self._left = end - time.monotonic()
                num_bytes += len((await self.receive()).get("body", b""))
            except RegistryError:
                break
        return self.is_complete


class _Sender:
    """Sends an answer with the headers of every answer, in pieces. ``reading`` says how long a client may read each.

    Attributes:
        is_stuck: whether the client did not read.
    """

    def __init__(
        self,
        exchange: Exchange,
        scope: Mapping[str, Any],
        body: _Body,
        send: _Send,
        reading: Callable[[int], AbstractContextManager[float]],
    ) -> None:
        self.exchange = exchange
        self._is_secure = scope["scheme"] == "https"
        self._body = body
        self._send = send
        self._reading = reading
        self.is_stuck = False

    async def send(self, message: _Message) -> None:
        """Send a message of the application.

        Raises:
            TimeoutError: the client does not read.
        """
        if message["type"] == "http.response.start":
            is_complete = await self._body.drain()
            self.exchange.status = message["status"]
            present = {name.lower() for name, _ in message.get("headers", ())}
            more = HEADERS | self.exchange.headers | {"X-Request-Id": self.exchange.id}
            more |= {} if is_complete else {"Connection": "close"}
            more |= {"Strict-Transport-Security": "max-age=31536000"} if self._is_secure else {}
            lines = [(name.lower().encode(), value.encode("latin-1")) for name, value in more.items()]
            message["headers"] = [*message.get("headers", ()), *(line for line in lines if line[0] not in present)]
        content = message.get("body", b"")
        for start in range(0, max(len(content), 1), _PIECE):
            piece = dict(message)
            if len(content) > _PIECE:
                is_last = start + _PIECE >= len(content)
                piece |= {
                    "body": content[start : start + _PIECE],
                    "more_body": not is_last or message.get("more_body", False),
                }
            try:
                with self._reading(len(content)) as seconds:
                    async with asyncio.timeout(seconds):
                        await self._send(piece)
            except TimeoutError:
                self.is_stuck = True
                raise

    async def fail(self, error: RegistryError, *, status: int | None = None) -> None:
        """Answer with the problem document of an error; if the answer has begun, it stays incomplete."""
        exchange = self.exchange
        exchange.error = error
        if exchange.status:
            return
        problem = dump_error(error, request_id=exchange.id)
        problem["status"] = status = status_of(error) if status is None else status
        headers = {"content-type": CONTENT_TYPE}
        if status == _NOT_AUTHENTICATED:
            headers["www-authenticate"] = "Bearer"
        if status in (_TOO_MANY, UNAVAILABLE) or isinstance(error, KeyRunningError):
            headers["retry-after"] = str(error.details.get("retry_after", 1))
        content = json.dumps(problem).encode()
        headers["content-length"] = str(len(content))
        lines = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": lines})
        await self.send({"type": "http.response.body", "body": content})


def internal_error() -> RegistryError:
    """The error that a client gets for a fault of the service."""
    return RegistryError(
        f"the service failed. Request {current_exchange().id}.",
        hint="The service logged the cause. Ask its admin.",
    )


def _call_of(scope: Mapping[str, Any]) -> str:
    """The name of a call, else of the route; for the log and the counts, so there are few of them."""
    call = scope.get("path_params", {}).get("call", "")
    return call if call in CALLS else getattr(scope.get("endpoint"), "__name__", "none")


def _log(exchange: Exchange, call: str, seconds: float) -> None:
    who = exchange.who
    fields = {
        "id": exchange.id,
        "principal": (exchange.principal or None) if who is None else who.name,
        "token": None if who is None else who.id,
        "call": call,
        "status": exchange.status,
        "ms": round(seconds * 1000, 1),
    }
    if exchange.status in (_NOT_AUTHENTICATED, _TOO_MANY):
        fields["address"] = exchange.address
    _logger.info("request %s: %s %s", exchange.id, call, exchange.status, extra={"fields": fields})


def _network(address: str) -> str:
    """The address by which failed logins are counted. An IPv6 client usually has 2**64 addresses."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    return str(IPv6Address(int(parsed) >> 64 << 64)) if isinstance(parsed, IPv6Address) else address


def _unusable(status: int, reason: str) -> UsageError:
    return UsageError(reason, details={"http_status": status})


def _too_long(most: int) -> UsageError:
    return _unusable(413, f"the body of a call must not exceed {most:,} bytes")


def _busy(reason: str) -> CatalogUnavailableError:
    return CatalogUnavailableError(reason, hint="Try again later.", details={"retry_after": 1})


def _too_many(subject: str, seconds: int) -> CatalogUnavailableError:
    details = {"http_status": _TOO_MANY, "retry_after": seconds}
    return CatalogUnavailableError(
        f"there were too many {subject}", hint=f"Try again in {seconds} seconds.", details=details
    )
