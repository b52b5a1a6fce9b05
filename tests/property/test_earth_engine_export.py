"""An export equals a pixel-by-pixel reference for any size, patch, kernel, type, mask, depth and option."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.earth_engine_reference import (
    Made,
    is_masked,
    kept_patches,
    kind_of_band,
    patch_features,
    pixel_series,
    split_files,
)

from registry.builders.earth_engine.exporting.files import ExportFiles
from registry.builders.earth_engine.exporting.image import export_image
from registry.builders.earth_engine.exporting.options import ExportOptions
from registry.builders.earth_engine.exporting.plan import plan_raster
from registry.builders.earth_engine.exporting.raster import ArrayRaster
from registry.builders.earth_engine.exporting.records import iterate_patches, iterate_sequences
from registry.builders.earth_engine.grid import Size
from registry.errors import RegistryWarning
from registry.storage import open_store
from registry.tfrecord import read_records
from registry.wire import decode_example, decode_sequence_example, encode_sequence_example
from registry.wire.example_pb2 import Example, SequenceExample

SCALARS = ("uint8", "int8", "uint16", "int16", "int32", "uint32", "float32", "float64", "bool")


@st.composite
def rasters(draw: st.DrawFn, *, least_side: int = 1) -> Made:
    """Up to three bands of numbers and of lists, some of them masked somewhere."""
    width, height = draw(st.integers(least_side, 7)), draw(st.integers(least_side, 7))
    pixels: dict[str, list[list[Any]]] = {}
    masks, dtypes = {}, {}
    for name in draw(st.lists(st.sampled_from(["B4", "ndvi", "a", "é"]), min_size=1, max_size=3, unique=True)):
        dtype = np.dtype(draw(st.sampled_from([*SCALARS, "object"])))
        number = _numbers(dtype)
        pixel = st.lists(number, max_size=4) if dtype.kind == "O" else number
        pixels[name] = draw(_grid(pixel, width, height))
        dtypes[name] = dtype
        if draw(st.booleans()):
            masks[name] = draw(_grid(st.booleans(), width, height))
    return Made(width, height, pixels, masks, dtypes)


@st.composite
def cases(draw: st.DrawFn, *, sequence: bool = False) -> tuple[Made, ExportOptions]:
    """A raster, and options that do not contradict it."""
    raster = draw(rasters())
    pad = draw(st.booleans())
    patch = Size(
        draw(st.integers(1, 4 if pad else min(4, raster.width))),
        draw(st.integers(1, 4 if pad else min(4, raster.height))),
    )
    depths = {
        band: draw(st.integers(1, 5))
        for band in raster.pixels
        if raster.is_array(band) and not (sequence and draw(st.booleans()))
    }
    return raster, ExportOptions(
        patch_dimensions=patch,
        kernel_size=Size(1, 1) if sequence else Size(draw(st.integers(0, 7)), draw(st.integers(0, 7))),
        default_value=draw(st.sampled_from([0, -1, 300, 2.5, -7.9, -129.5, 40000, 1e10, -1e30])),
        tensor_depths=depths,
        sequence_data=sequence,
        collapse_bands=draw(st.booleans()),
        masked_threshold=draw(st.sampled_from([1, 1, 0.5, 0.25, 0])),
        encoding=draw(st.sampled_from(["float", "native"])),
        masked=draw(st.sampled_from(["band", "pixel"])),
        mask_band=draw(st.sampled_from([None, "valid"])),
        edge="pad" if pad else "drop",
    )


@given(cases())
def test_the_patches_equal_those_found_pixel_by_pixel(case: tuple[Made, ExportOptions]) -> None:
    made, options = case
    raster = ArrayRaster(**made.arguments())
    plan = plan_raster(raster, options)
    expected = patch_features(made, options)
    found = list(iterate_patches(raster, plan))
    assert [patch for patch, _ in found] == list(expected)
    for patch, record in found:
        features = decode_example(record)
        assert set(features) == set(expected[patch])
        for name, (kind, values) in expected[patch].items():
            _check_values(features[name], kind, values)
        assert Example.FromString(record).SerializeToString(deterministic=True) == record
        assert plan.record_bytes[0] <= len(record) <= plan.record_bytes[1]


@given(cases(sequence=True))
def test_the_series_equal_those_found_pixel_by_pixel(case: tuple[Made, ExportOptions]) -> None:
    made, options = case
    raster = ArrayRaster(**made.arguments())
    with _no_warnings():
        plan = plan_raster(raster, options)
    width, height = options.patch_dimensions
    expected = kept_patches(made, options)
    found = list(iterate_sequences(raster, plan))
    assert [patch for patch, _ in found] == [patch for patch in expected for _ in range(width * height)]
    for place, (patch, record) in enumerate(found):
        row, column = plan.grid.place(patch)
        down, along = divmod(place % (width * height), width)
        x, y = column * width + along, row * height + down
        context, lists = decode_sequence_example(record)
        series = {band: pixel_series(made, options, band, x, y) for band in made.pixels}
        kinds = {band: kind_of_band(made, options, band) for band in made.pixels}
        if options.mask_band:
            series["valid"], kinds["valid"] = (
                [int(not is_masked(made, x, y))],
                "float" if options.encoding == "float" else "bytes",
            )
        arrays = {band for band in made.pixels if made.is_array(band)}
        if options.collapse_bands:
            series, arrays = (
                {next(iter(series)): [value for values in series.values() for value in values]},
                set(series),
            )
            assert plan.collapsed is not None
            kinds = dict.fromkeys(kinds, plan.collapsed)
        assert set(context) == set(series) - arrays
        assert set(lists) == set(series) & arrays
        for band, values in series.items():
            if band not in arrays:
                _check_values(context[band], kinds[band], values)
                continue
            assert len(lists[band]) == len(values)
            for step, value in zip(lists[band], values, strict=True):
                _check_values(step, kinds[band], [value])
        assert encode_sequence_example(context, lists) == record
        assert SequenceExample.FromString(record).SerializeToString(deterministic=True) == record
        if plan.record_bytes is not None:
            assert plan.record_bytes[0] <= len(record) <= plan.record_bytes[1]


@given(cases(), st.data(), st.booleans())
def test_files_hold_the_records_in_order_and_no_more_than_their_limit(
    case: tuple[Made, ExportOptions], data: st.DataObject, compressed: bool
) -> None:
    made, options = case
    raster = ArrayRaster(**made.arguments())
    expected = [record for _, record in iterate_patches(raster, plan_raster(raster, options))]
    several = sum(len(record) + 16 for record in expected[: data.draw(st.integers(1, 4))])
    limit = max(1, data.draw(st.sampled_from([several - 1, several, several + 1]) | st.integers(1, 2000)))
    plan = plan_raster(raster, replace(options, max_file_size=limit))
    store = open_store("memory://export-laws")
    with ExportFiles(store, "p", compressed=compressed, max_file_size=limit, overwrite=True) as files:
        for record in expected:
            files.write(record)
        written = files.commit(b"{}")
    assert store.list() == sorted([*written.filenames, "p-mixer.json"])
    found = [list(read_records(store, name)) for name in written.filenames]
    assert found == split_files(expected, limit)
    assert [len(records) for records in found] == list(written.records)
    if len(expected) == plan.num_records:
        assert plan.num_files[0] <= len(found) <= plan.num_files[1]


@given(cases())
def test_an_export_reports_the_patches_that_were_left_out(case: tuple[Made, ExportOptions]) -> None:
    made, options = case
    expected = patch_features(made, options)
    arguments = made.arguments()
    with _no_warnings():
        exported = export_image(
            arguments.pop("bands"), "memory://export-told", "p", options=options, overwrite=True, **arguments
        )
    store = open_store("memory://export-told")
    assert exported.num_records == exported.num_written == len(expected)
    assert set(exported.dropped) == set(range(exported.num_patches)) - set(expected)
    assert exported.patches == (tuple(expected) if exported.dropped else None)
    assert (exported.mixer is not None) is (options.masked_threshold == 1)
    assert store.list() == sorted(filter(None, [*exported.filenames, exported.mixer_filename]))


def _grid(values: st.SearchStrategy[Any], width: int, height: int) -> st.SearchStrategy[list[list[Any]]]:
    row = st.lists(values, min_size=width, max_size=width)
    return st.lists(row, min_size=height, max_size=height)


def _numbers(dtype: np.dtype[Any]) -> st.SearchStrategy[Any]:
    if dtype.kind == "b":
        return st.booleans()
    if dtype.kind == "f":
        return st.floats(width=32, allow_nan=True)
    if dtype.kind == "O":
        return st.integers(-(2**20), 2**20)
    return st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def _check_values(found: Any, kind: str, values: list[Any]) -> None:
    if kind == "bytes":
        assert found == [bytes(map(int, values))]
        return
    assert found.dtype == {"int64": np.int64, "float": np.float32}[kind]
    np.testing.assert_array_equal(
        found, np.array(values, np.float64 if kind == "float" else object).astype(found.dtype)
    )


@contextmanager
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RegistryWarning)
        yield
