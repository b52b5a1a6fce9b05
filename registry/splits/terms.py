"""The terms of a split expression: slices of splits, and exact parts.

A ``SplitSlice`` is a split name and at most two bounds of one unit. An ``EvenPart`` is one or more of N equal parts: it
is a term of its own because the bounds of a third are not known before the layout is. The grammar parses text to terms,
and the slicing rules resolve terms to record ranges.
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
"""A bound of a slice: a whole number, or for percentages also a float, a Decimal or a Fraction."""

ALL: Final = "all"
"""The name of all splits of a version, in order."""

MAX_DIGITS: Final = 400
"""Maximum number of digits of a bound: enough for every float, and few enough that hostile text costs little time."""

MAX_NAME_LENGTH: Final = 200

_UNITS: Final = ("abs", "%", "shard")
_ROUNDINGS: Final = ("closest", "pct1_dropremainder")
_SUFFIX: Final = {"abs": "", "%": "%", "shard": "shard"}
_NAME = re.compile(r"[\w-]+")  # includes letters beyond ASCII: TFDS allows them, and its slicing rule parses them
_LARGEST: Final = 10**MAX_DIGITS


@dataclass(frozen=True, slots=True)
class SplitSlice:
    """``split_name[from_:to]``: records, percent or shards of one split, or of all splits together (``all``).

    Bounds are exact: whole numbers, or for percent also a ``Fraction`` with a finite decimal text. None is an open
    bound, and negative bounds count from the end. A slice without bounds is the whole split.

    Equal slices are equal values: a unit or a rounding that has no effect is reset to its default.

    >>> SplitSlice("train", None, 12.5, "%").to
    Fraction(25, 2)
    >>> str(SplitSlice("train", None, 12.5, "%"))
    'train[:12.5%]'

    Raises:
        SliceError: a percentage is outside -100..100, or a bound is not a valid number of its unit.
        UsageError: the unit or the rounding is unknown, or the split name is invalid.
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
        """Whether it has no bounds and is therefore the whole split."""
        return self.from_ is None and self.to is None

    def __str__(self) -> str:
        if self.is_whole:
            return self.split_name
        return f"{self.split_name}[{print_bound(self.from_, self.unit)}:{print_bound(self.to, self.unit)}]"


def print_bound(bound: int | Fraction | None, unit: Unit) -> str:
    """The exact text of a bound, empty for an open one.

    >>> print_bound(Fraction(-1, 8), "%"), print_bound(3, "shard"), print_bound(None, "abs")
    ('-0.125%', '3shard', '')
    """
    if bound is None:
        return ""
    return (str(bound) if isinstance(bound, int) else _decimal_text(bound)) + _SUFFIX[unit]


def check_rounding(rounding: str) -> Rounding:
    """Return ``rounding``. Raises UsageError if it is unknown."""
    if rounding not in _ROUNDINGS:
        raise UsageError(
            f"unknown rounding {rounding!r}", hint="A rounding is 'closest' (the default) or 'pct1_dropremainder'."
        )
    return cast("Rounding", rounding)


def check_split_name(name: object) -> None:
    """Raise UsageError if ``name`` cannot be written in an expression."""
    if not isinstance(name, str) or len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise UsageError(
            f"invalid split name {str(name)[:80]!r}",
            hint="A split name holds letters, digits, '_' and '-'; ReadInstruction.from_spec() takes an expression.",
            details={"split": str(name)[:80]},
        )


def _exact_bound(bound: Any, unit: Unit) -> int | Fraction:
    if type(bound) is int and -100 <= bound <= 100:
        return bound  # the common case: valid in every unit, nothing to convert
    if isinstance(bound, bool):
        raise SliceError(f"a bound must be a number, not {bound}")
    if unit == "%":
        percent = _exact_percent(bound)
        if not -100 <= percent <= 100:
            raise SliceError(
                f"a percentage must be between -100% and 100%, not {shown(bound)}",
                hint="To count records, pass unit='abs'.",
            )
        return percent
    if unit == "abs" and isinstance(bound, Real) and not isinstance(bound, Rational) and float(bound).is_integer():
        bound = int(float(bound))  # accept 1e6 for a million records
    try:
        position = operator.index(bound)
    except TypeError as error:
        counted = "records" if unit == "abs" else "shards"
        raise SliceError(
            f"a bound in {counted} must be a whole number, not {shown(bound)}",
            hint="Percentages may have fractions: unit='%'.",
        ) from error
    if abs(position) >= _LARGEST:
        raise SliceError(f"a bound can have at most {MAX_DIGITS} digits")
    return position


