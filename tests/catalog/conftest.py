"""An open catalog for each kind of database, and publishers in processes of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from support import FOLDER, TESTS, warm_python
from support.catalog_pooler import PROGRAM, Pooler, pooled
from support.catalog_server import PostgresServer
from support.services import TestServer, served
from support.sites import sited

from registry.catalog import CatalogBackend, open_catalog

Start = Callable[..., "subprocess.Popen[str]"]


PROTOCOL = {"aliases", "experiments", "fingerprints", "history", "lifecycle", "lookup", "protection", "publish"}
PROTOCOL |= {"backend", "locations", "origins", "producers", "reservations", "search", "stored_lengths"}
PROTOCOL |= {"attachments", "proposals", "removals", "renaming"}
"""The files ``test_catalog_NAME.py`` that are the behaviour suite of the catalog protocol."""

SITED = {"experiments", "fingerprints", "history", "lookup", "producers", "search", "stored_lengths"}
"""Those of them that also read the catalog as a site: it must give the same answers over a web server."""

IN_PROCESS = {
    "test_a_change_whose_event_cannot_be_written_is_undone",
    "test_a_catalog_that_was_taken_back_and_up_again_is_protected_as_before",
    "test_an_action_that_is_interrupted_leaves_nothing",
    "test_a_default_is_true_or_false",
    "test_more_than_a_person_types_is_refused",
    "test_text_that_no_database_stores_is_refused",
    "test_a_database_refuses_what_no_json_says",
    "test_search_has_no_special_characters",
    "test_a_search_without_a_word_is_refused",
}
"""Tests of the protocol about what no JSON says (wrong types, half characters) or about the process of the catalog."""

PROCESSES = {"start_script", "start_publisher"}
"""The fixtures that start processes which write into the catalog."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test runs on both databases, and those of the protocol over HTTP, too, through which only values get.

    Those that mostly read run on a site, too.
    """
    chosen = any("catalog_url" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "catalog_url" in metafunc.fixturenames and not chosen:
        name = metafunc.module.__name__.rpartition(".")[2].removeprefix("test_catalog_")
        is_remote = name in PROTOCOL and "catalog" in metafunc.fixturenames
        remote: list[Any] = ["served"] if is_remote and metafunc.function.__name__ not in IN_PROCESS else []
        sqlite: Any = "sqlite"
        if PROCESSES & set(metafunc.fixturenames):
            # The processes open the SQLite file themselves, so this differs little from the test on SQLite.
            remote = [pytest.param(each, marks=pytest.mark.long) for each in remote]
        elif remote:
            # Behind the service is an SQLite catalog.
            sqlite = pytest.param(sqlite, marks=pytest.mark.long)
            remote.append(pytest.param("served-postgresql", marks=pytest.mark.long))
        is_sited = name in SITED and "catalog" in metafunc.fixturenames and "queries" not in metafunc.fixturenames
        sites = [pytest.param("sited", marks=pytest.mark.long)] if is_sited else []
        metafunc.parametrize("catalog_url", [sqlite, "postgresql", *remote, *sites], indirect=True)


@pytest.fixture
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a catalog without datasets; the one behind the service is an SQLite file, or in PostgreSQL."""
    if request.param.endswith("postgresql"):
        server = request.getfixturevalue("postgres_server")
        url: str = server.take_catalog()
        yield request.getfixturevalue("pooler").url(url) if PROGRAM else url
        if not PROCESSES & set(request.fixturenames):  # they may still write
            server.give_back(url)
        return
    template: Path = request.getfixturevalue("sqlite_template")
    yield f"sqlite:///{shutil.copy(template, tmp_path / 'catalog.db')}"


@pytest.fixture(scope="session")
def pooler(postgres_server: PostgresServer) -> Iterator[Pooler]:
    """PgBouncer in transaction mode, which all clients of a test process share."""
    with pooled(postgres_server) as started:
        yield started


@pytest.fixture(scope="session")
def server() -> Iterator[TestServer]:
    """A service, which all tests of a process share."""
    started = TestServer()
    yield started
    started.stop()


@pytest.fixture
def catalog(request: pytest.FixtureRequest, catalog_url: str) -> Iterator[CatalogBackend]:
    """A catalog without datasets, on each kind of database; for the behaviour suite also over HTTP."""
    kind = str(request.node.callspec.params.get("catalog_url"))
    with open_catalog(catalog_url) as opened:
        if kind.startswith("served"):
            with served(opened, request.getfixturevalue("server")) as client:
                yield client
        elif kind == "sited":
            with sited(opened, request.getfixturevalue("tmp_path")) as client:
                yield client
        else:
            yield opened


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def lasting_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a catalog that the tests of a file share, once for each kind of database."""
    if request.param == "postgresql":
        url: str = request.getfixturevalue("postgres_server").create_database(template="catalog_template")
        return url
    template: Path = request.getfixturevalue("sqlite_template")
    return f"sqlite:///{shutil.copy(template, tmp_path_factory.mktemp('lasting') / 'catalog.db')}"


@pytest.fixture
def start_script() -> Iterator[Start]:
    """Start a script of ``tests/support`` with arguments; what still runs at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        command = [sys.executable, str(FOLDER / script), *arguments]
        process = warm_python.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def start_publisher(start_script: Start) -> Start:
    """Start ``catalog_publisher.py`` with arguments."""
    return partial(start_script, "catalog_publisher.py")


@pytest.fixture
def queries() -> Iterator[list[str]]:
    """The SELECT statements that any engine has run since the list was last cleared."""
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        is_authentication = "FROM access_token" in statement or statement.startswith("SELECT clock_timestamp()")
        if statement.lstrip().upper().startswith("SELECT") and not is_authentication:
            seen.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    yield seen
    sa.event.remove(sa.Engine, "before_cursor_execute", note)


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without tables, once for each kind; the SQLite file does not exist yet."""
    if request.param == "postgresql":
        url: str = request.getfixturevalue("postgres_server").create_database()
        return url
    return f"sqlite:///{tmp_path / 'restored.db'}"
