"""The one way to a reader of a slice, whatever holds the slice: a version that was looked up, a pin, a builder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from registry.model import SlicingRule
    from registry.order import ReadConfig
    from registry.reading.reader import Reader, State
    from registry.splits import ReadInstruction
    from registry.tfrecord import Verify


@runtime_checkable
class SplitSource(Protocol):
    """What a slice is read of: a ``Dataset``, ``Pin``, ``PinFile`` or what ``registry.builder`` gives."""

    def open_split(
        self,
        split: str | ReadInstruction | None = None,
        read_config: ReadConfig | None = None,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
        state: State | Sequence[State] | None = None,
        process: tuple[int, int] = (0, 1),
        verify: Verify = "block",
        copy: bool = True,
    ) -> Reader:
        """The reader of a split expression; None is the only slice that there is: the split of a version, or the pin.

        Raises:
            UsageError: there are several slices, and none is named; or a pin is of another one.
            As ``Dataset.read``.
        """
