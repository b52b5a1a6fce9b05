"""Finds the chunks of an ArrayRecord file (riegeli), and rewrites them with valid hashes and any content.

A file consists of blocks of 64 KiB, each with a header of 24 bytes. They contain chunks: a header of 40 bytes and data.
HighwayHash protects headers and data, so a change without a new hash is detected at once and tests little.

Source: https://github.com/google/riegeli/blob/master/doc/riegeli_records_file_format.md
"""

from __future__ import annotations

import random
import struct
from typing import Final, NamedTuple

_BLOCK: Final = 2**16
_BLOCK_HEADER: Final = 24
_HEADER: Final = struct.Struct("<QQQQQ")
"""Hash of the rest, size of the data, its hash, type and number of records << 8, size once it is decoded."""
_KEY: Final = (0x2F696C6567656952, 0x0A7364726F636572) * 2
_WORD: Final = 2**64 - 1
_MUL0: Final = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_MUL1: Final = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)


class Chunk(NamedTuple):
    """A chunk within one block: its header at ``place``, and its data up to ``stop``."""

    place: int
    stop: int


def find_chunks(content: bytes) -> list[Chunk]:
    """The chunks of a sound file that cross no border of blocks."""
    found: list[Chunk] = []
    place = 0
    while place + _HEADER.size < len(content):
        if place % _BLOCK == 0:
            place += _BLOCK_HEADER
        head, size, digest, *_ = _HEADER.unpack_from(content, place)
        stop = place + _HEADER.size + size
        if head != highway_hash(content[place + 8 : place + _HEADER.size]):
            place = (place // _BLOCK + 1) * _BLOCK
            continue
        if place // _BLOCK == (stop - 1) // _BLOCK:
            assert digest == highway_hash(content[place + _HEADER.size : stop])
            found.append(Chunk(place, stop))
        else:
            stop += _BLOCK_HEADER * ((stop - 1) // _BLOCK - place // _BLOCK)
        place = stop
    return found


def change_chunk(rng: random.Random, content: bytes, chunk: Chunk) -> bytes:
    """``content`` with a change in the header or the data of ``chunk``, under right hashes."""
    _, size, digest, kind, decoded = _HEADER.unpack_from(content, chunk.place)
    data = bytearray(content[chunk.place + _HEADER.size : chunk.stop])
    claims = [0, 1, 2, 5, 2**16, 2**31 - 1, 2**31, 2**40, 2**56 - 1, 2**63 - 1, 2**63, 2**64 - 1, rng.randrange(2**64)]
    if rng.random() < 0.4:
        which = rng.randrange(5)
        if which == 0:
            size = rng.choice(claims)
        elif which == 1:
            kind = kind & 255 | rng.choice(claims) << 8 & _WORD
        elif which == 2:
            kind = kind >> 8 << 8 | rng.choice(b"srtpm\0\xff")
        elif which == 3:
            decoded = rng.choice(claims)
        else:
            digest = rng.choice(claims)
    else:
        for _ in range(rng.choice([1, 1, 2, 3, 8])):
            if data:
                place = rng.randrange(len(data)) if rng.random() < 0.5 else rng.randrange(min(16, len(data)))
                data[place] = rng.choice([data[place] ^ 1 << rng.randrange(8), 0, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        digest = highway_hash(bytes(data))
    return _with_chunk(content, chunk, bytes(data), (size, digest, kind, decoded))


def write_chunk(content: bytes, chunk: Chunk, data: bytes) -> bytes:
    """``content`` with other data in ``chunk``, as many bytes, under right hashes."""
    _, size, _, kind, decoded = _HEADER.unpack_from(content, chunk.place)
    return _with_chunk(content, chunk, data, (size, highway_hash(data), kind, decoded))


def _with_chunk(content: bytes, chunk: Chunk, data: bytes, claims: tuple[int, int, int, int]) -> bytes:
    head = _HEADER.pack(0, *claims)[8:]
    head = highway_hash(head).to_bytes(8, "little") + head
    return content[: chunk.place] + head + data + content[chunk.stop :]


def highway_hash(data: bytes) -> int:
    """HighwayHash64 with riegeli's key, "Riegeli/records\n" twice."""
    state = _State()
    whole = len(data) // 32 * 32
    for start in range(0, whole, 32):
        state.update(struct.unpack_from("<4Q", data, start))
    if len(data) > whole:
        state.update_rest(data[whole:])
    for _ in range(4):
        v0 = state.v0
        state.update(tuple(_halves_swapped(v0[lane]) for lane in (2, 3, 0, 1)))
    return (state.v0[0] + state.v1[0] + state.mul0[0] + state.mul1[0]) & _WORD


class _State:
    def __init__(self) -> None:
        self.mul0, self.mul1 = list(_MUL0), list(_MUL1)
        self.v0 = [mul ^ key for mul, key in zip(_MUL0, _KEY, strict=True)]
        self.v1 = [mul ^ _halves_swapped(key) for mul, key in zip(_MUL1, _KEY, strict=True)]

    def update(self, lanes: tuple[int, ...]) -> None:
        v0, v1, mul0, mul1 = self.v0, self.v1, self.mul0, self.mul1
        for lane in range(4):
            v1[lane] = (v1[lane] + mul0[lane] + lanes[lane]) & _WORD
            mul0[lane] ^= (v1[lane] & 0xFFFFFFFF) * (v0[lane] >> 32)
            v0[lane] = (v0[lane] + mul1[lane]) & _WORD
            mul1[lane] ^= (v0[lane] & 0xFFFFFFFF) * (v1[lane] >> 32)
        _zip_add(v0, v1, 0)
        _zip_add(v0, v1, 2)
        _zip_add(v1, v0, 0)
        _zip_add(v1, v0, 2)

    def update_rest(self, rest: bytes) -> None:
        size = len(rest)
        for lane in range(4):
            self.v0[lane] = (self.v0[lane] + (size << 32) + size) & _WORD
            low, high = self.v1[lane] & 0xFFFFFFFF, self.v1[lane] >> 32
            self.v1[lane] = _rotated(low, size) | _rotated(high, size) << 32
        packet = bytearray(32)
        packet[: size & ~3] = rest[: size & ~3]
        tail = rest[size & ~3 :]
        if size & 16:
            packet[28:32] = rest[size - 4 :]
        elif tail:
            packet[16:19] = bytes([tail[0], tail[len(tail) >> 1], tail[-1]])
        self.update(struct.unpack("<4Q", packet))


def _rotated(half: int, count: int) -> int:
    count &= 31
    return (half << count | half >> 32 - count) & 0xFFFFFFFF


def _halves_swapped(lane: int) -> int:
    return lane >> 32 | lane << 32 & _WORD


def _zip_add(target: list[int], source: list[int], lane: int) -> None:
    a, b = source[lane].to_bytes(8, "little"), source[lane + 1].to_bytes(8, "little")
    low = bytes([a[3], b[4], a[2], a[5], b[6], a[1], b[7], a[0]])
    high = bytes([b[3], a[4], b[2], b[5], b[1], a[6], b[0], a[7]])
    target[lane] = (target[lane] + int.from_bytes(low, "little")) & _WORD
    target[lane + 1] = (target[lane + 1] + int.from_bytes(high, "little")) & _WORD
