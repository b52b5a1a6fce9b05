"""Do records hold the same values, however they are serialized? A digest over what they hold under each key.

Taken over the values of tf.train.Examples, so that the order of map keys and the packing of numbers do not count. For
each 1,024 records of a slice, the last ones fewer, and each key (names of nested features, joined by ``/``):

    leaf   = sha256 of, for each kind of values that the records hold under the key, in the order bytes, float, int64:
             the kind's name and a zero byte, the number of values of each record, then the values of all records:
             of bytes, the length of each, then their bytes; of float, 4 bytes each; of int64, 8 bytes each
    digest = sha256 of the leaves, 32 bytes each

Numbers and lengths are 8 bytes; everything is little-endian. A kind without values is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.tfrecord import RecordBlock
from registry.wire import BlockDecoder, BytesColumn, FlatBlock, NumberColumn
from registry.wire.gather import constant, take, take_ragged

LEAF_RECORDS: Final = 1024
EMPTY_LEAF: Final = hashlib.sha256(b"").digest()
_SMALL_ITEM: Final = 4096
"""Up to this mean size, to copy items together costs less than a call for each."""

_KINDS: Final = ("bytes", "float", "int64")


def hash_leaf(block: RecordBlock, decoder: BlockDecoder) -> dict[str, bytes] | None:
    """The leaf of each key of at most 1,024 records, or None where one of them is no tf.train.Example."""
    flat = decoder.decode(*block)
    if flat.fault is not None:
        return None
    leaves = {}
    for key in {key for key, _ in flat.columns}:
        hasher = hashlib.sha256()
        for kind in _KINDS:
            column = flat.columns.get((key, kind))
            if column is not None:
                _add_column(hasher, kind, column, flat)
        leaves[key] = hasher.digest()
    return leaves


def join_leaves(leaves: Sequence[dict[str, bytes]]) -> dict[str, str]:
    """The digest of each key of a slice, from the leaves of all its records, in order."""
    keys = sorted({key for leaf in leaves for key in leaf})
    return {
        key: "sha256:" + hashlib.sha256(b"".join(leaf.get(key, EMPTY_LEAF) for leaf in leaves)).hexdigest()
        for key in keys
    }


def _add_column(hasher: Any, kind: str, column: NumberColumn | BytesColumn, block: FlatBlock) -> None:
    counts = np.zeros(block.num_records, "<u8")
    counts[slice(None) if column.rows is None else column.rows] = column.counts
    if not counts.any():
        return
    hasher.update(kind.encode() + b"\0")
    hasher.update(counts.data)
    if isinstance(column, NumberColumn):
        hasher.update(_little_endian(column.values))
        return
    hasher.update(np.ascontiguousarray(column.sizes, "<u8").data)
    size = constant(column.sizes)
    if size is not None and 0 < size < _SMALL_ITEM:
        hasher.update(take(block.data, column.starts, size).tobytes())
        return
    if int(column.sizes.sum()) < _SMALL_ITEM * column.sizes.size:
        hasher.update(take_ragged(block.data, column.starts, column.sizes).data)
        return
    view = block.data.data
    for start, size in zip(column.starts.tolist(), column.sizes.tolist(), strict=True):
        hasher.update(view[start : start + size])


def _little_endian(values: npt.NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(values, values.dtype.newbyteorder("<")).data
