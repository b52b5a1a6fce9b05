"""The Python API over a catalog on a server, which answers only the calls of the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from support.catalog_proxy import ProxyCatalog, serve

from registry.api import Catalog
from registry.api.catalog import remembering
from registry.api.locations import ClientDataDirectory
from registry.catalog import CatalogBackend, open_catalog
from registry.errors import CatalogUnavailableError, CatalogUnavailableWarning, DataDirectoryMissingError, UsageError

URL = "http://127.0.0.1:8000"


class ServedCatalog(ProxyCatalog):
    """A client whose URL is not that of a database."""

    url = URL
    file = None


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CatalogBackend]:
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "10MB")
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    with open_catalog(tmp_path / "catalog.db") as opened, serve(opened, tmp_path):
        yield cast("CatalogBackend", ServedCatalog(str(tmp_path / "catalog.socket")))


def client(backend: CatalogBackend, data_dir: Any = None) -> Catalog:
    return Catalog(backend, directory=ClientDataDirectory(backend, data_dir))


def test_data_is_added_found_sliced_read_pinned_and_verified(backend: CatalogBackend, tmp_path: Path) -> None:
    catalog = client(backend, tmp_path / "data")
    rows = [{"number": number} for number in range(100)]
    assert str(catalog.add(rows, "numbers").reference) == "numbers:1.0.0"
    assert str(catalog.add(rows[1:], "numbers").reference) == "numbers:2.0.0"
    dataset = client(backend).dataset("numbers:1.0.0")  # the catalog records the data directory
    assert dataset.resolve("train[:10%]").num_examples == 10
    assert sorted(int(example["number"]) for example in dataset.read("train")) == list(range(100))
    assert len(dataset.pin("train[:10%]")["train"].read()) == 10
    assert client(backend).verify_all().failed == ()
    assert [event.action for event in catalog.log()] == ["data-dir", "publish", "publish"]
    assert repr(catalog) == f"<Catalog {URL}, data in {tmp_path / 'data'}>"


def test_an_exact_version_is_known_when_the_server_is_gone(backend: CatalogBackend, tmp_path: Path) -> None:
    client(backend, tmp_path / "data").add([{"number": 1}], "numbers")
    before = client(remembering(URL, backend)).dataset("numbers:1.0.0")
    away = client(remembering(URL, CatalogUnavailableError("the server is gone")))
    with pytest.warns(CatalogUnavailableWarning, match="the server is gone\nnumbers:1.0.0 is as this machine looked"):
        dataset = away.dataset("numbers:1.0.0")
    assert dataset.facts == before.facts
    assert [int(example["number"]) for example in dataset.read("train")] == [1]


def test_a_data_directory_has_to_be_named_as_for_every_server(backend: CatalogBackend) -> None:
    with pytest.raises(DataDirectoryMissingError, match=f"^{URL} has no data directory"):
        client(backend).add([{"number": 1}], "numbers")
    with pytest.raises(UsageError, match="a relative path"):
        client(backend, "data").add([{"number": 1}], "numbers")
