"""Places of values in a source, and values as short texts for messages. Inference and conversion use both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import RegistryError, SourceError
from registry.escaping import printable
from registry.shards.arrow_values import import_pyarrow, plain_array
from registry.splits import counted

Place: TypeAlias = tuple[str, int]
"""The name of a part and a line. Places are compared, so that the first place does not depend on the order of parts."""

MAX_SHOWN: Final = 40

NAN_WORDS: Final = ("nan", "inf", "-inf")
"""The words that exports to JSON write for NaN and the infinities, which JSON does not have."""


def show_place(place: Place) -> str:
    """Format ``place`` for messages.

    >>> show_place(("data/a.csv", 17))
    'data/a.csv:17'
    """
    return f"{place[0]}:{place[1]}"


def quote(text: str, most: int = MAX_SHOWN) -> str:
    r"""Return at most ``most`` characters of ``text`` in double quotes, on one line.

    >>> quote("a\n" + 50 * "b", 8)
    '"a\\nbbbbb…"'
    """
    shown = text if len(text) <= most else text[: most - 1] + "…"
    return printable(json.dumps(shown, ensure_ascii=False))


def show_value(value: Any) -> str:
    """Format a value of an Arrow column: text in quotes, bytes as their number, and other values as Python prints them.

    >>> show_value("007"), show_value(b"abc"), show_value([1, 2]), show_value(True), show_value(1.0)
    ('"007"', '3 bytes', '[1, 2]', 'true', '1.0')
    """
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bytes):
        return counted(len(value), "byte")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return _shorten(f"[{', '.join(map(show_value, value[:8]))}{', …' if len(value) > 8 else ''}]")
    if isinstance(value, dict):
        listing = ", ".join(f"{name}: {show_value(inner)}" for name, inner in list(value.items())[:8])
        return _shorten(f"{{{listing}{', …' if len(value) > 8 else ''}}}")
    return _shorten("null" if value is None else str(value))


def _shorten(text: str) -> str:
    text = printable(text.replace("\n", " "))
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode ``text``: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def list_names(names: Sequence[str], num_names: int | None = None) -> str:
    """List the first names and the number of the others. ``num_names`` is the total if ``names`` are not all.

    >>> list_names(["a", "b", "c", "d", "e", "f"]), list_names(["a"], 3)
    ("'a', 'b', 'c', 'd', 'e' and 1 more", "'a' and 2 more")
    """
    num_others = (len(names) if num_names is None else num_names) - len(names[:_MOST_LISTED])
    return ", ".join(map(repr, names[:_MOST_LISTED])) + (f" and {num_others:,} more" if num_others else "")


_MOST_LISTED: Final = 5


def python_value(array: Any, index: int) -> Any:
    """Return the value at ``index`` as a Python object.

    A time that Python cannot represent, such as one in the year 20000 or in an unknown zone, becomes the number of its
    units, and text that is not UTF-8 becomes bytes.
    """
    arrow = import_pyarrow()
    try:
        return array[index].as_py()
    except (ValueError, LookupError, ArithmeticError, arrow.ArrowException):
        row = array.slice(index, 1)
    kind = row.type
    if arrow.types.is_temporal(kind) and kind.bit_width in (32, 64):
        return row.view(arrow.int32() if kind.bit_width == 32 else arrow.int64())[0].as_py()
    if arrow.types.is_string(kind) or arrow.types.is_large_string(kind):
        return row.cast(arrow.binary() if arrow.types.is_string(kind) else arrow.large_binary())[0].as_py()
    return f"a value of {kind}"


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
    except (import_pyarrow().ArrowException, *more) as error:
        told = str(error).partition("\n")[0][:200]
        raise SourceError(
            f"column {name!r}: values of the type {kind!s:.200} cannot be stored: {told}",
            hint="Before you add the column, give it another type, such as text, or leave it out.",
            details={"column": name, "type": str(kind)[:200], "reason": told},
        ) from error


def first_of(mask: Any, *, value: bool) -> int | None:
    """Return the index of the first ``value`` in an Arrow array of booleans, or None."""
    index: int = import_pyarrow().compute.index(mask, value).as_py()
    return None if index < 0 else index


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
    arrow = import_pyarrow()
    try:
        return convert(array)
    except (arrow.ArrowException, ValueError, LookupError, ArithmeticError):
        if len(array) < 2:
            return refuse(array)
    middle = len(array) // 2
    first, faults = in_halves(array.slice(0, middle), convert, refuse)
    second, more = in_halves(array.slice(middle), convert, refuse)
    return arrow.concat_arrays([first, second]), faults | {middle + index: fault for index, fault in more.items()}


def column_array(table: Any, name: str) -> Any:
    """Return a column as one array, without extension types and dictionaries; all null if the column is missing."""
    place = table.schema.get_field_index(name)
    if place < 0:
        return import_pyarrow().nulls(table.num_rows)
    column = table.column(place)
    array = plain_array(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))
    arrow = import_pyarrow()
    return arrow.compute.run_end_decode(array) if arrow.types.is_run_end_encoded(array.type) else array


def as_mask(mask: Any) -> npt.NDArray[np.bool_]:
    """Convert an Arrow array of booleans to a new array. A null counts as false."""
    result: npt.NDArray[np.bool_] = mask.fill_null(fill_value=False).to_numpy(zero_copy_only=False).copy()
    return result
