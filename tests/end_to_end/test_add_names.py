"""A derived name continues only a dataset that came from the same source, unless ``replace`` is meant."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.prepared_samples import animals, prepare

import registry
from registry.api import adding
from registry.catalog import PublicationDetails
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import OtherSourceError, UsageError, VersionExistsError
from registry.storage import open_store

CSV = "item,price\nlamp,19.5\nchair,42.0\n"
OTHER = "city,people\nRome,2800000\n"


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[registry.Catalog]:
    """A catalog on each database."""
    url: Any = tmp_path / "catalog.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_server").take_catalog()
    with registry.connect(url, data_dir=tmp_path / "registry_files") as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two folders that have a file of the same name with other columns."""
    for name, text in (("shop", CSV), ("atlas", OTHER)):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "prices.csv").write_text(text)
        (tmp_path / "in" / name / "train.csv").write_text(text)
    return tmp_path / "in"


def versions(catalog: registry.Catalog, name: str) -> list[str]:
    return sorted(str(one.version) for one in catalog.versions(name))


def refusal(add: Callable[[], object]) -> OtherSourceError:
    with pytest.raises(OtherSourceError) as caught:
        add()
    assert caught.value.exit_code == 4
    return caught.value


def test_a_file_of_the_same_name_does_not_become_the_next_version(catalog: registry.Catalog, folder: Path) -> None:
    catalog.add(folder / "shop/prices.csv")
    for attempt in (catalog.plan_add, catalog.add):
        error = refusal(lambda attempt=attempt: attempt(folder / "atlas/prices.csv"))  # type: ignore[misc]
        assert error.message == (
            f"prices:1.0.0 comes from {folder}/shop/prices.csv (csv), not from {folder}/atlas/prices.csv"
        )
    assert error.hint == "Make it another dataset: name=NAME. Or make it the next version of prices: replace=True"
    assert (error.code, dict(error.details)) == (
        "other_source",
        {
            "dataset": "prices",
            "version": "prices:1.0.0",
            "producer": {"action": "add", "kind": "csv", "place": f"{folder}/shop/prices.csv"},
            "source": {"action": "add", "place": f"{folder}/atlas/prices.csv"},
            "options": ["name=NAME", "replace=True"],
        },
    )
    assert versions(catalog, "prices") == ["1.0.0"]
    assert str(catalog.add(folder / "atlas/prices.csv", "cities").reference) == "cities:1.0.0"
    assert str(catalog.add(folder / "atlas/prices.csv", replace=True).reference) == "prices:2.0.0"
    assert catalog.add(folder / "atlas/prices.csv").outcome == "unchanged"  # the dataset comes from there now
    refusal(lambda: catalog.add(folder / "shop/prices.csv"))


