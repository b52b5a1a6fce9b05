"""Reads all examples of a reader into NumPy arrays. Also has the small functions that the other modules share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import UsageError
from registry.features import FeaturesDict, Text, codec_of
from registry.features.block_columns import all_masked

if TYPE_CHECKING:
    from registry.reading.examples import ExampleReader


TextForm: TypeAlias = Literal["str", "bytes"]
"""The type of a ``Text`` in a table: ``str``, which refuses invalid UTF-8, or the stored ``bytes``."""


def values_of(names: Iterable[str], columns: Mapping[str, Any]) -> npt.NDArray[Any]:
    """The array in nested ``columns`` of the leaf with ``names``, from the outermost dict inwards."""
    found: Any = columns
    for name in names:
        found = found[name]
    array: npt.NDArray[Any] = found
    return array


def missing_rows(column: np.ma.MaskedArray[Any, Any]) -> npt.NDArray[np.bool_]:
    """Which values of a masked column are missing: a missing tensor has all its entries masked."""
    mask = np.ma.getmaskarray(column)
    first_entry: Any = (slice(None), *[0] * (mask.ndim - 1))
    rows: npt.NDArray[np.bool_] = mask[first_entry]
    return rows


def read_features(reader: ExampleReader) -> FeaturesDict:
    """The schema of an example, with the feature ``tfds_id`` if the read config adds it."""
    if not reader.read_config.add_tfds_id:
        return reader.features
    return FeaturesDict({**reader.features, "tfds_id": Text()})


def no_examples(features: FeaturesDict) -> dict[str, Any]:
    """The columns of a batch without examples."""
    nothing = np.empty(0, np.int64)
    return codec_of(features).decode_block(np.empty(0, np.uint8), nothing, nothing).columns()


def first_epoch(reader: ExampleReader, *, batch_size: int | None = None) -> Iterator[dict[str, Any]]:
    """The first epoch in batches or blocks. It uses another reader, so the place of ``reader`` does not change."""
    once = reader.reopened()
    once.seek(0)
    return once.blocks() if batch_size is None else once.batches(batch_size)


def read_arrays(reader: ExampleReader) -> dict[str, Any]:
    """The columns of the whole first epoch; see ``Reader.to_numpy``."""
    features = read_features(reader)
    columns, num_done = no_examples(features), 0
    for block in first_epoch(reader):
        columns, num_done = _add(columns, block, num_done, len(reader))
    return columns


def _add(columns: Any, block: Any, num_done: int, size: int) -> tuple[Any, int]:
    """Add the columns of ``block`` to ``columns`` after the first ``num_done`` examples.

    Returns both with the new number.
    """
    if not isinstance(block, Mapping):
        return _put(columns, block, num_done, size), num_done + len(block)
    num_added, result = 0, {}
    for name, added in block.items():
        result[name], stop = _add(columns[name], added, num_done, size)
        num_added = max(num_added, stop)
    return result, num_added


def _put(column: npt.NDArray[Any], added: npt.NDArray[Any], num_done: int, size: int) -> npt.NDArray[Any]:
    if isinstance(column, np.ma.MaskedArray):  # it has the same shape and dtype in every block
        column = column if num_done else all_masked((size, *added.shape[1:]), added.dtype)
    elif not num_done:
        column = np.empty((size, *added.shape[1:]), added.dtype)
    elif column.shape[1:] != added.shape[1:] or column.dtype != added.dtype:
        if column.ndim > 1 or column.dtype != object:  # all values had one shape until now
            rows = np.empty(size, object)
            rows[:num_done] = as_rows(column[:num_done])
            column = rows
        added = as_rows(added)
    column[num_done : num_done + len(added)] = added
    return column


def as_rows(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An object array of the values in ``column``."""
    return np.fromiter(column, object, len(column))


def check_text_form(text: str) -> bool:
    """Whether to decode text; UsageError unless ``text`` is ``str`` or ``bytes``."""
    if text not in ("str", "bytes"):
        raise UsageError(f'text must be "str" or "bytes", not {text!r:.60}')
    return text == "str"
