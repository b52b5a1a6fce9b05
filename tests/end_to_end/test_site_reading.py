"""A catalog that is published as files: everything that reads works over a plain web server, and nothing writes."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.sites import make_site, snapshot
from support.web_server import serve

import registry
from registry.catalog.site_index import parse_site_index
from registry.cli.main import run
from registry.errors import (
    CatalogPermissionError,
    CatalogUnavailableWarning,
    DataDirectoryMissingError,
    FetchNotAllowedError,
    MissingExtraError,
    SignatureError,
    SiteHistoryError,
    UsageError,
    YankedVersionWarning,
)
from registry.pages.site_index import write_index
from registry.pins.keys import load_private_key, new_key
from registry.pins.signature import sign_index
from registry.storage import open_store


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The reader's machine, whose cache and data folder are empty."""
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "reader" / "cache"))
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "1GB")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "reader" / "data"))
    for name in ("REGISTRY_DATA_DIR", "REGISTRY_TRUSTED_KEYS", "REGISTRY_CATALOG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "reader"


@pytest.fixture
def folder(tmp_path: Path, catalog: registry.Catalog) -> Path:
    """The folder of a site with two versions of one dataset, and their files."""
    catalog.add({"number": range(100), "word": [f"w{number % 7}" for number in range(100)]}, name="numbers")
    catalog.add({"number": range(120), "word": [f"w{number % 7}" for number in range(120)]}, name="numbers")
    catalog.aliases.set("paper", "numbers:1.0.0")
    top = tmp_path / "www" / "some" / "site"
    write_site(top, snapshot(tmp_path / "catalog.db"))
    shutil.copytree(tmp_path / "data", top / "data")
    return top


def write_site(top: Path, content: bytes, **changes: Any) -> None:
    for path, written in make_site(content, **changes).items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_bytes(written)


@pytest.fixture
def url(folder: Path, tmp_path: Path) -> Iterator[str]:
    with serve(tmp_path / "www") as started:
        yield f"{started}/some/site/"


def test_everything_that_reads_works(url: str, catalog: registry.Catalog, tmp_path: Path) -> None:
    site = registry.connect(url)
    newest, first = site.dataset("numbers"), site.dataset("numbers@paper")
    assert (str(newest.reference), str(first.reference)) == (str(catalog.dataset("numbers").reference), "numbers:1.0.0")
    assert sorted(row["number"] for row in first.read("train")) == list(range(100))
    assert site.data_dir == f"{url}data"
    assert [row.dataset for row in site.datasets()] == ["numbers"]
    assert [hit.name for hit in site.search("numb")] == ["numbers"]
    assert [event.hash for event in site.log()] == [event.hash for event in catalog.log()]
    assert site.verify_log().is_sound
    site.verify_all(deep=True).require_sound()
    assert first.statistics == catalog.dataset("numbers:1.0.0").statistics
    assert str(site.diff("numbers:1.0.0", newest)) == str(catalog.diff("numbers:1.0.0", newest.reference))
    first.fetch("train")
    first.pin("train[:10%]").save(tmp_path / "site.lock.yaml")
    host = url.split("/")[2]
    pin = registry.load_pin(tmp_path / "site.lock.yaml", fetch=True, allow_hosts=[host])["train"]
    assert len(list(pin.read())) == 10
    pin.verify()
    with registry.connect(tmp_path / "lab.db", data_dir=tmp_path / "lab", create=True) as lab:
        site.copy(None, lab).require_all()
        lab.verify_all().require_sound()
        assert str(lab.dataset("numbers@paper").reference) == "numbers:1.0.0"
    site.backup(tmp_path / "site.backup.gz")
    assert repr(site) == f"<Catalog {url}, data in {url}data>"


def test_nothing_publishes_into_a_site(url: str) -> None:
    site = registry.connect(url)
    site.dataset("numbers")
    with pytest.raises(CatalogPermissionError) as caught:
        site.add({"number": [1]}, name="other")
    assert str(caught.value) == f"a site is read-only, and {url} is one"
    assert caught.value.hint == (
        "Publish into the catalog from which it was made, and write the site again: registry site. "
        "To have its datasets in a catalog of your own: registry copy"
    )
    with pytest.raises(CatalogPermissionError):
        site.aliases.set("best", "numbers:1.0.0")


COMMANDS = {
    "list": ["numbers"],
    "show numbers": ["numbers"],
    "log": ["publish"],
    "resolve numbers:1.0.0 train[:50%]": ["numbers"],
    "head numbers:1.0.0": ["number", "word"],
    "stats numbers": ["number"],
    "search numb": ["numbers"],
    "verify numbers:1.0.0": ["as published"],
    "log verify": ["events"],
    "alias list": ["paper"],
    "diff numbers:1.0.0 numbers@paper": [],
    "cache fetch numbers:1.0.0": [],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_that_read_take_a_site(url: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), "--catalog", url]) == 0
    printed = capsys.readouterr()
    assert all(word in printed.out + printed.err for word in COMMANDS[command])


