"""Checks a raster and options against each other before anything is read, and goes through the raster in strips.

    raster, options -> ExportPlan: grid, bands with their kinds, depths and default values -> strips -> records -> files

A strip holds the pixels of one row of patches with its margin, and no more is in memory. Pixels of a strip that lie
outside of the raster have the default value and are masked. Rows that two strips share are read once.
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
    check_dtype,
    crs_text,
    stack_arrays,
)
from registry.builders.earth_engine.grid import Grid, Size, Transform
from registry.builders.earth_engine.kinds import STORED, Kind, fit_default, furthest, kind_of
from registry.builders.earth_engine.mixer import Mixer
from registry.errors import FeatureError, RegistryWarning, UsageError, suggest
from registry.tfrecord.framing import FRAMING_BYTES, MAX_RECORD_BYTES

_MOST_VARINT: Final = 10

_CHUNK_BYTES: Final = 2**25
"""About so many bytes of a raster are asked for at once, a row at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedBand:
    """One band as it is written.

    Attributes:
        name: its id.
        dtype: of its numbers in the raster.
        kind: of the list that holds them.
        depth: elements of each pixel of an array band; None where each has its own number, which only sequences have.
            1 where a pixel is a number.
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
    """What an export will hold.

    Attributes:
        options: as they were given.
        size, transform, crs: of the raster.
        bands: in the order of the raster; the mask band, where one is asked for, comes last.
        grid: the patches.
        collapsed: the kind of the one feature that holds all bands; None where each has its own.
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
        """The sidecar; None where patches may be left out, and their places are lost."""
        return None if self.options.masked_threshold != 1 else Mixer.of(self.grid, self.crs, self.transform)

    @property
    def records_per_patch(self) -> int:
        """One, or as many as the patch has pixels."""
        return self.grid.patch.width * self.grid.patch.height if self.options.sequence_data else 1

    @property
    def num_records(self) -> int:
        """Records of all patches, of which masked_threshold may leave some out."""
        return self.grid.num_patches * self.records_per_patch

    @cached_property
    def record_bytes(self) -> tuple[int, int] | None:
        """The least and the most bytes of a record; the same where no integers are, which differ in length.

        None where arrays of any length are written.
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
        """The fewest and the most files, where no patch is left out."""
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
    """What an export of ``raster`` will hold. Nothing of it is read.

    Raises:
        UsageError: the raster holds no patch, an array band without a depth, a depth of a band that is none or of one
            number a pixel, a mask band of a name that is taken, NaN as the default of a band of integers.
        FeatureError: a band of numbers that are no pixels.
    """
    names = [band.name for band in raster.bands]
    if not names:
        raise UsageError("a raster without bands cannot be exported", hint="Give at least one.")
    for name, times in Counter(names).items():
        check_band_name(name)
        if times > 1:
            raise UsageError(
                f"{times} bands are called {name!r}; each is a feature of its name",
                hint="Name them anew: bands={'first': 1, 'second': 2}; --band first=1 --band second=2.",
                details={"band": name},
            )
    _check_depths(raster, options)
    bands = []
    for band in raster.bands:
        check_dtype(band.dtype, band.name)
        bands.append(
            ExportedBand(
                name=band.name,
                dtype=band.dtype,
                kind=kind_of(band.dtype, options.encoding),
                depth=options.tensor_depths.get(band.name) if band.is_array else 1,
                is_array=band.is_array,
                default=_default_of(band.name, band.dtype, options.default_value),
            )
        )
    if options.mask_band is not None:
        if options.mask_band in names:
            raise UsageError(
                f"mask_band is {options.mask_band!r}, which is the name of a band",
                hint="Name the mask otherwise: mask_band='mask'; --mask-band mask.",
                details={"option": "mask_band"},
            )
        dtype = np.dtype(np.uint8)
        bands.append(ExportedBand(name=options.mask_band, dtype=dtype, kind=kind_of(dtype, options.encoding)))
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
            f"a record would have {plan.record_bytes[0]} bytes, {MAX_RECORD_BYTES} at most can be written",
            hint="Take smaller patches (patch_dimensions; --patch), or fewer bands.",
            details={"option": "patch_dimensions"},
        )
    return plan


def _check_depths(raster: Raster, options: ExportOptions) -> None:
    arrays = [band.name for band in raster.bands if band.is_array]
    for name in options.tensor_depths:
        if name in arrays:
            continue
        known = [band.name for band in raster.bands]
        if name in known:
            raise UsageError(
                f"tensor_depths has {name!r}, which is a band of one number a pixel",
                hint="Leave it out: only array bands have a depth.",
                details={"band": name},
            )
        raise UsageError(
            f"tensor_depths has {name!r}, which is no band", hint=suggest(name, known), details={"band": name}
        )
    without = [name for name in arrays if name not in options.tensor_depths]
    if not without:
        return
    shown = ", ".join(map(repr, without))
    if not options.sequence_data:
        raise UsageError(
            f"no depth for the array band{'s' if len(without) > 1 else ''} {shown}",
            hint=f"Say how many elements of each pixel are written: tensor_depths={{{without[0]!r}: 12}}; "
            f"--depth {without[0]}=12.",
            details={"bands": without},
        )
    warnings.warn(
        f"no depth for the array band{'s' if len(without) > 1 else ''} {shown}: sequences are written as long as they "
        "are. Earth Engine asks for tensorDepths of every array band",
        RegistryWarning,
        stacklevel=4,
    )


def _default_of(name: str, dtype: np.dtype[Any], value: float) -> int | float:
    try:
        return fit_default(value, dtype)
    except UsageError as error:
        raise UsageError(
            f"the default value NaN cannot stand in the band {name!r} of {dtype}",
            hint="Give a number, or make the band one of floats.",
            details={"band": name, "dtype": str(dtype)},
        ) from error


def _field(size: int) -> int:
    """Bytes of a field of ``size`` bytes, with its tag and length."""
    return 1 + max(1, -(-size.bit_length() // 7)) + size


def _kind_bytes(kind: Kind, count: int, most: bool) -> int:
    """Bytes of a message Feature of ``count`` values."""
    if kind == "bytes":
        return _field(_field(count))
    return _field(_field(count * (STORED[kind].itemsize if kind == "float" else _MOST_VARINT if most else 1)))


def _feature_bytes(name: str, kind: Kind, count: int, most: bool) -> int:
    return _entry_bytes(name, _kind_bytes(kind, count, most))


def _entry_bytes(name: str, size: int) -> int:
    """Bytes of the entry of a map whose value has ``size`` bytes."""
    return _field(len(name.encode())) + _field(size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One row of patches.

    Attributes:
        row: of patches.
        bands: the pixels of each band of the plan, of shape (depth, height, width); of an array band without a depth
            objects of shape (height, width), 1-d arrays or None outside of the raster. They are valid until the next
            strip is asked for.
        masked: pixels of which any band is masked, of shape (height, width); None where nobody asks.
    """

    row: int
    bands: list[npt.NDArray[Any]]
    masked: Mask | None


