"""The resolver: turns an expression and a layout into record ranges and a plan, under a named slicing rule.

It joins the other files of the folder: ``grammar`` parses the expression, the module of the slicing rule finds the
records of each slice, this module divides exact parts, and ``plan`` finds the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Protocol

from registry.model import SlicingRule
from registry.splits import documented, tfds4
from registry.splits.instruction import ReadInstruction
from registry.splits.layout import Extent, Layout, Located, RecordRange, check_layout, find_extent
from registry.splits.plan import FileRun, Plan
from registry.splits.terms import BoundReason, EvenPart, SplitSlice, Term


def resolve(
    expression: str | ReadInstruction,
    layout: Layout,
    *,
    slicing: SlicingRule | str = SlicingRule.DOCUMENTED,
    rounding: str | None = None,
) -> Plan:
    """Resolve ``expression`` to the plan that reads it from ``layout``.

    Args:
        expression: a split expression such as ``train[:80%]+test``, or a ReadInstruction.
        layout: splits by name, in the order of ``all``. A value is a ``model.Split``, or the number of records of each
            shard (a list or ``ShardLengths``); the files of such a split are named ``train-00000-of-00002``.
        slicing: the slicing rule, ``documented`` (the TFDS splits document, in exact integers) or ``tfds-4`` (what
            TFDS 4.9.10 computes in floats).
        rounding: ``closest`` or ``pct1_dropremainder`` for every percentage, instead of the instruction's own.

    Returns:
        The plan: a lazy sequence of ``FileInstruction``, and its record ranges.

    >>> plan = resolve("train[49%:50%]", {"train": [50, 51]})
    >>> plan.ranges
    (RecordRange(split='train', start=49, stop=51),)
    >>> for file in plan:
    ...     print(file.filename, file.skip, file.take, file.examples_in_shard)
    train-00000-of-00002 49 1 50
    train-00001-of-00002 0 1 51

    Raises:
        SplitSyntaxError: the text is malformed.
        SplitNotFoundError: the expression names a split that is not in the layout.
        SliceError: a slice is out of range or reversed, or its split has too few records for the rounding.
        UsageError: the slicing rule or the rounding is unknown, or an argument has the wrong type.
    """
    finder = Finder(SlicingRule.of(slicing), layout)
    return finder.plan(finder.read(expression, rounding))


class Rule(Protocol):
    """The functions of a slicing rule's module, ``documented`` or ``tfds4``. The grammar holds the rule's language."""

    def find_range(self, part: SplitSlice, extent: Extent) -> tuple[int, int]:
        """``(start, stop)`` of the records of a slice that has a bound, 0 <= start <= stop <= num_examples."""

    def explain_bound(
        self, part: SplitSlice, bound: int | Fraction | None, extent: Extent, is_end: bool
    ) -> BoundReason:
        """Explain how a bound became a record. ``is_end`` means that it is the second bound."""


class Finder:
    """Finds the records of terms in one layout under one rule. Each split is looked up once."""

    def __init__(self, slicing: SlicingRule, layout: Layout) -> None:
        self.slicing = slicing
        self.rule: Rule = tfds4 if slicing is SlicingRule.TFDS_4 else documented
        self._layout = check_layout(layout)
        self._extents: dict[str, Extent] = {}

    def read(self, expression: str | ReadInstruction, rounding: str | None) -> ReadInstruction:
        """Parse ``expression`` under the rule; ``rounding``, if given, replaces its own rounding."""
        instruction = ReadInstruction.from_spec(expression, slicing=self.slicing).read_by(self.slicing)
        return instruction if rounding is None else instruction.with_rounding(rounding)

    def plan(self, instruction: ReadInstruction) -> Plan:
        """The plan of an instruction that ``read`` returned."""
        located = self.locate(instruction.terms)
        named = {split.name: split for name in instruction.names for split in self.extent(name).splits}
        return Plan(instruction, self.slicing, tuple(named.values()), located)

    def locate(self, terms: tuple[Term, ...], parts: tuple[EvenPart, ...] = ()) -> list[Located]:
        """The ranges of ``terms``, in order. If ``parts`` are given, they divide each range on its own, in turn."""
        located: list[Located] = []
        for term in terms:
            if isinstance(term, EvenPart):
                if self.divides_each(term):
                    located.extend(self.locate(term.terms, (term, *parts)))
                else:
                    located.extend(divide_each(parts, divide(term, self.locate(term.terms))))
                continue
            extent = self.extent(term.split_name)
            if term.is_whole:
                located.extend(divide_each(parts, extent.cut(0, extent.num_examples)))
            elif parts:  # only the rule tfds-4 divides each range on its own
                located.extend(extent.cut(*tfds4.find_part(term, extent, parts)))
            else:
                located.extend(extent.cut(*self.rule.find_range(term, extent)))
        return located

    def divides_each(self, part: EvenPart) -> bool:
        """Whether ``part`` divides each range on its own.

        Files are always divided as one sequence, so that no two parts open the same file.
        """
        return self.slicing is SlicingRule.TFDS_4 and part.unit == "abs"

    def extent(self, name: str) -> Extent:
        """The extent of the split ``name``, or of ``all``. Raises SplitNotFoundError if the layout does not have it."""
        extent = self._extents.get(name)
        if extent is None:
            extent = self._extents[name] = find_extent(name, self._layout)
        return extent


def divide(part: EvenPart, located: Sequence[Located]) -> Iterator[Located]:
    """The ranges that ``part`` reads of ``located``, divided as one sequence, without ranges that it does not touch."""
    if part.unit == "shard":
        runs = [FileRun.of(records, split) for records, split in located if records.num_examples]
        for place, start, stop in _cut([run.count for run in runs], part):
            yield runs[place].records_of(start, stop), runs[place].split
    else:
        for place, start, stop in _cut([records.num_examples for records, _ in located], part):
            records, split = located[place]
            yield RecordRange(split=records.split, start=records.start + start, stop=records.start + stop), split


def divide_each(parts: Iterable[EvenPart], located: Iterable[Located]) -> Iterable[Located]:
    """Divide each range on its own, by the first of ``parts``, then the result by the next."""
    for part in parts:
        located = [piece for place in located for piece in divide(part, [place])]
    return located


def _cut(sizes: Sequence[int], part: EvenPart) -> Iterator[tuple[int, int, int]]:
    """Divide items of these sizes as one sequence: ``(item, start, stop)`` for each item that the part touches."""
    start, stop = part.bounds(sum(sizes))
    first = 0
    for place, size in enumerate(sizes):
        begin, end = max(start - first, 0), min(stop - first, size)
        if begin < end:
            yield place, begin, end
        first += size