def test_commands_that_write_refuse_a_site(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    no_database = ("usage", "the catalog is a site or a service, and this command needs its database")
    read_only = ("catalog_permission_denied", f"a site is read-only, and {url} is one")
    errors = dict.fromkeys(["db status", "db check", "db upgrade"], no_database)
    for command, expected in (errors | dict.fromkeys(["promote numbers:1.0.0", "config protect"], read_only)).items():
        assert run([*command.split(), "--catalog", url, "--format", "json"]) != 0
        error = json.loads(capsys.readouterr().err)["error"]
        assert (error["code"], error["message"]) == expected, command


def test_the_variable_names_a_site(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_CATALOG", url)
    assert len(list(registry.load("numbers:1.0.0", split="train[:10%]"))) == 10


def test_offline_a_version_that_was_read_is_read_again(folder: Path, tmp_path: Path) -> None:
    with serve(tmp_path / "www") as started:
        url = f"{started}/some/site"
        site = registry.connect(url)
        rows = [row["number"] for row in site.dataset("numbers").read("train")]
    site = registry.connect(url)
    with pytest.warns(CatalogUnavailableWarning, match="is as this machine read it at"):
        newest = site.dataset("numbers")
    assert [row["number"] for row in newest.read("train")] == rows
    assert site.dataset(newest.reference).splits["train"].num_examples == 120


def test_a_site_can_be_pickled_with_the_keys_that_it_needs(url: str, folder: Path, tmp_path: Path) -> None:
    new_key(tmp_path / "key")
    index = parse_site_index((folder / "site.json").read_bytes())
    (folder / "site.json").write_bytes(sign_index(index, load_private_key(tmp_path / "key")).to_json())
    site = registry.connect(url, key=tmp_path / "key.pub")
    copied = pickle.loads(pickle.dumps(site))  # noqa: S301 (made here)
    assert str(copied.dataset("numbers:1.0.0").reference) == "numbers:1.0.0"
    (folder / "site.json").write_bytes(index.to_json())
    copied = pickle.loads(pickle.dumps(site))  # noqa: S301 (made here)
    with pytest.raises(SignatureError):
        copied.datasets()


def test_keys_come_from_the_call_or_the_environment(
    url: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ours", "others"):
        new_key(tmp_path / name)
    monkeypatch.setenv("REGISTRY_TRUSTED_KEYS", f"{tmp_path / 'others.pub'}, {tmp_path / 'ours.pub'}")
    with pytest.raises(SignatureError, match="the site is not signed"):
        registry.connect(url).datasets()
    index = parse_site_index((folder / "site.json").read_bytes())
    (folder / "site.json").write_bytes(sign_index(index, load_private_key(tmp_path / "ours")).to_json())
    assert len(registry.connect(url).datasets()) == 1
    assert len(registry.connect(url, key=(tmp_path / "ours.pub").read_text()).datasets()) == 1
    with pytest.raises(SignatureError, match="expected a signature of"):
        registry.connect(url, key=[tmp_path / "others.pub"]).datasets()
    with pytest.raises(UsageError, match="a key checks the signature of a site"):
        registry.connect(tmp_path / "catalog.db", key=tmp_path / "ours.pub")


def test_a_site_without_data_needs_a_data_directory(url: str, folder: Path, tmp_path: Path) -> None:
    write_site(folder, snapshot(tmp_path / "catalog.db"), data_url=None)
    with pytest.raises(DataDirectoryMissingError) as caught:
        list(registry.connect(url).dataset("numbers").read("train"))
    assert caught.value.hint == (
        "Ask the publisher of the site to write it with --with-data or --data-url.\n"
        "Or specify a copy of the files: data_dir=URL, or the environment variable REGISTRY_DATA_DIR."
    )
    site = registry.connect(url, data_dir=tmp_path / "data")
    assert len(list(site.dataset("numbers:1.0.0").read("train"))) == 100


def test_without_urllib3_the_extra_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "urllib3", None)
    with pytest.raises(MissingExtraError) as caught:
        registry.connect(url).datasets()
    assert str(caught.value) == "a catalog on the web needs the package 'urllib3', which is not installed"
    assert caught.value.hint == "Install it with: pip install 'shardbook[http]'"


def test_a_site_that_is_written_again_goes_on_and_one_with_another_choice_is_refused(
    url: str, folder: Path, catalog: registry.Catalog, tmp_path: Path
) -> None:
    def write(**choice: Any) -> None:
        index = write_index(catalog.backend, open_store(folder), data_url="data/", **choice)
        (folder / "site.json").write_bytes(index.to_json())

    (folder / "site.json").unlink()
    catalog.add({"number": range(5)}, name="others")
    catalog.add({"number": range(5)}, name="in_place")
    catalog.mirrors.add("in_place:1.0.0", str(tmp_path / "data" / "in_place" / "1.0.0"))
    write(datasets=["numbers", "in_place"])
    site = registry.connect(url)
    assert [row.dataset for row in site.datasets()] == ["in_place", "numbers"]
    assert site.backend.find("in_place").locations == ("in_place/1.0.0",)
    assert site.verify_log().is_sound
    catalog.add({"number": range(200)}, name="numbers")
    catalog.lifecycle.yank("numbers:1.0.0", reason="too small")
    shutil.copytree(tmp_path / "data", folder / "data", dirs_exist_ok=True)
    write(datasets=["numbers", "in_place"])
    site = registry.connect(url)
    assert len(list(site.dataset("numbers").read("train"))) == 200
    with pytest.warns(YankedVersionWarning, match="too small"):
        site.dataset("numbers:1.0.0")
    write(datasets=["others"], new_log=True)
    with pytest.raises(SiteHistoryError, match=r"the event log of .* was (forked|rolled back)"):
        registry.connect(url).datasets()


def test_a_login_does_not_go_to_another_server_that_a_site_names(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.config import conf

    monkeypatch.setitem(conf, "http", {"client_kwargs": {"headers": {"Authorization": "Bearer token"}}})
    with serve(tmp_path / "www") as site, serve(folder) as other:
        write_site(folder, snapshot(tmp_path / "catalog.db"), data_url=f"{other}/data/")
        with registry.connect(f"{site}/some/site/") as catalog, pytest.raises(FetchNotAllowedError, match="login"):
            list(catalog.dataset("numbers:1.0.0").read("train[:2]"))
        monkeypatch.setenv("REGISTRY_ALLOWED_HOSTS", other.partition("://")[2])
        with registry.connect(f"{site}/some/site/") as catalog:
            assert len(list(catalog.dataset("numbers:1.0.0").read("train[:2]"))) == 2
