"""How is a bounding box stored? As four floats between 0 and 1, relative to the image's size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from registry.features.feature import FlatValue, Shape, feature_fault
from registry.features.tensor import Tensor


@dataclass(frozen=True, kw_only=True, repr=False)
class BBox(Tensor):
    """A box as ``(ymin, xmin, ymax, xmax)``, each in 0..1, the minimum not above the maximum (TFDS's REL_YXYX).

    Decodes to a float32 array of shape (4,).

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

    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """Four float32."""
        return self.flatten_many([value], path)

    def flatten_many(self, values: Sequence[Any] | npt.NDArray[Any], path: str) -> tuple[FlatValue, ...]:
        """Four float32 for each box."""
        flat = super().flatten_many(values, path)
        for box in np.asarray(flat[0]).reshape(-1, 4).tolist():
            shown = tuple(round(number, 6) for number in box)
            if not all(0 <= number <= 1 for number in box):
                raise feature_fault(path, f"the box {shown} leaves 0..1", "Divide by the image's height and width.")
            if box[0] > box[2] or box[1] > box[3]:
                raise feature_fault(
                    path, f"the box {shown} has a minimum above its maximum", "The order is ymin, xmin, ymax, xmax."
                )
        return flat
