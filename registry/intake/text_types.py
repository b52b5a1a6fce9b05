r"""Decides whether all values of a column of text are integers, decimal numbers or booleans; otherwise they stay text.

    int64     -?(0|[1-9][0-9]*), not -0, in 64 bits; uint64 if one needs it and none is negative
    float64   what programs print for floats: 1.5, 6.79e-05, 1E-5, 1e+16, -0, inf, nan; ``PLAIN_NUMBER`` has the form.
              One of them is not written as an integer, one is finite, and float64 writes all of them back
    bool      true and false, or True and False

Every value counts, and nothing is guessed: "007", "+1", ".5", "NA" and "" are text, and so is "1e5", which is a code
more often than the number that programs print as 100000.0 or 1e+05. A type is no longer tested after the first value
that contradicts it. The result does not depend on the order in which parts are seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, Final, TypeAlias

import numpy as np

from registry.intake.values import Place, first_of, quote, show_place
from registry.shards.arrow_values import import_pyarrow

_INTEGER: Final = r"^-?(0|[1-9][0-9]*)$"
PLAIN_NUMBER: Final = "|".join(
    (
        r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$",
        r"^-?[0-9]\.[0-9]+[eE][+-]?[0-9]{1,3}$",
        r"^-?[0-9][eE][+-][0-9]{1,3}$",
        r"^-?[0-9][eE](1[6-9]|[2-9][0-9]|[1-9][0-9]{2})$",
        r"^-?(inf|Inf)$",
        r"^(nan|NaN)$",
    )
)
"""What Python, NumPy, pandas, polars, Arrow, R and Java print for floats and integers."""

_EXACT_EXPONENT: Final = r"^-?[0-9](\.[0-9]{1,14})?[eE][+-]?[0-9]{1,2}$"
_SCIENTIFIC = re.compile(r"-?[0-9]+(\.[0-9]+)?[eE][+-]?[0-9]+")
_SPELLINGS: Final = {"lower": ("true", "false"), "title": ("True", "False")}
_BOOLEANS: Final = frozenset(word for words in _SPELLINGS.values() for word in words)
_EXACT_LENGTH: Final = 15
"""Decimal numbers of up to 15 digits are the numbers that their float64 writes back, unless the exponent is large."""

_MOST_KEPT: Final = 200
_FEW: Final = 64
_INT64_DIGITS: Final = 19
_MOST_DIGITS: Final = 30
_MAX_INT64: Final = 2**63 - 1
_MAX_UINT64: Final = 2**64 - 1

Found: TypeAlias = tuple[Place, str] | None
"""The first value of a kind and its place, or None."""


@dataclass(slots=True)
class TextTypes:
    """The first values of a column that contradict each type.

    A value counts only while the type is still possible, so attributes are meaningful only in the combination in which
    ``decide`` uses them.
    """

    first: Place | None = None
    not_integer: Found = None
    above_int64: Found = None
    above_64_bits: Found = None
    negative: Found = None
    not_decimal: Found = None
    not_exact: Found = None
    not_like_integer: Found = None
    finite: Found = None
    not_lower: Found = None
    not_title: Found = None

    def is_open(self, start: Place) -> bool:
        """Whether values from ``start`` on may still change what ``decide`` returns."""
        found = (self.not_integer, self.not_decimal, self.not_lower, self.not_title)
        return any(one is None or start < one[0] for one in found)

    def update(self, values: Any, place_of: Callable[[int], Place]) -> None:
        """Test a block of a column.

        Args:
            values: an Arrow array of strings without nulls, not empty.
            place_of: gives the place of the value at an index.
        """
        block = _Block(values, place_of)
        self.first = min(self.first or block.start, block.start)
        largest = None
        if self._may_come_first("not_integer", block):
            largest = self._test_integers(block)
        if self._may_come_first("not_decimal", block):
            self._test_decimals(block, largest)
        for name, words in _SPELLINGS.items():
            if self._may_come_first(f"not_{name}", block):
                self._test(f"not_{name}", block, block.is_in(words))

    def merge(self, other: TextTypes) -> None:
        """Add what ``other`` has seen of the same column."""
        for one in fields(self):
            found = [value for value in (getattr(self, one.name), getattr(other, one.name)) if value is not None]
            setattr(self, one.name, min(found, default=None))

    def decide(self) -> tuple[str, str]:
        """The name of the Arrow type, and the reason for people."""
        if self.first is None:
            return "string", "every value is null"
        if self.not_integer is None:
            return self._decide_integer()
        if self.not_decimal is None and self.not_like_integer is not None and self.finite is not None:
            if self.not_exact is None:
                return "double", "every value is a decimal number"
            return "string", f"{_show(self.not_exact)} has more digits than float64 keeps"
        if self.not_lower is None or self.not_title is None:
            return "bool", f"every value is {'true or false' if self.not_lower is None else 'True or False'}"
        return "string", self._explain_text()

    @property
    def is_scientific(self) -> bool:
        """Whether the first value that is not a plain number has an exponent, such as ``25e-06``."""
        return self.not_decimal is not None and _SCIENTIFIC.fullmatch(self.not_decimal[1]) is not None

    def _decide_integer(self) -> tuple[str, str]:
        if self.above_64_bits is not None:
            return "string", f"{_show(self.above_64_bits)} does not fit into 64 bits"
        if self.above_int64 is None:
            return "int64", "every value is an integer"
        if self.negative is None:
            return "uint64", f"every value is an integer; {_show(self.above_int64)} requires uint64"
        told = f"{_show(self.above_int64)} does not fit into int64, and {_show(self.negative)} is negative"
        return "string", told

    def _explain_text(self) -> str:
        candidates = [one for one in (self.not_decimal, self.not_lower, self.not_title) if one is not None]
        last = max(candidates)
        if last[1] in _BOOLEANS:
            return f"{_show(last)} is spelled differently from the values before it"
        if _is_like_number(last[1]):
            return f"{_show(last)} is not a plain decimal number"
        if last[0] == self.first:
            return "the values are text"
        return f"{_show(last)} is not {'a number' if last == self.not_decimal else 'true or false'}"

    def _may_come_first(self, name: str, block: _Block) -> bool:
        """Whether a value of the block could become the first value ``name``."""
        found: Found = getattr(self, name)
        return found is None or block.start < found[0]

    def _test(self, name: str, block: _Block, mask: Any) -> bool:
        """Keep the first value for which ``mask`` is false. Returns whether there is none."""
        index = first_of(mask, value=False)
        if index is not None:
            self._keep(name, block, index)
        return index is None

    def _keep(self, name: str, block: _Block, index: int) -> None:
        found = (block.place(index), block.values[index].as_py()[:_MOST_KEPT])
        setattr(self, name, min(getattr(self, name) or found, found))

    def _test_integers(self, block: _Block) -> int | None:
        """The largest magnitude of the values if all are integers of int64; None otherwise."""
        arrow = import_pyarrow()
        compute = arrow.compute
        try:
            if len(block.values) > 4 * _FEW:  # a text is usually found among the first values
                block.values.slice(0, _FEW).cast(arrow.int64())
            numbers = block.values.cast(arrow.int64())
        except arrow.ArrowInvalid:
            numbers = None
        # An integer that writes back the same text has the required form: 007, -0 and 0x1F do not.
        if numbers is not None and numbers.cast(arrow.string()).equals(block.values):
            low, high = (bound.as_py() for bound in compute.min_max(numbers).values())
            if low < 0 and self._may_come_first("negative", block):
                self._keep("negative", block, first_of(compute.less(numbers, 0), value=True) or 0)
            return int(max(-low, high))
        has_form = compute.and_(
            compute.match_substring_regex(block.values, _INTEGER), compute.not_equal(block.values, "-0")
        )
        if self._test("not_integer", block, has_form):
            is_long = compute.greater_equal(compute.binary_length(block.values), _INT64_DIGITS)
            for index in np.flatnonzero(is_long.to_numpy(zero_copy_only=False)).tolist():
                self._note_integer(block, index, block.values[index].as_py())
            if self._may_come_first("negative", block):
                first = first_of(compute.starts_with(block.values, "-"), value=True)
                if first is not None:
                    self._keep("negative", block, first)
        return None

    def _note_integer(self, block: _Block, index: int, text: str) -> None:
        number = int(text[:_MOST_DIGITS])  # Python refuses to parse thousands of digits
        if number > _MAX_INT64:
            self._keep("above_int64", block, index)
        if number > _MAX_UINT64 or number < -_MAX_INT64 - 1:
            self._keep("above_64_bits", block, index)

    def _test_decimals(self, block: _Block, largest: int | None) -> None:
        matches = import_pyarrow().compute.match_substring_regex
        if largest is None:
            if not self._test("not_decimal", block, matches(block.values, PLAIN_NUMBER)):
                return
            for name, pattern in (("not_like_integer", "[.eEnN]|^-0$"), ("finite", "[0-9]")):
                if self._may_come_first(name, block):
                    index = first_of(matches(block.values, pattern), value=True)
                    if index is not None:
                        self._keep(name, block, index)
        elif self._may_come_first("finite", block):
            self._keep("finite", block, 0)
        is_exact = largest is not None and largest <= 2**53
        if not is_exact and self._may_come_first("not_exact", block):
            index = next(inexact_decimals(block.values, import_pyarrow().float64()), None)
            if index is not None:
                self._keep("not_exact", block, index)


class _Block:
    """Consecutive values of a part, without nulls."""

    def __init__(self, values: Any, place_of: Callable[[int], Place]) -> None:
        self.values = values
        self.place = place_of
        self.start = place_of(0)

    def is_in(self, words: tuple[str, ...]) -> Any:
        arrow = import_pyarrow()
        return arrow.compute.is_in(self.values, value_set=arrow.array(words))


def inexact_decimals(values: Any, kind: Any) -> Iterator[int]:
    """The indices of the decimal numbers that are not the number that their float of type ``kind`` writes back."""
    arrow = import_pyarrow()
    compute = arrow.compute
    if kind.bit_width == 64:
        is_long = compute.or_(
            compute.greater(compute.binary_length(values), _EXACT_LENGTH), compute.match_substring_regex(values, "[eE]")
        )
        is_long = compute.and_not(is_long, compute.match_substring_regex(values, _EXACT_EXPONENT))
    else:
        is_long = arrow.repeat(True, len(values))
    if not compute.any(is_long).as_py():
        return
    places = np.flatnonzero(is_long.to_numpy(zero_copy_only=False))
    texts = values if len(places) == len(values) else values.take(arrow.array(places))
    written = texts.cast(kind).cast(arrow.string())
    if written.equals(texts):
        return
    differ = np.flatnonzero(compute.not_equal(written, texts).to_numpy(zero_copy_only=False))
    for index in differ.tolist():
        if not is_exact_decimal(texts[index].as_py(), kind.to_pandas_dtype()):
            yield int(places[index])


def is_exact_decimal(text: str, dtype: type[np.floating[Any]] = np.float64) -> bool:
    """Whether the decimal number ``text`` is the number that its float writes back.

    >>> is_exact_decimal("0.1"), is_exact_decimal("1.500"), is_exact_decimal("9007199254740993")
    (True, True, False)
    """
    written = str(dtype(text))
    return text == written or Decimal(text) == Decimal(written)


def _is_like_number(text: str) -> bool:
    """Whether people may see a number in ``text``, such as ``007``, ``1,000`` or ``1e5``."""
    try:
        float(text.strip().replace(",", "").replace("_", ""))
    except ValueError:
        return False
    return any(character.isdigit() for character in text)


def _show(found: tuple[Place, str]) -> str:
    return f"{quote(found[1])} at {show_place(found[0])}"
