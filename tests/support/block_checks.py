"""Checks that a block of records decodes to the same values as each of its records alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from registry.errors import CorruptExampleError
from registry.wire import BlockDecoder, BytesColumn, FlatBlock, FlatValue, decode_example


def joined(records: list[bytes], gap: bytes = b"\x0a\x80") -> tuple[Any, Any, Any]:
    """The records in one read-only buffer, with something between them."""
    data = np.frombuffer(gap + b"".join(record + gap for record in records), np.uint8)
    lengths = np.array([len(record) for record in records], np.int64)
    return data, len(gap) + np.cumsum(lengths + len(gap)) - lengths - len(gap), lengths


def values_of(block: FlatBlock) -> list[dict[str, FlatValue]]:
    """The flat values of each record of a block, as decode_example gives them."""
    examples: list[dict[str, FlatValue]] = [{} for _ in range(block.num_records)]
    for (key, _), column in block.columns.items():
        rows = range(block.num_records) if column.rows is None else column.rows.tolist()
        counts = [column.counts] * len(rows) if isinstance(column.counts, int) else column.counts.tolist()
        stop = 0
        for row, count in zip(rows, counts, strict=True):
            start, stop = stop, stop + count
            assert key not in examples[row]
            if isinstance(column, BytesColumn):
                places = zip(column.starts[start:stop], column.sizes[start:stop], strict=True)
                examples[row][key] = [block.data[place : place + size].tobytes() for place, size in places]
            else:
                examples[row][key] = column.values[start:stop]
        assert stop == len(column.starts if isinstance(column, BytesColumn) else column.values)
    return examples


def bits(values: dict[str, FlatValue]) -> dict[str, object]:
    return {key: (v.dtype, v.tobytes()) if isinstance(v, np.ndarray) else v for key, v in values.items()}


def check(records: list[bytes]) -> FlatBlock:
    """A block of the records has the values, and the fault, that one record at a time have."""
    expected, fault = [], None
    for record in records:
        try:
            expected.append(bits(decode_example(record)))
        except CorruptExampleError as error:
            fault = error
            break
    block = BlockDecoder().decode(*joined(records))
    assert [bits(values) for values in values_of(block)] == expected
    assert (block.fault and block.fault.message) == (fault and fault.message)
    return block
