"""The settings of work on a Ray cluster, and the space of a run in Ray's object store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from registry.model import whole_number

LEAST_TASK_BYTES: Final = 256 * 2**20
"""An interpreter with NumPy and Ray takes 150 MB before it does any work."""

_LEAST_STORE_BYTES: Final = 2**20
_LEAST_OWN_STORE_BYTES: Final = 75 * 2**20  # Ray refuses a smaller store


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings:
    """How pieces run on a Ray cluster. ``use_engine`` describes the fields.

    Attributes:
        runtime_env: the environment that Ray sends to the workers, or None.
        task_memory: the bytes of memory that a task may use; if None, Ray places tasks by CPUs alone.
        object_store_memory: the maximum bytes of a run in Ray's object store; if None, it has ``2 * width + 1`` pieces.

    Raises:
        UsageError: a number is not whole, or too small.
    """

    runtime_env: Mapping[str, Any] | None = None
    task_memory: int | None = None
    object_store_memory: int | None = None

    def __post_init__(self) -> None:
        if self.task_memory is not None:
            hint = "The unit is bytes. An interpreter with NumPy and Ray takes 150 MB."
            whole_number(self.task_memory, "task_memory", least=LEAST_TASK_BYTES, hint=hint)
        if self.object_store_memory is not None:
            hint = "The unit is bytes. An input of a build may be large; 1 GB is usual."
            whole_number(self.object_store_memory, "object_store_memory", least=_LEAST_STORE_BYTES, hint=hint)

    @property
    def own_store_bytes(self) -> int | None:
        """The size of the object store of a cluster that the engine starts; if None, Ray decides."""
        wanted = self.object_store_memory
        return None if wanted is None else max(wanted, _LEAST_OWN_STORE_BYTES)


class StoreRoom:
    """Counts the bytes of a run in Ray's object store, to decide whether another piece fits.

    The size of a result is known only when it is taken. Until then, the largest size so far is assumed.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._num_bytes = 0
        self._num_pieces = 0
        self._largest_result = 0

    def fits(self, num_bytes: int) -> bool:
        """Whether a piece whose message has this size can be sent."""
        results = (self._num_pieces + 1) * self._largest_result
        return self._num_bytes + num_bytes + results <= self._most_bytes

    def keep(self, num_bytes: int) -> None:
        """Count a function, which is stored once for all pieces, until the end of the run."""
        self._num_bytes += num_bytes

    def add(self, num_bytes: int) -> None:
        """Count a piece that is sent."""
        self._num_bytes += num_bytes
        self._num_pieces += 1

    def remove(self, num_bytes: int, *, num_result_bytes: int) -> None:
        """Stop counting a piece whose result was taken."""
        self._num_bytes -= num_bytes
        self._num_pieces -= 1
        self._largest_result = max(self._largest_result, num_result_bytes)
