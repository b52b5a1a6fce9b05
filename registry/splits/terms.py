"""The terms of a split expression: slices of splits, and exact parts.

A ``SplitSlice`` is a split's name and at most two bounds of one unit. An ``EvenPart`` is a place among equal parts:
a third of 101 records has no bounds that could be written before the layout is known. The grammar makes terms, the
slicing rules resolve them to record ranges.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational, Real
from typing import Any, Final, Literal, SupportsIndex, TypeAlias, TypeVar, cast

from registry.errors import SliceError, UsageError
from registry.model import shown, whole_number

Unit: TypeAlias = Literal["abs", "%", "shard"]
Rounding: TypeAlias = Literal["closest", "pct1_dropremainder"]
BoundLike: TypeAlias = SupportsIndex | float | Decimal | Fraction
"""What a caller may give as a bound; floats, decimals and fractions as percentages."""

ALL: Final = "all"
"""The name of all splits of a version, in order."""

MAX_DIGITS: Final = 400
"""The most digits a bound is written with; enough for every float. Keeps hostile numbers from costing time."""

MAX_NAME_LENGTH: Final = 200

_UNITS: Final = ("abs", "%", "shard")
_ROUNDINGS: Final = ("closest", "pct1_dropremainder")
_SUFFIX: Final = {"abs": "", "%": "%", "shard": "shard"}
_NAME = re.compile(r"[\w-]+")  # letters beyond ASCII too: TFDS has such splits, and its slicing rule parses them
_LARGEST: Final = 10**MAX_DIGITS


@dataclass(frozen=True, slots=True)
class SplitSlice:
    """``split_name[from_:to]``: records, percent or shards of one split, or of all splits together (``all``).

    Bounds are exact: whole numbers, or for percent a ``Fraction`` with a finite decimal text; None is an open end;
    negative ones count from the end. Without bounds it is the whole split, and unit and rounding fall back to their
    defaults, as does the rounding of a unit that does not round: equal slices are equal values.

    >>> SplitSlice("train", None, 12.5, "%").to
    Fraction(25, 2)
    >>> str(SplitSlice("train", None, 12.5, "%"))
    'train[:12.5%]'

    Raises:
        SliceError: a percentage beyond -100..100, or a bound that its unit cannot have.
        UsageError: an unknown unit or rounding, or a name that no split has.
    """

    split_name: str
    from_: int | Fraction | None = None
    to: int | Fraction | None = None
    unit: Unit = "abs"
    rounding: Rounding = "closest"

    def __post_init__(self) -> None:
        check_split_name(self.split_name)
        if self.unit not in _UNITS:
            raise UsageError(f"unknown unit {self.unit!r}", hint="A unit is 'abs', '%' or 'shard'.")
        check_rounding(self.rounding)
        for name in ("from_", "to"):
            if (bound := getattr(self, name)) is not None:
                object.__setattr__(self, name, _exact_bound(bound, self.unit))
        if self.is_whole:
            object.__setattr__(self, "unit", "abs")
        if self.unit != "%":
            object.__setattr__(self, "rounding", "closest")

    @property
    def is_whole(self) -> bool:
        """Whether there are no bounds: the whole split."""
        return self.from_ is None and self.to is None

    def __str__(self) -> str:
        if self.is_whole:
            return self.split_name
        return f"{self.split_name}[{print_bound(self.from_, self.unit)}:{print_bound(self.to, self.unit)}]"


def print_bound(bound: int | Fraction | None, unit: Unit) -> str:
    """The exact text of a bound, nothing for an open end.

    >>> print_bound(Fraction(-1, 8), "%"), print_bound(3, "shard"), print_bound(None, "abs")
    ('-0.125%', '3shard', '')
    """
    if bound is None:
        return ""
    return (str(bound) if isinstance(bound, int) else _decimal_text(bound)) + _SUFFIX[unit]


def check_rounding(rounding: str) -> Rounding:
    """``rounding`` if it is the name of one; UsageError otherwise."""
    if rounding not in _ROUNDINGS:
        raise UsageError(
            f"unknown rounding {rounding!r}", hint="A rounding is 'closest' (the default) or 'pct1_dropremainder'."
        )
    return cast("Rounding", rounding)


def check_split_name(name: object) -> None:
    """UsageError if ``name`` cannot be written in an expression."""
    if not isinstance(name, str) or len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise UsageError(
            f"invalid split name {str(name)[:80]!r}",
            hint="A split name holds letters, digits, '_' and '-'; ReadInstruction.from_spec() takes an expression.",
            details={"split": str(name)[:80]},
        )


def _exact_bound(bound: Any, unit: Unit) -> int | Fraction:
    if type(bound) is int and -100 <= bound <= 100:
        return bound  # what most texts give, in any unit: nothing to convert
    if isinstance(bound, bool):
        raise SliceError(f"a bound is a number, not {bound}")
    if unit == "%":
        percent = _exact_percent(bound)
        if not -100 <= percent <= 100:
            raise SliceError(
                f"a percentage lies between -100% and 100%, and {shown(bound)} does not",
                hint="Give records with unit='abs'.",
            )
        return percent
    if unit == "abs" and isinstance(bound, Real) and not isinstance(bound, Rational) and float(bound).is_integer():
        bound = int(float(bound))  # 1e6 is how many people write a million records
    try:
        position = operator.index(bound)
    except TypeError as error:
        counted = "records" if unit == "abs" else "shards"
        raise SliceError(
            f"a bound in {counted} is a whole number, not {shown(bound)}",
            hint="Percentages may have fractions: unit='%'.",
        ) from error
    if abs(position) >= _LARGEST:
        raise SliceError(f"a bound has at most {MAX_DIGITS} digits")
    return position


def _exact_percent(bound: Any) -> int | Fraction:
    """The percentage as a number that is exactly what its decimal text says; whole ones as int."""
    if isinstance(bound, Decimal) and bound.is_finite() and _is_long(bound):
        raise _no_decimal_text()
    try:
        if isinstance(bound, float):
            # 33.3 is thirty-three point three, not the binary fraction nearest to it.
            percent = Fraction(float.__repr__(bound))
        elif isinstance(bound, Decimal):
            percent = Fraction(bound)
        elif isinstance(bound, Rational):
            # A Fraction too: one of numpy's integers overflows.
            percent = Fraction(int(bound.numerator), int(bound.denominator))
        elif isinstance(bound, Real):
            percent = Fraction(str(bound))  # the floats of numpy
        else:
            percent = Fraction(operator.index(bound))
    except (TypeError, ValueError, OverflowError) as error:
        raise SliceError(f"a percentage is a finite number, not {shown(bound)}") from error
    if percent.denominator == 1:
        return percent.numerator
    if percent.denominator >= _LARGEST or _LARGEST % percent.denominator:
        raise _no_decimal_text()
    return percent


def _is_long(number: Decimal) -> bool:
    """Whether its digits or its exponent would make a huge number."""
    return len(number.as_tuple().digits) > 2 * MAX_DIGITS or abs(number.adjusted()) > MAX_DIGITS


def _no_decimal_text() -> SliceError:
    return SliceError(
        f"a percentage has a decimal text of at most {MAX_DIGITS} digits, and this one has none",
        hint="Give the digits you want, e.g. Decimal('33.333').",
    )


def _decimal_text(value: Fraction) -> str:
    digits = 0
    while 10**digits % value.denominator:
        digits += 1
    scaled = abs(value.numerator) * 10**digits // value.denominator
    whole, fraction = divmod(scaled, 10**digits)
    return f"{'-' if value < 0 else ''}{whole}.{fraction:0{digits}d}"


PartUnit: TypeAlias = Literal["abs", "shard"]

Count = TypeVar("Count", int, float)

MAX_DEPTH: Final = 16
"""How deep parts of parts may be nested; keeps hostile text from deep recursion."""

_PART_UNITS: Final = ("abs", "shard")


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
        if self.unit not in _PART_UNITS:
            raise UsageError(
                f"exact parts have no unit {self.unit!r}",
                hint="Give unit='abs' for records or unit='shard' for whole files.",
            )
        object.__setattr__(self, "count", check_count(self.count))
        for name in ("first", "stop"):
            object.__setattr__(self, name, whole_number(getattr(self, name), name))
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
        """How deep divisions are nested, this one included."""
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


def check_count(count: SupportsIndex, name: str = "the number of parts", *, least: int = 1) -> int:
    """``count`` as an int; UsageError if it is less than ``least`` or has very many digits."""
    return whole_number(count, name, least=least, below=10**MAX_DIGITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundReason:
    """The way from a bound, as written, to the record that it came to.

    Attributes:
        bound: as written, ``""`` for an open one.
        exact: the records before rounding, as an exact decimal text; None where nothing is rounded.
        record: the record that it came to, counted from the start of the split; a float where TFDS makes a fraction.
        why: the steps, in words.
    """

    bound: str
    exact: str | None
    record: int | float
    why: str


def print_exact(number: Fraction) -> str:
    """The exact decimal text of a number of records.

    >>> print_exact(Fraction(101, 2)), print_exact(Fraction(7))
    ('50.5', '7')
    """
    return print_bound(number.numerator if number.denominator == 1 else number, "abs")
