"""After any statement that a publisher's rights allow, every call works or raises an error of the registry."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from support.catalog_backups import fill
from support.catalog_nonsense import nonsense, untyped
from support.catalog_samples import damage, execute, publish
from support.catalog_server import PostgresServer
from support.levels import cases

from registry.catalog import CatalogBackend, open_catalog, schema
from registry.errors import LogTamperedError

REFUSED = (
    sqlite3.IntegrityError,
    sqlite3.OperationalError,
    psycopg.IntegrityError,
    psycopg.DataError,
    psycopg.errors.SyntaxError,  # of words in a search document that are no tsvector
)
ROLE = "writes_nonsense"


def statements(kind: str) -> list[object]:
    """Few of them each day, more in the long level, others for another REGISTRY_EXAMPLES."""
    start = int(os.environ.get("REGISTRY_EXAMPLES", "0")) % 9
    return cases(list(nonsense(kind))[start::9], everyday=8)


FOUND_ONCE = [
    "UPDATE builder SET created_at = 7",
    "UPDATE reservation SET reserved_at = 7",
    "UPDATE reservation SET owners_json = '{}'",
    "UPDATE event SET at = 'yesterday' WHERE id = (SELECT max(id) FROM event)",
    f"UPDATE event SET hash = '{'0' * 64}' WHERE id = (SELECT max(id) FROM event)",  # noqa: S608 (our own tables)
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Path:
    """An SQLite catalog with rows in every table."""
    path = Path(shutil.copy(sqlite_template, tmp_path_factory.mktemp("filled") / "catalog.db"))
    with open_catalog(path) as catalog:
        fill(catalog)
    return path


@pytest.fixture(scope="module")
def filled_database(postgres_server: PostgresServer) -> str:
    """The name of a database with rows in every table, and with the rights of a publisher."""
    url = postgres_server.create_database(template="catalog_template")
    with open_catalog(url) as catalog:
        fill(catalog)
    with suppress(psycopg.errors.DuplicateObject):
        postgres_server.execute(f"CREATE ROLE {ROLE} LOGIN")
    schema.grant_rights(url, ROLE, "publisher")
    return url.partition("?")[0].rpartition("/")[2]


@pytest.mark.parametrize("statement", statements("sqlite"))
def test_a_file_with_nonsense_gives_typed_errors(filled: Path, tmp_path: Path, statement: str) -> None:
    copy = Path(shutil.copy(filled, tmp_path / "catalog.db"))
    try:
        execute(str(copy), statement)
    except REFUSED:
        return
    with open_catalog(copy) as catalog:
        assert untyped(catalog) == []


@pytest.mark.parametrize("statement", FOUND_ONCE)
def test_what_the_triggers_did_not_refuse_before_gives_typed_errors(
    filled: Path, tmp_path: Path, statement: str
) -> None:
    copy = Path(shutil.copy(filled, tmp_path / "catalog.db"))
    damage(str(copy), statement)
    with open_catalog(copy) as catalog:
        assert untyped(catalog) == []


@pytest.mark.parametrize("catalog_url", ["sqlite", "postgresql"], indirect=True)
def test_a_log_with_a_hash_of_zeros_is_reported_and_mended_as_the_document_says(
    catalog: CatalogBackend, catalog_url: str
) -> None:
    publish(catalog, "mnist:1.0.0")
    damage(
        catalog_url,
        f"INSERT INTO event SELECT 2, at, 'eve', 'note', '', '', '{{}}', hash, '{'0' * 64}' FROM event WHERE id = 1",  # noqa: S608 (our own tables)
    )
    with pytest.raises(LogTamperedError) as caught:
        publish(catalog, "mnist:1.1.0")
    assert str(caught.value) == ("event 3 cannot be appended to the log: other software wrote event 2 or 3")
    assert caught.value.hint == (
        "Run the command again. If it fails again, find the wrong event: registry log verify. The owner of the "
        "database can remove it as described in docs/troubleshooting.md."
    )
    damage(catalog_url, "DELETE FROM event WHERE id >= 2")
    publish(catalog, "mnist:1.1.0")
    catalog.log.verify().require_sound()


@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
def test_an_event_that_others_append_at_the_same_time_is_a_typed_error(
    catalog: CatalogBackend, catalog_url: str
) -> None:
    publish(catalog, "mnist:1.0.0")
    with psycopg.connect(catalog_url) as stranger, ThreadPoolExecutor(1) as pool:
        stranger.execute(
            "INSERT INTO event SELECT 2, at, 'eve', 'note', '', '', json_build_object('@session_user', session_user), "  # noqa: S608 (our own tables)
            f"hash, '{'5' * 64}' FROM event WHERE id = 1"
        )
        waiting = pool.submit(publish, catalog, "mnist:1.1.0")
        while not stranger.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall():
            time.sleep(0.01)
        stranger.commit()
        with pytest.raises(LogTamperedError, match=r"^event 2 cannot be appended to the log: other software wrote"):
            waiting.result()
    publish(catalog, "mnist:1.1.0")


@pytest.mark.parametrize("statement", statements("postgresql"))
def test_nonsense_of_a_publisher_gives_typed_errors(
    filled_database: str, postgres_server: PostgresServer, statement: str
) -> None:
    url = postgres_server.create_database(template=filled_database)
    database = url.partition("?")[0].rpartition("/")[2]
    try:
        execute(postgres_server.url(database, ROLE), statement)
    except REFUSED:
        return
    with open_catalog(url) as catalog:
        assert untyped(catalog) == []
    postgres_server.execute(f"DROP DATABASE {database} WITH (FORCE)")
