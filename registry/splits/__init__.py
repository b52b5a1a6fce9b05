"""Parses split expressions such as ``train[:80%]`` and resolves them to files and records, without disk or database.

    text --grammar--> terms --documented | tfds4, division--> RecordRange --files--> FileInstruction

A ``ReadInstruction`` is a parsed expression, ``resolve`` applies it to a layout under a named slicing rule, and readers
run the resulting ``Plan``. ``even_splits`` and ``k_fold`` write expressions; ``relation`` compares plans.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.model import counted
    from registry.splits.documented import round_percent
    from registry.splits.even import Fold, even_splits, k_fold, split_for_process
    from registry.splits.explanation import Explanation, TermReason, explain
    from registry.splits.instruction import ReadInstruction
    from registry.splits.layout import Layout, RecordRange, print_ranges
    from registry.splits.plan import FileInstruction, Plan, Relation, overlaps_between, relation, uncovered
    from registry.splits.resolver import resolve
    from registry.splits.terms import BoundReason, EvenPart, SplitSlice

__all__ = [
    "BoundReason", "EvenPart", "Explanation", "FileInstruction", "Fold", "Layout", "Plan", "ReadInstruction",
    "RecordRange", "Relation", "SplitSlice", "TermReason", "counted", "even_splits", "explain", "k_fold",
    "overlaps_between", "print_ranges", "relation", "resolve", "round_percent", "split_for_process", "uncovered",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".model": "counted",
        "documented": "round_percent",
        "even": "Fold even_splits k_fold split_for_process",
        "explanation": "Explanation TermReason explain",
        "instruction": "ReadInstruction",
        "layout": "Layout RecordRange print_ranges",
        "plan": "FileInstruction Plan Relation overlaps_between relation uncovered",
        "resolver": "resolve",
        "terms": "BoundReason EvenPart SplitSlice",
    },
)
