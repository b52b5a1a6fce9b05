"""Converts readers for Arrow, pandas and polars: a stream of record batches, and tables made of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from registry.errors import FeatureError, UsageError, suggest
from registry.features import Feature, FeaturesDict, Leaf, Text
from registry.reading.frameworks.arrays import first_epoch
from registry.reading.frameworks.table_columns import Labels, TableColumns, in_source_order, without_unknown

if TYPE_CHECKING:
    import pandas as pd

    from registry.reading.examples import ExampleReader
    from registry.reading.frameworks.arrays import TextForm

_LABELS: Final = ("dictionary", "names", "numbers")


def columns_for(
    reader: ExampleReader,
    *,
    text: TextForm = "str",
    labels: Labels = "dictionary",
    decode: bool = False,
    widen: bool = False,
) -> TableColumns:
    """Plan the conversion of the features of a reader to columns, in the order of the version's source.

    Raises:
        UsageError: an option is invalid, or no feature has a type in Arrow.
        FeatureError: a feature has no values.
    """
    if labels not in _LABELS:
        raise UsageError(
            f"labels must be one of {', '.join(_LABELS)}, not {labels!r:.60}", hint=suggest(labels, _LABELS)
        )
    metadata = reader.readable.facts.metadata
    features = in_source_order(without_unknown(reader.features), metadata)
    if reader.read_config.add_tfds_id:
        features = FeaturesDict({**features, "tfds_id": Text()})
    if not features:
        raise UsageError(
            "no feature of these examples has a type in Arrow, so they have no columns",
            hint="Iterate over the reader, which returns the stored values.",
        )
    hint = 'Pass text="bytes" to get it as it is stored.'
    return TableColumns(features, metadata, labels=labels, text=text, decode=decode, widen=widen, hint=hint)


def reader_for(columns: TableColumns, reader: ExampleReader) -> ExampleReader:
    """A reader of the same examples whose blocks ``columns`` takes."""
    # A reader adds the id itself.
    return reader.decoding(
        FeaturesDict({name: columns.features[name] for name in columns.features if name in reader.features})
    )


def read_batches(
    readers: Sequence[ExampleReader], *, batch_size: int | None = None, **form: Any
) -> pa.RecordBatchReader:
    """The first epoch of readers of one schema, one after the other; see ``Reader.to_arrow_batches``.

    ``form`` has the options of ``columns_for``.
    """
    columns = columns_for(readers[0], **form)

    def batches() -> Iterator[pa.RecordBatch]:
        for reader in readers:
            yield from map(columns.batch, first_epoch(reader_for(columns, reader), batch_size=batch_size))

    return pa.RecordBatchReader.from_batches(columns.schema, batches())


def to_frame(table: pa.Table, features: FeaturesDict) -> pd.DataFrame:
    """A DataFrame with the columns of ``table``; see ``Reader.to_pandas``."""
    import pandas as pd

    series = {name: _series(table[name].combine_chunks(), features.get(name)) for name in table.column_names}
    return pd.DataFrame(series, index=pd.RangeIndex(table.num_rows))


def _series(column: pa.Array, feature: Feature | None) -> pd.Series[Any]:
    """Convert a column for pandas: optional columns have a nullable dtype, and arrays are NumPy arrays."""
    import pandas as pd

    kind = column.type
    if isinstance(feature, Leaf) and (pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)):
        return pd.Series(_cells(column), dtype=object)
    if (
        isinstance(feature, Leaf)
        and feature.may_read_none
        and (pa.types.is_primitive(kind) and not pa.types.is_temporal(kind))
    ):
        if pa.types.is_float16(kind):  # pandas has no nullable float16
            column = column.cast(pa.float32())
        values = column.fill_null(False if pa.types.is_boolean(kind) else 0).to_numpy(zero_copy_only=False)
        missing = column.is_null().to_numpy(zero_copy_only=False)
        # Built from values and a mask, because pandas would treat NaN as missing.
        make = {"b": pd.arrays.BooleanArray, "f": pd.arrays.FloatingArray}.get(
            values.dtype.kind, pd.arrays.IntegerArray
        )
        return pd.Series(make(values.copy(), missing.copy()))
    try:
        series: pd.Series[Any] = column.to_pandas(integer_object_nulls=True)  # else those in dicts become floats
    except (ValueError, OverflowError) as error:  # in a struct, times of pandas are Python objects
        raise FeatureError(f"Python cannot represent a time: {error}", hint="Read them by to_arrow().") from error
    return series


def _cells(column: pa.Array) -> npt.NDArray[Any]:
    """The tensors of a column of nested lists; None for null."""
    valid, levels = column.is_valid().to_pylist(), []
    column = column.drop_null()
    while pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        fixed = pa.types.is_fixed_size_list(column.type)
        size = np.full(len(column), column.type.list_size) if fixed else column.value_lengths().to_numpy()
        levels.append((size, column.type.list_size if fixed else 0))
        column = column.flatten()
    flat = column.to_numpy(zero_copy_only=False)
    cells, places = np.empty(len(valid), object), [0] * (len(levels) + 1)
    for row in np.flatnonzero(valid):
        shape: list[int] = []
        for (size, size_of_empty), place in zip(levels, places, strict=False):
            # An empty tensor has no entry in the next level
            shape.append(int(size[place]) if prod(shape) else size_of_empty)
        cells[row] = flat[places[-1] : places[-1] + prod(shape)].reshape(shape)
        places = [place + prod(shape[:depth]) for depth, place in enumerate(places)]
    return cells
