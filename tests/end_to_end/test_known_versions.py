"""Exact versions of a PostgreSQL catalog that cannot be reached: this machine knows those that it looked up."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from support.catalog_fault_proxy import PostgresProxy, proxied
from support.catalog_samples import execute
from support.catalog_server import PostgresServer
from support.prepared_samples import prepare

import registry
from registry.api.lock import locked
from registry.catalog import DataDirectory, remembering
from registry.catalog.remembering import KnownVersions, RememberingCatalog
from registry.cli.main import run
from registry.errors import (
    CatalogRefusedError,
    CatalogUnavailableError,
    CatalogUnavailableWarning,
    YankedVersionWarning,
)
from registry.model import (
    DatasetMetadata,
    DatasetVersion,
    LocationStep,
    Reference,
    Shard,
    ShardedFileTemplate,
    ShardLengths,
    SlicingRule,
    Split,
    Version,
    VersionState,
)
from registry.storage import memory


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with a cache, on which no version is known, and which does not wait long."""
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "10MB")
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("REGISTRY_TRIES", "1")
    monkeypatch.setenv("REGISTRY_CONNECT_TIMEOUT", "2")


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[PostgresProxy]:
    """The way to the server, which is gone after ``close``."""
    with tempfile.TemporaryDirectory(prefix="pg-") as name, proxied(Path(name), postgres_server.folder) as made:
        yield made


