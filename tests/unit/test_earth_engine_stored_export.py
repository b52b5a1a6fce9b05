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

from registry.builders.earth_engine.assembling.assemble import assemble
from registry.builders.earth_engine.grid import NO_KERNEL, Size
from registry.builders.earth_engine.stored.export import open_export
from registry.builders.earth_engine.stored.importing import preview_export
from registry.errors import (
    CorruptExampleError,
    CorruptRecordError,
    FeatureNotFoundError,
    PreparedFormatError,
    RegistryError,
    ShardMismatchError,
    UsageError,
)
from registry.wire import encode_example


def refused(folder: Path, **options: Any) -> RegistryError:
    with pytest.raises(RegistryError) as caught:
        open_export(folder, **options)
    caught.value.message = caught.value.message.replace(f"file://{folder}", "DIR").replace(f"{folder}", "DIR")
    return caught.value


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
    assert (export.counts, export.num_records, export.num_channels) == ((2, 2), 4, 3)
    assert (export.grid.covered, export.grid.margin) == (Size(8, 4), Size(3, 1))
    assert (export.is_table, export.is_sequence, export.collapsed, export.warnings) == (False, False, None, ())


def test_the_kernel_of_square_patches_is_inferred(tmp_path: Path) -> None:
    write_image(tmp_path, "p", {"a": ramp(8, 8)}, (4, 4), margin=(2, 2))
    assert open_export(tmp_path).kernel == Size(4, 4)
    write_image(tmp_path / "b", "p", {"a": ramp(8, 8)}, (4, 4))
    assert open_export(tmp_path / "b").kernel == NO_KERNEL


def test_values_that_cannot_be_derived_must_be_given(tmp_path: Path) -> None:
    write_image(tmp_path, "p", {"a": ramp(9, 4)}, (3, 2), margin=(1, 0))
    error = refused(tmp_path)
    assert isinstance(error, UsageError)
    assert error.message == (
        "the band 'a' has 10 values around a patch of 3 x 2: the width and height of the margin are ambiguous"
    )
    error = refused(tmp_path, kernel_size=[4, 4])
    assert isinstance(error, ShardMismatchError)
    assert error.message == ("the band 'a': expected 42 values for a patch of 3 x 2 with a kernel of 4 x 4, found 10")


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
    assert (given.warnings, given.num_channels) == ((), 4)
    error = refused(tmp_path, tensor_depths={"ndvi": 4})
    assert isinstance(error, ShardMismatchError)
    assert error.message == ("the band 'ndvi': expected 4 values, or more with a margin, for a patch of 2 x 2, found 3")
    assert refused(tmp_path, tensor_depths={"ndvi": 2}).message == (
        "the bands have different sizes: 'ndvi' has 6 values a level, 'flat' has 4"
    )
    assert refused(tmp_path, tensor_depths={"ndvi": 5}).message == (
        "band 'ndvi': expected a multiple of its depth 5, found 12 values"
    )
    with pytest.raises(FeatureNotFoundError, match="no feature 'evi' in"):
        open_export(tmp_path, tensor_depths={"evi": 3})


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
    error = refused(tmp_path, bands=["d"])
    assert isinstance(error, FeatureNotFoundError)
    assert error.message == "no feature 'd' in DIR/p-00000.tfrecord.gz"
    assert (
        refused(tmp_path, bands=["a", "a"]).message
        == "invalid bands ['a', 'a']: expected one or more names, each only once"
    )
    error = refused(tmp_path, bands=[])
    assert error.message == "invalid bands []: expected one or more names, each only once"
    assert error.hint == "For example: bands=['red', 'green']; on the command line, --band red --band green."


@pytest.mark.parametrize(("total", "per_row"), [(9, 3), (3, 3)])
def test_another_count_than_the_mixers_names_the_files(tmp_path: Path, total: int, per_row: int) -> None:
    write_image(tmp_path, "p", {"a": ramp(6, 4)}, (2, 2), shards=2)
    (tmp_path / "p-mixer.json").write_text(json.dumps(mixer_of((2, 2), per_row, total)))
    assert open_export(tmp_path).counts is None
    error = refused(tmp_path, count=True)
    assert isinstance(error, ShardMismatchError)
    assert error.message == (
        f"DIR: expected {total} records for the patches in p-mixer.json, found 6 records\n  p-00000.tfrecord.gz: "
        f"3\n  p-00001.tfrecord.gz: 3"
    )
    assert error.hint == ("Check that all files were downloaded completely, and that the mixer belongs to this export.")
    assert error.details == {"expected": total, "found": 6, "counts": [3, 3]}


