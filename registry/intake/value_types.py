"""Collects the Arrow types of a column of typed values over all rows, and unites them without changing a value.

    null < any type;  int8 < ... < int64;  uint8 < ... < uint64;  integers that float64 holds exactly < float64
    timestamps, times and durations: the finest unit, if it can represent all values;  date32 < date64
    structs: the union of their fields;  lists: the union of their elements
    a value inside of a list that may be null: a list of none or one, ``nullable_type``

Other combinations, such as text and numbers, are a conflict; the error names the place of one value of each type. The
functions at the end help inference and conversion to find values in Arrow arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import RegistryError, SourceError
from registry.intake.source import Place, show_place
from registry.shards.arrow_values import as_mask, as_numbers, from_numbers, import_pyarrow, plain_array, plain_type

arrow: Any = import_pyarrow("adding data")
types: Any = arrow.types
compute: Any = arrow.compute

MAX_FIELDS: Final = 20_000
"""The maximum number of fields in the structs of a column. If there are more, the names are data, such as ids."""

_NULLABLE: Final = "nullable"
_NO_PLACE: Final[Place] = ("\U0010ffff", 0)
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class TypeConflictError(Exception):
    """No type can represent all values of a column. ``path`` is the path of nested values, or empty for the column."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(problem)
        self.path = path
        self.problem = problem


@dataclass(slots=True)
class SeenType:
    """A type that occurs in a column.

    Attributes:
        kind: the Arrow type; None for lists, and for structs.
        first: the first value of this type; ``_NO_PLACE`` if all are null.
        low, high: the bounds of integers, and of times as a number of their units.
        inexact: the first integer that float64 cannot represent.
    """

    kind: Any
    first: Place = _NO_PLACE
    low: int | None = None
    high: int | None = None
    inexact: Place | None = None

    @property
    def has_values(self) -> bool:
        """Whether any value is not null."""
        return self.first != _NO_PLACE


