"""The slicing rule ``tfds-4``: which records a slice names as TFDS 4 resolves it, for datasets made by TFDS.

Follows what TFDS 4.9.10 does, its floats and open ends and wrapping shards included, wherever the result can be read.
Where TFDS makes an instruction that reads something else than the slice (a negative take, a fraction of a record), we
refuse it.
"""

from __future__ import annotations

import math
from fractions import Fraction

from registry.splits.layout import Extent, counted
from registry.splits.terms import ALL, BoundReason, EvenPart, SplitSlice, print_bound, print_exact


def find_range(part: SplitSlice, extent: Extent) -> tuple[int, int]:
    """``(start, stop)`` of the records that TFDS 4.9.10 reads for ``part``, 0 <= start <= stop <= num_examples.

    ``part`` has a bound.

    Raises:
        SliceError: TFDS refuses the slice too (out of range, ``all[...]``, fewer than 100 records under
            ``pct1_dropremainder``), or makes a negative take or a fraction of a record of it.
    """
    return _readable(part, *_bounds(part, extent), extent)


def find_part(part: SplitSlice, extent: Extent, parts: tuple[EvenPart, ...]) -> tuple[int, int]:
    """``find_range`` of what ``parts`` of ``even_splits`` leave of the slice, the innermost first.

    TFDS divides every range of a union on its own, fractions of records included, and refuses a reversed one there.

    Raises:
        SliceError: as ``find_range``, and where the slice is reversed.
    """
    start, stop = _bounds(part, extent)
    if start > stop:
        raise extent.refuse(
            part,
            f"{part} is reversed: TFDS does not divide records {start}..{stop} into parts",
            hint="The first bound is the smaller one.",
        )
    for one in parts:
        size = stop - start
        try:
            first, last = one.bounds(int(size) if size == int(size) else size)
        except OverflowError as error:  # no float counts that many parts, in TFDS neither
            raise extent.refuse(
                part,
                f"{part}: TFDS cannot divide the fractions of records {start}..{stop} into so many parts",
                hint="Use whole percent with pct1_dropremainder, or the rounding 'closest'.",
            ) from error
        start, stop = start + first, start + last
    return _readable(part, start, stop, extent)


def explain_bound(part: SplitSlice, bound: int | Fraction | None, extent: Extent, is_end: bool) -> BoundReason:
    """Why ``bound``, the second one where ``is_end``, became its record. ``part`` is one that ``find_range`` found."""
    exact = None
    if part.unit == "%" and bound is not None and part.rounding == "closest":
        exact = Fraction(bound) * extent.num_examples / 100
    record, steps = _explain_steps(part, bound, extent, exact, is_end)
    return BoundReason(
        bound=print_bound(bound, part.unit),
        exact=None if exact is None else print_exact(exact),
        record=int(record) if record == int(record) else record,
        why=", ".join(steps) or "as written",
    )


def _explain_steps(
    part: SplitSlice, bound: int | Fraction | None, extent: Extent, exact: Fraction | None, is_end: bool
) -> tuple[float, list[str]]:
    size = extent.num_examples
    if bound is None:
        return (size, ["an open end"]) if is_end else (0, ["an open start"])
    text = print_bound(bound, part.unit)
    if part.unit == "shard":
        if is_end and bound <= 0:
            place = f"{int(bound) + extent.num_shards}shard"
            return _end_of_shards(bound, extent), [f"TFDS counts {text} as an end from the end: {place}"]
        position = (_end_of_shards if is_end else _first_of_shards)(bound, extent)
        return position, [f"{text} of {counted(extent.num_shards, 'shard')}"]
    value: float = int(bound) if part.unit == "abs" else _rounded(bound, part, extent)
    steps = []
    if exact is not None:
        steps.append(
            f"{text} of {counted(size, 'record')} is {print_exact(exact)}, in floats and halves to even {value}"
        )
    elif part.unit == "%":
        steps.append(f"{text} is {print_bound(bound, 'abs')} times trunc({size} / 100.0), in floats {value}")
    if value < 0:
        steps.append(f"{value} counts from the end")
    elif bound < 0:
        steps.append("which TFDS takes for the beginning")
    return size + value if value < 0 else value, steps


