"""Encodes the records of an image: a tf.train.Example for each patch, or a tf.train.SequenceExample for each pixel.

It takes strips of pixels from ``plan`` and gives records to ``files``.

Patches: the feature of a band contains the values of the patch with its margin, row by row. The feature of an array
band has the order (depth, height, width). With ``collapse_bands`` one feature contains the tiles of all bands.

Pixels (time series): a band with one number a pixel is a context feature of length 1. An array band is a feature list
with one step for each element. With ``collapse_bands`` one feature list contains all values in band order.

``registry.wire`` encodes many Examples together. SequenceExamples that differ only in their values are copied from a
template: the encoder runs twice, on zeros and on values with all bits set. The two results differ exactly in the bytes
of values, and each record gets its own values at those bytes. So only the encoder knows the wire format. Pixels with an
int64_list are encoded one by one, because varints differ in length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.exporting.plan import ExportPlan, Strip, iterate_strips
from registry.builders.earth_engine.exporting.raster import Raster
from registry.builders.earth_engine.kinds import STORED, Kind, from_flat, to_flat
from registry.wire import (
    BytesColumn,
    FlatBlock,
    FlatColumn,
    FlatValue,
    NumberColumn,
    encode_block,
    encode_sequence_example,
)

_CHUNK_BYTES: Final = 2**19
"""Approximate bytes of patch records that are encoded at once, so that they fit in the processor's cache."""

_SERIES_BYTES: Final = 2**22
"""Approximate bytes of pixel records that are encoded at once."""

_STEP_BYTES: Final = 12
"""Approximate bytes of a step with its value."""

_MIN_COPIED: Final = 4
"""Minimum number of pixels of the same length for which copying a template is faster."""

_MAX_RUNS: Final = 32
"""Up to this number of runs, values are copied run by run; beyond it, by an index of all their bytes."""


class PatchRecord(NamedTuple):
    """A record and the index of its patch. With ``sequence_data`` a patch has one record for each pixel."""

    patch: int
    record: bytes


class KeptStrip(NamedTuple):
    """A row of patches, and the columns of the patches to write."""

    strip: Strip
    columns: list[int]


def iterate_patches(raster: Raster, plan: ExportPlan) -> Iterator[PatchRecord]:
    """Yield the Example of each patch that is not dropped, in the order of the grid.

    Raises:
        FeatureError: the raster returned arrays of another shape or dtype than it declares, or a number exceeds int64.
    """
    for strip, columns in iterate_kept(raster, plan):
        tiles = [_tiles_of(band, plan) for band in strip.bands]
        first = strip.row * plan.grid.patches_per_row
        for column, record in zip(columns, _encode_columns(plan, tiles, columns), strict=True):
            yield PatchRecord(first + column, record)


def _tiles_of(band: npt.NDArray[Any], plan: ExportPlan) -> npt.NDArray[Any]:
    """The tiles of a strip as a view of shape (patches, depth, height, width); neighbours overlap."""
    windows = np.lib.stride_tricks.sliding_window_view(band, plan.grid.tile.width, axis=2)
    return np.moveaxis(windows[:, :, :: plan.grid.patch.width], 2, 0)


