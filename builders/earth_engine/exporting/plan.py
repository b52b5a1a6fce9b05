"""Checks a raster against the options before any pixel is read, then reads the raster in strips.

    raster, options -> ExportPlan: grid, bands with their kinds, depths and default values -> strips -> records -> files

A strip contains the pixels of one row of patches with its margin; one strip is in memory at a time. Pixels outside the
raster have the default value and are masked. Rows that two strips share are read once.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.exporting.options import ExportOptions
from registry.builders.earth_engine.exporting.raster import (
    BandRows,
    Mask,
    Raster,
    check_band_name,
    crs_text,
    stack_arrays,
)
from registry.builders.earth_engine.grid import Grid, Size, Transform
from registry.builders.earth_engine.kinds import STORED, Kind, fit_default, furthest, kind_of
from registry.builders.earth_engine.mixer import Mixer
from registry.errors import FeatureError, RegistryWarning, UsageError, suggest
from registry.tfrecord import FRAMING_BYTES, MAX_RECORD_BYTES

_MOST_VARINT: Final = 10

_CHUNK_BYTES: Final = 2**25
"""Approximate bytes of a raster that are read at once, but at least one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedBand:
    """One band of an export.

    Attributes:
        name: name of the band and its feature.
        dtype: dtype of its numbers in the raster.
        kind: kind of the list that stores them.
        depth: number of elements of each pixel of an array band, or None if it differs, which only sequences allow; 1
            if a pixel is a number.
        is_array: whether a pixel is an array.
        default: the value of masked pixels.
    """

    name: str
    dtype: np.dtype[Any]
    kind: Kind
    depth: int | None = 1
    is_array: bool = False
    default: int | float = 0


