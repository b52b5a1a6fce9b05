"""``Piece``: a piece of work, which an engine calls here or in another process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Piece(Generic[T, R]):
    """One piece of work: ``function(input)``.

    Attributes:
        function: called with the input. It contains only values, and returns the same result on every call in every
            process. The pieces of a run share one function object, which is sent to each worker once.
        input: the argument of the function.
        num_items: the number of items in the input, from which an engine computes the mean time of an item.
    """

    function: Callable[[T], R]
    input: T
    num_items: int = 1

    def __call__(self) -> R:
        """Call the function in this process."""
        return self.function(self.input)
