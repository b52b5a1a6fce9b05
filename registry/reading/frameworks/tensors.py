"""What is an example in torch? Numbers become tensors, on the same memory where that may be written to; bytes stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from registry.features import NestedExamples, Ragged
from registry.features.dtypes import is_bfloat16
from registry.reading.frameworks.arrays import missing_rows


def to_tensors(value: Any) -> Any:
    """``value`` of an example or of a batch, with tensors for numbers and arrays of them.

    What has no tensor is a list: of ``bytes``, of tensors whose shapes differ, of such lists for a Ragged. A Dataset is
    as a Sequence. A missing value is None, and a column of which values may be missing is a list of tensors and None.
    """
    if isinstance(value, dict):
        return {name: to_tensors(inner) for name, inner in value.items()}
    if isinstance(value, NestedExamples):
        return to_tensors(value.columns())
    if value is None:
        return None
    if isinstance(value, np.ma.MaskedArray):
        return _with_none(value)
    if isinstance(value, np.ndarray) and value.dtype == object and value.size and isinstance(value.flat[0], bytes):
        return value.tolist()  # text, without a look at each
    if isinstance(value, np.generic):
        return to_tensors(np.array(value))
    if isinstance(value, Ragged) or (isinstance(value, np.ndarray) and value.dtype == object):
        return [to_tensors(inner) for inner in value]
    if isinstance(value, np.ndarray) and is_bfloat16(value.dtype):
        return torch.from_numpy(value.view(np.int16).copy()).view(torch.bfloat16)
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    return bytes(value)


def _with_none(column: np.ma.MaskedArray[Any, Any]) -> list[Any]:
    found = to_tensors(column.data)
    rows = found if isinstance(found, list) else list(found.unbind())
    for place in np.flatnonzero(missing_rows(column)).tolist():
        rows[place] = None
    return rows


def examples_of(columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The examples of a batch, as tensors: views of the batch's."""
    lists = _lists(columns)
    for place in range(_size(lists)):
        yield _pick(lists, place)


def _lists(columns: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, column in columns.items():
        if isinstance(column, Mapping):
            found[name] = _lists(column)
        else:
            values = to_tensors(column)
            found[name] = values if isinstance(values, list) else values.unbind()
    return found


def _pick(lists: Mapping[str, Any], place: int) -> dict[str, Any]:
    return {name: _pick(one, place) if isinstance(one, dict) else one[place] for name, one in lists.items()}


def _size(lists: Mapping[str, Any]) -> int:
    return max((_size(one) if isinstance(one, dict) else len(one) for one in lists.values()), default=0)