def test_the_mixer_of_other_patches_is_refused(tmp_path: Path) -> None:
    write_image(tmp_path, "p", {"a": ramp(6, 4)}, (2, 2))
    (tmp_path / "p-mixer.json").write_text(json.dumps(mixer_of((256, 256), 3, 6)))
    assert refused(tmp_path).message == (
        "the band 'a': expected 65536 values, or more with a margin, for a patch of 256 x 256, found 4"
    )


def test_records_that_are_not_alike_are_named(tmp_path: Path) -> None:
    tiles = tiles_of({"a": ramp(4, 2), "b": ramp(4, 2)}, (2, 2))
    records = [record_of(tile) for tile in tiles]
    odd: dict[str, tuple[bytes, str]] = {
        "values": (
            encode_example({"a": np.zeros(5, np.float32), "b": np.zeros(4, np.float32)}),
            "band 'a': expected 4 values as in the first record, found 5",
        ),
        "kind": (
            encode_example({"a": np.zeros(4, np.int64), "b": np.zeros(4, np.float32)}),
            "band 'a': expected kind float as in the first record, found int64",
        ),
        "lost": (
            encode_example({"a": np.zeros(4, np.float32)}),
            "band 'b' of the first record is missing",
        ),
    }
    for name, (record, problem) in odd.items():
        write_records(tmp_path / name, "p", [*records, record], shards=1)
        error = refused(tmp_path / name, count=True)
        assert isinstance(error, ShardMismatchError)
        assert error.message == f"DIR/p-00000.tfrecord.gz: record 2: {problem}"
    write_records(tmp_path / "none", "p", [*records, b"\xff\xff"], shards=1)
    error = refused(tmp_path / "none", count=True)
    assert isinstance(error, CorruptExampleError)
    assert error.message.startswith("DIR/p-00000.tfrecord.gz: record 2: these 2 bytes are not a tf.train.Example")


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
    error = refused(tmp_path / "b")
    assert error.message == "cannot infer the width of a tile with 6 pixels, because the mixer is missing"
    assert error.hint == "Give the size of a patch: patch_dimensions=[width, height]; --patch WIDTH,HEIGHT."
    tile = open_export(tmp_path / "b", patch_dimensions=[3, 2]).tile
    assert tile.size == Size(3, 2)


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
    assert (export.counts, export.tile, export.num_channels) == ((8,), None, None)
    (tmp_path / "p-mixer.json").write_text(json.dumps(mixer_of((2, 2), 2, 4)))
    assert refused(tmp_path, count=True).message.startswith(
        "DIR: expected 16 records for the 4 patches of 4 pixels in p-mixer.json, found 8 records"
    )
    error = refused(tmp_path, kernel_size=4)
    assert error.message == "kernel_size does not apply to an export with sequenceData, which has no margins"


