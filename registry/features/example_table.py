"""Holds many examples column by column: the form in which they are encoded, and sent to another process, fastest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class ExampleTable(Sequence[dict[str, Any]]):
    """A sequence of examples with the same names. ``Codec.encode_block`` reads its columns.

    >>> table = ExampleTable(2, {"id": [7, 8], "place": np.array([[0.5, 1.5], [2.5, 3.5]])})
    >>> len(table), table[1], len(table[:1])
    (2, {'id': 8, 'place': array([2.5, 3.5])}, 1)

    Attributes:
        num_examples: the number of examples.
        columns: the values of all examples, by name: a list, or an array whose first dimension counts examples.
    """

    num_examples: int
    columns: Mapping[str, list[Any] | npt.NDArray[Any]]

    def __len__(self) -> int:
        return self.num_examples

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> ExampleTable: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | ExampleTable:
        result = {name: column[index] for name, column in self.columns.items()}
        return ExampleTable(len(range(self.num_examples)[index]), result) if isinstance(index, slice) else result

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if not self.columns:  # examples of an empty schema
            yield from ({} for _ in range(self.num_examples))
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))


def stack_bytes(arrays: list[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """One writable array of the ``tobytes()`` of many arrays of equal dtype and shape, along a new first dimension."""
    return np.frombuffer(bytearray().join(arrays), dtype).reshape(len(arrays), *shape)
