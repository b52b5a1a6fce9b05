"""What are the records of an image of time series? For each pixel one tf.train.SequenceExample.

Bands of one number a pixel are its context, lists of length 1. Array bands are its feature lists: of each a step for
each element. With ``collapse_bands`` there is no context, and one feature list of all values in the order of the bands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.export_plan import ExportPlan
from registry.builders.earth_engine.kinds import Kind, to_flat
from registry.builders.earth_engine.patches import PatchRecord, iterate_kept
from registry.builders.earth_engine.raster import Raster
from registry.wire import FlatValue, encode_sequence_example


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
            series = [
                _series_of(band[..., first : first + patch.width], plan.collapsed or planned.kind, planned.name)
                for planned, band in zip(plan.bands, strip.bands, strict=True)
            ]
            for pixel in range(patch.width * patch.height):
                yield PatchRecord(index, _encode_pixel(plan, [steps[pixel] for steps in series]))


def _series_of(pixels: npt.NDArray[Any], kind: Kind, name: str) -> list[list[FlatValue]]:
    """The values of each pixel of a patch, each as a feature of length 1."""
    if pixels.dtype.kind == "O":
        arrays = [np.empty(0, np.uint8) if one is None else one for one in pixels.reshape(-1)]
    else:
        arrays = list(np.moveaxis(pixels, 0, -1).reshape(-1, pixels.shape[0]))
    return [_steps(array, kind, name) for array in arrays]


def _steps(array: npt.NDArray[Any], kind: Kind, name: str) -> list[FlatValue]:
    flat = to_flat(array, kind, name)
    if isinstance(flat, list):
        return [[flat[0][place : place + 1]] for place in range(len(flat[0]))]
    return [flat[place : place + 1] for place in range(flat.size)]


def _encode_pixel(plan: ExportPlan, series: list[list[FlatValue]]) -> bytes:
    if plan.collapsed:
        return encode_sequence_example({}, {plan.bands[0].name: [step for steps in series for step in steps]})
    context, lists = {}, {}
    for band, steps in zip(plan.bands, series, strict=True):
        if band.is_array:
            lists[band.name] = steps
        else:
            context[band.name] = steps[0]
    return encode_sequence_example(context, lists)
