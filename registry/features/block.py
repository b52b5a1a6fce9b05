"""What do many records hold? A block of records decoded at once: columns of all of them, or their examples.

    data, offsets, lengths -> ExampleBlock -> columns(): for each leaf one array; examples(): what decode_example gives

Column ``i`` equals the leaf of example ``i``, whatever way a record took.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat
from operator import setitem
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, RegistryError
from registry.features.block_columns import ArrayColumn, BlockColumn, BlockParts, MaskedColumn, take_texts
from registry.features.codec import Codec, ColumnReader, RawReader, fill_tree
from registry.features.containers import FeaturesDict
from registry.features.feature import TEXT
from registry.features.nested import NestedExamples, NestedNode, plain_tree
from registry.wire import BlockDecoder, BytesColumn, FlatBlock, FlatColumn, FlatValue, NumberColumn
from registry.wire.entries import WireKind
from registry.wire.gather import check_pieces, constant

_MIN_VECTORIZED: Final = 13
_MIN_VECTORIZED_UNLIKE: Final = 65
"""Fewer records, or fewer of different lengths, are decoded one by one, which then costs less, as measured."""

_CHUNK_EXAMPLES: Final = 512
_CHUNK_BYTES: Final = 2**20
"""Examples are made so many at a time: what fits the processor's cache, and is all that whoever keeps one keeps."""


