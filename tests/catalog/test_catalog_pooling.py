"""Catalogs behind PgBouncer in transaction mode, where each transaction may run on another connection to the server.

``.ci/beside pgbouncer`` also runs the other tests of PostgreSQL in this folder through it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from support.catalog_backups import answers, fill, opener, packed
from support.catalog_pooler import Pooler, pooled
from support.catalog_samples import damage, publish
from support.catalog_server import PostgresServer

from registry.catalog import open_catalog, schema
from registry.catalog.backup import open_backup
from registry.catalog.restore import restore_backup
from registry.catalog.session import erase_free_space, open_engine
from registry.errors import CatalogRefusedError, VersionExistsError

pgbouncer = pytest.mark.pgbouncer


@pytest.fixture
def narrow(postgres_server: PostgresServer) -> Iterator[Pooler]:
    """A pooler with one connection for each database: each client gets what the last one left behind."""
    with pooled(postgres_server, pool_size=1) as started:
        yield started


def state_of_sessions(pooler: Pooler, url: str) -> dict[str, Any]:
    """What clients left behind on the connection to the server."""
    with psycopg.connect(pooler.url(url), autocommit=True, prepare_threshold=None) as connection:
        queries = {
            "settings": "SELECT name, setting FROM pg_settings WHERE source = 'session' AND name != 'application_name'",
            "prepared": "SELECT name FROM pg_prepared_statements",
            "cursors": "SELECT name FROM pg_cursors WHERE is_holdable",
            "locks": "SELECT objid FROM pg_locks WHERE locktype = 'advisory'",
            "temporary": "SELECT relname FROM pg_class WHERE relpersistence = 't'",
            "listening": "SELECT pg_listening_channels()",
        }
        return {name: connection.execute(query).fetchall() for name, query in queries.items()}


@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
def test_no_statement_is_prepared_on_the_server(catalog_url: str) -> None:
    engine = open_engine(catalog_url)
    with engine.connect() as connection:
        for _ in range(20):
            connection.exec_driver_sql("SELECT %s", (1,))
        assert connection.exec_driver_sql("SELECT name FROM pg_prepared_statements").fetchall() == []
    engine.dispose()


@pgbouncer
def test_no_call_leaves_anything_in_the_session(postgres_server: PostgresServer, narrow: Pooler) -> None:
    url = postgres_server.create_database()
    behind = narrow.url(url)
    before = state_of_sessions(narrow, url)
    assert not any(found for name, found in before.items() if name != "settings")  # PgBouncer makes some of its own
    schema.upgrade(behind)
    with open_catalog(behind) as catalog:
        fill(catalog)
        expected, backup = answers(catalog), packed(catalog.backup())
        assert catalog.log.verify().faults == ()
    assert schema.check(behind) == []
    schema.reindex(behind)
    schema.downgrade(behind, "0007")
    damage(url, "UPDATE dataset_version SET location = 'http://ann:hunter2@host/x' WHERE id = 1")
    removed: list[schema.RemovedSecrets] = []
    schema.upgrade(behind, told=removed.append)
    assert [one.is_erased for one in removed] == [True]
    engine = open_engine(behind)
    assert erase_free_space(engine)
    engine.dispose()
    with open_backup(behind) as lines:
        assert packed(lines)
    empty = narrow.url(postgres_server.create_database())
    restore_backup(empty, opener(backup), shown="backup.gz")
    with open_catalog(empty) as catalog:
        assert answers(catalog) == expected
    assert state_of_sessions(narrow, url) == before


@pgbouncer
def test_threads_with_pools_of_their_own_share_one_connection(postgres_server: PostgresServer, narrow: Pooler) -> None:
    url = narrow.url(postgres_server.create_database(template="catalog_template"))
    problems: list[BaseException] = []

    def work(number: int) -> None:
        with open_catalog(url) as catalog:
            for minor in range(8):
                publish(catalog, f"mine{number}:1.{minor}.0")
                for _ in range(6):  # psycopg would prepare the sixth
                    catalog.find(f"mine{number}")
                try:
                    publish(catalog, f"shared:1.{minor}.0", content=str(number))
                except VersionExistsError:
                    continue

    _run_all([lambda number=number: work(number) for number in range(6)], problems)  # type: ignore[misc]  # a default
    assert problems == []
    with open_catalog(url) as catalog:
        assert len(catalog.versions("shared")) == 8
        assert [len(catalog.versions(f"mine{number}")) for number in range(6)] == [8] * 6
        assert catalog.log.verify().faults == ()


@pgbouncer
def test_options_that_the_pooler_rejects_are_a_refusal(postgres_server: PostgresServer, narrow: Pooler) -> None:
    url = narrow.url(postgres_server.create_database(template="catalog_template"))
    with pytest.raises(CatalogRefusedError, match="unsupported startup parameter: options") as caught:
        open_catalog(f"{url}&options=-c%20statement_timeout%3D1000")
    assert caught.value.details["reason"] == "rule"


@pgbouncer
def test_a_database_that_the_pooler_does_not_reach_is_described(
    postgres_server: PostgresServer, narrow: Pooler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_TRIES", "1")
    with pytest.raises(CatalogRefusedError, match='database "missing" does not exist') as caught:
        open_catalog(narrow.url(postgres_server.url("missing")))
    assert caught.value.details["reason"] == "database"


def _run_all(actions: list[Callable[[], None]], problems: list[BaseException]) -> None:
    def run(action: Callable[[], None]) -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 (the test reports it)
            problems.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
