"""Converts Python values to Arrow columns: values of rows that are dicts, of parsed JSON, and of columns of objects.

    rows or columns -> ``convert_block`` -> ``Rows`` whose columns have one type each, and rows that cannot be stored

Values of several types in one column, such as numbers and texts, become several ``Rows``; ``value_types`` unites their
types, or reports the place of two that have no type in common. The result does not depend on how rows were cut into
blocks.
"""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.features import Feature, Image
from registry.features import Sequence as SequenceFeature
from registry.intake.media_bytes import IMAGE_FAULTS, image_feature, image_file
from registry.intake.source import NAN_WORDS, BadRow, Rows, is_unicode
from registry.intake.value_types import make_lists
from registry.shards.arrow_values import from_numbers, from_texts, import_pyarrow

arrow: Any = import_pyarrow("adding data")
_FAULTS: Final = (arrow.ArrowException, OverflowError, TypeError, UnicodeError, ValueError)
"""The exceptions with which Arrow refuses a value."""

_PLAIN: Final[dict[type, str]] = {
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    bytes: "binary",
    bytearray: "binary",
    memoryview: "binary",
    dt.date: "date32",
    dt.time: "time64[us]",
    dt.timedelta: "duration[us]",
}
"""The kinds of values that have one Arrow type, which is the kind."""

_OTHERS: Final = {dt.datetime: "datetime", decimal.Decimal: "Decimal", list: "list", tuple: "list", dict: "dict"}
EXACT: Final[dict[type, str]] = _PLAIN | _OTHERS
"""The kinds of the types of Python itself."""

_NUMPY: Final = {"b": bool, "i": int, "u": int, "f": float, "U": str, "S": bytes}
NUMPY_KINDS: Final = {code: EXACT[kind] for code, kind in _NUMPY.items()} | {"M": "datetime64", "m": "timedelta64"}
"""The kinds of scalars of NumPy, by the kind of their dtype."""

_MISSING: Final = frozenset({"NoneType", "NAType", "NaTType", "MaskedConstant"})
"""None, and the missing values of pandas and NumPy, which have types of their own."""

KINDS: Final = frozenset(EXACT.values()) | frozenset(NUMPY_KINDS.values()) | {"array", "image"}
"""The kinds that can be stored."""


MAX_DEPTH: Final = 64
"""The maximum depth of nested objects and lists, including the row."""

MIXED_LIST: Final = "a list mixes values of incompatible types"


def estimate_bytes(value: Any, depth: int = 0) -> int:
    """Estimate the memory of a value in Arrow without converting it, in bytes."""
    if depth > MAX_DEPTH:  # a list may contain itself, which the conversion refuses later
        return 8
    if isinstance(value, (bytes, bytearray, str)):
        return len(value) + 4
    if isinstance(value, Mapping):
        return sum(estimate_bytes(item, depth + 1) for item in value.values())
    if isinstance(value, (list, tuple)):
        return 4 + (len(value) * estimate_bytes(value[0], depth + 1) if value else 0)
    size = getattr(value, "nbytes", None)
    if isinstance(size, int):
        return size
    if kind_of(type(value)) == "image":
        return 4 * int(value.size[0]) * int(value.size[1])
    return 8


def plain_values(values: Sequence[Any]) -> Sequence[Any]:
    """Return the values with tensors as NumPy arrays, arrays of shape () as scalars, and missing values as None."""
    foreign = {kind for kind in set(map(type, values)) if kind not in EXACT and not issubclass(kind, np.generic)}
    if all(kind.__name__ == "NoneType" for kind in foreign):
        return values
    return [_plain(value) if type(value) in foreign else value for value in values]


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind.__name__ in _MISSING:
        return None
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        return value.tolist()  # masked values become None
    if isinstance(value, np.ndarray):
        return value if value.ndim else value[()]
    if hasattr(kind, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in kind.__dataclass_fields__}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if _is_image(kind):
        return value
    if hasattr(value, "detach") and hasattr(kind, "__array__"):  # a tensor of torch, on a GPU or with gradients
        value = value.detach().cpu()
    if hasattr(kind, "__array__") and not isinstance(value, (str, bytes)):
        with suppress(TypeError, ValueError):  # NumPy has no bfloat16: the value is reported
            array = np.asarray(value)
            return array if array.ndim else array[()]
    return value


