"""Decodes PNGs of every kind to the pixels that TensorFlow gives; ``features.png`` reads their chunks.

1 to 16 bits, grey, colour, palettes, transparency and interlacing. Pillow undoes filters where that is faster. It has
no mode for colour of 16 bits, but filters work on each byte of a pixel alone, so its decoder takes those images too.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.features.pictures import as_channels, as_depth, has_pillow
from registry.features.png import Png, PngError, describe_png, read_chunks, read_png, undo_row_filters
from registry.slim.image_codec import ImageFault, check_pixels, run_codec, to_grey_by_light

_GREY, _RGB, _PALETTE, _GREY_ALPHA, _RGBA = 0, 2, 3, 4, 6
_DEPTHS: Final = {
    _GREY: (1, 2, 4, 8, 16),
    _PALETTE: (1, 2, 4, 8),
    **dict.fromkeys((_RGB, _GREY_ALPHA, _RGBA), (8, 16)),
}
_WHOLE: Final = ((0, 0, 1, 1),)
_ADAM7: Final = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
_MODES: Final = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_SMOOTH: Final = ({0}, {1}, {2})
_LAST_FILTER: Final = 4

_SMALL: Final = 2**14
"""The most bytes of an image for which decoding many images as one is faster, as measured."""


def decode_png(data: bytes, *, channels: int, wide: bool, limit: int) -> npt.NDArray[Any]:
    """The pixels (height, width, channels), uint16 where ``wide``, else uint8; 0 channels are those of the file.

    Colour becomes grey in the bits of the file. Fewer bits become 8 by scaling, 8 become 16 by repeating them, 16
    become 8 by dropping the lower. Transparency that is not asked for is dropped, and where a PNG has none it is
    opaque; but with fewer than 8 bits to a sample it is 1, 3 or 15 of 255 then, because TensorFlow's decoder has it so.

    Raises:
        ImageFault: damaged, cut off, or more pixels than ``limit``.
    """
    try:
        png = read_png(data)
    except PngError as error:
        raise ImageFault(f"a damaged PNG: {error}") from error
    _check_header(png, limit)
    return as_depth(_convert(png, _read_samples(png), channels, is_cut=not wide), wide=wide)


def decode_small_pngs(images: Sequence[bytes], *, channels: int, wide: bool, limit: int) -> npt.NDArray[Any] | None:
    """The pixels (images, height, width, channels) of PNGs that are alike in all but their data, else None.

    They are decoded as one tall image: a row of zeros after each is what the filters find above the next. That spares
    most of what a call of Pillow costs, which is more than the work on a small image.

    Raises:
        ImageFault: as ``decode_png``, of one of them.
    """
    try:
        header, data, extras = read_chunks(images[0])
        png = describe_png(header, data, extras)
        _check_header(png, limit)
        height, stride = png.height, _stride(png, png.width)
        if png.is_interlaced or height * stride > _SMALL or not has_pillow():
            return None
        inflated = [_inflate(data, height * stride)]
        for image in images[1:]:
            other_header, data, other_extras = read_chunks(image)
            if other_header != header or other_extras != extras:
                return None
            inflated.append(_inflate(data, height * stride))
    except PngError as error:
        raise ImageFault(f"a damaged PNG: {error}") from error
    raw = bytes(stride).join([*inflated, b""])
    rows = _undo_filters(raw, len(images) * (height + 1), stride, _pixel(png)).reshape(len(images), height + 1, -1)
    samples = _unpack(png, rows[:, :height].reshape(len(images) * height, -1), png.width)
    pixels = as_depth(_convert(png, samples, channels, is_cut=not wide), wide=wide)
    return pixels.reshape(len(images), height, *pixels.shape[1:])


def _check_header(png: Png, limit: int) -> None:
    if png.bit_depth not in _DEPTHS.get(png.color_type, ()):
        raise ImageFault(f"a damaged PNG: it says {png.bit_depth} bits with colour type {png.color_type}")
    check_pixels(png.height, png.width, limit)


def _convert(png: Png, samples: npt.NDArray[Any], channels: int, *, is_cut: bool) -> npt.NDArray[Any]:
    if not channels:
        channels = (4 if png.transparency else 3) if png.color_type == _PALETTE else png.channels
    if channels == png.channels and png.bit_depth >= 8 and png.color_type != _PALETTE:
        return samples
    color, alpha = samples, (1 << png.bit_depth) - 1
    if png.color_type == _PALETTE:
        color = _color_table(png)[samples[:, :, 0]]
    if channels == 1 and color.shape[2] >= 3 and png.gamma > 0 and not 95_000 <= png.gamma <= 105_000:
        return to_grey_by_light(color, png.gamma, is_cut=is_cut)
    if png.color_type == _PALETTE:
        opacities = np.frombuffer(png.transparency[:256].ljust(256, b"\xff"), np.uint8)
        return as_channels(color, opacities[samples[:, :, 0]] if png.transparency else alpha, channels)
    if png.color_type in (_GREY_ALPHA, _RGBA):
        color, transparency = np.ascontiguousarray(samples[:, :, :-1]), samples[:, :, -1]
        return as_channels(color, transparency, channels)
    opaque = max(alpha, 255)
    if png.bit_depth < 8:
        color = samples * np.uint8(255 // alpha)
    if channels % 2 or not png.transparency:
        return as_channels(color, alpha, channels)
    see_through = (samples == _key_color(png)).all(axis=2)
    return as_channels(color, np.where(see_through, 0, opaque), channels)


def _color_table(png: Png) -> npt.NDArray[np.uint8]:
    """The colours (256, 3) of a palette; numbers that it does not have are black."""
    size = len(png.palette)
    if not size or size % 3 or size > 768:
        raise ImageFault(f"a damaged PNG: its palette has {size} bytes")
    return np.frombuffer(png.palette.ljust(768, b"\0"), np.uint8).reshape(-1, 3)


def _key_color(png: Png) -> npt.NDArray[np.uint16]:
    """The colour that is transparent, from the chunk tRNS: a sample of 16 bits for each channel."""
    if len(png.transparency) != 2 * png.channels:
        raise ImageFault(f"a damaged PNG: its chunk tRNS has {len(png.transparency)} bytes")
    return np.frombuffer(png.transparency, ">u2").astype(np.uint16) & np.uint16((1 << png.bit_depth) - 1)


def _read_samples(png: Png) -> npt.NDArray[Any]:
    """The samples (height, width, stored channels) as they are stored, uint8 or uint16."""
    parts = []
    for top, left, down, right in _ADAM7 if png.is_interlaced else _WHOLE:
        height, width = -(-(png.height - top) // down), -(-(png.width - left) // right)
        if height > 0 and width > 0:
            parts.append((slice(top, None, down), slice(left, None, right), height, width, _stride(png, width)))
    raw = _inflate(png.data, sum(height * stride for _, _, height, _, stride in parts))
    if not png.is_interlaced:
        return _unpack(png, _undo_filters(raw, png.height, parts[0][4], _pixel(png)), png.width)
    samples = np.empty((png.height, png.width, png.channels), np.uint16 if png.bit_depth == 16 else np.uint8)
    start = 0
    for rows, columns, height, width, stride in parts:
        stop = start + height * stride
        part = _undo_filters(raw[start:stop], height, stride, _pixel(png))
        samples[rows, columns] = _unpack(png, part, width)
        start = stop
    return samples


def _stride(png: Png, width: int) -> int:
    """Bytes of a row of ``width`` pixels: the byte that names its filter, then the samples."""
    return 1 + (width * png.channels * png.bit_depth + 7) // 8


def _pixel(png: Png) -> int:
    """Bytes from a sample to the same one of the pixel to the right, for the filters."""
    return max(1, png.channels * png.bit_depth // 8)


def _inflate(data: bytes, num_bytes: int) -> bytes:
    start, fault = _inflate_library()
    inflater = start()
    try:
        raw: bytes = inflater.decompress(data, num_bytes + 1)
    except fault as error:
        raise ImageFault(f"a damaged PNG: its data does not inflate: {error}") from error
    if len(raw) < num_bytes:
        raise ImageFault(f"a damaged PNG: it holds {len(raw)} bytes, where {num_bytes} belong")
    if len(raw) > num_bytes:  # more than the image has, which libpng lets pass
        return raw[:num_bytes]
    if not inflater.eof:
        raise ImageFault("a damaged PNG: its data are cut off")
    return raw


@cache
def _inflate_library() -> tuple[Callable[[], Any], type[Exception]]:
    """isal, nearly twice as fast, where the extra ``gzip`` is installed; else zlib, with the same answers."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.decompressobj, zlib.error
    return isal_zlib.decompressobj, isal_zlib.error  # type: ignore[return-value] # the stub says an instance


