"""What does a nested sequence decode to? One array of all values, and how many of them are in each row.

NumPy has no array whose rows differ in length. This is the form that TFDS stores, and the same as TensorFlow's
RaggedTensor made from ``flat_values`` and ``nested_row_lengths``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class Ragged(Sequence[Any]):
    """A sequence of sequences of any depth, as flat values and row lengths. Read-only.

    Attributes:
        flat_values: all values, one after the other, along the first dimension.
        row_lengths: one int64 array for each level below the first: how many entries each row has. The number of rows
            of the outermost level is the length of the first array.

    >>> ragged = Ragged(np.array([1, 2, 3]), (np.array([2, 0, 1]),))
    >>> len(ragged), ragged[2], ragged.to_list()
    (3, array([3]), [[1, 2], [], [3]])

    Raises:
        ValueError: the row lengths do not add up.
    """

    __slots__ = ("_ends", "flat_values", "row_lengths")

    flat_values: npt.NDArray[Any]
    row_lengths: tuple[npt.NDArray[np.int64], ...]

    def __init__(self, flat_values: npt.NDArray[Any], row_lengths: Sequence[npt.NDArray[np.int64]]) -> None:
        if not row_lengths:
            raise ValueError("a ragged value has row lengths for at least one level")
        lengths = tuple(np.asarray(level, np.int64) for level in row_lengths)
        ends = [level.cumsum() for level in lengths]
        for depth, (level, end) in enumerate(zip(lengths, ends, strict=True)):
            size = len(lengths[depth + 1]) if depth + 1 < len(lengths) else len(flat_values)
            # A sum that wraps around in int64 is negative at first.
            if (
                level.ndim != 1
                or (end[-1] if level.size else 0) != size
                or min(level.min(initial=0), end.min(initial=0))
            ):
                raise ValueError(f"row lengths of level {depth} do not add up to {size}")
        self.flat_values = flat_values
        self.row_lengths = lengths
        self._ends = ends[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values."""
        return self.flat_values.dtype

    def to_list(self) -> list[Any]:
        """Nested lists of Python values."""
        return [row.to_list() if isinstance(row, Ragged) else row.tolist() for row in self]

    def __len__(self) -> int:
        return len(self.row_lengths[0])

    def __getitem__(self, index: Any) -> Any:
        """The row at ``index``: an array, or a Ragged where there are further levels."""
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        start, stop = int(self._ends[place] - self.row_lengths[0][place]), int(self._ends[place])
        inner = self.row_lengths[1:]
        if not inner:
            return self.flat_values[start:stop]
        cut = []
        for level in inner:
            cut.append(level[start:stop])
            start, stop = int(level[:start].sum()), int(level[:stop].sum())
        return Ragged(self.flat_values[start:stop], cut)

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ragged):
            return NotImplemented
        return (
            self.dtype == other.dtype
            and len(self.row_lengths) == len(other.row_lengths)
            and all(map(np.array_equal, self.row_lengths, other.row_lengths))
            and np.array_equal(self.flat_values, other.flat_values)
        )

    __hash__ = None  # type: ignore[assignment]  # like the arrays that it holds

    def __repr__(self) -> str:
        shown = self.to_list() if self.flat_values.size <= 20 else f"{self.flat_values.size} values"
        return f"Ragged({shown}, dtype={self.dtype})"
