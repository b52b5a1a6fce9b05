"""The catalog of a site is written to a folder or a bucket, and read by ``registry.connect``."""

from __future__ import annotations

import gzip
import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support.web_server import serve

import registry
from registry.catalog.site_index import SiteIndex, parse_site_index
from registry.errors import ConflictError, DatasetNotFoundError, UsageError
from registry.pages.site_index import write_index
from registry.pins.keys import key_id
from registry.pins.signature import verify_index
from registry.storage import Store, open_store

ADA = Ed25519PrivateKey.from_private_bytes(b"a" * 32)


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader's machine, whose cache and data folder are empty."""
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "reader" / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "reader" / "data"))
    for name in ("REGISTRY_DATA_DIR", "REGISTRY_TRUSTED_KEYS", "REGISTRY_CATALOG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def published(catalog: registry.Catalog) -> registry.Catalog:
    """Two versions of ``numbers``, and one of ``words``."""
    catalog.add({"number": range(100)}, name="numbers")
    catalog.add({"number": range(120)}, name="numbers")
    catalog.add({"word": ["a", "b"]}, name="words")
    catalog.aliases.set("paper", "numbers:1.0.0")
    return catalog


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """The place of a site."""
    if request.param == "bucket":
        return open_store(f"{request.getfixturevalue('bucket')}/some/site")
    return open_store(tmp_path / "www" / "site")


def write(catalog: registry.Catalog, store: Store, **options: Any) -> SiteIndex:
    """Write the catalog of a site, and its index last."""
    index = write_index(catalog.backend, store, **options)
    store.write_bytes("site.json", index.to_json(), overwrite=True)
    return index


def test_the_files_are_those_that_the_index_names(published: registry.Catalog, store: Store) -> None:
    index = write(published, store, data_url="data/")
    packed, plain = store.read_bytes(index.path), store.read_bytes("catalog.db")
    assert (len(packed), hashlib.sha256(packed).hexdigest()) == (index.compressed_bytes, index.compressed_sha256)
    assert (len(plain), hashlib.sha256(plain).hexdigest()) == (index.num_bytes, index.sha256)
    assert gzip.decompress(packed) == plain
    assert index.data_url == "data/"
    assert index.signature is None
    assert store.list() == ["catalog.db", index.path, "site.json"]


def test_a_site_that_is_written_again_keeps_every_byte(
    published: registry.Catalog, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = write(published, store, key=ADA)
    earlier = replace(index, made_at=index.made_at - timedelta(days=9), signature=None)
    store.write_bytes("site.json", earlier.to_json(), overwrite=True)

    with monkeypatch.context() as patched:
        patched.setattr(type(store), "_create", lambda *_, **__: pytest.fail("a file was written"))
        assert write_index(published.backend, store) == earlier
        assert replace(write_index(published.backend, store, key=ADA), signature=None) == earlier
        assert write_index(published.backend, store, data_url="data/").made_at > earlier.made_at

    published.add({"number": range(130)}, name="numbers")
    later = write_index(published.backend, store)
    assert later.path != index.path
    assert store.exists(index.path)  # readers may have fetched the index that names it
    assert later.num_events == index.num_events + 1


def test_a_file_of_an_interrupted_run_is_written_again(published: registry.Catalog, store: Store) -> None:
    index = write(published, store)
    store.remove(index.path)
    store.remove("catalog.db")
    assert write_index(published.backend, store) == index
    assert store.list() == ["catalog.db", index.path, "site.json"]


def test_a_log_that_does_not_continue_that_of_the_site_is_refused(published: registry.Catalog, store: Store) -> None:
    index = write(published, store, datasets=["words"])
    files = store.list()
    for options in ({}, {"datasets": ["numbers"]}, {"datasets": ["words"], "with_actors": True}):
        with pytest.raises(ConflictError, match="does not continue the log of the site"):
            write_index(published.backend, store, **options)
    assert store.list() == files
    assert write_index(published.backend, store, datasets=["words"]) == index
    assert write_index(published.backend, store, new_log=True).num_events > index.num_events


@pytest.mark.parametrize("content", [b"", b"<html>", b"{}", b" " * 2**17])
def test_an_index_that_is_none_is_replaced(published: registry.Catalog, store: Store, content: bytes) -> None:
    store.write_bytes("site.json", content)
    if len(content) > 2**16:
        with pytest.raises(registry.StorageError):
            write_index(published.backend, store)
    else:
        index = write(published, store)
        assert parse_site_index(store.read_bytes("site.json")) == index


def test_wrong_choices_are_refused_before_anything_is_written(published: registry.Catalog, store: Store) -> None:
    with pytest.raises(DatasetNotFoundError):
        write_index(published.backend, store, datasets=["number"])
    for data_url in ("/srv/data/", "file:///srv/", "https://ann:PW@host/"):
        with pytest.raises(UsageError):
            write_index(published.backend, store, data_url=data_url)
    assert store.list() == []


def test_an_index_is_signed(published: registry.Catalog, store: Store) -> None:
    write(published, store, key=ADA, data_url="https://data.example/")
    index = parse_site_index(store.read_bytes("site.json"))
    assert verify_index(index, [ADA.public_key()]) == key_id(ADA.public_key())


@pytest.fixture
def site(tmp_path: Path, published: registry.Catalog) -> Iterator[str]:
    """The address of a site with its data."""
    top = tmp_path / "www" / "some" / "site"
    write(published, open_store(top), data_url="data/")
    shutil.copytree(tmp_path / "data", top / "data")
    with serve(tmp_path / "www") as started:
        yield f"{started}/some/site/"


def test_a_reader_sees_what_the_publisher_sees(site: str, published: registry.Catalog, tmp_path: Path) -> None:
    reader = registry.connect(site)
    assert [row.dataset for row in reader.datasets()] == ["numbers", "words"]
    for reference in ("numbers", "numbers@paper", "numbers:1.0.*", "words"):
        theirs, ours = reader.dataset(reference), published.dataset(reference)
        assert theirs.reference == ours.reference
        assert list(theirs.read("train")) == list(ours.read("train"))
        assert theirs.statistics == ours.statistics
        pins = [next(iter(one.pin("train[:50%]").values())).entry.model_dump() for one in (theirs, ours)]
        places = {name for name in pins[0] if pins[0][name] != pins[1][name]}
        assert places <= {"locations", "alias", "finder"}, pins
    assert {event.actor for event in reader.log()} == {"anonymous"}
    assert reader.verify_log().is_sound
    reader.verify_all(deep=True).require_sound()

    published.add({"number": range(130)}, name="numbers")
    published.rename("numbers", "integers")
    top = tmp_path / "www" / "some" / "site"
    write(published, open_store(top), data_url="data/")
    shutil.copytree(tmp_path / "data", top / "data", dirs_exist_ok=True)
    again = registry.connect(site)  # which refuses a log that does not continue the one it knows
    assert len(again.dataset("numbers").read("train")) == 130
    assert str(again.dataset("numbers@paper").reference) == "integers:1.0.0"
