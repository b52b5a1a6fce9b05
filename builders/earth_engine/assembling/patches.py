"""Reads patches as arrays by band, from records in the order of their files or from the arrays of a model.

A record is an Example of one patch. If each record is a pixel instead (``sequenceData``), the records of a patch are
gathered, and series of equal length become array bands. Arrays have the axes

    (H, W)         one patch of one band                       layout "HW", and of a mapping's values
    (C, H, W)      one patch of C bands                        layout "CHW"
    (H, W, C)      the same, bands last                        layout "HWC"
    one axis more  a batch of them, first axis                 (N, H, W), (N, C, H, W), (N, H, W, C)

An item may also be a mapping of bands to such arrays, or a ``Patch`` or ``PatchBatch``, whose order is then checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.grid import Size
from registry.builders.earth_engine.kinds import from_flat
from registry.builders.earth_engine.stored.record_forms import is_of_pixel
from registry.errors import CorruptExampleError, FeatureError, RegistryError, ShardMismatchError, UsageError
from registry.model import listed as listed_texts
from registry.storage import Store
from registry.tfrecord import read_blocks
from registry.wire import FlatValue, Steps, decode_features, decode_sequence_example

LAYOUTS: Final = ("HW", "CHW", "HWC")


class PatchOrigin(NamedTuple):
    """The origin of a patch, for messages."""

    patch: int
    file: str | None = None
    record: int | None = None

    def __str__(self) -> str:
        if self.file is None:
            return f"patch {self.patch}"
        return f"{self.file}: record {self.record} (patch {self.patch})"

    @property
    def details(self) -> dict[str, Any]:
        """The same as fields of an error."""
        return {"path": self.file, "record": self.record, "patch": self.patch}


class PatchValues(NamedTuple):
    """The values of one patch by band: flat as in a record, or of a shape that ends with height and width."""

    place: PatchOrigin
    bands: Mapping[str, npt.NDArray[Any]]


class _Record(NamedTuple):
    payload: memoryview
    file: str
    number: int


@dataclass(frozen=True, kw_only=True)
class RecordPatches:
    """The patches in TFRecord files. Each iteration reads the files again.

    Attributes:
        files: the files in order, each a store and a name; gzip is detected by the first bytes.
        patch: size of a patch without its margin; with ``sequenceData``, the records of one patch.
        bands: features to read; None reads all.
        sequence: whether a record is a pixel; None infers it from the first record.
        counts: number of records read from each file, by path.
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
        sequence = is_of_pixel(first.payload, self.patch) if self.sequence is None else self.sequence
        yield from (self._pixels if sequence else self._patches)(first, records)

    def num_stored_bytes(self) -> int:
        """The size of all files together, compressed as they are."""
        return sum(store.size(name) for store, name in self.files)

    def _records(self) -> Iterator[_Record]:
        self.counts.clear()
        for store, name in self.files:
            path = store.locate(name)
            self.counts[path] = number = 0
            for block, _ in read_blocks(store, name):  # not memory-mapped, because the whole file would count as memory
                for payload in block.views():
                    self.counts[path] += 1
                    yield _Record(payload, path, number)
                    number += 1

    def _patches(self, first: _Record, others: Iterator[_Record]) -> Iterator[PatchValues]:
        for index, record in enumerate(chain([first], others)):
            place = PatchOrigin(index, record.file, record.number)
            features = read_at(place, decode_features, record.payload)
            yield PatchValues(
                place,
                {
                    name: read_at(place, from_flat, features[name], name)[1]
                    for name in names_of(features, self.bands, place)
                },
            )

    def _pixels(self, first: _Record, others: Iterator[_Record]) -> Iterator[PatchValues]:
        width, height = self.patch
        for index, record in enumerate(chain([first], others)):
            group = [record, *islice(others, width * height - 1)]
            place = PatchOrigin(index, record.file, record.number)
            if len(group) != width * height:
                raise ShardMismatchError(
                    f"{place}: expected {width * height} records for the pixels of a patch of {width} x {height}, "
                    f"found {len(group)}",
                    hint="Check that all files are complete and that the mixer belongs to this export.",
                    details={**place.details, "expected": width * height, "found": len(group)},
                )
            yield PatchValues(place, _gather(group, index, self.bands, self.patch))


