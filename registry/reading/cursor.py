"""How far did somebody read? Told at any moment, without counting each record as it goes by."""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint
from typing import Any

from registry.reading.state import ReadState


class Cursor:
    """The place of one iteration: a state, and the list of what comes next of which some may be handed out already."""

    def __init__(self, state: ReadState) -> None:
        self._state = state
        self._items: Iterator[Any] = iter(())
        self._num_items = 0
        self._positions_each = 0

    @property
    def state(self) -> ReadState:
        """What is left, without what was handed out."""
        handed_out = self._num_items - length_hint(self._items)
        return self._state.advance(handed_out * self._positions_each) if handed_out else self._state

    def hand_out(self, items: list[Any], *, positions_each: int = 1) -> Iterator[Any]:
        """An iterator of ``items``, which are next; each takes so many positions of the order, the last maybe fewer."""
        self._items, self._num_items, self._positions_each = iter(items), len(items), positions_each
        return self._items

    def set(self, state: ReadState) -> None:
        """Go on from ``state``."""
        self._state, self._items, self._num_items = state, iter(()), 0
