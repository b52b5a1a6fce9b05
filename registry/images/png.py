"""Encodes arrays as PNG files, and decodes PNGs of every kind to the samples that they store.

Writing is deterministic (``deflate``): 8 or 16 bits, grey, grey with alpha, RGB or RGBA. The whole image has one
filter: None, Sub or Up, whichever leaves the smallest differences. Reading supports 1 to 16 bits, grey, colour,
palettes, transparency and interlacing; ``pictures`` converts the samples to the channels that are requested. No image
library is needed, but if Pillow is installed, it undoes filters, which is faster.
Source: the PNG specification, third edition.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from struct import Struct
from struct import error as StructError  # noqa: N812 (it is a class)
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.images.deflate import compress
from registry.images.pillow import has_pillow, run_codec
from registry.inflate import inflate_library

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_HEADER: Final = Struct(">IIBBBBB")
_HEADER_START: Final = SIGNATURE + b"\x00\x00\x00\x0dIHDR"
_CHUNK_START: Final = Struct(">I4s")
_CHECKSUM: Final = Struct(">I")
_EXTRAS: Final = frozenset([b"PLTE", b"tRNS", b"gAMA", b"sRGB"])
_COLOR_TYPES: Final = {1: 0, 2: 4, 3: 2, 4: 6}
_CHANNELS: Final = {0: 1, 4: 2, 2: 3, 6: 4}
_PALETTE: Final = 3
_DEPTHS: Final = {0: (1, 2, 4, 8, 16), _PALETTE: (1, 2, 4, 8), **dict.fromkeys((2, 4, 6), (8, 16))}
_ADAM7: Final = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
_MODES: Final = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_SRGB_GAMMA: Final = 45455
_NONE, _SUB, _UP, _AVERAGE, _PAETH = range(5)
_SMALL: Final = 300
"""Maximum size, in bytes, of filtered rows for which a call of Pillow costs more than it saves."""


_inflate_library: Final = cache(inflate_library)


class PngError(ValueError):
    """The bytes are not a PNG, or the PNG is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Png:
    """The fields of a PNG's header, and its compressed data.

    Attributes:
        height, width: size in pixels.
        bit_depth: bits per sample.
        channels: number of stored samples per pixel; 1 for a palette.
        is_simple: whether it has 8 or 16 bits, and neither a palette, transparency nor interlacing. The content of
            such an image is compared by its pixels.
        data: the compressed rows.
        palette, transparency: the bodies of the chunks PLTE and tRNS.
        gamma: in units of 1/100000; 0 if it is not specified.
    """

    height: int
    width: int
    bit_depth: int
    channels: int
    is_simple: bool
    data: bytes
    color_type: int = 0
    is_interlaced: bool = False
    palette: bytes = b""
    transparency: bytes = b""
    gamma: int = 0

    @property
    def is_palette(self) -> bool:
        """Whether samples are numbers of colours in the palette."""
        return self.color_type == _PALETTE

    @property
    def stride(self) -> int:
        """Number of bytes of one row of the whole image: the filter type, then the samples."""
        return 1 + (self.width * self.channels * self.bit_depth + 7) // 8

    def inflate(self, *, as_libpng: bool = False) -> bytes:
        """Decompress the filtered rows, and stop at the size given by the header.

        Args:
            as_libpng: ignore data beyond that size, and require the end of the compressed data.

        Raises:
            PngError: the data is damaged, or does not have that size, or the bit depth is invalid.
        """
        if self.bit_depth not in _DEPTHS.get(self.color_type, ()):
            raise PngError(f"it says {self.bit_depth} bits with colour type {self.color_type}")
        size = self.height * self.stride
        if self.is_interlaced:
            size = sum(part.height * part.stride for _, part in _passes(self))
        return inflate_rows(self.data, size, as_libpng=as_libpng)


def inflate_rows(data: bytes, size: int, *, as_libpng: bool = False) -> bytes:
    """Decompress ``size`` bytes of filtered rows; see ``Png.inflate``."""
    new, fault = _inflate_library()
    inflater = new(zlib.MAX_WBITS)
    try:
        raw: bytes = inflater.decompress(data, size + 1)
    except fault as error:
        raise PngError(f"its data cannot be decompressed: {error}") from error
    if len(raw) < size or (len(raw) > size and not as_libpng):
        raise PngError(f"expected {size} bytes, found {len(raw)}")
    if as_libpng and len(raw) == size and not inflater.eof:
        raise PngError("its data is truncated")
    return raw[:size]


def encode_png(array: npt.NDArray[Any], *, compress: Callable[[bytes], bytes] = compress) -> bytes:
    """Encode an array of shape (height, width, 1..4), uint8 or uint16, as PNG; the same bytes on every machine.

    ``zlib.compress`` is faster, for pictures that are only shown: its bytes depend on the version of zlib.
    """
    height, width, channels = array.shape
    depth = array.dtype.itemsize
    header = b"".join(
        [width.to_bytes(4, "big"), height.to_bytes(4, "big"), bytes([8 * depth, _COLOR_TYPES[channels], 0, 0, 0])]
    )
    rows = np.frombuffer(array.astype(array.dtype.newbyteorder(">")).tobytes(), np.uint8).reshape(height, -1)
    candidates = [_filtered(rows, kind, channels * depth) for kind in (_NONE, _SUB, _UP)]
    smoothest = min(candidates, key=_roughness)
    return b"".join(
        [SIGNATURE, _chunk(b"IHDR", header), _chunk(b"IDAT", compress(smoothest.tobytes())), _chunk(b"IEND", b"")]
    )


