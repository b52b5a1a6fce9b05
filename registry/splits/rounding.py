"""How many records are so many percent? Whole numbers and fractions only; a float never comes near a record.

Follows what the TFDS splits document says (not what its code does, see ``tfds4``): a negative percentage is turned into
its complement first, so ``[-p%:]`` is always ``[(100-p)%:]``, and ``[:p%]`` with ``[p%:]`` tile a split.
"""

from __future__ import annotations

from fractions import Fraction

from registry.splits.slices import Rounding


def round_percent(percent: int | Fraction, num_examples: int, rounding: Rounding) -> int:
    """The record at ``percent`` (-100..100) of ``num_examples`` records, a position 0..num_examples.

    ``closest``: the nearest record, halves up. ``pct1_dropremainder``: every percent is ``num_examples // 100``
    records; the caller has made sure that ``percent`` is whole and that there are 100 records.

    >>> round_percent(50, 101, "closest"), round_percent(-1, 30, "closest")
    (51, 30)
    >>> round_percent(99, 299, "pct1_dropremainder")
    198
    """
    percent = from_start(percent)
    if rounding == "pct1_dropremainder":
        return int(percent * (num_examples // 100))
    numerator, denominator = percent.numerator * num_examples, percent.denominator * 100
    return (2 * numerator + denominator) // (2 * denominator)


def from_start(percent: int | Fraction) -> int | Fraction:
    """A percentage counted from the start of the split: a negative one's complement."""
    return 100 + percent if percent < 0 else percent
