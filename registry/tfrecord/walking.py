"""Where do the frames of these bytes begin? Walked from length to length, guessed where all records are alike."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from registry.tfrecord.block import Octets, Places
from registry.tfrecord.faults import FRAMING_BYTES

_LENGTH: Final = struct.Struct("<Q")
_ALIKE: Final = 64
"""A guess pays from so many records on."""

_FIRST: Final = 4 * _ALIKE
_MANY: Final = 4096
"""So many are walked one by one before the next guess; few at first, for files whose records are all alike."""


def walk_frames(data: Octets, start: int, *, limit: int, most: int) -> Places:
    """The starts of the frames of ``data`` from ``start`` on, at most ``most``, and where the last of them ends.

    It stops where a frame does not end before ``limit``. The checksums of lengths are not looked at: what was found is
    to be proved by ``find_fault``.
    """
    pieces: list[Places] = []
    position, left, guess = start, most, 0
    view = data.data
    while left:
        if guess:
            alike = _walk_alike(data, position, guess, limit=limit, most=left)
            guess = guess if alike.size > _ALIKE else 0
            if alike.size > 1:
                pieces.append(alike[:-1])
                left -= alike.size - 1
                position = int(alike[-1])
                continue
        asked = min(left, _MANY if pieces else _FIRST)
        starts, position = _walk_each(view, position, limit, asked)
        pieces.append(np.array(starts, np.int64))
        left -= len(starts)
        if len(starts) < asked:
            break
        guess = _common_stride(starts[-_ALIKE:])
    pieces.append(np.array([position], np.int64))
    return np.concatenate(pieces)


def _walk_each(view: memoryview, position: int, limit: int, most: int) -> tuple[list[int], int]:
    unpack, starts = _LENGTH.unpack_from, []
    last = limit - FRAMING_BYTES
    for _ in range(most):
        if position > last:
            break
        stop = position + unpack(view, position)[0] + FRAMING_BYTES
        if stop > limit:
            break
        starts.append(position)
        position = stop
    return starts, position


def _walk_alike(data: Octets, start: int, stride: int, *, limit: int, most: int) -> Places:
    """The starts of frames of ``stride`` bytes each, and the end of the last: as many as there are."""
    count = min(most, (limit - start) // stride)
    if count:
        lengths = np.ndarray(count, "<u8", data, offset=start, strides=(stride,))
        other = lengths != stride - FRAMING_BYTES
        if other.any():
            count = int(other.argmax())
    return start + stride * np.arange(count + 1, dtype=np.int64)


def _common_stride(starts: list[int]) -> int:
    """The distance between neighbours where there are many and it is the same for all, else 0."""
    stride = starts[-1] - starts[-2] if len(starts) == _ALIKE else 0
    return stride if stride and all(map(stride.__eq__, map(int.__sub__, starts[1:], starts))) else 0