class ExampleBlock:
    """The decoded examples of a block of records, made by ``FeaturesDict.decode_block``.

    ``len`` is the number of sound examples: all, or those before the first record that could not be decoded. Why that
    one could not be is ``fault``, which ``columns`` and ``examples`` raise; ``sound`` is the block without it.
    ``leaves`` are the values of each leaf, not yet put together.
    """

    __slots__ = ("_num_examples", "_tree", "fault", "leaves")

    def __init__(
        self,
        tree: Mapping[str, Any],
        columns: Sequence[BlockColumn],
        num_examples: int,
        fault: RegistryError | None = None,
    ) -> None:
        self._tree = tree
        self.leaves = columns
        self._num_examples = num_examples
        self.fault = fault

    def __len__(self) -> int:
        return self._num_examples

    @property
    def sound(self) -> ExampleBlock:
        """The examples before the first bad record, without the fault."""
        return ExampleBlock(self._tree, self.leaves, self._num_examples)

    def columns(self) -> dict[str, Any]:
        r"""For each feature an array of its values in all examples, nested as an example is.

        The first dimension counts examples, and ``column[i]`` equals the value in example ``i``:

        - an array (n, \*shape) of the feature's dtype, where the value has the same shape in every example;
        - an object array (n,) of ``bytes`` for text, (n, \*shape) for arrays of text;
        - an object array (n,) of arrays where their shapes differ, of ``Ragged`` for a Sequence of Sequences;
        - of a Dataset what a Sequence gives; an object array (n,) of raw values for a feature that is not known;
        - for an optional feature whose missing values read as None, always a masked array (``numpy.ma``) of these
          shapes and dtypes, masked where an example has None, with a mask for every entry.

        Raises:
            CorruptExampleError: a record could not be decoded; ``details["record"]`` is its place in the block.
        """
        if self.fault is not None:
            raise self.fault
        return fill_tree(plain_tree(self._tree), [column.array(self._num_examples) for column in self.leaves])

    def examples(self) -> Iterator[dict[str, Any]]:
        """The examples, equal to what ``decode_example`` gives for each record. Errors as ``example_lists``."""
        return chain.from_iterable(self.example_lists())

    def example_lists(self) -> Iterator[list[dict[str, Any]]]:
        """The examples, some hundreds at a time: so few that they are in the processor's cache when they are used.

        Raises:
            CorruptExampleError: a record could not be decoded, after all examples before it.
        """
        row_bytes = sum(column.row_bytes for column in self.leaves)
        size = max(1, min(_CHUNK_EXAMPLES, _CHUNK_BYTES // max(1, row_bytes)))
        for start in range(0, self._num_examples, size):
            stop = min(start + size, self._num_examples)
            yield make_dicts(self._tree, [column.rows(start, stop) for column in self.leaves], stop - start)
        if self.fault is not None:
            raise self.fault


class BlockCodec:
    """Decodes blocks of records of one schema; what it learns of their form helps with the next."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        # What a feature that is not known stores is found only by looking through all keys of a record.
        self._is_flat = not any(isinstance(reader, RawReader) for reader in codec.columns)
        keys = [key for reader in codec.columns for _, part_keys in reader.parts for key in part_keys]
        self._decoder = BlockDecoder(keys)

    def decode(
        self,
        data: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        *,
        copy: bool,
    ) -> ExampleBlock:
        """The examples in the records ``data[offset : offset + length]``; see ``FeaturesDict.decode_block``."""
        if not self._is_flat:
            return self._decode_each(data, offsets, lengths)
        if copy and (
            offsets.size < _MIN_VECTORIZED or (offsets.size < _MIN_VECTORIZED_UNLIKE and constant(lengths) is None)
        ):
            return self._decode_each(data, offsets, lengths)
        flat = self._decoder.decode(data, offsets, lengths)
        columns: Sequence[BlockColumn] = ()
        num_sound = flat.num_records
        fault: RegistryError | None = flat.fault
        for reader in self._codec.columns:
            column = restore_column(flat, reader, copy=copy)
            if column is None:
                values, error = restore_each(flat, reader, num_sound)
                if error is not None:
                    num_sound, fault = len(values), error
                column = column_of_rows(values, reader)
            columns = (*columns, column)
        if fault is None:
            return ExampleBlock(self._codec.tree, columns, num_sound)
        if num_sound < flat.num_records:  # what the bad record holds may not show in the columns of those before it
            columns = self.decode(data, offsets[:num_sound], lengths[:num_sound], copy=copy).leaves
        return ExampleBlock(self._codec.tree, columns, num_sound, at_record(fault, num_sound))

    def _decode_each(
        self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
    ) -> ExampleBlock:
        """The same one by one."""
        check_pieces(data, offsets, lengths)
        rows: list[list[Any]] = []
        fault = None
        for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True):
            try:
                rows.append(self._codec.decode_values(data[offset : offset + length].tobytes()))
            except RegistryError as error:
                fault = at_record(error, len(rows))
                break
        readers = enumerate(self._codec.columns)
        columns = [column_of_rows([row[at] for row in rows], reader) for at, reader in readers]
        return ExampleBlock(self._codec.tree, columns, len(rows), fault)


def restore_column(flat: FlatBlock, reader: ColumnReader, *, copy: bool) -> BlockColumn | None:
    """The column of one leaf, all at once; None where that cannot be, or a record may not be sound."""
    if len(reader.lengths) > 1 or reader.is_object_column or not flat.num_records:
        return None
    if reader.may_be_absent:
        return _restore_optional(flat, reader, copy=copy)
    return _restore_whole(flat, reader, copy=copy)


def _restore_whole(flat: FlatBlock, reader: ColumnReader, *, copy: bool) -> BlockColumn | None:
    """The column of a leaf that all records hold."""
    columns: list[FlatColumn] = []
    for part, keys in reader.parts:
        column = _complete(flat, keys[0], part.kind, may_be_missing=reader.may_be_missing)
        if column is None:
            return None
        columns.append(column)
    counts = None
    if reader.lengths:
        size, length = reader.parts[0][0].size, reader.lengths[0]
        counts = columns[0].counts
        if not size or np.any(counts % size) or (length is not None and np.any(counts != length * size)):
            return None
        counts = counts // size
    data = flat.data
    if not copy:
        data = data.view()
        data.flags.writeable = False
    return reader.leaf.restore_block(BlockParts(flat.num_records, data, tuple(columns), counts, copy), reader.path)


def _restore_optional(flat: FlatBlock, reader: ColumnReader, *, copy: bool) -> BlockColumn | None:
    """The column of an optional leaf, which some records may lack; None where one may not be sound."""
    ((part, (key,)),) = reader.parts  # one: its shape is known
    stored = [kind for kind in ("int64", "float", "bytes") if (key, kind) in flat.columns]
    column = flat.columns.get((key, part.kind))
    if stored and (column is None or len(stored) > 1):
        return None
    rows = np.arange(flat.num_records) if column is None or column.rows is None else column.rows
    found: BlockColumn | None = ArrayColumn(_no_rows(reader))
    if column is None:
        rows = rows[:0]
    elif rows.size:
        present = FlatBlock(rows.size, {(key, part.kind): replace(column, rows=None)}, flat.data)
        found = _restore_whole(present, reader, copy=copy)
    if found is None:
        return None
    if reader.may_read_none:
        return _masked_column(found, rows, flat.num_records, reader)
    if rows.size == flat.num_records:
        return found
    absent = reader.leaf.restore_absent()
    values = np.empty((flat.num_records, *np.shape(absent)), reader.leaf.dtype)
    values[...] = absent
    values[rows] = found.array(rows.size)
    return ArrayColumn(values)


def _masked_column(
    present: BlockColumn, rows: npt.NDArray[np.int64], num_rows: int, reader: ColumnReader
) -> MaskedColumn:
    leaf = reader.leaf
    if 0 in leaf.shape:  # of no entries a mask would not tell: each value is an object
        values = np.fromiter(present.rows(0, rows.size), TEXT, rows.size)
        return MaskedColumn(ArrayColumn(values), rows, num_rows, (), TEXT)
    return MaskedColumn(present, rows, num_rows, tuple(leaf.shape), leaf.dtype)


def _complete(flat: FlatBlock, key: str, kind: WireKind, *, may_be_missing: bool) -> FlatColumn | None:
    """The values of ``key`` in all records, none in those that may go without it; None where one does not hold them."""
    column = flat.columns.get((key, kind))
    if column is not None and column.rows is None:
        return column
    known = np.zeros(flat.num_records, np.bool_)
    for other in ("int64", "float", "bytes"):
        found = flat.columns.get((key, other))
        if found is not None:
            if other != kind and np.any(found.counts != 0):
                return None
            known[slice(None) if found.rows is None else found.rows] = True
    if not may_be_missing and not known.all():
        return None
    counts = np.zeros(flat.num_records, np.int64)
    if column is None:
        empty = np.empty(0, np.int64)
        if kind == "bytes":
            return BytesColumn(None, 0, empty, empty)
        return NumberColumn(None, 0, empty if kind == "int64" else np.empty(0, np.float32))
    counts[column.rows] = column.counts
    same = constant(counts)
    return replace(column, rows=None, counts=counts if same is None else same)


def restore_each(flat: FlatBlock, reader: ColumnReader, num_records: int) -> tuple[list[Any], RegistryError | None]:
    """The values of one leaf, one by one, up to the first record that is not sound, and what is wrong with it."""
    values: list[Any] = []
    for record in split_leaf(flat, reader)[:num_records]:
        try:
            values.append(reader.read(record))
        except RegistryError as error:
            return values, error
    return values, None


def column_of_rows(values: list[Any], reader: ColumnReader) -> BlockColumn:
    """The column of one leaf's ``values``."""
    if not reader.may_read_none:
        return ArrayColumn(_stack(values, reader))
    rows = np.array([row for row, value in enumerate(values) if value is not None], np.int64)
    present = [value for value in values if value is not None]
    return _masked_column(ArrayColumn(_stack(present, reader)), rows, len(values), reader)


def _stack(values: list[Any], reader: ColumnReader) -> npt.NDArray[Any]:
    """``values`` as ``ExampleBlock.columns`` describes them, of which none is missing."""
    if reader.is_object_column:
        return np.fromiter(values, TEXT, len(values))
    if not values:
        return _no_rows(reader)
    first = values[0]
    if isinstance(first, np.generic):
        return np.array(values, first.dtype)
    if isinstance(first, np.ndarray) and all(
        value.shape == first.shape and value.dtype == first.dtype for value in values
    ):
        return np.stack(values)
    return np.fromiter(values, TEXT, len(values))


def make_dicts(tree: Mapping[str, Any], columns: Sequence[list[Any]], count: int) -> list[dict[str, Any]]:
    """The dicts ``tree``, one for each of ``count`` values of the columns that it names."""
    lists = [columns[at] if type(at) is int else _make_inner(at, columns, count) for at in tree.values()]
    match list(tree):  # dicts with so many keys at once are made fastest, as measured
        case []:
            return [{} for _ in range(count)]
        case [a]:
            return [{a: x} for x in lists[0]]
        case [a, b]:
            return [{a: x, b: y} for x, y in zip(*lists, strict=True)]
        case [a, b, c]:
            return [{a: x, b: y, c: z} for x, y, z in zip(*lists, strict=True)]
        case [a, b, c, d, *more]:
            dicts = [{a: w, b: x, c: y, d: z} for w, x, y, z in zip(*lists[:4], strict=True)]
            for name, values in zip(more, lists[4:], strict=True):
                deque(map(setitem, dicts, repeat(name), values), maxlen=0)
            return dicts
    raise AssertionError(tree)


def _make_inner(tree: Any, columns: Sequence[list[Any]], count: int) -> list[Any]:
    if not isinstance(tree, NestedNode):
        return make_dicts(tree, columns, count)
    inner = plain_tree(tree.tree)
    rows = columns[inner] if type(inner) is int else make_dicts(inner, columns, count)
    return [NestedExamples(row, tree.tree, tree.path) for row in rows]


def _no_rows(reader: ColumnReader) -> npt.NDArray[Any]:
    """The column of no values: of the leaf's dtype, and of its shape as far as it is known."""
    if len(reader.lengths) > 1:
        return np.empty(0, TEXT)
    shape = tuple(size or 0 for size in (*reader.lengths, *reader.leaf.shape))
    return np.empty((0, *shape), reader.leaf.dtype)


def split_leaf(flat: FlatBlock, reader: ColumnReader) -> list[dict[str, FlatValue]]:
    """The flat values of one leaf in each record, by their keys."""
    stored: list[dict[str, FlatValue]] = [{} for _ in range(flat.num_records)]
    for _, keys in reader.parts:
        for key in keys:
            for kind in ("int64", "float", "bytes"):
                column = flat.columns.get((key, kind))
                if column is not None:
                    rows = range(flat.num_records) if column.rows is None else column.rows.tolist()
                    for row, value in zip(rows, split_values(flat, column), strict=True):
                        stored[row][key] = value
    return stored


def split_values(flat: FlatBlock, column: FlatColumn) -> list[FlatValue]:
    """The flat value of each record that has one."""
    num_rows = flat.num_records if column.rows is None else column.rows.size
    if isinstance(column, NumberColumn) and isinstance(column.counts, int):
        return list(column.values.reshape(num_rows, column.counts))
    ends = np.broadcast_to(column.counts, num_rows).cumsum()
    cuts = map(slice, (ends - column.counts).tolist(), ends.tolist())
    if isinstance(column, NumberColumn):
        return list(map(column.values.__getitem__, cuts))
    items: list[bytes] = take_texts(flat.data, column.starts, column.sizes).tolist()
    return list(map(items.__getitem__, cuts))


def at_record(error: RegistryError, place: int) -> RegistryError:
    """``error``, which names the record's place in the block where the record is at fault."""
    if not isinstance(error, CorruptExampleError):
        return error
    fault = CorruptExampleError(error.message, hint=error.hint, details={**error.details, "record": place})
    fault.__cause__ = error
    return fault


def restore_flat_blocks(
    features: FeaturesDict, blocks: Sequence[FlatBlock], num_records: int, *, copy: bool = True
) -> ExampleBlock:
    """The examples of ``num_records`` rows, of which ``blocks`` has a block for each leaf of ``features``, in order.

    A row that is no example ends the block, as in ``FeaturesDict.decode_block``.
    """
    codec = features._codec  # made once for each schema
    if not num_records:
        nothing = np.empty(0, np.int64)
        return features.decode_block(np.empty(0, np.uint8), nothing, nothing, copy=copy)
    columns: list[BlockColumn] = []
    num_sound = num_records
    fault: RegistryError | None = None
    for reader, block in zip(codec.columns, blocks, strict=True):
        column = restore_column(block, reader, copy=copy)
        if column is None:
            values, error = restore_each(block, reader, num_sound)
            num_sound, fault = len(values), error or fault
            column = column_of_rows(values, reader)
        columns.append(column)
    return ExampleBlock(codec.tree, columns, num_sound, None if fault is None else at_record(fault, num_sound))
