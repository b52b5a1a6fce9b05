"""Slices that can be read, and what has them: a version that was looked up, a pin, a file of one pin, a builder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from registry.model import SlicingRule
from registry.order import ReadConfig
from registry.reading.readable import ReadableVersion
from registry.splits import Plan, ReadInstruction


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The records of one split expression: ``Reader(slice.readable, slice.plan)`` reads them.

    Attributes:
        name: the expression, the split or the pin.
        readable: the version.
        plan: which of its records.
    """

    name: str
    readable: ReadableVersion
    plan: Plan


@runtime_checkable
class SplitSource(Protocol):
    """What has slices: a ``Dataset``, a ``Pin``, a ``PinFile``, or what ``registry.builder`` gives."""

    def slice_of(
        self,
        split: str | ReadInstruction | None = None,
        read_config: ReadConfig | None = None,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Slice:
        """The slice of a split expression; None is the only one there is: the split of a version, or the pin.

        ``read_config`` is the order in which it is to be read, where one is chosen.

        Raises:
            UsageError: there are several slices, and none is named; or a pin is of another one.
            As ``Dataset.resolve``.
        """