@dataclass(slots=True)
class ValueTypes:
    """The types of the values at a path: of a column, of a field of its structs, or of elements.

    Attributes:
        num_values: the number of values, nulls included.
        num_nulls: the number of nulls. The fields of a null struct are not counted.
        seen: the types, by name; lists of all kinds are one type, ``list``, and structs are ``struct``.
        fields: the fields of structs, by name, each with the key by which fields are ordered.
        element: the elements of lists; None if there are no lists.
        list_sizes: the sizes of fixed-size lists; -1 for lists of any size.
    """

    num_values: int = 0
    num_nulls: int = 0
    seen: dict[str, SeenType] = field(default_factory=dict)
    fields: dict[str, tuple[tuple[Place, int], ValueTypes]] | None = None
    element: ValueTypes | None = None
    list_sizes: set[int] = field(default_factory=set)

    def update(self, array: Any, place_of: Callable[[int], Place]) -> None:
        """Add the values of an array. ``place_of`` returns the place of the value at an index."""
        array = plain_array(array)
        kind = array.type
        self.num_values += len(array)
        self.num_nulls += array.null_count
        if types.is_null(kind):
            return
        if types.is_map(kind):  # a map is a list of pairs
            array = array.cast(arrow.list_(struct_of_map(kind)))
            kind = array.type
        if types.is_struct(kind):
            self._update_struct(array, place_of)
        elif is_list(kind):
            self._update_list(array, place_of)
        else:
            self._update_leaf(array, place_of)

    def _see(self, name: str, kind: Any, array: Any, place_of: Callable[[int], Place]) -> SeenType:
        seen = self.seen.setdefault(name, SeenType(kind))
        seen.first = _earlier(seen.first, array, place_of)
        return seen

    def _update_leaf(self, array: Any, place_of: Callable[[int], Place]) -> None:
        kind = plain_type(array.type)
        seen = self._see(str(kind), kind, array, place_of)
        if array.null_count == len(array):
            return
        if types.is_integer(kind) or (types.is_temporal(kind) and kind.bit_width in (32, 64)):
            bounds = compute.min_max(as_integers(array))
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
            seen.low = low if seen.low is None else min(seen.low, low)
            seen.high = high if seen.high is None else max(seen.high, high)
            if types.is_integer(kind) and not -(2**53) <= low <= high <= 2**53:
                inexact = np.flatnonzero(inexact_integers(array))
                if inexact.size:
                    place = place_of(int(inexact[0]))
                    seen.inexact = min(seen.inexact or place, place)

    def _update_struct(self, array: Any, place_of: Callable[[int], Place]) -> None:
        self.fields = {} if self.fields is None else self.fields
        self._see("struct", None, array, place_of)
        array, place_of = without_nulls(array, place_of)
        start = place_of(0) if len(array) else _NO_PLACE
        for index, (child, values) in enumerate(zip(array.type, array.flatten(), strict=True)):
            order, inner = self.fields.get(child.name, ((start, index), None))
            inner = ValueTypes() if inner is None else inner
            inner.update(values, place_of)
            self.fields[child.name] = (min(order, (start, index)), inner)
        if len(self.fields) > MAX_FIELDS:
            raise TypeConflictError("", f"its structs have more than {MAX_FIELDS:,} different fields")

    def _update_list(self, array: Any, place_of: Callable[[int], Place]) -> None:
        kind = array.type
        self.list_sizes.add(kind.list_size if types.is_fixed_size_list(kind) else -1)
        self._see("list", None, array, place_of)
        self.element = ValueTypes() if self.element is None else self.element
        parents: list[Any] = []

        def place_of_element(index: int) -> Place:
            if not parents:
                parents.append(compute.list_parent_indices(array))
            return place_of(parents[0][index].as_py())

        self.element.update(array.flatten(), place_of_element)

    @property
    def has_parts(self) -> bool:
        """Whether values are lists, structs or null, so that ``list of TYPE`` does not describe them."""
        return self.fields is not None or self.element is not None or self.num_nulls > 0

    def ordered_fields(self) -> list[tuple[str, ValueTypes]]:
        """The fields of the structs, in the order of their first occurrence."""
        result = sorted((self.fields or {}).items(), key=lambda item: (item[1][0], item[0]))
        return [(name, inner) for name, (_, inner) in result]

    def unite(self, column: str, num_rows: int, *, nullable: Collection[str] = ()) -> United:
        """Return the type that represents all values of a column.

        Args:
            column: its name, for errors.
            num_rows: the number of rows, some of which may lack the column.
            nullable: the paths that are known to be nullable.

        Raises:
            TypeConflictError: no type holds all values.
        """
        united = United(nullable=nullable)
        united.kind = self._unite(united, column, num_rows)
        return united

    def _unite(
        self, united: United, path: str, num_values: int = 0, *, is_nested: bool = False, is_in_list: bool = False
    ) -> Any:
        """Return the type of the values at ``path``, of which there are ``num_values`` with those that are missing."""
        # A value that may be null here is stored as a list of zero or one element. A type of the user makes a null an
        # empty list if it is a column of lists of plain values.
        is_plain = self.element is not None and not self.element.has_parts and self.list_sizes == {-1}
        is_wrapped = is_in_list or (self.element is not None and (is_nested or not is_plain or path in united.nullable))
        has_nulls = self.num_nulls > 0 or self.num_values < num_values or (is_wrapped and path in united.nullable)
        used = {name: seen for name, seen in self.seen.items() if seen.has_values} or self.seen
        forms = {"leaf" if seen.kind is not None else name for name, seen in used.items()}
        if len(forms) > 1:
            raise conflict(path, used)
        if forms == {"struct"}:
            # In a null struct outside of lists, every field is null.
            are_missing = has_nulls and not is_wrapped
            num_values = self.num_values + 1 if are_missing else self.num_values - self.num_nulls
            fields = [
                (name, inner._unite(united, f"{path}/{name}", num_values, is_nested=True, is_in_list=is_in_list))
                for name, inner in self.ordered_fields()
            ]
            kind = arrow.struct(fields)
        elif forms == {"list"}:
            element = self.element or ValueTypes()
            size = next(iter(self.list_sizes)) if len(self.list_sizes) == 1 else -1
            kind = arrow.list_(element._unite(united, f"{path}[]", is_nested=True, is_in_list=True), size)
        else:
            kind = self._unite_leaves(united, path, is_nested=is_nested)
            united.nulls += [path] if has_nulls and not is_wrapped else []
        if not (has_nulls and is_wrapped):
            return kind
        united.notes.append(f"{path} may be null")
        return nullable_type(kind)

    def _unite_leaves(self, united: United, path: str, *, is_nested: bool) -> Any:
        leaves = [seen for seen in self.seen.values() if seen.kind is not None]
        kind, note = unite_leaves(path, leaves)
        if types.is_null(kind):
            kind, note = arrow.string(), f"{path} has no values" if is_nested else "every value is null"
        if types.is_decimal(kind):
            united.decimals += [(path.replace("[]", ""), str(kind))] if len(leaves) == 1 else []
            kind, note = arrow.string(), f"{kind} as its exact text"
        united.notes += [note] if note else []
        return kind


