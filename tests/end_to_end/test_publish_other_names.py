"""A catalog row never refers to missing files: files of other names, or files that a refused publisher removed."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from support.prepared_samples import animals, prepare

import registry
from registry.catalog import Promotion
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import ConflictError
from registry.storage import open_store

NAME, OTHER_NAME = (f"{start}train.tfrecord-00000-of-00002" for start in ("animals-", ""))


@pytest.fixture(params=["disk", "memory"])
def data_dir(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "data") if request.param == "disk" else f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return prepare(tmp_path / "mine", splits={"train": animals(20)}, shards=2)


@pytest.fixture
def renamed(tmp_path: Path) -> Path:
    """The same content; its files are named by another template."""
    folder = prepare(tmp_path / "renamed", splits={"train": animals(20)}, shards=2)
    info = json.loads((folder / "dataset_info.json").read_text())
    info["splits"][0]["filepathTemplate"] = "{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    (folder / "dataset_info.json").write_text(json.dumps(info))
    for path in folder.glob("animals-train*"):
        path.rename(folder / path.name.removeprefix("animals-"))
    assert (folder / OTHER_NAME).exists()
    return folder


def test_files_of_other_names_that_another_catalog_left_are_not_taken_for_ours(
    data_dir: str, tmp_path: Path, mine: Path, renamed: Path
) -> None:
    with registry.connect(tmp_path / "other.db", data_dir=data_dir) as other:
        assert other.publish(mine).newly
    with registry.connect(tmp_path / "catalog.db", data_dir=data_dir) as catalog:
        with pytest.raises(ConflictError, match=r"^the folder of animals:1\.0\.0 contains other data: "):
            catalog.publish(renamed)
        assert catalog.publish(f"{data_dir}/animals/1.0.0").newly, "what the hint says"
        assert len(list(catalog.dataset("animals:1.0.0").read("train"))) == 20


def test_an_intact_version_does_not_change_if_files_of_other_names_are_published(
    data_dir: str, tmp_path: Path, mine: Path, renamed: Path
) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=data_dir) as catalog:
        assert catalog.publish(mine).newly
        before = open_store(f"{data_dir}/animals/1.0.0").list()
        assert not catalog.publish(renamed).newly
        assert open_store(f"{data_dir}/animals/1.0.0").list() == before


def test_damaged_files_are_not_replaced_by_files_of_other_names(
    data_dir: str, tmp_path: Path, mine: Path, renamed: Path
) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=data_dir) as catalog:
        assert catalog.publish(mine).newly
        with open_store(f"{data_dir}/animals/1.0.0").create(NAME, overwrite=True) as file:
            file.write(b"damaged")
        with pytest.raises(ConflictError) as caught:
            catalog.publish(renamed)
        assert str(caught.value) == (
            "animals:1.0.0 is published with files of other names, which are damaged: "
            f"expected {NAME}, found {OTHER_NAME}"
        )
        assert caught.value.hint == "Rename the files to the published names, then publish again."
        assert not catalog.publish(mine).newly
        assert len(list(catalog.dataset("animals:1.0.0").read("train"))) == 20
        assert catalog.dataset("animals:1.0.0").verify().faults == ()


@pytest.mark.parametrize("name", [None, "beasts"], ids=["published", "imported under another name"])
def test_a_refused_publisher_leaves_a_folder_that_a_row_names_by_now(
    tmp_path: Path, mine: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    """While its folder is in place on a disk, another publisher finds it and publishes it in place."""
    publish, place = SqlCatalog.publish, tmp_path / "data" / "animals" / "1.0.0"

    def refused(self: SqlCatalog, *arguments: object, **options: object) -> Promotion | None:
        monkeypatch.setattr(SqlCatalog, "publish", publish)
        with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
            (taken,) = catalog.import_tfds(place, name=name)
            assert taken.error is None
        raise ConflictError("refused for good")

    monkeypatch.setattr(SqlCatalog, "publish", refused)
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        (one,) = catalog.import_tfds(mine, copy=True)
        assert str(one.error) == "refused for good"
        assert catalog.dataset(name or "animals").verify(deep=True).faults == ()
