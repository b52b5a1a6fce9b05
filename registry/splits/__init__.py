"""Split expressions, resolved without disk or database: ``train[:80%]`` and a layout give a plan of files and records.

    text --grammar--> terms --documented | tfds4, division--> RecordRange --files--> FileInstruction

``ReadInstruction`` is the value of an expression, ``resolve`` applies it to a layout under a named slicing rule, and
``Plan`` is what readers run. ``even_splits`` and ``k_fold`` write expressions, ``relation`` compares plans.
"""

from registry.splits.bound_reason import BoundReason
from registry.splits.even import Fold, even_splits, k_fold, split_for_process
from registry.splits.explain import Explanation, TermReason, explain
from registry.splits.files import FileInstruction
from registry.splits.instruction import ReadInstruction
from registry.splits.layout import Layout, RecordRange
from registry.splits.parts import EvenPart
from registry.splits.plan import Plan
from registry.splits.relation import Relation, overlaps_between, relation, uncovered
from registry.splits.resolve import resolve
from registry.splits.rounding import round_percent
from registry.splits.slices import SplitSlice
from registry.splits.wording import counted, print_ranges

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
