"""Encodes many tf.train.Examples together: the inverse of ``block``.

    columns (FlatBlock) -> sizes of all parts of all records -> data, offsets, lengths (EncodedBlock)

``registry.features`` converts examples to columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from registry.wire.gather import Octets, Places


class EncodedBlock(NamedTuple):
    """``len(offsets)`` records, in order: record i is ``data[offsets[i] : offsets[i] + lengths[i]]``.

    Attributes:
        data: uint8, 1-d, contiguous; there may be other bytes between two records.
        offsets: int64, index in ``data`` of each record's first byte.
        lengths: int64, number of bytes of each record.
        fault: why the next example cannot be encoded, or None if the records are those of all examples.
    """

    data: Octets
    offsets: Places
    lengths: Places
    fault: Exception | None = None

    @property
    def num_records(self) -> int:
        """Number of records."""
        return self.offsets.size

    def records(self) -> list[bytes]:
        """Each record, copied."""
        view, stops = self.data.data, (self.offsets + self.lengths).tolist()
        return [bytes(view[start:stop]) for start, stop in zip(self.offsets.tolist(), stops, strict=True)]

    @classmethod
    def of(cls, records: Sequence[bytes], fault: Exception | None = None) -> EncodedBlock:
        """A block of records that are already encoded."""
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        return cls(np.frombuffer(b"".join(records), np.uint8), lengths.cumsum() - lengths, lengths, fault)
