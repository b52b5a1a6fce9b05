"""``Slice``: records that can be read; and ``SplitSource``, the protocol of everything that has slices.

TF-Slim's layer and the Earth Engine readers accept any ``SplitSource``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from registry.model import SlicingRule
from registry.order import ReadConfig
from registry.reading.matches import Matches
from registry.reading.readable import ReadableVersion
from registry.reading.reader import Reader
from registry.reading.tables import TableSource
from registry.splits import Plan, ReadInstruction


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice(TableSource):
    """The records of one split expression: ``Reader(slice.readable, slice.plan)`` reads them.

    As a table (``TableSource``) they are in the default order of the version.

    Attributes:
        name: the expression, the split or the pin.
        readable: the version.
        plan: which of its records.
        matches: which records of the plan, if they are filtered; otherwise None.
    """

    name: str
    readable: ReadableVersion
    plan: Plan
    matches: Matches | None = None

    @property
    def num_examples(self) -> int:
        """Number of its records. If they are filtered, columns are read to know it."""
        return self.plan.num_examples if self.matches is None else int(self.matches.selected.sum())

    def __repr__(self) -> str:
        return f"<Slice {self.name} of {self.readable.facts.reference}: {self.plan.num_examples:,} examples>"

    def _repr_html_(self) -> str:
        return self._readers()[0]._repr_html_()

    def _readers(self) -> Sequence[Reader]:
        return (Reader(self.readable, self.plan, keep="auto", matches=self.matches),)


@runtime_checkable
class SplitSource(Protocol):
    """Has slices: a ``Dataset``, a ``Pin``, a ``PinFile``, or the result of ``registry.builder``."""

    def slice_of(
        self,
        split: str | ReadInstruction | None = None,
        read_config: ReadConfig | None = None,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Slice:
        """The slice of a split expression.

        Args:
            split: the expression. None means the only slice: the only split of a version, or the pin itself.
            read_config: the order in which it will be read; None for the default.
            slicing: as ``Dataset.resolve``.
            rounding: as ``Dataset.resolve``.

        Raises:
            UsageError: ``split`` is None and there are several slices; or a pin has another slice.
            SplitSyntaxError, UnknownSplitError, SliceError: the expression is invalid; see ``Dataset.resolve``.
        """
