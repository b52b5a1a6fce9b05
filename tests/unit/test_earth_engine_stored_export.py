"""The description of an export derived from its records and its mixer, and the errors if these do not match."""

import gzip
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.earth_engine_samples import (
    mixer_of,
    ramp,
    record_of,
    sequence_record,
    tiles_of,
    write_image,
    write_records,
)
from support.golden import check_errors

from registry.builders.earth_engine.assembling.assemble import assemble
from registry.builders.earth_engine.grid import NO_KERNEL, Size
from registry.builders.earth_engine.stored.export import open_export
from registry.builders.earth_engine.stored.importing import preview_export
from registry.errors import CorruptExampleError, CorruptRecordError, PreparedFormatError
from registry.wire import encode_example

GOLDEN = Path(__file__).parent / "golden" / "earth_engine_stored_export"


def refuse(name: str, tmp_path: Path, *rows: tuple[str, dict[str, Any]]) -> None:
    """Compare the errors of exports in subfolders, opened with these options, with the golden file of a test."""
    calls = (partial(open_export, tmp_path / folder, **options) for folder, options in rows)
    check_errors(GOLDEN / f"{name}.txt", calls, folder=tmp_path)


def test_bands_kinds_and_margin_are_derived_from_the_first_record(tmp_path: Path) -> None:
    bands = {"grey": ramp(8, 4, "uint8"), "class": ramp(8, 4, "int16"), "ndvi": ramp(8, 4)}
    write_image(tmp_path, "p", bands, (4, 2), margin=(3, 1), native=True, shards=2)
    export = open_export(tmp_path, kernel_size=[6, 3], count=True)
    assert [(band.name, band.kind, band.dtype, band.depth) for band in export.bands] == [
        ("class", "int64", "int64", 1),
        ("grey", "bytes", "uint8", 1),
        ("ndvi", "float", "float32", 1),
    ]
    assert (export.tile.size, export.tile.margin, export.kernel) == (Size(10, 4), Size(3, 1), Size(6, 3))
    assert (export.counts, export.num_records, [band.depth for band in export.bands]) == ((2, 2), 4, [1, 1, 1])
    assert (export.grid.covered, export.grid.margin) == (Size(8, 4), Size(3, 1))
    assert (export.is_table, export.is_sequence, export.collapsed, export.warnings) == (False, False, None, ())


def test_the_kernel_of_square_patches_is_inferred(tmp_path: Path) -> None:
    write_image(tmp_path, "p", {"a": ramp(8, 8)}, (4, 4), margin=(2, 2))
    assert open_export(tmp_path).kernel == Size(4, 4)
    write_image(tmp_path / "b", "p", {"a": ramp(8, 8)}, (4, 4))
    assert open_export(tmp_path / "b").kernel == NO_KERNEL


def test_values_that_cannot_be_derived_must_be_given(tmp_path: Path) -> None:
    write_image(tmp_path, "p", {"a": ramp(9, 4)}, (3, 2), margin=(1, 0))
    refuse("values_that_cannot_be_derived_must_be_given", tmp_path, ("", {}), ("", {"kernel_size": [4, 4]}))


def test_an_odd_kernel_in_the_guides_words_is_read_with_a_warning(tmp_path: Path) -> None:
    write_records(tmp_path, "p", [record_of({"a": ramp(5, 5)})])
    (tmp_path / "p-mixer.json").write_text(json.dumps(mixer_of((2, 2), 1, 1)))
    export = open_export(tmp_path, kernel_size=3)
    assert export.warnings == (
        (
            "The tiles are 5 x 5, a patch plus its odd kernel: the additional pixels are assumed "
            "to be on the right and at the bottom."
        ),
    )
    assert export.kernel == Size(3, 3)


def test_the_depth_of_an_array_band_is_derived_from_the_other_bands_or_given(tmp_path: Path) -> None:
    series = np.stack([ramp(4, 4) + 100 * level for level in range(3)])
    write_image(tmp_path, "p", {"flat": ramp(4, 4), "ndvi": series}, (2, 2))
    inferred = open_export(tmp_path)
    assert [band.depth for band in inferred.bands] == [1, 3]
    assert inferred.warnings == ("The band 'ndvi' has 3 values a pixel, inferred from the size of 'flat'.",)
    given = open_export(tmp_path, tensor_depths={"ndvi": 3}, count=True)
    assert [band.depth for band in given.bands] == [1, 3]
    assert (given.warnings, sum(band.depth for band in given.bands)) == ((), 4)
    depths = ({"ndvi": 4}, {"ndvi": 2}, {"ndvi": 5}, {"evi": 3})
    refuse("the_depth_of_an_array_band", tmp_path, *(("", {"tensor_depths": depth}) for depth in depths))


