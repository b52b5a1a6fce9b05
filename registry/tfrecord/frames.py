"""Frames many records at once, for writers: the bytes of consecutive frames and the length of each.

payloads -> frame_records -> Frames -> RecordWriter.write_frames
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from registry.tfrecord.block import Places, RecordBlock, mask, masked_length_crcs
from registry.tfrecord.framing import FRAMING_BYTES, check_length, crc32c

_LONG_RECORD: Final = 4096
"""From this mean length on, a view costs less than a copy, although its checksum takes a little longer."""

_BETWEEN: Final = np.dtype([("payload_crc", "<u4"), ("length", "<u8"), ("length_crc", "<u4")])
"""The 16 bytes between two payloads: the end of one frame and the start of the next."""

_END_BYTES: Final = 4


class Frames(NamedTuple):
    """The frames of consecutive records, exactly as a shard stores them.

    Attributes:
        data: all frames, one after the other.
        lengths: int64, the length of each frame in bytes; a payload is 16 bytes shorter.
    """

    data: bytes | memoryview
    lengths: Places

    @property
    def num_records(self) -> int:
        """Number of frames."""
        return self.lengths.size

    @property
    def num_payload_bytes(self) -> int:
        """Sum of the payloads' lengths in bytes."""
        return len(self.data) - FRAMING_BYTES * self.lengths.size

    def payloads(self) -> RecordBlock:
        """The records without their frames, as places in ``data``."""
        lengths = self.lengths - FRAMING_BYTES
        offsets = np.cumsum(self.lengths) - lengths - _END_BYTES
        return RecordBlock(np.frombuffer(self.data, np.uint8), offsets, lengths)

    def part(self, start: int, stop: int) -> Frames:
        """Frames ``start``..``stop`` (stop excluded), as a view."""
        if start == 0 and stop >= self.lengths.size:
            return self
        before = int(self.lengths[:start].sum())
        lengths = self.lengths[start:stop]
        return Frames(memoryview(self.data)[before : before + int(lengths.sum())], lengths)


def frame_records(records: RecordBlock | Sequence[bytes], lengths: Places | None = None) -> Frames:
    """Return the frames of ``records``, in order. Each is the ``frame_record`` of its payload.

    ``lengths`` are those of the records, if the caller has them.

    >>> frames = frame_records([b"one", b"three"])
    >>> frames.num_records, frames.num_payload_bytes, frames.lengths.tolist()
    (2, 8, [19, 21])
    >>> from registry.tfrecord import frame_record
    >>> frames.data == frame_record(b"one") + frame_record(b"three")
    True

    Raises:
        BuildError: a record is longer than 2 GiB, the limit of a protobuf message.
    """
    payloads: Sequence[bytes | memoryview]
    if isinstance(records, RecordBlock):
        lengths, count = records.lengths, records.num_records
        payloads = records.views() if records.num_bytes > count * _LONG_RECORD else records.records()
    else:
        count, payloads = len(records), records
        lengths = np.fromiter(map(len, payloads), np.int64, count) if lengths is None else lengths
    if not count:
        return Frames(b"", lengths)
    check_length(int(lengths.max()), record=int(lengths.argmax()))
    between = np.zeros(count + 1, _BETWEEN)
    between["length"][:-1] = lengths
    between["length_crc"][:-1] = masked_length_crcs(lengths)
    between["payload_crc"][1:] = mask(np.fromiter(map(crc32c, payloads), np.uint32, count))
    pieces: list[bytes] = between.view(f"V{_BETWEEN.itemsize}").tolist()
    first, last = pieces[0][_END_BYTES:], pieces[-1][:_END_BYTES]
    parts: list[bytes | memoryview] = [last] * (2 * count + 1)
    parts[0:-1:2] = [first, *pieces[1:-1]]
    parts[1::2] = payloads
    data = b"".join(parts)
    return Frames(data, lengths + FRAMING_BYTES)


def regroup(blocks: Iterable[Frames], *, multiple: int, least_bytes: int) -> Iterator[Frames]:
    """Yield the same frames in groups of at least ``least_bytes`` and a multiple of ``multiple``, except the last.

    >>> blocks = [frame_records([b"a"] * count) for count in (3, 4, 2)]
    >>> [group.num_records for group in regroup(blocks, multiple=2, least_bytes=60)]
    [6, 3]
    """
    waiting: list[Frames] = []
    num_records = num_bytes = 0
    for block in blocks:
        waiting.append(block)
        num_records += block.num_records
        num_bytes += len(block.data)
        count = num_records - num_records % multiple
        if count and num_bytes >= least_bytes:
            group = _join(waiting)
            yield group.part(0, count)
            waiting = [group.part(count, num_records)]
            num_records, num_bytes = num_records - count, len(waiting[0].data)
    if num_records:
        yield _join(waiting)


def _join(blocks: list[Frames]) -> Frames:
    if len(blocks) == 1 and isinstance(blocks[0].data, bytes):
        return blocks[0]
    return Frames(b"".join([block.data for block in blocks]), np.concatenate([block.lengths for block in blocks]))
