"""``Matches``: the records of a plan that match a condition. A filtered reader's order selects them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from registry.model import Advance
from registry.reading.conditions import Condition


class Matches:
    """The records of a plan that match a condition.

    They are found when ``selected`` is first used, by one read of the columns that the condition names. A pickled copy
    contains the result, and does not read again.

    Attributes:
        text: the condition.
    """

    def __init__(
        self,
        condition: Condition,
        blocks: Callable[[], Iterable[Mapping[str, Any] | int]],
        *,
        within: Matches | None = None,
        advance: Advance | None = None,
    ) -> None:
        """Create it.

        Args:
            condition: the condition.
            blocks: reads the columns of the condition of all records in plan order, or only of those ``within``. It
                yields the number of records of a block in which none can match.
            within: an earlier condition, which must also match.
            advance: called with the number of examples that were read.
        """
        self.text: str = condition.text if within is None else f"({within.text}) and ({condition.text})"
        self._condition = condition
        self._blocks = blocks
        self._within = within
        self._advance = advance

    @classmethod
    def of(cls, text: str, selected: npt.NDArray[np.bool_]) -> Matches:
        """The records that ``selected`` names in plan order, which ``text`` describes."""
        matches = cls.__new__(cls)
        matches.text = text
        matches.__dict__["selected"] = selected
        return matches

    @cached_property
    def selected(self) -> npt.NDArray[np.bool_]:
        """Which records match, in plan order, as ``Order.select`` takes it."""
        parts = [np.empty(0, np.bool_)]
        for block in self._blocks():
            parts.append(np.zeros(block, np.bool_) if isinstance(block, int) else self._condition.matches(block))
            if self._advance is not None:
                self._advance(parts[-1].size)
        selected = matching = np.concatenate(parts)
        if self._within is not None:
            selected = self._within.selected.copy()
            selected[selected] = matching
        del self._blocks  # the function keeps files open
        return selected

    @property
    def is_known(self) -> bool:
        """Whether ``selected`` was used before, so that it costs nothing."""
        return "selected" in vars(self)

    @property
    def digest(self) -> str:
        """The sha256 of ``selected``, as bits."""
        return hashlib.sha256(np.packbits(self.selected).tobytes()).hexdigest()

    def __getstate__(self) -> tuple[str, bytes, int]:
        return self.text, np.packbits(self.selected).tobytes(), self.selected.size

    def __setstate__(self, sent: tuple[str, bytes, int]) -> None:
        self.text, bits, size = sent
        self.__dict__["selected"] = np.unpackbits(np.frombuffer(bits, np.uint8), count=size).astype(np.bool_)
