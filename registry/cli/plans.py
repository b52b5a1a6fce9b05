"""How are plans and ranges of records shown, to people and to programs?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from registry.splits import Plan, RecordRange

_SHOWN: Final = 20


def summary(reference: str, plan: Plan) -> str:
    """One line: what a plan reads, and by which rule."""
    rule = f"({plan.slicing.value} slicing)"
    return f"{reference} {plan.expression}: {plan.num_examples:,} examples, {print_ranges(plan.ranges)} {rule}"


def print_ranges(ranges: Sequence[RecordRange]) -> str:
    """Ranges for people; of very many the first ones, and how many there are."""
    if not ranges:
        return "no records"
    shown = " + ".join(f"{one.split} {one.start:,}..{one.stop:,}" for one in ranges[:_SHOWN])
    return f"records {shown}" + (f" + {len(ranges) - _SHOWN:,} more ranges" if len(ranges) > _SHOWN else "")


def ranges_json(ranges: Sequence[RecordRange]) -> list[dict[str, Any]]:
    """Ranges for programs."""
    return [{"split": one.split, "start": one.start, "stop": one.stop} for one in ranges]
