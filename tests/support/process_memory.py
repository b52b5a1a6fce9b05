"""Caches what tests of a process would make again: SQL statements, entry points, the empty catalog, small pictures.

A program opens a catalog once, and SQLAlchemy compiles each statement once. A process of tests opens hundreds, and each
engine would compile the same statements again; each look-up of a builder would read the metadata of all installed
packages. Both are a seventh of the CPU time of the command line's tests. Most tests create a catalog, which takes 9 ms.
Some eighty builds of the digits encode the same 1,797 pictures.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from sqlalchemy.util import LRUCache

from registry import images
from registry.catalog import schema, session

ABOUT_CREATION = "tests/catalog/"
"""Tests of how a catalog is created."""


@contextmanager
def shared_by_tests() -> Iterator[None]:
    """Share them among the tests of this process."""
    create_engine, entry_points, create = sa.create_engine, importlib.metadata.entry_points, schema.create
    encode_png = images.encode_png
    statements = _Statements(2_000)

    def create_sharing_engine(*arguments: Any, **options: Any) -> sa.Engine:
        engine = create_engine(*arguments, **options)
        engine._compiled_cache = statements
        return engine

    @cache
    def read_entry_points(_folders: object, parameters: tuple[tuple[str, str], ...]) -> importlib.metadata.EntryPoints:
        return entry_points(**dict(parameters))

    def find_entry_points(**parameters: str) -> importlib.metadata.EntryPoints:
        return read_entry_points(tuple(_folders()), tuple(parameters.items()))

    def create_as_copy(engine: sa.Engine) -> None:
        path = Path(engine.url.database or "")
        is_about_creation = os.environ.get("PYTEST_CURRENT_TEST", "").startswith(ABOUT_CREATION)
        if is_about_creation or path.exists() or session.network_filesystem(path) is not None:
            return create(engine)
        with contextlib.suppress(OSError), tempfile.NamedTemporaryFile(dir=path.parent) as copy:
            copy.write(_empty_catalog(create))
            copy.flush()
            Path(copy.name).chmod(0o644)
            os.link(copy.name, path)  # no other process sees a part of the file
            return None
        return create(engine)

    @lru_cache(3_000)
    def encode_small(data: bytes, shape: tuple[int, ...], dtype: str) -> bytes:
        return encode_png(np.frombuffer(data, dtype).reshape(shape))

    def encode_png_once(array: Any, **options: Any) -> bytes:
        is_small = array.nbytes < 100 and not options
        return encode_small(array.tobytes(), array.shape, array.dtype.str) if is_small else encode_png(array, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "encode_png", encode_png_once)
        patch.setattr(schema, "create", create_as_copy)
        patch.setattr(sa, "create_engine", create_sharing_engine)
        patch.setattr(importlib.metadata, "entry_points", find_entry_points)
        yield


class _Statements(LRUCache):  # type: ignore[type-arg]
    """Compiled statements by the kind of database instead of by the engine: all engines of one kind compile alike."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_general(key), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_general(key), value)


def _general(key: tuple[Any, ...]) -> tuple[Any, ...]:
    dialect, *rest = key
    return (dialect.name, dialect.driver, dialect.server_version_info, *rest)


@cache
def _empty_catalog(create: Callable[[sa.Engine], None]) -> bytes:
    """The file of a catalog without datasets."""
    with tempfile.TemporaryDirectory() as folder:
        engine = session.open_engine(path := Path(folder, "catalog.db"))
        create(engine)
        engine.dispose()
        return path.read_bytes()


def _folders() -> Iterator[tuple[str, int]]:
    """The folders of packages and when each was changed: a test may install one."""
    for folder in sys.path:
        changed = 0
        with contextlib.suppress(OSError):  # it does not exist, or a test took the right to look at it
            changed = Path(folder).stat().st_mtime_ns
        yield folder, changed
