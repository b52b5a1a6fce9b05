"""Reads an export for training: patch by patch or in batches, each patch with its place on the map.

    patches = Patches(catalog.dataset("training_patches"), "train[:80%]")
    for batch in patches.batches(64):
        batch.values            # (64, C, H, W)
        batch.rows, batch.columns, batch.bounds

    version, split -> Reader (any order) -> blocks of records, with their ids -> values, and places

A ``registry.Reader`` reads the records, in any order that it knows; ``patch_places`` gives the places.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, Unpack, overload

import numpy as np
import numpy.typing as npt

from registry import ReadConfig, Reader, ReadInstruction, SlicingRule
from registry.builders.earth_engine.exporting.options import read_size
from registry.builders.earth_engine.grid import Bounds, Transform, Window
from registry.builders.earth_engine.patch_places import (
    Numbers,
    ReadArguments,
    RecordNumbers,
    SplitPlaces,
    open_reader,
    places_of_reader,
)
from registry.builders.earth_engine.stored.kept_split import MixerLike
from registry.errors import UsageError
from registry.features import FeaturesDict
from registry.reading import TFDS_ID, State

if TYPE_CHECKING:
    from registry import Dataset, Pin, PinFile
    from registry.builders.earth_engine.stored.importing import FileArguments


Layout: TypeAlias = Literal["CHW", "HWC", "bands"]

LAYOUTS: Final = ("CHW", "HWC", "bands")

Values: TypeAlias = "npt.NDArray[Any] | dict[str, npt.NDArray[Any]]"
__all__ = ["Patch", "PatchBatch", "Patches", "SplitPlaces"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Patch:
    """One patch and its place. Attributes that depend on the mixer are None without one.

    Attributes:
        index: its index in the grid, row by row; without a mixer, its index in the split.
        row: its row in the grid, in patches.
        column: its column in the grid, in patches.
        values: an array of shape (C, H, W) or (H, W, C), or a dict of band to (H, W), or (D, H, W) for array bands.
        bounds: its bounds on the map, in units of ``crs``; they include the margin if it was read.
        transform: from pixels of ``values`` to the map.
        crs: a code such as EPSG:32610, or WKT.
        window: its pixels in the raster.
    """

    index: int
    row: int | None
    column: int | None
    values: Values
    bounds: Bounds | None
    transform: Transform | None
    crs: str | None
    window: Window | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PatchBatch:
    """A batch of N patches and their places.

    Attributes:
        values: an array of shape (N, C, H, W) or (N, H, W, C), or a dict of band to (N, H, W).
        indexes: ``Patch.index`` of each patch, int64 of shape (N,).
        rows: row of each patch, int64 of shape (N,); None without a mixer.
        columns: column of each patch, int64 of shape (N,); None without a mixer.
        bounds: float64 of shape (N, 4): left, bottom, right, top, in units of the CRS; None without a mixer.
    """

    values: Values
    indexes: Numbers
    rows: Numbers | None
    columns: Numbers | None
    bounds: npt.NDArray[np.float64] | None

    def __len__(self) -> int:
        return self.indexes.size


class Patches:
    """The patches of a split expression, in the order of a ``ReadConfig``.

    Iterating reads an epoch, and iterating again the next, as a ``Reader`` does; ``patches[i]`` is patch ``i`` of the
    first epoch. The place of a patch does not depend on the order of reading.

    Attributes:
        reader: the reader of the records.
        channels: the names of the channels of ``values``, in order.
        crs: the CRS of the first split that is read; None without a mixer.
    """

    def __init__(
        self,
        source: Dataset | Pin | PinFile | Reader,
        split: str | ReadInstruction | None = None,
        *,
        bands: Sequence[str] | None = None,
        margin: bool = False,
        layout: Layout = "CHW",
        dtype: npt.DTypeLike | None = None,
        mixer: MixerLike | None = None,
        kernel_size: int | Sequence[int] | None = None,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
        **reading: Unpack[ReadArguments],
    ) -> None:
        """The patches of a published version, or of a pin.

        Args:
            source: the version, as ``catalog.dataset`` gives it, or a pin, or a file of one pin; or a reader, whose
                options apply.
            split: a split expression such as ``train[:80%]``; None uses the only split of a version, or the slice of
                a pin.
            bands: the bands to read, in order; None reads all, in the order of the export.
            margin: read the margin around each patch too.
            layout: ``CHW`` or ``HWC`` for one array of all bands, or ``bands`` for a dict of band to array.
            dtype: the dtype of the values. None keeps the dtype of each band; several bands in one array are promoted
                to the first of uint8, int64 and float32 that fits, and to float32 if one is a float.
            mixer: replaces the mixer in the version's metadata; for a pin, the mixer or the version's metadata.
            kernel_size: replaces the kernel size in the version's metadata, in pixels.
            slicing: rule of slicing, see ``Dataset.read``.
            rounding: rule of rounding percentages, see ``Dataset.read``.
            **reading: ``read_config`` is the order of reading; None is the order of the export. ``state`` is that of
                equal ``Patches`` at which to continue. ``process``, ``verify`` and ``copy``: see ``Dataset.read``.

        Raises:
            UsageError: the split does not contain patches or one of the bands, or an option is invalid.
            ShardMismatchError: the mixer belongs to another export.
            SplitNotFoundError: the version does not have the split.
            StorageError: a file cannot be read.
        """
        reader = open_reader(source, split, slicing=slicing, rounding=rounding, **reading).with_ids()
        if layout not in LAYOUTS:
            raise UsageError(
                f"invalid layout {layout!r:.60}: expected one of {', '.join(map(repr, LAYOUTS))}",
                details={"option": "layout"},
            )
        kernel = None if kernel_size is None else read_size(kernel_size, "kernel_size", least=0)
        _, self._places = places_of_reader(reader, bands=bands, mixer=mixer, kernel=kernel)
        first = next(iter(self._places.values()))
        if first.is_sequence:
            raise UsageError(
                "expected patches, found pixels with series (sequenceData)",
                hint="Read them with PixelSeries(dataset, split).",
            )
        self._margin, self._layout = margin, layout
        self._bands = first.bands
        self._is_collapsed = first.is_collapsed
        self.channels = tuple(name for band in first.bands for name in band.channels)
        self.crs = None if first.mixer is None else first.mixer.crs
        features = [band.feature for band in first.bands]
        self.reader = reader if list(reader.features) == features else reader.select(features)
        self._dtype = np.dtype(dtype) if dtype is not None else None
        self._joint = self._dtype or _joint_dtype(self.reader.features)
        self._numbers = RecordNumbers(reader.plan)

    @classmethod
    def of_files(
        cls,
        folder: str | os.PathLike[str],
        split: str | ReadInstruction = "train",
        *,
        bands: Sequence[str] | None = None,
        margin: bool = False,
        layout: Layout = "CHW",
        dtype: npt.DTypeLike | None = None,
        read_config: ReadConfig | None = None,
        state: State | Sequence[State] | None = None,
        process: tuple[int, int] = (0, 1),
        **files: Unpack[FileArguments],
    ) -> Patches:
        """The patches of an export that is not in a catalog. All files are read once first, to count the records.

        Args:
            folder: path or URL of the folder, or of one file of the export.
            split: an expression; the export is the split ``train``, or those that ``prefix`` names.
            bands: see ``Patches``.
            margin: see ``Patches``.
            layout: see ``Patches``.
            dtype: see ``Patches``.
            read_config: see ``Patches``.
            state: state of equal ``Patches`` at which to continue.
            process: index and number of the processes that share the patches.
            **files: ``prefix``, ``mixer``, ``kernel_size``, ``patch_dimensions``, ``tensor_depths``, ``patches`` and
                ``sequence``: see ``import_export``.

        Raises:
            The errors of ``open_export`` and ``Patches``.
        """
        from registry.builders.earth_engine.stored.importing import open_files

        reader = open_files(folder, split, read_config=read_config, state=state, process=process, **files)
        return cls(reader, bands=bands, margin=margin, layout=layout, dtype=dtype)

    def __len__(self) -> int:
        """Number of patches of one epoch."""
        return len(self.reader)

    def __iter__(self) -> Iterator[Patch]:
        """Read the next epoch, one patch at a time. Raises the errors of iterating a ``Reader``."""
        for example in self.reader:  # decoded in blocks and yielded one by one, so that a state is exact
            splits, records = self._numbers.find([example[TFDS_ID]])
            values = self._values({band.feature: example[band.feature][None] for band in self._bands})
            yield self._patch(_at(values, 0), splits[0], records[0])

    def batches(self, size: int, *, drop_remainder: bool = False) -> Iterator[PatchBatch]:
        """Read the next epoch in batches of ``size`` patches. Raises the errors of ``Reader.batches``."""
        for columns in self.reader.batches(size, drop_remainder=drop_remainder):
            yield self._batch(columns)

    @overload
    def __getitem__(self, index: int) -> Patch: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | npt.NDArray[np.integer[Any]]) -> PatchBatch: ...
    def __getitem__(self, index: Any) -> Patch | PatchBatch:
        """Patch ``index`` of the first epoch; with a slice, or a list of numbers, a batch of them.

        Raises:
            IndexError: the patch does not exist.
            The errors of iterating a ``Reader``.
        """
        if isinstance(index, slice | Sequence) or np.ndim(index):
            return self._batch(self.reader[index])
        columns = self.reader[[index]]
        splits, records = self._numbers.find(columns[TFDS_ID])
        return self._patch(_at(self._values(columns), 0), splits[0], records[0])

    def state(self) -> dict[str, Any]:
        """The position, see ``Reader.state``. ``Patches(..., state=...)`` continues there."""
        return self.reader.state()

    def __repr__(self) -> str:
        return f"<Patches {self.reader.plan.expression}: {len(self)} of {', '.join(self.channels)}>"

    def _patch(self, values: Values, split: str, record: np.int64) -> Patch:
        places = self._places[split]
        number = int(places.numbers_of(np.array([record]))[0])
        window = places.window(number, margin=self._margin)
        if places.grid is None or window is None:
            return Patch(
                index=number, row=None, column=None, values=values, bounds=None, transform=None, crs=None, window=None
            )
        row, column = places.grid.place(number)
        return Patch(
            index=number,
            row=row,
            column=column,
            values=values,
            bounds=places.transform.bounds(*window),
            transform=places.transform.moved(window.column, window.row),
            crs=None if places.mixer is None else places.mixer.crs,
            window=window,
        )

    def _batch(self, columns: Mapping[str, Any]) -> PatchBatch:
        splits, records = self._numbers.find(columns[TFDS_ID])
        numbers = np.empty_like(records)
        rows, result, bounds = np.empty_like(records), np.empty_like(records), np.empty((records.size, 4), np.float64)
        is_placed = True
        names = np.array(splits)
        for split in dict.fromkeys(splits):
            places, own = self._places[split], names == split
            numbers[own] = places.numbers_of(records[own])
            if places.grid is None:
                is_placed = False
                continue
            rows[own], result[own] = np.divmod(numbers[own], places.grid.patches_per_row)
            bounds[own] = places.all_bounds(numbers[own], margin=self._margin)
        return PatchBatch(
            values=self._values(columns),
            indexes=numbers,
            rows=rows if is_placed else None,
            columns=result if is_placed else None,
            bounds=bounds if is_placed else None,
        )

    def _values(self, columns: Mapping[str, Any]) -> Values:
        """The values of some records in the requested layout, with the records on the first axis."""
        tile = next(iter(self._places.values())).tile
        arrays: list[npt.NDArray[Any]] = []
        for band in self._bands:
            values = columns[band.feature]
            arrays.append(values if self._margin or tile is None else tile.crop(values))
        if self._layout == "bands":
            if self._is_collapsed:
                return {name: self._cast(arrays[0][:, level]) for level, name in enumerate(self._bands[0].channels)}
            return {band.feature: self._cast(values) for band, values in zip(self._bands, arrays, strict=True)}
        size = arrays[0].shape[-2:]
        joined = np.empty((arrays[0].shape[0], len(self.channels), *size), self._joint)
        start = 0
        for band, values in zip(self._bands, arrays, strict=True):
            joined[:, start : start + band.depth] = values.reshape(-1, band.depth, *size)
            start += band.depth
        return joined if self._layout == "CHW" else np.ascontiguousarray(np.moveaxis(joined, 1, -1))

    def _cast(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.ascontiguousarray(values) if self._dtype is None else values.astype(self._dtype)


def _joint_dtype(features: FeaturesDict) -> np.dtype[Any]:
    """The dtype of one array of all bands: float32 if one band is a float, as Earth Engine promotes bands."""
    dtypes = [np.dtype(feature.dtype) for feature in features.values()]
    if any(dtype.kind == "f" for dtype in dtypes) and all(dtype.itemsize <= 4 or dtype.kind != "f" for dtype in dtypes):
        return np.dtype(np.float32)
    return np.result_type(*dtypes)


def _at(values: Values, place: int) -> Values:
    return {name: value[place] for name, value in values.items()} if isinstance(values, dict) else values[place]