def test_pixels_of_scalar_bands_only_are_recognised_by_the_mixer(tmp_path: Path) -> None:
    write_records(tmp_path, "p", [sequence_record({"a": index, "b": 0}, {}) for index in range(8)])
    (tmp_path / "p-mixer.json").write_text(json.dumps(mixer_of((2, 2), 2, 2)))
    assert open_export(tmp_path, count=True).is_sequence
    (tmp_path / "p-mixer.json").unlink()
    assert not open_export(tmp_path).is_sequence
    assert open_export(tmp_path, sequence=True).is_sequence


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
    write_image(tmp_path, "p", {"a": noise}, (8, 8))
    file = tmp_path / "p-00000.tfrecord.gz"
    whole = file.read_bytes()
    for cut in (len(whole) // 2, len(whole) - 4):
        file.write_bytes(whole[:cut])
        error = refused(tmp_path, count=True)
        assert isinstance(error, CorruptRecordError)
        assert error.details["path"] == str(file)
        assert "the gzip stream ends too early" in error.message
    file.write_bytes(b"<html>You have no access.</html>")
    error = refused(tmp_path)
    assert isinstance(error, CorruptRecordError)
    assert error.message.startswith("DIR/p-00000.tfrecord.gz: record 0 at byte 0: ")
    file.write_bytes(b"")
    error = refused(tmp_path)
    assert isinstance(error, PreparedFormatError)
    assert error.message == "DIR/p-00000.tfrecord.gz is empty (0 bytes): its download was interrupted"
    file.write_bytes(gzip.compress(b""))
    assert refused(tmp_path).message == "DIR/p-00000.tfrecord.gz contains no records"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"patchDimensions": [10**18, 1]}, "expected a whole number above 0, found 1000000000000000000"),
        (
            {"totalPatches": 10**9, "patchesPerRow": 10**9},
            "expected 1,000,000,000 records for the patches in p-mixer.json, found 1 record",
        ),
        ({"totalPatches": 10**400}, "has more than 64 bits"),
        ({"totalPatches": -1}, "expected a whole number above 0, found -1"),
        ({"patchesPerRow": 0}, "expected a whole number above 0, found 0"),
        ({"totalPatches": 5, "patchesPerRow": 2}, "totalPatches must be a multiple of patchesPerRow"),
        (
            {"projection": {"crs": "", "affine": {"doubleMatrix": [1, 0, 0, 0, 1, 0]}}},
            "expected a CRS, found an empty text",
        ),
        ({"projection": {"crs": "EPSG:1", "affine": {"doubleMatrix": [0] * 6}}}, "it maps all pixels to one line"),
    ],
    ids=["huge side", "a milliard patches", "10**400", "negative", "zero", "incomplete", "no crs", "flat"],
)
def test_a_hostile_mixer_is_refused_at_once(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    write_image(tmp_path, "p", {"a": ramp(2, 2)}, (2, 2))
    (tmp_path / "p-mixer.json").write_text(json.dumps(mixer_of((2, 2), 1, 1) | change))
    assert problem in refused(tmp_path, count=True).message


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_mixer_without_finite_numbers_is_refused(tmp_path: Path, number: str) -> None:
    write_image(tmp_path, "p", {"a": ramp(2, 2)}, (2, 2))
    text = json.dumps(mixer_of((2, 2), 1, 1)).replace("500000.0", number)
    (tmp_path / "p-mixer.json").write_text(text)
    assert isinstance(refused(tmp_path), PreparedFormatError)


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
    assert refused(tmp_path / "b").message == ("DIR/t.tfrecord.gz: column 'b' has different kinds in its rows")


def test_columns_of_a_table_are_chosen_and_options_of_images_are_refused(tmp_path: Path) -> None:
    write_records(tmp_path, "t", [encode_example({"a": np.zeros(16, np.float32), "b": [b"x"]})])
    (tmp_path / "t-00000.tfrecord.gz").rename(tmp_path / "t.tfrecord.gz")
    assert [column.name for column in open_export(tmp_path, bands=["b"]).columns] == ["b"]
    assert refused(tmp_path, bands=["c"]).message == "no feature 'c' in DIR/t.tfrecord.gz"
    error = refused(tmp_path, kernel_size=2)
    assert error.message == (
        "kernel_size and tensor_depths do not apply to a table: t.tfrecord.gz has no number and no mixer"
    )
    assert error.hint == (
        "For a table, give the shapes of columns: shapes={'NAME': (2, 2)}; --shape NAME=2,2. "
        "For an image, give patch_dimensions; --patch WIDTH,HEIGHT."
    )
    as_image = open_export(tmp_path, bands=["a"], kernel_size=2, patch_dimensions=2)
    assert not as_image.is_table
    assert as_image.tile.size == Size(4, 4)
    (tmp_path / "t.tfrecord.gz").write_bytes(gzip.compress(b""))
    assert refused(tmp_path).message == "DIR/t.tfrecord.gz contains no records"


def test_an_unknown_option_is_refused(tmp_path: Path) -> None:
    options: Any = {"kernelsize": 3}
    calls: tuple[Callable[..., Any], ...] = (open_export, preview_export, partial(assemble, None))
    for call in calls:
        with pytest.raises(TypeError, match="unexpected keyword argument 'kernelsize'"):
            call(tmp_path / "none", **options)