def iterate_strips(raster: Raster, plan: ExportPlan) -> Iterator[Strip]:
    """The rows of patches from top to bottom.

    Raises:
        FeatureError: a raster that does not read what it says it has.
    """
    reader = _StripReader(raster, plan)
    for row in range(plan.grid.num_rows):
        yield reader.read(row)


class _StripReader:
    """Holds the arrays of a strip, whose lower rows become the upper ones of the next."""

    def __init__(self, raster: Raster, plan: ExportPlan) -> None:
        self._raster = raster
        self._plan = plan
        grid, options = plan.grid, plan.options
        self._height, self._width = grid.tile.height, grid.covered.width + 2 * grid.margin.width
        self._left = grid.margin.width
        self._used = min(plan.size.width, grid.covered.width + grid.margin.width)
        """Columns of the raster that are in a patch or in a margin."""
        self._num_read = len(raster.bands)
        self._bands = [self._empty(band) for band in plan.bands]
        wanted = options.masked == "pixel" or options.mask_band is not None or options.masked_threshold != 1
        self._masked = np.ones((self._height, self._width), np.bool_) if wanted else None

    def read(self, row: int) -> Strip:
        """The strip of one row of patches; rows are asked for in order."""
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
        """Read the pixel rows start..stop; ``first`` is the row of the raster in which the strip begins."""
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

    def _check(self, found: list[BandRows], rows: int) -> None:
        shape = (rows, self._plan.size.width)
        for band, (values, mask) in zip(self._raster.bands, found, strict=True):
            dtype = values.dtype.newbyteorder("=") if values.dtype.kind != "O" else band.dtype
            axes = 3 if band.is_array and values.dtype.kind != "O" else 2
            if values.shape[:2] != shape or values.ndim != axes or dtype != band.dtype:
                raise FeatureError(
                    f"the band {band.name!r} is of {band.dtype} and {shape[1]} pixels wide; read were {values.dtype} "
                    f"of shape {values.shape}",
                    hint="Raster.read gives arrays of (rows, width), of array bands (rows, width, depth).",
                    details={"feature": band.name},
                )
            if mask is not None and (mask.shape != shape or mask.dtype != np.bool_):
                raise FeatureError(
                    f"the mask of the band {band.name!r} is of {mask.dtype} and shape {mask.shape}, not of bool and "
                    f"shape {shape}",
                    hint="Raster.read gives a mask of (rows, width), True where masked.",
                    details={"feature": band.name},
                )

    def _empty(self, band: ExportedBand) -> npt.NDArray[Any]:
        if band.depth is None:
            return np.full((self._height, self._width), None, object)
        return np.full((band.depth, self._height, self._width), band.default, band.dtype)

    def _all_arrays(self) -> list[npt.NDArray[Any]]:
        return self._bands if self._masked is None else [*self._bands, self._masked]

    def _clear(self, start: int, stop: int, *, before: bool) -> None:
        """Make those rows of the strip that are not of the raster the default value: below, and ``before`` the first.

        Columns outside of the raster were made so at the start, and stay.
        """
        outside = [slice(max(stop, start), self._height)] + ([slice(0, start)] if before else [])
        for rows in outside:
            for band, out in zip(self._plan.bands, self._bands, strict=True):
                out[..., rows, :] = None if band.depth is None else band.default
            if self._masked is not None:
                self._masked[rows] = True


def _place(band: ExportedBand, out: npt.NDArray[Any], values: npt.NDArray[Any], mask: Mask | None) -> None:
    """Write rows of one band into its strip, the default value where it is masked."""
    if band.depth is None:
        out[...] = _native_arrays(band, values, mask)
    elif band.is_array:
        out[...] = stack_arrays(values, mask, depth=band.depth, dtype=band.dtype, default=band.default)
    else:
        out[0] = values
        if mask is not None:
            out[0][mask] = band.default


def _native_arrays(band: ExportedBand, values: npt.NDArray[Any], mask: Mask | None) -> npt.NDArray[Any]:
    """Arrays of their own length; of a masked pixel as many default values as it has elements."""
    out = np.empty(values.shape[:2], object)
    for place in np.ndindex(out.shape):
        found: Any = values[place]
        array = np.asarray([] if found is None else found, band.dtype)
        if mask is not None and mask[place]:
            array = np.full(array.shape, band.default, band.dtype)
        out[place] = array
    return out
