"""Which records does a slice name, as the TFDS documents say it? The slicing rule ``documented``.

One of the functions behind the seam ``RangeFinder`` (resolve.py); ``tfds4`` is the other. Exact: a bound is first
counted from the start, compared, and only then rounded, so the order of two bounds never depends on rounding.
"""

from __future__ import annotations

from fractions import Fraction

from registry.errors import SliceError
from registry.splits.layout import Extent
from registry.splits.rounding import from_start, round_percent
from registry.splits.slices import ALL, SplitSlice, print_bound


def documented_range(part: SplitSlice, extent: Extent) -> tuple[int, int]:
    """``(start, stop)`` of the records that ``part`` names in ``extent``, 0 <= start <= stop <= num_examples.

    ``part`` has a bound. Negative bounds count from the end. A bound may lie at the very end, and both may be the same:
    an empty slice. Percent are rounded as ``round_percent`` says; under ``pct1_dropremainder`` an open end is 100%, so
    the remainder of the division by 100 is dropped there too, and a percentage with a fraction is refused, because
    5 * len(1%) = len(5%) could not hold for it.

    Raises:
        SliceError: a bound outside the split, a reversed slice, or what ``pct1_dropremainder`` cannot divide.
    """
    if part.rounding == "pct1_dropremainder":
        _check_divisible(part, extent)
    first = counted_from_start(part, part.from_, extent, default=0)
    last = counted_from_start(part, part.to, extent, default=end_of(part, extent))
    if first > last:
        raise slice_error(
            f"{part} is reversed: it runs from {print_bound(first, part.unit)} to {print_bound(last, part.unit)} "
            f"of {_size(part, extent)}",
            part,
            extent,
            hint="The first bound is the smaller one; write the parts of a union in the order you want to read them.",
        )
    return record_at(part, first, extent), record_at(part, last, extent)


def slice_error(message: str, part: SplitSlice, extent: Extent, *, hint: str | None = None) -> SliceError:
    """A SliceError with the slice and its split in ``details``: split, from, to, unit, num_examples, num_shards."""
    return SliceError(
        message,
        hint=hint,
        details={
            "slice": str(part),
            "split": part.split_name,
            "from": print_bound(part.from_, part.unit) or None,
            "to": print_bound(part.to, part.unit) or None,
            "unit": part.unit,
            "num_examples": extent.num_examples,
            "num_shards": extent.num_shards,
        },
    )


def end_of(part: SplitSlice, extent: Extent) -> int:
    """The end of ``extent`` in the unit of ``part``."""
    return {"abs": extent.num_examples, "%": 100, "shard": extent.num_shards}[part.unit]


def counted_from_start(
    part: SplitSlice, bound: int | Fraction | None, extent: Extent, *, default: int
) -> int | Fraction:
    """A bound in its own unit, counted from the start; percentages were checked when the slice was made."""
    if bound is None:
        return default
    if part.unit == "%":
        return from_start(bound)
    end = end_of(part, extent)
    if not -end <= bound <= end:
        raise slice_error(
            f"{part} is out of range: {print_bound(bound, part.unit)} lies outside {_size(part, extent)}",
            part,
            extent,
            hint=f"Bounds lie between {print_bound(-end, part.unit)} and {print_bound(end, part.unit)}; "
            "leave a bound out to read to the end.",
        )
    return bound + end if bound < 0 else bound


def record_at(part: SplitSlice, bound: int | Fraction, extent: Extent) -> int:
    """The record at a bound that is counted from the start."""
    if part.unit == "%":
        return round_percent(bound, extent.num_examples, part.rounding)
    return extent.shard_start(int(bound)) if part.unit == "shard" else int(bound)


def _check_divisible(part: SplitSlice, extent: Extent) -> None:
    if extent.num_examples < 100:
        raise slice_error(
            f"{part}: pct1_dropremainder cannot divide {_size(part, extent)} into 100 parts, it would be empty",
            part,
            extent,
            hint="Use the rounding 'closest' for a split of fewer than 100 records.",
        )
    if fractions := [bound for bound in (part.from_, part.to) if isinstance(bound, Fraction)]:
        raise slice_error(
            f"{part}: pct1_dropremainder counts whole percent, and {print_bound(fractions[0], '%')} is none",
            part,
            extent,
            hint="Use the rounding 'closest' for fractions of a percent.",
        )


def _size(part: SplitSlice, extent: Extent) -> str:
    name = "all splits" if extent.name == ALL else f"split {extent.name!r}"
    shards = f" in {extent.num_shards} shards" if part.unit == "shard" else ""
    return f"{name} with {extent.num_examples} records{shards}"
