"""A shared catalog with the datasets ``lab_digits`` and ``secret_digits``, which stays as it is, and copies of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from support.service_calls import fill
from support.services import TestServer

from registry.catalog import open_catalog
from registry.catalog.sql_catalog import SqlCatalog

Copy = Callable[[], Any]


@pytest.fixture(scope="session")
def filled(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the shared catalog."""
    path = Path(shutil.copy(sqlite_template, tmp_path_factory.mktemp("shared") / "catalog.db"))
    with open_catalog(path) as catalog:
        fill(catalog, "lab_digits")
        fill(catalog, "secret_digits")
    return path


@pytest.fixture
def copy(filled: Path, tmp_path: Path) -> Copy:
    """Opens a fresh copy of the shared catalog."""

    @contextmanager
    def opened() -> Iterator[SqlCatalog]:
        with open_catalog(shutil.copy(filled, tmp_path / "catalog.db")) as catalog:
            yield cast("SqlCatalog", catalog)

    return opened


@pytest.fixture
def shared(copy: Copy) -> Iterator[SqlCatalog]:
    """A copy of the shared catalog."""
    with copy() as catalog:
        yield catalog


@pytest.fixture(scope="session")
def server() -> Iterator[TestServer]:
    """A service, which all tests of a process share."""
    started = TestServer()
    yield started
    started.stop()
