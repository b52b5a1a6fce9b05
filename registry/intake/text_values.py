"""Parses text as the numbers, booleans and times that a schema requires. ``conversion`` calls it.

inferred   a text must be what programs print for a number: 007, +1 and 1e5 do not fit int64 or float64
requested  a text is parsed as numbers are usually written: 007, +1, 1e5, .5, nan; TRUE and 1 are booleans
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.intake.text_types import PLAIN_NUMBER, inexact_decimals
from registry.intake.value_types import name_type
from registry.intake.values import quote
from registry.shards.arrow_values import import_pyarrow

Faults = dict[int, str]

_INTEGERS: Final = {False: r"^-?(0|[1-9][0-9]*)$", True: r"^[+-]?[0-9]+$"}
_FLOATS: Final = {
    False: PLAIN_NUMBER,
    True: r"^[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|(?i:inf|infinity|nan))$",
}
_INFINITE: Final = r"^[+-]?(?i:inf|infinity)$"
_TRUE: Final = {False: ("true", "True"), True: ("true", "True", "TRUE", "1")}
_FALSE: Final = {False: ("false", "False"), True: ("false", "False", "FALSE", "0")}
_CLOCK: Final = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?$"
_ISO_TIME: Final = r"^([0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?|[0-9]{2}:[0-9]{2}(:.*)?)$"
"""What may be a time in ISO 8601. A whole number, which may be a count of the unit, is not one."""

_COUNT: Final = r"^-?[0-9]{9,}$"
_MOST_DIGITS: Final = 30
_FORMS: Final = {
    "timestamp": "such as 2026-01-31T12:30:00",
    "zoned": "with a time zone, such as 2026-01-31T12:30:00Z",
    "date": "such as 2026-01-31",
    "time": "such as 12:30:00",
}


def parse_texts(texts: Any, kind: Any, *, is_requested: bool, is_exact: bool = False) -> tuple[Any, Faults]:
    """Parse an Arrow array of strings as values of the type ``kind``.

    Args:
        texts: the strings.
        kind: the type.
        is_requested: whether numbers may be written as people write them.
        is_exact: whether decimal numbers with more digits than ``kind`` keeps are faults.

    Returns:
        an array of the same length, and the fault of each text that is not such a value.
    """
    types = import_pyarrow().types
    if types.is_integer(kind):
        return _parse_integers(texts, kind, is_requested)
    if types.is_floating(kind):
        return _parse_floats(texts, kind, is_requested, is_exact)
    if types.is_boolean(kind):
        return _parse_booleans(texts, is_requested)
    if types.is_duration(kind):
        counts, faults = _parse_integers(texts, import_pyarrow().int64(), is_requested)
        return counts.view(kind), {index: f"expected {kind}, found {quote(texts[index].as_py())}" for index in faults}
    if types.is_timestamp(kind):
        return _parse_timestamps(texts, kind)
    if types.is_temporal(kind):
        return _parse_times(texts, kind)
    if types.is_binary(kind):
        return texts.cast(kind), {}
    return _finish(texts, np.ones(len(texts), np.bool_), import_pyarrow().nulls(len(texts), kind), kind)


@dataclass(slots=True)
class IsoTimes:
    """The types of times that every text of a column has in ISO 8601. ``kinds`` is None before the first text."""

    kinds: tuple[Any, ...] | None = None

    def update(self, texts: Any) -> None:
        """Test a block of a column: an Arrow array of strings without nulls, not empty."""
        if any(_misses(part, _ISO_TIME).any() for part in (texts.slice(0, 1), texts)):
            self.kinds = ()
        kinds = _iso_types() if self.kinds is None else self.kinds
        self.kinds = tuple(kind for kind in kinds if not parse_texts(texts, kind, is_requested=True)[1])

    def merge(self, other: IsoTimes) -> None:
        """Add what ``other`` has seen of the same column."""
        if self.kinds is None or other.kinds is None:
            self.kinds = other.kinds if self.kinds is None else self.kinds
        else:
            self.kinds = tuple(kind for kind in self.kinds if kind in other.kinds)

    @property
    def kind(self) -> Any:
        """The first Arrow type that holds all values; None if the column has other texts."""
        return self.kinds[0] if self.kinds else None


def _iso_types() -> tuple[Any, ...]:
    arrow = import_pyarrow()
    stamps = [arrow.timestamp(unit, tz=zone) for unit in ("us", "ns") for zone in (None, "UTC")]
    return (arrow.date32(), arrow.time64("us"), arrow.time64("ns"), *stamps)


def _parse_integers(texts: Any, kind: Any, is_requested: bool) -> tuple[Any, Faults]:
    arrow = import_pyarrow()
    try:
        numbers = texts.cast(kind)
        if numbers.cast(arrow.string()).equals(texts):
            return numbers, {}
    except arrow.ArrowInvalid:
        pass
    bad = _misses(texts, _INTEGERS[is_requested])
    if not is_requested:
        bad |= _as_mask(arrow.compute.equal(texts, "-0"))
    bounds = np.iinfo(kind.to_pandas_dtype())
    # Only texts of the right form are parsed, one by one: some of them are faults, or have a sign or leading zeros.
    parsed: list[int | None] = []
    for index, text in enumerate(texts.to_pylist()):
        number = None if text is None or bad[index] else _parse_integer(text)
        if number is not None and not bounds.min <= number <= bounds.max:
            bad[index], number = True, None
        parsed.append(number)
    return _finish(texts, bad, arrow.array(parsed, kind), kind)


def _parse_integer(text: str) -> int:
    """The number of ``text``. Leading zeros do not count, and Python refuses to parse thousands of digits."""
    sign = -1 if text[0] == "-" else 1
    return sign * int(text.lstrip("+-0")[:_MOST_DIGITS] or "0")


def _parse_floats(texts: Any, kind: Any, is_requested: bool, is_exact: bool) -> tuple[Any, Faults]:
    arrow = import_pyarrow()
    bad = _misses(texts, _FLOATS[is_requested])
    good = _blank(texts, bad)
    if is_exact and good.null_count < len(good):
        valid = np.flatnonzero(_as_mask(good.is_valid()))
        bad[valid[list(inexact_decimals(good.drop_null(), kind))]] = True
        good = _blank(texts, bad)
    numbers = good.cast(arrow.float64()).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        narrow = numbers.astype(kind.to_pandas_dtype())
    is_large = np.isinf(narrow)
    if is_large.any():  # a number that is out of range, unless the text says infinity
        bad |= is_large & _misses(texts, _INFINITE)
    return _finish(texts, bad, arrow.array(narrow, kind, mask=_as_mask(good.is_null())), kind)


def _parse_booleans(texts: Any, is_requested: bool) -> tuple[Any, Faults]:
    arrow = import_pyarrow()
    compute = arrow.compute
    is_true = _as_mask(compute.is_in(texts, value_set=arrow.array(_TRUE[is_requested])))
    is_false = _as_mask(compute.is_in(texts, value_set=arrow.array(_FALSE[is_requested])))
    bad = _as_mask(texts.is_valid()) & ~is_true & ~is_false
    return _finish(texts, bad, arrow.array(is_true, mask=~(is_true | is_false)), arrow.bool_())


def _parse_timestamps(texts: Any, kind: Any) -> tuple[Any, Faults]:
    """Parse ISO 8601, and integers of 9 digits and more as the number of units since 1970.

    Shorter integers may be years and dates: 2026 and 20260131.
    """
    arrow = import_pyarrow()
    try:
        return texts.cast(kind), {}
    except arrow.ArrowInvalid:
        is_count = _as_mask(texts.is_valid()) & ~_misses(texts, _COUNT)
    if not is_count.any():
        return _parse_times(texts, kind)
    times, faults = _parse_times(_blank(texts, is_count), kind)
    counts, more = _parse_integers(_blank(texts, ~is_count), arrow.int64(), is_requested=True)
    more = {index: fault.replace("int64", name_type(str(kind)), 1) for index, fault in more.items()}
    return arrow.compute.coalesce(times, counts.view(kind)), faults | more


def _parse_times(texts: Any, kind: Any) -> tuple[Any, Faults]:
    arrow = import_pyarrow()
    types = arrow.types
    bad = np.zeros(len(texts), np.bool_)
    used, parsed_as = texts, kind
    if types.is_time(kind):  # Arrow parses no times of day
        bad = _misses(texts, _CLOCK)
        used = arrow.compute.binary_join_element_wise("1970-01-01T", _blank(texts, bad), "")
        parsed_as = arrow.timestamp(kind.unit)
    elif types.is_date(kind):
        bad = _misses(texts, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
        used = _blank(texts, bad)

    def parse(start: int, stop: int) -> list[Any]:
        part = used.slice(start, stop - start)
        try:
            return [part.cast(parsed_as)]
        except arrow.ArrowInvalid:
            if stop - start == 1:
                bad[start] = True
                return [arrow.nulls(1, parsed_as)]
        middle = (start + stop) // 2
        return parse(start, middle) + parse(middle, stop)

    parsed = arrow.concat_arrays(parse(0, len(texts)) if len(texts) else [arrow.nulls(0, parsed_as)])
    return _finish(texts, bad, parsed.cast(kind), kind)


def _finish(texts: Any, bad: npt.NDArray[np.bool_], values: Any, kind: Any) -> tuple[Any, Faults]:
    types = import_pyarrow().types
    form = "timestamp" if types.is_timestamp(kind) else "time" if types.is_time(kind) else None
    form = "date" if types.is_date(kind) else "zoned" if form == "timestamp" and kind.tz else form
    expected = name_type(str(kind)) + (f" {_FORMS[form]}" if form else "")
    places = np.flatnonzero(bad).tolist()
    return values, {index: f"expected {expected}, found {quote(texts[index].as_py())}" for index in places}


def _misses(texts: Any, pattern: str) -> npt.NDArray[np.bool_]:
    """Which texts do not match ``pattern``; null matches."""
    matches = import_pyarrow().compute.match_substring_regex(texts, pattern)
    return ~np.asarray(matches.fill_null(fill_value=True).to_numpy(zero_copy_only=False), np.bool_)


def _blank(texts: Any, bad: npt.NDArray[np.bool_]) -> Any:
    """``texts`` with null for the bad ones."""
    arrow = import_pyarrow()
    return texts if not bad.any() else arrow.compute.if_else(arrow.array(bad), None, texts)


def _as_mask(mask: Any) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = mask.fill_null(fill_value=False).to_numpy(zero_copy_only=False).copy()
    return found
