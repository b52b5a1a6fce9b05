"""An author's ``METADATA`` of a dataset is kept in the catalog, on disk, and on export to TFDS."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support import warm_python
from support.golden import check_errors

import registry
from registry.building import DatasetBuilder
from registry.features import FeaturesDict, Scalar

GOLDEN = Path(__file__).with_name("golden")

ATTACHED = {"sensor": {"bands": ["red", "grün"], "height": 1.5}, "mixers": [None, True, 7]}


class Measured(DatasetBuilder):
    VERSION = "1.0.0"
    METADATA = ATTACHED

    def features(self) -> FeaturesDict:
        return FeaturesDict({"n": Scalar("int64")})

    def splits(self) -> Mapping[str, Iterator[tuple[int, dict[str, Any]]]]:
        return {"train": ((n, {"n": n}) for n in range(3))}


@pytest.fixture
def catalog(catalog_url: str, tmp_path: Path) -> Iterator[registry.Catalog]:
    with registry.connect(catalog_url, data_dir=tmp_path / "data") as opened:
        yield opened


def test_it_is_found_in_the_catalog_and_on_disk(catalog: registry.Catalog) -> None:
    catalog.build(Measured)
    dataset = catalog.dataset("measured")
    assert dataset.info.metadata == dataset.metadata.custom == ATTACHED
    assert json.loads(Path(dataset.local_folder or "", "metadata.json").read_text()) == ATTACHED


def test_it_is_exported_for_tfds_and_imported_again(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.build(Measured)
    catalog.dataset("measured").export_tfds(tmp_path / "out")
    assert json.loads((tmp_path / "out/measured/1.0.0/metadata.json").read_text()) == ATTACHED
    with registry.connect(tmp_path / "other.db", data_dir=tmp_path / "other") as other:
        (found,) = other.import_tfds(tmp_path / "out", copy=True)
        assert found.error is None
        dataset = other.dataset("measured")
        assert dataset.info.metadata == ATTACHED
        assert json.loads(Path(dataset.local_folder or "", "metadata.json").read_text()) == ATTACHED


@pytest.mark.parametrize(
    "text",
    [b"[1, 2]", b"{", b"\xff\xfe", b'{"a": 1, "a": 2}', b'{"a": NaN}', b'{"a": "' + b"x" * 2**20 + b'"}'],
    ids=["list", "cut", "binary", "twice", "nan", "large"],
)
def test_a_metadata_file_of_another_form_stays_a_file(catalog: registry.Catalog, tmp_path: Path, text: bytes) -> None:
    """TFDS writes any metadata of an author. No record needs it, so it never prevents an import and is kept."""
    catalog.build(Measured)
    catalog.dataset("measured").export_tfds(tmp_path / "out")
    (tmp_path / "out/measured/1.0.0/metadata.json").write_bytes(text)
    with registry.connect(tmp_path / "other.db", data_dir=tmp_path / "other") as other:
        (found,) = other.import_tfds(tmp_path / "out", copy=True)
        assert found.error is None
        dataset = other.dataset("measured")
        assert dataset.info.metadata == {}
        assert Path(dataset.local_folder or "", "metadata.json").read_bytes() == text
        dataset.export_tfds(tmp_path / "again")
        assert (tmp_path / "again/measured/1.0.0/metadata.json").read_bytes() == text


def test_a_dataset_without_custom_metadata_has_no_metadata_file(catalog: registry.Catalog) -> None:
    class Plain(Measured):
        METADATA: Mapping[str, Any] = {}

    catalog.build(Plain)
    dataset = catalog.dataset("plain")
    assert dataset.info.metadata == {}
    assert not Path(dataset.local_folder or "", "metadata.json").exists()


def test_a_value_that_json_cannot_store_is_refused_when_the_class_is_used(catalog: registry.Catalog) -> None:
    def attempt(attached: Any) -> None:
        bad = type("Bad", (Measured,), {"METADATA": attached})
        catalog.build(bad)

    check_errors(
        GOLDEN / "custom_metadata" / "a_value_that_json_cannot_store_is_refused_when_the_class_is_used.txt",
        (partial(attempt, attached) for attached in ["text", {1: 2}, {"a": float("nan")}, {"a": b"x"}]),
    )


def test_show_tells_of_it(catalog: registry.Catalog, catalog_url: str, tmp_path: Path) -> None:
    catalog.build(Measured)
    show = [sys.executable, "-m", "registry", "show", "measured", "--catalog", catalog_url]
    show += ["--data-dir", str(tmp_path / "data")]
    shown = warm_python.run(show, check=True, capture_output=True, text=True).stdout
    assert re.search(r"^metadata +mixers, sensor: see --format json$", shown, flags=re.MULTILINE) is not None
    data = json.loads(warm_python.run([*show, "--format", "json"], check=True, capture_output=True, text=True).stdout)
    assert data["data"]["metadata"] == ATTACHED