def _exact_percent(bound: Any) -> int | Fraction:
    """The percentage with exactly the value of its decimal text; an int if it is whole."""
    if isinstance(bound, Decimal) and bound.is_finite() and _is_long(bound):
        raise _no_decimal_text()
    try:
        if isinstance(bound, float):
            # 33.3 is thirty-three point three, not the binary fraction nearest to it.
            percent = Fraction(float.__repr__(bound))
        elif isinstance(bound, Decimal):
            percent = Fraction(bound)
        elif isinstance(bound, Rational):
            # Converted to Python integers first, because arithmetic on numpy integers overflows.
            percent = Fraction(int(bound.numerator), int(bound.denominator))
        elif isinstance(bound, Real):
            percent = Fraction(str(bound))  # numpy floats
        else:
            percent = Fraction(operator.index(bound))
    except (TypeError, ValueError, OverflowError) as error:
        raise SliceError(f"a percentage must be a finite number, not {shown(bound)}") from error
    if percent.denominator == 1:
        return percent.numerator
    if percent.denominator >= _LARGEST or _LARGEST % percent.denominator:
        raise _no_decimal_text()
    return percent


def _is_long(number: Decimal) -> bool:
    """Whether its digits or its exponent are so large that arithmetic on it would be slow."""
    return len(number.as_tuple().digits) > 2 * MAX_DIGITS or abs(number.adjusted()) > MAX_DIGITS


def _no_decimal_text() -> SliceError:
    return SliceError(
        f"a percentage must have a finite decimal text of at most {MAX_DIGITS} digits",
        hint="Write the digits that you want, e.g. Decimal('33.333').",
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
"""Maximum nesting of parts of parts. It limits the parser's recursion on hostile text."""

_PART_UNITS: Final = ("abs", "shard")


@dataclass(frozen=True, slots=True)
class EvenPart:
    """Parts ``first``..``stop`` (stop excluded) of ``count`` equal parts of ``split``.

    Sizes differ by at most one, the larger parts first. ``unit="abs"`` divides records. ``unit="shard"`` divides files,
    so that no two parts open the same file; a file that two slices of a union touch counts as two. ``drop_remainder``
    leaves out the last records or files, so that all parts have the same size.

    ``split`` is the divided terms, or a text if the slicing rules read it differently. The rule that resolves the part
    then parses the text.

    >>> str(EvenPart((SplitSlice("train"), SplitSlice("test")), 3, 0, 1))
    'even(train+test, 3)[0]'
    >>> str(EvenPart((SplitSlice("train"),), 8, 2, 8, "shard", drop_remainder=True))
    'even(train, 8shard, drop_remainder)[2:8]'

    Raises:
        UsageError: there are no parts, the range is outside them, the unit is unknown, or parts are nested too deep.
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
                f"unknown unit {self.unit!r} of exact parts",
                hint="Pass unit='abs' for records or unit='shard' for whole files.",
            )
        object.__setattr__(self, "count", check_count(self.count))
        for name in ("first", "stop"):
            object.__setattr__(self, name, whole_number(getattr(self, name), name))
        if not 0 <= self.first <= self.stop <= self.count:
            raise UsageError(
                f"parts {shown(self.first)}..{shown(self.stop)} are out of range: "
                f"there {'is 1 part' if self.count == 1 else f'are {self.count} parts'}, counted from 0"
            )
        if self.depth > MAX_DEPTH:
            raise UsageError(f"parts can be nested at most {MAX_DEPTH} deep")

    @property
    def terms(self) -> tuple[Term, ...]:
        """The divided terms; empty for a text that no rule has parsed yet."""
        return () if isinstance(self.split, str) else self.split

    @property
    def depth(self) -> int:
        """The nesting depth of divisions, counting this one."""
        return 1 + max((term.depth for term in self.terms if isinstance(term, EvenPart)), default=0)

    def bounds(self, size: Count) -> tuple[Count, Count]:
        """The start and the stop of the parts among ``size`` records or files.

        A fractional size, which occurs under the rule ``tfds-4`` only, is divided as TFDS 4 divides it.

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
    """``count`` as an int. Raises UsageError if it is less than ``least`` or has more than 400 digits."""
    return whole_number(count, name, least=least, below=10**MAX_DIGITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundReason:
    """How one bound of a slice was resolved to a record.

    Attributes:
        bound: the bound as written, ``""`` for an open one.
        exact: the number of records before rounding, as an exact decimal text; None if nothing is rounded.
        record: the resulting record, counted from the start of the split; a float if TFDS computes a fraction.
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