def test_more_names_than_features_are_the_channels_of_a_collapsed_export(tmp_path: Path) -> None:
    stack = np.stack([ramp(4, 4) + 100 * level for level in range(3)])
    write_image(tmp_path, "p", {"red": stack}, (2, 2))
    export = open_export(tmp_path, bands=["red", "green", "blue"], count=True)
    assert export.collapsed == ("red", "green", "blue")
    assert [(band.name, band.depth) for band in export.bands] == [("red", 3)]
    with_array = open_export(tmp_path, bands=["red", "ndvi"], tensor_depths={"ndvi": 2})
    assert with_array.collapsed == ("red", "ndvi_0", "ndvi_1")


def test_bands_are_chosen_and_ordered(tmp_path: Path) -> None:
    write_image(tmp_path, "p", {name: ramp(2, 2) for name in ("a", "b", "c")}, (2, 2))
    assert [band.name for band in open_export(tmp_path, bands=["c", "a"]).bands] == ["c", "a"]
    refuse("bands_are_chosen_and_ordered", tmp_path, *(("", {"bands": names}) for names in (["d"], ["a", "a"], [])))


def test_another_count_than_the_mixers_names_the_files(tmp_path: Path) -> None:
    for folder, total in (("three", 3), ("nine", 9)):
        write_image(tmp_path / folder, "p", {"a": ramp(6, 4)}, (2, 2), shards=2)
        (tmp_path / folder / "p-mixer.json").write_text(json.dumps(mixer_of((2, 2), 3, total)))
        assert open_export(tmp_path / folder).counts is None
    calls = (partial(open_export, tmp_path / folder, count=True) for folder in ("three", "nine"))
    check_errors(GOLDEN / "another_count.txt", calls, details=("expected", "found", "counts"), folder=tmp_path)


def test_the_mixer_of_other_patches_is_refused(tmp_path: Path) -> None:
    write_image(tmp_path, "p", {"a": ramp(6, 4)}, (2, 2))
    (tmp_path / "p-mixer.json").write_text(json.dumps(mixer_of((256, 256), 3, 6)))
    refuse("the_mixer_of_other_patches_is_refused", tmp_path, ("", {}))


def test_records_that_are_not_alike_are_named(tmp_path: Path) -> None:
    records = [record_of(tile) for tile in tiles_of({"a": ramp(4, 2), "b": ramp(4, 2)}, (2, 2))]
    odd: dict[str, dict[str, Any]] = {
        "values": {"a": np.zeros(5, np.float32), "b": np.zeros(4, np.float32)},
        "kind": {"a": np.zeros(4, np.int64), "b": np.zeros(4, np.float32)},
        "lost": {"a": np.zeros(4, np.float32)},
    }
    for name, bands in odd.items():
        write_records(tmp_path / name, "p", [*records, encode_example(bands)], shards=1)
    refuse("records_that_are_not_alike_are_named", tmp_path, *((name, {"count": True}) for name in odd))
    write_records(tmp_path, "p", [*records, b"\xff\xff"], shards=1)
    with pytest.raises(CorruptExampleError, match=r"record 2: these 2 bytes are not a tf\.train\.Example"):
        open_export(tmp_path, count=True)


def test_without_a_mixer_tiles_are_square_or_of_the_size_that_is_given(tmp_path: Path) -> None:
    write_image(tmp_path, "p", {"a": ramp(8, 8)}, (4, 4), mixer=False)
    export = open_export(tmp_path, count=True)
    assert (export.tile.size, export.mixer, export.grid, export.counts) == (Size(4, 4), None, None, (4,))
    assert export.warnings == (
        (
            "The export has no mixer, as with maskedThreshold, so the places of its patches are "
            "unknown. If Earth Engine wrote p-mixer.json, put it next to the files."
        ),
    )
    given = open_export(tmp_path, patch_dimensions=[2, 2]).tile
    assert (given.patch, given.margin) == (Size(2, 2), Size(1, 1))
    write_image(tmp_path / "b", "p", {"a": ramp(6, 4)}, (3, 2), mixer=False)
    refuse("without_a_mixer", tmp_path, ("b", {}))
    assert open_export(tmp_path / "b", patch_dimensions=[3, 2]).tile.size == Size(3, 2)


