"""Splits whose names have letters beyond ASCII: TFDS writes and slices them, so what it prepared is read as it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import registry
from registry.catalog import schema
from registry.errors import SourceError, SplitSyntaxError

NAMES = ("très", "训练", "обучение")


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A version as TFDS writes it."""
    with registry.connect(f"sqlite:///{tmp_path / 'made.db'}", data_dir=tmp_path / "made", create=True) as catalog:
        catalog.add({f"s{place}": [{"x": place * 10 + n} for n in range(10)] for place in range(3)}, "d")
    folder = tmp_path / "tfds" / "d" / "1.0.0"
    shutil.copytree(tmp_path / "made" / "d" / "1.0.0", folder)
    for place, name in enumerate(NAMES):
        for path in list(folder.glob(f"d-s{place}.*")):
            path.rename(folder / path.name.replace(f"s{place}", name))
    info = folder / "dataset_info.json"
    text = info.read_text()
    for place, name in enumerate(NAMES):
        text = text.replace(f'"s{place}"', f'"{name}"')
    info.write_text(text)
    return folder


@pytest.mark.parametrize("copy", [False, True])
def test_splits_of_any_script_are_imported_sliced_and_pinned(tmp_path: Path, prepared: Path, copy: bool) -> None:
    with registry.connect(f"sqlite:///{tmp_path / 'c.db'}", data_dir=tmp_path / "data", create=True) as catalog:
        (version,) = catalog.import_tfds(prepared, copy=copy)
        assert version.error is None
        dataset = catalog.dataset("d")
        assert set(dataset.splits) == set(NAMES)
        for place, name in enumerate(NAMES):
            assert sorted(int(row["x"]) for row in dataset.read(name)) == [*range(place * 10, place * 10 + 10)]
        halves = [int(row["x"]) for row in dataset.read("训练[:50%]+训练[50%:]")]
        assert halves == [int(row["x"]) for row in dataset.read("训练")]
        dataset.verify()
        expected = [int(row["x"]) for row in dataset.read("très[:40%]")]
        dataset.pin("très[:40%]").save(tmp_path / "paper.lock.yaml")
        root = catalog.data_dir
    (pinned,) = registry.load_pin(tmp_path / "paper.lock.yaml", data_dir=root if copy else prepared.parents[1]).values()
    assert [int(row["x"]) for row in pinned.read()] == expected


def test_splits_of_any_script_are_copied_to_a_bucket_and_found_in_any_database(
    database_url: str, bucket: str, prepared: Path
) -> None:
    schema.upgrade(database_url)
    with registry.connect(database_url, data_dir=f"{bucket}/data") as catalog:
        (version,) = catalog.import_tfds(prepared, copy=True)
        assert version.error is None
    with registry.connect(database_url) as catalog:
        dataset = catalog.dataset("d")
        assert set(dataset.splits) == set(NAMES)
        assert sorted(int(row["x"]) for row in dataset.read("обучение")) == [*range(20, 30)]
        assert dataset.verify(deep=True).faults == ()


def test_new_splits_have_ascii_names_which_every_slicing_rule_reads(tmp_path: Path) -> None:
    with registry.connect(f"sqlite:///{tmp_path / 'c.db'}", data_dir=tmp_path / "data", create=True) as catalog:
        with pytest.raises(SourceError, match="invalid split name 'très'") as caught:
            catalog.add({"très": [{"x": 1}]}, "d")
        assert "rename_splits" in (caught.value.hint or "")
        catalog.add({"très": [{"x": 1}]}, "d", rename_splits={"très": "tres"})
        with pytest.raises(SplitSyntaxError):
            catalog.dataset("d").read("très")
