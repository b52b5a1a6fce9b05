"""Why does an expression name these records? Every step from its text to files, in sentences and figures.

Uses the very functions that resolve, so that it cannot say anything else than what is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from registry.model import SlicingRule
from registry.splits.documented import counted_from_start, end_of, record_at
from registry.splits.files import FileInstruction
from registry.splits.instruction import ReadInstruction
from registry.splits.layout import Extent, Layout, RecordRange
from registry.splits.parts import EvenPart, Term
from registry.splits.plan import Plan
from registry.splits.ranges import print_ranges
from registry.splits.resolve import Finder, read_expression, slicing_rule
from registry.splits.rounding import from_start
from registry.splits.slices import ALL, SplitSlice, print_bound
from registry.splits.tfds4 import end_of_shards, first_of_shards, rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundReason:
    """How one bound of a slice became a record.

    Attributes:
        bound: as written, ``""`` for an open one.
        exact: the records before rounding, as an exact decimal text; None where nothing is rounded.
        record: the record that it came to, counted from the start of the split.
        why: the step, in words.
    """

    bound: str
    exact: str | None
    record: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TermReason:
    """Why one term of an expression names its records; those inside an exact part come before it.

    ``bounds`` is empty for a whole split and for an exact part.
    """

    term: str
    bounds: tuple[BoundReason, ...]
    ranges: tuple[RecordRange, ...]
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A plan, with the reason for each of its terms, and what is to be said of the plan as a whole."""

    plan: Plan
    terms: tuple[TermReason, ...]
    files: tuple[str, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """All of it, in reading order."""
        return (*(line for term in self.terms for line in term.why), *self.files)


def explain(
    expression: str | ReadInstruction,
    layout: Layout,
    *,
    slicing: SlicingRule | str = SlicingRule.DOCUMENTED,
    rounding: str | None = None,
) -> Explanation:
    """``resolve``, with the reasons. Arguments and errors are those of ``resolve``.

    >>> for line in explain("train[49%:50%]", {"train": [50, 51]}).sentences:
    ...     print(line)
    train[49%:50%] begins at record 49: 49% of 101 records is 49.49, rounded.
    train[49%:50%] ends before record 51: 50% of 101 records is 50.5, and a half goes up.
    train[49%:50%] reads records train 49..51: 2 of 101.
    It reads 2 records from 2 files: train-00000-of-00002 (skip 49, take 1) and train-00001-of-00002 (skip 0, take 1).
    """
    rule = slicing_rule(slicing)
    instruction = read_expression(expression, rule, rounding)
    finder = Finder(rule, layout)
    plan = Plan(instruction, rule, finder.named_splits(), finder.locate(instruction.terms))
    reasons = tuple(reason for term in instruction.terms for reason in _explain_term(term, finder, rule))
    return Explanation(plan=plan, terms=reasons, files=tuple(_explain_files(plan)))


def _explain_term(term: Term, finder: Finder, rule: SlicingRule) -> Iterator[TermReason]:
    located = finder.locate((term,))
    ranges = tuple(records for records, _ in located)
    if isinstance(term, EvenPart):
        for inner in term.terms:
            yield from _explain_term(inner, finder, rule)
        yield TermReason(term=str(term), bounds=(), ranges=ranges, why=tuple(_explain_part(term, finder, rule, ranges)))
        return
    extent = finder.extent(term.split_name)
    bounds = () if term.is_whole else tuple(_explain_bounds(term, extent, rule))
    lines = [
        f"{term} {where} record {bound.record:,}: {bound.why}."
        for where, bound in zip(("begins at", "ends before"), bounds, strict=False)
    ]
    if bounds and bounds[0].record > bounds[1].record:
        lines.append(f"{term}: the second bound lies before the first, and TFDS reads nothing.")
    lines.append(_explain_ranges(term, ranges, extent.num_examples))
    remainder = extent.num_examples % 100
    if term.rounding == "pct1_dropremainder" and rule is SlicingRule.DOCUMENTED and remainder:
        owner = "all splits" if extent.name == ALL else extent.name
        lines.append(f"{term} drops the last {_counted(remainder, 'record')} of {owner}, the remainder of 100 percent.")
    yield TermReason(term=str(term), bounds=bounds, ranges=ranges, why=tuple(lines))


def _explain_bounds(part: SplitSlice, extent: Extent, rule: SlicingRule) -> Iterator[BoundReason]:
    explain_bound = _explain_tfds4 if rule is SlicingRule.TFDS_4 else _explain_documented
    for bound, is_end in ((part.from_, False), (part.to, True)):
        exact = None
        if part.unit == "%" and bound is not None and part.rounding == "closest":
            percent = bound if rule is SlicingRule.TFDS_4 else from_start(bound)
            exact = Fraction(percent) * extent.num_examples / 100
        record, why = explain_bound(part, bound, extent, exact, is_end)
        yield BoundReason(
            bound=print_bound(bound, part.unit),
            exact=None if exact is None else _print_exact(exact),
            record=record,
            why=why,
        )


def _explain_documented(
    part: SplitSlice, bound: int | Fraction | None, extent: Extent, exact: Fraction | None, is_end: bool
) -> tuple[int, str]:
    counted = counted_from_start(part, bound, extent, default=end_of(part, extent) if is_end else 0)
    record = record_at(part, counted, extent)
    text = print_bound(counted, part.unit)
    steps = []
    if bound is None:
        steps.append(f"an open {'end' if is_end else 'start'}")
    elif bound < 0:
        steps.append(
            f"{print_bound(bound, part.unit)} counts from the end" + ("" if part.unit == "abs" else f" and is {text}")
        )
    if exact is not None:
        steps.append(f"{text} of {_counted(extent.num_examples, 'record')} is {_explain_rounding(exact, record)}")
    elif part.rounding == "pct1_dropremainder" and (is_end or bound is not None):
        steps.append(f"{text} is {counted} times 1%, which is {_counted(extent.num_examples // 100, 'record')}")
    elif part.unit == "shard" and bound is not None:
        is_behind = counted == extent.num_shards
        steps.append(f"{text} is behind the last shard" if is_behind else f"where {text} begins")
    return record, ", ".join(steps) or "as written"


def _explain_rounding(exact: Fraction, record: int) -> str:
    text = _print_exact(exact)
    if exact == record:
        return text
    return f"{text}, and a half goes up" if exact.denominator == 2 else f"{text}, rounded"


def _explain_tfds4(
    part: SplitSlice, bound: int | Fraction | None, extent: Extent, exact: Fraction | None, is_end: bool
) -> tuple[float, str]:
    size = extent.num_examples
    if bound is None:
        return (size, "an open end") if is_end else (0, "an open start")
    text = print_bound(bound, part.unit)
    if part.unit == "shard":
        position = (end_of_shards if is_end else first_of_shards)(bound, extent)
        if is_end and bound <= 0:
            return position, f"TFDS counts {text} as an end from the end: {int(bound) + extent.num_shards}shard"
        return position, f"{text} of {_counted(extent.num_shards, 'shard')}"
    value: float = int(bound) if part.unit == "abs" else rounded(bound, part, extent)
    steps = []
    if part.unit == "%" and exact is not None:
        steps.append(
            f"{text} of {_counted(size, 'record')} is {_print_exact(exact)}, in floats and halves to even {value}"
        )
    elif part.unit == "%":
        steps.append(f"{text} is {print_bound(bound, 'abs')} times trunc({size} / 100.0), in floats {value}")
    if value < 0:
        steps.append(f"{value} counts from the end")
    elif bound < 0:
        steps.append("which TFDS takes for the beginning")
    return size + value if value < 0 else value, ", ".join(steps) or "as written"


def _explain_part(part: EvenPart, finder: Finder, rule: SlicingRule, ranges: tuple[RecordRange, ...]) -> Iterator[str]:
    inner = "+".join(map(str, part.terms))
    whole = Plan(ReadInstruction.of(part.terms), rule, (), finder.locate(part.terms))
    parts = _counted(part.count, "part")
    if rule is SlicingRule.TFDS_4 and part.unit == "abs" and len(whole.ranges) > 1:
        yield f"{part}: TFDS divides each of the {len(whole.ranges)} ranges of {inner} into {parts}."
    else:
        size, thing = (len(whole), "file") if part.unit == "shard" else (whole.num_examples, "record")
        each, remainder = divmod(size, part.count)
        sizes = f"of {each:,}"
        if part.drop_remainder:
            sizes += f" and leave the last {remainder:,} out"
        elif remainder:
            sizes = f"the first {remainder:,} of {each + 1:,}, the others of {each:,}"
        yield f"{part}: the {_counted(size, thing)} of {inner} make {parts}, {sizes}."
    yield _explain_ranges(part, ranges, whole.num_examples)


def _explain_ranges(term: Term, ranges: tuple[RecordRange, ...], size: int) -> str:
    return f"{term} reads {print_ranges(ranges)}: {sum(one.num_examples for one in ranges):,} of {size:,}."


def _explain_files(plan: Plan) -> Iterator[str]:
    files = [plan[place] for place in sorted({0, len(plan) - 1})] if len(plan) else []
    shown = f" {'and' if len(plan) == 2 else 'to'} ".join(map(_print_file, files))
    where = f" from {_counted(len(plan), 'file')}: {shown}" if files else ""
    yield f"It reads {_counted(plan.num_examples, 'record')}{where}."
    if plan.overlaps:
        yield f"It reads more than once: {print_ranges(plan.overlaps)}."


def _print_file(file: FileInstruction) -> str:
    return f"{file.filename} (skip {file.skip:,}, take {file.take:,})"


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _print_exact(number: Fraction) -> str:
    return print_bound(number.numerator if number.denominator == 1 else number, "abs")