def _encode_columns(plan: ExportPlan, tiles: list[npt.NDArray[Any]], columns: list[int]) -> Iterator[bytes]:
    """The Examples of the patches in ``columns``."""
    assert plan.record_bytes is not None  # noqa: S101 (arrays have a depth)
    step = max(1, _CHUNK_BYTES // plan.record_bytes[1])
    for start in range(0, len(columns), step):
        some = columns[start : start + step]
        where = slice(some[0], some[-1] + 1) if some[-1] - some[0] + 1 == len(some) else some
        yield from encode_block(len(some), _features_of(plan, [tile[where] for tile in tiles])).records()


def _features_of(plan: ExportPlan, tiles: list[npt.NDArray[Any]]) -> Iterator[FlatBlock]:
    """The feature of each band, or one of all bands, in some patches."""
    values = [
        from_flat(to_flat(tile, plan.collapsed or band.kind, band.name), band.name)[1].reshape(len(tile), -1)
        for band, tile in zip(plan.bands, tiles, strict=True)
    ]
    if plan.collapsed:
        values = [np.concatenate(values, axis=1)]
    for band, numbers in zip(plan.bands, values, strict=False):
        count, size = numbers.shape
        column: FlatColumn = NumberColumn(None, size, numbers.reshape(-1))
        if numbers.dtype == np.uint8:
            column = BytesColumn(None, 1, np.arange(count) * size, np.full(count, size))
        yield FlatBlock(count, {(band.name, plan.collapsed or band.kind): column}, numbers.reshape(-1).view(np.uint8))


def iterate_kept(raster: Raster, plan: ExportPlan) -> Iterator[KeptStrip]:
    """Yield each row of patches with the patches whose masked share is at most ``masked_threshold``."""
    for strip in iterate_strips(raster, plan):
        yield KeptStrip(strip, _kept_columns(strip, plan))


def _kept_columns(strip: Strip, plan: ExportPlan) -> list[int]:
    grid, threshold = plan.grid, plan.options.masked_threshold
    if threshold == 1:  # no share exceeds 1
        return list(range(grid.patches_per_row))
    assert strip.masked is not None  # noqa: S101 (the threshold requests it)
    by_column = strip.masked.sum(axis=0, dtype=np.int64)
    until = np.concatenate([[0], np.cumsum(by_column)])
    first = np.arange(grid.patches_per_row) * grid.patch.width
    shares = (until[first + grid.tile.width] - until[first]) / (grid.tile.width * grid.tile.height)
    return [int(column) for column in np.flatnonzero(shares <= threshold)]


Pixels: TypeAlias = npt.NDArray[Any] | list[npt.NDArray[Any]]
"""Values of one band: an array of shape (pixels, depth), or one array for each pixel."""


def iterate_sequences(raster: Raster, plan: ExportPlan) -> Iterator[PatchRecord]:
    """Yield the SequenceExample of each pixel: patch by patch, and row by row within a patch.

    Raises:
        FeatureError: the raster returned arrays of another shape or dtype than it declares, or a number exceeds int64.
    """
    patch = plan.grid.patch
    for strip, columns in iterate_kept(raster, plan):
        for column in columns:
            index = strip.row * plan.grid.patches_per_row + column
            first = column * patch.width
            bands = [_pixels_of(band[..., first : first + patch.width]) for band in strip.bands]
            for record in _encode_pixels(plan, bands):
                yield PatchRecord(index, record)


def _pixels_of(band: npt.NDArray[Any]) -> Pixels:
    """The pixels of a patch, row by row."""
    if band.dtype.kind == "O":
        return [np.empty(0, np.uint8) if value is None else value for value in band.reshape(-1)]
    return np.moveaxis(band, 0, -1).reshape(-1, band.shape[0])


def _encode_pixels(plan: ExportPlan, bands: list[Pixels]) -> Iterator[bytes]:
    """Encode some pixels; ``bands`` contains the values of each band."""
    count = len(bands[0])
    kinds: list[Kind] = [plan.collapsed or band.kind for band in plan.bands]
    steps = sum(max(map(len, pixels)) for pixels in bands)
    chunk = max(1, _SERIES_BYTES // (_STEP_BYTES * steps + 64 * len(bands)))
    for start in range(0, count, chunk):
        some = [pixels[start : start + chunk] for pixels in bands]
        if "int64" in kinds:
            for pixel in zip(*some, strict=True):
                yield _encode_pixel(plan, pixel)
        elif all(isinstance(pixels, np.ndarray) for pixels in some):
            yield from _copies(plan, some)
        else:
            yield from _by_length(plan, some)


def _by_length(plan: ExportPlan, bands: list[Pixels]) -> list[bytes]:
    """Encode pixels whose arrays differ in length, grouped by length."""
    lengths = np.array([[len(pixel) for pixel in pixels] for pixels in bands]).T
    _, groups = np.unique(lengths, axis=0, return_inverse=True)
    order = np.argsort(groups.reshape(-1), kind="stable")
    records = [b""] * len(order)
    for members in np.split(order, np.flatnonzero(np.diff(groups.reshape(-1)[order])) + 1):
        own = [[pixels[place] for place in members] for pixels in bands]
        if len(members) < _MIN_COPIED:
            made = [_encode_pixel(plan, pixel) for pixel in zip(*own, strict=True)]
        else:
            made = _copies(plan, [np.stack(pixels) for pixels in own])
        for place, record in zip(members, made, strict=True):
            records[place] = record
    return records


def _order(plan: ExportPlan) -> list[int]:
    """The bands in the order in which a record stores them: the context by name, then the lists by name."""
    if plan.collapsed:
        return list(range(len(plan.bands)))
    keys = [(band.is_array, band.name.encode()) for band in plan.bands]
    return sorted(range(len(keys)), key=keys.__getitem__)


def _encode_pixel(plan: ExportPlan, pixel: Sequence[npt.NDArray[Any]]) -> bytes:
    """Encode one pixel; ``pixel`` contains the values of each band."""
    series = [
        _steps(numbers, plan.collapsed or band.kind, band.name) for band, numbers in zip(plan.bands, pixel, strict=True)
    ]
    if plan.collapsed:
        return encode_sequence_example({}, {plan.bands[0].name: [step for steps in series for step in steps]})
    context, lists = {}, {}
    for band, steps in zip(plan.bands, series, strict=True):
        if band.is_array:
            lists[band.name] = steps
        else:
            context[band.name] = steps[0]
    return encode_sequence_example(context, lists)


def _steps(numbers: npt.NDArray[Any], kind: Kind, name: str) -> list[FlatValue]:
    """A feature of length 1 for each number."""
    flat = to_flat(numbers, kind, name)
    if isinstance(flat, list):
        return [[flat[0][place : place + 1]] for place in range(len(flat[0]))]
    return [flat[place : place + 1] for place in range(flat.size)]


def _copies(plan: ExportPlan, bands: list[Any]) -> list[bytes]:
    """Encode pixels whose arrays have the same length and whose values have a fixed size, as copies of a template."""
    kinds: list[Kind] = [plan.collapsed or band.kind for band in plan.bands]
    blank, full = (
        np.frombuffer(
            _encode_pixel(
                plan,
                [
                    np.full(pixels.shape[1] * STORED[kind].itemsize, byte, np.uint8).view(STORED[kind])
                    for kind, pixels in zip(kinds, bands, strict=True)
                ],
            ),
            np.uint8,
        )
        for byte in (0, 255)
    )
    places = np.flatnonzero(blank != full)
    out = np.empty((len(bands[0]), len(blank)), np.uint8)
    out[:] = blank
    values = [_stored(bands[which], kinds[which]) for which in _order(plan)]
    runs = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1) if places.size else []
    lengths = [len(run) for run in runs]
    if lengths != [own.shape[1] for own in values]:  # bands share a feature, or are split into steps
        joined = np.concatenate(values, axis=1)
        values = np.split(joined, np.cumsum(lengths)[:-1], axis=1) if len(runs) <= _MAX_RUNS else [joined]
    if len(values) == len(runs):
        for run, own in zip(runs, values, strict=True):
            out[:, run[0] : run[-1] + 1] = own
    else:
        out[:, places] = values[0]
    size, content = len(blank), out.tobytes()
    return [content[place : place + size] for place in range(0, len(content), size)]


def _stored(numbers: npt.NDArray[Any], kind: Kind) -> npt.NDArray[np.uint8]:
    """The bytes of each record's values, of shape (records, bytes)."""
    with np.errstate(over="ignore"):  # see ``kinds.to_flat``
        stored = np.ascontiguousarray(numbers, STORED[kind].newbyteorder("<"))
    return stored.reshape(len(stored), -1).view(np.uint8)
