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

    create_or_require = schema.create_or_require

    def copy_first(engine: sa.Engine, *, create: bool) -> None:
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        if create and engine.dialect.name == "sqlite" and not test.startswith(ABOUT_MIGRATIONS):
            _copy_to(Path(engine.url.database or ""))
        create_or_require(engine, create=create)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "create_or_require", copy_first)
        yield


def _copy_to(path: Path) -> None:
    """All of the file or nothing, and only if no other process was first."""
    if path.exists():
        return
    with contextlib.suppress(OSError), NamedTemporaryFile(dir=path.parent, prefix=".ready-") as file:
        file.write(_catalog())
        file.flush()
        Path(file.name).chmod(0o644)
        Path(path).hardlink_to(file.name)


@cache
def _catalog() -> bytes:
    """The file of a catalog without datasets."""
    from registry.catalog import schema

    with TemporaryDirectory() as folder:
        path = Path(folder, "catalog.db")
        schema.upgrade(path)
        return path.read_bytes()