def is_storable(dtype: np.dtype[Any]) -> bool:
    """Whether Arrow has a type for a dtype without Python objects. There is no type for long double."""
    return dtype.kind in NUMPY_KINDS and not (dtype.kind == "f" and dtype.itemsize > 8)


def _is_image(kind: type) -> bool:
    return any(base.__module__ == "PIL.Image" and base.__name__ == "Image" for base in kind.__mro__)


def kind_of(kind: type) -> str | None:
    """Return the kind of the values of a type, or None for missing values. Other types are their own kind."""
    exact = EXACT.get(kind)
    if exact is not None:
        return exact
    if kind.__name__ in _MISSING:
        return None
    if issubclass(kind, np.ndarray):
        return "array"
    if issubclass(kind, np.generic):
        dtype = np.dtype(kind)
        return NUMPY_KINDS[dtype.kind] if is_storable(dtype) else f"numpy.{kind.__name__}"
    if _is_image(kind):
        return "image"
    if issubclass(kind, Mapping):
        return "dict"
    # datetime before date, its base class; bool before int
    for known in (bool, int, float, str, bytes, dt.datetime, dt.date, dt.timedelta, list, tuple):
        if issubclass(kind, known):
            return EXACT[known]
    name = kind.__name__  # the type code of array.array is the name of a kind
    return name if name not in KINDS else f"{kind.__module__}.{name}"


MAX_SHOWN: Final = 40
"""The maximum number of characters of a value in a message."""

_Numbers: TypeAlias = "Sequence[int] | npt.NDArray[Any]"
_NUMBERS: Final = frozenset({EXACT[int], EXACT[float]})
_LAST: Final = 0x10FFFF
"""The last character of Unicode."""
_UNIT: Final = {"Y": "D", "M": "D", "W": "D", "D": "D", "h": "s", "m": "s", "s": "s", "ms": "ms", "us": "us"}
"""The unit that Arrow has for a unit of NumPy; others become nanoseconds."""


class BadValue(NamedTuple):
    """A value that cannot be stored: its row, the path of its column, and the reason."""

    row: int
    path: str
    reason: str


class BadValuesError(Exception):
    """Some values of a block cannot be stored. The caller leaves out their rows and converts the others."""

    def __init__(self, bad: Sequence[BadValue]) -> None:
        super().__init__(f"{len(bad)} values cannot be stored")
        self.bad = bad


