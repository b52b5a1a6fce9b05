"""What does each record of files say about its patch? Arrays by band, in the order of the files.

A record is an Example of one patch. Where each pixel was written as a SequenceExample, or as an Example of one value a
band, the records of a patch are gathered: series of one length become the depth of an array band.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.kinds import from_flat
from registry.builders.earth_engine.places.grid import Size
from registry.errors import CorruptExampleError, RegistryError, ShardMismatchError
from registry.storage import Store
from registry.tfrecord import read_blocks
from registry.wire import FlatValue, decode_features, decode_sequence_example
from registry.wire.codec import Steps


class Place(NamedTuple):
    """Where a patch comes from, for messages."""

    patch: int
    file: str | None = None
    record: int | None = None

    def __str__(self) -> str:
        if self.file is None:
            return f"patch {self.patch}"
        return f"{self.file}: record {self.record} (patch {self.patch})"

    @property
    def details(self) -> dict[str, Any]:
        """The same for programs."""
        return {"path": self.file, "record": self.record, "patch": self.patch}


class PatchValues(NamedTuple):
    """The values of one patch by band: flat as a record has them, or of a shape that ends with height and width."""

    place: Place
    bands: Mapping[str, npt.NDArray[Any]]


class _Record(NamedTuple):
    payload: memoryview
    file: str
    number: int


@dataclass(frozen=True, kw_only=True)
class RecordPatches:
    """The patches in TFRecord files, which are read anew each time.

    Attributes:
        files: the files in order, each a store and a name in it; gzip is known by the first bytes.
        patch: size of a patch without its margin: so many records are one patch of an export of pixels.
        bands: features that are read; None for all.
        sequence: whether a record is a pixel; None looks at the first one.
        counts: records of each file, by its path, as far as it was read.
    """

    files: Sequence[tuple[Store, str]]
    patch: Size
    bands: Sequence[str] | None = None
    sequence: bool | None = None
    counts: dict[str, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[PatchValues]:
        records = self._records()
        first = next(records, None)
        if first is None:
            return
        sequence = is_of_a_pixel(first.payload, self.patch) if self.sequence is None else self.sequence
        yield from (self._pixels if sequence else self._patches)(first, records)

    def num_stored_bytes(self) -> int:
        """The size of all files together, compressed as they are."""
        return sum(store.size(name) for store, name in self.files)

    def _records(self) -> Iterator[_Record]:
        self.counts.clear()
        for store, name in self.files:
            path = store.locate(name)
            self.counts[path] = number = 0
            for block, _ in read_blocks(store, name):  # and not mapped: all of the file would count as memory
                for payload in block.views():
                    self.counts[path] += 1
                    yield _Record(payload, path, number)
                    number += 1

    def _patches(self, first: _Record, others: Iterator[_Record]) -> Iterator[PatchValues]:
        record: _Record | None = first
        index = 0
        while record is not None:
            place = Place(index, record.file, record.number)
            features = read_at(place, decode_features, record.payload)
            yield PatchValues(
                place,
                {
                    name: read_at(place, from_flat, features[name], name)[1]
                    for name in names_of(features, self.bands, place)
                },
            )
            record, index = next(others, None), index + 1

    def _pixels(self, first: _Record, others: Iterator[_Record]) -> Iterator[PatchValues]:
        width, height = self.patch
        record: _Record | None = first
        index = 0
        while record is not None:
            group = [record, *islice(others, width * height - 1)]
            place = Place(index, record.file, record.number)
            if len(group) != width * height:
                raise ShardMismatchError(
                    f"{place}: the last patch has {len(group)} records; with a record for each pixel a patch of "
                    f"{width} x {height} has {width * height}",
                    hint="A file is missing or was cut off, or it is the mixer of another export.",
                    details={**place.details, "expected": width * height, "found": len(group)},
                )
            yield PatchValues(place, _gather(group, index, self.bands, self.patch))
            record, index = next(others, None), index + 1


def is_of_a_pixel(payload: memoryview, patch: Size) -> bool:
    """Whether a record holds one pixel: it has feature lists, or one value in every band of larger patches."""
    try:
        values = decode_sequence_example(payload)
    except CorruptExampleError:
        return False
    if values.lists:
        return True
    lengths = {_num_values(value) for value in values.context.values() if value is not None}
    return patch != Size(1, 1) and lengths == {1}


def _num_values(value: FlatValue) -> int:
    return sum(map(len, value)) if isinstance(value, list) else value.size


def names_of(features: Mapping[str, Any], bands: Sequence[str] | None, place: Place) -> Sequence[str]:
    """The names of the bands to read of a record: ``bands``, or all that it has."""
    if bands is None:
        return list(features)
    for name in bands:
        if name not in features:
            raise missing_band(name, features, place)
    return bands


def missing_band(name: str, known: Mapping[str, Any], place: Place) -> ShardMismatchError:
    """The error for a patch without a band that another has, or that was asked for."""
    return ShardMismatchError(
        f"{place}: it has no band {name!r}; it has {listed(known)}",
        hint="Name bands that every patch has: bands=[...]; --band NAME.",
        details={**place.details, "band": name, "known": sorted(known)},
    )


def other_bands(patch: PatchValues, expected: Sequence[str]) -> ShardMismatchError:
    """The error for a patch that has other bands than the first one."""
    for name in expected:
        if name not in patch.bands:
            return missing_band(name, patch.bands, patch.place)
    more = sorted(set(patch.bands) - set(expected))
    return ShardMismatchError(
        f"{patch.place}: it has a band {more[0]!r}, which the first patch has not; that has {listed(expected)}",
        hint="Name bands that every patch has: bands=[...]; --band NAME.",
        details={**patch.place.details, "band": more[0], "known": sorted(expected)},
    )


def listed(names: Mapping[str, Any] | Sequence[str]) -> str:
    """Names for a message, sorted, at most ten."""
    shown = [repr(name) for name in sorted(names)[:10]]
    return ", ".join(shown) + (f" and {len(names) - 10} more" if len(names) > 10 else "") if shown else "none"


def read_at(place: Place, read: Callable[..., Any], *arguments: Any) -> Any:
    """What ``read`` makes of a record; its error with the place of the record before it."""
    try:
        return read(*arguments)
    except RegistryError as error:
        raise type(error)(
            f"{place}: {error.message}", hint=error.hint, details={**place.details, **error.details}
        ) from error


def _gather(
    group: Sequence[_Record], index: int, bands: Sequence[str] | None, patch: Size
) -> dict[str, npt.NDArray[Any]]:
    """The pixels of one patch as arrays: (height, width), of series (length, height, width)."""
    columns: dict[str, list[npt.NDArray[Any]]] = {}
    for record in group:
        place = Place(index, record.file, record.number)
        values = read_at(place, decode_sequence_example, record.payload)
        pixel: dict[str, FlatValue | Steps | None] = {**values.context, **values.lists}
        names = names_of(pixel, bands, place)
        if columns and set(names) != set(columns):
            raise missing_band(min(set(columns) ^ set(names)), pixel, place)
        for name in names:
            series = read_at(place, _series, values, name)
            column = columns.setdefault(name, [])
            if column and (column[0].shape != series.shape or column[0].dtype != series.dtype):
                raise ShardMismatchError(
                    f"{place}: the series of {name!r} has {series.size} values of {series.dtype}; that of the patch's "
                    f"first pixel has {column[0].size} of {column[0].dtype}",
                    hint="Only series of one length make a raster. Export with tensor_depths, or name other bands: "
                    "bands=[...]; --band NAME.",
                    details={**place.details, "band": name, "expected": column[0].size, "found": series.size},
                )
            column.append(series)
    width, height = patch
    found = {}
    for name, column in columns.items():
        is_series = column[0].ndim == 1
        stacked = np.stack(column)
        found[name] = stacked.T.reshape(-1, height, width) if is_series else stacked.reshape(height, width)
    return found


def _series(values: Any, name: str) -> npt.NDArray[Any]:
    """The value of a scalar band, of no dimension, or the steps of a series, of one."""
    if name not in values.lists:
        _, flat = from_flat(values.context[name], name)
        if flat.size != 1:
            raise CorruptExampleError(
                f"the band {name!r} has {flat.size} values; a record of one pixel has one",
                hint="Is a record one patch, and not one pixel? Then say so: sequence=False; --no-sequence.",
                details={"feature": name},
            )
        return np.asarray(flat[0])
    steps = [from_flat(step, name)[1] for step in values.lists[name]]
    if any(step.size != 1 for step in steps):
        raise CorruptExampleError(
            f"the series {name!r} has a step of several values; a step has one", details={"feature": name}
        )
    return np.concatenate(steps) if steps else np.empty(0, np.float32)
