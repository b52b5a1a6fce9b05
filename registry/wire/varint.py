"""Reads and writes varints, protobuf's integers: seven bits in each byte, lowest first; the top bit means "continued".

Negative int64 values are written as their 64-bit two's complement, so they take ten bytes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from registry.wire.gather import Octets, Places, as_rows, chunks_of, constant, take, take_ragged, take_windows

_MOST_BYTES: Final = 10
_FEW_BYTES: Final = 4
_SHORT_BYTES: Final = 200
_SHORT_VALUES: Final = 16
"""Up to this number, a Python loop is faster than numpy (measured)."""

_MANY_VALUES: Final = 2048
"""Above this number, it is faster to move the bits of whole words than to shift each group of bits (measured)."""

_BLOCK_VALUES: Final = 2**12
"""Number of values in a block: its bytes, at most sixteen for each value, fit a processor's cache. This is twice as
fast as 2**16 (measured)."""

_SHIFTS: Final = np.arange(0, 7 * _MOST_BYTES, 7, dtype=np.uint64)
_LOW_BITS: Final = np.uint64(0x7F)
_LOW_56: Final = np.uint64((1 << 56) - 1)
_NONE: Final = np.empty(0, np.int64)

_CHUNK_BYTES: Final = 2**16
# Masks for the first eight bytes of a varint, by its number of bytes: all bits of the varint; the top bits of its
# bytes; and those top bits that must be set.
_OWN: Final = np.array([(1 << 8 * min(size, 8)) - 1 for size in range(_MOST_BYTES + 1)], np.uint64)
_TOPS: Final = _OWN & np.uint64(0x8080808080808080)
_SET: Final = np.array(
    [
        0,
        *(
            sum(0x80 << 8 * byte for byte in range(min(size, 8))) - (0x80 << 8 * (size - 1) if size <= 8 else 0)
            for size in range(1, _MOST_BYTES + 1)
        ),
    ],
    np.uint64,
)


# The tag of a field is its number times 8, plus 2 for "length, then that many bytes", which all fields of a
# tf.train.Example down to its values are.
FIELD_1: Final = 0x0A
"""Tag of Example.features, Features.feature, an entry's key, a list's values, and Feature.bytes_list."""

FIELD_2: Final = 0x12
"""Tag of an entry's value, and of Feature.float_list."""