class MixedValuesError(Exception):
    """The values of a column have several types in a block; ``path`` is that of the column."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} has values of several types")
        self.path = path


Column: TypeAlias = "Callable[[int, int, ValueConverter], Any]"
"""Returns rows start..stop of a column as an Arrow array; Python objects are converted by the converter."""


def convert_block(
    columns: Mapping[str, Column],
    start: int,
    stop: int,
    converter: ValueConverter,
    *,
    name: str,
    lines: Sequence[int],
    keys: Sequence[str] | None = None,
) -> Iterator[Rows]:
    """Yield rows start..stop (stop excluded) as ``Rows`` in which each column has a single type.

    Args:
        columns: the columns.
        start: the first row.
        stop: the row after the last.
        converter: the converter of this pass.
        name: the name of the part, for bad rows.
        lines: the line of each row, by its number.
        keys: the key of each row, or None.
    """
    arrays: dict[str, Any] = {}
    bad: list[BadValue] = []
    mixed: MixedValuesError | None = None
    for column, read in columns.items():
        try:
            arrays[column] = read(start, stop, converter)
        except BadValuesError as error:
            bad += error.bad
        except MixedValuesError as error:
            if stop - start == 1:
                bad.append(BadValue(start, error.path, MIXED_LIST))
            mixed = mixed or error
    if bad:
        faults = {fault.row: fault for fault in sorted(bad, key=lambda fault: fault.row, reverse=True)}
        yield Rows(
            table=arrow.table({column: arrow.nulls(0) for column in columns}),
            lines=(),
            keys=None if keys is None else (),
            bad=tuple(
                BadRow(file=name, line=lines[row], column=faults[row].path, reason=faults[row].reason)
                for row in sorted(faults)
            ),
        )
        edges = [start, *(edge for row in sorted(faults) for edge in (row, row + 1)), stop]
        runs = list(zip(edges[::2], edges[1::2], strict=True))
    elif mixed is not None:
        middle = (start + stop) // 2
        runs = [(start, middle), (middle, stop)]
    else:
        names = None if keys is None else keys[start:stop]
        yield Rows(table=make_table(arrays, stop - start), lines=lines[start:stop], keys=names)
        return
    for first, last in runs:
        if first < last:
            yield from convert_block(columns, first, last, converter, name=name, lines=lines, keys=keys)


def make_table(columns: Mapping[str, Any], num_rows: int) -> Any:
    """A ``pyarrow.Table``, whose number of rows counts if it has no columns."""
    if columns:
        return arrow.table(dict(columns))
    return arrow.Table.from_struct_array(arrow.array([{}] * num_rows, arrow.struct([])))


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """Return the columns of rows that are dicts, for ``convert_block``. A missing key is null."""

    def column(name: str) -> Column:
        return lambda start, stop, converter: converter.convert(
            [row.get(name) for row in rows[start:stop]], range(start, stop), name
        )

    return {name: column(name) for name in dict.fromkeys(itertools.chain.from_iterable(rows))}


class ValueConverter:
    """Converts the values of one pass over rows.

    Attributes:
        images: the features of the columns that hold images, by path; ``[]`` after a path are the items of its lists.

    >>> converter = ValueConverter()
    >>> converter.convert([{"x": 1}, {"x": 2}], [1, 2], "point").to_pylist()
    [{'x': 1}, {'x': 2}]
    """

    def __init__(self, texts: Collection[str] = ()) -> None:
        """``texts`` are the columns in which a dict or list becomes JSON text."""
        self._texts = frozenset(texts)
        self._zones: dict[str, str] = {}
        self.images: dict[str, Image] = {}

    def hints(self) -> dict[str, Feature]:
        """Return the features of the columns of images or lists of images."""
        features: dict[str, Feature] = {}
        for path, image in self.images.items():
            name = path.rstrip("[]")
            feature: Feature = image
            for _ in range((len(path) - len(name)) // 2):
                feature = SequenceFeature(feature)
            features[name] = feature
        return features

    def convert(self, values: Sequence[Any], rows: _Numbers, path: str, depth: int = 1) -> Any:
        """Convert a column to a ``pyarrow.Array``. None and the missing values of pandas become null.

        Args:
            values: the values.
            rows: the row of each value, for faults.
            path: the name of the column, or for nested values, a path such as ``column/key`` or ``column[]``.
            depth: the number of dicts and lists around the values, the row included.

        Raises:
            BadValuesError: some values cannot be stored.
            MixedValuesError: the values have several types.
        """
        values = plain_values(values)
        if path in self._texts:
            values = list(map(_json_text, values))
        kinds = {kind_of(value) for value in set(map(type, values))} - {None}
        if "[]" in path and kinds == {EXACT[str], EXACT[float]}:  # exports write 2.0, not 2
            values = _read_special(values, rows)
            kinds = {kind_of(value) for value in set(map(type, values))} - {None}
        if not kinds:
            return arrow.nulls(len(values))
        kind = self._kind_of_all(kinds, values, rows, path, depth)
        if kind == "dict":
            return self._convert_dicts(values, rows, path, depth)
        if kind == "list":
            return self._convert_lists(values, rows, path, depth)
        if kind == "array":
            return self._convert_arrays(values, rows, path, depth)
        if kind == "image":
            return self._convert_images(values, rows, path)
        if kind == "datetime":
            return self._convert_datetimes(values, rows, path)
        return self._convert_plain(values, rows, path, kind)

    def _kind_of_all(self, kinds: set[str | None], values: Sequence[Any], rows: _Numbers, path: str, depth: int) -> str:
        """The kind of all values."""
        if not kinds <= KINDS:
            _refuse(values, rows, path, lambda value: None if kind_of(type(value)) in KINDS else _unknown_type(value))
        if depth >= MAX_DEPTH and not kinds.isdisjoint({"dict", "list"}):
            reason = f"more than {MAX_DEPTH} levels of objects and lists in one value"
            column = re.split(r"\[\]|/", path)[0]
            _refuse(values, rows, column, lambda value: reason if isinstance(value, (Mapping, list, tuple)) else None)
        if len(kinds) > 1 and kinds != _NUMBERS:
            raise MixedValuesError(path)
        return EXACT[float] if EXACT[float] in kinds else str(*kinds)

    def _convert_plain(self, values: Sequence[Any], rows: _Numbers, path: str, kind: str) -> Any:
        """Convert numbers, text, bytes and times."""
        if kind in ("datetime64", "timedelta64"):
            return self._array(values, rows, path, lambda some: arrow.array(_times(some)))
        # Arrow chooses the type of other kinds, for example the digits of a Decimal.
        wanted = arrow.type_for_alias(kind) if kind in _PLAIN.values() else None
        types = set(map(type, values))
        scalars = types - {type(None)}
        if len(scalars) == 1 and issubclass(scalar := scalars.pop(), np.generic) and kind in (*_NUMBERS, EXACT[bool]):
            if type(None) not in types:
                return arrow.array(np.array(values, scalar))  # converts all in one call, and keeps the dtype
            wanted = arrow.from_numpy_dtype(np.dtype(scalar))
        if kind == EXACT[float] and int in types:  # as float64, if that changes no integer
            _refuse(values, rows, path, _too_large)
            if any(isinstance(value, int) and float(value) != value for value in values):
                raise MixedValuesError(path)
            values = [None if value is None else float(value) for value in values]
        if kind != EXACT[int]:
            return self._array(values, rows, path, lambda some: _array_of(some, wanted))
        try:
            return _array_of(values, wanted)
        except _FAULTS:
            _refuse(values, rows, path, _too_large)
            if any(value is not None and value < 0 for value in values):
                raise MixedValuesError(path) from None
            return arrow.array(values, arrow.uint64())

    def _array(self, values: Sequence[Any], rows: _Numbers, path: str, make: Callable[[Sequence[Any]], Any]) -> Any:
        """Convert values by ``make``. Raises BadValuesError for those that cannot be converted."""
        with suppress(*_FAULTS):
            return make(values)

        def problem(value: Any) -> str | None:
            try:
                make([value])
            except _FAULTS as error:
                is_half = isinstance(error, UnicodeEncodeError)
                reason = "it has half a surrogate pair, which is not a character" if is_half else _first_line(error)
                return f"{_show(value)} cannot be stored: {reason}"
            return None

        _refuse(values, rows, path, problem)
        raise MixedValuesError(path)  # each value fits, but they have no common type

    def _convert_datetimes(self, values: Sequence[Any], rows: _Numbers, path: str) -> Any:
        """Convert times to microseconds (nanoseconds from pandas), with the time zone of the first."""
        present = [value for value in values if value is not None]
        if len({value.tzinfo is None for value in present}) > 1:
            raise MixedValuesError(path)
        zone = None if present[0].tzinfo is None else self._zones.setdefault(path, _zone_of(present[0]))
        unit = "ns" if any(hasattr(value, "nanosecond") for value in values) else "us"
        return self._array(values, rows, path, lambda some: arrow.array(some, arrow.timestamp(unit, tz=zone)))

    def _convert_images(self, values: Sequence[Any], rows: _Numbers, path: str) -> Any:
        """Convert Pillow images to the bytes of PNG or JPEG files."""
        if "/" in path:
            reason = "images in dicts are not supported; give them a column of their own"
            _refuse(values, rows, path, reason)
        files: list[bytes | None] = []
        bad = []
        for place, value in enumerate(values):
            try:
                files.append(None if value is None else image_file(value))
            except IMAGE_FAULTS as error:
                bad.append(BadValue(int(rows[place]), path, f"the image cannot be stored: {_first_line(error)}"))
        if bad:
            raise BadValuesError(bad)
        first = next(value for value in values if value is not None)
        self.images.setdefault(path, image_feature(first))
        return arrow.array(files, arrow.binary())

    def _convert_dicts(self, values: Sequence[Any], rows: _Numbers, path: str, depth: int) -> Any:
        keys = dict.fromkeys(itertools.chain.from_iterable(value for value in values if value is not None))
        if odd := [key for key in keys if not isinstance(key, str) or not is_unicode(key)]:
            reason = f"the key {odd[0]!a:.60} is not {'valid Unicode' if isinstance(odd[0], str) else 'text'}"
            _refuse(values, rows, path, lambda value: reason if any(key in value for key in odd) else None)
        is_null = np.array([value is None for value in values])
        mask = from_numbers(is_null) if is_null.any() else None
        if not keys:
            return arrow.array([None if value is None else {} for value in values], arrow.struct([]))
        fields = [
            self.convert(
                [None if value is None else value.get(key) for value in values], rows, f"{path}/{key}", depth + 1
            )
            for key in keys
        ]
        return arrow.StructArray.from_arrays(fields, names=list(keys), mask=mask)

    def _convert_lists(self, values: Sequence[Any], rows: _Numbers, path: str, depth: int) -> Any:
        lengths = [0 if value is None else len(value) for value in values]
        items = list(itertools.chain.from_iterable(value for value in values if value is not None))
        inner = self.convert(items, np.repeat(np.asarray(rows), lengths), f"{path}[]", depth + 1)
        return make_lists(lengths, inner, np.array([value is None for value in values], np.bool_))

    def _convert_arrays(self, values: Sequence[Any], rows: _Numbers, path: str, depth: int) -> Any:
        """Convert NumPy arrays to fixed-size lists if all have the same shape, otherwise to lists."""
        first = next(value for value in values if value is not None)
        if any(value is not None and (value.dtype != first.dtype or value.ndim != first.ndim) for value in values):
            raise MixedValuesError(path)
        if first.dtype.kind == "O":
            return self._convert_lists(
                [None if value is None else value.tolist() for value in values], rows, path, depth
            )
        if not is_storable(first.dtype):
            reason = f"arrays of dtype {first.dtype} cannot be stored"
            reason = _unknown_type(first) if "bfloat16" in str(first.dtype) else reason
            _refuse(values, rows, path, reason)
        try:
            return self._stack(values, first)
        except _FAULTS as error:
            reason = f"an array of {first.dtype} cannot be stored: {_first_line(error)}"
            return _refuse(values, rows, path, reason)

    def _stack(self, values: Sequence[Any], first: npt.NDArray[Any]) -> Any:
        """Stack arrays of one dtype and number of dimensions in an Arrow array."""
        shapes = {value.shape for value in values if value is not None}
        if len(shapes) == 1 and 0 not in first.shape:
            is_null = np.array([value is None for value in values])
            filler = np.zeros(first.shape, first.dtype)
            stacked = np.stack([filler if value is None else value for value in values])
            return array_column(stacked, mask=is_null if is_null.any() else None)
        flat = array_column(np.concatenate([value.ravel() for value in values if value is not None]))
        for level in reversed(range(1, first.ndim)):
            sizes = np.concatenate(
                [
                    np.full(int(np.prod(value.shape[:level])), value.shape[level])
                    for value in values
                    if value is not None
                ]
            )
            flat = make_lists(sizes, flat)
        is_null = np.array([value is None for value in values])
        return make_lists([0 if value is None else len(value) for value in values], flat, is_null)


def _array_of(values: Sequence[Any], kind: Any) -> Any:
    """Return ``arrow.array(values, kind)``, which imports pandas if it is called, as for dates and bytes."""
    own = set(map(type, values)) - {type(None)}
    if own == {str} and sum(map(len, filter(None, values))) < 2**28:
        return from_texts(values)
    if own in ({bool}, {int}, {float}):
        numbers = np.array([0 if value is None else value for value in values], kind.to_pandas_dtype())
        return from_numbers(numbers, np.array([value is None for value in values]))
    return arrow.array(values, kind)


def _read_special(values: Sequence[Any], rows: _Numbers) -> Sequence[Any]:
    """Read the words for NaN and the infinities, which exports write into lists, beside numbers of the same row."""
    has_number = {int(row) for row, value in zip(rows, values, strict=True) if not isinstance(value, str | None)}
    return [
        float(value) if isinstance(value, str) and value in NAN_WORDS and int(row) in has_number else value
        for row, value in zip(rows, values, strict=True)
    ]


def _json_text(value: Any) -> Any:
    """Convert a value that is not text to JSON text. A value that JSON cannot represent is unchanged."""
    if not isinstance(value, (dict, list, tuple, bool, int, float)):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return value


def array_column(array: npt.NDArray[Any], *, mask: npt.NDArray[Any] | None = None) -> Any:
    """Convert an array, whose first axis is the rows, to a ``pyarrow.Array``. Further axes become fixed-size lists.

    Args:
        array: numbers, booleans, text, bytes or times; an array without Python objects. NumPy drops the NULs at the
            end of text and bytes.
        mask: True for rows that are null.

    Raises:
        ValueError: Arrow has no type for the dtype.

    >>> array_column(np.zeros((5, 2, 3), np.uint8)).type
    FixedSizeListType(fixed_size_list<item: fixed_size_list<item: uint8>[3]>[2])
    """
    if not is_storable(array.dtype):
        raise ValueError("Arrow has no such type")
    if array.dtype.kind == "U" and array.dtype.itemsize and (_characters(array) > _LAST).any():
        raise ValueError("a value is not text: it has a number above that of the last character")
    if array.ndim == 1 and array.dtype.kind in "SU":  # Arrow would cut each value at its first NUL
        return arrow.array(
            array.astype(object), arrow.binary() if array.dtype.kind == "S" else arrow.string(), mask=mask
        )
    if array.ndim == 1:
        return arrow.array(native(array), mask=mask)
    column = array_column(np.ascontiguousarray(array).reshape(-1))
    for size in reversed(array.shape[2:]):
        column = arrow.FixedSizeListArray.from_arrays(column, size)
    return arrow.FixedSizeListArray.from_arrays(
        column, array.shape[1], mask=None if mask is None else arrow.array(mask)
    )


def _characters(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))


def native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert an array to a dtype of Arrow: with the byte order of this machine, and a supported unit of time.

    Raises:
        ValueError: a time does not fit into the unit, or the dtype has no unit.
    """
    dtype = array.dtype
    if dtype.kind in "mM":
        unit = _UNIT.get(np.datetime_data(dtype)[0], "ns")
        unit = "s" if unit == "D" and dtype.kind == "m" else unit
        converted = array.astype(f"{dtype.kind}8[{unit}]", copy=False)
        # NumPy wraps around beyond the range of the unit, and truncates picoseconds.
        if converted is not array and (converted.astype(dtype).view(np.int64) != array.view(np.int64)).any():
            raise ValueError(f"a time does not fit into 64 bits of the unit {unit}")
        return converted
    return array.astype(dtype.newbyteorder("="), copy=False)


