r"""Detects whether all values of a column of text are integers, decimal numbers or booleans; otherwise they stay text.

    int64     -?(0|[1-9][0-9]*), not -0, in 64 bits; uint64 if one needs it and none is negative
    float64   what programs print for floats: 1.5, .5, 6.79e-05, 1E-5, 1e+16, -0, inf, nan; ``_PLAIN_NUMBER`` has all
              forms. One of them is not written as an integer, one is finite, and float64 writes all of them back
    bool      true and false, or True and False

All values are tested, without guessing: "007", "+1", "NA" and "" are text. So is "1e5": programs print that
number as 100000.0 or 1e+05, so it is more likely a code. A type is no longer tested after the first value that
contradicts it. The result does not depend on the order of the parts.

Texts that usually mean null, such as R's "NA", keep a column text, too. They are set aside, so that the reason can say
that all others are numbers.

``parse_texts`` parses the texts strictly, or in the forms that people write:

    inferred   a text must be what programs print for a number: 007, +1 and 1e5 do not fit int64 or float64
    requested  a text is parsed as numbers are usually written: 007, +1, 1e5, .5, nan; TRUE and 1 are booleans
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import spell
from registry.intake.source import Place, quote, show_place
from registry.intake.value_types import Converted, first_of, in_halves, name_type, python_value, without_nulls
from registry.shards.arrow_values import as_mask, as_numbers, from_numbers, from_texts, import_pyarrow

arrow: Any = import_pyarrow("adding data")
types: Any = arrow.types
compute: Any = arrow.compute

_INTEGER: Final = r"^(0|-?[1-9][0-9]*)$"
_PLAIN_NUMBER: Final = "|".join(
    (
        r"^-?((0|[1-9][0-9]*)(\.[0-9]+)?|\.[0-9]+)$",
        r"^-?[0-9]\.[0-9]+[eE][+-]?[0-9]{1,3}$",
        r"^-?[0-9][eE][+-][0-9]{1,3}$",
        r"^-?[0-9][eE](1[6-9]|[2-9][0-9]|[1-9][0-9]{2})$",
        r"^-?(inf|Inf)$",
        r"^(nan|NaN)$",
    )
)
"""The forms in which Python, NumPy, pandas, polars, Arrow, R, Java, Stata and SAS print floats and integers."""

_EXACT_EXPONENT: Final = r"^-?[0-9](\.[0-9]{1,14})?[eE][+-]?[0-9]{1,2}$"
_SCIENTIFIC = re.compile(r"-?[0-9]+(\.[0-9]+)?[eE][+-]?[0-9]+")
_WORDS: Final = (("true", "True", "TRUE"), ("false", "False", "FALSE"))
_SPELLINGS: Final = {f"{true} or {false}": (true, false) for true, false in zip(*_WORDS, strict=True)}
_BOOLEANS: Final = frozenset(word for words in _SPELLINGS.values() for word in words)
NULL_WORDS: Final = (
    "",
    "NA",
    "N/A",
    "n/a",
    "#N/A",
    "<NA>",
    "NULL",
    "Null",
    "null",
    "None",
    "none",
    "nil",
    r"\N",
    ".",
    "-",
    "?",
)
DUMPED_NULL: Final = r"\N"
"""Null in the dumps of MySQL and PostgreSQL. In a column of text, too, it is hardly a text."""

DECIMAL_COMMA: Final = "-?[0-9]+,[0-9]+"
ANY_SEPARATOR: Final = ", sep=None, engine='python', encoding='utf-8-sig'"
"""Arguments of ``pandas.read_csv``, which otherwise keeps a byte order mark if it looks for the separator."""

_EXACT_LENGTH: Final = 15
"""float64 represents decimal numbers of up to this number of digits without a loss, unless the exponent is large."""

_MOST_PRINTED: Final = 17
"""No two numbers of float64 print the same with this number of digits."""

_MOST_KEPT: Final = 200
_FEW: Final = 64
_INT64_DIGITS: Final = 19
_MOST_DIGITS: Final = 30

_INTEGERS: Final = {False: _INTEGER, True: r"^[+-]?[0-9]+$"}
_FLOATS: Final = {
    False: _PLAIN_NUMBER,
    True: r"^[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|(?i:inf|infinity|nan))$",
}
_INFINITE: Final = r"^[+-]?(?i:inf|infinity)$"
_TRUE: Final = {False: _WORDS[0], True: (*_WORDS[0], "1")}
_FALSE: Final = {False: _WORDS[1], True: (*_WORDS[1], "0")}
_CLOCK: Final = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?$"
_ISO_TIME: Final = r"^([0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?|[0-9]{2}:[0-9]{2}(:.*)?)$"
"""The form of a time in ISO 8601. A whole number does not match, because it may be a number of units."""

_COUNT: Final = r"^-?[0-9]{9,}$"
_FORMS: Final = {
    "timestamp": "such as 2026-01-31T12:30:00",
    "zoned": "with a time zone, such as 2026-01-31T12:30:00Z",
    "date": "such as 2026-01-31",
    "time": "such as 12:30:00",
}


@dataclass(slots=True)
class TextTypes:
    """The forms that all texts of a column have.

    Attributes:
        first: the place of the first text that does not usually mean null.
        null_words: the first place of each text that usually means null; empty unless ``is_text``.
        misses: the first text without a form, and its place, by the form: ``integer``, ``int64``, ``uint64`` and ``64
            bits`` for integers, ``decimal``, ``exact`` and ``special`` (not finite) for decimal numbers, the
            spellings of booleans, ``time`` for ISO 8601, and the types of times. A form is tested only while all texts
            have the more general forms. ``rest`` is a decimal number anywhere but at ``first``.
        has_rest: whether there is a text after ``first``.
    """

    first: Place | None = None
    has_rest: bool = False
    null_words: dict[str, Place] = field(default_factory=dict)
    misses: dict[str, tuple[Place, str]] = field(default_factory=dict)

    def update(self, texts: Any, place_of: Callable[[int], Place], *, is_text: bool = True) -> None:
        """Test a block of a column.

        Args:
            texts: an Arrow array of strings.
            place_of: returns the place of the value at an index.
            is_text: whether texts may be numbers and booleans, as in a CSV; otherwise they may only be times.
        """
        if is_text and (index := compute.index(texts, DUMPED_NULL).as_py()) >= 0:
            self._add_null_word(DUMPED_NULL, place_of(index))
        forms = ("integer", "decimal", *_SPELLINGS, "time") if is_text else ("time",)
        forms += ("rest",) if self._is_first_no_number else ()
        if texts.null_count == len(texts) or not any(self._is_open(form, place_of(0)) for form in forms):
            return
        block = _Block(*without_nulls(texts, place_of))
        if is_text:
            others = self._without_null_words(block)
            if others is None:
                return
            block = others
        if self.first is not None and block.start < self.first:
            self.has_rest = True
            if "decimal" in self.misses:
                self.misses.setdefault("rest", self.misses["decimal"])
        self.first = min(self.first or block.start, block.start)
        if is_text:
            self._test_numbers(block)
            self._test_rest(block)
            for form, words in _SPELLINGS.items():
                self._test(form, block, partial(block.matches, f"^({'|'.join(words)})$"))
        self._test_times(block)

    def decide(self) -> tuple[str, str]:
        """Return the name of the Arrow type, and the reason for messages."""
        word, reason = "string", "the values are text" if self.null_words else "every value is null"
        if self.first is not None:
            word, reason = self._decide_others()
        if not self.disguised_nulls:
            return word, reason
        text = self.disguised_nulls[0]
        if word == "string":
            return word, f"{reason}; {quote(text)} at {show_place(self.null_words[text])} is null in dumps of databases"
        is_not = "true or false" if word == "bool" else "a number"
        return "string", f"{quote(text)} at {show_place(self.null_words[text])} is not {is_not}"

    @property
    def disguised_nulls(self) -> list[str]:
        """The texts without which the column would be numbers or booleans, in the order of their first places.

        In a column of other texts, only the null of a dump.
        """
        if self.first is None or self._decide_others()[0] == "string":
            return [DUMPED_NULL] if DUMPED_NULL in self.null_words else []
        return sorted(self.null_words, key=self.null_words.__getitem__)

    def _decide_others(self) -> tuple[str, str]:
        if "integer" not in self.misses:
            return self._decide_integer()
        if "decimal" not in self.misses and "special" in self.misses:
            if "exact" not in self.misses:
                return "double", "every value is a decimal number"
            return "string", f"{self._show('exact')} has more digits than float64 keeps"
        for words in _SPELLINGS:
            if words not in self.misses:
                return "bool", f"every value is {words}"
        return "string", self._explain_text()

    @property
    def may_be_numbers(self) -> bool:
        """Whether the first value that is not a plain number has an exponent, spaces or many digits: ``25e-06``."""
        if "decimal" not in self.misses:  # a long integer may be an identifier
            return "exact" in self.misses and "." in self.misses["exact"][1]
        text = self.misses["decimal"][1]
        plain = text.strip()
        return bool(_SCIENTIFIC.fullmatch(plain) or (plain != text and re.search(_PLAIN_NUMBER, plain)))

    def explain_comma(self) -> str:
        """How to read the numbers if the first value that is not a number has a comma: ``1,5``. Empty otherwise."""
        place, text = self.misses.get("decimal", (("", 0), ""))
        if not re.fullmatch(DECIMAL_COMMA, text):
            return ""
        frame = f"pandas.read_csv({place[0]!r}{ANY_SEPARATOR}, decimal=',')"
        return f"if the comma is the decimal mark: registry.add({frame}, 'NAME')"

    @property
    def time(self) -> Any:
        """Return the first Arrow type of times that represents all texts, or None."""
        if self.first is None or self.null_words or "time" in self.misses:
            return None
        return next((kind for kind in _iso_types() if str(kind) not in self.misses), None)

    def _decide_integer(self) -> tuple[str, str]:
        if "64 bits" in self.misses:
            return "string", f"{self._show('64 bits')} does not fit into 64 bits"
        if "int64" not in self.misses:
            return "int64", "every value is an integer"
        if "uint64" not in self.misses:
            return "uint64", f"every value is an integer; {self._show('int64')} requires uint64"
        return "string", f"{self._show('int64')} does not fit into int64, and {self._show('uint64')} is negative"

    def _explain_text(self) -> str:
        forms = [form for form in ("decimal", *_SPELLINGS) if form in self.misses]
        last = max(forms, key=lambda form: self.misses[form])
        place, text = self.misses[last]
        if text in _BOOLEANS:
            return f"{self._show(last)} is spelled differently from the values before it"
        if _is_like_number(text):
            return f"{self._show(last)} is not a plain decimal number"
        if place == self.first:
            is_alone = self.has_rest and "rest" not in self.misses and not self.null_words
            return f"{self._show(last)} is not a number; all others are" if is_alone else "the values are text"
        is_number = self.misses.get("decimal") == (place, text)
        return f"{self._show(last)} is not {'a number' if is_number else 'true or false'}"

    def _show(self, form: str) -> str:
        place, text = self.misses[form]
        return f"{quote(text)} at {show_place(place)}"

    def _is_open(self, form: str, start: Place) -> bool:
        """Whether a text from ``start`` on could be the first without the form."""
        return form not in self.misses or start < self.misses[form][0]

    def _test(self, form: str, block: _Block, matches: Callable[[], Any]) -> bool:
        """Test whether all texts have a form, by the mask that ``matches`` returns.

        The first text without it is recorded.
        """
        if not self._is_open(form, block.start):
            return False
        index = first_of(matches(), value=False)
        if index is not None:
            self._miss(form, block, index)
        return index is None

    def _miss(self, form: str, block: _Block, index: int) -> None:
        miss = (block.place(index), str(python_value(block.texts, index))[:_MOST_KEPT])
        self.misses[form] = min(miss, self.misses.get(form, miss))

    def _without_null_words(self, block: _Block) -> _Block | None:
        """Set aside the texts that usually mean null. Returns the others, or None if there are none."""
        if block.int64 is not None or block.are_decimals:
            return block
        is_null = as_mask(compute.is_in(block.texts, value_set=from_texts(NULL_WORDS)))
        if not is_null.any():
            return block
        places = np.flatnonzero(is_null)
        texts = block.texts.take(from_numbers(places))
        for value in texts.unique():
            self._add_null_word(value.as_py(), block.place(int(places[texts.index(value).as_py()])))
        others, place_of = without_nulls(_blank(block.texts, is_null), block.place)
        return _Block(others, place_of) if len(others) else None

    def _add_null_word(self, word: str, place: Place) -> None:
        self.null_words[word] = min(place, self.null_words.get(word, place))

    def _test_numbers(self, block: _Block) -> None:
        if self._is_open("integer", block.start):
            numbers = block.int64
            if numbers is not None:
                low, high = (bound.as_py() for bound in compute.min_max(numbers).values())
                if low < 0:
                    self._test("uint64", block, lambda: from_numbers(as_numbers(numbers) >= 0))
                self._miss("special", block, 0)
                if max(-low, high) > 2**53:
                    self._test_exact(block)
                return
            if self._test("integer", block, partial(block.matches, _INTEGER)):
                self._test_sizes(block)
                self._test("uint64", block, lambda: compute.invert(compute.starts_with(block.texts, "-")))
        if block.are_decimals and self._is_open("decimal", block.start):
            self._miss("special", block, 0)
            self._test_exact(block)
        elif self._test("decimal", block, lambda: block.matches(_PLAIN_NUMBER)):
            self._test("special", block, lambda: compute.invert(block.matches("[0-9]")))
            self._test_exact(block)

    @property
    def _is_first_no_number(self) -> bool:
        return "decimal" in self.misses and self.misses["decimal"][0] == self.first

    def _test_rest(self, block: _Block) -> None:
        """Test whether all texts after the first are numbers, as below units in a second line of the header."""
        start = int(block.start == self.first)
        if not self._is_first_no_number or len(block.texts) == start:
            return
        self.has_rest = True
        # Most columns of text end the test at the second text.
        parts = (block.part(start, start + 1), block.part(start, len(block.texts)))
        all(self._test("rest", part, partial(part.matches, _PLAIN_NUMBER)) for part in parts)

    def _test_sizes(self, block: _Block) -> None:
        """Test integers, some of which do not fit into int64."""
        is_long = as_numbers(compute.binary_length(block.texts)) >= _INT64_DIGITS
        for index in np.flatnonzero(is_long).tolist():
            number = int(block.texts[index].as_py()[:_MOST_DIGITS])  # Python refuses to parse thousands of digits
            if not -(2**63) <= number < 2**63:
                self._miss("int64", block, index)
            if not -(2**63) <= number < 2**64:
                self._miss("64 bits", block, index)

    def _test_exact(self, block: _Block) -> None:
        if self._is_open("exact", block.start):
            index = next(inexact_decimals(block.texts, arrow.float64()), None)
            if index is not None:
                self._miss("exact", block, index)

    def _test_times(self, block: _Block) -> None:
        # If the first text lacks a form, most texts do. Finding every fault of a block would take long.
        parts = (block.part(0, 1), block)
        if not all(self._test("time", part, partial(part.matches, _ISO_TIME)) for part in parts):
            return
        for kind in _iso_types():
            for part in parts:
                if self._is_open(str(kind), part.start):
                    faults = parse_texts(part.texts, kind, is_requested=True)[1]
                    if faults:
                        self._miss(str(kind), part, min(faults))


class _Block:
    """Consecutive texts of a part, without nulls."""

    def __init__(self, texts: Any, place_of: Callable[[int], Place]) -> None:
        self.texts = texts
        self.place = place_of
        self.start = place_of(0)

    def part(self, start: int, stop: int) -> _Block:
        return _Block(self.texts.slice(start, stop - start), lambda index: self.place(start + index))

    def matches(self, pattern: str) -> Any:
        return compute.match_substring_regex(self.texts, pattern)

    @cached_property
    def int64(self) -> Any:
        """The numbers if all texts are integers of int64, otherwise None."""
        return _parse_plain(self.texts, arrow.int64())

    @cached_property
    def are_decimals(self) -> bool:
        return _parse_plain(self.texts, arrow.float64()) is not None


def _parse_plain(texts: Any, kind: Any) -> Any:
    """Parse texts like -12, or like -12.50 for floats, or null. Returns None if one has another form.

    ``_INTEGER`` and ``_PLAIN_NUMBER`` take five times as long.
    """
    data, bounds = _bytes_of(texts.drop_null())
    if not data.size or data.min() < ord("-") or data.max() > ord("9"):
        return None
    try:
        texts.slice(0, _FEW).cast(kind)  # Arrow describes every fault, which takes long for dates and decimal numbers
        numbers = texts.cast(kind)
    except arrow.ArrowInvalid:
        return None
    # Each text has a digit, and at most one point. Arrow also parses 007, -0 and 5. as numbers.
    starts, stops = bounds[:-1] + (data[bounds[:-1]] == ord("-")), bounds[1:]
    zeros = data[starts] == ord("0")
    if types.is_integer(kind):
        return numbers if (np.diff(bounds)[zeros] == 1).all() else None
    zeros &= stops - starts > 1
    is_plain = (data[starts[zeros] + 1] == ord(".")).all() and (data[stops - 1] != ord(".")).all()
    return numbers if is_plain else None


def _bytes_of(texts: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """The bytes of texts, one text after the other, and where each starts and the last ends."""
    _, ends, data = texts.buffers()
    bounds = np.frombuffer(ends or bytes(4), np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]], bounds - bounds[0]


def spell_nulls(nulls: Collection[str], words: Collection[str], quoted: Collection[str] = ()) -> str:
    """Return the option that reads ``words`` of a CSV file as null, besides ``nulls``.

    A word that was named already, or is empty, is in quotes in the file, as are those of ``quoted``.
    """
    return spell("nulls", [*nulls, *(f'"{word}"' if word in ("", *nulls, *quoted) else word for word in words)])


def inexact_decimals(values: Any, kind: Any) -> Iterator[int]:
    """Yield the indices of decimal numbers that a float of type ``kind`` prints as another number."""
    if kind.bit_width == 64:
        data, bounds = _bytes_of(values)
        is_long = np.diff(bounds) > _EXACT_LENGTH
        for mark in ("e", "E") if data.max(initial=0) >= ord("E") else ():  # a pattern would take twice as long
            is_long |= as_mask(compute.match_substring(values, mark))
        if not is_long.any():
            return
        is_long &= ~as_mask(compute.match_substring_regex(values, _EXACT_EXPONENT))
    else:
        is_long = np.ones(len(values), np.bool_)
    places = np.flatnonzero(is_long)
    texts = values if len(places) == len(values) else values.take(from_numbers(places))
    written = texts.cast(kind).cast(arrow.string())
    if written.equals(texts):
        return
    differ = np.flatnonzero(as_mask(compute.not_equal(written, texts)))
    for index in differ.tolist():
        if not is_exact_decimal(texts[index].as_py(), kind.to_pandas_dtype()):
            yield int(places[index])


def is_exact_decimal(text: str, dtype: type[np.floating[Any]] = np.float64) -> bool:
    """Whether float64 prints the decimal number ``text`` as the same number, in the shortest form or in 17 digits.

    R prints 17 digits if 15 are too few: 0.37533300000000003 is 0.375333, and 4.94065645841247e-324 is 5e-324. An
    integer with as many digits may be an identifier.

    >>> is_exact_decimal("0.1"), is_exact_decimal("1.500"), is_exact_decimal("9007199254740993")
    (True, True, False)
    >>> is_exact_decimal("0.37533300000000003"), is_exact_decimal("0.37533300000000004")
    (True, False)
    """
    value = dtype(text)
    forms, digits = [str(value)], _MOST_PRINTED if dtype is np.float64 and "." in text else 0
    if digits:
        forms.append(f"{value:.{digits}g}")
    if text in forms:  # most numbers, without the time of parsing decimals
        return True
    number = Decimal(text)
    num_digits = len(number.as_tuple().digits)
    if num_digits <= digits:
        forms.append(f"{value:.{num_digits - 1}e}")
    return any(number == Decimal(form) for form in forms)


def _is_like_number(text: str) -> bool:
    """Whether ``text`` looks like a number, such as ``007``, ``1,000`` or ``1e5``."""
    try:
        float(text.strip().replace(",", "").replace("_", ""))
    except ValueError:
        return False
    return any(character.isdigit() for character in text)


def parse_texts(texts: Any, kind: Any, *, is_requested: bool, is_exact: bool = False) -> Converted:
    """Parse an Arrow array of strings as values of the type ``kind``.

    Args:
        texts: the strings.
        kind: the type.
        is_requested: whether numbers may have the forms that people write.
        is_exact: whether decimal numbers with more digits than ``kind`` can represent are faults.

    Returns:
        An array of the same length, and the fault of each text that is not such a value.
    """
    if is_requested and not types.is_binary(kind):
        texts = compute.utf8_trim_whitespace(texts)
    if types.is_integer(kind):
        return _parse_integers(texts, kind, is_requested)
    if types.is_floating(kind):
        return _parse_floats(texts, kind, is_requested, is_exact)
    if types.is_boolean(kind):
        return _parse_booleans(texts, is_requested)
    if types.is_duration(kind):
        counts, faults = _parse_integers(texts, arrow.int64(), is_requested)
        return counts.view(kind), {index: f"expected {kind}, found {quote(texts[index].as_py())}" for index in faults}
    if types.is_timestamp(kind):
        return _parse_timestamps(texts, kind)
    if types.is_temporal(kind):
        return _parse_times(texts, kind)
    if types.is_binary(kind):
        return texts.cast(kind), {}
    return _finish(texts, np.ones(len(texts), np.bool_), arrow.nulls(len(texts), kind), kind)


def _iso_types() -> tuple[Any, ...]:
    stamps = [arrow.timestamp(unit, tz=zone) for unit in ("us", "ns") for zone in (None, "UTC")]
    return (arrow.date32(), arrow.time64("us"), arrow.time64("ns"), *stamps)


def _parse_integers(texts: Any, kind: Any, is_requested: bool) -> Converted:
    numbers = _parse_plain(texts, kind)
    if numbers is not None:
        return numbers, {}
    bad = _misses(texts, _INTEGERS[is_requested])
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
    """Parse an integer without its leading zeros, because Python refuses to parse thousands of digits."""
    sign = -1 if text[0] == "-" else 1
    return sign * int(text.lstrip("+-0")[:_MOST_DIGITS] or "0")


def _parse_floats(texts: Any, kind: Any, is_requested: bool, is_exact: bool) -> Converted:
    is_plain = not is_requested and _parse_plain(texts, arrow.float64()) is not None
    bad = np.zeros(len(texts), np.bool_) if is_plain else _misses(texts, _FLOATS[is_requested])
    good = _blank(texts, bad)
    if is_exact and good.null_count < len(good):
        valid = np.flatnonzero(as_mask(good.is_valid()))
        bad[valid[list(inexact_decimals(good.drop_null(), kind))]] = True
        good = _blank(texts, bad)
    numbers = as_numbers(good.cast(arrow.float64()))
    with np.errstate(over="ignore"):
        narrow = numbers.astype(kind.to_pandas_dtype())
    is_large = np.isinf(narrow)
    if is_large.any():  # a number that is out of range, unless the text says infinity
        bad |= is_large & _misses(texts, _INFINITE)
    return _finish(texts, bad, from_numbers(narrow, as_mask(good.is_null())), kind)


def _parse_booleans(texts: Any, is_requested: bool) -> Converted:
    is_true = as_mask(compute.is_in(texts, value_set=from_texts(_TRUE[is_requested])))
    is_false = as_mask(compute.is_in(texts, value_set=from_texts(_FALSE[is_requested])))
    bad = as_mask(texts.is_valid()) & ~is_true & ~is_false
    return _finish(texts, bad, from_numbers(is_true, ~(is_true | is_false)), arrow.bool_())


def _parse_timestamps(texts: Any, kind: Any) -> Converted:
    """Parse ISO 8601, and integers of at least 9 digits as the number of units since 1970.

    Shorter integers may be years and dates: 2026 and 20260131.
    """
    try:
        return texts.cast(kind), {}
    except arrow.ArrowInvalid:
        is_count = as_mask(texts.is_valid()) & ~_misses(texts, _COUNT)
    if not is_count.any():
        return _parse_times(texts, kind)
    times, faults = _parse_times(_blank(texts, is_count), kind)
    counts, more = _parse_integers(_blank(texts, ~is_count), arrow.int64(), is_requested=True)
    more = {index: fault.replace("int64", name_type(str(kind)), 1) for index, fault in more.items()}
    return compute.coalesce(times, counts.view(kind)), faults | more


def _parse_times(texts: Any, kind: Any) -> Converted:
    bad = np.zeros(len(texts), np.bool_)
    used, parsed_as = texts, kind
    if types.is_time(kind):  # Arrow parses no times of day
        bad = _misses(texts, _CLOCK)
        day, separator = from_texts(["1970-01-01T", ""])
        used = compute.binary_join_element_wise(day, _blank(texts, bad), separator)
        parsed_as = arrow.timestamp(kind.unit)
    elif types.is_date(kind):
        bad = _misses(texts, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
        used = _blank(texts, bad)

    parsed, faults = in_halves(
        used, lambda part: (part.cast(parsed_as), {}), lambda part: (arrow.nulls(len(part), parsed_as), {0: ""})
    )
    bad[list(faults)] = True
    return _finish(texts, bad, parsed.cast(kind), kind)


def _finish(texts: Any, bad: npt.NDArray[np.bool_], values: Any, kind: Any) -> Converted:
    form = "timestamp" if types.is_timestamp(kind) else "time" if types.is_time(kind) else None
    form = "date" if types.is_date(kind) else "zoned" if form == "timestamp" and kind.tz else form
    expected = name_type(str(kind)) + (f" {_FORMS[form]}" if form else "")
    places = np.flatnonzero(bad).tolist()
    return values, {index: f"expected {expected}, found {quote(texts[index].as_py())}" for index in places}


def _misses(texts: Any, pattern: str) -> npt.NDArray[np.bool_]:
    """Return a mask of the texts that do not match ``pattern``. A null matches."""
    return as_mask(compute.invert(compute.match_substring_regex(texts, pattern)))


def _blank(texts: Any, bad: npt.NDArray[np.bool_]) -> Any:
    """Replace the texts at ``bad`` by null."""
    return texts if not bad.any() else compute.if_else(from_numbers(bad), arrow.nulls(len(texts), texts.type), texts)
