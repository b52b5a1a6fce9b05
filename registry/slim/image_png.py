"""Decodes PNGs of every kind to the pixels that TensorFlow returns; ``features.png`` reads their chunks.

It supports 1 to 16 bits, grey, colour, palettes, transparency and interlacing. Pillow undoes filters if that is faster.
It has no mode for 16-bit colour, but filters work on each byte of a pixel separately, so its decoder is used there too.
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
"""Maximum size, in bytes, of images for which decoding many as one was measured to be faster."""


def decode_png(data: bytes, *, channels: int, wide: bool, limit: int) -> npt.NDArray[Any]:
    """The pixels (height, width, channels), uint16 if ``wide``, otherwise uint8; 0 channels keeps those of the file.

    Colour is converted to grey at the bit depth of the file. Fewer than 8 bits are scaled to 8, 8 bits are widened to
    16 by repeating them, and 16 bits are reduced to 8 by dropping the lower byte. Transparency is dropped if it is not
    requested. If the PNG has none, pixels are opaque; with fewer than 8 bits per sample, alpha is then 1, 3 or 15 of
    255, as in TensorFlow's decoder.

    Raises:
        ImageFault: the image is damaged, truncated, or has more pixels than ``limit``.
    """
    try:
        png = read_png(data)
    except PngError as error:
        raise ImageFault(f"a damaged PNG: {error}") from error
    _check_header(png, limit)
    return as_depth(_convert(png, _read_samples(png), channels, is_cut=not wide), wide=wide)


def decode_small_pngs(images: Sequence[bytes], *, channels: int, wide: bool, limit: int) -> npt.NDArray[Any] | None:
    """The pixels (images, height, width, channels) of PNGs with equal headers; None if the headers differ.

    They are decoded as one tall image, with a row of zeros between images, which is what filters expect above the first
    row. This saves most calls of Pillow, which cost more than the work on a small image.

    Raises:
        ImageFault: an image is damaged, truncated, or has more pixels than ``limit``.
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
    """The colours (256, 3) of a palette; missing entries are black."""
    size = len(png.palette)
    if not size or size % 3 or size > 768:
        raise ImageFault(f"a damaged PNG: its palette has {size} bytes")
    return np.frombuffer(png.palette.ljust(768, b"\0"), np.uint8).reshape(-1, 3)


def _key_color(png: Png) -> npt.NDArray[np.uint16]:
    """The transparent colour, from the chunk tRNS: a 16-bit sample for each channel."""
    if len(png.transparency) != 2 * png.channels:
        raise ImageFault(f"a damaged PNG: its chunk tRNS has {len(png.transparency)} bytes")
    return np.frombuffer(png.transparency, ">u2").astype(np.uint16) & np.uint16((1 << png.bit_depth) - 1)


def _read_samples(png: Png) -> npt.NDArray[Any]:
    """The stored samples (height, width, stored channels), uint8 or uint16."""
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
    """Number of bytes of a row of ``width`` pixels: the filter type, then the samples."""
    return 1 + (width * png.channels * png.bit_depth + 7) // 8


def _pixel(png: Png) -> int:
    """Distance in bytes from a sample to the same sample of the next pixel, for the filters."""
    return max(1, png.channels * png.bit_depth // 8)


def _inflate(data: bytes, num_bytes: int) -> bytes:
    start, fault = _inflate_library()
    inflater = start()
    try:
        raw: bytes = inflater.decompress(data, num_bytes + 1)
    except fault as error:
        raise ImageFault(f"a damaged PNG: its data cannot be decompressed: {error}") from error
    if len(raw) < num_bytes:
        raise ImageFault(f"a damaged PNG: expected {num_bytes} bytes, found {len(raw)}")
    if len(raw) > num_bytes:  # libpng accepts more data than the image needs
        return raw[:num_bytes]
    if not inflater.eof:
        raise ImageFault("a damaged PNG: its data is truncated")
    return raw


@cache
def _inflate_library() -> tuple[Callable[[], Any], type[Exception]]:
    """isal, which is nearly twice as fast, if the extra ``gzip`` is installed; otherwise zlib, with equal results."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.decompressobj, zlib.error
    return isal_zlib.decompressobj, isal_zlib.error  # type: ignore[return-value] # the stub says an instance


def _undo_filters(raw: bytes, height: int, stride: int, pixel: int) -> npt.NDArray[np.uint8]:
    """The bytes (height, stride - 1) of filtered rows with ``pixel`` bytes per pixel."""
    kinds = set(raw[::stride])
    if max(kinds) > _LAST_FILTER:
        raise ImageFault("a damaged PNG: it has an unknown filter")
    if kinds in _SMOOTH or not has_pillow():
        return undo_row_filters(raw, height, pixel)
    if pixel <= 4:
        return _run_pillow(raw, height, stride, pixel)
    # Filters work on each byte of a pixel separately, so a pixel of 6 or 8 bytes can be split into two of 3 or 4.
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
    # Wrap the decompressed rows in a stored (uncompressed) stream: their size is checked, which Pillow does not do.
    stored = zlib.compress(raw, 0)
    size = (height, (stride - 1) // pixel)
    return run_codec("zip", mode, size, stored, (mode, 0), of="PNG").reshape(height, stride - 1)


def _unpack(png: Png, rows: npt.NDArray[np.uint8], width: int) -> npt.NDArray[Any]:
    """The samples (height, width, stored channels) in the bytes of rows."""
    height, depth = len(rows), png.bit_depth
    if depth == 16:
        return rows.reshape(-1).view(">u2").astype(np.uint16).reshape(height, width, png.channels)
    if depth < 8:
        shifts = np.arange(8 - depth, -1, -depth, dtype=np.uint8)
        rows = ((rows[:, :, np.newaxis] >> shifts) & np.uint8((1 << depth) - 1)).reshape(height, -1)[:, :width]
    return rows.reshape(height, width, png.channels)
