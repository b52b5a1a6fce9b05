"""The application of ``registry serve``: the calls of the catalog protocol under ``/api/v1/``.

    request -> who? -> which call? -> arguments -> may they? -> the catalog, once -> what may they see? -> JSON

``Service.answer`` is the one place where a call is made, so rights, limits and retries are decided there.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from registry.catalog import EventFilter
from registry.catalog.kept_answers import check_key
from registry.catalog.policy import READER, Policy
from registry.catalog.service.calls import CALLS
from registry.catalog.service.messages import Reading, codec, load_json
from registry.catalog.service.problems import CONTENT_TYPE, dump_error, status_of
from registry.catalog.service.requests import fault, framed
from registry.catalog.service_index import API_PATH, DATA_PATH, make_service_index
from registry.catalog.site_index import INDEX_NAME
from registry.catalog.wrapper import pass_call
from registry.errors import (
    CatalogRefusedError,
    KeyReusedError,
    KeyRunningError,
    NotFoundError,
    RegistryError,
    UsageError,
)
from registry.masking import mask
from registry.model import AccessToken, Role, digest_of
from registry.server.compression import make_compression
from registry.server.config import ServiceConfig
from registry.server.data import DataAnswer, Receiving, ServedData
from registry.server.following import EventWatch, answer_events
from registry.server.gate import Gate, current_exchange, internal_error
from registry.server.metrics import Metrics
from registry.server.oidc import IdTokens, sign_in_routes, url_of_service
from registry.server.openapi import OPENAPI_NAME, make_openapi
from registry.server.operations import operation_routes, refuse, write_metrics
from registry.server.rights import GuardedCatalog
from registry.server.sessions import page_routes
from registry.server.webhooks import Deliverer

if TYPE_CHECKING:
    from registry.catalog.sql_catalog import SqlCatalog

_RELEASED: Final = frozenset({401, 403, *range(500, 600)})
"""Statuses of a call that may succeed when it is repeated, so that its key is free again."""

_MOST_QUESTION: Final = 2**24
"""Bytes of the body of a call that readers may make."""

_MOST_QUESTIONS: Final = 2**17
"""Values in it, such as digests of files."""

_BYTES_PER_VALUE: Final = 16
"""A body may have one value for each 16 bytes of its limit: an empty list has three bytes as JSON, and 64 in memory."""

_BATCH_BYTES: Final = 2**18
"""Bytes of a file that are written together."""

_JSON: Final = {"Content-Type": "application/json"}

_FOR_EVER: Final = "private, max-age=31536000, immutable"
_FINAL: Final = frozenset({"published_digest"})
"""Calls whose result can never be another one, once there is one."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer to a call: its body as JSON or as a stream of bytes, and its status."""

    status: int
    body: bytes | Iterator[bytes]
    was_replayed: bool = False