@pytest.mark.parametrize("text", ["plain", "slash", "dots", "link", "url", "relative"])
def test_every_way_to_write_a_place_continues_the_dataset(
    catalog: registry.Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    shutil.copytree(folder / "shop", folder / "rows_of_shops")
    (folder / "rows_of_shops/prices.csv").unlink()
    catalog.add(folder / "rows_of_shops")
    (folder / "rows_of_shops/train.csv").write_text(CSV + "desk,120.25\n")
    monkeypatch.chdir(folder)
    (folder / "links").mkdir()
    (folder / "links/rows_of_shops").symlink_to(folder / "rows_of_shops")
    report = catalog.add(
        {
            "plain": folder / "rows_of_shops",
            "slash": f"{folder}/rows_of_shops//",
            "dots": f"{folder}/shop/.././rows_of_shops/",
            "link": folder / "links/rows_of_shops",
            "url": f"file://{folder}/rows_of_shops",
            "relative": "rows_of_shops",
        }[text]
    )
    assert str(report.reference) == "rows_of_shops:2.0.0"


def test_another_kind_at_the_same_place_is_another_source(catalog: registry.Catalog, folder: Path) -> None:
    (folder / "box").mkdir()
    (folder / "box/a.csv").write_text(CSV)
    catalog.add(folder / "box")
    (folder / "box/a.csv").unlink()
    (folder / "box/a.jsonl").write_text('{"item": "lamp", "price": 19.5}\n')
    error = refusal(lambda: catalog.add(folder / "box"))
    assert error.message == f"box:1.0.0 comes from {folder}/box (csv), not from {folder}/box (json)"


def test_a_file_that_was_replaced_by_other_data_is_not_the_next_version(
    catalog: registry.Catalog, folder: Path
) -> None:
    catalog.add(folder / "shop/prices.csv")
    (folder / "shop/prices.csv").write_text(OTHER)
    error = refusal(lambda: catalog.plan_add(folder / "shop/prices.csv"))
    assert error.message == (
        f"prices:1.0.0 and {folder}/shop/prices.csv (csv) have neither a column nor the key in common; the source is "
        "1 CSV file (comma, UTF-8, with a header), with the columns 'city', 'people'"
    )
    (folder / "shop/prices.csv").write_text("item,price\nlamp,many\n")  # item has the same type
    assert str(catalog.add(folder / "shop/prices.csv", retype=True).reference) == "prices:2.0.0"


def test_a_file_that_lost_its_header_is_not_the_next_version_even_under_its_name(
    catalog: registry.Catalog, folder: Path
) -> None:
    source = folder / "shop/prices.csv"
    catalog.add(source, "prices")
    source.write_text("lamp,19.5\nchair,42.0\n")
    error = refusal(lambda: catalog.add(source, "prices", retype=True))
    assert "without a header, because the first row contains the number" in error.message
    assert str(catalog.add(source, "prices", replace=True).reference) == "prices:2.0.0"


def test_the_key_is_enough_to_continue_a_dataset(catalog: registry.Catalog, folder: Path) -> None:
    (folder / "sales.csv").write_text("id,a\n1,x\n")
    catalog.add(folder / "sales.csv", key="id")
    (folder / "sales.csv").write_text("id,b\none,2\n")
    assert str(catalog.add(folder / "sales.csv", retype=True).reference) == "sales:2.0.0"


def test_a_given_name_continues_what_was_added_and_nothing_else(
    catalog: registry.Catalog, folder: Path, tmp_path: Path
) -> None:
    catalog.add(folder / "shop/prices.csv", "goods")
    assert catalog.add(folder / "shop/prices.csv", "goods").outcome == "unchanged"
    (folder / "market.csv").write_text("item,colour\nlamp,red\n")
    assert str(catalog.add(folder / "market.csv", "goods").reference) == "goods:2.0.0"
    refusal(lambda: catalog.add(folder / "atlas/prices.csv", "goods"))  # no column is the same
    catalog.publish(prepare(tmp_path / "animals/1.0.0", splits={"train": animals(4)}))
    catalog.import_tfds(prepare(tmp_path / "tfds/beasts/1.0.0", "1.0.0", name="beasts"), name="beasts")
    (tmp_path / "shards").mkdir()
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "shards/train.parquet")
    catalog.import_parquet(tmp_path / "shards", name="numbers")
    producers = {
        "animals": "a prepared folder",
        "beasts": "an import",
        "numbers": f"an import of {tmp_path}/shards",
    }
    for name, producer in producers.items():
        for rows in ([{"name": "cat"}], folder / "shop/prices.csv"):
            error = refusal(lambda rows=rows, name=name: catalog.plan_add(rows, name))  # type: ignore[misc]
            assert error.message.startswith(f"{name}:1.0.0 comes from {producer}, not from ")
        catalog.add(folder / "shop/prices.csv", name, replace=True)
        (folder / "shop/prices.csv").write_text(CSV + f"{name},1.0\n")
        assert str(catalog.add(folder / "shop/prices.csv", name).reference) == f"{name}:3.0.0"


def test_a_builder_that_publishes_again_does_not_make_a_known_source_a_stranger(
    catalog: registry.Catalog, folder: Path
) -> None:
    catalog.build("digits")
    error = refusal(lambda: catalog.add(folder / "shop/prices.csv", "digits"))
    assert error.message == f"digits:1.0.0 comes from a builder, not from {folder}/shop/prices.csv"
    catalog.add(folder / "shop/prices.csv", "digits", number="0.9.0", replace=True)
    (folder / "shop/prices.csv").write_text(CSV + "desk,1.0\n")
    assert str(catalog.add(folder / "shop/prices.csv", "digits", number="3.0.0").reference) == "digits:3.0.0"


