"""Reads time series pixel by pixel, from an export with ``sequenceData``: the bands, and the series of each pixel.

    for pixel in PixelSeries(catalog.dataset("series")):
        pixel.row, pixel.column, pixel.values["ndvi"]      # (T,): T may differ from pixel to pixel

A ``registry.Reader`` reads the records; ``patch_places`` gives the place of each pixel.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from registry import ReadConfig, Reader, ReadInstruction, SlicingRule
from registry.builders.earth_engine.exporting.options import read_names
from registry.builders.earth_engine.kinds import STORED, from_flat
from registry.builders.earth_engine.patch_places import (
    ReadArguments,
    RecordNumbers,
    SplitPlaces,
    open_reader,
    places_of_reader,
)
from registry.builders.earth_engine.stored.export import StoredBand
from registry.builders.earth_engine.stored.kept_split import MixerLike
from registry.errors import CorruptExampleError, UsageError
from registry.wire import SequenceValues, decode_sequence_example

if TYPE_CHECKING:
    from registry import Dataset, Pin
    from registry.builders.earth_engine.stored.importing import FileArguments


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PixelValues:
    """One pixel, and what its bands hold.

    Attributes:
        patch: the number of its patch; None without a mixer.
        row, column: its row and column in the raster; None without a mixer.
        values: a number by band, or the array of its series, of shape (T,).
    """

    patch: int | None
    row: int | None
    column: int | None
    values: Mapping[str, Any]


class PixelSeries:
    """The pixels of a split expression, in the order of a ``ReadConfig``: patch by patch, row by row in each.

    Attributes:
        reader: the reader of the records.
        bands: the bands in order.
    """

    def __init__(
        self,
        source: Dataset | Pin | Reader,
        split: str | ReadInstruction | None = None,
        *,
        bands: Sequence[str] | None = None,
        mixer: MixerLike | None = None,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
        **reading: Unpack[ReadArguments],
    ) -> None:
        """The pixels of a published version, or of a pin.

        Args:
            source: the version, as ``catalog.dataset`` gives it, or a pin; or a reader, whose options apply.
            split: a split expression; None uses the only split of a version, or the slice of a pin.
            bands: the bands to read; None reads all.
            mixer: replaces the mixer in the version's metadata; for a pin, the mixer or the version's metadata.
            slicing: see ``Dataset.read``.
            rounding: see ``Dataset.read``.
            **reading: see ``Patches``.

        Raises:
            UsageError: the split contains patches instead of pixels, or a band does not exist.
            ShardMismatchError: the mixer belongs to another export.
            The errors of ``Dataset.read`` and, while iterating, of a ``Reader``.
        """
        reader = open_reader(source, split, slicing=slicing, rounding=rounding, **reading)
        first, self._places = places_of_reader(reader, mixer=mixer)
        if first is None or not first.is_sequence:
            raise UsageError(
                "expected pixels with series (sequenceData), found another export",
                hint="Read patches with Patches(dataset, split).",
            )
        known = {band.name: band for band in first.bands}
        wanted = read_names(bands, "bands") or known
        if unknown := [name for name in wanted if name not in known]:
            raise UsageError(
                f"band {unknown[0]!r} does not exist",
                hint=f"The bands are: {', '.join(list(known)[:20])}.",
                details={"option": "bands", "known": list(known)[:100]},
            )
        self.bands: tuple[StoredBand, ...] = tuple(known[name] for name in wanted)
        self.reader = reader
        self._ids = reader.reopened(state=reader.state())  # at the same place: each iteration of either begins an epoch
        self._numbers = RecordNumbers(reader.plan)

    @classmethod
    def of_files(
        cls,
        folder: str | os.PathLike[str],
        split: str | ReadInstruction = "train",
        *,
        bands: Sequence[str] | None = None,
        read_config: ReadConfig | None = None,
        **files: Unpack[FileArguments],
    ) -> PixelSeries:
        """The pixels of an export that is not in a catalog; see ``Patches.of_files``."""
        from registry.builders.earth_engine.stored.importing import open_files

        return cls(open_files(folder, split, read_config=read_config, **files), bands=bands)

    def __len__(self) -> int:
        """Number of pixels of one epoch."""
        return len(self.reader)

    def __iter__(self) -> Iterator[PixelValues]:
        """Read the next epoch, one pixel at a time.

        Raises:
            CorruptExampleError: a record is not a SequenceExample, or lacks a band with one value a pixel.
            CorruptRecordError: a record is damaged.
            StorageError: a file cannot be read.
        """
        for record, record_id in zip(self.reader.records(), self._ids.ids(), strict=True):
            (split,), numbers = self._numbers.find([record_id])
            yield self._pixel(record, self._places[split], int(numbers[0]), record_id)

    def __repr__(self) -> str:
        return f"<PixelSeries {self.reader.plan.expression}: {len(self)} of {', '.join(b.name for b in self.bands)}>"

    def _pixel(self, record: bytes | memoryview, places: SplitPlaces, number: int, name: str) -> PixelValues:
        sequence_example = decode_sequence_example(record)
        values = {band.name: _values_of(sequence_example, band, name) for band in self.bands}
        if places.mixer is None or places.grid is None:
            return PixelValues(patch=None, row=None, column=None, values=values)
        width, height = places.mixer.patch
        place, pixel = divmod(number, width * height)
        patch = int(places.numbers_of(np.array([place]))[0])
        window = places.grid.core(patch)
        row, column = divmod(pixel, width)
        return PixelValues(patch=patch, row=window.row + row, column=window.column + column, values=values)


def _values_of(sequence_values: SequenceValues, band: StoredBand, name: str) -> Any:
    """The number of a pixel, or its series."""
    try:
        if not band.is_series:
            _, values = from_flat(sequence_values.context.get(band.name), band.name)
            if values.size != 1:
                raise CorruptExampleError(f"band {band.name!r}: expected 1 value for a pixel, found {values.size}")
            return values[0]
        steps = [from_flat(step, band.name) for step in sequence_values.lists.get(band.name, [])]
    except CorruptExampleError as error:
        raise CorruptExampleError(f"{name}: {error.message}", hint=error.hint, details=error.details) from error
    if any(kind != band.kind for kind, _ in steps):
        raise CorruptExampleError(f"{name}: series {band.name!r} has steps of another kind than {band.kind}")
    series: npt.NDArray[Any] = (
        np.concatenate([values for _, values in steps]) if steps else np.empty(0, STORED[band.kind])
    )
    return series
