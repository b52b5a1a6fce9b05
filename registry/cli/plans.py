"""How are plans and ranges of records shown, to people and to programs?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from registry.cli.output import Output
from registry.splits import Plan, RecordRange, counted, print_ranges


def summary(reference: str, plan: Plan) -> str:
    """One line: what a plan reads, and by which rule."""
    size = counted(plan.num_examples, "example")
    return f"{reference} {plan.expression}: {size}, {print_ranges(plan.ranges)} ({plan.rule})"


def note_overlaps(out: Output, plan: Plan) -> None:
    """A note where ``plan`` reads records more than once."""
    if plan.overlaps:
        out.note(f"note: {plan.expression} reads more than once: {print_ranges(plan.overlaps)}")


def rule_json(plan: Plan) -> dict[str, str]:
    """The rule of a plan for programs: ``slicing``, and ``rounding`` where a percentage is not rounded as usual."""
    odd = [rounding for rounding in plan.instruction.roundings if rounding != "closest"]
    return {"slicing": plan.slicing.value, **({"rounding": odd[0]} if odd else {})}


def ranges_json(ranges: Sequence[RecordRange]) -> list[dict[str, Any]]:
    """Ranges for programs."""
    return [{"split": one.split, "start": one.start, "stop": one.stop} for one in ranges]
