"""Converts Python values to Arrow columns: the values of rows that are dicts, and of columns of objects.

``object_rows`` and ``object_tables`` call it block by block. A value that contradicts earlier values of its column is
reported with its row, so that the type of a column never depends on how the rows were cut into blocks.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import require_extra
from registry.features import Feature, Image
from registry.features import Sequence as SequenceFeature
from registry.intake.pillow_images import IMAGE_FAULTS, image_feature, image_file
from registry.intake.python_kinds import KINDS, is_storable, kind_of, plain_values

MAX_SHOWN: Final = 40
"""The most characters of a value that a message shows."""

_Numbers: TypeAlias = "Sequence[int] | npt.NDArray[Any]"
_NUMBERS: Final = frozenset({"int", "float"})
_LAST: Final = 0x10FFFF
"""The last character of Unicode."""
_UNIT: Final = {"Y": "D", "M": "D", "W": "D", "D": "D", "h": "s", "m": "s", "s": "s", "ms": "ms", "us": "us"}
"""The unit that Arrow has for a unit of NumPy; others become nanoseconds."""


class BadValue(NamedTuple):
    """A value that cannot be stored: its row, the path of its column, and what is wrong."""

    row: int
    path: str
    reason: str


class BadValuesError(Exception):
    """Some values of a block cannot be stored; the caller leaves their rows out and converts the others."""

    def __init__(self, bad: Sequence[BadValue]) -> None:
        super().__init__(f"{len(bad)} values cannot be stored")
        self.bad = bad


@dataclass(slots=True)
class _Seen:
    """What the earlier values of a column were.

    Attributes:
        kind: the kind of the first value.
        row: the row of the first value.
        zone: for times with a zone, the zone of the first.
    """

    kind: str
    row: int
    zone: str | None = None


class ValueConverter:
    """Converts the values of one pass over rows. It remembers the kind of each column.

    Attributes:
        images: the features of the columns that hold images, by path; ``[]`` after a path are the items of its lists.

    >>> converter = ValueConverter()
    >>> converter.convert([{"x": 1}, {"x": 2}], [1, 2], "point").to_pylist()
    [{'x': 1}, {'x': 2}]
    """

    def __init__(self, texts: Collection[str] = ()) -> None:
        """``texts`` are the columns in which a dict or list becomes JSON text."""
        with require_extra("arrow", package="pyarrow", needed_for="adding objects of Python"):
            import pyarrow as pa
        self._texts = frozenset(texts)
        self._arrow = pa
        self._faults = (pa.ArrowException, OverflowError, TypeError, UnicodeError, ValueError)
        self._seen: dict[str, _Seen] = {}
        self.images: dict[str, Image] = {}

    def hints(self) -> dict[str, Feature]:
        """The features of the columns that hold images or lists of images."""
        found: dict[str, Feature] = {}
        for path, image in self.images.items():
            name = path.rstrip("[]")
            feature: Feature = image
            for _ in range((len(path) - len(name)) // 2):
                feature = SequenceFeature(feature)
            found[name] = feature
        return found

    def convert(self, values: Sequence[Any], rows: _Numbers, path: str) -> Any:
        """A column as a ``pyarrow.Array``; None and the missing values of pandas are null.

        Args:
            values: the values.
            rows: the number of the row of each value, for messages.
            path: the name of the column; inside of it, ``column/key`` and ``column[]``.

        Raises:
            BadValuesError: values differ in kind from the first value of the column, or cannot be stored.
        """
        values = plain_values(values)
        if path in self._texts:
            values = [
                _json_text(one) if isinstance(one, (dict, list, tuple, bool, int, float)) else one for one in values
            ]
        kinds = {kind_of(one) for one in set(map(type, values))} - {None}
        if not kinds:
            return self._arrow.nulls(len(values))
        kind = self._check_kinds(values, rows, path, kinds)
        if kind == "dict":
            return self._convert_dicts(values, rows, path)
        if kind == "list":
            return self._convert_lists(values, rows, path)
        if kind == "array":
            return self._convert_arrays(values, rows, path)
        if kind == "image":
            return self._convert_images(values, rows, path)
        if kind == "datetime":
            return self._convert_datetimes(values, rows, path)
        return self._convert_plain(values, rows, path, kind)

    def _check_kinds(self, values: Sequence[Any], rows: _Numbers, path: str, kinds: set[str | None]) -> str:
        """The kind of all values. Raises BadValuesError for values of another kind than the first."""
        seen = self._seen.get(path)
        if seen is None:
            place, kind = next((place, kind) for place, one in enumerate(values) if (kind := kind_of(type(one))))
            seen = self._seen[path] = _Seen(kind, int(rows[place]))
        if seen.kind not in KINDS:
            raise BadValuesError(
                [
                    BadValue(int(row), path, _unknown_type(one))
                    for row, one in zip(rows, values, strict=True)
                    if one is not None
                ]
            )
        allowed = {seen.kind} | (_NUMBERS if seen.kind in _NUMBERS else set())
        if kinds - allowed:
            raise BadValuesError(
                [
                    BadValue(int(rows[place]), path, _contradiction(seen.kind, seen.row, one, kind))
                    for place, one in enumerate(values)
                    if (kind := kind_of(type(one))) is not None and kind not in allowed
                ]
            )
        return "float" if "float" in kinds else seen.kind if seen.kind not in _NUMBERS else "int"

    def _convert_plain(self, values: Sequence[Any], rows: _Numbers, path: str, kind: str) -> Any:
        """Numbers, text, bytes and times."""
        types = set(map(type, values))
        if kind in ("datetime64", "timedelta64"):
            try:
                return self._arrow.array(_times(values))
            except self._faults:
                return self._find_bad(values, rows, path, None)
        if len(types) == 1 and issubclass(one := types.copy().pop(), np.generic) and kind in ("bool", "int", "float"):
            return self._arrow.array(np.array(values, one))  # in one call, and with the dtype of its values
        if kind == "float" and int in types:
            return self._convert_mixed_numbers(values, rows, path)
        wanted = self._type_of(types - {type(None)}, kind)
        try:
            return self._arrow.array(values, wanted)
        except self._faults:
            if kind == "int" and all(one is None or one >= 0 for one in values):
                with suppress(*self._faults):
                    return self._arrow.array(values, self._arrow.uint64())
            return self._find_bad(values, rows, path, wanted)

    def _convert_mixed_numbers(self, values: Sequence[Any], rows: _Numbers, path: str) -> Any:
        """Integers and floats as float64, if that changes no integer."""
        bad = [
            BadValue(int(rows[place]), path, f"the integer {_show(one)} cannot be stored exactly among floats")
            for place, one in enumerate(values)
            if isinstance(one, int) and (abs(one) > 2**1000 or float(one) != one)
        ]
        if bad:
            raise BadValuesError(bad)
        return self._arrow.array([None if one is None else float(one) for one in values], self._arrow.float64())

    def _type_of(self, types: set[type], kind: str) -> Any:
        """The Arrow type for values of a kind; None lets Arrow choose, such as the digits of a Decimal."""
        pa = self._arrow
        if kind in ("int", "float"):
            if len(types) == 1 and issubclass(one := types.copy().pop(), np.generic):
                return pa.from_numpy_dtype(np.dtype(one))
            return pa.float64() if kind == "float" else pa.int64()
        return {
            "bool": pa.bool_(),
            "str": pa.string(),
            "bytes": pa.binary(),
            "date": pa.date32(),
            "time": pa.time64("us"),
            "timedelta": pa.duration("us"),
        }.get(kind)

    def _find_bad(self, values: Sequence[Any], rows: _Numbers, path: str, wanted: Any) -> NoReturn:
        """Raise BadValuesError for the values that cannot be converted."""
        bad = []
        for place, one in enumerate(values):
            try:
                self._arrow.array(_times([one]) if isinstance(one, (np.datetime64, np.timedelta64)) else [one], wanted)
            except self._faults as error:
                problem = "it does not fit into 64 bits" if isinstance(one, int) else _first_line(error)
                bad.append(BadValue(int(rows[place]), path, f"{_show(one)} cannot be stored: {problem}"))
        if not bad:  # each fits, and together they do not, such as a negative number and one above 2**63
            reason = f"the values have no common type: {_show(values[0])} ... {_show(values[-1])}"
            bad = [BadValue(int(rows[place]), path, reason) for place in range(len(values))]
        raise BadValuesError(bad)

    def _convert_datetimes(self, values: Sequence[Any], rows: _Numbers, path: str) -> Any:
        """Times, in microseconds (nanoseconds from pandas), with the time zone of the first."""
        seen = self._seen[path]
        zones = {None if one is None else one.tzinfo is not None for one in values} - {None}
        if seen.zone is None:  # the first value of the column is in this block
            first = next(one for one in values if one is not None)
            seen.zone = _zone_of(first)
        if zones != {seen.zone != ""}:
            expected, found = ("with", "without") if seen.zone else ("without", "with")
            reason = f"expected a datetime {expected} a time zone, as in row {seen.row}, found one {found}"
            raise BadValuesError(
                [
                    BadValue(int(rows[place]), path, reason)
                    for place, one in enumerate(values)
                    if one is not None and (one.tzinfo is not None) != (seen.zone != "")
                ]
            )
        unit = "ns" if any(hasattr(one, "nanosecond") for one in values) else "us"
        wanted = self._arrow.timestamp(unit, tz=seen.zone or None)
        try:
            return self._arrow.array(values, wanted)
        except self._faults:
            return self._find_bad(values, rows, path, wanted)

    def _convert_images(self, values: Sequence[Any], rows: _Numbers, path: str) -> Any:
        """Pillow images, as the bytes of PNG or JPEG files."""
        files: list[bytes | None] = []
        bad = []
        for place, one in enumerate(values):
            try:
                files.append(None if one is None else image_file(one))
            except IMAGE_FAULTS as error:
                bad.append(BadValue(int(rows[place]), path, f"the image cannot be stored: {_first_line(error)}"))
        if "/" in path:
            reason = "images in dicts are not supported; give them a column of their own"
            bad = [BadValue(int(row), path, reason) for row in rows]
        if bad:
            raise BadValuesError(bad)
        first = next(one for one in values if one is not None)
        self.images.setdefault(path, image_feature(first))
        return self._arrow.array(files, self._arrow.binary())

    def _convert_dicts(self, values: Sequence[Any], rows: _Numbers, path: str) -> Any:
        keys = dict.fromkeys(itertools.chain.from_iterable(one for one in values if one is not None))
        if odd := [key for key in keys if not isinstance(key, str)]:
            raise BadValuesError(
                [
                    BadValue(int(row), path, f"the key {_show(odd[0])} is not text")
                    for row, one in zip(rows, values, strict=True)
                    if one is not None and any(key in one for key in odd)
                ]
            )
        if not keys:
            raise BadValuesError([BadValue(int(row), path, "the dict is empty") for row in rows])
        fields = [
            self.convert([None if one is None else one.get(key) for one in values], rows, f"{path}/{key}")
            for key in keys
        ]
        is_null = np.array([one is None for one in values])
        mask = self._arrow.array(is_null) if is_null.any() else None
        return self._arrow.StructArray.from_arrays(fields, names=list(keys), mask=mask)

    def _convert_lists(self, values: Sequence[Any], rows: _Numbers, path: str) -> Any:
        lengths = [0 if one is None else len(one) for one in values]
        items = list(itertools.chain.from_iterable(one for one in values if one is not None))
        inner = self.convert(items, np.repeat(np.asarray(rows), lengths), f"{path}[]")
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        is_null = np.array([one is None for one in values])
        mask = self._arrow.array(is_null) if is_null.any() else None
        return self._arrow.ListArray.from_arrays(self._arrow.array(offsets), inner, mask=mask)

    def _convert_arrays(self, values: Sequence[Any], rows: _Numbers, path: str) -> Any:
        """NumPy arrays: fixed-size lists if all have one shape, otherwise lists."""
        first = next(one for one in values if one is not None)
        bad = [
            BadValue(int(rows[place]), path, f"expected {_form(first)}, found {_form(one)}")
            for place, one in enumerate(values)
            if one is not None and (one.dtype != first.dtype or one.ndim != first.ndim)
        ]
        if bad:
            raise BadValuesError(bad)
        if not is_storable(first.dtype):
            if first.dtype.kind == "O":
                return self._convert_lists([None if one is None else one.tolist() for one in values], rows, path)
            reason = f"arrays of dtype {first.dtype} cannot be stored"
            reason = _unknown_type(first) if "bfloat16" in str(first.dtype) else reason
            raise BadValuesError([BadValue(int(row), path, reason) for row in rows])
        try:
            return self._stack(values, first)
        except self._faults as error:
            reason = f"an array of {first.dtype} cannot be stored: {_first_line(error)}"
            raise BadValuesError([BadValue(int(row), path, reason) for row in rows]) from error

    def _stack(self, values: Sequence[Any], first: npt.NDArray[Any]) -> Any:
        """Arrays of one dtype and number of dimensions, in one Arrow array."""
        shapes = {one.shape for one in values if one is not None}
        if len(shapes) == 1 and 0 not in first.shape:
            is_null = np.array([one is None for one in values])
            filler = np.zeros(first.shape, first.dtype)
            stacked = np.stack([filler if one is None else one for one in values])
            return array_column(stacked, mask=is_null if is_null.any() else None)
        flat = array_column(np.concatenate([one.ravel() for one in values if one is not None]))
        for level in reversed(range(1, first.ndim)):
            sizes = np.concatenate(
                [np.full(int(np.prod(one.shape[:level])), one.shape[level]) for one in values if one is not None]
            )
            flat = self._lists(sizes, flat)
        return self._lists([0 if one is None else len(one) for one in values], flat, [one is None for one in values])

    def _lists(self, sizes: Any, values: Any, is_null: Sequence[bool] = ()) -> Any:
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        mask = self._arrow.array(np.array(is_null)) if any(is_null) else None
        return self._arrow.ListArray.from_arrays(self._arrow.array(offsets), values, mask=mask)


def _json_text(value: Any) -> Any:
    """A value that is not text as JSON text; unchanged if JSON cannot hold it."""
    if not isinstance(value, (dict, list, tuple, bool, int, float)):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return value


def array_column(array: npt.NDArray[Any], *, mask: npt.NDArray[Any] | None = None) -> Any:
    """An array whose first axis is the rows, as a ``pyarrow.Array``; further axes become fixed-size lists.

    Args:
        array: numbers, booleans, text, bytes or times; an array without Python objects. NumPy drops the NULs at the
            end of text and bytes.
        mask: which rows are null.

    Raises:
        ValueError: Arrow has no type for the dtype.

    >>> array_column(np.zeros((5, 2, 3), np.uint8)).type
    FixedSizeListType(fixed_size_list<item: fixed_size_list<item: uint8>[3]>[2])
    """
    with require_extra("arrow", package="pyarrow", needed_for="adding arrays"):
        import pyarrow as pa

    if not is_storable(array.dtype):
        raise ValueError("Arrow has no such type")
    if array.dtype.kind == "U" and array.dtype.itemsize and (_characters(array) > _LAST).any():
        raise ValueError("a value is not text: it has a number above that of the last character")
    if array.ndim == 1 and array.dtype.kind in "SU":  # Arrow would end each value at its first NUL
        return pa.array(array.astype(object), pa.binary() if array.dtype.kind == "S" else pa.string(), mask=mask)
    if array.ndim == 1:
        return pa.array(native(array), mask=mask)
    column = array_column(np.ascontiguousarray(array).reshape(-1))
    for size in reversed(array.shape[2:]):
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return pa.FixedSizeListArray.from_arrays(column, array.shape[1], mask=None if mask is None else pa.array(mask))


def _characters(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))


def native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array in a dtype that Arrow has: the byte order of this machine, and a unit of time that Arrow knows.

    Raises:
        ValueError: the unit does not hold a time, or the time has no unit.
    """
    dtype = array.dtype
    if dtype.kind in "mM":
        unit = _UNIT.get(np.datetime_data(dtype)[0], "ns")
        unit = "s" if unit == "D" and dtype.kind == "m" else unit
        converted = array.astype(f"{dtype.kind}8[{unit}]", copy=False)
        # Beyond the range of the unit, NumPy wraps around, and it cuts picoseconds.
        if converted is not array and (converted.astype(dtype).view(np.int64) != array.view(np.int64)).any():
            raise ValueError(f"a time does not fit into 64 bits of the unit {unit}")
        return converted
    return array.astype(dtype.newbyteorder("="), copy=False)


