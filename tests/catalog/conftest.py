"""An open catalog for each kind of database, and publishers in processes of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from registry.catalog import CatalogBackend, open_catalog

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[CatalogBackend]:
    """A catalog without datasets, on each kind of database."""
    with open_catalog(catalog_url) as opened:
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
    """Start a script of this folder with arguments; what still runs at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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
        if statement.lstrip().upper().startswith("SELECT"):
            seen.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    yield seen
    sa.event.remove(sa.Engine, "before_cursor_execute", note)
