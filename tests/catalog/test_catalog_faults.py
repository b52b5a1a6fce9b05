"""Faults of databases, disks and networks: typed errors, exit code 75 where trying again may help, no endless waits."""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
import sqlalchemy as sa
from support.catalog_fault_proxy import CUT, CUT_ANSWER, SILENT, PostgresProxy, proxied
from support.catalog_forking import FORKING, in_child
from support.catalog_samples import execute, logged, publish, sample
from support.catalog_server import PostgresServer
from support.golden import check_error

from registry.catalog import CatalogBackend, open_catalog, schema
from registry.catalog.faults import translate
from registry.catalog.session import open_engine, write
from registry.catalog.sql_catalog import SqlCatalog
from registry.catalog.urls import OPTIONS, parse_url
from registry.cli.main import run
from registry.errors import (
    CatalogError,
    CatalogPermissionError,
    CatalogRefusedError,
    CatalogUnavailableError,
    NotACatalogError,
    RegistryError,
    SchemaBehindError,
    UsageError,
)

GOLDEN = Path(__file__).with_name("golden")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_CONNECT_TIMEOUT", "2")
    monkeypatch.setenv("REGISTRY_QUERY_TIMEOUT", "0.5")
    monkeypatch.setenv("REGISTRY_LOCK_TIMEOUT", "0.2")
    monkeypatch.setenv("REGISTRY_TRIES", "2")


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short name: the path of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        yield Path(name)


@pytest.fixture
def proxy(short_folder: Path, postgres_server: PostgresServer) -> Iterator[PostgresProxy]:
    with proxied(short_folder, postgres_server.folder) as made:
        yield made


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    return postgres_server.create_database(template="catalog_template")


def said(action: Callable[[], object]) -> RegistryError:
    """The error of ``action``, which repeats no password."""
    with pytest.raises(RegistryError) as caught:
        action()
    assert "hunter2" not in f"{caught.value} {caught.value.hint} {caught.value.details}"
    return caught.value