@dataclass(slots=True)
class United:
    """A type that represents all values.

    Attributes:
        nullable: the paths that are known to be nullable.
        kind: the Arrow type.
        notes: the types that were widened, for messages.
        nulls: the paths of nulls outside of lists.
        decimals: the paths of decimals, which become text, and their types.
    """

    nullable: Collection[str]
    kind: Any = None
    notes: list[str] = field(default_factory=list)
    nulls: list[str] = field(default_factory=list)
    decimals: list[tuple[str, str]] = field(default_factory=list)


def unite_leaves(path: str, leaves: list[SeenType]) -> tuple[Any, str]:
    """Return the type that represents all ``leaves``, and a note for messages if it is wider than one of them.

    Raises:
        TypeConflictError: no type holds all values.
    """
    if not leaves:
        return arrow.null(), ""
    # A file declares types of columns that are always null. They widen the type if possible, or are ignored.
    used = sorted((leaf for leaf in leaves if leaf.has_values), key=lambda leaf: str(leaf.kind))
    unused = sorted((leaf for leaf in leaves if not leaf.has_values), key=lambda leaf: str(leaf.kind))
    if not used:
        used, unused = unused[:1], unused[1:]
    kind = _unite_used(path, used)
    for one in unused:
        try:
            kind = _unite_used(path, [*used, one])
        except TypeConflictError:
            continue
        used.append(one)
    valued = [leaf for leaf in used if leaf.has_values]
    if len(valued) < 2 or types.is_decimal(kind):
        return kind, ""
    return kind, f"widened to {name_type(str(kind))} at {show_place(max(leaf.first for leaf in valued))}"


def _unite_used(path: str, leaves: list[SeenType]) -> Any:
    kinds = [leaf.kind for leaf in leaves]
    if len(kinds) == 1:
        return kinds[0]
    if all(map(types.is_integer, kinds)):
        return _unite_integers(path, leaves)
    if all(types.is_integer(kind) or types.is_floating(kind) for kind in kinds):
        return _unite_numbers(path, leaves)
    if all(map(types.is_date, kinds)):
        return arrow.date64()
    if all(map(types.is_decimal, kinds)):
        return kinds[0]  # all become text
    families = {_family(kind) for kind in kinds}
    if len(families) == 1 and None not in families:
        return _unite_times(path, leaves)
    raise conflict(path, {str(leaf.kind): leaf for leaf in leaves})


def _unite_integers(path: str, leaves: list[SeenType]) -> Any:
    signed = [leaf for leaf in leaves if types.is_signed_integer(leaf.kind)]
    unsigned = [leaf for leaf in leaves if not types.is_signed_integer(leaf.kind)]
    if not signed or not unsigned:
        return max((leaf.kind for leaf in leaves), key=lambda kind: kind.bit_width)
    bits = max(leaf.kind.bit_width for leaf in unsigned)
    if bits < 64:
        bits = max(2 * bits, *(leaf.kind.bit_width for leaf in signed))
        return arrow.type_for_alias(f"int{bits}")
    if all(leaf.high is None or leaf.high < 2**63 for leaf in unsigned):
        return arrow.int64()
    if all(leaf.low is None or leaf.low >= 0 for leaf in signed):
        return arrow.uint64()
    raise conflict(path, {str(leaf.kind): leaf for leaf in leaves})


