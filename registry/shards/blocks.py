"""What is handed on from a shard file? Records as bytes, or rows of typed columns: both as blocks of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from registry.features import ExampleBlock, FeaturesDict
from registry.shards.tables import TableBlock
from registry.tfrecord import RecordBlock
from registry.tfrecord import join_blocks as join_record_blocks

Block: TypeAlias = RecordBlock | TableBlock
"""Both know ``num_records``, ``num_bytes``, ``records()``, ``views()`` and ``take(places)``."""


def join_blocks(blocks: Sequence[Block]) -> Block:
    """All records of ``blocks``, which are of one kind, one block after the other."""
    tables = [block for block in blocks if isinstance(block, TableBlock)]
    if tables:
        return TableBlock.join(tables)
    return join_record_blocks([block for block in blocks if isinstance(block, RecordBlock)])


def decode_block(features: FeaturesDict, block: Block, *, copy: bool = True) -> ExampleBlock:
    """The examples of a block; see ``FeaturesDict.decode_block``."""
    if isinstance(block, TableBlock):
        return block.decode(copy=copy)
    return features.decode_block(block.data, block.offsets, block.lengths, copy=copy)


def as_records(block: Block) -> RecordBlock:
    """The block's records as bytes; rows of columns are serialized."""
    if isinstance(block, RecordBlock):
        return block
    records = block.records()
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    return RecordBlock(np.frombuffer(b"".join(records), np.uint8), lengths.cumsum() - lengths, lengths)
