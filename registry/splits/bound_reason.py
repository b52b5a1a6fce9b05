"""How did one bound of a slice become a record? What each slicing rule says of its own steps."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from registry.splits.slices import print_bound


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
