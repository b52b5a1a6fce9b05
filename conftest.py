"""Gives the doctests of ``registry/`` a catalog: ``catalog`` with the published dataset ``digits``, also as ``digits``.

It is the default catalog for these tests, so ``registry.connect()`` and ``registry.load`` open it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import registry


@pytest.fixture(scope="session")
def _digits_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doctests")
    with registry.connect(folder / "catalog.db") as catalog:
        catalog.build("digits", processes=1)
    return folder


@pytest.fixture(scope="session")
def _doctest_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("doctest_cache")


@pytest.fixture(autouse=True)
def _doctest_catalog(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only doctests that mention the catalog pay for it. None uses the cache of the user who runs them."""
    node = request.node
    if not isinstance(node, pytest.DoctestItem):
        yield
        return
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(request.getfixturevalue("_doctest_cache")))
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "1GB")
    source = "".join(one.source for one in node.dtest.examples)  # type: ignore[union-attr] # set when collected
    if "catalog" not in source and "digits" not in source:
        yield
        return
    folder: Path = request.getfixturevalue("_digits_folder")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("REGISTRY_CATALOG", str(folder / "catalog.db"))
    with registry.connect() as catalog:
        node.dtest.globs.update(catalog=catalog, digits=catalog.dataset("digits"), registry=registry)  # type: ignore[union-attr] # the same
        yield
