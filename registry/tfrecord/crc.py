"""Computes CRC32C checksums for many frames at once; ``block`` checks frames with them.

CRC is linear: the checksum of a sequence follows from the checksums and lengths of its parts. So the checksum of a run
of frames is computed from the checksums that the frames store, and one pass over their bytes checks all of them.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.tfrecord.framing import FRAMING_BYTES, MASK_DELTA, crc32c, masked_crc32c

Crcs: TypeAlias = npt.NDArray[np.uint32]

_POLYNOMIAL: Final = 0x82F63B78
_ORDER: Final = 2**31 - 1
"""Appending this number of zero bytes changes no checksum: the polynomial is x + 1 times a primitive one."""

_ONES: Final = np.uint32(0xFFFFFFFF)
_MASK_DELTA: Final = np.uint32(MASK_DELTA)
_SHORT: Final = 4096
_JOINED: Final = 16
"""Checksums that are joined at once: their tables, of 64 KiB, fit a processor's cache (measured)."""

_TABLES: Final = np.arange(0, 4 * _JOINED * 256, 256)
"""Where the table of each byte of these checksums begins."""


def mask(crcs: Crcs) -> Crcs:
    """Mask checksums as TFRecord stores them."""
    return (crcs >> np.uint32(15) | crcs << np.uint32(17)) + _MASK_DELTA


def unmask(masked: Crcs) -> Crcs:
    """The inverse of ``mask``."""
    rotated = masked - _MASK_DELTA
    return rotated >> np.uint32(17) | rotated << np.uint32(15)


def masked_length_crcs(lengths: npt.NDArray[np.int64]) -> Crcs:
    """Compute the masked checksum of each length, as a frame's header stores it; lengths below 2**32.

    >>> hex(masked_length_crcs(np.array([0]))[0])
    '0x7980329'
    """
    if lengths.size and int(lengths.max()) < _SHORT:
        return _short_length_crcs()[lengths]
    return _work_out_length_crcs(lengths)


@cache
def _short_length_crcs() -> Crcs:
    return _work_out_length_crcs(np.arange(_SHORT))


def _work_out_length_crcs(lengths: npt.NDArray[np.int64]) -> Crcs:
    # The register starts with 32 ones, which the first four bytes absorb; the last four bytes are zero.
    return mask(_apply(_shift(8), lengths.astype(np.uint32) ^ _ONES) ^ _ONES)


def run_crc32c(length: int, stored: Crcs) -> int:
    """Compute the CRC32C of consecutive frames with payloads of ``length`` bytes.

    ``stored`` are the masked checksums of the payloads, as the frames store them; at least one.

    >>> from registry.tfrecord.framing import frame_record
    >>> run_crc32c(3, np.array([masked_crc32c(b"one"), masked_crc32c(b"two")], np.uint32))
    1650063472
    >>> crc32c(frame_record(b"one") + frame_record(b"two"))
    1650063472
    """
    # One frame has the checksum head ^ shift(crc, 4) ^ crc(the four bytes of stored). The last two are one shift
    # of both. Shifts commute, so it is applied once at the end, also to what is the same in every frame.
    joined = _fold(length + FRAMING_BYTES, unmask(stored) ^ stored ^ _constant_part(length))
    return int(_apply(_shift(4), joined)[0])


@lru_cache(maxsize=4096)
def _constant_part(length: int) -> Crcs:
    """The part of each frame's checksum that comes from its header and the initial ones of CRCs, shifted back by 4."""
    data = length.to_bytes(8, "little")
    header = data + masked_crc32c(data).to_bytes(4, "little")
    head = _apply(_shift(length + 4), np.array([crc32c(header)], np.uint32))
    return _apply(_shift(_ORDER - 4), head ^ ~_apply(_shift(4), np.array([_ONES])))


def _fold(size: int, crcs: Crcs) -> Crcs:
    """Combine the checksums of pieces of ``size`` bytes into one, by joining neighbours until one is left."""
    while crcs.size > 1:
        # Zeros before the first one change nothing.
        crcs = np.concatenate([np.zeros(-crcs.size % _JOINED, np.uint32), crcs])
        octets = crcs.astype("<u4", copy=False).view(np.uint8).reshape(-1, 4 * _JOINED)
        crcs = np.bitwise_xor.reduce(_joining_shifts(size).take(octets + _TABLES), axis=1)
        size *= _JOINED
    return crcs


@lru_cache(maxsize=128)
def _joining_shifts(size: int) -> Crcs:
    """The tables of the maps that append the pieces of ``size`` bytes after each of ``_JOINED`` pieces."""
    tables = [_shift(0)]
    while len(tables) < _JOINED:
        tables.append(_apply(_shift(size), tables[-1]))
    return np.concatenate(tables[::-1])


def _apply(table: Crcs, crcs: Crcs) -> Crcs:
    """Apply the linear map of ``table`` to each of ``crcs``."""
    octets = np.ascontiguousarray(crcs, "<u4").view(np.uint8).reshape(-1, 4)
    result: Crcs = (
        table[0:256][octets[:, 0]]
        ^ table[256:512][octets[:, 1]]
        ^ table[512:768][octets[:, 2]]
        ^ table[768:1024][octets[:, 3]]
    )
    return result


@lru_cache(maxsize=2048)
def _shift(num_bytes: int) -> Crcs:
    """The map of appending ``num_bytes`` zero bytes: four tables of 256, one for each byte of a checksum."""
    if num_bytes == 0:
        return (np.arange(256, dtype=np.uint32) << np.array([[0], [8], [16], [24]], np.uint32)).reshape(-1)
    if num_bytes == 1:
        register = _shift(0)
        for _ in range(8):
            register = register >> np.uint32(1) ^ np.where(register & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
        return register
    half = _shift(num_bytes // 2)
    doubled = _apply(half, half)
    return _apply(_shift(1), doubled) if num_bytes % 2 else doubled
