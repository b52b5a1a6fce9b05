"""Which records and files does an expression name in a given layout? The pure resolver, and the seam of its rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from registry.errors import UsageError
from registry.model import SlicingRule
from registry.splits.division import Located, divide, divide_each
from registry.splits.documented import documented_range
from registry.splits.instruction import ReadInstruction
from registry.splits.layout import Extent, Layout, ShardedSplit, find_extent
from registry.splits.parts import EvenPart, Term
from registry.splits.plan import Plan
from registry.splits.slices import SplitSlice
from registry.splits.tfds4 import tfds4_range

RangeFinder: TypeAlias = Callable[[SplitSlice, Extent, tuple[EvenPart, ...]], tuple[int, int]]
"""A slicing rule as a function: ``(start, stop)`` of the records that a slice with a bound names in an extent.

The parts are those of this slice alone, innermost first: ``tfds-4`` divides slices, ``documented`` never does."""

_RULES: Final[Mapping[SlicingRule, RangeFinder]] = MappingProxyType(
    {
        SlicingRule.DOCUMENTED: lambda part, extent, _parts: documented_range(part, extent),
        SlicingRule.TFDS_4: tfds4_range,
    }
)


def resolve(
    expression: str | ReadInstruction,
    layout: Layout,
    *,
    slicing: SlicingRule | str = SlicingRule.DOCUMENTED,
    rounding: str | None = None,
) -> Plan:
    """The plan that reads ``expression`` from splits laid out as ``layout``.

    Args:
        expression: a split expression (grammar: ``parse_terms``) or a ReadInstruction.
        layout: splits by name, in the order of ``all``: ``model.Split`` values, or the number of records of each shard
            (``ShardLengths`` are used as they are; files are then called ``train-00000-of-00002``).
        slicing: the slicing rule, ``documented`` or ``tfds-4``.
        rounding: ``closest`` or ``pct1_dropremainder`` for every percentage, instead of the instruction's own.

    >>> plan = resolve("train[49%:50%]", {"train": [50, 51]})
    >>> plan.ranges
    (RecordRange(split='train', start=49, stop=51),)
    >>> for file in plan:
    ...     print(file.filename, file.skip, file.take, file.examples_in_shard)
    train-00000-of-00002 49 1 50
    train-00001-of-00002 0 1 51

    Raises:
        SplitSyntaxError: the text is no expression.
        SplitNotFoundError: it names a split that the layout does not have.
        SliceError: a slice that this layout cannot answer: out of range, reversed, too few records.
        UsageError: an unknown rule or rounding.
    """
    rule = slicing_rule(slicing)
    instruction = read_expression(expression, rule, rounding)
    finder = Finder(rule, layout)
    located = finder.locate(instruction.terms)
    return Plan(instruction, rule, finder.named_splits(), located)


def read_expression(expression: str | ReadInstruction, rule: SlicingRule, rounding: str | None) -> ReadInstruction:
    """The instruction that ``expression`` is under ``rule``, with ``rounding`` in the place of its own."""
    instruction = ReadInstruction.from_spec(expression, slicing=rule).read_by(rule)
    return instruction if rounding is None else instruction.with_rounding(rounding)


class Finder:
    """The records of terms in one layout under one rule. Each split is looked up once, however often it is named."""

    def __init__(self, rule: SlicingRule, layout: Layout) -> None:
        self._rule = rule
        self._find_range = _RULES[rule]
        self._layout = layout
        self._extents: dict[str, Extent] = {}

    def locate(self, terms: tuple[Term, ...], parts: tuple[EvenPart, ...] = ()) -> list[Located]:
        """The ranges that ``terms`` name, in order, and of each range on its own only what ``parts`` leave of it."""
        located: list[Located] = []
        for term in terms:
            if isinstance(term, SplitSlice):
                extent = self.extent(term.split_name)
                if term.is_whole:
                    located.extend(divide_each(parts, extent.cut(0, extent.num_examples)))
                else:
                    located.extend(extent.cut(*self._find_range(term, extent, parts)))
            elif self._rule is SlicingRule.TFDS_4 and term.unit == "abs":
                located.extend(self.locate(term.terms, (term, *parts)))
            else:
                located.extend(divide_each(parts, divide(term, self.locate(term.terms))))
        return located

    def extent(self, name: str) -> Extent:
        """What ``name`` stands for; errors as ``find_extent``."""
        extent = self._extents.get(name)
        if extent is None:
            extent = self._extents[name] = find_extent(name, self._layout)
        return extent

    def named_splits(self) -> tuple[ShardedSplit, ...]:
        """The splits that were looked up."""
        if len(self._extents) == 1:
            return tuple(next(iter(self._extents.values())).splits)
        return tuple({split.name: split for extent in self._extents.values() for split in extent.splits}.values())


def slicing_rule(slicing: SlicingRule | str) -> SlicingRule:
    """The rule of that name; UsageError where there is none."""
    try:
        return SlicingRule(slicing)
    except ValueError as error:
        raise UsageError(
            f"unknown slicing rule {slicing!r}", hint=f"There are: {', '.join(rule.value for rule in SlicingRule)}."
        ) from error
