"""Pixels and their series: values and places."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.earth_engine_samples import mixer_of, ramp, sequence_record, write_image, write_records

from registry.api import Catalog
from registry.builders.earth_engine.patch_reader import Patches
from registry.builders.earth_engine.pixel_series import PixelSeries
from registry.builders.earth_engine.stored.importing import import_export, preview_export
from registry.errors import CorruptExampleError, UsageError
from registry.order import ReadConfig


def write_series(folder: Path) -> Path:
    """Four patches of 2 x 3 pixels, two in a row; the label of a pixel is its number in the files."""
    records = [sequence_record({"label": index}, {"ndvi": [index / 2] * (index % 4)}) for index in range(24)]
    write_records(folder, "p", records, shards=2)
    (folder / "p-mixer.json").write_text(json.dumps(mixer_of((2, 3), 2, 4)))
    return folder


def test_pixels_have_values_series_and_a_place(catalog: Catalog, tmp_path: Path) -> None:
    folder = write_series(tmp_path / "exports")
    plan = preview_export(folder)
    assert plan.notes == ("ndvi: the features of examples do not include series; read them with PixelSeries.",)
    assert list(plan.prepared.features) == ["label"]
    import_export(catalog, folder)
    pixels = PixelSeries(catalog.dataset("p"))
    assert (len(pixels), [band.name for band in pixels.bands]) == (24, ["label", "ndvi"])
    found = list(pixels)
    for index, pixel in enumerate(found):
        patch, place = divmod(index, 6)
        row, column = patch // 2 * 3 + place // 2, patch % 2 * 2 + place % 2
        assert (pixel.patch, pixel.row, pixel.column) == (patch, row, column)
        assert pixel.values["label"] == index
        np.testing.assert_array_equal(pixel.values["ndvi"], np.full(index % 4, index / 2, np.float32))
    assert [pixel.values["label"] for pixel in PixelSeries(catalog.dataset("p"), "train[20:]")] == [20, 21, 22, 23]


def test_shuffled_pixels_keep_their_places(catalog: Catalog, tmp_path: Path) -> None:
    import_export(catalog, write_series(tmp_path / "exports"))
    expected = {int(one.values["label"]): (one.row, one.column) for one in PixelSeries(catalog.dataset("p"))}
    shuffled = PixelSeries(catalog.dataset("p"), read_config=ReadConfig(shuffle="global"), bands=["label"])
    labels = [int(one.values["label"]) for one in shuffled]
    assert labels != sorted(labels)
    assert {int(one.values["label"]): (one.row, one.column) for one in shuffled} == expected


def test_plain_files_are_read_without_a_catalog(tmp_path: Path) -> None:
    folder = write_series(tmp_path / "exports")
    assert [one.values["label"] for one in PixelSeries.of_files(folder, "train[:2]")] == [0, 1]


def test_patches_cannot_be_read_as_pixels_or_pixels_as_patches(catalog: Catalog, tmp_path: Path) -> None:
    import_export(catalog, write_series(tmp_path / "exports"))
    import_export(catalog, write_image(tmp_path / "image", "image", {"a": ramp(4, 4)}, (2, 2)), name="image")
    with pytest.raises(UsageError, match=r"expected pixels with series \(sequenceData\), found another export"):
        PixelSeries(catalog.dataset("image"))
    with pytest.raises(UsageError, match=r"expected patches, found pixels with series \(sequenceData\)"):
        Patches(catalog.dataset("p"))
    with pytest.raises(UsageError, match="band 'evi' does not exist"):
        PixelSeries(catalog.dataset("p"), bands=["evi"])


def test_a_series_of_another_kind_is_named(tmp_path: Path) -> None:
    records = [sequence_record({"label": 0}, {"ndvi": [1]}), sequence_record({}, {"ndvi": [1]})]
    write_records(tmp_path, "p", records)
    pixels = iter(PixelSeries.of_files(tmp_path, sequence=True))
    next(pixels)
    with pytest.raises(CorruptExampleError, match=r"^p-00000\.tfrecord\.gz__1: band 'label': expected pixels"):
        next(pixels)
