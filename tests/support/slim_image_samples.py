"""PNG, BMP and GIF files of every kind, written here, so that the tests know each of their samples."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
PNG_CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
PNG_DEPTHS = {GREY: (1, 2, 4, 8, 16), RGB: (8, 16), PALETTE: (1, 2, 4, 8), GREY_ALPHA: (8, 16), RGBA: (8, 16)}

_PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")


def png_header(height: int, width: int, depth: int, color: int, *, interlaced: bool = False) -> bytes:
    body = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([depth, color, 0, 0, interlaced])
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", body)


def png_file(
    samples: npt.NDArray[Any],
    depth: int,
    color: int,
    *,
    interlaced: bool = False,
    palette: bytes = b"",
    transparency: bytes = b"",
    filters: tuple[int, ...] = (0,),
) -> bytes:
    """The PNG of samples (height, width, channels) that are written as they are; row i has filter i of ``filters``."""
    height, width, _ = samples.shape
    parts = [samples]
    if interlaced:
        parts = [samples[top::down, left::right] for top, left, down, right in _PASSES]
    data = b"".join(_filtered(part, depth, filters) for part in parts if part.size)
    chunks = [png_header(height, width, depth, color, interlaced=interlaced)]
    if palette:
        chunks.append(png_chunk(b"PLTE", palette))
    if transparency:
        chunks.append(png_chunk(b"tRNS", transparency))
    return b"".join([*chunks, png_chunk(b"IDAT", zlib.compress(data)), png_chunk(b"IEND", b"")])


def bmp_file(samples: npt.NDArray[np.uint8], *, top_down: bool = False) -> bytes:
    """The BMP of a uint8 array (height, width, 1, 3 or 4), without compression; one channel has a grey palette."""
    height, width, channels = samples.shape
    palette = b"".join(bytes([i, i, i, 0]) for i in range(256)) if channels == 1 else b""
    start = 54 + len(palette)
    stored = samples if channels == 1 else samples[:, :, [2, 1, 0, 3][:channels]]
    rows = np.zeros((height, (width * channels + 3) // 4 * 4), np.uint8)
    rows[:, : width * channels] = stored.reshape(height, -1)
    body = (rows if top_down else rows[::-1]).tobytes()
    header = [start + len(body), 0, start, 40, width, -height if top_down else height, 1 | channels * 8 << 16]
    numbers = [*header, 0, len(body), 0, 0, 256 if palette else 0, 0]
    return b"BM" + b"".join((number & 0xFFFFFFFF).to_bytes(4, "little") for number in numbers) + palette + body


def gif_file(size: tuple[int, int], frames: list[bytes], *, palette: bytes = b"") -> bytes:
    """The GIF of a screen (height, width) and frames made by ``gif_frame``."""
    flags = 0x80 | (len(palette) // 3 - 1).bit_length() - 1 if palette else 0
    screen = size[1].to_bytes(2, "little") + size[0].to_bytes(2, "little") + bytes([flags, 0, 0])
    return b"".join([b"GIF89a", screen, palette, *frames, b";"])


def gif_frame(
    indices: npt.NDArray[np.uint8],
    *,
    left: int = 0,
    top: int = 0,
    transparent: int | None = None,
    disposal: int = 0,
    palette: bytes = b"",
    interlaced: bool = False,
) -> bytes:
    """A frame of 8-bit colour numbers (height, width); a palette has 2, 4, 8 ... colours."""
    height, width = indices.shape
    control = bytes([0x21, 0xF9, 4, disposal << 2 | (transparent is not None), 0, 0, transparent or 0, 0])
    flags = (0x80 | (len(palette) // 3 - 1).bit_length() - 1 if palette else 0) | (0x40 if interlaced else 0)
    place = b"".join(number.to_bytes(2, "little") for number in (left, top, width, height))
    order = [*range(0, height, 8), *range(4, height, 8), *range(2, height, 4), *range(1, height, 2)]
    rows = indices[order] if interlaced else indices
    return control + b"," + place + bytes([flags]) + palette + b"\x08" + _gif_codes(rows.tobytes())


def _gif_codes(values: bytes) -> bytes:
    """LZW that clears its table before it grows: every code has nine bits."""
    codes = []
    for place in range(0, len(values), 250):
        codes += [256, *values[place : place + 250]]
    bits = sum(code << 9 * place for place, code in enumerate([*codes, 257]))
    packed = bits.to_bytes((9 * (len(codes) + 1) + 7) // 8, "little")
    blocks = [packed[place : place + 255] for place in range(0, len(packed), 255)]
    return b"".join(bytes([len(block)]) + block for block in blocks) + b"\0"


def _filtered(samples: npt.NDArray[Any], depth: int, filters: tuple[int, ...]) -> bytes:
    height, width, channels = samples.shape
    if depth == 16:
        rows = samples.astype(">u2").reshape(height, -1).view(np.uint8)
    elif depth == 8:
        rows = samples.astype(np.uint8).reshape(height, -1)
    else:
        bits = np.unpackbits(samples.astype(np.uint8).reshape(height, width, 1), axis=2)[:, :, 8 - depth :]
        rows = np.packbits(bits.reshape(height, -1), axis=1)
    pixel = max(1, channels * depth // 8)
    above, out = bytes(rows.shape[1]), []
    for index, row in enumerate(rows):
        kind, line = filters[index % len(filters)], row.tobytes()
        out.append(
            bytes([kind]) + bytes((line[i] - _guess(kind, line, above, i, pixel)) & 255 for i in range(len(line)))
        )
        above = line
    return b"".join(out)


def _guess(kind: int, row: bytes, above: bytes, place: int, pixel: int) -> int:
    left, corner = (row[place - pixel], above[place - pixel]) if place >= pixel else (0, 0)
    up = above[place]
    if kind == 4:
        total = left + up - corner
        return min((left, up, corner), key=lambda value: abs(total - value))
    return (0, left, up, (left + up) // 2)[kind]