def read_png(data: bytes) -> Png:
    """Parse a PNG and check every checksum.

    Raises:
        PngError: ``data`` is not a PNG, or is damaged.
    """
    return describe_png(*read_chunks(data))


def read_chunks(data: bytes) -> tuple[bytes, bytes, dict[bytes, bytes]]:
    """The body of the header, the compressed data, and the bodies of other chunks that affect decoding.

    Raises:
        PngError: a chunk up to IEND is truncated, its checksum is wrong, or the first chunk is not the header.
    """
    if not data.startswith(SIGNATURE):
        raise PngError("it does not start with the PNG signature")
    place, kind = len(SIGNATURE), b""
    parts, extras = [], {}
    try:
        while kind != b"IEND":
            size, kind = _CHUNK_START.unpack_from(data, place)
            start, stop = place + 8, place + 8 + size
            (checksum,) = _CHECKSUM.unpack_from(data, stop)
            if zlib.crc32(data[place + 4 : stop]) != checksum:
                raise PngError(f"the checksum of chunk {kind.decode('latin-1')!r} is wrong")
            if kind == b"IDAT":
                parts.append(data[start:stop])
            elif kind in _EXTRAS:
                extras[kind] = data[start:stop]
            place = stop + 4
    except StructError as error:
        raise PngError("it is truncated") from error
    if not data.startswith(_HEADER_START):
        raise PngError("it has no header")
    header = data[len(_HEADER_START) : len(_HEADER_START) + _HEADER.size]
    return header, b"".join(parts), extras


def describe_png(header: bytes, data: bytes, extras: Mapping[bytes, bytes]) -> Png:
    """The PNG with the chunks that ``read_chunks`` returned. Raises PngError if the header is invalid."""
    width, height, bit_depth, color_type, compression, filtering, interlacing = _HEADER.unpack(header)
    if not (0 < height < 2**31 and 0 < width < 2**31) or compression or filtering or interlacing > 1:
        raise PngError("it has no valid header")
    return Png(
        height=height,
        width=width,
        bit_depth=bit_depth,
        channels=_CHANNELS.get(color_type, 1),
        is_simple=bit_depth in (8, 16) and color_type in _CHANNELS and not interlacing and b"tRNS" not in extras,
        data=data,
        color_type=color_type,
        is_interlaced=bool(interlacing),
        palette=extras.get(b"PLTE", b""),
        transparency=extras.get(b"tRNS", b""),
        gamma=_SRGB_GAMMA if b"sRGB" in extras else int.from_bytes(extras.get(b"gAMA", b""), "big"),
    )


