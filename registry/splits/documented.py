"""The slicing rule ``documented``: resolves a slice to records as the TFDS splits document describes it.

Arithmetic is exact and uses no floats. A bound is first counted from the start, then compared, and only then rounded,
so the order of two bounds never depends on rounding. A negative percentage is first replaced by its complement (TFDS's
code differs, see ``tfds4``): ``[-p%:]`` always equals ``[(100-p)%:]``, and ``[:p%]`` and ``[p%:]`` tile a split.
"""

from __future__ import annotations

from fractions import Fraction

from registry.model import counted
from registry.splits.layout import Extent
from registry.splits.terms import BoundReason, Rounding, SplitSlice, print_bound, print_exact


def find_range(part: SplitSlice, extent: Extent) -> tuple[int, int]:
    """``(start, stop)`` of the records of ``part`` in ``extent``, 0 <= start <= stop <= num_examples.

    ``part`` must have a bound. Negative bounds count from the end. A bound may be at the very end of the split, and
    both may be equal, which gives an empty slice. ``round_percent`` rounds percentages. Under ``pct1_dropremainder`` an
    open end is 100%, so it drops the remainder of the division by 100 too; a percentage with a fraction is rejected,
    because 5 * len(1%) = len(5%) could not hold for it.

    Raises:
        SliceError: a bound is outside the split, the slice is reversed, or ``pct1_dropremainder`` cannot divide it.
    """
    if part.rounding == "pct1_dropremainder":
        _check_divisible(part, extent)
    first = _counted_from_start(part, part.from_, extent, is_end=False)
    last = _counted_from_start(part, part.to, extent, is_end=True)
    if first > last:
        raise extent.refuse(
            part,
            f"{part} is reversed: it runs from {print_bound(first, part.unit)} to {print_bound(last, part.unit)} "
            f"of {extent.describe(part.unit)}",
            hint="Put the smaller bound first; write the parts of a union in the order in which you want to read them.",
        )
    return _record_at(part, first, extent), _record_at(part, last, extent)


def explain_bound(part: SplitSlice, bound: int | Fraction | None, extent: Extent, is_end: bool) -> BoundReason:
    """Explain how ``bound``, the second one if ``is_end``, became a record. ``find_range`` must accept ``part``."""
    place = _counted_from_start(part, bound, extent, is_end=is_end)
    record = _record_at(part, place, extent)
    text = print_bound(place, part.unit)
    steps = []
    exact = None
    if bound is None:
        steps.append(f"an open {'end' if is_end else 'start'}")
    elif bound < 0:
        counts = f"{print_bound(bound, part.unit)} counts from the end"
        steps.append(counts if part.unit == "abs" else f"{counts} and is {text}")
    if part.rounding == "pct1_dropremainder":
        if is_end or bound is not None:
            steps.append(f"{text} is {place} times 1%, which is {counted(extent.num_examples // 100, 'record')}")
    elif part.unit == "%" and bound is not None:
        exact = Fraction(place) * extent.num_examples / 100
        steps.append(f"{text} of {counted(extent.num_examples, 'record')} is {_explain_rounding(exact)}")
    elif part.unit == "shard" and bound is not None:
        steps.append(f"{text} is the end" if place == extent.num_shards else f"where {text} begins")
    return BoundReason(
        bound=print_bound(bound, part.unit),
        exact=None if exact is None else print_exact(exact),
        record=record,
        why=", ".join(steps) or "as written",
    )


def _explain_rounding(exact: Fraction) -> str:
    text = print_exact(exact)
    if exact.denominator == 1:
        return text
    return f"{text}, and a half goes up" if exact.denominator == 2 else f"{text}, rounded"


def _end_of(part: SplitSlice, extent: Extent) -> int:
    """The end of ``extent`` in the unit of ``part``."""
    return {"abs": extent.num_examples, "%": 100, "shard": extent.num_shards}[part.unit]


def _counted_from_start(
    part: SplitSlice, bound: int | Fraction | None, extent: Extent, *, is_end: bool
) -> int | Fraction:
    """A bound in its own unit, counted from the start; percentages were checked when the slice was made."""
    if bound is None:
        return _end_of(part, extent) if is_end else 0
    if part.unit == "%":
        return from_start(bound)
    end = _end_of(part, extent)
    if not -end <= bound <= end:
        raise extent.refuse(
            part,
            f"{part} is out of range: {print_bound(bound, part.unit)} is outside {extent.describe(part.unit)}",
            hint=_allowed_bounds(part, end),
        )
    return bound + end if bound < 0 else bound


def _allowed_bounds(part: SplitSlice, end: int) -> str:
    if part.unit == "shard" and part.from_ is not None and part.to == part.from_ + 1:
        return f"Shards are counted from 0 to {end - 1}, or from -{end} to -1." if end else "The split has no shards."
    first, last = print_bound(-end, part.unit), print_bound(end, part.unit)
    return f"Bounds must be between {first} and {last}; leave a bound out to read to the end."


def _record_at(part: SplitSlice, bound: int | Fraction, extent: Extent) -> int:
    """The record at a bound that is counted from the start."""
    if part.unit == "%":
        return round_percent(bound, extent.num_examples, part.rounding)
    return extent.shard_start(int(bound)) if part.unit == "shard" else int(bound)


def _check_divisible(part: SplitSlice, extent: Extent) -> None:
    if extent.num_examples < 100:
        raise extent.refuse(
            part,
            f"{part}: pct1_dropremainder requires at least 100 records, found {extent.describe(part.unit)}",
            hint="Use the rounding 'closest' for a split of fewer than 100 records.",
        )
    if fractions := [bound for bound in (part.from_, part.to) if isinstance(bound, Fraction)]:
        raise extent.refuse(
            part,
            f"{part}: pct1_dropremainder requires whole percentages, found {print_bound(fractions[0], '%')}",
            hint="Use the rounding 'closest' for fractions of a percent.",
        )


def round_percent(percent: int | Fraction, num_examples: int, rounding: Rounding) -> int:
    """The record at ``percent`` (-100..100) of ``num_examples`` records, a position 0..num_examples.

    ``closest`` rounds to the nearest record, halves up. Under ``pct1_dropremainder`` every percent is
    ``num_examples // 100`` records; the caller must check that ``percent`` is whole and that there are 100 records.

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
    """A percentage counted from the start of the split: 100 + percent if it is negative."""
    return 100 + percent if percent < 0 else percent