def _times(values: Iterable[Any]) -> npt.NDArray[Any]:
    """datetime64 or timedelta64 values in one array; None becomes NaT, which Arrow reads as null."""
    known = [one for one in values if one is not None]
    array = np.array(known)
    place = iter(native(array))
    return np.array([np.array("NaT", native(array).dtype) if one is None else next(place) for one in values])


def _zone_of(value: dt.datetime) -> str:
    """The name of the zone as Arrow writes it, or ``+02:00`` for an offset; empty if the time has no zone."""
    if value.tzinfo is None:
        return ""
    name = getattr(value.tzinfo, "key", None) or getattr(value.tzinfo, "zone", None)
    offset = value.utcoffset()
    if name is not None or offset is None:
        return str(name or value.tzinfo)
    if not offset:
        return "UTC"
    minutes = abs(offset) // dt.timedelta(minutes=1)
    return f"{'-' if offset < dt.timedelta() else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def _contradiction(expected: str, row: int, value: Any, found: str) -> str:
    return f"expected {expected}, as in row {row}, found {found} {_show(value)}".rstrip()


def _unknown_type(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    if "bfloat16" in str(dtype):
        return "bfloat16 cannot be stored in a table; convert it to float32, which changes no value"
    return f"values of the type {type(value).__name__} cannot be stored; convert them to text, numbers or bytes"


def _form(array: npt.NDArray[Any]) -> str:
    return f"an array of {array.dtype} with {array.ndim} dimension{'s' if array.ndim != 1 else ''}"


def _show(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 (repr is code of the caller; that of datetime64 without a unit fails, too)
        return f"a value of the type {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]