class Service:
    """Makes calls of one catalog for the holders of tokens. Threads share it."""

    def __init__(self, catalog: SqlCatalog, *, anonymous: bool = False, data: ServedData | None = None) -> None:
        """``catalog`` is in a database.

        ``anonymous``: whether those without a token may read every dataset. ``data``: the data directory, if it is a
        folder of this server.
        """
        self.catalog = catalog
        self.data = data
        self.is_anonymous = anonymous

    def authenticate(self, header: str) -> AccessToken:
        """The token that the header ``Authorization`` has.

        Raises:
            CatalogRefusedError: there is none, or it is unknown, expired or revoked.
            CatalogUnavailableError: there were too many requests with it, or too many without a valid one.
        """
        return self.enter(self._token, header)

    def _token(self, header: str) -> AccessToken:
        scheme, _, text = header.partition(" ")
        if not header and self.is_anonymous:
            now = self.catalog.now()
            return AccessToken(id="0" * 12, name="anonymous", role=Role.READER, created_at=now, created_by="")
        if scheme.lower() != "bearer":
            raise _unauthorized("it needs an access token", "missing")
        try:
            digest = digest_of(text.strip())
        except UsageError as error:
            raise _unauthorized(error.message, "malformed") from None
        return self._valid(digest)

    def authenticate_session(self, digest: str) -> AccessToken:
        """The token with this digest, with which somebody has signed in; raises as ``authenticate``."""
        return self.enter(self._valid, digest)

    def enter(self, find: Callable[[str], AccessToken], proof: str) -> AccessToken:
        """The token that ``find`` gives for what somebody sends, within the limits of the gate."""
        gate = current_exchange().gate
        return find(proof) if gate is None else gate.authenticate(find, proof)

    def _valid(self, digest: str) -> AccessToken:
        token = self.catalog.access.authenticate(digest)
        if token is None:
            raise _unauthorized("it does not know this token", "unknown")
        if not token.is_valid(self.catalog.now()):
            current_exchange().who = token
            raise _unauthorized(f"the token {token.id} has expired or was revoked", "invalid")
        return token

    def newest_event(self) -> int:
        """The id of the newest event; 0 if there is none."""
        events = self.catalog.log.page(EventFilter(), newest=1)
        return events[-1].id if events else 0

    def guarded(self, who: AccessToken) -> GuardedCatalog:
        """The catalog as the holder of a token may see and change it."""
        return GuardedCatalog(self.catalog, who, None if self.data is None else self.data.places(who))

    def transfer(
        self, who: AccessToken, method: str, path: str, headers: Mapping[str, str], query: Mapping[str, str]
    ) -> DataAnswer | Receiving:
        """Answer a request about a file of the data directory; a PUT is answered when the body has arrived.

        Raises:
            NotFoundError: the data directory is not a folder of this server.
            RegistryError: why it is refused.
        """
        if self.data is None or self.data.places(who) is None:
            raise NotFoundError("this service does not serve files: see locations.data_dir")
        catalog = self.guarded(who)
        match method:
            case "PUT":
                return self.data.write(catalog, path, headers)
            case "POST":
                names = ("num_bytes", "sha256", "md5", "upload", "part")
                return self.data.offer(catalog, path, *(query.get(name, "") for name in names))
            case "DELETE":
                return self.data.remove(catalog, path)
            case _:
                return self.data.read(catalog, path, headers, is_head=method == "HEAD")

    def answer(
        self, who: AccessToken, name: str, values: Mapping[str, Any], *, key: str | None, request_id: str
    ) -> Answered:
        """Make a call of the protocol.

        Args:
            who: who makes it.
            name: its name, e.g. ``aliases.set``.
            values: its arguments as JSON.
            key: the idempotency key: a write that is repeated with it takes effect once, and has its first answer.
            request_id: names the request in the document of an error.

        Raises:
            RegistryError: the error of the call, or why it is not made.
        """
        call, catalog = CALLS.get(name), self.guarded(who)
        if call is None:
            raise NotFoundError(f"no call {name!r:.80}", hint="openapi.json lists the calls.", details={"call": name})
        catalog.require_role(call)  # before its arguments are read
        args, kwargs = call.load(values, Reading(shards=catalog.shards))
        if name == "publish" and self.data is not None:
            catalog.require(call, args, kwargs)
            kwargs["details"] = self.data.require_uploaded(catalog, args[0], args[1], kwargs.get("details"))
        if name == "attach" and self.data is not None:
            catalog.require(call, args, kwargs)
            self.data.require_attached(catalog, args[0], args[1:])
        if call.returns is None:
            return Answered(status=200, body=framed(pass_call(catalog, name, *args, **kwargs)))

        def make() -> bytes:
            if call.pages is not None:
                items = pass_call(catalog, name, *args, **call.limited(kwargs))
                return json.dumps(
                    codec(call.answers).dump(call.page_of(call.pages, items, kwargs.get("limit")))
                ).encode()
            return json.dumps(codec(call.returns).dump(pass_call(catalog, name, *args, **kwargs))).encode()

        is_noted = self.data is not None and name in ("publish", "configs.set_default")
        dataset = str(getattr(args[0], "name", args[0])) if is_noted and not kwargs.get("dry_run") else None
        if key is not None:
            check_key(key)
        if key is None or not call.policy.is_write or kwargs.get("dry_run"):
            body = make()
            self._note_default_config(dataset)
            return Answered(status=200, body=body)
        request = (key, who.id, name, hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest())
        try:
            body, status, was_replayed = self.catalog.answer_once(*request, make)
        except (KeyReusedError, KeyRunningError):
            raise
        except RegistryError as error:
            status = status_of(error)
            if status not in _RELEASED:
                problem = json.dumps(dump_error(error, request_id=request_id)).encode()
                self.catalog.keep_answer(*request, status, problem)
            raise
        self._note_default_config(dataset)
        return Answered(status=status, body=body, was_replayed=was_replayed)

    def _note_default_config(self, dataset: str | None) -> None:
        """Let the data directory say the default config, where clients do not write themselves; log a failure."""
        if dataset is None or self.data is None:
            return
        try:
            self.data.note_default_config(self.catalog, dataset)
        except RegistryError as error:  # the row is written
            _logger.warning("the default config of %s is not noted for TFDS: %s", dataset, error.message)