def _unite_numbers(path: str, leaves: list[SeenType]) -> Any:
    floats = [leaf.kind for leaf in leaves if types.is_floating(leaf.kind)]
    if len(floats) == len(leaves):
        return max(floats, key=lambda kind: kind.bit_width)
    inexact = min((leaf.inexact for leaf in leaves if leaf.inexact is not None), default=None)
    if inexact is not None:
        first = min(leaf.first for leaf in leaves if types.is_floating(leaf.kind))
        problem = f"the integer at {show_place(inexact)} is not exact as float64, which {show_place(first)} requires"
        raise TypeConflictError(path, problem)
    return arrow.float64()


def _unite_times(path: str, leaves: list[SeenType]) -> Any:
    """Unite times of one family in their finest unit."""
    finest = max((leaf.kind for leaf in leaves), key=lambda kind: _PER_SECOND[kind.unit])
    for leaf in leaves:
        factor = _PER_SECOND[finest.unit] // _PER_SECOND[leaf.kind.unit]
        if leaf.low is not None and leaf.high is not None and max(-leaf.low, leaf.high) * factor >= 2**63:
            told = f"a value of {leaf.kind}, which begins at {show_place(leaf.first)}, is out of range for {finest}"
            raise TypeConflictError(path, told)
    return finest


def _family(kind: Any) -> Any:
    """Return a key that is equal for types of times that differ only in their unit, or None for other types."""
    if types.is_timestamp(kind):
        return "timestamp", kind.tz
    if types.is_time(kind):
        return "time"
    return "duration" if types.is_duration(kind) else None


def conflict(path: str, seen: Mapping[str, SeenType]) -> TypeConflictError:
    """Make the error for values of several types, with the first value of each type, four at most."""
    firsts = sorted((leaf.first, name) for name, leaf in seen.items())[:4]
    *others, last = [f"{name_type(name)} at {show_place(first)}" for first, name in firsts]
    return TypeConflictError(path, f"it is {', '.join(others)}, and {last}")


_COMMON_NAMES: Final = {
    "string": "text",
    "binary": "bytes",
    "double": "float64",
    "float": "float32",
    "halffloat": "float16",
    "date32[day]": "date32",
    "date64[ms]": "date64",
}


def name_type(name: str) -> str:
    """Return the common name of an Arrow type.

    >>> name_type("string"), name_type("double"), name_type("date32[day]"), name_type("int64")
    ('text', 'float64', 'date32', 'int64')
    """
    return _COMMON_NAMES.get(name, name)


def nullable_type(kind: Any) -> Any:
    """Return the list type of zero or one element that stores a value of type ``kind``, or null, inside of a list."""
    return arrow.list_(arrow.field(_NULLABLE, kind))


def is_nullable(kind: Any) -> bool:
    """Whether ``kind`` is a ``nullable_type``."""
    return bool(types.is_list(kind)) and kind.value_field.name == _NULLABLE


def nullable_paths(path: str, kind: Any) -> Iterator[str]:
    """Yield the paths of the nullable types in the type of a column, in the notation ``messages[]/content``."""
    if is_nullable(kind):
        yield path
        yield from nullable_paths(path, kind.value_type)
    elif types.is_struct(kind):
        for child in kind:
            yield from nullable_paths(f"{path}/{child.name}", child.type)
    elif is_list(kind):
        yield from nullable_paths(f"{path}[]", kind.value_type)


def _earlier(first: Place, array: Any, place_of: Callable[[int], Place]) -> Place:
    """Return the earlier of ``first`` and the place of the first value that is not null."""
    if array.null_count == len(array) or first <= place_of(0):
        return first
    return min(first, place_of(first_of(array.is_valid(), value=True) or 0))


def as_integers(array: Any) -> Any:
    """Convert times to the number of their units; integers are unchanged."""
    return array.view(count_type(array.type)) if types.is_temporal(array.type) else array


