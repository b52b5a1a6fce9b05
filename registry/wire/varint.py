"""How does protobuf write integers? As varints: seven bits a byte, lowest first, the top bit set where more follow.

Negative int64 values are written as their 64-bit two's complement, so they take ten bytes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

_MOST_BYTES: Final = 10
_FEW_BYTES: Final = 4
_SHORT_BYTES: Final = 200
_SHORT_VALUES: Final = 16
"""Up to these a loop in Python is faster than numpy's fixed cost, as measured."""

_BLOCK_VALUES: Final = 2**12
"""Their bytes, ten words each, stay in a processor's cache: twice as fast as 2**16, as measured."""

_SHIFTS: Final = np.arange(0, 7 * _MOST_BYTES, 7, dtype=np.uint64)
_MASK: Final = np.uint64(0x7F)


def write_varint(value: int) -> bytes:
    """One unsigned integer, below 2**64.

    >>> write_varint(300).hex()
    'ac02'
    """
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    """The unsigned integer at ``position`` and where it ends.

    Raises:
        IndexError: the buffer ends inside it.
        ValueError: it takes more than 64 bits.
    """
    value = buffer[position]
    position += 1
    if value < 0x80:
        return value, position
    value &= 0x7F
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift == 7 * _MOST_BYTES:
            raise ValueError("a varint of more than ten bytes")
    if value >> 64:
        raise ValueError("a varint of more than 64 bits")
    return value, position


def write_varints(values: npt.NDArray[np.int64]) -> bytes:
    """Signed integers one after the other, as a packed field holds them.

    >>> write_varints(np.array([1, 300, -1])).hex()
    '01ac02ffffffffffffffffff01'
    """
    if values.size <= _SHORT_VALUES:
        return b"".join([write_varint(value & 0xFFFFFFFFFFFFFFFF) for value in values.tolist()])
    unsigned = values.astype(np.int64, order="C", copy=False).view(np.uint64)
    longest = max(1, -(-int(unsigned.max()).bit_length() // 7))
    if longest == 1:
        return unsigned.astype(np.uint8).tobytes()
    blocks = []
    for start in range(0, values.size, _BLOCK_VALUES):  # one column for each byte: a block bounds the memory
        rest = unsigned[start : start + _BLOCK_VALUES, np.newaxis] >> _SHIFTS[:longest]
        used = rest != 0
        used[:, 0] = True
        columns = (rest & _MASK).astype(np.uint8)
        columns[:, :-1] |= used[:, 1:].astype(np.uint8) << 7
        blocks.append(columns[used].tobytes())
    return b"".join(blocks)


def read_varints(buffer: bytes | memoryview, start: int, stop: int) -> npt.NDArray[np.int64]:
    """The signed integers in ``buffer[start:stop]``; a new array, which may be written to.

    Raises:
        IndexError: the buffer ends inside the last one.
        ValueError: the last one goes on beyond ``stop``, or one takes more than 64 bits.
    """
    size = stop - start
    if size > _FEW_BYTES:
        octets = np.frombuffer(buffer, dtype=np.uint8, count=size, offset=start)
        if octets.max() < 0x80:  # one byte each: pixels, flags
            return octets.astype(np.int64)
    if size <= _SHORT_BYTES:
        values = []
        position = start
        while position < stop:
            value, position = read_varint(buffer, position)
            values.append(value)
        if position != stop:
            raise ValueError("the last varint is cut off")
        return np.array(values, dtype=np.uint64).view(np.int64)
    ends = np.flatnonzero(octets < 0x80)
    if ends.size == 0 or ends[-1] != size - 1:
        raise ValueError("the last varint is cut off")
    lengths = np.diff(ends, prepend=-1)
    longest = int(lengths.max())
    if longest > _MOST_BYTES or (longest == _MOST_BYTES and octets[ends[lengths == _MOST_BYTES]].max() > 1):
        raise ValueError("a varint of more than 64 bits")
    starts = ends - lengths + 1
    result = (octets[starts] & 0x7F).astype(np.uint64)
    for place in range(1, longest):
        longer = np.flatnonzero(lengths > place)
        bits = (octets[starts[longer] + place] & 0x7F).astype(np.uint64)
        result[longer] |= bits << np.uint64(7 * place)
    return result.view(np.int64)
