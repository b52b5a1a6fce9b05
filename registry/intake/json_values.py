"""Finds the types of parsed JSON values and makes Arrow tables of them, without losing a digit.

The reader of JSON uses it for the rows in which pyarrow meets a new key, another type or a fault. Rows whose types
exclude each other, such as text and a number under one key, become separate tables; inference reports them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NoReturn, TypeAlias

from registry.shards.arrow_values import import_pyarrow

MIXED_LIST: Final = "a list mixes values of incompatible types"
MAX_DEPTH: Final = 64
"""Most objects and lists inside each other, the row included."""

# Numbers are a set of these bits: what the values of a column have among them.
_INTEGER: Final = 1
_NEGATIVE: Final = 2
_INEXACT: Final = 4  # integers beyond 2**53, which a float64 does not hold exactly
_UNSIGNED: Final = 8  # integers beyond the int64
_FLOAT: Final = 16

Kind: TypeAlias = "int | str | tuple[str, Any]"
"""The type of values: bits of numbers, ``null``, ``bool``, ``text``, ``("list", Kind)`` or ``("object", fields)``.

The fields are pairs of a name and a ``Kind``, in the order in which they first appear.
"""


class BadValueError(Exception):
    """A row that cannot be used: the reason, the column if it is known, and the place in the text of a syntax error."""

    def __init__(self, reason: str, *, column: str | None = None, place: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.column = column
        self.place = place


def parse_object(text: str) -> dict[str, Any]:
    """Parse the JSON object of one row.

    Raises:
        BadValueError: it is not JSON, or not an object; a key occurs twice; or a number is NaN or infinite.
    """
    value = parse_value(text)
    if not isinstance(value, dict):
        raise BadValueError(f"expected an object, found {_word(value)}")
    return value


def parse_value(text: str) -> Any:
    """Parse JSON. Raises the errors of ``parse_object``, but any value may be at the top."""
    try:
        value: Any = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise BadValueError(f"is not JSON: {error.msg}", place=error.pos) from error
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:  # an integer of thousands of digits
        raise BadValueError("contains an integer that does not fit in 64 bits") from error
    return value


def texts_of(text: str) -> Iterator[tuple[str, str]]:
    """The keys of a JSON object that ``parse_object`` accepts, each with its value as it is written."""
    at = _SPACE.match(text, text.index("{") + 1).end()  # type: ignore[union-attr]  # it matches everywhere
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        at = _COLON.match(text, at).end()  # type: ignore[union-attr]
        _, end = _DECODER.raw_decode(text, at)
        yield key, text[at:end]
        at = _COMMA.match(text, end).end()  # type: ignore[union-attr]


def _pair(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise BadValueError(f"the key {key!r:.80} occurs twice in an object")
            seen.add(key)
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise BadValueError(f"{text} is not a number in JSON; write null, or a text")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_pair, parse_constant=_refuse_constant)


_SPACE: Final = re.compile(r"\s*")
_COLON: Final = re.compile(r"\s*:\s*")
_COMMA: Final = re.compile(r"\s*,?\s*")


def _word(value: object) -> str:
    if value is None:
        return "null"
    words = {str: "a text", bool: "a bool", list: "a list", dict: "an object"}
    return words.get(type(value), "a number")


def kind_of(value: Any, column: str, depth: int = 1) -> Kind:
    """The type of a parsed value. Raises BadValueError if Arrow cannot hold it; ``column`` is for the message."""
    if value is None:
        return "null"
    if isinstance(value, str):
        if not value.isascii():
            _check_text(value, column)
        return "text"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return _kind_of_integer(value, column)
    if isinstance(value, float):
        if value - value != 0:
            raise BadValueError("a number is too large for a float of 64 bits", column=column)
        return _FLOAT
    if depth >= MAX_DEPTH:
        raise _too_deep(column)
    if isinstance(value, dict):
        for key in value:
            if not key.isascii():
                _check_text(key, column)
        return "object", tuple((key, kind_of(inner, column, depth + 1)) for key, inner in value.items())
    merged: Kind = "null"
    for inner in value:
        both = merge(merged, kind_of(inner, column, depth + 1))
        if both is None:
            raise BadValueError(MIXED_LIST, column=column)
        merged = both
    return "list", merged


def _kind_of_integer(value: int, column: str) -> Kind:
    if -(2**53) <= value <= 2**53:
        return _INTEGER if value >= 0 else _INTEGER | _NEGATIVE
    if not -(2**63) <= value < 2**64:
        raise BadValueError(f"the integer {value!s:.40} does not fit in 64 bits", column=column)
    if value >= 2**63:
        return _INTEGER | _INEXACT | _UNSIGNED
    return _INTEGER | _INEXACT | (_NEGATIVE if value < 0 else 0)


def _check_text(text: str, column: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadValueError("a text has half a surrogate pair, which is not a character", column=column) from error


def _too_deep(column: str | None = None) -> BadValueError:
    return BadValueError(f"more than {MAX_DEPTH} levels of objects and lists in one value", column=column)


@lru_cache(maxsize=4096)
def merge(one: Kind, other: Kind) -> Kind | None:
    """The type that holds the values of both exactly, or None if no type does."""
    if other in (one, "null"):
        return one
    if one == "null":
        return other
    if isinstance(one, int) and isinstance(other, int):
        bits = one | other
        loses = (bits & _FLOAT and bits & _INEXACT) or (bits & _UNSIGNED and bits & _NEGATIVE)
        return None if loses else bits
    if isinstance(one, str) or isinstance(other, str) or isinstance(one, int) or isinstance(other, int):
        return None
    if one[0] != other[0]:
        return None
    if one[0] == "list":
        inner = merge(one[1], other[1])
        return None if inner is None else ("list", inner)
    fields = dict(one[1])
    return ("object", tuple(fields.items())) if merge_fields(fields, other[1]) is None else None


def merge_fields(fields: dict[str, Kind], others: Iterable[tuple[str, Kind]]) -> str | None:
    """Merge ``others`` into ``fields``; return the first name whose types exclude each other, or None."""
    for name, kind in others:
        known = fields.get(name)
        both = kind if known is None else merge(known, kind)
        if both is None:
            return name
        if both != known:
            fields[name] = both
    return None


def arrow_type(kind: Kind) -> Any:
    """The Arrow type of values of this kind."""
    arrow = import_pyarrow()
    if isinstance(kind, int):
        return arrow.float64() if kind & _FLOAT else arrow.uint64() if kind & _UNSIGNED else arrow.int64()
    if isinstance(kind, str):
        return {"null": arrow.null(), "bool": arrow.bool_(), "text": arrow.string()}[kind]
    if kind[0] == "list":
        return arrow.list_(arrow_type(kind[1]))
    return arrow.struct([(name, arrow_type(inner)) for name, inner in kind[1]])


def count_leaves(fields: Iterable[Kind]) -> int:
    """The number of columns and of fields in them, a measure of the memory of a row."""
    total = 0
    for kind in fields:
        inner = kind
        while isinstance(inner, tuple) and inner[0] == "list":
            inner = inner[1]
        total += 1 + (count_leaves(one for _, one in inner[1]) if isinstance(inner, tuple) else 0)
    return total


@dataclass(slots=True)
class Run:
    """Consecutive rows whose types fit one table.

    Attributes:
        fields: the type of each column.
        rows: the parsed rows.
        places: what the caller keeps of each row, such as its number.
    """

    fields: dict[str, Kind] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)

    def make_table(self) -> Any:
        """The rows as a ``pyarrow.Table``."""
        arrow = import_pyarrow()
        if not self.fields:  # rows without any key
            return arrow.Table.from_struct_array(arrow.array([{}] * len(self.rows), arrow.struct([])))
        types = {name: arrow_type(kind) for name, kind in self.fields.items()}
        return arrow.table(
            {name: arrow.array([row.get(name) for row in self.rows], kind) for name, kind in types.items()}
        )


def split_runs(rows: Iterable[tuple[int, dict[str, Any], dict[str, Kind]]]) -> Iterator[Run]:
    """Yield parsed rows in runs; each row has its place and the types of its values."""
    run = Run()
    for place, row, kinds in rows:
        before = run.fields.copy() if run.rows else run.fields
        if merge_fields(run.fields, kinds.items()) is not None:
            run.fields = before
            yield run
            run = Run(fields=dict(kinds))
        run.rows.append(row)
        run.places.append(place)
    if run.rows:
        yield run