def _bounds(part: SplitSlice, extent: Extent) -> tuple[float, float]:
    """Both bounds in records, counted from the start. Raises SliceError where TFDS refuses them."""
    if part.split_name == ALL:
        raise extent.refuse(
            part,
            f"{part}: TFDS has no slices of 'all'",
            hint="Resolve it under the slicing rule 'documented', or slice every split by its name.",
        )
    first, last = _requested(part, extent)
    num_examples = extent.num_examples
    if max(abs(first), abs(last)) > num_examples:
        raise extent.refuse(
            part,
            f"{part} is out of range: TFDS makes records {first}..{last} of it, in {extent.describe()}",
            hint="Leave a bound out to read to the end.",
        )
    return num_examples + first if first < 0 else first, num_examples + last if last < 0 else last


def _requested(part: SplitSlice, extent: Extent) -> tuple[float, float]:
    """Both bounds in records, negative ones still counted from the end: ints, but for some floats of pct1."""
    if part.unit == "shard":
        return _first_of_shards(part.from_, extent), _end_of_shards(part.to, extent)
    if part.unit == "abs":
        return int(part.from_ or 0), extent.num_examples if part.to is None else int(part.to)
    if part.rounding == "pct1_dropremainder" and extent.num_examples < 100:
        raise extent.refuse(
            part,
            f"{part}: pct1_dropremainder cannot divide {extent.describe()} into 100 parts, it would be empty",
            hint="Use the rounding 'closest' for a split of fewer than 100 records.",
        )
    last: float = extent.num_examples if part.to is None else _rounded(part.to, part, extent)
    return _rounded(part.from_ or 0, part, extent), last


def _rounded(percent: int | Fraction, part: SplitSlice, extent: Extent) -> float:
    """The percentage in records, by the operations on floats that TFDS makes of a text, in its order: halves to even.

    A whole percentage that its API is given as an int is never a float there; that shows above 2**53 only.
    """
    number = float(percent)
    if part.rounding == "pct1_dropremainder":
        return number * math.trunc(extent.num_examples / 100.0)
    return round(number * extent.num_examples / 100.0)


def _first_of_shards(shard: int | Fraction | None, extent: Extent) -> int:
    """Where a slice begins that begins with ``shard``; beyond either end, Python's slices clamp."""
    index = int(shard or 0)
    return extent.shard_start(max(0, extent.num_shards + index) if index < 0 else min(index, extent.num_shards))


def _end_of_shards(shard: int | Fraction | None, extent: Extent) -> int:
    """Where a slice ends that ends before ``shard``; 0 is the end, and what is still negative wraps once more."""
    index = extent.num_shards if shard is None else int(shard)
    return _first_of_shards(index if index > 0 else extent.num_shards + index, extent)


def _readable(part: SplitSlice, start: float, stop: float, extent: Extent) -> tuple[int, int]:
    """The range as whole records, where TFDS makes a readable instruction of it; an empty range where it makes none."""
    if start >= stop:
        # TFDS never compares the bounds: a shard that holds both gets a negative take, and otherwise no shard is read.
        if stop < start < extent.num_examples and stop > 0:
            last_shard, first_shard = extent.shard_of(math.ceil(stop) - 1), extent.shard_of(math.floor(start))
            if last_shard == first_shard:
                made = "reads the rest of the shard for" if start == stop + 1 else "makes a negative take of"
                raise extent.refuse(
                    part,
                    f"{part} is reversed: TFDS {made} records {start}..{stop} in shard {first_shard}",
                    hint="The first bound is the smaller one.",
                )
        return int(start), int(start)  # nothing, at the place where the slice begins
    if start != int(start) or stop != int(stop):
        raise extent.refuse(
            part,
            f"{part}: TFDS makes the fractions of records {start}..{stop} of it",
            hint="Use whole percent with pct1_dropremainder, or the rounding 'closest'.",
        )
    return int(start), int(stop)
