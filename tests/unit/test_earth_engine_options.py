"""Options of an export in the spelling of the guide, its clients and its REST interface; contradictory options."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.golden import check_errors

from registry.builders.earth_engine import export_image
from registry.builders.earth_engine.exporting.options import ExportOptions
from registry.builders.earth_engine.grid import Size
from registry.builders.earth_engine.kinds import fit_default, furthest, kind_of
from registry.errors import FeatureError, UsageError

GOLDEN = Path(__file__).with_name("golden")


def test_the_defaults_equal_those_of_the_guide() -> None:
    options = ExportOptions()
    assert (options.patch_dimensions, options.kernel_size) == (Size(256, 256), Size(1, 1))
    assert (options.compressed, options.max_file_size, options.default_value) == (True, 2**30, 0)
    assert (options.masked_threshold, options.encoding, options.masked, options.edge) == (1, "float", "band", "drop")


@pytest.mark.parametrize(
    "given",
    [
        {"patchDimensions": [3, 2], "kernelSize": [2, 4], "compressed": False, "maxFileSize": 99, "defaultValue": -1.5},
        {"patchSize": (3, 2), "kernel_size": (2, 4), "compress": False, "maxSizeBytes": "99", "default_value": -1.5},
        {
            "tileDimensions": [3, 2],
            "marginDimensions": [2, 4],
            "compress": False,
            "max_file_size": 99,
            "defaultValue": -1.5,
        },
        {
            "tileDimensions": {"width": 3, "height": 2},
            "marginDimensions": {"height": 4, "width": 2},
            "compress": False,
            "maxSizeBytes": "99",
            "defaultValue": -1.5,
        },
        {
            "patchDimensions": np.array([3, 2]),
            "kernelSize": [np.int64(2), np.uint8(4)],
            "compressed": False,
            "maxFileSize": np.int64(99),
            "defaultValue": np.float32(-1.5),
        },
        {
            "tfrecordPatchDimensions": [3, 2],
            "tfrecordKernelSize": [2, 4],
            "tfrecordCompressed": False,
            "tfrecordMaxFileSize": 99,
            "tfrecordDefaultValue": -1.5,
        },
    ],
    ids=["guide", "mixed", "rest", "rest objects", "numpy", "legacy"],
)
def test_an_option_has_many_names(given: dict[str, Any]) -> None:
    assert ExportOptions.of(given) == ExportOptions(
        patch_dimensions=Size(3, 2), kernel_size=Size(2, 4), compressed=False, max_file_size=99, default_value=-1.5
    )


def test_other_options_by_their_names_in_the_guide() -> None:
    options = ExportOptions.of(
        {"tensorDepths": {"ts": 3}, "sequenceData": True, "collapseBands": True, "maxMaskedRatio": 0.5}
    )
    assert (options.tensor_depths, options.sequence_data, options.collapse_bands) == ({"ts": 3}, True, True)
    assert options.masked_threshold == ExportOptions.of({"maskedThreshold": 0.5}).masked_threshold == 0.5


@pytest.mark.parametrize("value", [5, [5], (5,), [5, 5]])
def test_one_number_is_a_square(value: Any) -> None:
    assert ExportOptions.of({"patchDimensions": value}).patch_dimensions == Size(5, 5)


def test_options_that_make_no_sense_are_refused() -> None:
    check_errors(
        GOLDEN / "earth_engine_options" / "options_that_make_no_sense_are_refused.txt",
        (
            partial(ExportOptions.of, row)
            for row in [
                {"patchDimension": 3},
                {"skipEmptyTiles": True},
                {"patchDimensions": 3, "patch_dimensions": 4},
                {"patchDimensions": [0, 3]},
                {"patchDimensions": [1, 2, 3]},
                {"patchDimensions": True},
                {"patchDimensions": "256"},
                {"kernelSize": -1},
                {"kernelSize": 2.0},
                {"compressed": 1},
                {"encoding": "bytes"},
                {"masked": "all"},
                {"edge": None},
                {"maxFileSize": 0},
                {"maxFileSize": "1GiB"},
                {"defaultValue": "0"},
                {"maskedThreshold": 1.5},
                {"maskedThreshold": math.nan},
                {"tensorDepths": [3]},
                {"tensorDepths": {"a": 0}},
                {"mask_band": ""},
                {"sequenceData": True, "kernelSize": 3},
                {"mask_band": "ts", "tensorDepths": {"ts": 3}},
                {"patchDimensions": 2**15},
            ]
        ),
    )


def test_an_unknown_keyword_of_an_export_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown option 'kernelsize'") as caught:
        export_image({}, tmp_path, "fields", kernelsize=3)  # type: ignore[call-arg]
    assert str(caught.value.hint).startswith("Did you mean 'kernel_size'?")


def test_a_list_of_depths_is_refused_with_the_mapping_to_write() -> None:
    with pytest.raises(UsageError) as caught:
        ExportOptions.of({"tensorDepths": [3]})
    assert caught.value.hint == "For example: {'ndvi': 24}. The guide's table still shows the list of older versions."


@pytest.mark.parametrize(
    ("dtype", "native"),
    [
        ("uint8", "bytes"),
        ("bool", "bytes"),
        ("int8", "int64"),
        ("uint16", "int64"),
        ("int64", "int64"),
        ("uint64", "int64"),
        ("float16", "float"),
        ("float64", "float"),
    ],
)
def test_the_kind_is_that_of_the_type(dtype: str, native: str) -> None:
    assert kind_of(dtype, "b1") == native
    assert kind_of(dtype, "b1", "float") == "float"


def test_a_dtype_that_cannot_be_a_band_is_refused() -> None:
    with pytest.raises(FeatureError) as caught:
        kind_of(np.complex64, "b1")
    assert caught.value.message == "band 'b1': expected booleans, integers or floats, found complex64"


def test_the_furthest_kind_can_store_all_kinds() -> None:
    assert furthest(["bytes", "bytes"]) == "bytes"
    assert furthest(["int64", "bytes"]) == "int64"
    assert furthest(["bytes", "float", "int64"]) == "float"


@pytest.mark.parametrize(
    ("value", "dtype", "fitted"),
    [
        (math.inf, "uint8", 255),
        (-math.inf, "int16", -32768),
        (1e300, "int64", 2**63 - 1),
        (2**63, "uint64", 2**63),
        (0.9, "bool", 0),
        (7, "bool", 1),
        (-0.5, "uint8", 0),
    ],
)
def test_a_default_is_cut_to_the_type(value: float, dtype: str, fitted: int) -> None:
    found = fit_default(value, dtype, "b1")
    assert (found, type(found)) == (fitted, int)


def test_nan_is_a_default_of_floats_only() -> None:
    assert math.isnan(fit_default(math.nan, "float32", "b1"))
    with pytest.raises(UsageError) as caught:
        fit_default(math.nan, "int16", "b1")
    assert caught.value.message == "the default value NaN cannot be stored in the band 'b1' of int16"


def test_numbers_of_numpy_are_numbers() -> None:
    options = ExportOptions(
        patch_dimensions=np.array([8, 4]),  # type: ignore[arg-type]  # callers do that
        kernel_size=np.int64(2),  # type: ignore[arg-type]  # as above
        masked_threshold=np.float32(0.5),  # type: ignore[arg-type]  # as above
        default_value=np.int16(-1),  # type: ignore[arg-type]  # as above
    )
    assert (options.patch_dimensions, options.kernel_size) == (Size(8, 4), Size(2, 2))
    assert (options.masked_threshold, options.default_value) == (0.5, -1)
    assert {type(side) for side in (*options.patch_dimensions, *options.kernel_size)} == {int}
