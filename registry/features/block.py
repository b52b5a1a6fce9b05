"""What do many records hold? A block of records decoded at once: columns of all of them, or their examples.

    data, offsets, lengths -> ExampleBlock -> columns(): for each leaf one array; examples(): what decode_example gives

Column ``i`` equals the leaf of example ``i``, whatever way a record took.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, RegistryError
from registry.features.codec import Codec, ColumnReader, fill_tree
from registry.features.feature import TEXT


class ExampleBlock:
    """The decoded examples of a block of records, made by ``FeaturesDict.decode_block``.

    ``len`` is the number of sound examples: all, or those before the first record that could not be decoded. Why that
    one could not be is ``fault``, which ``columns`` and ``examples`` raise; ``sound`` is the block without it.
    """

    __slots__ = ("_columns", "_num_examples", "_tree", "fault")

    def __init__(
        self,
        tree: Mapping[str, Any],
        columns: list[npt.NDArray[Any]],
        num_examples: int,
        fault: RegistryError | None = None,
    ) -> None:
        self._tree = tree
        self._columns = columns
        self._num_examples = num_examples
        self.fault = fault

    def __len__(self) -> int:
        return self._num_examples

    @property
    def sound(self) -> ExampleBlock:
        """The examples before the first bad record, without the fault."""
        return ExampleBlock(self._tree, self._columns, self._num_examples)

    def columns(self) -> dict[str, Any]:
        r"""For each feature an array of its values in all examples, nested as an example is.

        The first dimension counts examples, and ``column[i]`` equals the value in example ``i``:

        - an array (n, \*shape) of the feature's dtype, where the value has the same shape in every example;
        - an object array (n,) of ``bytes`` for text, (n, \*shape) for arrays of text;
        - an object array (n,) of arrays where their shapes differ, of ``Ragged`` for a Sequence of Sequences.

        Raises:
            CorruptExampleError: a record could not be decoded; ``details["record"]`` is its place in the block.
        """
        if self.fault is not None:
            raise self.fault
        return fill_tree(self._tree, self._columns)

    def examples(self) -> Iterator[dict[str, Any]]:
        """The examples, equal to what ``decode_example`` gives for each record.

        Raises:
            CorruptExampleError: a record could not be decoded, after all examples before it.
        """
        lists = [list(column) for column in self._columns]
        for place in range(self._num_examples):
            yield fill_tree(self._tree, [column[place] for column in lists])
        if self.fault is not None:
            raise self.fault


def decode_block(
    codec: Codec,
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    *,
    copy: bool = True,  # noqa: ARG001 - everything is copied so far
) -> ExampleBlock:
    """The examples in the records ``data[offset : offset + length]``; see ``FeaturesDict.decode_block``."""
    rows: list[list[Any]] = []
    fault = None
    for place, (offset, length) in enumerate(zip(offsets.tolist(), lengths.tolist(), strict=True)):
        try:
            rows.append(codec.decode_values(data[offset : offset + length].tobytes()))
        except RegistryError as error:
            fault = _at_record(error, place)
            break
    columns = [stack_rows([row[at] for row in rows], reader) for at, reader in enumerate(codec.columns)]
    return ExampleBlock(codec.tree, columns, len(rows), fault)


def stack_rows(values: list[Any], reader: ColumnReader) -> npt.NDArray[Any]:
    """The column of one leaf's ``values``, as ``ExampleBlock.columns`` describes it."""
    first = values[0] if values else _empty_row(reader)
    if isinstance(first, np.generic):
        return np.array(values, first.dtype)
    if isinstance(first, np.ndarray):
        if not values:
            return np.empty((0, *first.shape), first.dtype)
        if all(value.shape == first.shape and value.dtype == first.dtype for value in values):
            return np.stack(values)
    column = np.empty(len(values), TEXT)
    column[:] = values
    return column


def _empty_row(reader: ColumnReader) -> Any:
    """What stands for the value of a leaf where there is none: of its dtype, and of its shape as far as it is known."""
    if len(reader.lengths) > 1:
        return None
    shape = tuple(size or 0 for size in (*reader.lengths, *reader.leaf.shape))
    if reader.leaf.dtype == TEXT:
        return np.empty(shape, TEXT) if shape else b""
    return np.zeros(shape, reader.leaf.dtype)[()]


def _at_record(error: RegistryError, place: int) -> RegistryError:
    """``error``, which names the record's place in the block where the record is at fault."""
    if not isinstance(error, CorruptExampleError):
        return error
    fault = CorruptExampleError(error.message, hint=error.hint, details={**error.details, "record": place})
    fault.__cause__ = error
    return fault