class OtherFormError(Exception):
    """The message is not in the form that every known writer produces. It may still be valid: protobuf decides."""


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
    """The unsigned integer at ``position``, and the position of its end.

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


def write_varints(values: Places) -> bytes:
    """Signed integers one after the other, as a packed field stores them.

    >>> write_varints(np.array([1, 300, -1])).hex()
    '01ac02ffffffffffffffffff01'
    """
    if values.size <= _SHORT_VALUES:
        return b"".join([write_varint(value & 0xFFFFFFFFFFFFFFFF) for value in values.tolist()])
    unsigned = values.astype(np.int64, order="C", copy=False).view(np.uint64)
    longest = max(1, -(-int(unsigned.max()).bit_length() // 7))
    if longest == 1:
        return unsigned.astype(np.uint8).tobytes()
    if values.size > _MANY_VALUES:
        return write_varint_run(values)[0].tobytes()
    rest = unsigned[:, np.newaxis] >> _SHIFTS[:longest]
    used = rest != 0
    used[:, 0] = True
    columns = (rest & _LOW_BITS).astype(np.uint8)
    columns[:, :-1] |= used[:, 1:].astype(np.uint8) << 7
    written: bytes = columns[used].tobytes()
    return written


def write_varint_rows(values: Places) -> tuple[npt.NDArray[np.uint8], int | Octets]:
    """Each signed integer in a row of its own: rows of 1, 2, 4, 8 or 16 bytes, and the number of bytes that each uses.

    >>> rows, sizes = write_varint_rows(np.array([1, 300]))
    >>> rows.tolist(), sizes
    ([[1, 0], [172, 2]], array([1, 2], dtype=uint8))
    """
    rows, sizes, _ = _spread_varints(values)
    same = int(sizes[0]) if sizes.size and bool((sizes == sizes[0]).all()) else None
    return rows, sizes if same is None else same


def write_varint_run(values: Places) -> tuple[Octets, int | Octets]:
    """Signed integers one after the other, as a packed field stores them, and the number of bytes of each.

    >>> run, sizes = write_varint_run(np.array([1, 300, -1]))
    >>> run.tobytes().hex(), sizes
    ('01ac02ffffffffffffffffff01', array([ 1,  2, 10], dtype=uint8))
    """
    if not values.size or (int(values.min()) >= 0 and int(values.max()) < 0x80):
        return values.astype(np.uint8), 1
    runs: list[Octets] = []
    pieces: list[Octets] = []
    for start in range(0, values.size, _BLOCK_VALUES):  # blocks fit the processor's cache
        rows, sizes, is_used = _spread_varints(values[start : start + _BLOCK_VALUES])
        runs.append(rows.reshape(-1).compress(is_used.reshape(-1)))
        pieces.append(sizes)
    return np.concatenate(runs), np.concatenate(pieces)


def _spread_varints(values: Places) -> tuple[npt.NDArray[np.uint8], Octets, npt.NDArray[np.bool_]]:
    """Each signed integer in a row of 1, 2, 4, 8 or 16 bytes, the number of bytes that it uses, and which these are."""
    unsigned = values.astype(np.int64, order="C", copy=False).view(np.uint64)
    longest = max(1, -(-int(unsigned.max(initial=0)).bit_length() // 7))
    if longest == 1:
        used = np.ones((unsigned.size, 1), np.bool_)
        return unsigned.astype(np.uint8).reshape(-1, 1), used.view(np.uint8).reshape(-1), used
    width = 2 if longest == 2 else 4 if longest <= 4 else 8
    words = (unsigned if longest <= width else unsigned & _LOW_56).astype(f"<u{width}")
    kind = words.dtype.type
    for bits in (28, 14, 7)[-width.bit_length() + 1 :]:  # the upper half of each 2 * bits bits starts at a whole byte
        low = _join_mask(bits).astype(words.dtype)
        words = (words & low) | (words << kind(bits // 7)) & (low << kind(bits // 7 * 8))
    is_used = np.zeros((unsigned.size, width if longest <= width else 2 * width), np.bool_)
    is_used[:, 0] = True
    sizes = np.ones(unsigned.size, np.uint8)
    for size in range(1, longest):
        is_longer = unsigned >= np.uint64(1 << 7 * size)
        is_used[:, size] = is_longer
        sizes += is_longer
        if size <= width:
            words |= is_longer.astype(words.dtype) << kind(8 * size - 1)
    if longest <= width:
        return words.view(np.uint8).reshape(-1, width), sizes, is_used
    wide = np.zeros((unsigned.size, 2), "<u8")
    wide[:, 0] = words
    wide[:, 1] = (unsigned >> np.uint64(56)) & _LOW_BITS
    wide[is_used[:, 9], 1] |= np.uint64(0x180)  # a tenth byte is always 1
    return wide.view(np.uint8), sizes, is_used


def read_varints(buffer: bytes | memoryview, start: int, stop: int) -> Places:
    """Read the signed integers in ``buffer[start:stop]`` into a new, writable array.

    Raises:
        IndexError: the buffer ends inside the last one.
        ValueError: the last one continues beyond ``stop``, or one has more than 64 bits.
    """
    size = stop - start
    if size == 1 and buffer[start] < 0x80:
        return np.array([buffer[start]], np.int64)
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
    # Like _read_run, but without counting pieces, which would add half of the time.
    ends = np.flatnonzero(octets < 0x80)
    if ends.size == 0 or ends[-1] != size - 1:
        raise ValueError("the last varint is cut off")
    lengths = np.diff(ends, prepend=-1)
    longest = int(lengths.max())
    if longest > _MOST_BYTES or (longest == _MOST_BYTES and octets[ends[lengths == _MOST_BYTES]].max() > 1):
        raise ValueError("a varint of more than 64 bits")
    return _join_bits(octets, ends - lengths + 1, lengths, longest)


class Integers(NamedTuple):
    """The integers of several pieces of a buffer.

    Attributes:
        values: the integers of all pieces, in order.
        counts: number of integers in each piece; an int if it is the same for all.
        odd: indices of the pieces that are not varints of at most 64 bits; if there are any, ignore the other fields.
        widths: number of bytes of each integer, or None if unknown.
    """

    values: Places
    counts: int | Places
    odd: Places
    widths: Places | None = None


def read_varint_rows(data: Octets, starts: Places, sizes: Places) -> Integers:
    """The signed integers in each ``data[start : start + size]``."""
    size = constant(sizes)
    if size == 0 or not starts.size:
        return Integers(_NONE, 0, _NONE)
    single = None
    if size is not None:
        single = _read_same_size(data, starts, size)
    elif int(sizes.max()) <= _MOST_BYTES and int(sizes.min()) > 0:
        single = _read_single(data, starts, sizes)
    return read_any_rows(data, starts, sizes) if single is None else single


def read_any_rows(data: Octets, starts: Places, sizes: Places) -> Integers:
    """Like ``read_varint_rows`` for any number of integers in each piece, and with their widths."""
    chunks = [
        _read_run(take_ragged(data, starts[first:last], sizes[first:last]), sizes[first:last], first)
        for first, last in chunks_of(sizes.cumsum(), _CHUNK_BYTES)
    ]
    values, counts, odd, widths = (np.concatenate(arrays) for arrays in zip(*chunks, strict=True))
    return Integers(values, counts, odd, widths)


def _read_same_size(data: Octets, starts: Places, size: int) -> Integers | None:
    """The integers if each piece is one varint, or consists of one-byte varints only; otherwise None."""
    rows = as_rows(take(data, starts, size), np.uint8)
    if int(rows.max()) < 0x80:
        return Integers(rows.astype(np.int64).reshape(-1), size, _NONE)
    if size > _MOST_BYTES or int(rows[:, -1].max()) >= 0x80 or int(rows[:, :-1].min()) < 0x80:
        return None
    if size == _MOST_BYTES and int(rows[:, -1].max()) > 1:
        return None
    value = rows[:, 0].astype(np.uint64)
    value &= _LOW_BITS
    for byte in range(1, size):
        value |= (rows[:, byte].astype(np.uint64) & _LOW_BITS) << np.uint64(7 * byte)
    return Integers(value.view(np.int64), 1, _NONE)


def _read_single(data: Octets, starts: Places, sizes: Places) -> Integers | None:
    """The integers if each piece, of 1 to 10 bytes, is one varint; otherwise None."""
    longest = int(sizes.max())
    words = take_windows(data, starts, 16 if longest > 8 else 8).view("<u8").reshape(starts.size, -1)
    value = words[:, 0] & _OWN[sizes]
    if not np.array_equal(value & _TOPS[sizes], _SET[sizes]):
        return None
    value &= np.uint64(0x7F7F7F7F7F7F7F7F)
    for bits in (7, 14, 28)[: (longest - 1).bit_length()]:  # join neighbouring groups: 7 bits become 14, 28, then 56
        low = _join_mask(bits)
        high = low << np.uint64(bits // 7 * 8)
        value = (value & low) | (value & high) >> np.uint64(bits // 7)
    long = np.flatnonzero(sizes > 8)
    if long.size:
        ninth, tenth = words[long, 1] & np.uint64(0xFF), words[long, 1] >> np.uint64(8) & np.uint64(0xFF)
        is_ten = sizes[long] == _MOST_BYTES
        if (ninth[is_ten] < 0x80).any() or (ninth[~is_ten] >= 0x80).any() or (tenth[is_ten] > 1).any():
            return None
        value[long] |= (ninth & _LOW_BITS) << np.uint64(56) | np.where(is_ten, tenth << np.uint64(63), np.uint64(0))
    return Integers(value.view(np.int64), 1, _NONE)


def _join_mask(bits: int) -> np.uint64:
    """The lower ones of each two neighbouring groups of ``bits`` bits, in groups of whole bytes."""
    return np.uint64(sum(((1 << bits) - 1) << place for place in range(0, 64, bits // 7 * 16)))


def _read_run(octets: Octets, sizes: Places, first: int) -> tuple[Places, Places, Places, Places]:
    """Values, counts, odd pieces (numbered from ``first``) and widths of adjacent pieces of ``sizes`` bytes."""
    last = octets < 0x80
    number = np.zeros(octets.size + 1, np.int64)
    last.cumsum(out=number[1:])
    bounds = sizes.cumsum()
    counts = np.diff(number[bounds], prepend=0)
    if last.all():
        return octets.astype(np.int64), counts, _NONE, np.ones(octets.size, np.int64)
    cut = np.flatnonzero((sizes > 0) & ~last[bounds - 1])
    ends = np.flatnonzero(last)
    widths = np.diff(ends, prepend=-1)
    wide = (widths > _MOST_BYTES) | ((widths == _MOST_BYTES) & (octets[ends] > 1))
    if cut.size or wide.any():
        owners = np.searchsorted(bounds, ends[wide], side="right")
        return _NONE, counts, np.union1d(cut, owners) + first, _NONE
    return _join_bits(octets, ends - widths + 1, widths, int(widths.max(initial=1))), counts, _NONE, widths


def _join_bits(octets: Octets, starts: Places, widths: Places, longest: int) -> Places:
    """The signed integers of valid varints of ``widths`` bytes, of which the longest has ``longest``."""
    values = (octets[starts] & np.uint8(0x7F)).astype(np.uint64)
    for place in range(1, longest):
        longer = np.flatnonzero(widths > place)
        values[longer] |= (octets[starts[longer] + place].astype(np.uint64) & _LOW_BITS) << np.uint64(7 * place)
    return values.view(np.int64)
