"""What are the tensors of many records? The vectorised form of what ``Tensor.restore`` does for one.

None where a record may be wrong, or nothing is gained: then each is restored alone, and the wrong one is found.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError
from registry.features.block_columns import ArrayColumn, BlockColumn, BlockParts, StoredColumn, TextColumn, take_texts
from registry.features.dtypes import is_bfloat16
from registry.features.feature import TEXT
from registry.wire import BytesColumn
from registry.wire.gather import as_rows, constant, take

if TYPE_CHECKING:
    from registry.features.tensor import Tensor


def restore_tensors(tensor: Tensor, parts: BlockParts, path: str) -> BlockColumn | None:
    """The values of ``tensor`` in a block."""
    if len(parts.columns) > 1 or not parts.num_records:
        return None
    if tensor.encoding != "none":
        return _restore_stored(tensor, parts) if tensor.encoding == "bytes" and not is_bfloat16(tensor.dtype) else None
    column = parts.columns[0]
    if isinstance(column, BytesColumn):
        if parts.counts is None and not tensor.shape and _one_each(column):
            return TextColumn(parts.data, column.starts, column.sizes, parts.copy)
        values = take_texts(parts.data, column.starts, column.sizes)
    else:
        try:
            values = tensor.from_flat(column.values, path)
        except CorruptExampleError:
            return None
    return _shaped(values, column.counts, parts, tensor.shape)


def _shaped(
    values: npt.NDArray[Any], counts: int | npt.NDArray[np.int64], parts: BlockParts, declared: tuple[int | None, ...]
) -> BlockColumn | None:
    """``values`` in the shape of each record: ``counts`` of them, that make ``declared``, or some of it."""
    shape = declared if parts.counts is None else (None, *declared)
    known = math.prod(size for size in shape if size is not None)
    if isinstance(counts, int):
        if counts != known if None not in shape else not known or counts % known:
            return None
        return ArrayColumn(
            values.reshape(parts.num_records, *(counts // known if size is None else size for size in shape))
        )
    if None not in shape or not known or (counts % known).any():
        return None
    ends = counts.cumsum()
    rows = list(map(values.__getitem__, map(slice, (ends - counts).tolist(), ends.tolist())))
    if len(shape) > 1:
        row_shape = tuple(-1 if size is None else size for size in shape)
        rows = [row.reshape(row_shape) for row in rows]
    return ArrayColumn(np.fromiter(rows, TEXT, len(rows)))


def _restore_stored(tensor: Tensor, parts: BlockParts) -> BlockColumn | None:
    column = parts.columns[0]
    if parts.counts is not None or None in tensor.shape or not isinstance(column, BytesColumn) or not _one_each(column):
        return None
    shape = tuple(size for size in tensor.shape if size is not None)
    size = tensor.dtype.itemsize * math.prod(shape)
    if not size or constant(column.sizes) != size:
        return None
    if tensor.dtype == np.bool_ and as_rows(take(parts.data, column.starts, size), np.uint8).max() > 1:
        return None
    found = StoredColumn(parts.data, column.starts, tensor.dtype, shape, parts.copy)
    return found if shape else ArrayColumn(found.array(parts.num_records))


def _one_each(column: BytesColumn) -> bool:
    """Whether every record holds one item; where they differ, ``counts`` are an array."""
    return isinstance(column.counts, int) and column.counts == 1
