"""What a service has for those who run it, beside the calls: ``/health``, ``/ready``, ``/metrics`` and their upkeep."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from registry.catalog.service.calls import CALLS
from registry.errors import CatalogPermissionError, CatalogUnavailableError, NotFoundError, RegistryError, UsageError
from registry.model import AccessToken, Role
from registry.server.following import EventWatch
from registry.server.gate import Gate, current_exchange
from registry.server.metrics import CONTENT_TYPE

_JSON = {"Content-Type": "application/json"}
_NOT_FOUND = 404

_logger = logging.getLogger(__name__)


class _Service(Protocol):
    """What is needed of ``registry.server.service.Service``."""

    catalog: Any

    def authenticate(self, header: str) -> AccessToken: ...


def operation_routes(service: _Service, gate: Gate) -> list[Route]:
    """``/health``: the process lives. ``/ready``: the catalog answers. ``/metrics``: its counts, for admins."""

    async def health(_request: Request) -> Response:
        return Response(b'{"status": "alive"}', headers=_JSON)

    async def ready(_request: Request) -> Response:
        try:
            await run_in_threadpool(service.catalog.now)
        except RegistryError as error:
            _logger.error("the catalog does not answer: %s", error)
            raise CatalogUnavailableError("the catalog of the service does not answer") from error
        return Response(b'{"status": "ready"}', headers=_JSON)

    async def metrics(request: Request) -> Response:
        header = request.headers.get("authorization", "")
        if not gate.may_read_metrics(header):
            who = await run_in_threadpool(service.authenticate, header)
            if who.role is not Role.ADMIN:
                raise CatalogPermissionError(f"{who.name} may not read the metrics, which requires the role admin")
        return Response(gate.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    return [Route(f"/{route.__name__}", route) for route in (health, ready, metrics)]


def refuse(request: Request, error: Any) -> Response:
    """Raise the error for an HTTPException: there is no such address, or it takes another method."""
    current_exchange().headers.update(error.headers or {})
    call = CALLS.get(request.path_params.get("call", ""))
    if call is not None and not call.is_get:
        current_exchange().headers["Allow"] = "POST"
    if error.status_code == _NOT_FOUND:
        raise NotFoundError("there is nothing at this address", hint="site.json lists the versions of the API.")
    raise UsageError(str(error.detail).lower(), details={"http_status": error.status_code})


@asynccontextmanager
async def write_metrics(
    gate: Gate, watch: EventWatch, background: Iterable[Callable[[], Coroutine[Any, Any, None]]], _app: Starlette
) -> AsyncIterator[dict[str, EventWatch]]:
    """Write the counts of this worker for the others, once a second, while the application lives.

    ``HeadLimits`` stops the ``watch`` when the service ends. ``background`` is what else runs for so long.
    """

    async def write() -> None:
        while True:
            await asyncio.sleep(1)
            with suppress(OSError):  # the disk is full
                gate.metrics.write()

    tasks = [asyncio.create_task(run()) for run in (write, *background)]
    yield {"watch": watch}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
