"""Imports files that TFDS prepared, and reads the same values in the same order: every feature, every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.tfds_samples import exact, import_lab_features, make_plain, theirs, without_dtypes

import registry
from registry import ReadConfig

pytestmark = [
    pytest.mark.tfds,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("ignore::registry.errors.UnknownFeatureWarning"),
]


@pytest.fixture(scope="module")
def lab() -> Any:
    return import_lab_features()


def prepared(lab: Any, tfds: Any, folder: Path, file_format: str) -> Any:
    """The builder of the lab's features, with its data prepared in shards of a few records."""
    builder = lab.LabFeatures(data_dir=folder, file_format=file_format)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=2), file_format=file_format)
    return builder


@pytest.mark.parametrize("file_format", ["tfrecord", "parquet"])
def test_every_feature_is_read_as_tfds_reads_it(
    tfds: Any, lab: Any, catalog: registry.Catalog, tmp_path: Path, file_format: str
) -> None:
    builder = prepared(lab, tfds, tmp_path / "tfds", file_format)
    (imported,) = catalog.import_tfds(tmp_path / "tfds")
    assert str(imported.outcome) == "imported"
    assert len(imported.notes) == 1
    dataset = catalog.dataset("lab_features")
    for split in ("train", "test"):
        found = theirs(tfds, builder, split)
        config = ReadConfig(add_tfds_id=True)
        mine = [exact(example) for example in dataset.read(split, config).missing_as_tfds()]
        for left, right in zip(mine, found, strict=True):
            for name in right:
                assert left[name] == right[name], name
        if file_format == "tfrecord":
            shuffled = dataset.read(split, ReadConfig(shuffle_files=True, shuffle_seed=3, add_tfds_id=True))
            assert [example["tfds_id"] for example in shuffled] == [
                example["tfds_id"][1] for example in theirs(tfds, builder, split, shuffle_seed=3)
            ]


@pytest.fixture
def array_records(tfds: Any, tmp_path: Path) -> Any:
    """The builder of a prepared dataset of ArrayRecord files."""
    builder = make_plain(tfds)(data_dir=tmp_path / "tfds", file_format="array_record")
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=4), file_format="array_record")
    return builder


def test_array_records_equal_the_elements_of_the_data_source(
    array_records: Any, catalog: registry.Catalog, tmp_path: Path
) -> None:
    list(catalog.import_tfds(tmp_path / "tfds"))
    dataset = catalog.dataset("lab_plain")
    for split in ("train", "train[10%:30%]", "train[3shard]"):
        source = list(map(without_dtypes, array_records.as_data_source(split=split)))
        assert list(map(without_dtypes, dataset.read(split))) == source
        assert list(map(without_dtypes, registry.builder("lab_plain", catalog=catalog).as_data_source(split))) == source


def test_exported_array_records_are_the_same_to_tfds(
    tfds: Any, array_records: Any, catalog: registry.Catalog, tmp_path: Path
) -> None:
    list(catalog.import_tfds(tmp_path / "tfds"))
    again = tfds.builder_from_directory(catalog.dataset("lab_plain").export_tfds(tmp_path / "out").folder)
    found = [list(map(without_dtypes, one.as_data_source("train"))) for one in (again, array_records)]
    assert found[0] == found[1]


def test_an_exported_version_is_the_same_to_tfds(
    tfds: Any, lab: Any, catalog: registry.Catalog, tmp_path: Path
) -> None:
    builder = prepared(lab, tfds, tmp_path / "tfds", "tfrecord")
    list(catalog.import_tfds(tmp_path / "tfds"))
    again = tfds.builder_from_directory(catalog.dataset("lab_features").export_tfds(tmp_path / "out").folder)
    assert theirs(tfds, again, "train") == theirs(tfds, builder, "train")
