"""What does Grain read from? Anything with a length whose items are asked for by number, from threads and processes."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as whole_number
from typing import TYPE_CHECKING, Any, SupportsIndex

from registry.reading.frameworks.shared import SharedReader

if TYPE_CHECKING:
    from registry.reading.reader import Reader


class ReaderSource:
    """The examples of a reader's first epoch by number. Picklable; for several threads, and for forked processes.

    Its ``repr`` names the version, the split, the records and the order by their digests: Grain compares it when it
    goes on from a checkpoint.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = SharedReader(reader)
        state = reader.state()
        digests = " ".join(f"{name}={state[name]}" for name in ("plan", "order"))
        share = "" if reader.process[1] == 1 else f" process={reader.process}"
        self._name = f"<ReaderSource {state['dataset']} {state['split']} {digests}{share}>"

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        """Example ``index``; errors as ``Reader.__getitem__``."""
        with self._reader.lent() as reader:
            return reader[whole_number(index)]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """The examples ``indices``, fetched and decoded together."""
        with self._reader.lent() as reader:
            return reader.examples_at(indices)

    def __repr__(self) -> str:
        return self._name
