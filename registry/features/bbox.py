"""How is a bounding box stored? As four floats; its format says what they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.features.feature import FlatValue, Shape, feature_fault
from registry.features.tensor import Tensor

BBOX_FORMATS: Final = ("XYXY", "YXYX", "XYWH", "REL_XYXY", "REL_YXYX")
_RELATIVE: Final = ("REL_XYXY", "REL_YXYX")
_ORDERED: Final = ("YXYX", "REL_YXYX")


@dataclass(frozen=True, kw_only=True, repr=False)
class BBox(Tensor):
    """A box of four numbers, as ``bbox_format`` says; by default ``(ymin, xmin, ymax, xmax)``, each in 0..1.

    Decodes to a float32 array of shape (4,). The numbers are stored as they are given. As in TFDS, those of
    ``REL_YXYX`` and ``REL_XYXY`` have to be in 0..1, and in ``REL_YXYX`` and ``YXYX`` no minimum may be above its
    maximum.

    Attributes:
        bbox_format: ``XYXY``, ``YXYX``, ``XYWH``, ``REL_XYXY``, ``REL_YXYX``; None where it is not known.

    >>> BBox().flatten((0.5, 0.0, 0.25, 1.0), "box")
    Traceback (most recent call last):
    ...
    registry.errors.FeatureError: feature 'box': the box (0.5, 0.0, 0.25, 1.0) has a minimum above its maximum
    """

    shape: Shape = field(default=(4,), init=False)
    dtype: Any = field(default=np.float32, init=False)
    encoding: str = field(default="none", init=False)
    minimum: int | None = field(default=None, init=False)
    maximum: int | None = field(default=None, init=False)
    optional: bool = field(default=False, init=False)
    missing: Any = field(default=None, init=False)
    bbox_format: str | None = "REL_YXYX"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bbox_format is not None and self.bbox_format not in BBOX_FORMATS:
            raise feature_fault(
                "", f"unknown box format {self.bbox_format!r}", f"There are: {', '.join(BBOX_FORMATS)}."
            )

    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """Four float32."""
        return self.flatten_many([value], path)

    def flatten_many(self, values: Sequence[Any] | npt.NDArray[Any], path: str) -> tuple[FlatValue, ...]:
        """Four float32 for each box."""
        flat = super().flatten_many(values, path)
        if self.bbox_format not in (*_RELATIVE, *_ORDERED):
            return flat
        for box in np.asarray(flat[0]).reshape(-1, 4).tolist():
            shown = tuple(round(number, 6) for number in box)
            if self.bbox_format in _RELATIVE and not all(0 <= number <= 1 for number in box):
                raise feature_fault(path, f"the box {shown} leaves 0..1", "Divide by the image's height and width.")
            if self.bbox_format in _ORDERED and (box[0] > box[2] or box[1] > box[3]):
                raise feature_fault(
                    path, f"the box {shown} has a minimum above its maximum", "The order is ymin, xmin, ymax, xmax."
                )
        return flat
