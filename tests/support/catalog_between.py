"""Runs an action between any two statements of another action: the result must equal that of running them in turn.

``Rivals.meet(first, second, place)`` runs the action ``first``, and before one of its statements, the whole action
``second`` on another connection. If a lock of the database makes ``second`` wait, ``first`` continues, and both end in
the order that the database allows.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from operator import methodcaller
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa

from registry.catalog import CatalogBackend, PublicationDetails, load_shards, open_catalog
from registry.catalog.session import is_writing
from registry.errors import RegistryError
from registry.model import Reference, ShardLengths, Version
from support.catalog_samples import logged, publish, sample
from support.catalog_server import PostgresServer

LATER = datetime(2100, 1, 1, tzinfo=UTC)
_PATIENCE = 20.0
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?( UTC|\+00:00)?")
_STATE = {
    "configs": "SELECT b.name, b.has_configs, c.name AS config, c.is_default, "
    "v.major, v.minor, v.patch FROM builder b JOIN builder_config c ON c.builder_id = b.id "
    "LEFT JOIN dataset_version v ON v.id = c.canonical_version_id",
    "versions": "SELECT b.name, c.name AS config, v.major, v.minor, v.patch, v.state, v.state_message, "
    "v.superseded_by, v.content_digest FROM builder b JOIN builder_config c ON c.builder_id = b.id "
    "JOIN dataset_version v ON v.config_id = c.id",
    "aliases": "SELECT b.name, c.name AS config, a.name AS alias, v.major, v.minor, v.patch FROM alias a "
    "JOIN builder_config c ON c.id = a.config_id JOIN builder b ON b.id = c.builder_id "
    "JOIN dataset_version v ON v.id = a.version_id",
    "experiments": "SELECT name, description, default_enabled, retired_at IS NULL AS is_live FROM experiment",
    "overrides": "SELECT e.name, o.enabled FROM version_experiment o JOIN experiment e ON e.id = o.experiment_id",
    "used": "SELECT builder_name, config_name, major, minor, patch, content_digest FROM version_ledger",
    "protected": "SELECT scope, protected_by FROM protection",
    "names": "SELECT d.name, d.position, b.name AS present FROM dataset_name d JOIN builder b ON b.id = d.builder_id",
    "searched": "SELECT name, description FROM search_document",
}
_OF_THE_MOMENT = {"seal", "head", "hash", "previous_hash"}


@dataclass(frozen=True)
class Action:
    """An action on a catalog."""

    name: str
    run: Callable[[CatalogBackend], object]


@dataclass(frozen=True)
class Place:
    """The place before a statement of an action.

    ``is_locked``: its transaction excludes all other writers on SQLite.
    """

    number: int
    statement: str
    is_locked: bool


@dataclass(frozen=True)
class Ending:
    """The outcomes of two actions, and the final state of the catalog."""

    first: Any
    second: Any
    state: Any


class Rivals:
    """Two open catalogs of one small database. ``renew`` restores its rows; statements are compiled once."""

    def __init__(self, url: str, renew: Callable[[], None], monitor: psycopg.Connection[Any] | None = None) -> None:
        self.monitor = monitor
        self.waits = 0
        self._renew = renew
        self._renew()
        self._name = sa.make_url(url).database
        self._first, self._second = open_catalog(url), open_catalog(url)
        self._orders: dict[tuple[str, str], tuple[Ending, Ending]] = {}
        self._places: dict[str, list[Place]] = {}

    def places(self, action: Action) -> list[Place]:
        """The places at which another action can run: before each statement of ``action``."""
        found: list[Place] = []

        def note(connection: sa.Connection, _cursor: Any, statement: str, *_: Any) -> None:
            is_locked = is_writing(connection) and not statement.startswith("BEGIN")
            found.append(Place(len(found), statement, is_locked))

        if action.name not in self._places:
            self._start_anew()
            with listening(self._first, note):
                outcome(action, self._first)
            self._places[action.name] = found
        return self._places[action.name]

    def in_turn(self, first: Action, second: Action) -> tuple[Ending, Ending]:
        """The endings of running the two in turn: ``first`` before ``second``, and after it."""
        key = first.name, second.name
        if key not in self._orders:
            self._start_anew()
            done = outcome(first, self._first)
            before = Ending(done, outcome(second, self._second), state(self._second))
            self._start_anew()
            done = outcome(second, self._second)
            after = Ending(outcome(first, self._first), done, state(self._second))
            self._orders[key] = before, after
        return self._orders[key]

    def meet(self, first: Action, second: Action, place: Place) -> Ending:
        """The ending if ``second`` runs at a place within ``first``."""
        self._start_anew()
        done: list[Any] = []
        rival = threading.Thread(target=lambda: done.append(outcome(second, self._second)))
        seen = 0

        def come_between(*_: Any) -> None:
            nonlocal seen
            seen += 1
            if seen == place.number + 1:
                rival.start()
                self._let_finish(rival)

        with listening(self._first, come_between):
            mine = outcome(first, self._first)
        assert seen > place.number, f"{first.name} has no statement {place.number}"
        rival.join(_PATIENCE)
        assert not rival.is_alive(), f"{second.name} never ends"
        return Ending(mine, done[0], state(self._second))

    def close(self) -> None:
        self._first.close()
        self._second.close()

    def _start_anew(self) -> None:
        if self.monitor is None:  # SQLite's file is replaced; the catalogs connect again when they are used
            self.close()
        self._renew()

    def _let_finish(self, rival: threading.Thread) -> None:
        """Wait until the action is done, or until it waits for a lock of this transaction."""
        end = time.monotonic() + _PATIENCE
        while rival.is_alive() and time.monotonic() < end:
            rival.join(0.002)
            if rival.is_alive() and self._is_waiting():
                self.waits += 1
                return

    def _is_waiting(self) -> bool:
        if self.monitor is None:
            return False
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
        found = self.monitor.execute(query, (self._name,)).fetchone()
        return found is not None and found[0] > 0


@contextmanager
def sqlite_rivals(template: Path, folder: Path) -> Iterator[Rivals]:
    small, path = Path(shutil.copy(template, folder / "small.db")), folder / "catalog.db"
    with open_catalog(small) as catalog:
        fill(catalog)

    def renew() -> None:
        for old in folder.glob("catalog.db*"):
            old.unlink()
        shutil.copy(small, path)

    with closing(Rivals(f"sqlite:///{path}", renew)) as made:
        yield made


@contextmanager
def postgres_rivals(server: PostgresServer) -> Iterator[Rivals]:
    url = server.create_database(template="catalog_template")
    with open_catalog(url) as catalog:
        fill(catalog)
    # One connection restores the rows, bypassing the triggers that guard them, and checks which connections wait.
    with psycopg.connect(url, autocommit=True) as monitor:
        restore = save_rows(monitor)
        with closing(Rivals(url, lambda: monitor.execute(restore) and None, monitor)) as made:
            yield made


def save_rows(connection: psycopg.Connection[Any]) -> str:
    """Copy all rows into another schema. Returns the statements that restore them and the numbers of later rows."""
    statements = ["BEGIN", "SET LOCAL session_replication_role = replica"]
    connection.execute("CREATE SCHEMA saved")
    tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    for (table,) in tables:
        connection.execute(f"CREATE TABLE saved.{table} AS SELECT * FROM {table}")  # noqa: S608 (names of our own tables)
        columns = connection.execute(
            "SELECT string_agg(attname, ', ') FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
            " AND NOT attisdropped AND attgenerated = ''",
            (table,),
        ).fetchone()
        assert columns is not None
        statements.append(f"DELETE FROM {table}")  # noqa: S608 (names of our own tables)
        statements.append(
            f"INSERT INTO {table} ({columns[0]}) OVERRIDING SYSTEM VALUE SELECT {columns[0]} FROM saved.{table}"  # noqa: S608 (names of our own tables)
        )
    for (name,) in connection.execute("SELECT sequencename FROM pg_sequences WHERE schemaname = 'public'").fetchall():
        last, is_called = connection.execute(f"SELECT last_value, is_called FROM {name}").fetchone() or (1, False)  # noqa: S608 (names of our own tables)
        statements.append(f"SELECT setval('{name}', {last}, {is_called})")
    return "; ".join([*statements, "COMMIT"])


@contextmanager
def listening(catalog: CatalogBackend, note: Callable[..., None]) -> Iterator[None]:
    """Call ``note`` before every statement of this catalog."""
    engine = catalog._engine
    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        yield
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)


def fill(catalog: CatalogBackend) -> None:
    """One dataset without configs, one with a default config, one with two configs and no default; two flags."""
    catalog.experiments.add("flag", "A flag.", default=True, actor="ann")
    catalog.experiments.add("other", "Another.", actor="ann")
    for reference in ("alone:1.0.0", "alone:1.1.0", "pair/left:1.0.0", "pair/right:1.0.0", "many/a:1.0.0"):
        is_first = reference.endswith(":1.0.0")
        publish(catalog, reference, promote=is_first, default_config=reference.startswith("pair/left"))
    publish(catalog, "alone:1.2.0", promote=False)
    publish(catalog, "alone:2.0.0", promote=False)
    publish(catalog, "many/b:1.0.0")
    publish(catalog, "flagged:1.0.0", experiments={"other": True})
    catalog.lifecycle.yank(Reference.parse("alone:1.2.0"), "wrong", actor="ann")
    catalog.lifecycle.drop(Reference.parse("pair/right:1.0.0"), "licence", actor="ann")
    catalog.configs.set_protection(Reference.parse("many/a"), protect=True, actor="ann")
    catalog.aliases.set("paper", Reference.parse("alone:1.0.0"), expect="none", message="", actor="ann")


def publisher(reference: str, **options: Any) -> Action:
    """``promote`` is for the catalog, others for ``sample``."""
    told = "".join(f", {key}={value}" for key, value in options.items())
    promote, default_config = options.pop("promote", True), options.pop("default_config", False)
    details = PublicationDetails(proved_between=options.pop("proved_between", None))
    version, shards = sample(reference, **options)

    def run(catalog: CatalogBackend) -> object:
        return catalog.publish(
            version, shards, promote=promote, default_config=default_config, actor="ann", details=details
        )

    return Action(f"publish {reference}{told}", run)


def changes() -> list[Action]:
    """Actions that change a catalog."""
    at = Reference.parse
    return [
        publisher("fresh:1.0.0"),
        publisher("fresh:1.0.0", content="other"),
        publisher("fresh/conf:1.0.0"),
        publisher("fresh/conf:1.0.0", default_config=True),
        publisher("alone:3.0.0"),
        publisher("alone:3.0.0", promote=False, content="other"),
        publisher("alone:0.9.0", promote=False),
        publisher("alone:1.1.1", promote=False, proved_between=(Version(1, 1, 0), Version(1, 2, 0))),
        publisher("pair/new:1.0.0", default_config=True),
        publisher("many/a:2.0.0", promote=None, experiments={"other": False}),
        publisher("many/a:2.1.0", promote=False, experiments={"newer": True}),
        Action("promote alone:1.1.0", lambda c: c.lifecycle.promote(at("alone:1.1.0"), actor="ann")),
        Action("promote fresh:1.0.0", lambda c: c.lifecycle.promote(at("fresh:1.0.0"), actor="ann")),
        Action("deprecate alone@paper", lambda c: c.lifecycle.deprecate(at("alone@paper"), "old", actor="ann")),
        Action("yank alone:1.0.0", lambda c: c.lifecycle.yank(at("alone:1.0.0"), "bad", actor="ann")),
        Action("yank fresh:1.0.0", lambda c: c.lifecycle.yank(at("fresh:1.0.0"), "bad", actor="ann")),
        Action("yank fresh/conf:1.0.0", lambda c: c.lifecycle.yank(at("fresh/conf:1.0.0"), "bad", actor="ann")),
        Action("undo yank alone:1.2.0", lambda c: c.lifecycle.undo("yank", at("alone:1.2.0"), actor="ann")),
        Action("drop alone:1.1.0", lambda c: c.lifecycle.drop(at("alone:1.1.0"), "licence", actor="ann")),
        Action("yank flagged:1.0.0", lambda c: c.lifecycle.yank(at("flagged:1.0.0"), "bad", actor="ann")),
        publisher("alone:4.0.0", promote=None),
        Action("protect all", lambda c: c.configs.set_protection(None, protect=True, actor="ann")),
        Action("protect alone", lambda c: c.configs.set_protection(at("alone"), protect=True, actor="ann")),
        Action("protect fresh", lambda c: c.configs.set_protection(at("fresh"), protect=True, actor="ann")),
        Action("unprotect many/a", lambda c: c.configs.set_protection(at("many/a"), protect=False, actor="ann")),
        Action("default pair/right", lambda c: c.configs.set_default("pair", "right", actor="ann")),
        Action("default fresh/conf", lambda c: c.configs.set_default("fresh", "conf", actor="ann")),
        Action("set alone@paper", lambda c: set_alias(c, "paper", "alone:1.1.0", Version(1, 0, 0))),
        Action("set alone@new to 1.*", lambda c: set_alias(c, "new", "alone:1.*", "none")),
        Action("set fresh@new", lambda c: set_alias(c, "new", "fresh:1.0.0", None)),
        Action("rm alone@paper", lambda c: remove_alias(c, "alone@paper", Version(1, 0, 0))),
        Action("rm fresh@new", lambda c: remove_alias(c, "fresh@new", None)),
        Action("add newer", lambda c: c.experiments.add("newer", "New.", default=True, actor="ann")),
        Action("default newer off", lambda c: c.experiments.set_default("newer", False, actor="ann")),
        Action("default flag off", lambda c: c.experiments.set_default("flag", False, actor="ann")),
        Action("rename alone", lambda c: c.rename("alone", "solo", actor="ann")),
        Action("rename many", lambda c: c.rename("many", "fresh", actor="ann")),
        Action("rename pair", lambda c: c.rename("pair", "solo", actor="ann")),
        Action("retire flag", lambda c: c.experiments.retire("flag", actor="ann")),
    ]


def look_ups() -> list[Action]:
    """Actions that query a catalog, and dry runs."""
    at = Reference.parse
    alone = sample("alone:1.1.0")[0]
    references = ("fresh", "fresh:1.*", "fresh:1.0.0", "fresh@new", "fresh/conf", "many", "pair", "pair/right", "alone")
    asked: dict[str, Callable[[CatalogBackend], object]] = {
        "datasets": lambda c: c.datasets(),
        "versions fresh": lambda c: c.versions("fresh"),
        "versions alone": lambda c: c.versions("alone"),
        "versions alone, later": lambda c: c.versions("alone", at=LATER),
        "find_at alone": lambda c: c.find_at(at("alone"), LATER),
        "find_at fresh": lambda c: c.find_at(at("fresh"), LATER),
        "log fresh": lambda c: list(logged(c, dataset="fresh")),
        "log alone": lambda c: list(logged(c, dataset="alone")),
        "newest 3 events": lambda c: list(logged(c, limit=3)),
        "aliases": lambda c: c.aliases.list(),
        "aliases fresh": lambda c: c.aliases.list("fresh"),
        "history alone@paper": lambda c: c.aliases.history(at("alone@paper")),
        "history fresh@new": lambda c: c.aliases.history(at("fresh@new")),
        "configs fresh": lambda c: c.configs.list("fresh"),
        "configs pair": lambda c: c.configs.list("pair"),
        "standing alone": lambda c: c.standing("alone"),
        "standing fresh": lambda c: c.standing("fresh"),
        "neighbours": lambda c: c.neighbours("alone", None, Version(2, 5, 0)),
        "protection": lambda c: c.configs.protection("alone", None),
        "shards": lambda c: load_shards(c.shards, alone, "train"),
        "search": lambda c: c.search("alone fresh"),
        "find solo": lambda c: c.find("solo"),
        "no hits": lambda c: c.explain_no_hits("frehs"),
        "experiments": lambda c: c.experiments.list(),
        "implemented": lambda c: c.experiments.of_version(alone),
        "experiment defaults": lambda c: c.experiments.defaults_for({"newer": True}),
        "verify log": lambda c: c.log.verify(),
        "dry yank fresh": lambda c: c.lifecycle.yank(at("fresh:1.0.0"), "bad", actor="ann", dry_run=True),
        "dry default fresh": lambda c: c.configs.set_default("fresh", "conf", actor="ann", dry_run=True),
        "dry retire": lambda c: c.experiments.retire("newer", actor="ann", dry_run=True),
        **{f"find {one}": methodcaller("find", one) for one in (*references, "alone:*", "alone@paper")},
    }
    return [Action(name, run) for name, run in asked.items()]


def set_alias(catalog: CatalogBackend, name: str, target: str, expect: Any) -> object:
    return catalog.aliases.set(name, Reference.parse(target), expect=expect, message="", actor="ann")


def remove_alias(catalog: CatalogBackend, name: str, expect: Any) -> object:
    return catalog.aliases.remove(Reference.parse(name), expect=expect, message="", actor="ann")


def outcome(action: Action, catalog: CatalogBackend) -> Any:
    """Return the result of an action, or its error; ``try again`` for a busy catalog."""
    try:
        return plain(action.run(catalog))
    except RegistryError as error:
        if error.exit_code == 75:
            return "try again"
        return type(error).__name__, error.code, plain(error.message), plain(error.hint), plain(error.details)


def state(catalog: CatalogBackend) -> Any:
    """Return everything that a catalog reports, without clocks and the numbers of rows."""
    with catalog._engine.connect() as connection:
        found = {
            table: sorted(map(str, (plain(row._mapping) for row in connection.execute(sa.text(query)))))
            for table, query in _STATE.items()
        }
    return {**found, "events": plain(list(logged(catalog)))}


def plain(value: Any) -> Any:
    """Convert ``value`` to a comparable and readable form without times."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type | Version | Reference):
        value = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items() if key not in _OF_THE_MOMENT}
    if isinstance(value, str):
        return _TIME.sub("TIME", value)
    if isinstance(value, Enum | Version | Reference):
        return str(value)
    if isinstance(value, datetime):
        return "TIME"
    if isinstance(value, ShardLengths | list | tuple | set | Iterable):
        return [plain(one) for one in value]
    return value
