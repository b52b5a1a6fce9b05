"""What does one exact part of an expression ask for? Its place among equal parts, before anyone knows their size.

The other kind of term beside ``SplitSlice``: a third of 101 records has no bounds that could be written down before the
layout is known. ``division`` finds its records.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Final, Literal, SupportsIndex, TypeAlias, TypeVar

from registry.errors import UsageError
from registry.splits.slices import MAX_DIGITS, SplitSlice, shown

PartUnit: TypeAlias = Literal["abs", "shard"]

Count = TypeVar("Count", int, float)

MAX_DEPTH: Final = 16
"""How deep parts of parts may be nested; keeps hostile text from deep recursion."""

_UNITS: Final = ("abs", "shard")


@dataclass(frozen=True, slots=True)
class EvenPart:
    """Parts ``first``..``stop`` (stop excluded) of ``count`` equal parts of ``split``.

    Sizes differ by at most one, the larger parts first: records for ``unit="abs"``; for ``unit="shard"`` files, each of
    which is in one part (a file that two slices of a union touch counts as two). ``drop_remainder`` leaves out what
    would make some parts larger.

    ``split`` holds the terms that are divided, or a text where the slicing rules read it differently: then the rule
    reads it that resolves the part.

    >>> str(EvenPart((SplitSlice("train"), SplitSlice("test")), 3, 0, 1))
    'even(train+test, 3)[0]'
    >>> str(EvenPart((SplitSlice("train"),), 8, 2, 8, "shard", drop_remainder=True))
    'even(train, 8shard, drop_remainder)[2:8]'

    Raises:
        UsageError: no part, a place beyond the parts, an unknown unit, or parts of parts nested too deep.
    """

    split: tuple[Term, ...] | str
    count: int
    first: int
    stop: int
    unit: PartUnit = "abs"
    drop_remainder: bool = False

    def __post_init__(self) -> None:
        if self.unit not in _UNITS:
            raise UsageError(
                f"exact parts have no unit {self.unit!r}",
                hint="Give unit='abs' for records or unit='shard' for whole files.",
            )
        for name in ("count", "first", "stop"):
            object.__setattr__(self, name, whole_number(getattr(self, name)))
        check_count(self.count)
        if not 0 <= self.first <= self.stop <= self.count:
            raise UsageError(
                f"there {'is 1 part' if self.count == 1 else f'are {self.count} parts'}, counted from 0; "
                f"{shown(self.first)}..{shown(self.stop)} lies outside"
            )
        if self.depth > MAX_DEPTH:
            raise UsageError(f"parts of parts are nested more than {MAX_DEPTH} deep")

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms that are divided; none of a text that no rule has read yet."""
        return () if isinstance(self.split, str) else self.split

    @property
    def depth(self) -> int:
        """How many divisions stand inside each other, this one included."""
        return 1 + max((term.depth for term in self.terms if isinstance(term, EvenPart)), default=0)

    def bounds(self, size: Count) -> tuple[Count, Count]:
        """Where the parts begin and end among ``size`` records or files.

        A size with a fraction is divided as TFDS 4 does it; under its rule there are such ranges.

        >>> third = EvenPart((SplitSlice("train"),), 3, 1, 2)
        >>> third.bounds(101)
        (34, 68)
        """
        each, remainder = divmod(size, self.count)
        if self.drop_remainder:
            remainder *= 0
        return each * self.first + min(self.first, remainder), each * self.stop + min(self.stop, remainder)

    def __str__(self) -> str:
        inner = self.split if isinstance(self.split, str) else "+".join(map(str, self.split))
        count = f"{self.count}{'shard' if self.unit == 'shard' else ''}"
        dropping = ", drop_remainder" if self.drop_remainder else ""
        place = f"{self.first}" if self.stop == self.first + 1 else f"{self.first}:{self.stop}"
        return f"even({inner}, {count}{dropping})[{place}]"


Term: TypeAlias = SplitSlice | EvenPart
"""One term of a union."""


def check_count(count: SupportsIndex) -> int:
    """A number of parts, 1 or more; UsageError where it is none."""
    number = whole_number(count)
    if number < 1:
        raise UsageError(f"a split is divided into 1 part or more, not {shown(number)}")
    if number >= 10**MAX_DIGITS:
        raise UsageError(f"a number of parts has at most {MAX_DIGITS} digits")
    return number


def whole_number(number: SupportsIndex) -> int:
    """``number`` as an int; UsageError where it is not whole."""
    try:
        return operator.index(number)
    except TypeError as error:
        raise UsageError(f"parts are counted in whole numbers, not {shown(number)}") from error