def test_arrays_with_the_name_of_a_dataset_of_a_builder_are_refused(catalog: registry.Catalog, folder: Path) -> None:
    catalog.build("digits")
    np.savez(folder / "digits.npz", pixels=np.zeros((5, 2)), number=np.arange(5))
    refusal(lambda: catalog.add(folder / "digits.npz"))
    assert versions(catalog, "digits") == ["1.0.0"]
    assert str(catalog.dataset("digits").reference) == "digits:1.0.0"


def test_a_config_of_another_place_is_refused_too(catalog: registry.Catalog, folder: Path) -> None:
    catalog.add(folder / "shop/prices.csv", config="eu")
    refusal(lambda: catalog.add(folder / "atlas/prices.csv", config="eu"))
    refusal(lambda: catalog.add(folder / "atlas/prices.csv", config="us"))
    assert str(catalog.add(folder / "shop/prices.csv", config="us").reference) == "prices/us:1.0.0"
    catalog.add(folder / "atlas/prices.csv", "prices", config="world")
    assert catalog.add(folder / "shop/prices.csv", config="us").outcome == "unchanged"
    refusal(lambda: catalog.add(folder / "shop/prices.csv", config="world"))


def test_files_in_place_obey_the_same_rule(catalog: registry.Catalog, folder: Path) -> None:
    for name, columns in (("a", {"n": [1, 2]}), ("b", {"m": ["x"]})):
        (folder / name / "figures").mkdir(parents=True)
        pq.write_table(pa.table(columns), folder / name / "figures/train.parquet")
    assert str(catalog.add(folder / "a/figures", in_place=True).reference) == "figures:1.0.0"
    refusal(lambda: catalog.add(folder / "b/figures", in_place=True))
    refusal(lambda: catalog.add(folder / "b/figures"))
    prepare(folder / "mine/animals/1.0.0", splits={"train": animals(4)})
    prepare(folder / "yours/animals/1.0.0", splits={"train": animals(5)})
    assert str(catalog.add(folder / "mine/animals/1.0.0", in_place=True).reference) == "animals:1.0.0"
    refusal(lambda: catalog.add(folder / "yours/animals/1.0.0", in_place=True))


