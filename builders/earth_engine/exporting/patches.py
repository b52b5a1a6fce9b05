"""What are the records of an image? For each patch that is kept one tf.train.Example: a feature for each band.

The values of a feature are those of the patch with its margin, row by row; of an array band one such tile after the
other, (depth, height, width). With ``collapse_bands`` one feature holds the tiles of all bands in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.exporting.plan import ExportPlan
from registry.builders.earth_engine.exporting.raster import Raster
from registry.builders.earth_engine.exporting.record_copies import copy_records
from registry.builders.earth_engine.exporting.strips import Strip, iterate_strips
from registry.builders.earth_engine.kinds import Kind, to_flat
from registry.wire import FlatValue, encode_example

_CHUNK_BYTES: Final = 2**20
"""About so many bytes of records are made at once: no more than a processor's cache holds."""


class PatchRecord(NamedTuple):
    """A record, and the patch that it is of; several are of one where pixels are sequences."""

    patch: int
    record: bytes


class KeptStrip(NamedTuple):
    """A row of patches, and those of its columns that are written."""

    strip: Strip
    columns: list[int]


def iterate_patches(raster: Raster, plan: ExportPlan) -> Iterator[PatchRecord]:
    """The records of an image whose patches are Examples, in the order of the patches; those left out are passed over.

    Raises:
        FeatureError: a raster that does not read what it says it has, or an integer beyond int64.
    """
    for strip, columns in iterate_kept(raster, plan):
        tiles = [_tiles_of(band, plan) for band in strip.bands]
        first = strip.row * plan.grid.patches_per_row
        for column, record in zip(columns, _encode_columns(plan, tiles, columns), strict=True):
            yield PatchRecord(first + column, record)


def _tiles_of(band: npt.NDArray[Any], plan: ExportPlan) -> npt.NDArray[Any]:
    """The tiles of a strip, of shape (patches, depth, height, width): a view, for they overlap."""
    windows = np.lib.stride_tricks.sliding_window_view(band, plan.grid.tile.width, axis=2)
    return np.moveaxis(windows[:, :, :: plan.grid.patch.width], 2, 0)


def _encode_columns(plan: ExportPlan, tiles: list[npt.NDArray[Any]], columns: list[int]) -> Iterator[bytes]:
    """The Examples of the patches in ``columns``."""
    kinds: list[Kind] = [plan.collapsed or band.kind for band in plan.bands]
    assert plan.record_bytes is not None  # noqa: S101 (arrays have a depth)
    step = 1 if "int64" in kinds else max(1, _CHUNK_BYTES // plan.record_bytes[1])
    if step == 1:
        for column in columns:
            yield _encode_tiles(plan, [tile[column] for tile in tiles])
        return
    order = (
        range(len(kinds)) if plan.collapsed else sorted(range(len(kinds)), key=lambda at: plan.bands[at].name.encode())
    )
    for start in range(0, len(columns), step):
        some = columns[start : start + step]
        where = slice(some[0], some[-1] + 1) if some[-1] - some[0] + 1 == len(some) else some
        yield from copy_records(partial(_encode_tiles, plan), kinds, [tile[where] for tile in tiles], order)


def iterate_kept(raster: Raster, plan: ExportPlan) -> Iterator[KeptStrip]:
    """The rows of patches, with those patches of which no more than masked_threshold is masked."""
    for strip in iterate_strips(raster, plan):
        yield KeptStrip(strip, _kept_columns(strip, plan))


def _kept_columns(strip: Strip, plan: ExportPlan) -> list[int]:
    grid, threshold = plan.grid, plan.options.masked_threshold
    if threshold == 1:  # no share is more than all
        return list(range(grid.patches_per_row))
    assert strip.masked is not None  # noqa: S101 (asked for by the threshold)
    by_column = strip.masked.sum(axis=0, dtype=np.int64)
    until = np.concatenate([[0], np.cumsum(by_column)])
    first = np.arange(grid.patches_per_row) * grid.patch.width
    shares = (until[first + grid.tile.width] - until[first]) / (grid.tile.width * grid.tile.height)
    return [int(column) for column in np.flatnonzero(shares <= threshold)]


def _encode_tiles(plan: ExportPlan, tiles: Sequence[npt.NDArray[Any]]) -> bytes:
    """The Example of a patch, from the pixels of each band."""
    pairs = list(zip(plan.bands, tiles, strict=True))
    if plan.collapsed is None:
        return encode_example({band.name: to_flat(tile, band.kind, band.name) for band, tile in pairs})
    flat = [to_flat(tile, plan.collapsed, band.name) for band, tile in pairs]
    return encode_example({plan.bands[0].name: join_flat(flat, plan.collapsed)})


def join_flat(values: list[FlatValue], kind: Kind) -> FlatValue:
    """The values of several features of one kind in one."""
    if kind == "bytes":
        return [b"".join(piece for value in values for piece in value)]
    return np.concatenate(values)
