"""The slicing rule ``tfds-4``: resolves a slice to records as TFDS 4 does, for datasets prepared by TFDS.

It follows TFDS 4.9.10, including its floats, open ends and wrapping shards. It rejects slices for which TFDS makes an
instruction that does not read the slice (a negative take, a fraction of a record).
"""

from __future__ import annotations

import math
from fractions import Fraction

from registry.errors import spell
from registry.model import counted
from registry.splits.layout import Extent
from registry.splits.terms import ALL, BoundReason, EvenPart, SplitSlice, print_bound, print_exact


def find_range(part: SplitSlice, extent: Extent) -> tuple[int, int]:
    """``(start, stop)`` of the records that TFDS 4.9.10 reads for ``part``, 0 <= start <= stop <= num_examples.

    ``part`` must have a bound.

    Raises:
        SliceError: TFDS also rejects the slice (out of range, ``all[...]``, fewer than 100 records under
            ``pct1_dropremainder``), or turns it into a negative take or a fraction of a record.
    """
    return _readable(part, *_bounds(part, extent), extent)


def find_part(part: SplitSlice, extent: Extent, parts: tuple[EvenPart, ...]) -> tuple[int, int]:
    """``(start, stop)`` of the records that remain of ``part`` after ``parts`` divide it, the innermost part first.

    TFDS divides every range of a union on its own, including fractions of records, and rejects a reversed range there.

    Raises:
        SliceError: ``find_range`` rejects the slice, or the slice is reversed.
    """
    start, stop = _bounds(part, extent)
    if start > stop:
        raise extent.refuse(
            part,
            f"{part} is reversed: TFDS does not divide records {start}..{stop} into parts",
            hint="Put the smaller bound first.",
        )
    for item in parts:
        size = stop - start
        try:
            first, last = item.bounds(int(size) if size == int(size) else size)
        except OverflowError as error:  # the number of parts exceeds the largest float; TFDS fails too
            raise extent.refuse(
                part,
                f"{part}: TFDS cannot divide the fractions of records {start}..{stop} into that many parts",
                hint="Use whole percent with pct1_dropremainder, or the rounding 'closest'.",
            ) from error
        start, stop = start + first, start + last
    return _readable(part, start, stop, extent)


def explain_bound(part: SplitSlice, bound: int | Fraction | None, extent: Extent, is_end: bool) -> BoundReason:
    """Explain how ``bound``, the second one if ``is_end``, became a record. ``find_range`` must accept ``part``."""
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
        steps.append("which TFDS reads as the beginning")
    return size + value if value < 0 else value, steps


def _bounds(part: SplitSlice, extent: Extent) -> tuple[float, float]:
    """Both bounds in records, counted from the start. Raises SliceError if TFDS rejects them."""
    if part.split_name == ALL:
        raise extent.refuse(
            part,
            f"{part}: TFDS has no slices of 'all'",
            hint=f"Resolve it with {spell('slicing', 'documented')}, or slice every split by its name.",
        )
    first, last = _requested(part, extent)
    num_examples = extent.num_examples
    if max(abs(first), abs(last)) > num_examples:
        raise extent.refuse(
            part,
            f"{part} is out of range: TFDS resolves it to records {first}..{last} of {extent.describe()}",
            hint="Leave a bound out to read to the end.",
        )
    return num_examples + first if first < 0 else first, num_examples + last if last < 0 else last


def _requested(part: SplitSlice, extent: Extent) -> tuple[float, float]:
    """Both bounds in records, negative ones still counted from the end. They are ints, or floats under pct1."""
    if part.unit == "shard":
        return _first_of_shards(part.from_, extent), _end_of_shards(part.to, extent)
    if part.unit == "abs":
        return int(part.from_ or 0), extent.num_examples if part.to is None else int(part.to)
    if part.rounding == "pct1_dropremainder" and extent.num_examples < 100:
        raise extent.refuse(
            part,
            f"{part}: pct1_dropremainder requires at least 100 records, found {extent.describe()}",
            hint="Use the rounding 'closest' for a split of fewer than 100 records.",
        )
    last: float = extent.num_examples if part.to is None else _rounded(part.to, part, extent)
    return _rounded(part.from_ or 0, part, extent), last


def _rounded(percent: int | Fraction, part: SplitSlice, extent: Extent) -> float:
    """The percentage in records, by the same float operations in the same order as TFDS applies to a text.

    Halves are rounded to even.

    TFDS does not convert a whole percentage that its API receives as an int; this differs above 2**53 records only.
    """
    number = float(percent)
    if part.rounding == "pct1_dropremainder":
        return number * math.trunc(extent.num_examples / 100.0)
    return round(number * extent.num_examples / 100.0)


def _first_of_shards(shard: int | Fraction | None, extent: Extent) -> int:
    """The first record of a slice that begins with ``shard``. Beyond either end it clamps, as Python's slices do."""
    index = int(shard or 0)
    return extent.shard_start(max(0, extent.num_shards + index) if index < 0 else min(index, extent.num_shards))


def _end_of_shards(shard: int | Fraction | None, extent: Extent) -> int:
    """The stop of a slice that ends before ``shard``.

    As in TFDS, 0 means the end of the split, and an index that is still negative after counting from the end wraps a
    second time.
    """
    index = extent.num_shards if shard is None else int(shard)
    return _first_of_shards(index if index > 0 else extent.num_shards + index, extent)


def _readable(part: SplitSlice, start: float, stop: float, extent: Extent) -> tuple[int, int]:
    """The range as whole records; empty if TFDS makes no instruction. Raises SliceError if its instruction is wrong."""
    if start >= stop:
        # TFDS never compares the bounds. If one shard holds both, it gets a negative take; otherwise no shard is read.
        if stop < start < extent.num_examples and stop > 0:
            last_shard, first_shard = extent.shard_of(math.ceil(stop) - 1), extent.shard_of(math.floor(start))
            if last_shard == first_shard:
                made = "reads the rest of the shard for" if start == stop + 1 else "makes a negative take of"
                raise extent.refuse(
                    part,
                    f"{part} is reversed: TFDS {made} records {start}..{stop} in shard {first_shard}",
                    hint="Put the smaller bound first.",
                )
        return int(start), int(start)  # an empty range at the start of the slice
    if start != int(start) or stop != int(stop):
        raise extent.refuse(
            part,
            f"{part}: TFDS resolves it to fractions of records, {start}..{stop}",
            hint="Use whole percent with pct1_dropremainder, or the rounding 'closest'.",
        )
    return int(start), int(stop)