def count_type(kind: Any) -> Any:
    """Return the integer type for the number of units of times of 32 or 64 bits."""
    return arrow.int32() if kind.bit_width == 32 else arrow.int64()


def inexact_integers(array: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return a mask of the integers of an Arrow array that float64 cannot represent. Nulls count as exact."""
    numbers = as_numbers(array)
    if numbers.itemsize < 8:
        return np.zeros(len(numbers), np.bool_)
    rounded = numbers.astype(np.float64)
    # Float64 rounds it up to 2**63 or 2**64, which is one too many
    is_large = rounded >= float(np.iinfo(numbers.dtype).max)
    inexact: np.ndarray[Any, np.dtype[np.bool_]] = is_large | (
        np.where(is_large, 0.0, rounded).astype(numbers.dtype) != np.where(is_large, 0, numbers)
    )
    return inexact


def is_list(kind: Any) -> bool:
    """Whether ``kind`` is a list of any form."""
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def struct_of_map(kind: Any) -> Any:
    """Return the struct type of the pairs of a map."""
    return arrow.struct([("key", kind.key_type), ("value", kind.item_type)])


def python_value(array: Any, index: int) -> Any:
    """Return the value at ``index`` as a Python object.

    A time that Python cannot represent, such as one in the year 20000 or in an unknown zone, becomes the number of its
    units, and text that is not UTF-8 becomes bytes.
    """
    try:
        return python_values(array.slice(index, 1))[0]
    except (ValueError, LookupError, ArithmeticError, arrow.ArrowException):
        row = array.slice(index, 1)
    kind = row.type
    if types.is_temporal(kind) and kind.bit_width in (32, 64):
        return row.view(arrow.int32() if kind.bit_width == 32 else arrow.int64())[0].as_py()
    if types.is_string(kind) or types.is_large_string(kind):
        return row.cast(arrow.binary() if types.is_string(kind) else arrow.large_binary())[0].as_py()
    return f"a value of {kind}"


def python_values(array: Any) -> list[Any]:
    """Return all values as Python objects, which are the same whether pandas is installed or not.

    Without pandas, ``to_pylist`` refuses times with nanoseconds, and other values print in another form.
    """
    return [_python_object(scalar) for scalar in array] if "[ns" in str(array.type) else array.to_pylist()


def _python_object(scalar: Any) -> Any:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if types.is_struct(kind):
        return {name: _python_object(inner) for name, inner in scalar.items()}
    if types.is_map(kind):
        return [tuple(pair.values()) for pair in python_values(scalar.values)]
    if is_list(kind):
        return python_values(scalar.values)
    if types.is_dictionary(kind):
        return _python_object(scalar.value)
    is_time = types.is_time64(kind)
    if not (is_time or types.is_timestamp(kind) or types.is_duration(kind)) or kind.unit != "ns":
        return scalar.as_py()
    if is_time:  # to microseconds, as pyarrow with pandas
        return scalar.cast(arrow.time64("us"), safe=False).as_py()
    if scalar.value == -(2**63):
        return Nanoseconds("NaT", "NaT")
    if types.is_duration(kind):
        return Nanoseconds.of_duration(scalar.value)
    microseconds, nanoseconds = divmod(scalar.value, 1000)
    moment = from_numbers(np.array([microseconds])).view(arrow.timestamp("us", kind.tz))[0].as_py()
    return Nanoseconds.of_time(moment, nanoseconds) if nanoseconds else moment


@dataclass(frozen=True, slots=True, repr=False)
class Nanoseconds:
    """A time or a duration with nanoseconds, which Python has no type for. It prints as in pandas.

    Keys and texts of versions that were published with pandas have these forms.

    >>> print(Nanoseconds.of_time(datetime(2026, 1, 31, 12), 1), Nanoseconds.of_duration(-1), sep="; ")
    2026-01-31 12:00:00.000000001; -1 days +23:59:59.999999999
    """

    text: str
    iso: str

    @classmethod
    def of_time(cls, moment: datetime, nanoseconds: int) -> Nanoseconds:
        """A time and less than 1,000 nanoseconds more."""
        text = moment.replace(microsecond=0).isoformat(" ")
        text = f"{text[:19]}.{moment.microsecond:06}{nanoseconds:03}{text[19:]}"
        return cls(text, text.replace(" ", "T"))

    @classmethod
    def of_duration(cls, count: int) -> Nanoseconds:
        """A duration of ``count`` nanoseconds."""
        seconds, nanoseconds = divmod(count, 10**9)
        days, seconds = divmod(seconds, 86_400)
        hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
        fraction = f".{nanoseconds:09}" if nanoseconds else ""
        text = (
            f"{days} days {'+' if days < 0 else ''}{hours:02}:{minutes:02}:{seconds:02}{fraction.removesuffix('000')}"
        )
        return cls(text, f"P{days}DT{hours}H{minutes}M{seconds}{fraction.rstrip('0')}S")

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def isoformat(self) -> str:
        """The time or the duration in ISO 8601."""
        return self.iso


@contextmanager
def column_errors(name: str, kind: object, *more: type[BaseException]) -> Iterator[None]:
    """Convert Arrow's errors about the values of a column to SourceErrors that name the column and its type.

    Args:
        name: the column.
        kind: its type.
        more: other exceptions with which a library refuses a type or a value, for blocks that only call this library.
    """
    try:
        yield
    except RegistryError:
        raise
    except (arrow.ArrowException, *more) as error:
        told = str(error).partition("\n")[0][:200]
        raise SourceError(
            f"column {name!r}: values of the type {kind!s:.200} cannot be stored: {told}",
            hint="Before you add the column, give it another type, such as text, or leave it out.",
            details={"column": name, "type": str(kind)[:200], "reason": told},
        ) from error


def first_of(mask: Any, *, value: bool) -> int | None:
    """Return the index of the first ``value`` in an Arrow array of booleans, or None."""
    flags = as_mask(mask if value else compute.invert(mask))
    return int(flags.argmax()) if flags.any() else None


def without_nulls(array: Any, place_of: Callable[[int], Place]) -> tuple[Any, Callable[[int], Place]]:
    """Return the values that are not null, and the function that returns their places."""
    if not array.null_count:
        return array, place_of
    valid = np.flatnonzero(as_mask(array.is_valid()))
    return array.drop_null(), lambda index: place_of(int(valid[index]))


Faults: TypeAlias = dict[int, str]
"""Why a value does not fit, by its index."""

Converted: TypeAlias = tuple[Any, Faults]
"""An Arrow array, and the faults of values that do not fit."""


def in_halves(array: Any, convert: Callable[[Any], Converted], refuse: Callable[[Any], Converted]) -> Converted:
    """Convert a whole array, or if that raises an error, its halves; ``refuse`` converts an array of one value.

    For example, Arrow refuses times in an unknown zone and text that is not UTF-8.
    """
    try:
        return convert(array)
    except (arrow.ArrowException, ValueError, LookupError, ArithmeticError):
        if len(array) < 2:
            return refuse(array)
    middle = len(array) // 2
    first, faults = in_halves(array.slice(0, middle), convert, refuse)
    second, more = in_halves(array.slice(middle), convert, refuse)
    return arrow.concat_arrays([first, second]), faults | {middle + index: fault for index, fault in more.items()}


def make_lists(lengths: Any, values: Any, is_null: npt.NDArray[np.bool_] | None = None) -> Any:
    """Make an Arrow array of lists from their lengths, and from the values of all lists, one list after the other."""
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    mask = from_numbers(is_null) if is_null is not None and is_null.any() else None
    return arrow.ListArray.from_arrays(from_numbers(offsets), values, mask=mask)


def column_array(table: Any, name: str) -> Any:
    """Return a column as one array, without extension types and dictionaries; all null if the column is missing."""
    place = table.schema.get_field_index(name)
    if place < 0:
        return arrow.nulls(table.num_rows)
    column = table.column(place)
    array = plain_array(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))
    return compute.run_end_decode(array) if types.is_run_end_encoded(array.type) else array
