"""How are records sorted that do not fit into memory? An external merge sort with a budget in bytes.

Entries collect in memory up to the budget, are sorted and spilled as a run; at the end the runs are merged while they
are read. ``FAN_IN`` runs of one size are merged into a bigger one, so that the number of open files and read buffers
stays bounded for a split of any size. Entries with the same sort key lie next to each other in the end: that is where
duplicates are found.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Final

from registry.building.runs import Entry, Run, write_run
from registry.errors import DuplicateKeyError

DEFAULT_BUDGET_BYTES: Final = 64 * 2**20
FAN_IN: Final = 128
_OVERHEAD_BYTES: Final = 256  # of one entry in memory: a tuple and three small objects, and its place in the list

_by_sort_key = itemgetter(0)


class ExternalSorter:
    """Sorts the entries of one split by sort key, in bounded memory. A context manager: leaving it frees disk space.

    ``folder`` is where runs are spilled (None: the system's temporary folder); it should lie on the disk that takes the
    result, because TMPDIR is often small. The same entries give the same order whatever the budget.

    >>> with ExternalSorter(split="train") as sorter:
    ...     sorter.add(Entry(b"b" * 16, "2", b"second"))
    ...     sorter.add(Entry(b"a" * 16, "1", b"first"))
    ...     [entry.record for entry in sorter.sorted_entries()]
    [b'first', b'second']

    Raises:
        DuplicateKeyError: while reading, at two entries of one sort key.
        StorageError: a run cannot be written or comes back damaged.
    """

    def __init__(
        self,
        *,
        split: str,
        folder: Path | None = None,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        fan_in: int = FAN_IN,
    ) -> None:
        self._split = split
        self._folder = folder
        self._budget_bytes = budget_bytes
        self._fan_in = fan_in
        self._held: list[Entry] = []
        self._held_bytes = 0
        self._runs: list[Run] = []  # in the order of generation, so that merging keeps that order among equals
        self.num_examples = 0
        self.num_payload_bytes = 0

    def add(self, entry: Entry) -> None:
        """Take one entry; spills when the budget is used up."""
        self._held.append(entry)
        self._held_bytes += _OVERHEAD_BYTES + len(entry.label) + len(entry.record)
        self.num_examples += 1
        self.num_payload_bytes += len(entry.record)
        if self._held_bytes >= self._budget_bytes:
            self._spill()

    def sorted_entries(self) -> Iterator[Entry]:
        """Every entry in the order of the sort keys. Once: reading frees what was read."""
        previous = Entry(b"", "", b"")
        for entry in self._merged():
            if entry.sort_key == previous.sort_key:
                raise self._duplicate(previous.label, entry.label)
            previous = entry
            yield entry

    def close(self) -> None:
        """Give memory and disk space back."""
        for run in self._runs:
            run.close()
        self._runs, self._held, self._held_bytes = [], [], 0

    def __enter__(self) -> ExternalSorter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _merged(self) -> Iterator[Entry]:
        if not self._runs:
            self._held.sort(key=_by_sort_key)
            return iter(self._held)
        self._spill()
        while len(self._runs) > self._fan_in:
            self._merge_last(self._fan_in)
        return self._merge(self._runs)

    def _spill(self) -> None:
        if self._held:
            self._held.sort(key=_by_sort_key)
            self._runs.append(write_run(self._held, folder=self._folder, level=0))
            self._held, self._held_bytes = [], 0
        while len(self._runs) >= self._fan_in and self._runs[-self._fan_in].level == self._runs[-1].level:
            self._merge_last(self._fan_in)

    def _merge_last(self, count: int) -> None:
        """Replace the last ``count`` runs, the youngest and smallest, by one."""
        young = self._runs[-count:]
        merged = write_run(self._merge(young), folder=self._folder, level=young[0].level + 1)
        self._runs[-count:] = [merged]

    def _merge(self, runs: list[Run]) -> Iterator[Entry]:
        buffer_bytes = max(4096, min(2**20, self._budget_bytes // (2 * len(runs))))
        return heapq.merge(*(run.entries(buffer_bytes=buffer_bytes) for run in runs), key=_by_sort_key)

    def _duplicate(self, first: str, second: str) -> DuplicateKeyError:
        same = first == second
        return DuplicateKeyError(
            f"split {self._split!r}: the key {first} is used twice"
            if same
            else f"split {self._split!r}: the keys {first} and {second} are the same key",
            hint="Yield a key that is unique in the split, e.g. a file name or a row number."
            + ("" if same else " Numbers count as their decimal text, and '\\' as '/'."),
            details={"split": self._split, "keys": [first, second]},
        )
