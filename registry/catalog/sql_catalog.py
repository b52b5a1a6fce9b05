"""Implements ``CatalogBackend`` on SQLite and PostgreSQL. One call is one transaction."""

from __future__ import annotations

import os
import weakref
from datetime import datetime
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from registry.catalog.pages import checks_limit
from registry.catalog.queries import list_versions
from registry.catalog.revision import ahead_error, read_status, require_current
from registry.catalog.selection import load_standing
from registry.catalog.session import SqlGroup, open_engine, reading, refuse_writes, require_file, use_wal
from registry.catalog.urls import describe_url, sqlite_file
from registry.errors import SchemaAheadWarning, warn

if TYPE_CHECKING:  # loaded when they are used, to keep look-ups on the command line fast
    import sqlalchemy as sa

    from registry.catalog.access import SqlAccess
    from registry.catalog.aliases import SqlAliases
    from registry.catalog.configs import SqlConfigs
    from registry.catalog.experiments import SqlExperiments
    from registry.catalog.lifecycle import SqlLifecycle
    from registry.catalog.locations import SqlLocations
    from registry.catalog.log import SqlLog
    from registry.catalog.reservations import SqlReservations
    from registry.catalog.shards import SqlShards
    from registry.catalog.values import VersionSummary
    from registry.catalog.webhooks import SqlWebhooks
    from registry.model import Standing, Version


def open_sql_catalog(url: str | os.PathLike[str], *, create: bool = True, frozen: bool = False) -> SqlCatalog:
    """Open the catalog in the database at ``url``; see ``registry.catalog.open_catalog``, and ``open_engine``."""
    engine = open_engine(url, frozen=frozen)
    try:
        _create_or_require(engine, create=create, frozen=frozen)
        if not frozen:
            use_wal(engine)
        require_file(engine)
    except BaseException:
        engine.dispose()
        raise
    catalog = SqlCatalog(engine)
    # A catalog that nobody closes, such as the one that registry.load opens, must not leave an open connection.
    weakref.finalize(catalog, _close_connections, engine, os.getpid()).atexit = False
    return catalog


def _create_or_require(engine: sa.Engine, *, create: bool, frozen: bool) -> None:
    # Any other database than a new or empty SQLite file must be upgraded first.
    status = read_status(engine)
    if create and engine.dialect.name == "sqlite" and status.state in ("absent", "empty"):
        from registry.catalog import schema

        schema.create(engine)
        status = read_status(engine)
    if status.is_next and not frozen:  # while machines are upgraded one after the other
        error = ahead_error(status)
        refuse_writes(engine, error)
        warn(f"{error.message}: it can be read, and not changed", SchemaAheadWarning)
    else:
        require_current(status)


def _close_connections(engine: sa.Engine, opened_by: int) -> None:
    # After a fork, these connections belong to the parent, which still uses them.
    if os.getpid() == opened_by:
        engine.dispose()


def _group(name: str) -> Any:
    """The group ``name`` of calls: the class ``Sql<Name>`` of the module of that name, loaded when it is first used."""

    def make(catalog: SqlCatalog) -> Any:
        module = import_module(f"registry.catalog.{name}")
        return getattr(module, f"Sql{name.capitalize()}")(catalog._engine)

    return cached_property(make)


def _call(module: str, name: str) -> Any:
    """A call of the protocol as the function ``name`` of a module that is loaded when it is first used."""

    def call(catalog: SqlCatalog, *arguments: Any, **options: Any) -> Any:
        function = getattr(import_module(f"registry.catalog.{module}"), name)
        return function(catalog._engine, *arguments, **options)

    return call


def _look_up(module: str, name: str) -> Any:
    """As ``_call``; the function gets a connection, on which all its queries see the same moment."""

    def call(catalog: SqlCatalog, *arguments: Any, **options: Any) -> Any:
        function = getattr(import_module(f"registry.catalog.{module}"), name)
        with reading(catalog._engine) as connection:
            return function(connection, *arguments, **options)

    return call


class SqlCatalog(SqlGroup):
    """An open catalog of the current schema. Threads may share it, and a forked process may use it."""

    access: SqlAccess = _group("access")
    aliases: SqlAliases = _group("aliases")
    configs: SqlConfigs = _group("configs")
    experiments: SqlExperiments = _group("experiments")
    lifecycle: SqlLifecycle = _group("lifecycle")
    locations: SqlLocations = _group("locations")
    log: SqlLog = _group("log")
    reservations: SqlReservations = _group("reservations")
    shards: SqlShards = _group("shards")
    webhooks: SqlWebhooks = _group("webhooks")

    add_fingerprints = _call("writes", "add_fingerprints")
    add_producer = _call("writes", "add_producer")
    answer_once = _call("kept_answers", "answer_once")
    attach = _call("attachments", "attach")
    backup = _call("backup", "backup_lines")
    events = _call("log", "events")
    keep_answer = _call("kept_answers", "keep_answer")
    publish = _call("writes", "publish")
    rename = _call("renaming", "rename")
    require_publisher = _call("rights", "require_publisher")
    snapshot = _call("snapshot", "snapshot_lines")

    attachments = _look_up("attachments", "attachments_of")
    datasets = _look_up("queries", "datasets")
    explain_no_hits = _look_up("search", "explain_no_hits")
    find = _look_up("queries", "find")
    find_at = _look_up("history", "find_at")
    fingerprints = _look_up("writes", "fingerprints")
    neighbours = _look_up("queries", "neighbours")
    now = _look_up("clock", "read_clock")
    producers = _look_up("queries", "find_producers")
    published = _look_up("queries", "load_version")
    published_at = _look_up("locations", "find_at_location")
    published_digest = _look_up("queries", "find_digest")
    search = _look_up("search", "find_hits")
    sizes = _look_up("queries", "sizes")

    @property
    def url(self) -> str:
        return describe_url(self._engine.url)

    @property
    def file(self) -> Path | None:
        return sqlite_file(self._engine.url)

    def standing(self, name: str, config: str | None = None, *, at: datetime | None = None) -> Standing:
        with reading(self._engine) as connection:
            if at is not None:
                from registry.catalog import history

                return history.standing_at(connection, name, config, at)
            return load_standing(connection, name, config)

    @checks_limit
    def versions(
        self,
        name: str,
        config: str | None = None,
        *,
        at: datetime | None = None,
        below: Version | None = None,
        limit: int | None = None,
    ) -> tuple[VersionSummary, ...]:
        with reading(self._engine) as connection:
            if at is not None:
                from registry.catalog import history

                return history.versions_at(connection, name, config, at, below=below, limit=limit)
            return list_versions(connection, name, config, below=below, limit=limit)

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> SqlCatalog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SqlCatalog {self.url}>"