def test_a_pixel_with_a_series_is_recognised_by_its_shape(tmp_path: Path) -> None:
    records = [sequence_record({"label": index}, {"ndvi": [0.5] * (index % 3)}) for index in range(8)]
    write_records(tmp_path, "p", records)
    (tmp_path / "p-mixer.json").write_text(json.dumps(mixer_of((2, 2), 2, 2)))
    export = open_export(tmp_path, count=True)
    assert export.is_sequence
    assert [(band.name, band.kind, band.depth, band.is_series) for band in export.bands] == [
        ("label", "float", 1, False),
        ("ndvi", "float", None, True),
    ]
    assert (export.counts, export.tile, [band.depth for band in export.bands]) == ((8,), None, [1, None])
    (tmp_path / "p-mixer.json").write_text(json.dumps(mixer_of((2, 2), 2, 4)))
    refuse("a_pixel_with_a_series", tmp_path, ("", {"count": True}), ("", {"kernel_size": 4}))


def test_pixels_of_scalar_bands_only_are_recognised_by_the_mixer(tmp_path: Path) -> None:
    write_records(tmp_path, "p", [sequence_record({"a": index, "b": 0}, {}) for index in range(8)])
    (tmp_path / "p-mixer.json").write_text(json.dumps(mixer_of((2, 2), 2, 2)))
    assert open_export(tmp_path, count=True).is_sequence
    (tmp_path / "p-mixer.json").unlink()
    assert not open_export(tmp_path).is_sequence
    assert open_export(tmp_path, sequence=True).is_sequence


def test_pixels_of_scalar_bands_only_are_recognised_by_empty_feature_lists(tmp_path: Path) -> None:
    empty = bytes.fromhex("1200")  # TensorFlow writes the field if it was set
    write_records(tmp_path, "p", [sequence_record({"a": index, "b": 0}, {}) + empty for index in range(8)])
    assert open_export(tmp_path).is_sequence
    pixels = np.frombuffer(b"\0\0" + empty, np.uint8).reshape(1, 2, 2)
    write_image(tmp_path / "b", "p", {"a": pixels}, (2, 2), mixer=False)
    assert not open_export(tmp_path / "b").is_sequence


def test_compression_is_detected_from_the_bytes_and_a_wrong_suffix_is_warned_of(tmp_path: Path) -> None:
    write_image(tmp_path, "p", {"a": ramp(2, 2)}, (2, 2))
    (tmp_path / "p-00000.tfrecord.gz").rename(tmp_path / "p-00000.tfrecord")
    assert open_export(tmp_path, count=True).warnings == (
        ("p-00000.tfrecord is gzip, but its name does not end in .gz; it is read by its content."),
    )
    plain = gzip.decompress((tmp_path / "p-00000.tfrecord").read_bytes())
    (tmp_path / "p-00000.tfrecord").unlink()
    (tmp_path / "p-00000.tfrecord.gz").write_bytes(plain)
    assert open_export(tmp_path, count=True).warnings == (
        "p-00000.tfrecord.gz ends in .gz, but is not gzip; it is read by its content.",
    )


