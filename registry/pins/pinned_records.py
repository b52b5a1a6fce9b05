"""May a file be read that is not the pinned one? Where every pinned record in it is: that is what a pin promises."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from registry.pins.document import PinEntry
from registry.pins.layout import plan_of
from registry.pins.measure import measure_records
from registry.storage import Store
from registry.tfrecord import IndexFolder


class PinnedRecords:
    """The records of some pins of one version (``registry.shards.RecordsProof``)."""

    def __init__(self, entries: Sequence[PinEntry]) -> None:
        self._entries = tuple(entries)

    @property
    def key(self) -> bytes:
        """What tells these records, in these files, from others."""
        told = [(one.records.ordered, one.ranges, one.files) for one in self._entries]
        return hashlib.blake2b(repr(told).encode(), digest_size=20).digest()

    def are_in(self, store: Store, indexes: IndexFolder | None) -> bool:
        """Whether the files in ``store`` hold the pinned records, by the digest over all of them.

        Raises:
            CorruptRecordError, ShardMismatchError, StorageError: one cannot be read.
        """
        for entry in self._entries:
            found, _ = measure_records(plan_of(entry), store, whole=False, indexes=indexes, processes=1)
            if found.ordered != entry.records.ordered:
                return False
        return True