def _undo_filters(raw: bytes, height: int, stride: int, pixel: int) -> npt.NDArray[np.uint8]:
    """The bytes (height, stride - 1) of filtered rows whose pixels have ``pixel`` bytes."""
    kinds = set(raw[::stride])
    if max(kinds) > _LAST_FILTER:
        raise ImageFault("a damaged PNG: it has an unknown filter")
    if kinds in _SMOOTH or not has_pillow():
        return undo_row_filters(raw, height, pixel)
    if pixel <= 4:
        return _run_pillow(raw, height, stride, pixel)
    # The filters take each byte of a pixel alone, so that a pixel of 6 or 8 bytes is two of 3 or 4.
    half = pixel // 2
    rows = np.frombuffer(raw, np.uint8).reshape(height, stride)
    halves = rows[:, 1:].reshape(height, -1, 2, half)
    together = np.empty_like(halves)
    for side in range(2):
        filtered = np.concatenate([rows[:, :1], halves[:, :, side].reshape(height, -1)], axis=1)
        undone = _run_pillow(filtered.tobytes(), height, filtered.shape[1], half)
        together[:, :, side] = undone.reshape(height, -1, half)
    return together.reshape(height, -1)


def _run_pillow(raw: bytes, height: int, stride: int, pixel: int) -> npt.NDArray[np.uint8]:
    mode = _MODES[pixel]
    # Stored, not compressed: what was inflated was checked for its size, which Pillow's decoder does not do.
    stored = zlib.compress(raw, 0)
    size = (height, (stride - 1) // pixel)
    return run_codec("zip", mode, size, stored, (mode, 0), of="PNG").reshape(height, stride - 1)


def _unpack(png: Png, rows: npt.NDArray[np.uint8], width: int) -> npt.NDArray[Any]:
    """The samples (height, width, stored channels) of the bytes of rows."""
    height, depth = len(rows), png.bit_depth
    if depth == 16:
        return rows.reshape(-1).view(">u2").astype(np.uint16).reshape(height, width, png.channels)
    if depth < 8:
        shifts = np.arange(8 - depth, -1, -depth, dtype=np.uint8)
        rows = ((rows[:, :, np.newaxis] >> shifts) & np.uint8((1 << depth) - 1)).reshape(height, -1)[:, :width]
    return rows.reshape(height, width, png.channels)