def test_generic_names_are_those_of_the_folder_above(
    catalog: registry.Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert str(catalog.add(folder / "shop/train.csv").reference) == "shop:1.0.0"
    assert str(catalog.add(folder / "atlas/train.csv").reference) == "atlas:1.0.0"
    monkeypatch.chdir(folder / "shop")
    assert catalog.add("train.csv").outcome == "unchanged"
    (folder / "birds/data").mkdir(parents=True)
    (folder / "birds/data/train.csv").write_text(CSV)
    monkeypatch.chdir(folder / "birds/data")
    assert str(catalog.add(".").reference) == "birds:1.0.0"


def test_without_any_name_the_caller_is_asked(catalog: registry.Catalog) -> None:
    with pytest.raises(UsageError) as caught:
        catalog.add("https://host/train.csv")
    assert caught.value.message == "no name can be derived from 'https://host/train.csv'"
    assert caught.value.hint == "Name the dataset: name=NAME"


def test_versions_without_a_recorded_place_are_asked_about_once(
    catalog: registry.Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:  # as an older registry published
        publish = SqlCatalog.publish

        def without_producer(catalog: SqlCatalog, *args: Any, details: PublicationDetails, **options: Any) -> Any:
            return publish(catalog, *args, details=replace(details, producer=None), **options)

        patch.setattr(SqlCatalog, "publish", without_producer)
        catalog.add(folder / "shop/prices.csv")
    error = refusal(lambda: catalog.add(folder / "shop/prices.csv"))
    assert error.message == (
        f"prices:1.0.0 comes from an addition that recorded no place, not from {folder}/shop/prices.csv"
    )
    assert catalog.add(folder / "shop/prices.csv", "prices").outcome == "unchanged"
    assert (
        catalog.add(folder / "shop/prices.csv").outcome == "unchanged"
    )  # the place is recorded, though nothing is new
    (folder / "shop/prices.csv").write_text(CSV + "desk,120.25\n")
    assert str(catalog.add(folder / "shop/prices.csv").reference) == "prices:2.0.0"


@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_of_two_strangers_at_once_one_gets_the_name(
    request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    files = tmp_path / "files" if place == "disk" else f"{request.getfixturevalue('bucket')}/files"
    catalog = registry.connect(tmp_path / "catalog.db", data_dir=files)
    together = Barrier(2)
    require = adding.Adding._require_continued

    def wait(self: Any, *arguments: Any) -> Any:
        found = require(self, *arguments)
        together.wait(60)  # both have found no dataset of this name
        return found

    monkeypatch.setattr(adding.Adding, "_require_continued", wait)

    def add(name: str) -> str:
        try:
            return str(catalog.add(folder / name / "prices.csv").reference)
        except OtherSourceError as error:
            return error.code

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(add, ["shop", "atlas"])) == ["other_source", "prices:1.0.0"]
    assert versions(catalog, "prices") == ["1.0.0"]
    assert len(catalog.dataset("prices").verify(deep=True).faults) == 0
    assert open_store(f"{files}/prices").folders() == ["1.0.0"]
    assert catalog.reservations.list() == ()


def test_the_place_is_in_no_file_and_in_no_other_catalog(folder: Path, tmp_path: Path) -> None:
    def published(name: str, place: Path) -> dict[str, bytes]:
        with registry.connect(tmp_path / f"{name}.db", data_dir=tmp_path / f"of_{name}") as catalog:
            version = catalog.add(place, "prices").publication
            assert version is not None
            catalog.dataset("prices").pin("train").save(tmp_path / f"{name}.lock.yaml")
            with registry.connect(tmp_path / f"copy_of_{name}.db", data_dir=tmp_path / f"copied_{name}") as other:
                catalog.copy("prices", other)
                log = b"".join(other.backend.backup())
                refusal(lambda: other.add(place, "prices"))
        files = {
            str(path.relative_to(tmp_path / f"of_{name}")): path.read_bytes()
            for path in (tmp_path / f"of_{name}").rglob("*")
            if path.is_file()
        }
        assert b"elsewhere" not in b"".join([*files.values(), (tmp_path / f"{name}.lock.yaml").read_bytes()])
        assert str(place).encode() not in log
        return files

    (tmp_path / "elsewhere").mkdir()
    shutil.copy(folder / "shop/prices.csv", tmp_path / "elsewhere/prices.csv")
    assert published("here", folder / "shop/prices.csv") == published("there", tmp_path / "elsewhere/prices.csv")


def test_a_bucket_names_the_dataset_and_its_loser_leaves_nothing(bucket: str, folder: Path, tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/files") as catalog:
        for name, text in (("shop", CSV), ("atlas", OTHER)):
            with open_store(f"{bucket}/{name}").create("train.csv") as file:
                file.write(text.encode())
        assert str(catalog.add(f"{bucket}/shop/train.csv").reference) == "shop:1.0.0"
        assert catalog.add(f"{bucket}/shop/train.csv").outcome == "unchanged"
        (folder / "shop/shop.csv").write_text(CSV)
        error = refusal(lambda: catalog.add(folder / "shop/shop.csv"))
        assert error.message == (
            f"shop:1.0.0 comes from {bucket}/shop/train.csv (csv), not from {folder}/shop/shop.csv"
        )
        assert open_store(f"{bucket}/files/shop").folders() == ["1.0.0"]
        assert catalog.reservations.list() == ()


def test_the_home_folder_can_be_written_with_a_tilde(
    catalog: registry.Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from registry.intake.listing import place_of

    monkeypatch.setenv("HOME", str(folder))
    assert place_of("~/shop/prices.csv") == os.path.realpath(folder / "shop/prices.csv")


def test_a_build_does_not_pass_off_a_version_that_was_added_as_its_own(
    catalog: registry.Catalog, tmp_path: Path
) -> None:
    (tmp_path / "digits.csv").write_text(CSV)
    catalog.add(tmp_path / "digits.csv")
    for build in (catalog.build, catalog.preview_build):
        error = refusal(lambda build=build: build("digits"))  # type: ignore[misc]
        assert error.message == f"digits:1.0.0 comes from {tmp_path}/digits.csv (csv), not from a builder"
        assert error.hint == (
            "Raise VERSION in the builder class, or build into another catalog: url=URL\n"
            "To compare its content with the builder's: rebuild=True"
        )
    assert error.details["producer"]["action"] == "add"
    with pytest.raises(VersionExistsError):
        catalog.build("digits", rebuild=True)
    assert versions(catalog, "digits") == ["1.0.0"]


@pytest.mark.parametrize("action", ["publish", "import"])
def test_a_folder_that_was_prepared_may_be_that_of_the_builder(
    catalog: registry.Catalog, tmp_path: Path, action: str
) -> None:
    folder = prepare(tmp_path / "prepared/digits/1.0.0", name="digits")
    if action == "publish":
        catalog.publish(folder)
    else:
        catalog.import_tfds(folder).require_all()
    assert not catalog.build("digits").newly


def test_a_version_of_a_builder_that_was_copied_or_published_before_is_found(
    catalog: registry.Catalog, tmp_path: Path
) -> None:
    assert catalog.build("digits").newly
    assert not catalog.build("digits").newly
    with registry.connect(tmp_path / "other.db", data_dir=tmp_path / "other_files") as other:
        catalog.copy("digits:1.0.0", other)
        assert not other.build("digits").newly


def shards(folder: Path, name: str = "a") -> Path:
    folder.mkdir(parents=True)
    pq.write_table(pa.table({name: [1, 2, 3]}), folder / "train-00000-of-00001.parquet")
    return folder


@pytest.mark.parametrize("door", ["add", "add in place", "build", "publish", "import"])
def test_an_import_with_a_derived_name_continues_only_what_was_imported_from_there(
    catalog: registry.Catalog, tmp_path: Path, door: str
) -> None:
    first = shards(tmp_path / "a/birds")
    if door == "build":
        shutil.copytree(first, tmp_path / "a/digits")
        catalog.build("digits")
        name, earlier = "digits", "a builder"
    elif door == "publish":
        catalog.publish(prepare(tmp_path / "prepared", name="birds"))
        name, earlier = "birds", "a prepared folder"
    elif door == "import":
        catalog.import_parquet(first)
        name, earlier = "birds", f"an import of {first}"
    else:
        catalog.add(first, in_place=door == "add in place")
        name, earlier = "birds", f"{first} (parquet)"
    other = shards(tmp_path / "b" / name, "b")
    for attempt in (catalog.preview_parquet, catalog.import_parquet):
        error = refusal(lambda attempt=attempt: attempt(other, version="2.0.0"))  # type: ignore[misc]
        assert error.message == f"{name}:1.0.0 comes from {earlier}, not from an import of {other}"
        assert error.hint == (
            f"Make it another dataset: name=NAME. Or make it the next version of {name}: name={name!r}"
        )
        assert error.details["options"] == ["name=NAME", f"name={name!r}"]
    assert versions(catalog, name) == ["1.0.0"]
    assert catalog.preview_parquet(other, name=name, version="2.0.0").name == name
    assert str(catalog.import_parquet(other, name=name, version="2.0.0").version.reference) == f"{name}:2.0.0"
    assert not catalog.import_parquet(other, version="2.0.0").newly
    (other / "train-00000-of-00001.parquet").unlink()
    shutil.copy(first / "train-00000-of-00001.parquet", other / "train-00000-of-00001.parquet")
    publication = catalog.import_parquet(f"{other}/", version="3.0.0", copy=True)  # the dataset comes from there now
    assert str(publication.version.reference) == f"{name}:3.0.0"


def test_an_addition_does_not_continue_an_import_from_the_same_place(catalog: registry.Catalog, tmp_path: Path) -> None:
    folder = shards(tmp_path / "a/birds")
    catalog.import_parquet(folder)
    error = refusal(lambda: catalog.add(folder))
    assert error.message == f"birds:1.0.0 comes from an import of {folder}, not from {folder}"


def test_of_two_imports_at_once_one_gets_the_derived_name(catalog: registry.Catalog, tmp_path: Path) -> None:
    folders = [shards(tmp_path / name / "birds", name) for name in ("a", "b")]
    barrier = Barrier(2)

    def run(place: int) -> str:
        with registry.connect(catalog.url, data_dir=tmp_path / "registry_files") as own:
            barrier.wait()
            try:
                return str(own.import_parquet(folders[place], version=f"{place + 1}.0.0").version.reference)
            except OtherSourceError as error:
                return error.code

    with ThreadPoolExecutor(2) as pool:
        results = sorted(pool.map(run, (0, 1)))
    assert results in (["birds:1.0.0", "other_source"], ["birds:2.0.0", "other_source"])
    assert len(versions(catalog, "birds")) == 1