def names_of(features: Mapping[str, Any], bands: Sequence[str] | None, place: PatchOrigin) -> Sequence[str]:
    """The names of the bands to read from a record: ``bands``, or all bands that it has."""
    if bands is None:
        return list(features)
    for name in bands:
        if name not in features:
            raise missing_band(name, features, place)
    return bands


def missing_band(name: str, known: Mapping[str, Any], place: PatchOrigin) -> ShardMismatchError:
    """The error for a patch that lacks a band that another patch has, or that was requested."""
    return ShardMismatchError(
        f"{place}: band {name!r} is missing; the patch has {listed(known)}",
        hint="Choose bands that every patch has: bands=[...]; --band NAME.",
        details={**place.details, "band": name, "known": sorted(known)},
    )


def other_bands(patch: PatchValues, expected: Sequence[str]) -> ShardMismatchError:
    """The error for a patch whose bands differ from those of the first patch."""
    for name in expected:
        if name not in patch.bands:
            return missing_band(name, patch.bands, patch.place)
    more = sorted(set(patch.bands) - set(expected))
    return ShardMismatchError(
        f"{patch.place}: unexpected band {more[0]!r}; the first patch has {listed(expected)}",
        hint="Choose bands that every patch has: bands=[...]; --band NAME.",
        details={**patch.place.details, "band": more[0], "known": sorted(expected)},
    )


def listed(names: Iterable[str]) -> str:
    """Names for a message, sorted, at most ten."""
    return listed_texts(list(map(repr, sorted(names))), 10) or "none"


def read_at(place: PatchOrigin, read: Callable[..., Any], *arguments: Any) -> Any:
    """Call ``read`` on a record; prefix its errors with the place of the record."""
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
        place = PatchOrigin(index, record.file, record.number)
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
    result = {}
    for name, column in columns.items():
        is_series = column[0].ndim == 1
        stacked = np.stack(column)
        result[name] = stacked.T.reshape(-1, height, width) if is_series else stacked.reshape(height, width)
    return result


def _series(values: Any, name: str) -> npt.NDArray[Any]:
    """The value of a scalar band, without a dimension, or the steps of a series, with one dimension."""
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


Layout: TypeAlias = Literal["HW", "CHW", "HWC"]


@dataclass(frozen=True, kw_only=True)
class ArrayPatches:
    """The patches in an iterable of arrays, or of mappings of bands to arrays.

    Attributes:
        items: the arrays or mappings; an iterator is consumed.
        bands: the bands to use from mappings, or the names of the bands of arrays, by default ``b1``, ``b2``, ...
        depths: array bands of mappings, whose patches are (depth, H, W).
        layout: the axes of one patch; None means HW for arrays of two dimensions and CHW for others.
        channels: names of the bands of arrays with the same number of bands, if ``bands`` is None.
    """

    items: Iterable[Any]
    bands: Sequence[str] | None = None
    depths: Mapping[str, int] = field(default_factory=dict)
    layout: Layout | None = None
    channels: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.layout is not None and self.layout not in LAYOUTS:
            raise UsageError(
                f"invalid layout {self.layout!r:.60}: expected one of {', '.join(map(repr, LAYOUTS))}",
                hint="Give the layout of one patch; an array with one more axis is a batch.",
                details={"option": "layout"},
            )

    def __iter__(self) -> Iterator[PatchValues]:
        index = 0
        items = [self.items] if isinstance(self.items, Mapping) else self.items  # a mapping is one batch
        for item in items:
            place = PatchOrigin(index)
            item = _values_of(item, place)  # noqa: PLW2901 - only its values are used from here on
            batch = self._split_mapping(item, place) if isinstance(item, Mapping) else self._split_array(item, place)
            size = {len(values) for values in batch.values()}
            if len(size) != 1:
                raise FeatureError(
                    f"{place}: the bands have batches of different sizes: "
                    + ", ".join(f"{name!r} {len(values)}" for name, values in batch.items()),
                    hint="Give each band the same number of patches.",
                    details=place.details,
                )
            for offset in range(size.pop()):
                yield PatchValues(PatchOrigin(index), {name: values[offset] for name, values in batch.items()})
                index += 1

    def _split_mapping(self, item: Mapping[str, Any], place: PatchOrigin) -> dict[str, npt.NDArray[Any]]:
        """The bands of a mapping, each (N, H, W), or (N, depth, H, W) of an array band."""
        if not item:
            raise FeatureError(f"{place}: the patch has no bands", details=place.details)
        result = {}
        for name in names_of(item, self.bands, place):
            values = as_array(item[name], f"{place}, band {name!r}")
            num_axes = 3 if name in self.depths or self.layout in ("CHW", "HWC") else 2
            batch = _batch_of(values, num_axes, f"{place}, band {name!r}")
            result[name] = np.moveaxis(batch, -1, 1) if self.layout == "HWC" else batch
        return result

    def _split_array(self, item: Any, place: PatchOrigin) -> dict[str, npt.NDArray[Any]]:
        """The bands of an array, each (N, H, W)."""
        values = as_array(item, str(place))
        layout = self.layout or ("HW" if values.ndim == 2 else "CHW")
        batch = _batch_of(values, len(layout), str(place))
        if layout == "HW":
            batch = batch[:, None]
        elif layout == "HWC":
            batch = np.moveaxis(batch, -1, 1)
        names = [self.bands] if isinstance(self.bands, str) else self.bands
        if names is None:
            own = [f"b{number}" for number in range(1, batch.shape[1] + 1)]
            names = self.channels if len(self.channels) == len(own) else own
        if len(names) != batch.shape[1]:
            raise FeatureError(
                f"{place}: expected {len(names)} bands as named, found {batch.shape[1]}",
                hint="Name each band: bands=['class', 'probability']. If bands come last, layout='HWC'; if this is a "
                "batch of patches of one band, layout='HW'.",
                details={**place.details, "expected": len(names), "found": batch.shape[1]},
            )
        return {name: batch[:, channel] for channel, name in enumerate(names)}


