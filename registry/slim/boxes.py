"""Item handlers that stack the sides of boxes and the coordinates of keypoints, for an image or for each frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, UsageError, WrongTypeError
from registry.slim.feature_specs import SparseTensorValue
from registry.slim.item_handlers import ItemHandler
from registry.slim.parsing import Column, DenseColumn, RaggedColumn


class BoundingBox(ItemHandler):
    """The boxes of an image as an array (boxes, 4) of the features' dtype, with columns in the order of the keys.

    Values are not normalised, and a minimum is not compared with its maximum.

    Args:
        keys: the keys of four features; ymin, xmin, ymax, xmax by default.
        prefix: prepended to each key, e.g. ``image/object/bbox/``.

    >>> sides = {"ymin": np.array([0.0]), "xmin": np.array([0.1]), "ymax": np.array([0.5]), "xmax": np.array([1.0])}
    >>> BoundingBox().tensors_to_item(sides)
    array([[0. , 0.1, 0.5, 1. ]])

    Raises:
        UsageError: the number of keys is not 4.
    """

    def __init__(self, keys: Sequence[str] | None = None, prefix: str | None = "") -> None:
        super().__init__(_full_keys("BoundingBox", keys, ("ymin", "xmin", "ymax", "xmax"), prefix))

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """The array (boxes, 4).

        Raises:
            CorruptExampleError: the sides differ in their number of values.
            WrongTypeError: the sides differ in dtype.
        """
        found = [keys_to_tensors[key] for key in self.keys]
        sides = [np.asarray(side.values if isinstance(side, SparseTensorValue) else side) for side in found]
        _check_dtypes([side.dtype for side in sides], self.keys)
        if len({side.shape for side in sides}) > 1:
            sizes = ", ".join(f"{key} {side.size}" for key, side in zip(self.keys, sides, strict=True))
            raise CorruptExampleError(
                f"expected the same number of values for each side of the boxes, found {sizes}",
                hint="The program that wrote this record lost some of them. Leave it out, or write it again.",
                details={"features": self.keys},
            )
        return np.ascontiguousarray(np.stack(sides).T)

    def columns_to_items(self, keys_to_columns: Mapping[str, Column]) -> npt.NDArray[Any] | Sequence[Any] | None:
        """One array if all images have the same number of boxes, otherwise a list of arrays."""
        columns = [keys_to_columns[key] for key in self.keys]
        values: list[npt.NDArray[Any]] = []
        counts: list[npt.NDArray[np.int64]] = []
        for column in columns:
            if isinstance(column, DenseColumn) and column.values.ndim == 2:
                values.append(column.values.reshape(-1))
                counts.append(np.full(len(column.values), column.values.shape[1]))
            elif isinstance(column, RaggedColumn):
                values.append(column.values)
                counts.append(column.counts)
            else:
                return None
        if any(not np.array_equal(counts[0], other) for other in counts) or len({some.dtype for some in values}) > 1:
            return None  # tensors_to_item then reports the error for the record
        boxes = np.stack(values, 1)
        if bool((counts[0] == counts[0][0]).all()):
            return boxes.reshape(counts[0].size, int(counts[0][0]), len(columns))
        return [boxes[start:stop] for start, stop in pairwise([0, *counts[0].cumsum().tolist()])]


class _PointSequence(ItemHandler):
    """Coordinates of objects in each frame, one feature list each: (frames, most objects in a frame, coordinates)."""

    default_keys: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        keys: Sequence[str] | None = None,
        prefix: str | None = None,
        return_dense: bool = True,
        default_value: Any = -1.0,
    ) -> None:
        super().__init__(_full_keys(type(self).__name__, keys, self.default_keys, prefix))
        self._return_dense = return_dense
        self._default_value = default_value

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """An array, or a ``SparseTensorValue`` with three dimensions.

        Raises:
            CorruptExampleError: the lists differ in the number of frames, or of objects in the fullest frame.
            WrongTypeError: a list is not a VarLenFeature, dtypes differ, or ``default_value`` has another type.
        """
        sides = [_steps_of(keys_to_tensors[key], key) for key in self.keys]
        _check_dtypes([side.values.dtype for side in sides], self.keys)
        shapes = [side.dense_shape.tolist() for side in sides]
        if any(shape != shapes[0] for shape in shapes):
            raise CorruptExampleError(
                f"the lists {', '.join(self.keys)} differ in frames, or in the fullest frame: {shapes}",
                hint="The program that wrote this record lost some of them. Leave it out, or write it again.",
                details={"features": self.keys},
            )
        indices = [np.insert(side.indices, 2, place, axis=1) for place, side in enumerate(sides)]
        places = np.concatenate(indices)
        order = np.lexsort((places[:, 2], places[:, 1], places[:, 0]))
        values = np.concatenate([side.values for side in sides])
        item = SparseTensorValue(places[order], values[order], np.array([*shapes[0], len(sides)]))
        return item.to_dense(self._default_value) if self._return_dense else item


class BoundingBoxSequence(_PointSequence):
    """The boxes in each frame of a SequenceExample: float32 (frames, most boxes in a frame, 4).

    Args:
        keys: the keys of four VarLenFeatures of the sequence; ymin, xmin, ymax, xmax by default.
        prefix: prepended to each key; None prepends nothing.
        return_dense: return an array; False returns a ``SparseTensorValue`` of the same shape.
        default_value: the value that pads frames with fewer boxes.

    Raises:
        UsageError: the number of keys is not 4.
    """

    default_keys = ("ymin", "xmin", "ymax", "xmax")


class KeypointsSequence(_PointSequence):
    """The keypoints in each frame of a SequenceExample: float32 (frames, most keypoints in a frame, 2).

    Args:
        keys: the keys of two VarLenFeatures of the sequence; y and x by default.
        prefix: prepended to each key; None prepends nothing.
        return_dense: return an array; False returns a ``SparseTensorValue`` of the same shape.
        default_value: the value that pads frames with fewer keypoints.

    Raises:
        UsageError: the number of keys is not 2.
    """

    default_keys = ("y", "x")


class NumBoxesSequence(ItemHandler):
    """The number of boxes in each frame of a SequenceExample: int64 (frames,), counted in the first key.

    Args:
        keys: the key of a VarLenFeature of the sequence with one value for each box, or a list of keys.
        check_consistency: check that all keys have the same numbers of values.

    Raises:
        UsageError: there are no keys.
    """

    def __init__(self, keys: str | Sequence[str] | None = None, check_consistency: bool = True) -> None:
        if not keys:
            raise UsageError(
                "NumBoxesSequence requires at least one key",
                hint="Pass the feature list in which to count boxes, e.g. NumBoxesSequence('bbox/ymin').",
            )
        super().__init__(keys)
        self._check_consistency = check_consistency

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        """The counts, int64 (frames,).

        Raises:
            CorruptExampleError: the lists differ in their counts.
            WrongTypeError: a list is not a VarLenFeature.
        """
        counts = _count_boxes(keys_to_tensors[self.keys[0]], self.keys[0])
        for key in self.keys[1:] if self._check_consistency else ():
            others = _count_boxes(keys_to_tensors[key], key)
            # As in TF-Slim, a list with a single frame is compared with every frame.
            if len({counts.size, others.size} - {1}) > 1 or not (counts == others).all():
                raise CorruptExampleError(
                    f"the frames have {counts.tolist()[:20]} values in {self.keys[0]!r}, "
                    f"and {others.tolist()[:20]} in {key!r}",
                    hint="The program that wrote this record lost some of them. "
                    "To count only the first list, pass check_consistency=False.",
                    details={"features": self.keys},
                )
        return counts


def _count_boxes(value: Any, key: str) -> npt.NDArray[np.int64]:
    steps = _steps_of(value, key)
    return np.bincount(steps.indices[:, 0], minlength=int(steps.dense_shape[0])).astype(np.int64)


def _steps_of(value: Any, key: str) -> SparseTensorValue:
    if not isinstance(value, SparseTensorValue) or value.dense_shape.size != 2:
        raise WrongTypeError(
            f"feature {key!r} is not a list of frames with any number of values in each",
            hint=f"Declare it in keys_to_sequence_features: {{{key!r}: VarLenFeature('float32')}}.",
            details={"feature": key},
        )
    return value


def _check_dtypes(dtypes: list[np.dtype[Any]], keys: Sequence[str]) -> None:
    if len(set(dtypes)) > 1:
        found = ", ".join(f"{key} {dtype}" for key, dtype in zip(keys, dtypes, strict=True))
        raise WrongTypeError(
            f"expected coordinates of one dtype, found {found}",
            hint="Declare all of them with the same dtype.",
            details={"features": list(keys)},
        )


def _full_keys(handler: str, keys: Sequence[str] | None, default: tuple[str, ...], prefix: str | None) -> list[str]:
    keys = default if keys is None else keys
    if len(keys) != len(default) or isinstance(keys, str):
        raise UsageError(
            f"{handler} expects {len(default)} keys but got {1 if isinstance(keys, str) else len(keys)}",
            hint=f"Pass a feature for each of {', '.join(default)}, in this order.",
        )
    return [(prefix or "") + key for key in keys]
