"""How is text stored? As UTF-8, and read back as the bytes that are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from registry.features.casts import to_bytes
from registry.features.feature import TEXT, FlatValue, Shape
from registry.features.tensor import Tensor


@dataclass(frozen=True, kw_only=True, repr=False)
class Text(Tensor):
    r"""A text. Takes ``str``, or ``bytes`` as they are; decodes to ``bytes``, UTF-8 where it was written as ``str``.

    Decoding gives bytes as TFDS's NumPy path does: records hold bytes, nothing promises that they are UTF-8, and who
    reads them often wants them as they are. Write ``example["text"].decode()`` for a ``str``.

    >>> Text().flatten("grün", "colour")
    ([b'gr\xc3\xbcn'],)
    """

    shape: Shape = field(default=(), init=False)
    dtype: Any = field(default=TEXT, init=False)
    encoding: str = field(default="none", init=False)
    minimum: int | None = field(default=None, init=False)
    maximum: int | None = field(default=None, init=False)
    optional: bool = field(default=False, init=False)
    missing: Any = field(default=None, init=False)

    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """One entry: the text's bytes."""
        return ([to_bytes(value, path)],)

    def flatten_many(self, values: Sequence[Any] | npt.NDArray[Any], path: str) -> tuple[FlatValue, ...]:
        """One entry for each text."""
        return ([to_bytes(value, path) for value in (values.tolist() if isinstance(values, np.ndarray) else values)],)
