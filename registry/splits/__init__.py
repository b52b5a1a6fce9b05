"""Split expressions, resolved without disk or database: ``train[:80%]`` and a layout give a plan of files and records.

    text --grammar--> SplitSlice --documented | tfds4--> RecordRange --plan--> FileInstruction

``ReadInstruction`` is the value of an expression, ``resolve`` applies it to a layout under a named slicing rule, and
``Plan`` is what readers run.
"""

from registry.splits.even import even_splits
from registry.splits.instruction import ReadInstruction
from registry.splits.layout import Layout, RecordRange
from registry.splits.plan import FileInstruction, Plan
from registry.splits.resolve import resolve
from registry.splits.rounding import round_percent
from registry.splits.slices import SplitSlice

__all__ = [
    "FileInstruction",
    "Layout",
    "Plan",
    "ReadInstruction",
    "RecordRange",
    "SplitSlice",
    "even_splits",
    "resolve",
    "round_percent",
]
