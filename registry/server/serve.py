"""``registry serve``: worker processes that serve a catalog, and the process that supervises them.

registry serve -> a socket -> workers, each with a catalog and an application; one that dies is replaced
"""

from __future__ import annotations

import json
import logging
import os
import resource
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from multiprocessing import connection, parent_process, resource_tracker
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from registry.api.locations import catalog_url
from registry.catalog import CatalogBackend
from registry.catalog.sql_catalog import open_sql_catalog
from registry.errors import CatalogUnavailableError, RegistryError, StorageUnavailableError, require_extra
from registry.escaping import escape_json
from registry.masking import mask
from registry.model import Role, new_secret
from registry.server.browse import listen
from registry.server.config import ServiceConfig
from registry.server.data import open_served_data

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

    from registry.server.service import RouteMaker

_STARTUP_FAILURE: Final = 3
"""The exit code of a worker that cannot start: uvicorn starts no other one."""

_HEALTH_SECONDS: Final = 60
"""How long a worker may not react before it is replaced. Importing on a busy machine takes several seconds."""

_MOST_HEAD: Final = 2**15
_MOST_CONNECTIONS: Final = 1000
_MOST_FILES: Final = 4 * _MOST_CONNECTIONS

_logger = logging.getLogger(__name__)


def serve(
    config: ServiceConfig,
    *,
    ready: Callable[[str], None],
    port_source: str = "",
    more_routes: RouteMaker | None = None,
) -> None:
    """Serve a catalog until Ctrl-C or SIGTERM. Requests in flight are answered first.

    Args:
        config: the settings.
        ready: called with the URL of the service as soon as connections are accepted.
        port_source: where the port was set, for the hint if it is in use; ``""`` for the default.
        more_routes: see ``make_service_app``; a function that can be pickled.

    Raises:
        MissingExtraError: Starlette, uvicorn or PyJWT is not installed (extra ``server``).
        ConflictError: the port is in use, or reserved for the system.
        CatalogUnavailableError: no worker could start.
    """
    with require_extra("server", package="uvicorn", needed_for="registry serve"):
        import starlette.applications  # noqa: F401 (the workers need it)
        from uvicorn.supervisors import Multiprocess
    if config.issuers:
        with require_extra("server", package="PyJWT[crypto]", needed_for="the setting issuers of registry serve"):
            import cryptography  # noqa: F401 (the workers need both)
            import jwt  # noqa: F401

    config = replace(config, session_key=config.session_key or secrets.token_urlsafe(32))
    hint = "Choose another port: registry serve --port 8081"
    hint += f"\nThe port comes from {port_source}." if port_source else ""
    with (
        listen(config.port, config.host, hint=hint) as listener,
        TemporaryDirectory(prefix="registry-serve-") as folder,
    ):
        host = f"[{config.host}]" if ":" in config.host else config.host
        url = (config.public_url or f"http://{host}:{listener.getsockname()[1]}").rstrip("/") + "/"
        worker = partial(_make_worker, config, url, Path(folder), more_routes)
        settings = make_settings(config, worker, factory=True, log_config=_LOGGING)

        class Supervisor(Multiprocess):
            def init_processes(self) -> None:
                with _without_interrupts():
                    super().init_processes()

            def keep_subprocess_alive(self) -> None:
                # Else it asks each worker on every turn, and a worker that dies before it answers is awaited.
                if not all(worker.process.is_alive() for worker in self.processes):
                    with _without_interrupts():
                        super().keep_subprocess_alive()

            def terminate_all(self) -> None:
                listener.close()  # so that new connections are refused while requests in flight are answered
                super().terminate_all()

        supervisor = Supervisor(settings, [listener])
        ready(url)
        supervisor.run()
    if any(process.exitcode == _STARTUP_FAILURE for process in supervisor.processes):
        raise CatalogUnavailableError("the workers of the service cannot start", hint="The lines above show the cause.")


def make_settings(config: ServiceConfig, app: Any, **options: Any) -> uvicorn.Config:
    """How uvicorn serves an application; ``options`` are more of its settings."""
    import uvicorn

    from registry.server.heads import HeadLimits

    return uvicorn.Config(
        app,
        workers=config.workers,
        access_log=False,
        ws="none",
        http=HeadLimits,
        h11_max_incomplete_event_size=_MOST_HEAD,
        limit_concurrency=_MOST_CONNECTIONS,
        proxy_headers=bool(config.trusted_proxies),
        forwarded_allow_ips=list(config.trusted_proxies),
        server_header=False,
        timeout_graceful_shutdown=config.stop_seconds,
        timeout_worker_healthcheck=_HEALTH_SECONDS,
        **options,
    )


def make_first_token(catalog: CatalogBackend, actor: str) -> str | None:
    """The text of a new token of an admin; None if the catalog has a token that is valid."""
    now = catalog.now()
    if any(token.is_valid(now) for token in catalog.access.tokens()):
        return None
    token_id, text, digest = new_secret()
    catalog.access.create_token(token_id, digest, "admin", Role.ADMIN, actor=actor)
    return text


def is_public(host: str) -> bool:
    """Whether other machines reach what listens at ``host``.

    >>> is_public("127.0.0.1"), is_public("localhost"), is_public("0.0.0.0"), is_public("::1")
    (False, False, True, False)
    """
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def _make_worker(config: ServiceConfig, url: str, folder: Path, more_routes: RouteMaker | None) -> Starlette:
    """The application of a worker, which ends if its supervisor was killed."""
    from registry.server.service import Service, make_service_app

    allow_open_files()
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    try:
        catalog = open_sql_catalog(config.catalog or catalog_url(), create=False)
        settings = {"signs_writes": config.signed_writes, "free_bytes": config.free_bytes}
        data = open_served_data(catalog, config.data_dir, url, signs=config.signed_reads, **settings)
    except RegistryError as error:
        _logger.error("the worker cannot open the catalog or its data directory: %s", error)
        time.sleep(1)  # another worker is started at once
        sys.exit(1 if isinstance(error, CatalogUnavailableError | StorageUnavailableError) else _STARTUP_FAILURE)
    catalog.webhooks.keys = config.webhook_key
    service = Service(catalog, anonymous=config.anonymous_reads, data=data)
    return make_service_app(service, config, folder=folder, more_routes=more_routes)


def allow_open_files() -> None:
    """Raise the limit of open files of this process: a connection is one, and a file that it sends is another.

    systemd and many shells allow 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _MOST_FILES:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(_MOST_FILES, hard) if hard >= 0 else _MOST_FILES, hard))


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let the processes that are started get no Ctrl-C: it would end one that still imports with a traceback."""
    resource_tracker.ensure_running()  # its start would end the block
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


class _JsonLines(logging.Formatter):
    """Writes each record of the log as a line of JSON. ``extra={"fields": ...}`` replaces the message."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", None) or {"message": mask(record.getMessage())}
        if record.exc_info:
            fields |= {"traceback": mask(self.formatException(record.exc_info))}
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return escape_json(json.dumps({"time": time, "level": record.levelname.lower(), **fields}))


_LOGGING: Final = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"lines": {"()": _JsonLines}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {"registry.server": {"level": "INFO"}},
}