def check_command_line(url: str, exit_code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """``registry list`` ends with that exit code, and neither blames the registry nor shows a password."""
    capsys.readouterr()
    assert run(["list", "--catalog", url]) == exit_code
    text = capsys.readouterr().err
    assert text.startswith("error: ")
    assert "hint: " in text
    assert "fault of the registry" not in text
    assert "Traceback" not in text
    assert "hunter2" not in text


@contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    """The port of a server that answers each connection with a few bytes; with None, it never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept: list[socket.socket] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    kept.append(listener.accept()[0])
                    if answer is not None:
                        kept[-1].recv(1000)
                        kept[-1].sendall(answer)
                        kept[-1].close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for one in kept:
                one.close()
            thread.join(10)


def refusal(text: str, *, sqlstate: str = "08000", severity: str = "FATAL") -> bytes:
    """What a server sends that refuses a connection (ErrorResponse)."""
    body = f"S{severity}\0VFATAL\0C{sqlstate}\0M{text}\0\0".encode()
    return b"E" + (len(body) + 4).to_bytes(4, "big") + body


PLAIN = "127.0.0.1:{port}/x?sslmode=disable"
NO_ENTRY = 'no pg_hba.conf entry for host "10.0.0.1", user "ann", database "x", no encryption'
FAULTS: dict[str, tuple[str, bytes | None, int, str]] = {
    # What is wrong: the URL after the password, what the server answers, the exit code, and words of libpq.
    "nobody listens": ("127.0.0.1:1/x", None, 75, '"127.0.0.1", port 1 failed: Connection refused'),
    "no such host": ("nosuch.invalid/x", None, 75, "failed to resolve host 'nosuch.invalid'"),
    "silent": ("127.0.0.1:{port}/x", None, 75, "connection timeout expired"),
    "full": (PLAIN, refusal("sorry, too many clients already"), 75, ""),
    "starting": (PLAIN, refusal("the database system is starting up"), 75, ""),
    "no line in pg_hba.conf": (PLAIN, refusal(NO_ENTRY), 1, ""),
    "server without SSL": ("127.0.0.1:{port}/x?sslmode=require", b"N", 1, ""),
    "ends at once": (PLAIN, b"", 75, ""),
    "speaks HTTP": (PLAIN, b"HTTP/1.1 400 Bad Request\r\n\r\n", 75, ""),
    "unknown option": ("127.0.0.1:1/x?sslmood=require", None, 2, ""),
    "wrong option": ("127.0.0.1:1/x?sslmode=bad", None, 2, ""),
}
OF_LIBPQ = {
    r"(?<=127\.0\.0\.1:)\d+": "PORT",
    r"(?s)(?<=: )(connection|failed to).*?(?=\nhint)": "...",
    re.escape(", ".join(sorted(OPTIONS))): "OPTIONS",
}
"""What differs between runs and between versions of libpq."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_server_that_cannot_be_used_is_described(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    url, answer, exit_code, words = FAULTS[name]
    with answering(answer) as port:
        url = f"postgresql://ann:hunter2@{url.format(port=port)}"
        error = said(lambda: open_catalog(url))
        assert (error.exit_code, words in error.message) == (exit_code, True)
        check_error(GOLDEN / "catalog_faults.txt", name, error, OF_LIBPQ)
        check_command_line(url, exit_code, capsys)


@pytest.mark.parametrize(
    "login", ["locked:hunter2@/postgres", "postgres:hunter2@/missing", "stranger:hunter2@/postgres"]
)
def test_a_connection_that_is_refused_for_good_is_not_a_temporary_fault(
    postgres_server: PostgresServer, capsys: pytest.CaptureFixture[str], login: str
) -> None:
    url = f"postgresql://{login}?host={postgres_server.folder}"
    error = said(lambda: open_catalog(url))
    assert error.exit_code == 1
    folder = str(postgres_server.folder)
    replacing = {re.escape(folder): "FOLDER", re.escape(quote(folder, safe="")): "FOLDER"}
    check_error(GOLDEN / "catalog_faults.txt", login, error, replacing)
    check_command_line(url, 1, capsys)


REFUSALS: list[tuple[str, str, str, type[RegistryError], str | None]] = [
    # What PostgreSQL says in German and Russian, and what PostgreSQL and PgBouncer say in English.
    ("28P01", "FATAL", "Passwort-Authentifizierung für Benutzer »ann« fehlgeschlagen", CatalogRefusedError, "password"),
    ("28P01", "ВАЖНО", 'пользователь "ann" не прошёл проверку подлинности', CatalogRefusedError, "password"),
    ("28000", "FATAL", "Rolle »ann« existiert nicht", CatalogRefusedError, "user"),
    ("3D000", "ВАЖНО", 'база данных "x" не существует', CatalogRefusedError, "database"),
    ("3D000", "FATAL", "no existe la base de datos «x»", CatalogRefusedError, "database"),
    ("42501", "FATAL", "keine Berechtigung für Datenbank x", CatalogPermissionError, None),
    ("53300", "FATAL", "tut mir leid, schon zu viele Verbindungen", CatalogUnavailableError, None),
    ("57P03", "ВАЖНО", "система баз данных запускается", CatalogUnavailableError, None),
    ("08P01", "FATAL", "no such database: x", CatalogRefusedError, "database"),
    ("08P01", "FATAL", "no such user: ann", CatalogRefusedError, "user"),
    ("08P01", "FATAL", "unsupported startup parameter: options", CatalogRefusedError, "rule"),
    ("08P01", "FATAL", "pgbouncer cannot connect to server", CatalogUnavailableError, None),
    ("42501", "FATAL", 'permission denied for database "x"', CatalogPermissionError, None),
    ("28000", "FATAL", 'role "ann" is not permitted to log in', CatalogRefusedError, "user"),
    ("28000", "FATAL", 'Peer authentication failed for user "ann"', CatalogRefusedError, "user"),
    ("28000", "FATAL", 'pg_hba.conf rejects connection for host "h", user "ann"', CatalogRefusedError, "rule"),
    ("53300", "FATAL", "remaining connection slots are reserved", CatalogUnavailableError, None),
    ("57P03", "FATAL", "the database system is not yet accepting connections", CatalogUnavailableError, None),
]


@pytest.mark.parametrize(("sqlstate", "severity", "text", "kind", "reason"), REFUSALS)
def test_a_refusal_is_understood_in_every_language(
    sqlstate: str, severity: str, text: str, kind: type[RegistryError], reason: str | None
) -> None:
    with answering(refusal(text, sqlstate=sqlstate, severity=severity)) as port:
        error = said(lambda: open_catalog(f"postgresql://ann:hunter2@127.0.0.1:{port}/x?sslmode=disable"))
    assert type(error) is kind, error
    assert text in error.message
    assert error.details.get("reason") == reason
    assert error.exit_code == (75 if kind is CatalogUnavailableError else 1)


def test_a_missing_password_is_a_refusal_and_not_tried_again(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("PGPASSWORD", "PGPASSFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    attempts: list[object] = []
    connect = psycopg.Connection.connect.__func__  # type: ignore[attr-defined]

    def counted(cls: type, *arguments: object, **options: object) -> object:
        attempts.append(options)
        return connect(cls, *arguments, **options)

    monkeypatch.setattr(psycopg.Connection, "connect", classmethod(counted))
    url = f"postgresql://locked@/postgres?host={postgres_server.folder}"
    error = said(lambda: open_catalog(url))
    assert (type(error), error.exit_code, len(attempts)) == (CatalogRefusedError, 1, 1)
    assert error.message.endswith("failed: fe_sendauth: no password supplied")
    assert error.details == {"reason": "password", "sqlstate": None}
    line = f"{postgres_server.folder}:5432:postgres:locked:PASSWORD"
    assert str(error.hint).endswith(f"PGPASSWORD or a line in ~/.pgpass (mode 0600) is used: {line}")
    check_command_line(url, 1, capsys)

    passfile = tmp_path / "pgpass"
    passfile.write_text(line.replace("PASSWORD", "right") + "\n")
    passfile.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passfile))  # the line of the hint is the right one
    assert type(said(lambda: open_catalog(url))) is not CatalogRefusedError


def test_a_role_that_may_not_connect_lacks_a_right(
    postgres_server: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres_server.create_database(template="catalog_template")
    execute(url, f"REVOKE CONNECT ON DATABASE {database_of(url)} FROM PUBLIC")
    url = url.replace("postgres@", "locked:right@")
    error = said(lambda: open_catalog(url))
    assert type(error) is CatalogPermissionError
    assert str(error.hint).endswith("registry db grant locked --as LEVEL")
    check_command_line(url, 1, capsys)


def test_all_hosts_of_a_url_are_named() -> None:
    error = said(lambda: open_catalog("postgresql://ann@/x?host=127.0.0.1:1&host=nosuch.invalid:5432"))
    assert type(error) is CatalogUnavailableError
    assert 'connection to server at "127.0.0.1", port 1 failed' in error.message
    assert "nosuch.invalid" in error.message


def test_a_role_without_a_free_connection_is_a_temporary_fault(
    postgres_server: PostgresServer, postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    postgres_server.execute("CREATE ROLE crowded LOGIN CONNECTION LIMIT 0")
    url = postgres_url.replace("postgres@", "crowded:hunter2@")
    assert "accepts no more connections at the moment: " in said(lambda: open_catalog(url)).message
    check_command_line(url, 75, capsys)


def test_a_connection_to_a_silent_server_is_closed(proxy: PostgresProxy, postgres_url: str) -> None:
    with open_catalog(proxy.url(database_of(postgres_url))) as catalog:
        publish(catalog, "mnist:1.0.0")
        proxy.trigger, proxy.fault = b"dataset_version", SILENT
        error = said(lambda: catalog.find("mnist"))
        assert type(error) is CatalogUnavailableError
        assert error.message.endswith("does not answer: no answer for 0.5 seconds")
        assert catalog.find("mnist").num_examples == 9, "the next look-up has a connection of its own"


def test_a_migration_may_take_longer_than_other_statements(proxy: PostgresProxy, postgres_url: str) -> None:
    # Each revision of the schema waits longer than REGISTRY_QUERY_TIMEOUT allows.
    url = proxy.url(database_of(postgres_url))
    schema.downgrade(url, "base")
    execute(
        postgres_url,
        "CREATE FUNCTION slow() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.8); END'",
    )
    execute(
        postgres_url,
        "CREATE EVENT TRIGGER slow ON ddl_command_start WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION slow()",
    )
    schema.upgrade(url, "0002")
    assert schema.status(url).revision == "0002"


@pytest.mark.parametrize("times", [1, 4])
def test_a_connection_that_is_lost_before_the_commit_is_made_again(
    proxy: PostgresProxy, postgres_url: str, times: int
) -> None:
    with open_catalog(proxy.url(database_of(postgres_url))) as catalog:
        proxy.trigger, proxy.fault, proxy.times = b"INSERT INTO dataset_version", CUT, times
        publish(catalog, "mnist:1.0.0")
        assert [one.action for one in logged(catalog)] == ["publish"]
        assert len(proxy.seen) == times


def test_a_connection_that_is_always_lost_is_given_up(proxy: PostgresProxy, postgres_url: str) -> None:
    with open_catalog(proxy.url(database_of(postgres_url))) as catalog:
        proxy.trigger, proxy.fault, proxy.times = b"INSERT INTO dataset_version", CUT, 100
        error = said(lambda: publish(catalog, "mnist:1.0.0"))
        assert error.exit_code == 75
        assert " was lost: " in error.message
        assert error.hint == "Run the same command again; nothing was changed."
        assert len(proxy.seen) == 5
        assert catalog.datasets() == ()


@pytest.mark.parametrize(("fault", "is_saved"), [(CUT, False), (CUT_ANSWER, True), (SILENT, False)])
def test_a_commit_without_an_answer_is_not_tried_again(
    proxy: PostgresProxy, postgres_url: str, fault: str, is_saved: bool
) -> None:
    version, shards = sample("mnist:1.0.0")
    with open_catalog(proxy.url(database_of(postgres_url))) as catalog:
        proxy.trigger, proxy.fault, proxy.times = b"COMMIT\0", fault, 100
        error = said(lambda: catalog.publish(version, shards, promote=True, actor="ann"))
        proxy.times = 0
        assert error.exit_code == 75
        assert " was lost during a commit, so the change may or may not be saved: " in error.message
        assert error.hint.startswith("Look for the change with: registry log --catalog ")
        assert len(proxy.seen) == 1
        assert [one.name for one in catalog.datasets()] == ["mnist"] * is_saved
        again = catalog.publish(version, shards, promote=True, actor="ann")
        assert again is not None, "it is this call's own publication, whether it was saved before or now"
        assert (again.before, again.after, again.reason) == (None, version.version, None)
        assert catalog.publish(version, shards, promote=True, actor="ann") is None
        assert len(list(logged(catalog))) == 1


def test_a_server_that_dies_and_is_restarted(short_folder: Path) -> None:
    server = PostgresServer(short_folder)
    server.start(fsync=True)  # what is committed survives its death
    try:
        server.execute("CREATE DATABASE catalog")
        url = server.url("catalog")
        schema.upgrade(url)
        with open_catalog(url) as catalog:
            publish(catalog, "mnist:1.0.0")

            def stop(connection: sa.Connection) -> None:
                connection.exec_driver_sql("UPDATE dataset_version SET state = 'yanked'")
                if (short_folder / "data" / "postmaster.pid").exists():
                    server.stop()
                connection.exec_driver_sql("SELECT 1")

            engine = open_engine(url)
            error = said(lambda: write(engine, stop))
            engine.dispose()
            assert type(error) is CatalogUnavailableError
            assert type(said(lambda: catalog.find("mnist"))) is CatalogUnavailableError
            server.resume()
            assert catalog.find("mnist").state.value == "supported"
            publish(catalog, "mnist:2.0.0")
    finally:
        with suppress(RuntimeError):
            server.stop()


POSTGRES_REFUSALS: dict[str, tuple[str, type[RegistryError], str, str]] = {
    "53100": (
        "53100",
        CatalogUnavailableError,
        "has run out of a resource: no space left",
        "Nothing was changed. Try again when the server has space, memory or connections left.",
    ),
    "57014": (
        "57014",
        CatalogUnavailableError,
        "cancelled a statement: no space left",
        "Run the same command again; nothing was changed.",
    ),
    "58030": (
        "58030",
        CatalogUnavailableError,
        "cannot read or write its files: no space left",
        "Check the server's log, then try again.",
    ),
    "XX001": (
        "XX001",
        CatalogError,
        "reports an internal error: no space left",
        "Check the server's log; the database may have to be restored from a backup.",
    ),
    "25006": (
        "25006",
        CatalogPermissionError,
        "is read-only: no space left",
        "Name the primary server in the URL, or switch default_transaction_read_only off.",
    ),
}


@pytest.mark.parametrize("name", POSTGRES_REFUSALS)
def test_a_statement_that_the_server_refuses_is_described(postgres_url: str, name: str) -> None:
    state, kind, message, hint = POSTGRES_REFUSALS[name]
    execute(
        postgres_url,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = '{state}'; END$$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON shard EXECUTE FUNCTION refuse()",  # within COPY
    )
    with open_catalog(postgres_url) as catalog:
        error = said(lambda: publish(catalog, "mnist:1.0.0"))
        assert type(error) is kind
        assert error.message.endswith(message)
        assert error.hint == hint
        assert catalog.datasets() == ()


def test_a_read_only_replica_can_be_read(postgres_url: str) -> None:
    with open_catalog(postgres_url) as catalog:
        publish(catalog, "mnist:1.0.0")
    execute(postgres_url, f"ALTER DATABASE {database_of(postgres_url)} SET default_transaction_read_only = on")
    with open_catalog(postgres_url) as catalog:
        assert catalog.find("mnist").num_examples == 9
        error = said(lambda: publish(catalog, "mnist:2.0.0"))
        assert type(error) is CatalogPermissionError
        assert " is read-only: cannot execute " in error.message
        assert error.exit_code == 1
    error = said(lambda: schema.downgrade(postgres_url, "0007"))
    assert " is read-only: " in error.message


def test_a_role_that_may_only_read_can_read(postgres_server: PostgresServer, postgres_url: str) -> None:
    postgres_server.execute("CREATE ROLE reader LOGIN")
    execute(postgres_url, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    with open_catalog(postgres_url) as catalog:
        publish(catalog, "mnist:1.0.0")
    with open_catalog(postgres_url.replace("postgres@", "reader@")) as catalog:
        assert catalog.find("mnist").num_examples == 9
        error = said(lambda: publish(catalog, "mnist:2.0.0"))
        assert type(error) is CatalogPermissionError
        assert " refuses it: permission denied for " in error.message
        assert error.hint == (
            "Your database user lacks this right. The owner of the database can grant it, with LEVEL "
            "reader, publisher, curator or admin: registry db grant reader --as LEVEL"
        )


def test_the_hint_of_an_old_schema_can_be_pasted_although_the_password_is_hidden(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url = postgres_server.create_database().replace("postgres@", "postgres:hunter2@")
    error = said(lambda: open_catalog(url))
    assert type(error) is SchemaBehindError
    assert error.hint == 'Create one with: registry db upgrade --catalog "$REGISTRY_CATALOG"'


@pytest.mark.parametrize("name", ["REGISTRY_LOCK_TIMEOUT", "REGISTRY_QUERY_TIMEOUT", "REGISTRY_TRIES"])
def test_a_limit_is_a_positive_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "soon")
    error = said(lambda: open_catalog(tmp_path / "catalog.db"))
    assert error.message == f"{name} is 'soon': expected a positive number"
    assert error.exit_code == 2


def test_a_value_that_psycopg_does_not_send_is_a_wrong_value() -> None:
    error = translate(
        psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes"), parse_url("postgresql://h/x")
    )
    assert type(error) is UsageError


@pytest.fixture
def opened(sqlite_template: Path, tmp_path: Path) -> Iterator[tuple[CatalogBackend, Path]]:
    path = Path(shutil.copy(sqlite_template, tmp_path / "catalog.db"))
    with open_catalog(path) as catalog:
        publish(catalog, "mnist:1.0.0")
        yield catalog, path


ACTIONS: dict[str, Callable[[CatalogBackend], object]] = {
    "read": lambda catalog: catalog.find("mnist"),
    "write": lambda catalog: publish(catalog, "mnist:2.0.0"),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("is_connected", [True, False])
def test_a_file_that_is_deleted_while_it_is_open(opened: Any, action: str, is_connected: bool) -> None:
    catalog, path = opened
    if not is_connected:
        catalog.close()
    for file in path.parent.glob("catalog.db*"):
        file.unlink()
    error = said(lambda: ACTIONS[action](catalog))
    assert type(error) is CatalogError
    assert error.message == f"sqlite:///{path} was deleted or moved while it was open"
    assert error.hint == "Restore the file from a copy, or move it back, and open the catalog again."
    assert not path.exists()


@pytest.mark.parametrize("action", ACTIONS)
def test_a_file_that_is_replaced_while_it_is_open(opened: Any, action: str, sqlite_template: Path) -> None:
    catalog, path = opened
    shutil.copy(sqlite_template, path.with_name("new.db")).replace(path)
    for file in path.parent.glob("catalog.db-*"):  # else SQLite applies the old log to the new file
        file.unlink()
    error = said(lambda: ACTIONS[action](catalog))
    assert type(error) is CatalogError
    assert error.message == f"sqlite:///{path} was replaced by another file while it was open"
    with open_catalog(path) as again:
        assert again.datasets() == ()


def test_tables_that_disappear_are_named(opened: Any) -> None:
    catalog, path = opened
    with closing(sqlite3.connect(path)) as stranger:
        stranger.execute("DROP TABLE alias")
    error = said(catalog.aliases.list)
    assert error.message == (
        f"sqlite:///{path} has no table 'alias': it is damaged, or was replaced by another file while it was open"
    )
    assert error.hint == "Compare it with its schema: registry db check."


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def _overwrite(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 : len(data)] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)


def _write_text(path: Path) -> None:
    path.write_text("Dear diary, " * 1000)


@pytest.mark.parametrize(
    ("break_it", "kind"), [(_truncate, CatalogError), (_overwrite, CatalogError), (_write_text, NotACatalogError)]
)
def test_a_file_that_is_damaged(
    tmp_path: Path,
    sqlite_template: Path,
    capsys: pytest.CaptureFixture[str],
    break_it: Callable[[Path], None],
    kind: type[CatalogError],
) -> None:
    path = Path(shutil.copy(sqlite_template, tmp_path / "catalog.db"))
    break_it(path)
    error = said(lambda: open_catalog(path))
    assert type(error) is kind
    assert " is damaged: " in error.message or error.message.endswith(" is not a database")
    check_command_line(str(path), 1, capsys)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (".", "is a folder"),
        ("file/catalog.db", "cannot be opened: Not a directory"),
        ("x" * 300, "cannot be opened: File name too long"),
        ("loop/catalog.db", "cannot be opened: Too many levels of symbolic links"),
        ("fifo", "is not a regular file"),
    ],
)
def test_a_path_that_cannot_be_a_catalog(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "fifo")
    error = said(lambda: open_catalog(tmp_path / name))
    assert message in error.message
    check_command_line(str(tmp_path / name), 1, capsys)


def test_a_file_that_is_locked_for_long(opened: Any, capsys: pytest.CaptureFixture[str]) -> None:
    catalog, path = opened
    with closing(sqlite3.connect(path, isolation_level=None)) as rival:
        rival.execute("BEGIN IMMEDIATE")
        error = said(lambda: publish(catalog, "mnist:2.0.0"))
        assert type(error) is CatalogUnavailableError
        assert error.message == f"sqlite:///{path} is locked"
        assert error.hint == "Another process is writing to it. Try again; nothing was changed."
        capsys.readouterr()
        arguments = ["yank", "mnist:1.0.0", "--reason", "wrong", "--catalog", str(path)]
        assert run(arguments) == 75
        assert "is locked\n" in capsys.readouterr().err


FULL_DISK_HINT = "Nothing was changed. Check that the disk has space left, and that `ulimit -f` allows larger files."


@FORKING
def test_a_full_disk_is_not_a_temporary_fault(tmp_path: Path, sqlite_template: Path) -> None:
    # Exit code 1, as for a shard that does not fit: the same command fails again until somebody frees space.
    path = Path(shutil.copy(sqlite_template, tmp_path / "catalog.db"))
    (tmp_path / "new").mkdir()

    def fill_disk() -> bool:
        with open_catalog(path) as catalog:
            # Python ignores SIGXFSZ, so a write beyond the limit fails as on a full disk.
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
            errors = [said(lambda: publish(catalog, "mnist:1.0.0")), said(lambda: open_catalog(tmp_path / "new/x.db"))]
            assert catalog.datasets() == ()
        for error in errors:
            assert type(error) is CatalogError, error
            assert " cannot be written: " in error.message
            assert error.hint == FULL_DISK_HINT
        assert run(["db", "upgrade", "--catalog", str(tmp_path / "new/y.db")]) == 1
        return True

    assert in_child(fill_disk)
    with open_catalog(path) as catalog:
        publish(catalog, "mnist:1.0.0")


def test_a_database_that_sqlite_reports_as_full_is_not_a_temporary_fault(sqlite_template: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(sqlite_template, tmp_path / "catalog.db"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA max_page_count = 1")  # SQLite reports this limit as it reports ENOSPC
        with pytest.raises(sqlite3.Error) as caught:
            connection.execute("CREATE TABLE large AS SELECT zeroblob(1000000)")
    assert caught.value.sqlite_errorname == "SQLITE_FULL"
    error = translate(caught.value, parse_url(path))
    assert type(error) is CatalogError
    assert error.message == f"sqlite:///{path} cannot be written: database or disk is full"
    assert error.hint == FULL_DISK_HINT


@FORKING
def test_a_folder_without_permission(sqlite_template: Path) -> None:
    with tempfile.TemporaryDirectory() as name:  # not below tmp_path, which other users may not enter
        folder = Path(name)
        shutil.copy(sqlite_template, folder / "catalog.db")
        (folder / "closed").mkdir(mode=0o000)
        (folder / "unreadable.db").touch(mode=0o000)
        folder.chmod(0o555)

        def look() -> bool:
            if os.geteuid() == 0:  # root may do everything
                os.setuid(65534)
            messages = {
                "new.db": "cannot be opened: permission denied",
                "closed/catalog.db": "cannot be opened: permission denied",
                "unreadable.db": "cannot be opened: permission denied",
            }
            for one, message in messages.items():
                error = said(lambda one=one: open_catalog(folder / one))
                assert type(error) is CatalogError, error
                assert error.message.endswith(message), error
                assert run(["db", "upgrade", "--catalog", str(folder / one)]) == 1
            return True

        assert in_child(look)
        folder.chmod(0o755)


def database_of(url: str) -> str:
    return str(sa.make_url(url).database)


def test_without_a_database_in_the_url_the_hint_has_the_one_of_the_user() -> None:
    text = 'connection failed: connection to server at "::1", port 5432 failed: FATAL:  database "ann" does not exist'
    error = translate(psycopg.OperationalError(text), sa.make_url("postgresql+psycopg://ann@127.0.0.1/"))
    assert error.hint == "Correct the name in the URL, or create the database: createdb ann"


def test_what_psycopg_says_of_a_connection_that_ends_during_a_rollback_is_a_lost_connection() -> None:
    """Beside PgBouncer, about one in ten crowds whose connections are killed met it."""
    error = psycopg.InternalError("received 2 results from command 'ROLLBACK'")
    found = translate(error, sa.make_url("postgresql+psycopg://ann@127.0.0.1/"))
    assert type(found) is CatalogUnavailableError
    assert found.hint == "Run the same command again; nothing was changed."


def test_a_server_of_another_kind_than_the_url_asks_for_is_named(postgres_url: str) -> None:
    error = said(lambda: open_catalog(f"{postgres_url}&target_session_attrs=standby"))
    assert type(error) is CatalogUnavailableError
    assert error.hint == (
        "The server is running, but target_session_attrs requires another kind of server. Change "
        "target_session_attrs in the URL (or PGTARGETSESSIONATTRS), or name a server of that kind."
    )


def test_a_reader_that_waited_for_a_lock_has_changed_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_catalog(postgres_url).close()
    monkeypatch.setenv("REGISTRY_LOCK_TIMEOUT", "0.02")
    with closing(psycopg.connect(postgres_url.replace("+psycopg", ""))) as rival:
        engine = open_engine(postgres_url)
        rival.execute("LOCK TABLE builder IN ACCESS EXCLUSIVE MODE")
        error = said(lambda: SqlCatalog(engine).find("mnist"))
        assert error.hint == "Another process is writing to it. Try again."
        engine.dispose()
