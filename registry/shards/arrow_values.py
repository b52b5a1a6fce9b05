"""Converts Arrow columns to the flat columns that a record stores, without a loop over rows.

    table -> for each leaf of the features, its Arrow array and the lengths of the lists around it -> FlatBlock

Bytes are not copied; numbers become int64 or float32, as in a tf.train.Example, or the bytes of an encoding. Null
rows of an optional feature store nothing; a null label is -1, which means "no label".
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, require_extra
from registry.features import ClassLabel, Feature, FeaturesDict, Leaf, Tensor
from registry.features import Sequence as SequenceFeature
from registry.features.block_flattener import count_in_rows
from registry.features.containers import Column
from registry.features.feature import TEXT, corrupt_fault
from registry.images.deflate import compress
from registry.wire import BytesColumn, FlatBlock, FlatColumn, NumberColumn
from registry.wire.gather import cut_views

_NO_DATA: Final = np.empty(0, np.uint8)

_Places = npt.NDArray[np.int64]


class BadRowError(Exception):
    """A row does not match the features: its index ``row`` in the table, and its fault."""

    def __init__(self, row: int, fault: CorruptExampleError, *, hint: str | None = None) -> None:
        super().__init__(fault.message)
        self.row = row
        details = {**fault.details, "record": row}
        self.fault = CorruptExampleError(fault.message, hint=hint or fault.hint, details=details)


class _NestedArray(NamedTuple):
    """An array within a column: its path, and the lengths of the lists around it for all rows, outermost first.

    ``declared`` has the fixed length, or None, of the Sequence that each level of lists belongs to.
    """

    names: tuple[str, ...]
    lengths: tuple[_Places, ...]
    declared: tuple[int | None, ...]

    @property
    def path(self) -> str:
        return "/".join(self.names)

    def row_of(self, element: int) -> int:
        """The row that holds ``element`` of the innermost list."""
        for lengths in reversed(self.lengths):
            element = int(np.searchsorted(lengths.cumsum(), element, side="right"))
        return element

    def bad(self, element: int, problem: str, *, hint: str | None = None) -> NoReturn:
        raise BadRowError(self.row_of(element), corrupt_fault(self.path, problem), hint=hint)


def flatten_table(table: Any, features: FeaturesDict) -> list[FlatBlock]:
    """The flat values of all rows: a block for each leaf of ``features``, in the order of their names.

    Raises:
        BadRowError: a row has a null, or another value, that the feature does not allow. It is the first bad row of the
            first column with bad rows.
    """
    blocks: list[FlatBlock] = []
    names = Counter(table.schema.names)  # computed once, because Arrow creates the list at each access
    for name, feature in features.items():
        if name not in names:
            raise BadRowError(0, corrupt_fault(name, "the file has no such column"))
        if names[name] > 1:
            raise BadRowError(0, corrupt_fault(name, "the file has two such columns"))
        column = table.column(name)
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        blocks += _flatten(feature, array, _NestedArray((name,), (), ()), table.num_rows)
    return blocks


def _flatten(feature: Feature, array: Any, place: _NestedArray, num_rows: int) -> Iterator[FlatBlock]:
    array = plain_array(array)
    if isinstance(feature, Leaf):
        yield _flatten_leaf(feature, array, place, num_rows)
        return
    _refuse_nulls(array, place)
    types = import_pyarrow().types
    if isinstance(feature, FeaturesDict):
        if not types.is_struct(array.type):
            place.bad(0, f"expected a struct, the column has {array.type}")
        for name, inner in feature.items():
            field = array.type.get_field_index(name)
            if field < 0:
                place.bad(0, f"the column has no field {name!r}")
            yield from _flatten(inner, array.field(field), place._replace(names=(*place.names, name)), num_rows)
    elif isinstance(feature, SequenceFeature):
        lengths, values = _open_list(array, place)
        inside = _NestedArray(place.names, (*place.lengths, lengths), (*place.declared, feature.length))
        yield from _flatten(feature.feature, values, inside, num_rows)


def _flatten_leaf(leaf: Leaf, array: Any, place: _NestedArray, num_rows: int) -> FlatBlock:
    types = import_pyarrow().types
    array, rows = _stored_rows(leaf, array, place)
    _refuse_nulls(array, place)
    if types.is_struct(array.type):  # Hugging Face stores a file as its bytes and its original path
        if array.type.get_field_index("bytes") < 0:
            place.bad(0, f"expected a struct with bytes, the column has {array.type}")
        array = plain_array(array.field("bytes"))
        if array.null_count:
            hint = "Write the bytes of the files into the column, as push_to_hub of Hugging Face's datasets does."
            place.bad(_first_null(array), "has the path of a file, but not its bytes", hint=hint)
    sizes: int | _Places = 1  # number of stored values for each value of the leaf
    inside = place
    for size in leaf.shape:
        if not _is_list(array.type):
            break
        lengths, values = _open_list(array, inside)
        if size is not None:
            wrong = lengths != size
            if wrong.any():
                inside.bad(int(wrong.argmax()), f"expected {size} values, found {lengths[wrong][0]}")
            sizes = sizes * size
        else:
            sizes = sizes * lengths
        inside = inside._replace(lengths=(*inside.lengths, lengths))
        array = plain_array(values)
        _refuse_nulls(array, inside)
    (part,) = leaf.parts  # a schema that was derived from Arrow's has only leaves of one part
    key, *level_keys = Column(place.path, place.names, leaf, place.declared).keys(part)
    columns: dict[tuple[str, Any], FlatColumn] = {}
    for depth, level_key in enumerate(level_keys):
        columns[level_key, "int64"] = NumberColumn(
            None, count_in_rows(1, place.lengths[: depth + 1]), place.lengths[depth + 1]
        )
    data = _NO_DATA
    if part.kind != "bytes":
        numbers = _numbers(leaf, array, inside)
        columns[key, part.kind] = NumberColumn(rows, count_in_rows(sizes, place.lengths), numbers)
    else:
        data, starts, lengths = _items(leaf, array, inside, sizes)
        per_item = sizes if leaf.dtype == TEXT else 1  # a tensor that is stored as bytes is one item
        columns[key, "bytes"] = BytesColumn(rows, count_in_rows(per_item, place.lengths), starts, lengths)
    return FlatBlock(num_rows, columns, data)


def _stored_rows(leaf: Leaf, array: Any, place: _NestedArray) -> tuple[Any, _Places | None]:
    """Return ``array`` without nulls, if the leaf allows nulls, and the remaining rows, or None for all rows."""
    if not array.null_count or place.lengths:
        return array, None
    if isinstance(leaf, ClassLabel):
        return array.cast(import_pyarrow().int64()).fill_null(-1), None
    if not leaf.may_be_absent or leaf.shape:
        return array, None
    return array.drop_null(), np.flatnonzero(as_mask(array.is_valid()))


def plain_array(array: Any) -> Any:
    """``array`` without extension types and dictionaries: the values themselves."""
    arrow = import_pyarrow()
    while isinstance(array, (arrow.ExtensionArray, arrow.DictionaryArray)):
        if isinstance(array, arrow.ExtensionArray):
            array = array.storage
            continue
        values = plain_array(array.dictionary)
        if arrow.types.is_run_end_encoded(values.type):  # Arrow cannot take values of runs
            values = arrow.compute.run_end_decode(values)
        if arrow.types.is_string_view(values.type):  # the same of views
            values = values.cast(arrow.large_string())
        elif arrow.types.is_binary_view(values.type):
            values = values.cast(arrow.large_binary())
        array = values.take(array.indices)
    return array


def _open_list(array: Any, place: _NestedArray) -> tuple[_Places, Any]:
    """The length of each list of ``array``, and the values of all lists, one list after the other."""
    if import_pyarrow().types.is_fixed_size_list(array.type):
        return np.full(len(array), array.type.list_size, np.int64), array.flatten()
    if not _is_list(array.type):
        place.bad(0, f"expected a list, the column has {array.type}")
    return np.diff(as_numbers(array.offsets)).astype(np.int64, copy=False), array.flatten()


def _is_list(kind: Any) -> bool:
    types = import_pyarrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _numbers(leaf: Leaf, array: Any, place: _NestedArray) -> npt.NDArray[Any]:
    """Numbers as a new array of int64 or float32; times become the number of their units."""
    arrow = import_pyarrow()
    kind, wanted = array.type, leaf.dtype.kind
    if arrow.types.is_temporal(kind) and kind.bit_width in (32, 64):
        array = array.view(arrow.int32() if kind.bit_width == 32 else arrow.int64())
    elif not (
        arrow.types.is_boolean(kind)
        if wanted == "b"
        else arrow.types.is_floating(kind)
        if wanted == "f"
        else arrow.types.is_integer(kind)
    ):
        place.bad(0, f"expected {leaf.dtype}, the column has {kind}")
    return (as_mask if wanted == "b" else as_numbers)(array).astype(np.float32 if wanted == "f" else np.int64)


def _items(
    leaf: Leaf, array: Any, place: _NestedArray, sizes: int | _Places
) -> tuple[npt.NDArray[np.uint8], _Places, _Places]:
    """The positions, in Arrow's memory, of the bytes of each text, file or stored array."""
    arrow, kind = import_pyarrow(), array.type
    types = arrow.types
    encoding = leaf.encoding if isinstance(leaf, Tensor) else "none"
    if encoding != "none" and types.is_primitive(kind) and leaf.dtype == kind.to_pandas_dtype():
        values = (as_mask if types.is_boolean(kind) else as_numbers)(array)
        data = np.ascontiguousarray(values, leaf.dtype.newbyteorder("<")).view(np.uint8)
        per_item = np.full(values.size // sizes, sizes, np.int64) if isinstance(sizes, int) else sizes
        lengths = per_item * leaf.dtype.itemsize
        starts = np.cumsum(lengths, dtype=np.int64) - lengths
        if encoding == "zlib":
            pieces = [compress(bytes(piece)) for piece in cut_views(data.data, starts, lengths)]
            data, lengths = np.frombuffer(b"".join(pieces), np.uint8), np.array(list(map(len, pieces)), np.int64)
            starts = np.cumsum(lengths, dtype=np.int64) - lengths
        return data, starts, lengths
    if types.is_fixed_size_binary(kind):
        width: int = kind.byte_width
        data = _buffer(array.buffers()[1])
        starts = (np.arange(len(array), dtype=np.int64) + array.offset) * width
        return data, starts, np.full(len(array), width, np.int64)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        array, kind = array.cast(arrow.large_binary()), arrow.large_binary()
    if not (
        types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    ):
        place.bad(0, f"expected {leaf.dtype if leaf.dtype != TEXT else 'text or bytes'}, the column has {kind}")
    is_large = types.is_large_string(kind) or types.is_large_binary(kind)
    _, ends, content = array.buffers()
    if not len(array):
        return _NO_DATA, np.empty(0, np.int64), np.empty(0, np.int64)
    stored = np.frombuffer(ends, np.int64 if is_large else np.int32)[array.offset : array.offset + len(array) + 1]
    bounds = stored.astype(np.int64, copy=False)
    return _buffer(content), bounds[:-1], np.diff(bounds)


def _buffer(buffer: Any) -> npt.NDArray[np.uint8]:
    return _NO_DATA if buffer is None or not buffer.size else np.frombuffer(buffer, np.uint8)


def _refuse_nulls(array: Any, place: _NestedArray) -> None:
    if array.null_count:
        hint = (
            "Numbers, text and bytes may be null; lists, structs, images and elements of lists may not. Fill the "
            "nulls, or leave the column out, and write the files again. Or copy the records: an addition that is not "
            "in place can read a null list as an empty one or leave the row out."
        )
        place.bad(_first_null(array), "is null", hint=hint)


def _first_null(array: Any) -> int:
    return int(as_mask(array.is_null()).argmax())


def as_mask(mask: Any) -> npt.NDArray[np.bool_]:
    """Convert an Arrow array of booleans to a new array. A null counts as false.

    This function and the next three do what pyarrow's ``to_numpy`` and ``array`` do. Those import pandas at their first
    call, to recognize its objects, which takes 0.2 s of CPU.
    """
    if mask.null_count:
        mask = import_pyarrow().compute.and_kleene(mask, mask.is_valid())
    first, start = divmod(mask.offset, 8)
    bits = np.frombuffer(mask.buffers()[1] or b"", np.uint8)[first:]
    return np.unpackbits(bits, count=start + len(mask), bitorder="little")[start:].view(np.bool_)


def as_numbers(array: Any) -> npt.NDArray[Any]:
    """Convert an Arrow array of integers or floats, without a copy if there are no nulls. A null becomes 0."""
    if array.null_count:
        array = array.fill_null(from_numbers(np.zeros(1, array.type.to_pandas_dtype()))[0])
    values: npt.NDArray[Any] = np.from_dlpack(array)
    return values


def from_numbers(values: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None = None) -> Any:
    """Convert numbers or booleans to an Arrow array; ``mask`` is true for nulls."""
    arrow = import_pyarrow()
    valid = None if mask is None or not mask.any() else arrow.py_buffer(np.packbits(~mask, bitorder="little"))
    is_bool = values.dtype == np.bool_
    data = np.packbits(values, bitorder="little") if is_bool else np.ascontiguousarray(values)
    kind = arrow.from_numpy_dtype(values.dtype)
    return arrow.Array.from_buffers(kind, len(values), [valid, arrow.py_buffer(data)])


def from_texts(texts: Sequence[str | None]) -> Any:
    """Convert texts, of less than 2 GiB together, to an Arrow array. None becomes null."""
    arrow, pieces = import_pyarrow(), [b"" if text is None else text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, pieces)], dtype=np.int32)
    mask = np.array([text is None for text in texts], np.bool_)
    valid = arrow.py_buffer(np.packbits(~mask, bitorder="little")) if mask.any() else None
    buffers = [valid, arrow.py_buffer(ends), arrow.py_buffer(b"".join(pieces))]
    return arrow.Array.from_buffers(arrow.string(), len(pieces), buffers)


def plain_type(kind: Any) -> Any:
    """Return an Arrow type independent of its layout in memory: text and bytes have one type each."""
    arrow = import_pyarrow()
    types = arrow.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return arrow.string()
    is_binary = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return arrow.binary() if is_binary or types.is_fixed_size_binary(kind) else kind


def import_pyarrow(needed_for: str = "reading Parquet files") -> Any:
    """Import ``pyarrow`` and ``pyarrow.compute``. Raises MissingExtraError if pyarrow is not installed."""
    result = sys.modules.get("pyarrow")
    if result is not None and "pyarrow.compute" in sys.modules:  # called for every column of a block: it has to be fast
        return result
    with require_extra("arrow", package="pyarrow", needed_for=needed_for):
        import pyarrow as pa
        import pyarrow.compute  # ``import pyarrow`` alone leaves ``pa.compute`` undefined
    return pa
