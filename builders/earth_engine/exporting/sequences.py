"""What are the records of an image of time series? For each pixel one tf.train.SequenceExample.

Bands of one number a pixel are its context, lists of length 1. Array bands are its feature lists: of each a step for
each element. With ``collapse_bands`` there is no context, and one feature list of all values in the order of the bands.

There are many more records than patches, and those of one length are made at once, as copies of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.exporting.patches import PatchRecord, iterate_kept
from registry.builders.earth_engine.exporting.plan import ExportPlan
from registry.builders.earth_engine.exporting.raster import Raster
from registry.builders.earth_engine.exporting.record_copies import copy_records
from registry.builders.earth_engine.kinds import Kind, to_flat
from registry.wire import FlatValue, encode_sequence_example

_CHUNK_BYTES: Final = 2**22
"""About so many bytes of records are made at once."""

_STEP_BYTES: Final = 12
"""Of a step and its value, about."""

_FEW: Final = 4
"""Pixels of one length from which on it pays to copy a record."""

Pixels: TypeAlias = npt.NDArray[Any] | list[npt.NDArray[Any]]
"""The numbers of some pixels, of one band: of shape (pixels, depth), or an array for each."""


def iterate_sequences(raster: Raster, plan: ExportPlan) -> Iterator[PatchRecord]:
    """The records of an image whose pixels are SequenceExamples: patch by patch, the pixels of each row by row.

    Raises:
        FeatureError: a raster that does not read what it says it has, or an integer beyond int64.
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
        return [np.empty(0, np.uint8) if one is None else one for one in band.reshape(-1)]
    return np.moveaxis(band, 0, -1).reshape(-1, band.shape[0])


def _encode_pixels(plan: ExportPlan, bands: list[Pixels]) -> Iterator[bytes]:
    """The records of some pixels, of which ``bands`` has the numbers of each band."""
    count = len(bands[0])
    kinds: list[Kind] = [plan.collapsed or band.kind for band in plan.bands]
    steps = sum(max(map(len, pixels)) for pixels in bands)
    chunk = max(1, _CHUNK_BYTES // (_STEP_BYTES * steps + 64 * len(bands)))
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
    """The records of pixels whose arrays differ in length."""
    lengths = np.array([[len(pixel) for pixel in pixels] for pixels in bands]).T
    _, groups = np.unique(lengths, axis=0, return_inverse=True)
    order = np.argsort(groups.reshape(-1), kind="stable")
    records = [b""] * len(order)
    for members in np.split(order, np.flatnonzero(np.diff(groups.reshape(-1)[order])) + 1):
        own = [[pixels[place] for place in members] for pixels in bands]
        if len(members) < _FEW:
            made = [_encode_pixel(plan, pixel) for pixel in zip(*own, strict=True)]
        else:
            made = _copies(plan, [np.stack(pixels) for pixels in own])
        for place, record in zip(members, made, strict=True):
            records[place] = record
    return records


def _copies(plan: ExportPlan, bands: list[Any]) -> list[bytes]:
    """The records of pixels whose arrays are of one length, and whose numbers all take as many bytes."""
    kinds: list[Kind] = [plan.collapsed or band.kind for band in plan.bands]
    return copy_records(partial(_encode_pixel, plan), kinds, bands, _order(plan))


def _order(plan: ExportPlan) -> list[int]:
    """The bands in the order of a record: the context by name, then the lists by name."""
    if plan.collapsed:
        return list(range(len(plan.bands)))
    keys = [(band.is_array, band.name.encode()) for band in plan.bands]
    return sorted(range(len(keys)), key=keys.__getitem__)


def _encode_pixel(plan: ExportPlan, pixel: Sequence[npt.NDArray[Any]]) -> bytes:
    """The record of one pixel, of which ``pixel`` has the numbers of each band."""
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
