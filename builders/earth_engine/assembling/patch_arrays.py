"""What are the patches in arrays that a model gives? Patch by patch or in batches, of numpy or what turns into it.

    (H, W)         one patch of one band                       layout "HW", and of a mapping's values
    (C, H, W)      one patch of C bands                        layout "CHW"
    (H, W, C)      the same, bands last                        layout "HWC"
    one axis more  a batch of them, first axis                 (N, H, W), (N, C, H, W), (N, H, W, C)

An item may be a mapping of bands to arrays of the shapes above, or what ``Patches`` gives: then its order is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.assembling.patch_records import PatchValues, Place, names_of
from registry.errors import FeatureError, UsageError

Layout: TypeAlias = Literal["HW", "CHW", "HWC"]

LAYOUTS: Final = ("HW", "CHW", "HWC")


@dataclass(frozen=True, kw_only=True)
class ArrayPatches:
    """The patches in an iterable of arrays, or of mappings of bands to arrays.

    Attributes:
        items: what is iterated; where it is an iterator, it is used up.
        bands: bands that are taken of a mapping; names for the bands of arrays, ``b1``, ``b2``, ... by default.
        depths: bands of a mapping that are array bands: their patches are (depth, H, W).
        layout: how the axes of one patch lie; None takes arrays of two dimensions as HW, others as CHW.
        channels: names for the bands of arrays of so many, where ``bands`` is None.
    """

    items: Iterable[Any]
    bands: Sequence[str] | None = None
    depths: Mapping[str, int] = field(default_factory=dict)
    layout: Layout | None = None
    channels: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.layout is not None and self.layout not in LAYOUTS:
            raise UsageError(
                f"layout cannot be {self.layout!r:.60}: it is one of {', '.join(map(repr, LAYOUTS))}",
                hint="It is the layout of one patch; an array with one axis more is a batch.",
                details={"option": "layout"},
            )

    def __iter__(self) -> Iterator[PatchValues]:
        index = 0
        items = [self.items] if isinstance(self.items, Mapping) else self.items  # a mapping is one batch
        for item in items:
            place = Place(index)
            item = _values_of(item, place)  # noqa: PLW2901 - from here on it is no more than its values
            batch = self._split_mapping(item, place) if isinstance(item, Mapping) else self._split_array(item, place)
            size = {len(values) for values in batch.values()}
            if len(size) != 1:
                raise FeatureError(
                    f"{place}: its bands are of batches of different sizes: "
                    + ", ".join(f"{name!r} {len(values)}" for name, values in batch.items()),
                    hint="Give each band the same number of patches.",
                    details=place.details,
                )
            for offset in range(size.pop()):
                yield PatchValues(Place(index), {name: values[offset] for name, values in batch.items()})
                index += 1

    def _split_mapping(self, item: Mapping[str, Any], place: Place) -> dict[str, npt.NDArray[Any]]:
        """The bands of a mapping, each (N, H, W), or (N, depth, H, W) of an array band."""
        if not item:
            raise FeatureError(f"{place}: it has no bands", details=place.details)
        found = {}
        for name in names_of(item, self.bands, place):
            values = as_array(item[name], f"{place}, band {name!r}")
            num_axes = 3 if name in self.depths or self.layout in ("CHW", "HWC") else 2
            batch = _batch_of(values, num_axes, f"{place}, band {name!r}")
            found[name] = np.moveaxis(batch, -1, 1) if self.layout == "HWC" else batch
        return found

    def _split_array(self, item: Any, place: Place) -> dict[str, npt.NDArray[Any]]:
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
                f"{place}: it has {batch.shape[1]} bands, and {len(names)} are named",
                hint="Name each band: bands=['class', 'probability']. If bands come last, layout='HWC'; if this is a "
                "batch of patches of one band, layout='HW'.",
                details={**place.details, "expected": len(names), "found": batch.shape[1]},
            )
        return {name: batch[:, channel] for channel, name in enumerate(names)}


def check_iterable(predictions: Any) -> Iterable[Any]:
    """What is iterated for patches. Raises UsageError where it cannot be."""
    items: Iterable[Any] = predictions
    try:
        iter(items)
    except TypeError as error:
        raise UsageError(
            f"{predictions!r:.60} holds no patches",
            hint="Give a folder or files of TFRecords, or an iterable of arrays.",
            details={"option": "predictions"},
        ) from error
    return items


def as_array(value: Any, what: str) -> npt.NDArray[Any]:
    """Anything array-like as numpy, of numbers: tensors of other frameworks by their ``__array__``.

    Raises:
        FeatureError: it is none, or one of text or objects.
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # torch raises each of them
        raise FeatureError(
            f"{what}: it cannot be turned into an array: {error}",
            hint="Give numpy arrays; of a torch tensor: tensor.detach().cpu().numpy().",
        ) from error
    if array.dtype.kind not in "buif":
        raise FeatureError(
            f"{what}: it is {array.dtype}, and no array of numbers",
            hint="Give arrays of integers or floats, patch by patch or in batches.",
        )
    return array


def _values_of(item: Any, place: Place) -> Any:
    """The values of a ``Patch`` or a ``PatchBatch``, which have to be the next ones; anything else as it is."""
    if not hasattr(item, "values") or not (
        hasattr(item, "indexes") or (hasattr(item, "index") and hasattr(item, "row"))
    ):
        return item
    indexes = np.atleast_1d(item.indexes if hasattr(item, "indexes") else item.index)
    expected = np.arange(place.patch, place.patch + indexes.size)
    if not np.array_equal(indexes, expected):
        wrong = int(np.flatnonzero(indexes != expected)[0])
        raise UsageError(
            f"patch {expected[wrong]}: what comes here is patch {indexes[wrong]} of the export",
            hint="Read all patches of one split, in the export's order: without shuffling or slices.",
            details={"patch": int(expected[wrong]), "found": int(indexes[wrong])},
        )
    return item.values


def _batch_of(values: npt.NDArray[Any], num_axes: int, what: str) -> npt.NDArray[Any]:
    """``values`` with an axis for the batch before the ``num_axes`` of a patch."""
    if values.ndim == num_axes:
        return values[None]
    if values.ndim == num_axes + 1:
        return values
    raise FeatureError(
        f"{what}: its shape is {values.shape}; a patch has {num_axes} axes, a batch {num_axes + 1}",
        hint="Say how the axes lie: layout='HW', 'CHW' or 'HWC'. In mappings, name array bands in tensor_depths.",
    )
