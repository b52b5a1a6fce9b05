"""What do flat columns hold that were never in a record? The examples that the records of these values would give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from registry.errors import RegistryError
from registry.features.block import ExampleBlock, at_record, column_of_rows, restore_column, restore_each
from registry.features.block_columns import BlockColumn
from registry.features.containers import FeaturesDict
from registry.wire import FlatBlock


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
