"""Compresses bytes to the same zlib stream on every machine, with a small deflate encoder.

The output of ``zlib.compress`` differs between zlib, zlib-ng and their versions, so a file written with it has a
different sha256 on another machine. The output of this encoder (RFC 1950, RFC 1951) depends on the data only: one
block, with matches at distance 1 only (runs of one byte; PNG's filters turn flat areas into runs), and the smallest of
Huffman codes for the data, the fixed codes, and no compression. It uses integers only. Any zlib can read its streams.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_MIN_MATCH: Final = 3
_MAX_MATCH: Final = 258
_MAX_STORED: Final = 65535
_MAX_CODE: Final = 15
_END: Final = 256
_BLOCK: Final = 1 << 15
_MIN_OWN_HEADER: Final = 17 + 19 * 3 + 258 * 4
_NUM_SYMBOLS: Final = 286
_FIXED_LENGTHS: Final = [8] * 144 + [9] * 112 + [7] * 24 + [8] * 8

_Array = npt.NDArray[Any]


def compress(data: bytes) -> bytes:
    """Compress ``data`` to a zlib stream that depends on ``data`` only.

    >>> zlib.decompress(compress(b"a" * 1000)) == b"a" * 1000, len(compress(b"a" * 1000))
    (True, 16)
    """
    tokens = _tokens(np.frombuffer(data, np.uint8))
    counts = np.bincount(tokens, minlength=_NUM_TOKENS)
    header, codes = [(0b011, 3)], _FIXED_CODES
    num_bits = 3 + int(counts @ codes[1])
    if num_bits > _MIN_OWN_HEADER:
        lengths = _code_lengths(np.bincount(_SYMBOL, counts, _NUM_SYMBOLS).astype(np.int64).tolist())
        own_header, own_codes = _own_header(lengths), _token_codes(lengths, 1)
        own_bits = sum(width for _, width in own_header) + int(counts @ own_codes[1])
        if own_bits < num_bits:
            header, codes, num_bits = own_header, own_codes, own_bits
    stored_size = len(data) + 5 * max(1, -(-len(data) // _MAX_STORED))
    body = _stored(data) if stored_size <= (num_bits + 7) // 8 else _pack(header, tokens, codes, num_bits)
    return b"\x78\x01" + body + zlib.adler32(data).to_bytes(4, "big")


def _tokens(values: npt.NDArray[np.uint8]) -> _Array:
    """The tokens to write: 0..255 is that byte, 256 is the end, 256 + n repeats the previous byte n times (3..258).

    A run of one byte becomes the byte, then matches of maximum length, then a match for the rest, or single bytes if
    fewer than 3 are left.
    """
    repeats = np.zeros(values.size + 1, np.int8)
    np.equal(values[1:], values[:-1], out=repeats[1:-1].view(np.bool_))
    edges = np.diff(repeats)
    starts = np.flatnonzero(edges == 1) + 1
    full, rest = np.divmod(np.flatnonzero(edges == -1) + 1 - starts, _MAX_MATCH)
    last = np.where(rest >= _MIN_MATCH, rest, 0)
    matches = full + (last > 0)
    covered = np.zeros(values.size + 1, np.int8)
    covered[starts] += 1
    covered[starts + full * _MAX_MATCH + last] -= 1
    is_kept = np.add.accumulate(covered, dtype=np.int8) == 0
    run = np.repeat(np.arange(starts.size), matches)
    place = np.arange(run.size) - (np.cumsum(matches) - matches)[run]
    tokens = np.append(values, 0).astype(np.int16)
    tokens[-1] = _END
    at = starts[run] + place * _MAX_MATCH
    tokens[at] = _END + np.where(place < full[run], _MAX_MATCH, last[run])
    is_kept[at] = True
    array: _Array = tokens[is_kept]
    return array


def _pack(header: list[tuple[int, int]], tokens: _Array, codes: tuple[_Array, _Array], num_bits: int) -> bytes:
    """The bits of ``header`` and of the tokens as bytes, lowest bit first."""
    words = np.zeros(num_bits // 32 + 2, np.uint32)
    start = 0
    for bits, widths in _coded_blocks(header, tokens, codes):
        stops = start + np.cumsum(widths)
        starts, start = stops - widths, int(stops[-1])
        first, number = int(starts[0]) >> 5, (start >> 5) + 2 - (int(starts[0]) >> 5)
        # A token has at most 28 bits, so two words hold it. Tokens share no bits, so adding them sets their bits. The
        # floats that bincount adds are exact below 2**53.
        word, shifted = (starts >> 5) - first, bits << (starts & 31)
        words[first : first + number] += np.bincount(word, shifted & 0xFFFFFFFF, number).astype(np.uint32)
        words[first : first + number] += np.bincount(word + 1, shifted >> 32, number).astype(np.uint32)
    return words.astype("<u4").tobytes()[: (num_bits + 7) // 8]


def _coded_blocks(
    header: list[tuple[int, int]], tokens: _Array, codes: tuple[_Array, _Array]
) -> Iterator[tuple[_Array, _Array]]:
    """The bits and bit widths of the header, then of the tokens, in blocks that fit the processor's cache."""
    yield np.array([value for value, _ in header]), np.array([width for _, width in header])
    for first in range(0, tokens.size, _BLOCK):
        block = tokens[first : first + _BLOCK]
        yield codes[0][block], codes[1][block]