def check_iterable(predictions: Any) -> Iterable[Any]:
    """Return ``predictions`` if it is iterable. Raises UsageError otherwise."""
    items: Iterable[Any] = predictions
    try:
        iter(items)
    except TypeError as error:
        raise UsageError(
            f"expected a folder or files of TFRecords, or an iterable of arrays, found {predictions!r:.60}",
            hint="For example: assemble('predictions/', mixer='PREFIX-mixer.json').",
            details={"option": "predictions"},
        ) from error
    return items


def as_array(value: Any, subject: str) -> npt.NDArray[Any]:
    """Anything array-like as numpy, of numbers: tensors of other frameworks by their ``__array__``.

    Raises:
        FeatureError: it is not an array, or one of text or objects.
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # torch raises each of them
        raise FeatureError(
            f"{subject}: cannot convert it to an array: {error}",
            hint="Pass numpy arrays; for a torch tensor: tensor.detach().cpu().numpy().",
        ) from error
    if array.dtype.kind not in "buif":
        raise FeatureError(
            f"{subject}: expected an array of numbers, found {array.dtype}",
            hint="Give arrays of integers or floats, patch by patch or in batches.",
        )
    return array


def _values_of(item: Any, place: PatchOrigin) -> Any:
    """The values of a ``Patch`` or ``PatchBatch``, which must be next in order; other items unchanged."""
    if not hasattr(item, "values") or not (
        hasattr(item, "indexes") or (hasattr(item, "index") and hasattr(item, "row"))
    ):
        return item
    indexes = np.atleast_1d(item.indexes if hasattr(item, "indexes") else item.index)
    expected = np.arange(place.patch, place.patch + indexes.size)
    if not np.array_equal(indexes, expected):
        wrong = int(np.flatnonzero(indexes != expected)[0])
        raise UsageError(
            f"expected patch {expected[wrong]} of the export, found patch {indexes[wrong]}",
            hint="Read all patches of one split, in the export's order: without shuffling or slices.",
            details={"patch": int(expected[wrong]), "found": int(indexes[wrong])},
        )
    return item.values


def _batch_of(values: npt.NDArray[Any], num_axes: int, subject: str) -> npt.NDArray[Any]:
    """``values`` with an axis for the batch before the ``num_axes`` of a patch."""
    if values.ndim == num_axes:
        return values[None]
    if values.ndim == num_axes + 1:
        return values
    raise FeatureError(
        f"{subject}: expected {num_axes} axes for a patch or {num_axes + 1} for a batch, found shape {values.shape}",
        hint="Give the layout: layout='HW', 'CHW' or 'HWC'. In mappings, name array bands in tensor_depths.",
    )
