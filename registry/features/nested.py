"""Decoded values that are not arrays: ``Ragged`` for nested sequences, and ``NestedExamples`` for a Dataset.

NumPy has no array whose rows differ in length. ``Ragged`` has the form in which TFDS stores them: one array of all
values and the length of each row, like the ``flat_values`` and ``nested_row_lengths`` of TensorFlow's RaggedTensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from registry.features.feature import corrupt_fault
from registry.lazy import np, npt


class Ragged(Sequence[Any]):
    """A sequence of sequences of any depth, as flat values and row lengths. Read-only.

    Attributes:
        flat_values: all values, one after the other, along the first dimension.
        row_lengths: the number of entries of each row, one int64 array for each level below the first. The length of
            the first array is the number of rows of the outermost level.

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
            raise ValueError("a Ragged requires row lengths for at least one level")
        lengths = tuple(np.asarray(level, np.int64) for level in row_lengths)
        ends = [level.cumsum() for level in lengths]
        for depth, (level, end) in enumerate(zip(lengths, ends, strict=True)):
            size = len(lengths[depth + 1]) if depth + 1 < len(lengths) else len(flat_values)
            # A sum that overflows int64 becomes negative first, so the minimum of the sums detects it.
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
        """The row at ``index``: an array, or a Ragged if there are more levels."""
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

    __hash__ = None  # type: ignore[assignment]  # unhashable, like the arrays that it holds

    def __repr__(self) -> str:
        text = self.to_list() if self.flat_values.size <= 20 else f"{self.flat_values.size} values"
        return f"Ragged({text}, dtype={self.dtype})"


@dataclass(frozen=True, slots=True)
class NestedNode:
    """A ``Dataset`` in the tree of an example: the ``tree`` of its examples, or the index of its only leaf."""

    tree: Any
    path: str


class NestedExamples(Sequence[Any]):
    """The decoded examples of a ``Dataset`` feature: a read-only sequence that supports indexing and slicing.

    >>> examples = NestedExamples({"id": [7, 8], "name": [b"a", b"b"]}, {"id": 0, "name": 1}, "steps")
    >>> len(examples), examples[1], [example["id"] for example in examples]
    (2, {'id': 8, 'name': b'b'}, [7, 8])
    >>> examples.columns()
    {'id': [7, 8], 'name': [b'a', b'b']}

    Raises:
        CorruptExampleError: on any use, if the record holds more values of one feature than of another.
    """

    __slots__ = ("_columns", "_path", "_tree")

    def __init__(self, columns: Any, tree: Any, path: str) -> None:
        self._columns = columns
        self._tree = tree
        self._path = path

    def columns(self) -> Any:
        """All values of each feature, as a ``Sequence`` of a dict decodes; one array if the feature is not a dict."""
        return self._columns

    def __len__(self) -> int:
        lengths = set(_lengths(self._columns))
        if len(lengths) > 1:
            raise corrupt_fault(self._path, f"its features differ in length: {sorted(lengths)}")
        return next(iter(lengths))

    def __getitem__(self, index: Any) -> Any:
        """The example at ``index``; a list of examples for a slice."""
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        return _pick(self._tree, self._columns, range(len(self))[index])

    def __iter__(self) -> Iterator[Any]:
        return (_pick(self._tree, self._columns, place) for place in range(len(self)))

    def __repr__(self) -> str:
        names = ", ".join(self._columns) if isinstance(self._columns, Mapping) else ""
        return f"NestedExamples({len(self)} examples{f' of {names}' if names else ''})"


def plain_tree(tree: Any) -> Any:
    """``tree`` with each Dataset replaced by the dict of its columns, or by the index of its only column."""
    if isinstance(tree, NestedNode):
        return plain_tree(tree.tree)
    return tree if type(tree) is int else {name: plain_tree(inner) for name, inner in tree.items()}


def _lengths(columns: Any) -> Iterator[int]:
    if isinstance(columns, Mapping):
        for inner in columns.values():
            yield from _lengths(inner)
    else:
        yield len(columns)


def _pick(tree: Any, columns: Any, place: int) -> Any:
    if isinstance(tree, NestedNode):
        return NestedExamples(_pick(plain_tree(tree.tree), columns, place), tree.tree, tree.path)
    if isinstance(tree, Mapping):
        return {name: _pick(inner, columns[name], place) for name, inner in tree.items()}
    return columns[place]
