"""Blocks of many records, which shard files of every format return: records as bytes, or rows of typed columns.

Records of several buffers are copied to one; if they are large, a ``ScatteredBlock`` leaves them where they are.
A ``TableBlock`` decodes examples directly from its columns, and serializes records only if a caller needs them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from io import BytesIO
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from registry.errors import RegistryError, ShardMismatchError
from registry.features import ExampleBlock, FeaturesDict, codec_of
from registry.shards.arrow_values import BadRowError, flatten_table, from_numbers, import_pyarrow
from registry.tfrecord import Places, RecordBlock
from registry.tfrecord import join_blocks as join_record_blocks
from registry.wire import FlatBlock, encode_block
from registry.wire.gather import take_ragged

_CACHE_BYTES: Final = 128 * 2**20


class TableBlock(NamedTuple):
    """Rows of an Arrow ``table``; each row is an example of ``features``."""

    table: Any
    features: FeaturesDict

    @property
    def num_records(self) -> int:
        """Number of rows."""
        count: int = self.table.num_rows
        return count

    @property
    def num_bytes(self) -> int:
        """Size of the rows in memory, in bytes."""
        size: int = self.table.nbytes
        return size

    def records(self) -> list[bytes]:
        """Serialize each row as a tf.train.Example.

        Raises:
            CorruptExampleError: a row does not match the features; ``details["record"]`` is its index in the block.
        """
        return copy_records(self.record_block())

    def record_block(self) -> RecordBlock:
        """Serialize all rows, column by column; raises the same errors as ``records``."""
        encoded = encode_block(self.num_records, self.flat_blocks())
        return RecordBlock(encoded.data, encoded.offsets, encoded.lengths)

    def flat_blocks(self) -> list[FlatBlock]:
        """The flat values of each leaf of the features in all rows. Raises the same errors as ``records``."""
        blocks, _, fault = self._flatten()
        if fault is not None:
            raise fault
        return blocks

    def views(self) -> list[memoryview]:
        """Each row as a view of its serialized record."""
        return self.record_block().views()

    def take(self, places: Places) -> TableBlock:
        """The rows at ``places``, in that order."""
        count = places.size
        if count and int(places[-1]) - int(places[0]) == count - 1 and bool((places[1:] - places[:-1] == 1).all()):
            return TableBlock(self.table.slice(int(places[0]), count), self.features)
        return TableBlock(_unsliced(self.table).take(from_numbers(places)), self.features)

    def decode(self, *, copy: bool = True) -> ExampleBlock:
        """Decode all rows. A bad row ends the block, as a bad record does."""
        blocks, table, fault = self._flatten()
        decoded = codec_of(self.features).restore_block(blocks, table.num_rows, copy=copy)
        if decoded.fault is not None:  # decode again without the bad row, which may have affected the columns' shapes
            fault = decoded.fault
            decoded = TableBlock(table.slice(0, len(decoded)), self.features).decode(copy=copy)
        decoded.fault = fault
        return decoded

    def _flatten(self) -> tuple[list[FlatBlock], Any, RegistryError | None]:
        """Return the flat values of the rows before the first bad row, these rows, and the fault of the bad row."""
        table = self.table
        fault: RegistryError | None = None
        while table.num_rows:
            try:
                return flatten_table(table, self.features), table, fault
            except BadRowError as error:  # another column may have a bad row before it
                table, fault = table.slice(0, min(error.row, table.num_rows - 1)), error.fault
        return [], table, fault

    @classmethod
    def join(cls, blocks: Sequence[TableBlock]) -> TableBlock:
        """Concatenate the rows of ``blocks``; columns of equal type are not copied.

        Raises:
            ShardMismatchError: the types of a column are incompatible.
        """
        if len(blocks) == 1:
            return blocks[0]
        arrow = import_pyarrow()
        tables = [block.table for block in blocks]
        if any(table.schema != tables[0].schema for table in tables):  # they may differ in which columns are nullable
            try:
                tables = [table.cast(tables[0].schema) for table in tables]
            except (arrow.ArrowException, ValueError) as error:
                raise ShardMismatchError(
                    f"two files of one version have different columns: {error}",
                    hint="One of them was changed after it was published: `registry verify` names it.",
                ) from error
        return cls(arrow.concat_tables(tables), blocks[0].features)


def copy_records(block: RecordBlock) -> list[bytes]:
    """Return ``block.records()``. For short records, it takes half of the time to read them from one copy."""
    if block.num_bytes > block.num_records * _LONG_RECORD:
        return block.records()
    data = take_ragged(block.data, block.offsets, block.lengths)
    return list(map(BytesIO(data.data).read, block.lengths.tolist()))


_LONG_RECORD: Final = 256


class ScatteredBlock(NamedTuple):
    """Large records of several buffers, such as mapped files, which are decoded where they are.

    Attributes:
        parts: the records of each buffer.
        places: record i is number ``places[i]`` of all records of ``parts``, one part after the other.
    """

    parts: tuple[RecordBlock, ...]
    places: Places

    @property
    def num_records(self) -> int:
        """Number of records."""
        return self.places.size

    @property
    def num_bytes(self) -> int:
        """Sum of the lengths of all records."""
        return int(np.concatenate([part.lengths for part in self.parts])[self.places].sum())

    def records(self) -> list[bytes]:
        """Each record, copied."""
        return list(map(bytes, self.views()))

    def views(self) -> list[memoryview]:
        """Each record as a read-only view of its buffer."""
        views = [view for part in self.parts for view in part.views()]
        return list(map(views.__getitem__, self.places.tolist()))

    def take(self, places: Places) -> ScatteredBlock:
        """The records at ``places`` of this block, in that order."""
        return ScatteredBlock(self.parts, self.places[places])

    def record_block(self) -> RecordBlock:
        """All records in one buffer, copied."""
        return join_record_blocks(list(self.parts)).take(self.places)

    def decode(self, features: FeaturesDict, *, copy: bool = True) -> ExampleBlock:
        """Decode the records of each buffer, and join the columns. A bad record ends the block.

        Files are joined before, because their images are larger.
        """
        codec = codec_of(features)
        if codec.decodes_files:
            return decode_block(features, self.record_block(), copy=copy)
        order = np.argsort(self.places, kind="stable")
        ends = np.cumsum([part.num_records for part in self.parts])
        cuts = np.searchsorted(self.places[order], ends)
        blocks: list[ExampleBlock] = []
        rows: list[Places] = []
        for part, end, some in zip(self.parts, ends.tolist(), np.split(order, cuts[:-1]), strict=True):
            if some.size:
                block = part.take(self.places[some] - (end - part.num_records))
                blocks.append(codec.decode_block(block.data, block.offsets, block.lengths, copy=False))
                rows.append(some)
        if any(block.fault is not None for block in blocks):  # the records before the first bad one are in all parts
            return decode_block(features, self.record_block(), copy=copy)
        return codec.join_blocks(blocks, rows, copy=copy)


Block: TypeAlias = RecordBlock | ScatteredBlock | TableBlock
"""All have ``num_records``, ``num_bytes``, ``records()``, ``views()`` and ``take(places)``."""

_LARGE_BYTES: Final = 2**14


def join_blocks(blocks: Sequence[Block], *, copy: bool = False) -> Block:
    """Concatenate ``blocks``, of columns or of records. Large records are copied only if ``copy`` is set."""
    tables = [block for block in blocks if isinstance(block, TableBlock)]
    if tables:
        return TableBlock.join(tables)
    parts = [as_records(block) for block in blocks if block.num_records]
    num_records = sum(part.num_records for part in parts)
    if copy or len(parts) < 2 or sum(part.num_bytes for part in parts) < num_records * _LARGE_BYTES:
        return join_record_blocks(parts)
    return ScatteredBlock(tuple(parts), np.arange(num_records))


def decode_block(features: FeaturesDict, block: Block, *, copy: bool = True) -> ExampleBlock:
    """Decode the examples of a block; see ``Codec.decode_block``."""
    if isinstance(block, TableBlock):
        return block.decode(copy=copy)
    if isinstance(block, ScatteredBlock):
        return block.decode(features, copy=copy)
    return codec_of(features).decode_block(block.data, block.offsets, block.lengths, copy=copy)


def as_records(block: Block) -> RecordBlock:
    """Convert a block to records in one buffer; rows of columns are serialized."""
    if isinstance(block, RecordBlock):
        return block
    return block.record_block()


def _unsliced(table: Any) -> Any:
    """Copy columns of ``table`` for which ``take`` of pyarrow 26 is wrong if the array is a slice.

    For fixed-size lists in fixed-size lists it returns uninitialized memory.
    """
    arrow = import_pyarrow()
    for place, field in enumerate(table.schema):
        chunks = table.column(place).chunks
        if _holds_fixed_list(field.type) and any(chunk.offset for chunk in chunks):
            copied = [arrow.concat_arrays([chunk, chunk.slice(0, 0)]) for chunk in chunks]
            table = table.set_column(place, field, arrow.chunked_array(copied, field.type))
    return table


def _holds_fixed_list(kind: Any) -> bool:
    arrow = import_pyarrow()
    while isinstance(kind, arrow.BaseExtensionType):
        kind = kind.storage_type
    if arrow.types.is_fixed_size_list(kind):
        return True
    return any(_holds_fixed_list(kind.field(place).type) for place in range(kind.num_fields))


def without_views(table: Any) -> Any:
    """Cast string and binary views to large strings and binaries: ``take`` of pyarrow 26 does not support views."""
    if "_view" not in str(table.schema.types):
        return table
    arrow = import_pyarrow()
    return table.cast(arrow.schema([field.with_type(_without_views(field.type)) for field in table.schema]))


def _without_views(kind: Any) -> Any:
    arrow = import_pyarrow()
    types = arrow.types
    if types.is_string_view(kind):
        return arrow.large_string()
    if types.is_binary_view(kind):
        return arrow.large_binary()
    if types.is_struct(kind):
        return arrow.struct([field.with_type(_without_views(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        make = arrow.list_ if types.is_list(kind) else arrow.large_list
        return make(kind.value_field.with_type(_without_views(kind.value_type)))
    if types.is_fixed_size_list(kind):
        return arrow.list_(kind.value_field.with_type(_without_views(kind.value_type)), kind.list_size)
    return kind


class BlockCache:
    """The row groups that were decoded last, by file and index; beyond ``max_bytes``, the oldest are dropped."""

    def __init__(self, max_bytes: int = _CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._blocks: OrderedDict[tuple[str, int], tuple[Block, int]] = OrderedDict()
        self._num_bytes = 0
        self.num_wanted_bytes = 0
        """The bytes that the files of this cache have requested, but not used yet."""

    def find(self, name: str, group: int) -> Block | None:
        """Return a cached row group, or None."""
        result = self._blocks.get((name, group))
        if result is None:
            return None
        self._blocks.move_to_end((name, group))
        return result[0]

    def keep(self, name: str, group: int, block: Block, num_bytes: int) -> None:
        """Keep a row group that takes ``num_bytes`` of memory, even if it exceeds the cache, and drop the oldest."""
        self._blocks[name, group] = block, num_bytes
        self._num_bytes += num_bytes
        while self._num_bytes > self._max_bytes and len(self._blocks) > 1:
            _, (_, dropped) = self._blocks.popitem(last=False)
            self._num_bytes -= dropped