@pytest.fixture(scope="module")
def published(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The name of a database with ``animals:1.0.0`` and ``2.0.0``, and their data directory."""
    folder, url = tmp_path_factory.mktemp("published"), postgres_server.create_database(template="catalog_template")
    with registry.connect(url, data_dir=folder / "data") as opened:
        opened.publish(prepare(folder / "1.0.0", "1.0.0", shards=3))
        opened.publish(prepare(folder / "2.0.0", "2.0.0", {"train": [], "test": []}))
    return name_of(url), folder / "data"


def name_of(url: str) -> str:
    return url.rpartition("/")[2].partition("?")[0]


@pytest.fixture
def url(
    proxy: PostgresProxy, postgres_server: PostgresServer, published: tuple[str, Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    """A copy of this catalog behind the proxy; its URL has a password."""
    template, data = published
    monkeypatch.setenv("REGISTRY_DATA_DIR", str(shutil.copytree(data, tmp_path / "data")))
    database = postgres_server.create_database(template=template)
    return proxy.url(name_of(database)).replace("postgres@", "postgres:hunter2@")


def test_a_refused_password_is_not_an_absent_catalog(
    proxy: PostgresProxy, postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    execute(url, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO locked")
    right = url.replace("postgres:hunter2@", "locked:right@")
    with registry.connect(right) as opened:
        assert opened.dataset("animals:1.0.0").version == "1.0.0"
        wrong = right.replace("right", "wrong")
        with pytest.raises(CatalogRefusedError, match='password authentication failed for user "locked"'):
            registry.connect(wrong)
        assert run(["show", "animals:1.0.0", "--catalog", wrong]) == 1
        with pytest.raises(CatalogRefusedError, match="no password supplied"):
            registry.connect(right.replace(":right", ""))
    proxy.close()
    with registry.connect(right) as opened, pytest.warns(CatalogUnavailableWarning):
        assert opened.dataset("animals:1.0.0").version == "1.0.0"


def known_versions(opened: registry.Catalog) -> KnownVersions:
    """What this machine knows about the catalog."""
    backend: object = opened.backend
    assert isinstance(backend, RememberingCatalog)
    assert backend.known is not None
    return backend.known


def ages(reader: registry.Reader) -> list[int]:
    return [int(example["age"]) for example in reader]


def test_a_version_that_was_looked_up_is_found_and_read_without_the_catalog(url: str, proxy: PostgresProxy) -> None:
    with registry.connect(url) as opened:
        before = opened.dataset("animals:1.0.0")
        expected = ages(before.read("train"))
        shards = before.shards("train")
    proxy.close()
    with registry.connect(url) as opened:
        with pytest.warns(CatalogUnavailableWarning) as caught:
            found = opened.dataset("animals:1.0.0")
        assert found.facts == before.facts
        assert found.shards("train") == shards
        assert ages(found.read("train")) == expected
        assert len(found.resolve("train[:10%]")) == 1
        assert found.verify().faults == ()
        assert found.status is before.status
        assert (found.protected, dict(found.experiments), found.considered[0].verdict) == (
            None,
            {},
            "known on this machine",
        )
        assert found.why == ("animals:1.0.0 names exactly 1.0.0. The catalog cannot be reached.",)
    message = str(caught[0].message)
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    assert "cannot be reached" in message
    assert f"\nanimals:1.0.0 is as this machine looked it up at {today}" in message
    assert caught[0].filename == __file__
    assert "hunter2" not in message


def test_a_catalog_that_is_lost_while_it_is_open_is_the_same(url: str, proxy: PostgresProxy) -> None:
    with registry.connect(url) as opened:
        expected = ages(opened.dataset("animals:1.0.0").read("train"))
        proxy.close()
        with pytest.warns(CatalogUnavailableWarning):
            found = opened.dataset("animals:1.0.0")
        assert ages(found.read("train")) == expected
        with pytest.raises(CatalogUnavailableError):
            opened.datasets()


@pytest.mark.parametrize("reference", ["animals:2.0.0", "animals", "animals:1.*", "animals@paper", "plants:1.0.0"])
def test_other_look_ups_need_the_catalog(url: str, proxy: PostgresProxy, reference: str) -> None:
    with registry.connect(url) as opened:
        opened.dataset("animals:1.0.0")
    proxy.close()
    with registry.connect(url) as opened:
        with pytest.raises(CatalogUnavailableError, match="cannot be reached") as caught:
            opened.dataset(reference)
        assert caught.value.exit_code == 75
        assert "hunter2" not in f"{caught.value} {caught.value.hint} {opened!r}"
        with pytest.raises(CatalogUnavailableError):
            opened.dataset("animals:1.0.0", at="2030-01-01")


def test_a_machine_that_knows_nothing_is_told_at_once(url: str, proxy: PostgresProxy) -> None:
    with registry.connect(url) as opened:
        opened.dataset("animals")
    proxy.close()
    with pytest.raises(CatalogUnavailableError):
        registry.connect(url)


def test_the_commands_read_a_known_version(
    url: str, proxy: PostgresProxy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_CATALOG", url)
    assert run(["read", "animals:1.0.0", "train[:1]", "--locked"]) == 0
    first = capsys.readouterr().out
    proxy.close()
    for command in (["read", "animals:1.0.0", "train[:1]", "--locked"], ["show", "animals:1.0.0", "--why"]):
        assert run(command) == 0
        out, err = capsys.readouterr()
        assert out == first or command[0] == "show"
        assert "note: " in err
        assert "animals:1.0.0 is as this machine looked it up at " in err
        assert "hunter2" not in out + err
    assert run(["read", "animals:1.0.0", "train[:1]", "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["warnings"]) == 1
    assert run(["list"]) == 75
    assert run(["promote", "animals:1.0.0"]) == 75


def test_the_catalog_has_the_last_word(url: str) -> None:
    with registry.connect(url) as opened:
        opened.dataset("animals:1.0.0")
        opened.lifecycle.yank("animals:1.0.0", reason="wrong labels")
        with pytest.warns(YankedVersionWarning, match="wrong labels"):
            opened.dataset("animals:1.0.0")


def test_the_state_is_the_one_of_the_last_look_up(url: str, proxy: PostgresProxy) -> None:
    with registry.connect(url) as opened:
        opened.dataset("animals:1.0.0")
        opened.lifecycle.deprecate("animals:1.0.0", reason="use 2.0.0")
        opened.dataset("animals:1.0.0")
        proxy.close()
        with pytest.warns(CatalogUnavailableWarning):
            found = opened.dataset("animals:1.0.0")
        assert found.status == "deprecated"
        assert "use 2.0.0" in found.notes[0]


def test_what_is_kept_has_no_secret(url: str, tmp_path: Path) -> None:
    with registry.connect(url) as opened:
        opened.dataset("animals:1.0.0")
    files = [path for path in (tmp_path / "cache" / "catalogs").rglob("*") if path.is_file()]
    assert sorted(path.suffix for path in files) == [".directory", ".shards", ".version"]
    for path in files:
        content = path.read_bytes()
        assert b"hunter2" not in content
        assert b"postgres" not in content
        assert not path.parent.stat().st_mode & 0o077


@pytest.mark.parametrize("damage", ["cut", "changed", "swapped", "deleted", "folder"])
def test_damaged_files_are_not_believed_and_are_written_again(
    url: str, proxy: PostgresProxy, tmp_path: Path, damage: str, postgres_server: PostgresServer
) -> None:
    folder = tmp_path / "cache" / "catalogs"
    with registry.connect(url) as opened:
        opened.dataset("animals:1.0.0")
        opened.dataset("animals:2.0.0")
    (of_one,) = (path for path in folder.rglob("*.version") if b'"version": "1.0.0"' in path.read_bytes())
    (of_two,) = (path for path in folder.rglob("*.version") if path != of_one)
    if damage == "cut":
        os.truncate(of_one, 100)
    elif damage == "changed":
        for path in folder.rglob("*.shards"):
            content = path.read_bytes()
            path.write_bytes(content[:-5] + bytes([content[-5] ^ 1]) + content[-4:])
    elif damage == "swapped":
        shutil.copy(of_two, of_one)
    elif damage == "deleted":
        of_one.unlink()
    else:
        shutil.rmtree(folder)
    wanted = Reference.parse("animals:1.0.0")
    with registry.connect(url) as opened:
        known = known_versions(opened)
        assert known.find(wanted) is None
        facts = opened.dataset("animals:1.0.0").facts
        found = known.find(wanted)
        assert found.facts == facts


def test_a_folder_that_cannot_be_written_does_not_stop_a_look_up(url: str, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    with registry.connect(url) as opened:
        assert opened.dataset("animals:1.0.0").version == "1.0.0"


def test_the_shards_of_a_very_large_version_are_kept_when_it_is_fetched(
    url: str, proxy: PostgresProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembering, "MOST_SHARDS", 2)
    with registry.connect(url) as opened:
        found = opened.dataset("animals:1.0.0")
        assert known_versions(opened).find(found.reference) is None
        found.fetch()
        proxy.close()
        with pytest.warns(CatalogUnavailableWarning):
            assert opened.dataset("animals:1.0.0").facts == found.facts


def test_nothing_is_kept_without_a_cache_or_for_a_catalog_of_this_machine(
    url: str, proxy: PostgresProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "local") as opened:
        opened.publish(prepare(tmp_path / "again", "1.0.0"))
        opened.dataset("animals:1.0.0")
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "0")
    with registry.connect(url) as opened:
        opened.dataset("animals:1.0.0")
    assert not (tmp_path / "cache").exists()


def test_a_look_up_is_kept_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []
    replace = memory.replace_file
    monkeypatch.setattr(memory, "replace_file", lambda path, *parts: (written.append(path), replace(path, *parts)))
    with registry.connect(url) as opened:
        for _ in range(3):
            opened.dataset("animals:1.0.0")
    assert sorted(path.suffix for path in written) == [".directory", ".shards", ".version"]


def test_a_lock_holds_for_known_versions_too(url: str, proxy: PostgresProxy) -> None:
    with registry.connect(url) as opened:
        opened.dataset("animals:1.0.0")
        proxy.close()
        with locked(), pytest.warns(CatalogUnavailableWarning):
            assert opened.dataset("animals:1.0.0").version == "1.0.0"
        with locked(), pytest.raises(CatalogUnavailableError):
            opened.dataset("animals")


RICH = DatasetVersion(
    name="animals",
    version=Version(3, 0, 1),
    splits=(
        Split(
            name="train",
            shard_lengths=ShardLengths([3, 0, 4]),
            num_bytes=77,
            files=ShardedFileTemplate(dataset="animals", template="{DATASET}-{SPLIT}-{SHARD_X_OF_Y}"),
        ),
        Split(name="test", shard_lengths=ShardLengths([])),
    ),
    features_json='{"a": "é"}',
    location="s3://bucket/animals",
    content_digest="ab" * 32,
    location_steps=(LocationStep("add", "/data/animals"),),
    config="plain",
    names=("beasts", "animals"),
    state=VersionState.YANKED,
    state_message="wrong",
    superseded_by=Version(3, 0, 2),
    canonical=Version(3, 1, 0),
    labels={"kind": ("cat", "dog")},
    file_format="array_record",
    slicing=SlicingRule.TFDS_4,
    disable_shuffling=True,
    version_to_prepare="2.0.0",
    experiments={"flag": True},
    metadata=DatasetMetadata(
        description="d",
        homepage="h",
        citation="c",
        license="l",
        supervised_keys=("a", "b"),
        config_description="cd",
        config_tags=("x", "y"),
        release_notes={"3.0.1": "n"},
        custom={"key": [1, None, {"b": 0.5}]},
        extra={"downloadSize": "7"},
        described=("homepage",),
    ),
    published_at=datetime(2026, 11, 23, 8, 30, tzinfo=UTC),
    published_by="ann",
)


def test_every_fact_survives(tmp_path: Path) -> None:
    for value in (RICH, RICH.metadata):
        changed = [getattr(value, one.name) != one.default for one in fields(value)]
        assert all(changed), "give the new field another value than its default"

    class Shards:
        def between(self, _version: object, split: str, first: int, stop: int) -> tuple[Shard, ...]:
            lengths = RICH.split(split).shard_lengths
            return tuple(
                Shard(
                    index=index,
                    first_example=lengths.start(index),
                    num_examples=lengths[index],
                    num_bytes=index,
                    sha256=f"{index:064x}",
                    entity_tag=None if index else '"tag"',
                )
                for index in range(first, stop)
            )

    class Locations:
        def data_dir(self) -> DataDirectory:
            return DataDirectory(recorded="s3://bucket/data", place="s3://bucket/data")

    class Backend:
        shards = Shards()
        locations = Locations()

    known = KnownVersions(tmp_path / "catalogs", "postgresql://host/name")
    known.keep(RICH.reference, RICH, Backend())  # type: ignore[arg-type]
    found = known.find(RICH.reference)
    assert found is not None
    for one in fields(DatasetVersion):
        assert repr(getattr(found.facts, one.name)) == repr(getattr(RICH, one.name))
    shards = known.shards(RICH)
    assert shards == {"train": Shards().between(None, "train", 0, 3), "test": ()}
    assert [shard.entity_tag for shard in shards["train"]] == ['"tag"', None, None]
    assert known.data_dir() == Locations().data_dir()
    assert KnownVersions(tmp_path / "catalogs", "postgresql://other/name").find(RICH.reference) is None


def test_the_recorded_data_directory_is_known_too(
    url: str, proxy: PostgresProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without the variable uses the directory of the catalog, also while the catalog is away."""
    with registry.connect(url) as opened:
        opened.set_data_dir(tmp_path / "data")
    monkeypatch.delenv("REGISTRY_DATA_DIR")
    with registry.connect(url) as opened:
        assert len(list(opened.dataset("animals:1.0.0").read("train"))) > 0
    proxy.close()
    with registry.connect(url) as away:
        with pytest.warns(CatalogUnavailableWarning):
            dataset = away.dataset("animals:1.0.0")
        assert away.data_dir == str(tmp_path / "data")
        assert len(list(dataset.read("train"))) > 0
        with pytest.raises(CatalogUnavailableError):
            away.build("digits")


def test_an_outage_after_the_look_up_is_an_error_and_no_answer(url: str, proxy: PostgresProxy) -> None:
    """A version that the catalog gave is not described as one that this machine remembered."""
    with registry.connect(url) as opened:
        dataset = opened.dataset("animals")
        proxy.close()
        for question in ("protected", "why", "considered"):
            with pytest.raises(CatalogUnavailableError):
                getattr(dataset, question)


def test_a_recalled_version_keeps_the_time_at_which_the_catalog_gave_it(url: str, proxy: PostgresProxy) -> None:
    with registry.connect(url) as opened:
        opened.dataset("animals:1.0.0")
        note = known_versions(opened)._memory.file("version", b"animals:1.0.0")
    os.utime(note, (1_600_000_000, 1_600_000_000))
    proxy.close()
    for _ in range(2):
        with registry.connect(url) as away, pytest.warns(CatalogUnavailableWarning, match="2020-09-13"):
            away.dataset("animals:1.0.0").fetch("train")


def test_a_data_directory_that_moved_is_the_new_one_at_the_next_look_up(
    url: str, proxy: PostgresProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REGISTRY_DATA_DIR")
    with registry.connect(url) as opened:
        opened.dataset("animals:1.0.0")
        shutil.copytree(tmp_path / "data", tmp_path / "moved")
        opened.set_data_dir(tmp_path / "moved")
    with registry.connect(url) as opened:
        opened.dataset("animals:1.0.0")
    proxy.close()
    with registry.connect(url) as away:
        with pytest.raises(CatalogUnavailableError):
            _ = away.recorded_data_dir
        assert away.data_dir == str(tmp_path / "moved")


@pytest.mark.parametrize("note", ['"/x"', "[1]", "null", '{"recorded": 1, "more": 2}'])
def test_a_note_of_another_release_is_no_error(url: str, proxy: PostgresProxy, note: str) -> None:
    with registry.connect(url) as opened:
        opened.dataset("animals:1.0.0")
        known = known_versions(opened)
        known._keep("directory", "", json.loads(note))
        assert opened.dataset("animals:1.0.0").version == "1.0.0"
        known._keep("directory", "", json.loads(note))
    proxy.close()
    with registry.connect(url) as away, pytest.warns(CatalogUnavailableWarning):
        assert away.dataset("animals:1.0.0").version == "1.0.0"


def test_a_version_that_was_published_in_place_is_read_without_a_data_directory(
    postgres_server: PostgresServer, proxy: PostgresProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REGISTRY_DATA_DIR", raising=False)
    database = postgres_server.create_database(template="catalog_template").rpartition("/")[2].partition("?")[0]
    (tmp_path / "numbers").mkdir()
    parquet.write_table(pa.table({"age": [1, 2, 3]}), tmp_path / "numbers" / "train.parquet")
    with registry.connect(proxy.url(database)) as opened:
        opened.import_parquet(tmp_path / "numbers", name="numbers", version="1.0.0", copy=False)
        assert ages(opened.dataset("numbers:1.0.0").read("train")) == [1, 2, 3]
    proxy.close()
    with registry.connect(proxy.url(database)) as away, pytest.warns(CatalogUnavailableWarning):
        assert ages(away.dataset("numbers:1.0.0").read("train")) == [1, 2, 3]