def test_damaged_files_are_named_with_the_record(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).random((64, 64)).astype(np.float32)
    whole = (write_image(tmp_path / "p", "p", {"a": noise}, (8, 8)) / "p-00000.tfrecord.gz").read_bytes()
    for cut in (len(whole) // 2, len(whole) - 4):
        path = tmp_path / "p" / "p-00000.tfrecord.gz"
        path.write_bytes(whole[:cut])
        with pytest.raises(CorruptRecordError, match="the gzip stream ends too early") as caught:
            open_export(tmp_path / "p", count=True)
        assert caught.value.details["path"] == str(path)
    contents = {"page": b"<html>You have no access.</html>", "empty": b"", "none": gzip.compress(b"")}
    for name, content in contents.items():
        write_image(tmp_path / name, "p", {"a": noise}, (8, 8))
        (tmp_path / name / "p-00000.tfrecord.gz").write_bytes(content)
    refuse("damaged_files_are_named_with_the_record", tmp_path, *((name, {}) for name in contents))


def test_a_hostile_mixer_is_refused_at_once(tmp_path: Path) -> None:
    changes: dict[str, dict[str, Any]] = {
        "huge side": {"patchDimensions": [10**18, 1]},
        "a milliard patches": {"totalPatches": 10**9, "patchesPerRow": 10**9},
        "more than 64 bits": {"totalPatches": 10**400},
        "negative": {"totalPatches": -1},
        "zero": {"patchesPerRow": 0},
        "incomplete": {"totalPatches": 5, "patchesPerRow": 2},
        "no crs": {"projection": {"crs": "", "affine": {"doubleMatrix": [1, 0, 0, 0, 1, 0]}}},
        "flat": {"projection": {"crs": "EPSG:1", "affine": {"doubleMatrix": [0] * 6}}},
    }
    for name, change in changes.items():
        write_image(tmp_path / name, "p", {"a": ramp(2, 2)}, (2, 2))
        (tmp_path / name / "p-mixer.json").write_text(json.dumps(mixer_of((2, 2), 1, 1) | change))
    refuse("a_hostile_mixer_is_refused_at_once", tmp_path, *((name, {"count": True}) for name in changes))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_mixer_without_finite_numbers_is_refused(tmp_path: Path, number: str) -> None:
    write_image(tmp_path, "p", {"a": ramp(2, 2)}, (2, 2))
    text = json.dumps(mixer_of((2, 2), 1, 1)).replace("500000.0", number)
    (tmp_path / "p-mixer.json").write_text(text)
    with pytest.raises(PreparedFormatError):
        open_export(tmp_path)


def test_the_columns_of_a_table_are_derived_from_all_rows(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"b": np.zeros(1, np.float32), "patch": np.zeros(4, np.float32), "name": [b"x"], "n": np.zeros(1, np.float32)},
        {"b": np.zeros(1, np.float32), "patch": np.zeros(4, np.float32), "name": [b"y"], "n": np.zeros(2, np.float32)},
        {"b": np.zeros(1, np.float32), "patch": np.zeros(4, np.float32)},
    ]
    write_records(tmp_path, "t", [encode_example(row) for row in rows])
    (tmp_path / "t-00000.tfrecord.gz").rename(tmp_path / "t.tfrecord.gz")
    export = open_export(tmp_path)
    assert export.is_table
    assert [(one.name, one.kind, one.size, one.is_optional, one.square) for one in export.columns] == [
        ("b", "float", 1, False, None),
        ("n", "float", None, True, None),
        ("name", "bytes", 1, True, None),
        ("patch", "float", 4, False, 2),
    ]
    assert export.counts == (3,)
    write_records(tmp_path / "b", "t", [encode_example({"b": [b"x"]}), encode_example({"b": np.zeros(1, np.float32)})])
    (tmp_path / "b" / "t-00000.tfrecord.gz").rename(tmp_path / "b" / "t.tfrecord.gz")
    refuse("the_columns_of_a_table", tmp_path, ("b", {}))


def test_columns_of_a_table_are_chosen_and_options_of_images_are_refused(tmp_path: Path) -> None:
    write_records(tmp_path, "t", [encode_example({"a": np.zeros(16, np.float32), "b": [b"x"]})])
    (tmp_path / "t-00000.tfrecord.gz").rename(tmp_path / "t.tfrecord.gz")
    assert [column.name for column in open_export(tmp_path, bands=["b"]).columns] == ["b"]
    as_image = open_export(tmp_path, bands=["a"], kernel_size=2, patch_dimensions=2)
    assert not as_image.is_table
    assert as_image.tile.size == Size(4, 4)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "t.tfrecord.gz").write_bytes(gzip.compress(b""))
    refuse("columns_of_a_table", tmp_path, ("", {"bands": ["c"]}), ("", {"kernel_size": 2}), ("b", {}))


def test_an_unknown_option_is_refused(tmp_path: Path) -> None:
    options: Any = {"kernelsize": 3}
    calls: tuple[Callable[..., Any], ...] = (open_export, preview_export, partial(assemble, None))
    for call in calls:
        with pytest.raises(TypeError, match="unexpected keyword argument 'kernelsize'"):
            call(tmp_path / "none", **options)
