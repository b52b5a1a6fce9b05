"""Catalogs and datasets in spawned workers: pickled by URL, never with a password."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from pathlib import Path

import pytest
from support.catalog_server import PostgresServer
from support.prepared_samples import prepare

import registry
from registry.errors import UsageError


@pytest.fixture
def opened(catalog_url: str, tmp_path: Path) -> registry.Catalog:
    catalog = registry.connect(catalog_url, data_dir=tmp_path / "data")
    catalog.publish(prepare(tmp_path / "1.0.0", "1.0.0"))
    return catalog


def test_a_copy_answers_as_the_original(opened: registry.Catalog) -> None:
    dataset = opened.dataset("animals")
    for clone in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset)):  # noqa: S301 (our own)
        assert clone.reference == dataset.reference
        assert list(clone.read("train")) == list(dataset.read("train"))
    for clone in (pickle.loads(pickle.dumps(opened)), copy.deepcopy(opened)):  # noqa: S301 (our own)
        assert (clone.url, clone.data_dir) == (opened.url, opened.data_dir)
        assert clone.datasets() == opened.datasets()
        clone.close()
    opened.close()


def test_spawned_workers_read_a_dataset(opened: registry.Catalog) -> None:
    dataset = opened.dataset("animals:1.0.0")
    expected = dataset.splits["train"].num_examples
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(len, [dataset.read("train")]) == [expected]
        assert pool.map(repr, [dataset]) == [repr(dataset)]
        assert pool.map(registry.Catalog.datasets, [opened]) == [opened.datasets()]
    opened.close()


def test_a_password_is_never_pickled(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.create_database(template="catalog_template").replace("postgres@", "postgres:hunter2@")
    with registry.connect(url, data_dir=tmp_path / "data") as catalog:
        with pytest.raises(UsageError, match="cannot be pickled, because its URL contains a password") as caught:
            pickle.dumps(catalog)
        assert "hunter2" not in f"{caught.value}{caught.value.hint}"
        monkeypatch.setenv("REGISTRY_CATALOG", url)
        packed = pickle.dumps(catalog)
        assert b"hunter2" not in packed
        pickle.loads(packed).close()  # noqa: S301 (our own)
        monkeypatch.setenv("REGISTRY_CATALOG", "")
        with pytest.raises(UsageError, match="the password of its URL is not in the pickle"):
            pickle.loads(packed)  # noqa: S301 (our own)
