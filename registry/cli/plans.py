"""How are plans and ranges of records shown, to people and to programs?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from registry.splits import Plan, RecordRange, print_ranges


def summary(reference: str, plan: Plan, *, rounding: str | None = None) -> str:
    """One line: what a plan reads, and by which rule; ``rounding`` is the one that was asked for."""
    rule = f"({plan.slicing.value} slicing{f', {rounding}' if rounding else ''})"
    return f"{reference} {plan.expression}: {plan.num_examples:,} examples, {print_ranges(plan.ranges)} {rule}"


def ranges_json(ranges: Sequence[RecordRange]) -> list[dict[str, Any]]:
    """Ranges for programs."""
    return [{"split": one.split, "start": one.start, "stop": one.stop} for one in ranges]
