"""Explains a plan: every step from an expression's text to files, in sentences and numbers.

It calls the functions that resolve an expression, so an explanation always matches the records that are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from registry.envelope import fields_of
from registry.errors import SliceError
from registry.model import SlicingRule, counted
from registry.splits.instruction import ReadInstruction
from registry.splits.layout import Extent, Layout, RecordRange, print_ranges
from registry.splits.plan import Plan, range_values
from registry.splits.resolver import Finder
from registry.splits.terms import ALL, BoundReason, EvenPart, SplitSlice, Term


@dataclass(frozen=True, slots=True, kw_only=True)
class TermReason:
    """How one term of an expression was resolved. The terms inside an exact part come before the part.

    Attributes:
        term: the term as text.
        bounds: how its two bounds were resolved; empty for a whole split and for an exact part.
        ranges: the records that it reads; empty for a slice with fractions of records (rule ``tfds-4`` only).
        why: the explanation, in sentences.
    """

    term: str
    bounds: tuple[BoundReason, ...]
    ranges: tuple[RecordRange, ...]
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A plan and how it was resolved: the result of ``explain``.

    Attributes:
        plan: the plan, as ``resolve`` returns it.
        terms: the explanation of each term.
        files: sentences about the plan as a whole: its records and files, and records that it reads more than once.
    """

    plan: Plan
    terms: tuple[TermReason, ...]
    files: tuple[str, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """All sentences, in reading order."""
        return (*(line for term in self.terms for line in term.why), *self.files)

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def __repr__(self) -> str:
        return f"<Explanation of {self.plan.expression!r}: {counted(self.plan.num_examples, 'example')}>"

    def _repr_html_(self) -> str:
        from registry.markup import panel

        return panel(self.plan.expression, *self.sentences[:100])


def explain(
    expression: str | ReadInstruction,
    layout: Layout,
    *,
    slicing: SlicingRule | str = SlicingRule.DOCUMENTED,
    rounding: str | None = None,
) -> Explanation:
    """Resolve ``expression`` and explain every step from its text to files.

    Args:
        expression: a split expression such as ``train[:80%]+test``, or a ReadInstruction.
        layout: splits by name, in the order of ``all``: ``model.Split`` values or lists of shard lengths.
        slicing: the slicing rule, ``documented`` or ``tfds-4``.
        rounding: ``closest`` or ``pct1_dropremainder`` for every percentage, instead of the instruction's own.

    >>> for line in explain("train[49%:50%]", {"train": [101]}).sentences:
    ...     print(line)
    train[49%:50%] begins at record 49: 49% of 101 records is 49.49, rounded.
    train[49%:50%] ends before record 51: 50% of 101 records is 50.5, and a half goes up.
    train[49%:50%] reads records train 49..51: 2 of 101.
    It reads 2 records by 1 file instruction: train-00000-of-00001 (skip 49, take 2).

    Raises:
        SplitSyntaxError: the text is malformed.
        SplitNotFoundError: the expression names a split that is not in the layout.
        SliceError: a slice is out of range or reversed, or its split has too few records for the rounding.
        UsageError: the slicing rule or the rounding is unknown, or an argument has the wrong type.
    """
    finder = Finder(SlicingRule.of(slicing), layout)
    instruction = finder.read(expression, rounding)
    plan = finder.plan(instruction)
    reasons = tuple(reason for term in instruction.terms for reason in _explain_term(term, finder))
    files = [plan[place] for place in sorted({0, len(plan) - 1})] if len(plan) else []
    told = [f"{file.filename} (skip {file.skip:,}, take {file.take:,})" for file in files]
    listing = f" {'and' if len(plan) == 2 else 'to'} ".join(told)
    how = f" by {counted(len(plan), 'file instruction')}: {listing}" if files else ""
    lines = [f"It reads {counted(plan.num_examples, 'record')}{how}."]
    if plan.overlaps:
        lines.append(f"It reads some records more than once: {print_ranges(plan.overlaps)}.")
    return Explanation(plan=plan, terms=reasons, files=tuple(lines))


def explanation_values(explanation: Explanation) -> dict[str, Any]:
    """An explanation as plain values: its terms, with their bounds and ranges, and the sentences about files."""
    return {
        "terms": [
            {
                "term": term.term,
                "bounds": [fields_of(bound, "bound", "exact", "record", "why") for bound in term.bounds],
                "ranges": range_values(term.ranges),
                "why": term.why,
            }
            for term in explanation.terms
        ],
        "files": explanation.files,
    }


def _explain_term(term: Term, finder: Finder) -> Iterator[TermReason]:
    ranges = tuple(records for records, _ in finder.locate((term,)))
    if isinstance(term, EvenPart):
        yield from _explain_part(term, ranges, finder)
    else:
        yield _explain_slice(term, ranges, finder)


def _explain_slice(part: SplitSlice, ranges: tuple[RecordRange, ...], finder: Finder) -> TermReason:
    extent = finder.extent(part.split_name)
    bounds = _explain_bounds(part, extent, finder)
    lines = list(_print_bounds(part, bounds))
    if bounds and bounds[0].record > bounds[1].record:
        lines.append(f"{part}: the second bound is before the first, so TFDS reads nothing.")
    lines.append(_explain_ranges(part, ranges, extent.num_examples))
    remainder = extent.num_examples % 100
    is_to_the_end = part.to == 100 or (part.to is None and finder.slicing is SlicingRule.DOCUMENTED)
    if remainder and part.rounding == "pct1_dropremainder" and is_to_the_end:
        owner = "all splits" if extent.name == ALL else extent.name
        lines.append(
            f"{part} drops the last {counted(remainder, 'record')} of {owner}, the remainder of 100 equal parts."
        )
    return TermReason(term=str(part), bounds=bounds, ranges=ranges, why=tuple(lines))


def _explain_bounds(part: SplitSlice, extent: Extent, finder: Finder) -> tuple[BoundReason, ...]:
    if part.is_whole:
        return ()
    explain_bound = finder.rule.explain_bound
    return explain_bound(part, part.from_, extent, False), explain_bound(part, part.to, extent, True)


def _print_bounds(part: SplitSlice, bounds: tuple[BoundReason, ...]) -> Iterator[str]:
    for where, bound in zip(("begins at", "ends before"), bounds, strict=False):
        yield f"{part} {where} record {bound.record:,}: {bound.why}."


def _explain_part(part: EvenPart, ranges: tuple[RecordRange, ...], finder: Finder) -> Iterator[TermReason]:
    """The explanations of the divided terms, then of the part."""
    inner: list[TermReason] = []
    try:
        whole = finder.plan(ReadInstruction.of(part.terms))
        inner.extend(reason for term in part.terms for reason in _explain_term(term, finder))
    except SliceError:
        # Under tfds-4 the whole may have fractions of records although the part does not. Such a range cannot be
        # planned, so only its bounds are explained.
        for term in part.terms:
            if isinstance(term, SplitSlice):
                bounds = _explain_bounds(term, finder.extent(term.split_name), finder)
                inner.append(
                    TermReason(term=str(term), bounds=bounds, ranges=(), why=tuple(_print_bounds(term, bounds)))
                )
        why = (_explain_division(part, None, finder), f"{part} reads {print_ranges(ranges)}.")
    else:
        why = (_explain_division(part, whole, finder), _explain_ranges(part, ranges, whole.num_examples))
    yield from inner
    yield TermReason(term=str(part), bounds=(), ranges=ranges, why=why)


def _explain_division(part: EvenPart, whole: Plan | None, finder: Finder) -> str:
    inner, parts = "+".join(map(str, part.terms)), counted(part.count, "part")
    if whole is None or (finder.divides_each(part) and len(whole.ranges) > 1):
        subject = f"{part}: TFDS divides each range of {inner} into {parts}"
        return f"{subject}, and drops the remainder of each." if part.drop_remainder else f"{subject}."
    size, thing = (len(whole), "file") if part.unit == "shard" else (whole.num_examples, "record")
    each, remainder = divmod(size, part.count)
    sizes = f"each of {each:,}" if part.count > 1 else f"of {each:,}"
    if remainder and part.drop_remainder:
        sizes += f", and the last {remainder:,} left out"
    elif remainder:
        sizes = f"{remainder:,} of {each + 1:,} and {part.count - remainder:,} of {each:,}"
    return f"{part}: {counted(size, thing)} of {inner} in {parts}, {sizes}."


def _explain_ranges(term: Term, ranges: tuple[RecordRange, ...], size: int) -> str:
    return f"{term} reads {print_ranges(ranges)}: {sum(span.num_examples for span in ranges):,} of {size:,}."
