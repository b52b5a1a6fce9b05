"""Decodes PNGs to the pixels that TensorFlow returns, one by one or many small ones together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy.typing as npt

from registry import images
from registry.slim.image_codec import ImageFault, check_pixels, to_grey_by_light

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
        png = images.read_png(data)
        check_pixels(png.height, png.width, limit)
        return _pixels_of(png, images.undo_filters(png, png.inflate(as_libpng=True)), channels, wide=wide)
    except images.PngError as error:
        raise ImageFault(f"a damaged PNG: {error}") from error


def decode_small_pngs(files: Sequence[bytes], *, channels: int, wide: bool, limit: int) -> npt.NDArray[Any] | None:
    """The pixels (images, height, width, channels) of PNGs with equal headers; None if the headers differ.

    They are decoded as one tall image, with a row of zeros between images, which is what filters expect above the first
    row. This saves most calls of Pillow, which cost more than the work on a small image.

    Raises:
        ImageFault: an image is damaged, truncated, or has more pixels than ``limit``.
    """
    try:
        header, data, extras = images.read_chunks(files[0])
        png = images.describe_png(header, data, extras)
        check_pixels(png.height, png.width, limit)
        height, count = png.height, len(files)
        if png.is_interlaced or height * png.stride > _SMALL or not images.has_pillow():
            return None
        inflated = [png.inflate(as_libpng=True)]
        for file in files[1:]:
            other_header, data, other_extras = images.read_chunks(file)
            if other_header != header or other_extras != extras:
                return None
            inflated.append(images.inflate_rows(data, height * png.stride, as_libpng=True))
        tall = replace(png, height=count * (height + 1))
        samples = images.undo_filters(tall, bytes(png.stride).join([*inflated, b""]))
        samples = samples.reshape(count, height + 1, png.width, -1)[:, :height].reshape(-1, png.width, png.channels)
        pixels = _pixels_of(png, samples, channels, wide=wide)
    except images.PngError as error:
        raise ImageFault(f"a damaged PNG: {error}") from error
    return pixels.reshape(count, height, *pixels.shape[1:])


def _pixels_of(png: images.Png, samples: npt.NDArray[Any], channels: int, *, wide: bool) -> npt.NDArray[Any]:
    is_colour = png.is_palette or png.channels > 2
    is_by_light = channels == 1 and is_colour and png.gamma > 0 and not 95_000 <= png.gamma <= 105_000
    opaque = (1 << png.bit_depth) - 1
    pixels = images.convert_samples(png, samples, 3 if is_by_light else channels or None, opaque=opaque)
    return images.as_depth(to_grey_by_light(pixels, png.gamma, is_cut=not wide) if is_by_light else pixels, wide=wide)