@dataclass(frozen=True)
class ExportPlan:
    """The content of an export, known before any pixel is read.

    Attributes:
        options: the options of the export.
        size: width and height of the raster in pixels.
        transform: maps pixels to coordinates of ``crs``.
        crs: the raster's coordinate reference system: a code or WKT.
        bands: the bands in the order of the raster, then the mask band if ``options`` request one.
        grid: the grid of patches.
        collapsed: the kind of the single feature with ``collapse_bands``, else None.
    """

    options: ExportOptions
    size: Size
    transform: Transform
    crs: str
    bands: tuple[ExportedBand, ...]
    grid: Grid
    collapsed: Kind | None

    @property
    def mixer(self) -> Mixer | None:
        """The mixer; None if patches may be dropped, because a mixer then could not locate the others."""
        return None if self.options.masked_threshold != 1 else Mixer.of(self.grid, self.crs, self.transform)

    @property
    def records_per_patch(self) -> int:
        """1, or with ``sequence_data`` the number of pixels of a patch."""
        return self.grid.patch.width * self.grid.patch.height if self.options.sequence_data else 1

    @property
    def num_records(self) -> int:
        """Number of records if ``masked_threshold`` drops no patch."""
        return self.grid.num_patches * self.records_per_patch

    @cached_property
    def record_bytes(self) -> tuple[int, int] | None:
        """Minimum and maximum bytes of a record; they differ only for integers, whose varints vary in length.

        None if arrays of any length are written.
        """
        if any(band.depth is None for band in self.bands):
            return None
        if self.options.sequence_data:
            return self._sequence_bytes()
        area = self.grid.tile.width * self.grid.tile.height
        features = [(band.name, band.kind, (band.depth or 1) * area) for band in self.bands]
        if self.collapsed:
            features = [(self.bands[0].name, self.collapsed, sum(count for _, _, count in features))]
        least, most = (
            sum(_field(_feature_bytes(name, kind, count, most)) for name, kind, count in features)
            for most in (False, True)
        )
        return _field(least), _field(most)

    @property
    def num_files(self) -> tuple[int, int] | None:
        """Minimum and maximum number of files if no patch is dropped; None if the size of records is unknown."""
        if self.record_bytes is None:
            return None
        fewest, most = (
            -(-self.num_records // max(1, self.options.max_file_size // (size + FRAMING_BYTES)))
            for size in self.record_bytes
        )
        return fewest, most

    def _sequence_bytes(self) -> tuple[int, int]:
        sizes = []
        for most in (False, True):
            context = lists = 0
            steps = 0
            for band in self.bands:
                kind = self.collapsed or band.kind
                step = _field(_kind_bytes(kind, 1, most))
                if self.collapsed:
                    steps += (band.depth or 1) * step
                elif band.is_array:
                    lists += _field(_entry_bytes(band.name, (band.depth or 1) * step))
                else:
                    context += _field(_feature_bytes(band.name, kind, 1, most))
            if self.collapsed:
                lists = _field(_entry_bytes(self.bands[0].name, steps))
            sizes.append((_field(context) if context else 0) + (_field(lists) if lists else 0))
        return sizes[0], sizes[1]


def plan_raster(raster: Raster, options: ExportOptions) -> ExportPlan:
    """Plan an export of ``raster`` without reading pixels.

    Raises:
        UsageError: the raster has no bands or is smaller than a patch; two bands have the same name; an array band
            has no depth, or ``tensor_depths`` names another band; the name of the mask band is taken; NaN is the
            default value of an integer band; or a record would be too large.
        FeatureError: a band has a dtype that cannot be exported.
    """
    names = [band.name for band in raster.bands]
    if not names:
        raise UsageError("a raster without bands cannot be exported", hint="Pass at least one band: {'b1': array}.")
    for name, times in Counter(names).items():
        check_band_name(name)
        if times > 1:
            raise UsageError(
                f"{times} bands are called {name!r}, but each feature needs its own name",
                hint="Rename them: bands={'first': 1, 'second': 2}; --band first=1 --band second=2.",
                details={"band": name},
            )
    _check_depths(raster, options)
    bands = [
        ExportedBand(
            name=band.name,
            dtype=band.dtype,
            kind=kind_of(band.dtype, band.name, options.encoding),
            depth=options.tensor_depths.get(band.name) if band.is_array else 1,
            is_array=band.is_array,
            default=fit_default(options.default_value, band.dtype, band.name),
        )
        for band in raster.bands
    ]
    if options.mask_band is not None:
        if options.mask_band in names:
            raise UsageError(
                f"mask_band {options.mask_band!r} is already the name of a band",
                hint="Choose another name for the mask: mask_band='mask'; --mask-band mask.",
                details={"option": "mask_band"},
            )
        dtype = np.dtype(np.uint8)
        kind = kind_of(dtype, options.mask_band, options.encoding)
        bands.append(ExportedBand(name=options.mask_band, dtype=dtype, kind=kind))
    plan = ExportPlan(
        options=options,
        size=raster.size,
        transform=Transform.of(raster.transform),
        crs=crs_text(raster.crs),
        bands=tuple(bands),
        grid=Grid.over(raster.size, options.patch_dimensions, kernel=options.kernel_size, pad=options.edge == "pad"),
        collapsed=furthest(band.kind for band in bands) if options.collapse_bands else None,
    )
    if plan.record_bytes is not None and plan.record_bytes[0] > MAX_RECORD_BYTES:
        raise UsageError(
            f"a record must not exceed {MAX_RECORD_BYTES} bytes, but would have {plan.record_bytes[0]}",
            hint="Choose smaller patches (patch_dimensions=256; --patch 256), or fewer bands.",
            details={"option": "patch_dimensions"},
        )
    return plan


def _check_depths(raster: Raster, options: ExportOptions) -> None:
    arrays = [band.name for band in raster.bands if band.is_array]
    for name in options.tensor_depths:
        if name in arrays:
            continue
        names = [band.name for band in raster.bands]
        if name in names:
            raise UsageError(
                f"tensor_depths contains {name!r}, which is not an array band: it has one number a pixel",
                hint=f"Remove {name!r} from tensor_depths (--depth).",
                details={"band": name},
            )
        raise UsageError(
            f"tensor_depths contains {name!r}, which is not a band", hint=suggest(name, names), details={"band": name}
        )
    without = [name for name in arrays if name not in options.tensor_depths]
    if not without:
        return
    listing = ", ".join(map(repr, without))
    if not options.sequence_data:
        raise UsageError(
            f"no depth for the array band{'s' if len(without) > 1 else ''} {listing}",
            hint=f"Give the number of elements of each pixel: tensor_depths={{{without[0]!r}: 12}}; "
            f"--depth {without[0]}=12.",
            details={"bands": without},
        )
    warnings.warn(
        f"no depth for the array band{'s' if len(without) > 1 else ''} {listing}: sequences keep their own lengths. "
        "Earth Engine requires tensorDepths for every array band",
        RegistryWarning,
        stacklevel=4,
    )


def _field(size: int) -> int:
    """Bytes of a protobuf field with ``size`` bytes of content, its tag and length included."""
    return 1 + max(1, -(-size.bit_length() // 7)) + size


def _kind_bytes(kind: Kind, count: int, most: bool) -> int:
    """Bytes of a Feature with ``count`` values; ``most`` takes the longest varints, else the shortest."""
    if kind == "bytes":
        return _field(_field(count))
    return _field(_field(count * (STORED[kind].itemsize if kind == "float" else _MOST_VARINT if most else 1)))


def _feature_bytes(name: str, kind: Kind, count: int, most: bool) -> int:
    return _entry_bytes(name, _kind_bytes(kind, count, most))


def _entry_bytes(name: str, size: int) -> int:
    """Bytes of a map entry whose value has ``size`` bytes."""
    return _field(len(name.encode())) + _field(size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One row of patches.

    Attributes:
        row: index of the row of patches.
        bands: the pixels of each band of the plan, of shape (depth, height, width). For an array band without a depth:
            objects of shape (height, width), each a 1-d array, or None outside the raster. The arrays are reused for
            the next strip.
        masked: True where any band is masked, of shape (height, width); None if no option needs it.
    """

    row: int
    bands: list[npt.NDArray[Any]]
    masked: Mask | None


def iterate_strips(raster: Raster, plan: ExportPlan) -> Iterator[Strip]:
    """Yield the rows of patches from top to bottom.

    Raises:
        FeatureError: the raster returned arrays of another shape or dtype than it declares.
    """
    reader = _StripReader(raster, plan)
    for row in range(plan.grid.num_rows):
        yield reader.read(row)


class _StripReader:
    """Owns the arrays of a strip; the margin's lower rows become the upper rows of the next strip."""

    def __init__(self, raster: Raster, plan: ExportPlan) -> None:
        self._raster = raster
        self._plan = plan
        grid, options = plan.grid, plan.options
        self._height, self._width = grid.tile.height, grid.covered.width + 2 * grid.margin.width
        self._left = grid.margin.width
        self._used = min(plan.size.width, grid.covered.width + grid.margin.width)
        """Number of the raster's columns that are in a patch or a margin."""
        self._num_read = len(raster.bands)
        self._bands = [self._empty(band) for band in plan.bands]
        wanted = options.masked == "pixel" or options.mask_band is not None or options.masked_threshold != 1
        self._masked = np.ones((self._height, self._width), np.bool_) if wanted else None

    def read(self, row: int) -> Strip:
        """Read the strip of one row of patches; rows must be read in order."""
        grid = self._plan.grid
        first = row * grid.patch.height - grid.margin.height
        kept = self._height - grid.patch.height if row else 0
        if kept:
            for whole in self._all_arrays():
                whole[..., :kept, :] = whole[..., grid.patch.height :, :]
        start, stop = max(0, first + kept), max(0, min(first + self._height, self._plan.size.height))
        self._clear(start - first if row == 0 else kept, stop - first, before=row == 0)
        if start < stop:
            bands = self._raster.bands
            row_bytes = sum(band.dtype.itemsize for band in bands) * max(1, self._plan.size.width)
            step = max(1, _CHUNK_BYTES // row_bytes)
            for at in range(start, stop, step):
                self._fill(at, min(at + step, stop), first)
        return Strip(row=row, bands=self._bands, masked=self._masked)

    def _fill(self, start: int, stop: int, first: int) -> None:
        """Read the pixel rows start..stop; ``first`` is the raster's row at which the strip starts."""
        found = self._raster.read(start, stop)
        self._check(found, stop - start)
        rows, columns = slice(start - first, stop - first), slice(self._left, self._left + self._used)
        any_masked: Mask | None = None
        if self._masked is not None:
            any_masked = np.zeros((stop - start, self._used), np.bool_)
            for _, mask in found:
                if mask is not None:
                    any_masked |= mask[:, : self._used]
            self._masked[rows, columns] = any_masked
        by_pixel = any_masked if self._plan.options.masked == "pixel" else None
        for band, out, (values, mask) in zip(self._plan.bands, self._bands, found, strict=False):
            own = by_pixel if by_pixel is not None else None if mask is None else mask[:, : self._used]
            _place(band, out[..., rows, columns], values[:, : self._used], own)
        if self._num_read < len(self._bands):
            assert any_masked is not None  # noqa: S101 (there is a mask band)
            np.logical_not(any_masked, out=self._bands[-1][0, rows, columns].view(np.bool_))

    def _check(self, bands: list[BandRows], rows: int) -> None:
        shape = (rows, self._plan.size.width)
        for band, (values, mask) in zip(self._raster.bands, bands, strict=True):
            dtype = values.dtype.newbyteorder("=") if values.dtype.kind != "O" else band.dtype
            axes = 3 if band.is_array and values.dtype.kind != "O" else 2
            if values.shape[:2] != shape or values.ndim != axes or dtype != band.dtype:
                raise FeatureError(
                    f"band {band.name!r}: expected {band.dtype} of shape {shape}, found {values.dtype} of shape "
                    f"{values.shape}",
                    hint="Raster.read must return (rows, width) for each band, (rows, width, depth) for an array band.",
                    details={"feature": band.name},
                )
            if mask is not None and (mask.shape != shape or mask.dtype != np.bool_):
                raise FeatureError(
                    f"mask of band {band.name!r}: expected bool of shape {shape}, found {mask.dtype} of shape "
                    f"{mask.shape}",
                    hint="Raster.read must return a mask of (rows, width) that is True where a pixel is masked.",
                    details={"feature": band.name},
                )

    def _empty(self, band: ExportedBand) -> npt.NDArray[Any]:
        if band.depth is None:
            return np.full((self._height, self._width), None, object)
        return np.full((band.depth, self._height, self._width), band.default, band.dtype)

    def _all_arrays(self) -> list[npt.NDArray[Any]]:
        return self._bands if self._masked is None else [*self._bands, self._masked]

    def _clear(self, start: int, stop: int, *, before: bool) -> None:
        """Fill the rows outside the raster with the default value: below it, and with ``before`` above it.

        Columns outside the raster were filled when the arrays were allocated, and no read writes to them.
        """
        outside = [slice(max(stop, start), self._height)] + ([slice(0, start)] if before else [])
        for rows in outside:
            for band, out in zip(self._plan.bands, self._bands, strict=True):
                out[..., rows, :] = None if band.depth is None else band.default
            if self._masked is not None:
                self._masked[rows] = True


def _place(band: ExportedBand, out: npt.NDArray[Any], values: npt.NDArray[Any], mask: Mask | None) -> None:
    """Copy rows of one band to its strip, with the default value where a pixel is masked."""
    if band.depth is None:
        out[...] = _native_arrays(band, values, mask)
    elif band.is_array:
        out[...] = stack_arrays(values, mask, depth=band.depth, dtype=band.dtype, default=band.default)
    else:
        out[0] = values
        if mask is not None:
            out[0][mask] = band.default


def _native_arrays(band: ExportedBand, values: npt.NDArray[Any], mask: Mask | None) -> npt.NDArray[Any]:
    """Arrays that keep their lengths; the elements of a masked pixel are default values."""
    out = np.empty(values.shape[:2], object)
    for place in np.ndindex(out.shape):
        found: Any = values[place]
        array = np.asarray([] if found is None else found, band.dtype)
        if mask is not None and mask[place]:
            array = np.full(array.shape, band.default, band.dtype)
        out[place] = array
    return out