def _stored(data: bytes) -> bytes:
    blocks = []
    for start in range(0, max(len(data), 1), _MAX_STORED):
        block = data[start : start + _MAX_STORED]
        is_last = start + _MAX_STORED >= len(data)
        blocks.append(bytes([is_last]) + len(block).to_bytes(2, "little") + (len(block) ^ 0xFFFF).to_bytes(2, "little"))
        blocks.append(block)
    return b"".join(blocks)


def _code_lengths(counts: list[int]) -> list[int]:
    """Huffman code lengths of at most 15 bits for symbols that occur ``counts`` times; 0 for symbols without use."""
    while True:
        heap: list[tuple[int, int, tuple[int, ...]]] = [
            (count, symbol, (symbol,)) for symbol, count in enumerate(counts) if count
        ]
        lengths = [0] * len(counts)
        for _, symbol, _ in heap[:1] if len(heap) == 1 else []:
            lengths[symbol] = 1
        heapq.heapify(heap)
        while len(heap) > 1:
            count, symbol, members = heapq.heappop(heap)
            other_count, _, other_members = heapq.heappop(heap)
            merged = members + other_members
            for member in merged:
                lengths[member] += 1
            heapq.heappush(heap, (count + other_count, symbol, merged))
        if max(lengths) <= _MAX_CODE:
            return lengths
        counts = [(count + 1) // 2 for count in counts]  # flatter counts, shorter codes


def _canonical_codes(lengths: list[int]) -> list[int]:
    """The code of each symbol, first bit lowest (RFC 1951, 3.2.2)."""
    codes, code, before = [0] * len(lengths), 0, 0
    for width, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths) if length):
        code <<= width - before
        codes[symbol] = int(f"{code:0{width}b}"[::-1], 2)
        code, before = code + 1, width
    return codes


def _token_codes(lengths: list[int], distance_width: int) -> tuple[_Array, _Array]:
    """The bits and bit width of each token: its symbol, extra bits, and the distance code (zeros) for a match."""
    codes, widths = np.array(_canonical_codes(lengths), np.int64), np.array(lengths, np.int64)
    bits = codes[_SYMBOL] | _EXTRA << widths[_SYMBOL]
    return bits, widths[_SYMBOL] + _NUM_EXTRA + np.where(_SYMBOL > _END, distance_width, 0)


def _own_header(lengths: list[int]) -> list[tuple[int, int]]:
    """The header of a last block with its own codes (RFC 1951, 3.2.7), as (bits, number of bits).

    The lengths 0..15 are written with 4 bits each, without run lengths: 150 bytes at most. One distance
    code of one bit follows them.
    """
    order = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
    number = max(symbol for symbol, length in enumerate(lengths) if length) + 1
    header = [(0b101, 3), (number - 257, 5), (0, 5), (len(order) - 4, 4)]
    header += [(0 if symbol > _MAX_CODE else 4, 3) for symbol in order]
    return header + [(int(f"{length:04b}"[::-1], 2), 4) for length in [*lengths[:number], 1]]


def _token_table() -> tuple[_Array, _Array, _Array]:
    """Symbol, extra bits and their number for each token (RFC 1951, 3.2.5)."""
    symbols, extras, num_extras = (np.zeros(_NUM_TOKENS, np.int64) for _ in range(3))
    symbols[: _END + 1] = np.arange(_END + 1)
    length = _MIN_MATCH
    for symbol in range(257, _NUM_SYMBOLS - 1):
        num_extra = 0 if symbol < 265 else (symbol - 261) // 4
        for extra in range(2**num_extra):
            symbols[_END + length], extras[_END + length], num_extras[_END + length] = symbol, extra, num_extra
            length += 1
    # The longest match, 258, has its own symbol without extra bits.
    symbols[-1], extras[-1], num_extras[-1] = _NUM_SYMBOLS - 1, 0, 0
    return symbols, extras, num_extras


_NUM_TOKENS: Final = _END + _MAX_MATCH + 1
_SYMBOL, _EXTRA, _NUM_EXTRA = _token_table()
_FIXED_CODES: Final = _token_codes(_FIXED_LENGTHS, 5)
