"""What is handed on from a shard file? Many records at once: the bytes that hold them, and where each one lies."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

_FEW_BYTES: Final = 4096
_MANY: Final = 16
_LONG: Final = 4096
_FEW_LENGTHS: Final = 8
"""Records of one length are copied out by one call; of so many lengths at most, by one call each."""

Octets = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]


class RecordBlock(NamedTuple):
    """``len(offsets)`` records, in order: record i is ``data[offsets[i] : offsets[i] + lengths[i]]``.

    Attributes:
        data: uint8, 1-d, contiguous; maybe a read-only view of a mapped file, which holds more than these records.
        offsets: int64, of each payload's first byte.
        lengths: int64, of each payload.
    """

    data: Octets
    offsets: Places
    lengths: Places

    @property
    def num_records(self) -> int:
        """Number of records."""
        return self.offsets.size

    @property
    def num_bytes(self) -> int:
        """Sum of the payloads' lengths."""
        return int(self.lengths.sum())

    def records(self) -> list[bytes]:
        """Each payload, copied."""
        lengths = self.lengths
        if lengths.size < _MANY or int(lengths.max()) >= _LONG:
            return [view.tobytes() for view in self.views()]
        counts = np.bincount(lengths)
        kinds = np.flatnonzero(counts)
        if kinds.size == 1 and kinds[0]:
            return self._of_length(int(kinds[0]), self.offsets)
        if kinds.size > _FEW_LENGTHS or not kinds[0]:
            return [view.tobytes() for view in self.views()]
        found = np.empty(lengths.size, object)
        for length in kinds.tolist():
            group = np.flatnonzero(lengths == length)
            found[group] = self._of_length(length, self.offsets[group])
        records: list[bytes] = found.tolist()
        return records

    def _of_length(self, length: int, offsets: Places) -> list[bytes]:
        windows = np.ndarray(self.data.size - length + 1, f"V{length}", self.data, strides=(1,))
        records: list[bytes] = windows[offsets].tolist()
        return records

    def views(self) -> list[memoryview]:
        """Each payload as a read-only view of ``data``: nothing is copied."""
        view = self.data.data.toreadonly()
        stops = (self.offsets + self.lengths).tolist()
        return [view[start:stop] for start, stop in zip(self.offsets.tolist(), stops, strict=True)]

    def span(self) -> tuple[Octets, Places]:
        """The bytes of all records, few others, and where each record begins in them."""
        first, stop = int(self.offsets.min()), int((self.offsets + self.lengths).max())
        if stop - first <= 2 * self.num_bytes + _FEW_BYTES:
            return self.data[first:stop], self.offsets - first
        joined = b"".join(self.views())
        return np.frombuffer(joined, np.uint8), np.cumsum(self.lengths) - self.lengths

    def take(self, places: Places) -> RecordBlock:
        """The records at ``places`` of this block, in that order."""
        return RecordBlock(self.data, self.offsets[places], self.lengths[places])


def join_blocks(blocks: list[RecordBlock]) -> RecordBlock:
    """All records of ``blocks``, one block after the other; the bytes of several are copied together."""
    blocks = [block for block in blocks if block.num_records]
    if len(blocks) < 2:
        return blocks[0] if blocks else RecordBlock(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
    pieces, offsets, end = [], [], 0
    for block in blocks:
        piece, places = block.span()
        pieces.append(piece)
        offsets.append(places + end)
        end += piece.size
    lengths = np.concatenate([block.lengths for block in blocks])
    return RecordBlock(np.concatenate(pieces), np.concatenate(offsets), lengths)
