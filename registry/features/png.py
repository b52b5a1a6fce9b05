"""Encodes arrays as PNG files and decodes the common kinds of PNG, without an image library.

Writing is deterministic (``deflate``): 8 or 16 bits, grey, grey with alpha, RGB or RGBA. The whole image has one
filter: None, Sub or Up, whichever leaves the smallest differences. Reading supports the same kinds with all five
filters; other modules read palettes, fewer bits and interlacing (``pictures`` and ``slim.image_png``).
Source: the PNG specification, third edition.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError  # noqa: N812 (it is a class)
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.features.deflate import compress

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_HEADER: Final = Struct(">IIBBBBB")
_HEADER_START: Final = SIGNATURE + b"\x00\x00\x00\x0dIHDR"
_CHUNK_START: Final = Struct(">I4s")
_CHECKSUM: Final = Struct(">I")
_EXTRAS: Final = frozenset([b"PLTE", b"tRNS", b"gAMA", b"sRGB"])
_COLOR_TYPES: Final = {1: 0, 2: 4, 3: 2, 4: 6}
_CHANNELS: Final = {0: 1, 4: 2, 2: 3, 6: 4}
_SRGB_GAMMA: Final = 45455
_NONE, _SUB, _UP, _AVERAGE, _PAETH = range(5)


class PngError(ValueError):
    """The bytes are not a PNG, or the PNG is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Png:
    """The fields of a PNG's header, and its compressed data.

    Attributes:
        height, width: size in pixels.
        bit_depth: bits per sample.
        channels: number of stored samples per pixel; 1 for a palette.
        is_simple: whether this module can decode it.
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
    def stride(self) -> int:
        """Number of bytes of one row of a simple PNG: the filter type, then the samples."""
        return 1 + self.width * self.channels * self.bit_depth // 8

    def inflate(self) -> bytes:
        """Decompress the filtered rows of a simple PNG, and stop at the size given by the header.

        Raises:
            PngError: the data is damaged, or does not have that size.
        """
        inflater = zlib.decompressobj()
        size = self.stride * self.height
        try:
            raw = inflater.decompress(self.data, size + 1)
        except zlib.error as error:
            raise PngError(f"its data cannot be decompressed: {error}") from error
        if len(raw) != size:
            raise PngError(f"expected {size} bytes, found {len(raw)}")
        if max(raw[:: self.stride]) > _PAETH:
            raise PngError("it has an unknown filter")
        return raw

    def num_slow_bytes(self, raw: bytes) -> int:
        """The number of bytes filtered by Average or Paeth, which are undone byte by byte: 0.1 microseconds each."""
        filters = raw[:: self.stride]
        return (filters.count(_AVERAGE) + filters.count(_PAETH)) * self.stride


def encode_png(array: npt.NDArray[Any]) -> bytes:
    """Encode an array of shape (height, width, 1..4), uint8 or uint16, as PNG; the same bytes on every machine."""
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
    """The array (height, width, channels), uint8 or uint16, of the rows that ``png.inflate`` returned."""
    depth = png.bit_depth // 8
    samples: npt.NDArray[Any] = undo_row_filters(raw, png.height, png.channels * depth)
    if depth == 2:
        samples = samples.view(">u2").astype(np.uint16)
    return samples.reshape(png.height, png.width, png.channels)


def undo_row_filters(raw: bytes, height: int, pixel: int) -> npt.NDArray[np.uint8]:
    """The bytes (height, bytes of a row) of filtered rows with ``pixel`` bytes per pixel."""
    rows = np.frombuffer(raw, np.uint8).reshape(height, -1)
    filters, rows = rows[:, 0].tolist(), rows[:, 1:]
    kinds = set(filters)
    if kinds == {_NONE}:
        return rows.copy()
    if kinds == {_UP}:
        return np.add.accumulate(rows, axis=0, dtype=np.uint8)
    if kinds == {_SUB}:
        return np.add.accumulate(rows.reshape(height, -1, pixel), axis=1, dtype=np.uint8).reshape(height, -1)
    return _undo_row_by_row(filters, rows, pixel)


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