def _times(values: Iterable[Any]) -> npt.NDArray[Any]:
    """Put datetime64 or timedelta64 values into one array. None becomes NaT, which Arrow reads as null."""
    known = [value for value in values if value is not None]
    array = np.array(known)
    place = iter(native(array))
    return np.array([np.array("NaT", native(array).dtype) if value is None else next(place) for value in values])


def _zone_of(value: dt.datetime) -> str:
    """Return the name of the zone in Arrow's notation, or ``+02:00`` for an offset."""
    name = getattr(value.tzinfo, "key", None) or getattr(value.tzinfo, "zone", None)
    offset = value.utcoffset()
    if name is not None or offset is None:
        return str(name or value.tzinfo)
    if not offset:
        return "UTC"
    minutes = abs(offset) // dt.timedelta(minutes=1)
    return f"{'-' if offset < dt.timedelta() else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def _refuse(values: Sequence[Any], rows: _Numbers, path: str, problem: str | Callable[[Any], str | None]) -> None:
    """Raise BadValuesError for the values, other than None, for which there is a problem."""
    bad = []
    for row, value in zip(rows, values, strict=True):
        reason = None if value is None else problem if isinstance(problem, str) else problem(value)
        if reason is not None:
            bad.append(BadValue(int(row), path, reason))
    if bad:
        raise BadValuesError(bad)


def _too_large(value: Any) -> str | None:
    """Describe the fault of an integer that needs more than 64 bits."""
    if not isinstance(value, int) or -(2**63) <= value < 2**64:
        return None
    return f"{_show(value)} cannot be stored: it does not fit into 64 bits"


def _unknown_type(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    if "bfloat16" in str(dtype):
        return "bfloat16 cannot be stored in a table; convert it to float32, which changes no value"
    return f"values of the type {type(value).__name__} cannot be stored; convert them to text, numbers or bytes"


def _show(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 (repr is code of the caller; that of datetime64 without a unit fails, too)
        return f"a value of the type {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]
