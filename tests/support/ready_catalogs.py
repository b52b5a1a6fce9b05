"""Gives each test that creates an SQLite catalog a copy of the one that the migrations made once in this process.

The migrations take 40 ms, and hundreds of tests begin with a new catalog. Tests in ``tests/catalog`` and
``tests/conformance``, which are about the migrations, run them, and so does ``registry db upgrade`` everywhere.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

import pytest
import sqlalchemy as sa

ABOUT_MIGRATIONS = ("tests/catalog/", "tests/conformance/")


@contextmanager
def copied_catalogs() -> Iterator[None]:
    """Put the copy in place before a catalog is opened that does not exist yet; opening checks it as always."""
    from registry.catalog import schema

    create = schema.create

    def copy_first(engine: sa.Engine) -> None:
        path = Path(engine.url.database or "")
        is_about_migrations = os.environ.get("PYTEST_CURRENT_TEST", "").startswith(ABOUT_MIGRATIONS)
        if not is_about_migrations and not path.exists() and _copy_to(path):
            return
        create(engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "create", copy_first)
        yield


def _copy_to(path: Path) -> bool:
    """All of the file or nothing, and only if no other process was first."""
    with contextlib.suppress(OSError), NamedTemporaryFile(dir=path.parent, prefix=".ready-") as file:
        file.write(_catalog())
        file.flush()
        Path(file.name).chmod(0o644)
        Path(path).hardlink_to(file.name)
    return path.exists()


@cache
def _catalog() -> bytes:
    """The file of a catalog without datasets."""
    from registry.catalog import schema

    with TemporaryDirectory() as folder:
        path = Path(folder, "catalog.db")
        schema.upgrade(path)
        return path.read_bytes()
