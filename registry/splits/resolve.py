"""Which records and files does an expression name in a given layout? The pure resolver, and the seam of its rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from registry.errors import UsageError
from registry.model import SlicingRule
from registry.splits.documented import documented_range
from registry.splits.instruction import ReadInstruction
from registry.splits.layout import Extent, Layout, RecordRange, ShardedSplit, find_extent
from registry.splits.plan import Plan
from registry.splits.slices import SplitSlice
from registry.splits.tfds4 import tfds4_range

SliceResolver: TypeAlias = Callable[[SplitSlice, Extent], tuple[int, int]]
"""A slicing rule as a function: ``(start, stop)`` of the records that a slice names in an extent."""

_RULES: Final[Mapping[SlicingRule, SliceResolver]] = MappingProxyType(
    {SlicingRule.DOCUMENTED: documented_range, SlicingRule.TFDS_4: tfds4_range}
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
        expression: a split expression (grammar: ``parse_slices``) or a ReadInstruction.
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
    rule = _slicing_rule(slicing)
    instruction = ReadInstruction.from_spec(expression, slicing=rule)
    if rounding is not None:
        instruction = instruction.with_rounding(rounding)
    find_range = _RULES[rule]
    extents: dict[str, Extent] = {}
    located: list[tuple[RecordRange, ShardedSplit]] = []
    for part in instruction.slices:
        extent = extents.get(part.split_name)
        if extent is None:
            extent = extents[part.split_name] = find_extent(part.split_name, layout)
        located.extend(extent.cut(*find_range(part, extent)))
    return Plan(instruction, rule, located)


def _slicing_rule(slicing: SlicingRule | str) -> SlicingRule:
    try:
        return SlicingRule(slicing)
    except ValueError as error:
        raise UsageError(
            f"unknown slicing rule {slicing!r}", hint=f"There are: {', '.join(rule.value for rule in SlicingRule)}."
        ) from error
