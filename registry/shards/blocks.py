"""Blocks of many records, as shard files of every format hand them out: records as bytes, or rows of typed columns.

A ``TableBlock`` makes examples from its columns at once, and serializes records only where somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from registry.errors import RegistryError, ShardMismatchError
from registry.features import ExampleBlock, FeaturesDict, codec_of
from registry.shards.arrow_values import BadRowError, flatten_table, import_pyarrow
from registry.tfrecord import Places, RecordBlock
from registry.tfrecord import join_blocks as join_record_blocks
from registry.wire import FlatBlock, FlatValue, encode_example


class TableBlock(NamedTuple):
    """Rows of an Arrow ``table`` of which each is an example of ``features``."""

    table: Any
    features: FeaturesDict

    @property
    def num_records(self) -> int:
        """Number of rows."""
        count: int = self.table.num_rows
        return count

    @property
    def num_bytes(self) -> int:
        """Memory that the rows take in their columns."""
        size: int = self.table.nbytes
        return size

    def records(self) -> list[bytes]:
        """Each row as a serialized tf.train.Example.

        Raises:
            CorruptExampleError: a row does not hold the features; ``details["record"]`` is its place.
        """
        return list(map(encode_example, self.flat_values()))

    def flat_values(self) -> list[dict[str, FlatValue]]:
        """Of each row what its record stores, by key. Errors as ``records``."""
        blocks, table, fault = self._flatten()
        if fault is not None:
            raise fault
        flats: list[dict[str, FlatValue]] = [{} for _ in range(table.num_rows)]
        for block in blocks:
            for (key, _), column in block.columns.items():
                holders = flats if column.rows is None else map(flats.__getitem__, column.rows.tolist())
                for flat, value in zip(holders, block.split(column), strict=True):
                    flat[key] = value
        return flats

    def views(self) -> list[memoryview]:
        """Each row as ``records`` gives it."""
        return [memoryview(record) for record in self.records()]

    def take(self, places: Places) -> TableBlock:
        """The rows at ``places``, in that order."""
        count = places.size
        if count and int(places[-1]) - int(places[0]) == count - 1 and bool((places[1:] - places[:-1] == 1).all()):
            return TableBlock(self.table.slice(int(places[0]), count), self.features)
        return TableBlock(_unsliced(self.table).take(import_pyarrow().array(places)), self.features)

    def decode(self, *, copy: bool = True) -> ExampleBlock:
        """The examples of all rows; a row that is none ends the block, as a bad record does."""
        blocks, table, fault = self._flatten()
        decoded = codec_of(self.features).restore_block(blocks, table.num_rows, copy=copy)
        if decoded.fault is not None:  # what the bad row holds may not show in the columns of those before it
            fault = decoded.fault
            decoded = TableBlock(table.slice(0, len(decoded)), self.features).decode(copy=copy)
        decoded.fault = fault
        return decoded

    def _flatten(self) -> tuple[list[FlatBlock], Any, RegistryError | None]:
        """The flat values of the rows before the first that is bad, these rows, and what is wrong with that one."""
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
        """All rows of ``blocks``; columns of one type are not copied.

        Raises:
            ShardMismatchError: a column has types that are not the same kind of values.
        """
        if len(blocks) == 1:
            return blocks[0]
        arrow = import_pyarrow()
        tables = [block.table for block in blocks]
        if any(table.schema != tables[0].schema for table in tables):  # they may differ in what may be null
            try:
                tables = [table.cast(tables[0].schema) for table in tables]
            except (arrow.ArrowException, ValueError) as error:
                raise ShardMismatchError(
                    f"two files that are read together have other columns: {error}",
                    hint="One of them is not as it was published: `registry verify` names it.",
                ) from error
        return cls(arrow.concat_tables(tables), blocks[0].features)


Block: TypeAlias = RecordBlock | TableBlock
"""Both know ``num_records``, ``num_bytes``, ``records()``, ``views()`` and ``take(places)``."""


def join_blocks(blocks: Sequence[Block]) -> Block:
    """All records of ``blocks``, which are of one kind, one block after the other."""
    tables = [block for block in blocks if isinstance(block, TableBlock)]
    if tables:
        return TableBlock.join(tables)
    return join_record_blocks([block for block in blocks if isinstance(block, RecordBlock)])


def decode_block(features: FeaturesDict, block: Block, *, copy: bool = True) -> ExampleBlock:
    """The examples of a block; see ``Codec.decode_block``."""
    if isinstance(block, TableBlock):
        return block.decode(copy=copy)
    return codec_of(features).decode_block(block.data, block.offsets, block.lengths, copy=copy)


def as_records(block: Block) -> RecordBlock:
    """The block's records as bytes; rows of columns are serialized."""
    if isinstance(block, RecordBlock):
        return block
    records = block.records()
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    return RecordBlock(np.frombuffer(b"".join(records), np.uint8), lengths.cumsum() - lengths, lengths)


def _unsliced(table: Any) -> Any:
    """``table`` with memory of its own for what pyarrow 26 takes wrongly from a part of an array.

    Of fixed-size lists in fixed-size lists it then gives memory that nobody has written to.
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
    """``table`` with large texts and bytes in place of views of them, of which pyarrow 26 takes no rows."""
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
