"""Which slicing rules are there? Each is one value: what it reads, how it divides, how it explains itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final, TypeAlias

from registry.model import SlicingRule
from registry.splits import documented, tfds4
from registry.splits.bound_reason import BoundReason
from registry.splits.layout import Extent
from registry.splits.parts import EvenPart
from registry.splits.slices import SplitSlice

RangeFinder: TypeAlias = Callable[[SplitSlice, Extent], tuple[int, int]]
"""``(start, stop)`` of the records that a slice with a bound names in an extent, 0 <= start <= stop <= num_examples."""

PartFinder: TypeAlias = Callable[[SplitSlice, Extent, tuple[EvenPart, ...]], tuple[int, int]]
"""The same for a slice of which only these parts are read, the innermost first."""

BoundExplainer: TypeAlias = Callable[[SplitSlice, "int | Fraction | None", Extent, bool], BoundReason]
"""Why a bound of a slice became its record; the last argument says whether it is the second one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A slicing rule. The grammar has the rule's language (grammar.py).

    Attributes:
        name: what versions, plans and callers call it.
        find_range: the records of a slice.
        find_part: the records of parts of a slice, where the rule divides each range of a union on its own; None where
            it divides the whole.
        explain_bound: the reason for each bound.
    """

    name: SlicingRule
    find_range: RangeFinder
    find_part: PartFinder | None
    explain_bound: BoundExplainer


RULES: Final[Mapping[SlicingRule, Rule]] = MappingProxyType(
    {
        rule.name: rule
        for rule in (
            Rule(
                name=SlicingRule.DOCUMENTED,
                find_range=documented.find_range,
                find_part=None,
                explain_bound=documented.explain_bound,
            ),
            Rule(
                name=SlicingRule.TFDS_4,
                find_range=tfds4.find_range,
                find_part=tfds4.find_part,
                explain_bound=tfds4.explain_bound,
            ),
        )
    }
)
