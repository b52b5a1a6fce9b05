"""What does a dataset inside an example decode to? A sequence of examples, each made when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from registry.features.feature import corrupt_fault


@dataclass(frozen=True, slots=True)
class NestedNode:
    """A ``Dataset`` in the tree of an example: the ``tree`` of its examples, or the place of the only leaf it has."""

    tree: Any
    path: str


class NestedExamples(Sequence[Any]):
    """The examples of a ``Dataset`` feature: read-only, with a length, an index and slices. Made by decoding.

    >>> examples = NestedExamples({"id": [7, 8], "name": [b"a", b"b"]}, {"id": 0, "name": 1}, "steps")
    >>> len(examples), examples[1], [example["id"] for example in examples]
    (2, {'id': 8, 'name': b'b'}, [7, 8])
    >>> examples.columns()
    {'id': [7, 8], 'name': [b'a', b'b']}

    Raises:
        CorruptExampleError: on any use, where the record holds more values of one feature than of another.
    """

    __slots__ = ("_columns", "_path", "_tree")

    def __init__(self, columns: Any, tree: Any, path: str) -> None:
        self._columns = columns
        self._tree = tree
        self._path = path

    def columns(self) -> Any:
        """For each feature all its values, as a ``Sequence`` of the dict decodes; one array where it is no dict."""
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
    """``tree`` with a dict, or a place, for each Dataset in it: what the columns of an example are put into."""
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
