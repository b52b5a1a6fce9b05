"""Split expressions, resolved without disk or database: ``train[:80%]`` and a layout give a plan of files and records.

    text --grammar--> terms --documented | tfds4, division--> RecordRange --files--> FileInstruction

``ReadInstruction`` is the value of an expression, ``resolve`` applies it to a layout under a named slicing rule, and
``Plan`` is what readers run. ``even_splits`` and ``k_fold`` write expressions, ``relation`` compares plans.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from registry.splits.documented import round_percent
from registry.splits.even import Fold, even_splits, k_fold, split_for_process
from registry.splits.instruction import ReadInstruction
from registry.splits.layout import Layout, RecordRange, counted, print_ranges
from registry.splits.plan import FileInstruction, Plan
from registry.splits.resolve import resolve
from registry.splits.terms import BoundReason, EvenPart, SplitSlice

if TYPE_CHECKING:
    from registry.splits.explanation import Explanation, TermReason, explain
    from registry.splits.plan import Relation, overlaps_between, relation, uncovered

_HOME_OF: Final = {
    **dict.fromkeys(("Explanation", "TermReason", "explain"), "registry.splits.explanation"),
    **dict.fromkeys(("Relation", "overlaps_between", "relation", "uncovered"), "registry.splits.plan"),
}
"""What resolving needs not, loaded when it is first used."""

__all__ = [
    "BoundReason",
    "EvenPart",
    "Explanation",
    "FileInstruction",
    "Fold",
    "Layout",
    "Plan",
    "ReadInstruction",
    "RecordRange",
    "Relation",
    "SplitSlice",
    "TermReason",
    "counted",
    "even_splits",
    "explain",
    "k_fold",
    "overlaps_between",
    "print_ranges",
    "relation",
    "resolve",
    "round_percent",
    "split_for_process",
    "uncovered",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'registry.splits' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value
