"""Gives a reader to pandas: a DataFrame with a column for each leaf of the features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from registry.features import Text
from registry.features.dtypes import is_bfloat16
from registry.features.feature import TEXT
from registry.reading.frameworks.arrays import (
    LeafColumn,
    check_text_form,
    decode_texts,
    leaves_of,
    read_arrays,
    read_features,
)

if TYPE_CHECKING:
    from registry.reading.examples import ExampleReader
    from registry.reading.frameworks.arrays import TextForm


def read_frame(reader: ExampleReader, *, text: TextForm) -> pd.DataFrame:
    """The first epoch as a DataFrame; see ``Reader.to_pandas``."""
    as_str = check_text_form(text)
    columns = read_arrays(reader)
    leaves = leaves_of(read_features(reader))
    series = {leaf.path: _series(leaf, leaf.of(columns), as_str=as_str) for leaf in leaves}
    return pd.DataFrame(series, index=pd.RangeIndex(len(reader)))


def _series(leaf: LeafColumn, column: npt.NDArray[Any], *, as_str: bool) -> pd.Series[Any]:
    values, missing = leaf.unmask(column)
    if missing is not None:
        return _nullable(leaf, values, missing)
    is_str = as_str and isinstance(leaf.leaf, Text)
    if not leaf.lengths and not leaf.leaf.shape:
        if is_bfloat16(column.dtype):  # pandas has no such dtype
            column = column.astype(np.float32)
        return pd.Series(decode_texts(column, leaf.path), dtype="str") if is_str else pd.Series(column)
    objects = decode_texts(column, leaf.path) if is_str else column
    return pd.Series(np.fromiter(objects, object, len(column)), dtype=object)


def _nullable(leaf: LeafColumn, values: npt.NDArray[Any], missing: npt.NDArray[np.bool_]) -> pd.Series[Any]:
    """An optional column: in one of pandas' nullable dtypes, or objects and None."""
    if leaf.leaf.shape or values.dtype == TEXT:
        objects = np.fromiter(values, object, len(values))
        objects[missing] = None
        return pd.Series(objects, dtype=object)
    if values.dtype.kind == "b":
        return pd.Series(pd.arrays.BooleanArray(values, missing))
    if values.dtype.kind in "iu":
        return pd.Series(pd.arrays.IntegerArray(values, missing))
    # pandas has no nullable float16. Built from values and a mask, because pandas would treat NaN as missing.
    wide = values if values.dtype.itemsize > 2 else values.astype(np.float32)
    return pd.Series(pd.arrays.FloatingArray(wide, missing))