def undo_filters(png: Png, raw: bytes) -> npt.NDArray[Any]:
    """The samples (height, width, channels), uint8 or uint16, of the rows that ``png.inflate`` returned.

    Raises:
        PngError: a row has an unknown filter.
    """
    pixel = max(1, png.channels * png.bit_depth // 8)
    if not png.is_interlaced:
        return _unpack(png, _undo_row_filters(raw, png.height, pixel))
    samples = np.empty((png.height, png.width, png.channels), np.uint16 if png.bit_depth == 16 else np.uint8)
    start = 0
    for place, part in _passes(png):
        stop = start + part.height * part.stride
        samples[place] = _unpack(part, _undo_row_filters(raw[start:stop], part.height, pixel))
        start = stop
    return samples


def color_table(png: Png) -> npt.NDArray[np.uint8]:
    """The colours (256, 3) of a palette; missing entries are black. Raises PngError if its size is invalid."""
    size = len(png.palette)
    if not size or size % 3 or size > 768:
        raise PngError(f"its palette has {size} bytes")
    return np.frombuffer(png.palette.ljust(768, b"\0"), np.uint8).reshape(-1, 3)


def key_color(png: Png) -> npt.NDArray[np.uint16]:
    """The transparent colour, a 16-bit sample for each channel. Raises PngError if its size is invalid."""
    if len(png.transparency) != 2 * png.channels:
        raise PngError(f"its chunk tRNS has {len(png.transparency)} bytes")
    return np.frombuffer(png.transparency, ">u2").astype(np.uint16) & np.uint16((1 << png.bit_depth) - 1)


def _passes(png: Png) -> Iterator[tuple[tuple[slice, slice], Png]]:
    """The images that an interlaced PNG stores one after another, and where their rows and columns belong."""
    for top, left, down, right in _ADAM7:
        height, width = -(-(png.height - top) // down), -(-(png.width - left) // right)
        if height > 0 and width > 0:
            place = slice(top, None, down), slice(left, None, right)
            yield place, replace(png, height=height, width=width, is_interlaced=False)


def _unpack(png: Png, rows: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    """The samples (height, width, channels) in the bytes of rows."""
    if png.bit_depth == 16:
        return rows.reshape(-1).view(">u2").astype(np.uint16).reshape(png.height, png.width, png.channels)
    if png.bit_depth < 8:
        shifts = np.arange(8 - png.bit_depth, -1, -png.bit_depth, dtype=np.uint8)
        bits = (rows[:, :, np.newaxis] >> shifts) & np.uint8((1 << png.bit_depth) - 1)
        rows = bits.reshape(png.height, -1)[:, : png.width]
    return rows.reshape(png.height, png.width, png.channels)


def _undo_row_filters(raw: bytes, height: int, pixel: int) -> npt.NDArray[np.uint8]:
    """The bytes (height, bytes of a row) of filtered rows with ``pixel`` bytes per pixel."""
    rows = np.frombuffer(raw, np.uint8).reshape(height, -1)
    filters, rows = rows[:, 0].tolist(), rows[:, 1:]
    kinds = set(filters)
    if max(kinds) > _PAETH:
        raise PngError("it has an unknown filter")
    if kinds == {_NONE}:
        return rows.copy()
    if kinds == {_UP}:
        return np.add.accumulate(rows, axis=0, dtype=np.uint8)
    if kinds == {_SUB}:
        return np.add.accumulate(rows.reshape(height, -1, pixel), axis=1, dtype=np.uint8).reshape(height, -1)
    if len(raw) <= _SMALL or not has_pillow():
        return _undo_row_by_row(filters, rows, pixel)
    if pixel <= 4:
        return _undo_with_pillow(raw, height, pixel)
    # Filters work on each byte of a pixel separately, so a pixel of 6 or 8 bytes can be split into two of 3 or 4, for
    # which Pillow has modes.
    starts, halves = np.array(filters, np.uint8)[:, np.newaxis], rows.reshape(height, -1, 2, pixel // 2)
    undone = np.empty_like(halves)
    for side in range(2):
        half = np.concatenate([starts, halves[:, :, side].reshape(height, -1)], axis=1)
        undone[:, :, side] = _undo_with_pillow(half.tobytes(), height, pixel // 2).reshape(height, -1, pixel // 2)
    return undone.reshape(height, -1)


def _undo_with_pillow(raw: bytes, height: int, pixel: int) -> npt.NDArray[np.uint8]:
    mode, size = _MODES[pixel], (height, (len(raw) // height - 1) // pixel)
    # Wrap the rows in a stored (uncompressed) stream: its size is checked, which Pillow does not do for filtered rows.
    return run_codec("zip", mode, size, zlib.compress(raw, 0), (mode, 0), of="PNG").reshape(height, -1)


def _undo_row_by_row(filters: list[int], rows: npt.NDArray[np.uint8], pixel: int) -> npt.NDArray[np.uint8]:
    pixels = np.empty_like(rows)
    above = np.zeros(rows.shape[1], np.uint8)
    for index, kind in enumerate(filters):
        row = rows[index]
        if kind == _SUB:
            row = np.add.accumulate(row.reshape(-1, pixel), axis=0, dtype=np.uint8).reshape(-1)
        elif kind == _UP:
            row = row + above
        elif kind == _AVERAGE:
            row = np.frombuffer(_undo_average(row.tobytes(), above.tobytes(), pixel), np.uint8)
        elif kind == _PAETH:
            row = np.frombuffer(_undo_paeth(row.tobytes(), above.tobytes(), pixel), np.uint8)
        pixels[index] = row
        above = pixels[index]
    return pixels


def _undo_average(row: bytes, above: bytes, pixel: int) -> bytearray:
    out = bytearray(row)
    for place, value in enumerate(row):
        left = out[place - pixel] if place >= pixel else 0
        out[place] = (value + (left + above[place] >> 1)) & 255
    return out


def _undo_paeth(row: bytes, above: bytes, pixel: int) -> bytearray:
    out = bytearray(row)
    for place, value in enumerate(row):
        up = above[place]
        if place < pixel:  # left and upper left are 0: the predictor is the byte above
            out[place] = (value + up) & 255
            continue
        left, corner = out[place - pixel], above[place - pixel]
        to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
        nearest = left if to_left <= to_up and to_left <= to_corner else up if to_up <= to_corner else corner
        out[place] = (value + nearest) & 255
    return out


def _roughness(rows: npt.NDArray[np.uint8]) -> int:
    """Sum of the bytes as signed differences: the PNG specification's measure for choosing a filter."""
    return int(np.minimum(rows, -rows).sum(dtype=np.int64))


def _filtered(rows: npt.NDArray[np.uint8], kind: int, pixel: int) -> npt.NDArray[np.uint8]:
    """The rows filtered by ``kind``, each after the byte of its filter type."""
    out = np.empty((rows.shape[0], rows.shape[1] + 1), np.uint8)
    out[:, 0] = kind
    out[:, 1:] = rows
    if kind == _SUB:
        out[:, 1 + pixel :] -= rows[:, :-pixel]
    elif kind == _UP:
        out[1:, 1:] -= rows[:-1]
    return out


def _chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")
