"""A reference implementation of an export, pixel by pixel: slow, and simple enough to be obviously correct.

It repeats the rules of kinds, defaults and files, and uses only the options of the tested code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from registry.builders.earth_engine.exporting.options import ExportOptions
from registry.builders.earth_engine.kinds import Kind

PLACE: dict[str, Any] = {"transform": (10, 0, 300000, 0, -10, 5000000), "crs": "EPSG:32633"}


@dataclass(frozen=True)
class Made:
    """A raster: by band the rows of pixels, which are numbers or lists, the mask of each band, and its dtype."""

    width: int
    height: int
    pixels: Mapping[str, list[list[Any]]]
    masks: Mapping[str, list[list[bool]]]
    dtypes: Mapping[str, np.dtype[Any]]

    def is_array(self, band: str) -> bool:
        return self.dtypes[band].kind == "O"

    def arguments(self) -> dict[str, Any]:
        """The arguments of ``ArrayRaster``."""
        bands = {
            band: rows if self.is_array(band) else np.array(rows, self.dtypes[band])
            for band, rows in self.pixels.items()
        }
        return {"bands": bands, "mask": {band: np.array(mask) for band, mask in self.masks.items()}, **PLACE}

    def number_dtype(self, band: str) -> np.dtype[Any]:
        """The dtype of the numbers of a band; lists are int64, or float64 if all are empty."""
        if not self.is_array(band):
            return self.dtypes[band]
        return np.dtype(np.int64 if any(pixel for row in self.pixels[band] for pixel in row) else np.float64)


def kept_patches(raster: Made, options: ExportOptions) -> dict[int, tuple[range, range]]:
    """The rows and columns of pixels of each patch that is written, margin included, by its number."""
    width, height = options.patch_dimensions
    left, above = options.kernel_size.width // 2, options.kernel_size.height // 2
    pad = options.edge == "pad"
    columns = -(-raster.width // width) if pad else raster.width // width
    rows = -(-raster.height // height) if pad else raster.height // height
    written = {}
    for row in range(rows):
        for column in range(columns):
            ys = range(row * height - above, row * height + height + above)
            xs = range(column * width - left, column * width + width + left)
            masked = sum(is_masked(raster, x, y) for y in ys for x in xs)
            if masked / (len(ys) * len(xs)) <= options.masked_threshold:
                written[row * columns + column] = (ys, xs)
    return written


def patch_features(raster: Made, options: ExportOptions) -> dict[int, dict[str, tuple[Kind, list[Any]]]]:
    """Of each patch that is written, by its number: kind and values of each feature."""
    return {patch: _features(raster, options, ys, xs) for patch, (ys, xs) in kept_patches(raster, options).items()}


def pixel_series(raster: Made, options: ExportOptions, band: str, x: int, y: int) -> list[Any]:
    """The numbers of one pixel of one band: as many as its depth, or as it has."""
    dtype = raster.number_dtype(band)
    default = default_of(options.default_value, dtype)
    inside = 0 <= x < raster.width and 0 <= y < raster.height
    if not inside:
        filled = True
    elif options.masked == "pixel":
        filled = is_masked(raster, x, y)
    else:
        filled = band in raster.masks and raster.masks[band][y][x]
    if not raster.is_array(band):
        return [default if filled else raster.pixels[band][y][x]]
    found = list(raster.pixels[band][y][x]) if inside else []
    depth = options.tensor_depths.get(band, len(found))
    if filled:
        return [default] * depth
    return (found + [default] * depth)[:depth]


def kind_of_band(raster: Made, options: ExportOptions, band: str) -> Kind:
    """The kind of a band's feature."""
    return kind_of_dtype(raster.number_dtype(band), options.encoding)


def kind_of_dtype(dtype: np.dtype[Any], encoding: str) -> Kind:
    """Native kinds: bytes for uint8 and booleans, int64 for other integers."""
    if encoding == "float" or dtype.kind == "f":
        return "float"
    return "bytes" if dtype.name in ("uint8", "bool") else "int64"


def default_of(value: float, dtype: np.dtype[Any]) -> float:
    """The default value in a band: of integers its fraction is dropped, and it is clamped to their range."""
    if dtype.kind == "f":
        return value
    low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    return max(low, min(high, math.trunc(value)))


def split_files(records: Sequence[bytes], limit: int) -> list[list[bytes]]:
    """The records of each file: a new file begins if a record and its 16 bytes of framing would exceed the limit."""
    files: list[list[bytes]] = []
    size = 0
    for record in records:
        if not files or size + 16 + len(record) > limit:
            files.append([])
            size = 0
        files[-1].append(record)
        size += 16 + len(record)
    return files


def is_masked(raster: Made, x: int, y: int) -> bool:
    """Whether a pixel is masked in any band, or outside of the raster."""
    if not (0 <= x < raster.width and 0 <= y < raster.height):
        return True
    return any(mask[y][x] for mask in raster.masks.values())


def _features(raster: Made, options: ExportOptions, ys: range, xs: range) -> dict[str, tuple[Kind, list[Any]]]:
    found: dict[str, tuple[Kind, list[Any]]] = {}
    for band in raster.pixels:
        pixels = [[pixel_series(raster, options, band, x, y) for x in xs] for y in ys]
        depth = len(pixels[0][0])
        values = [pixel[step] for step in range(depth) for row in pixels for pixel in row]
        found[band] = (kind_of_band(raster, options, band), values)
    if options.mask_band:
        values = [int(not is_masked(raster, x, y)) for y in ys for x in xs]
        found[options.mask_band] = (kind_of_dtype(np.dtype("uint8"), options.encoding), values)
    if options.collapse_bands:
        kinds = [kind for kind, _ in found.values()]
        kind: Kind = "float" if "float" in kinds else "int64" if "int64" in kinds else "bytes"
        return {next(iter(found)): (kind, [value for _, values in found.values() for value in values])}
    return found