RouteMaker: TypeAlias = "Callable[[Service, ServiceConfig], list[Route]]"


def _unauthorized(reason: str, kind: str) -> CatalogRefusedError:
    return CatalogRefusedError(
        f"the catalog refuses the request: {reason}",
        hint="Get a token from an admin of the catalog, then: registry login URL",
        details={"reason": kind, "sqlstate": None},
    )


def make_service_app(
    service: Service,
    config: ServiceConfig | None = None,
    *,
    folder: Path | None = None,
    more_routes: RouteMaker | None = None,
) -> Starlette:
    """The application that answers the calls of the protocol, and shows the pages of the catalog.

    Args:
        service: what makes the calls.
        config: the limits; None are the defaults.
        folder: where the workers of a service share their counts.
        more_routes: makes routes that go before the pages.
    """
    from registry import __version__

    config = config or ServiceConfig()

    def note_refusal(**refusal: Any) -> None:
        service.catalog.access.note_refusal(**refusal)  # of the catalog that the service has at that moment

    gate = Gate(config, Metrics(folder), note_refusal, folder)
    id_tokens = IdTokens(service, config.issuers, url_of_service(config.public_url))
    watch = EventWatch(partial(run_in_threadpool, service.newest_event))
    index = make_service_index(f"shardbook {__version__}", config.clients)

    async def describe_calls(request: Request) -> Response:
        return _cached(request, make_openapi(f"shardbook {__version__}"), _JSON)

    async def describe(_request: Request) -> Response:
        return Response(index, headers=_JSON)

    async def call(request: Request) -> Response:
        name, is_post = request.path_params["call"], request.method == "POST"
        if name == OPENAPI_NAME:  # by a POST
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        if not is_post and name in CALLS and not CALLS[name].is_get:
            raise _not_by_get(name)
        who = await run_in_threadpool(service.authenticate, request.headers.get("authorization", ""))
        if name in CALLS:  # before the body is read, which is long only for publishers
            service.guarded(who).require_role(CALLS[name])
        policy = CALLS[name].policy if name in CALLS else Policy(READER)
        most = config.body_bytes if policy.role != READER else min(config.body_bytes, _MOST_QUESTION)
        is_long = policy.role != READER or policy.subject == "version"  # which has its labels and shards
        most_values = max(most // _BYTES_PER_VALUE, 1000) if is_long else _MOST_QUESTIONS
        body = await gate.read_body(request, most) if is_post else None
        if name == "events":
            answered = await answer_events(
                _arguments(request, body, most_values),
                lambda values: run_in_threadpool(make_call, request, who, values),
                watch,
                partial(gate.waiting, who),
            )
        else:
            answered = await run_in_threadpool(lambda: make_call(request, who, _arguments(request, body, most_values)))
        headers = {"Content-Type": "application/json" if answered.status == 200 else CONTENT_TYPE}
        if answered.was_replayed:
            headers["Idempotency-Replayed"] = "true"
        if isinstance(answered.body, bytes):
            if not is_post:
                return _cached(request, answered.body, headers, is_final=name in _FINAL and answered.body != b"null")
            return Response(answered.body, answered.status, headers)
        return StreamingResponse(_guarded(answered.body), headers={"Content-Type": "application/octet-stream"})

    def make_call(request: Request, who: AccessToken, values: Mapping[str, Any]) -> Answered:
        key, name = request.headers.get("idempotency-key"), request.path_params["call"]
        return service.answer(who, name, values, key=key, request_id=current_exchange().id)

    async def transfer(request: Request) -> Response:
        answer = await run_in_threadpool(perform_transfer, request)
        if not isinstance(answer, DataAnswer):
            with gate.files.take():
                answer = await _receive_file(request.stream(), answer)
        if isinstance(answer.body, bytes):
            return Response(answer.body, answer.status, answer.headers)
        return StreamingResponse(answer.body, answer.status, answer.headers)

    def perform_transfer(request: Request) -> DataAnswer | Receiving:
        who = service.authenticate(request.headers.get("authorization", ""))
        return service.transfer(who, request.method, request.path_params["path"], request.headers, request.query_params)

    return Starlette(
        routes=[
            Route(f"/{INDEX_NAME}", describe),
            Route(f"/{DATA_PATH}/{{path:path}}", transfer, methods=["GET", "PUT", "POST", "DELETE"]),
            *operation_routes(service, gate),
            Route(f"/{API_PATH}{OPENAPI_NAME}", describe_calls),
            *sign_in_routes(id_tokens, gate),
            Route(f"/{API_PATH}{{call}}", call, methods=["GET", "POST"]),
            *(more_routes(service, config) if more_routes is not None else ()),
            *page_routes(service, config, id_tokens),
        ],
        middleware=[*_cross_origin(config), Middleware(gate.wrap), Middleware(make_compression)],
        exception_handlers={HTTPException: refuse},
        lifespan=partial(write_metrics, gate, watch, _background(service, config, gate, watch)),
    )


def _cross_origin(config: ServiceConfig) -> Iterator[Middleware]:
    """What lets pages of other origins read, without cookies, if a setting names them."""
    if config.cors_origins:
        yield Middleware(
            CORSMiddleware,
            allow_origins=[*map(str.lower, config.cors_origins)],
            allow_methods=("GET", "HEAD"),
            allow_headers=("Authorization", "If-None-Match", "If-Range", "Range"),
            expose_headers=("Content-Range", "ETag", "RateLimit", "Repr-Digest", "Retry-After", "X-Request-Id"),
        )


async def _receive_file(pieces: AsyncIterator[bytes], receiving: Receiving) -> DataAnswer:
    """Take a body. Threads only check and write what has arrived, so that slow clients hold none of them."""
    from anyio import CancelScope

    arrived, answers = bytearray(), list[DataAnswer]()

    def advance(piece: bytes | None) -> None:
        try:
            receiving.send(piece)
        except StopIteration as end:
            answers.append(end.value)

    try:
        await run_in_threadpool(advance, None)
        async for piece in pieces:
            arrived += piece
            if len(arrived) >= _BATCH_BYTES:
                await run_in_threadpool(advance, bytes(arrived))
                arrived.clear()
        await run_in_threadpool(advance, bytes(arrived))
        await run_in_threadpool(advance, None)
        return answers[0]
    finally:
        with CancelScope(shield=True):
            await run_in_threadpool(receiving.close)


def _background(
    service: Service, config: ServiceConfig, gate: Gate, watch: EventWatch
) -> Iterator[Callable[[], Coroutine[Any, Any, None]]]:
    """What a worker does beside answering."""
    if config.webhook_key:
        hosts = config.webhook_hosts
        yield Deliverer(lambda: service.catalog.webhooks, run_in_threadpool, watch.wait, gate.metrics, hosts).run


def _arguments(request: Request, body: bytes | None, most_values: int) -> dict[str, Any]:
    """The arguments in the body of a request, or in its query if it has none."""
    if body is None:
        call = CALLS.get(request.path_params["call"])
        return {} if call is None else call.of_query(request.query_params.multi_items())
    if sum(map(body.count, (b",", b"[", b"{"))) > most_values:
        raise UsageError("the body of the call has too many values", details={"http_status": 413})
    values = load_json(body or b"{}", "the body of the call")
    if not isinstance(values, dict):
        raise UsageError("the body of a call must be a JSON object with its arguments")
    return values


def _cached(request: Request, body: bytes, headers: Mapping[str, str], *, is_final: bool = False) -> Response:
    """The answer to a GET, which a client may keep; it asks again whether it is still right, unless it is final."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**headers, "Cache-Control": _FOR_EVER if is_final else "no-cache", "Vary": "Authorization"}
    headers["ETag"] = f"W/{tag}"  # weak: the body may be compressed
    if {tag, "*"} & {*re.split(r"[ ,]+|W/", request.headers.get("if-none-match", ""))}:
        return Response(b"", 304, headers)
    return Response(body, 200, headers)


def _not_by_get(name: str) -> UsageError:
    current_exchange().headers["Allow"] = "POST"
    details = {"call": name, "http_status": 405}
    return UsageError(f"{name} does not support GET", hint="Send it as a POST.", details=details)


def _guarded(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces; a failure is their end, because the status was sent before."""
    try:
        yield from pieces
    except Exception as error:  # noqa: BLE001 (the status was sent before)
        if not isinstance(error, RegistryError):
            text = mask("".join(traceback.format_exception(error)))
            _logger.error("request %s failed: %s", current_exchange().id, text)
            error = internal_error()
        yield fault(json.dumps(dump_error(error, request_id=current_exchange().id)).encode())
