"""Decodes the bytes of an image like ``tf.io.decode_image``: the first bytes determine the format.

    bytes -> format -> pixels of 8 or 16 bits -> channels -> dtype

``image_png`` decodes PNG; JPEG, BMP, GIF and WebP are decoded here. Each header is read before a codec of Pillow runs,
to limit the size. Images that TensorFlow rejects are rejected here too, with a hint.

If simplejpeg (extra ``jpeg``) is installed, it decodes sound JPEGs to the same pixels in three quarters of the time;
Pillow decodes the others or reports their error. Only simplejpeg has libjpeg's fast transform, TensorFlow's default.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import MissingExtraError
from registry.images import (
    JPEG_SIGNATURE,
    as_channels,
    import_pillow,
    jpeg_library,
    read_jpeg_header,
    take_pixels,
    to_grey,
)
from registry.slim.image_codec import MAX_PIXELS, ImageFault, check_pixels, run_pillow
from registry.slim.image_png import decode_png, decode_small_pngs

CHANNELS: Final = (0, 1, 3, 4)
"""The numbers of channels that can be requested; 0 keeps those of the file."""

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_UINT8: Final = np.dtype(np.uint8)
_FORMATS: Final = "supported formats are JPEG, PNG, BMP, GIF and WebP"
_BMP_CHANNELS = {8: 1, 24: 3, 32: 4}
_BMP_HINT = "Store it as PNG: only uncompressed BMP of 8, 24 and 32 bits is supported."
_GIF_CUT_OFF: Final = "a damaged GIF: it is truncated"
_GIF_EXTENSION, _GIF_IMAGE, _GIF_END = 0x21, 0x2C, 0x3B
_GIF_CONTROL: Final = 0xF9
_PIXELS_AT_ONCE: Final = 2**18

_MOST_JPEG_PASSES: Final = 16 * MAX_PIXELS
"""Maximum number of pixels over all scans. Each scan processes all pixels, even if it has little data."""


def decode_encoded(
    data: bytes, *, channels: int, dtype: np.dtype[Any], limit: int = MAX_PIXELS, method: str = ""
) -> npt.NDArray[Any]:
    """Decode an image to (height, width, channels); a GIF or WebP to (frames, height, width, channels).

    A JPEG is cast to ``dtype`` (0..255 for floats). For other formats, floats are in 0..1 and integers fill their
    range. They are converted through 16 bits: 8-bit values of a PNG are repeated, those of a BMP or GIF are shifted up
    by 8. A WebP supports uint8 only. ``method`` is the transform for JPEG, see ``decode_jpeg``.

    Raises:
        ImageFault: the image is empty, of an unknown format, damaged, truncated, has more pixels than ``limit``, or
            does not have these channels.
        MissingExtraError: Pillow is needed, and is not installed.
    """
    if data.startswith(JPEG_SIGNATURE):
        pixels: npt.NDArray[Any] = decode_jpeg(data, channels=channels, limit=limit, method=method)
        return pixels if dtype == _UINT8 else pixels.astype(dtype)
    if data.startswith(_PNG):
        return _convert(decode_png(data, channels=channels, wide=dtype != _UINT8, limit=limit), dtype)
    if data.startswith(b"BM"):
        pixels = decode_bmp(data, channels=channels, limit=limit)
    elif data.startswith(b"GIF8"):
        pixels = decode_gif(data, channels=channels, limit=limit)
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        if dtype != _UINT8:
            raise ImageFault(f"a WebP cannot be decoded to {dtype}", "Pass dtype=uint8 to Image, and cast the result.")
        return decode_webp(data, channels=channels, limit=limit)
    else:
        raise _unknown(data)
    return _convert(pixels, dtype)


def decode_small_images(
    images: Sequence[bytes], *, channels: int, dtype: np.dtype[Any], limit: int
) -> npt.NDArray[Any] | None:
    """The stacked results of ``decode_encoded`` for small PNGs of one kind; None for other images.

    Raises:
        ImageFault: an image cannot be decoded; ``decode_encoded`` raises it too.
    """
    if not images[0].startswith(_PNG):
        return None
    pixels = decode_small_pngs(images, channels=channels, wide=dtype != _UINT8, limit=limit)
    return None if pixels is None else _convert(pixels, dtype)


def decode_raw(data: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The values (n,) of little-endian bytes.

    Raises:
        ImageFault: the number of bytes is not a multiple of the size of ``dtype``.
    """
    if len(data) % dtype.itemsize:
        raise ImageFault(
            f"expected a multiple of {dtype.itemsize} raw bytes for {dtype}, found {len(data)}",
            "Pass to Image the dtype that was written, or store the format of the encoded image, e.g. png.",
        )
    return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)


def _convert(pixels: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Convert 8-bit or 16-bit pixels to ``dtype``. Except for uint16 and float32, it converts through 16 bits."""
    if dtype == pixels.dtype:
        return pixels
    is_byte = pixels.dtype == _UINT8
    scaled: npt.NDArray[Any]
    if dtype == np.float32:
        scaled = pixels * np.float32(1 / (255 if is_byte else 65535))
        return scaled
    wide: npt.NDArray[Any] = pixels.astype(np.uint16) << 8 if is_byte else pixels
    if dtype == np.uint16:
        return wide
    if dtype.kind not in "iu":
        with np.errstate(over="ignore"):  # 65535 is infinite as float16, in TensorFlow too
            scaled = wide.astype(dtype) * np.asarray(1 / 65535, dtype)
            return scaled
    top = int(np.iinfo(dtype).max) + 1
    if top <= 0x10000:
        return (wide // (0x10000 // top)).astype(dtype)
    shifted: npt.NDArray[Any] = wide.astype(dtype) * dtype.type(top // 0x10000)
    return shifted


def _unknown(data: bytes) -> ImageFault:
    if not data:
        return ImageFault(
            "the image is empty",
            "No image was stored, or default_value='' replaced a missing one. Write one, or leave such records out.",
        )
    if data.startswith((b"\xff\x0a", b"\x00\x00\x00\x0cJXL ")):
        return ImageFault(f"JPEG XL is not supported: {_FORMATS}", "Store it as PNG or JPEG.")
    return ImageFault(
        f"unknown image format: the data starts with {data[:8]!r}",
        f"S{_FORMATS[1:]}. For raw values, the record must store the format 'raw' or 'RAW', in this case.",
    )


def decode_bmp(data: bytes, *, channels: int, limit: int) -> npt.NDArray[np.uint8]:
    """The pixels (height, width, channels); 0 channels keeps those of the file.

    As in TensorFlow, 8-bit pixels are the stored numbers without the palette, and colour cannot be converted to grey.

    Raises:
        ImageFault: the image is damaged, of an unsupported kind, or does not fit ``channels`` or ``limit``.
    """
    if channels == 1:
        raise ImageFault("a BMP cannot be converted to grey", "Pass channels=3 to Image, or 0 for those stored.")
    if len(data) < 34:
        raise ImageFault(f"a damaged BMP: expected at least 34 bytes, found {len(data)}")
    start, header_size = (int.from_bytes(data[place : place + 4], "little") for place in (10, 14))
    width, stored_height = (int.from_bytes(data[place : place + 4], "little", signed=True) for place in (18, 22))
    bits, compression = int.from_bytes(data[28:30], "little"), int.from_bytes(data[30:34], "little")
    stored = _BMP_CHANNELS.get(bits, 0)
    is_plain = compression == 0 or (compression == 3 and bits == 32)  # 3: uncompressed, with bit masks of the channels
    if header_size < 40 or not stored or not is_plain:
        raise ImageFault(f"an unsupported BMP: {bits} bits, header {header_size}, compression {compression}", _BMP_HINT)
    height = abs(stored_height)
    check_pixels(height, width, limit)
    row = (width * stored + 3) // 4 * 4
    # The padding of the last row may be missing.
    used = row * (height - 1) + width * stored
    if len(data) - start < used:
        raise ImageFault(f"a damaged BMP: expected {start + used} bytes, found {len(data)}")
    rows = np.lib.stride_tricks.as_strided(
        np.frombuffer(data, np.uint8, used, start), (height, width, stored), (row, stored, 1), writeable=False
    )
    if stored_height > 0:
        rows = rows[::-1]
    color = rows if stored == 1 else rows[:, :, 2::-1]
    alpha = rows[:, :, 3] if stored == 4 else 255
    wanted = channels or stored
    return np.array(as_channels(color, alpha, wanted), order="C")


@dataclass(frozen=True, slots=True, kw_only=True)
class _GifFrame:
    top: int
    left: int
    height: int
    width: int
    is_interlaced: bool
    transparent: int | None
    colors: npt.NDArray[np.uint8]
    code_bits: int
    blocks: bytes


def decode_gif(data: bytes, *, channels: int, limit: int) -> npt.NDArray[np.uint8]:
    """All frames, (frames, height, width, 3).

    As in TensorFlow, the canvas has the width of the widest and the height of the highest frame, and the screen size of
    the file is ignored. Each frame is drawn over the one before it, the first over black; disposal methods are ignored.
    ``limit`` applies to all frames together.

    Raises:
        ImageFault: the image is damaged, or does not fit ``channels`` or ``limit``.
        MissingExtraError: Pillow is not installed.
    """
    if channels not in (0, 3):
        raise ImageFault(f"a GIF has 3 channels, not {channels}", "Pass channels=3 to Image, or 0 for those stored.")
    frames = _read_gif_frames(data)
    if not frames:
        raise ImageFault("a damaged GIF: it has no frame")
    height, width = max(frame.height for frame in frames), max(frame.width for frame in frames)
    check_pixels(height, width, limit, num_frames=len(frames))
    canvas = np.zeros((len(frames), height, width, 3), np.uint8)
    for place, frame in enumerate(frames):
        if place:
            canvas[place] = canvas[place - 1]
        part = canvas[place, frame.top : frame.top + frame.height, frame.left : frame.left + frame.width]
        _lay_frame(frame, part, place)
    return canvas


def _lay_frame(frame: _GifFrame, part: npt.NDArray[np.uint8], place: int) -> None:
    """Draw a frame on its part of the canvas, in strips, because an index takes 8 bytes per pixel."""
    size = (frame.height, frame.width)
    arguments = (frame.code_bits, int(frame.is_interlaced), -1)  # -1: transparency is handled below
    numbers = run_pillow("gif", "L", size, frame.blocks, arguments, of="GIF").reshape(size)
    numbers = numbers[: part.shape[0], : part.shape[1]]
    rows = max(1, _PIXELS_AT_ONCE // frame.width)
    for top in range(0, len(numbers), rows):
        some, under = numbers[top : top + rows], part[top : top + rows]
        opaque = slice(None) if frame.transparent is None else some != frame.transparent
        seen = some[opaque]
        if seen.size and int(seen.max()) >= len(frame.colors):
            raise ImageFault(f"a damaged GIF: frame {place} has colour {int(seen.max())} of {len(frame.colors)}")
        under[opaque] = frame.colors[seen]


def _read_gif_frames(data: bytes) -> list[_GifFrame]:
    """Parse the frames of a file, up to its trailer."""
    if len(data) < 13:
        raise ImageFault(_GIF_CUT_OFF)
    global_colors, place = _read_gif_colors(data, 13, data[10])
    frames: list[_GifFrame] = []
    transparent, has_control = None, False
    while place < len(data) and data[place] != _GIF_END:
        kind, place = data[place], place + 1
        if kind == _GIF_EXTENSION:
            stop = _skip_gif_blocks(data, place + 1)
            if data[place] == _GIF_CONTROL and data[place + 1] == 4 and not has_control:
                transparent, has_control = (data[place + 5] if data[place + 2] & 1 else None), True
            place = stop
        elif kind == _GIF_IMAGE:
            if place + 10 > len(data):
                raise ImageFault(_GIF_CUT_OFF)
            left, top, width, height = (
                int.from_bytes(data[at : at + 2], "little") for at in range(place, place + 8, 2)
            )
            flags = data[place + 8]
            check_pixels(height, width, 2**32)
            colors, place = _read_gif_colors(data, place + 9, flags)
            colors = global_colors if colors is None else colors
            if colors is None:
                raise ImageFault(f"a damaged GIF: frame {len(frames)} has no colours")
            stop = _skip_gif_blocks(data, place + 1)
            frames.append(
                _GifFrame(
                    top=top,
                    left=left,
                    height=height,
                    width=width,
                    is_interlaced=bool(flags & 0x40),
                    transparent=transparent,
                    colors=colors,
                    code_bits=data[place],
                    blocks=data[place + 1 : stop],
                )
            )
            place, transparent, has_control = stop, None, False
        else:
            raise ImageFault(f"a damaged GIF: byte {place - 1} is {kind:#04x}, which starts no block")
    if place >= len(data):
        raise ImageFault(_GIF_CUT_OFF)
    return frames


def _read_gif_colors(data: bytes, place: int, flags: int) -> tuple[npt.NDArray[np.uint8] | None, int]:
    """The colour table (n, 3) and the position after it; None if the flags say that there is no table."""
    if not flags & 0x80:
        return None, place
    stop = place + 3 * (2 << (flags & 7))
    if stop > len(data):
        raise ImageFault(_GIF_CUT_OFF)
    return np.frombuffer(data[place:stop], np.uint8).reshape(-1, 3), stop


def _skip_gif_blocks(data: bytes, place: int) -> int:
    """The position after a sequence of blocks, each preceded by its length, and the empty block that ends it."""
    while place < len(data):
        length = data[place]
        place += 1 + length
        if not length:
            return place
    raise ImageFault(_GIF_CUT_OFF)


def decode_webp(data: bytes, *, channels: int, limit: int) -> npt.NDArray[np.uint8]:
    """All frames, (frames, height, width, 3 or 4); a still image has one frame. ``limit`` is for all frames together.

    Raises:
        ImageFault: the image is damaged, or does not fit ``channels`` or ``limit``.
        MissingExtraError: Pillow is not installed, or was built without libwebp.
    """
    import_pillow("decoding WebP images")
    from PIL import WebPImagePlugin

    if not WebPImagePlugin.SUPPORTED:
        raise MissingExtraError(package="pillow", extra="image", needed_for="decoding WebP images with libwebp")
    height, width = _read_webp_size(data)
    # Count the frames, which are in chunks of this name, before opening the file, because that allocates two canvases.
    num_frames = max(1, data.count(b"ANMF"))
    check_pixels(height, width, limit, num_frames=num_frames)
    try:
        image = WebPImagePlugin.WebPImageFile(io.BytesIO(data))
        stored = 4 if image.mode == "RGBA" else 3
        if channels not in (0, stored):
            raise ImageFault(
                f"expected a WebP with {channels} channels, found {stored}",
                f"Pass channels={stored} to Image, or 0 for those stored.",
            )
        check_pixels(image.height, image.width, limit, num_frames=image.n_frames)
        frames = np.empty((image.n_frames, image.height, image.width, stored), np.uint8)
        for place in range(image.n_frames):
            image.seek(place)
            image.load()
            frames[place] = take_pixels(image)[:, :, :stored]
    except (ValueError, OSError, SyntaxError, EOFError, OverflowError, RuntimeError) as error:
        raise ImageFault(f"a damaged WebP: {error}") from error
    return frames


def _read_webp_size(data: bytes) -> tuple[int, int]:
    """Height and width, from the first chunk (RFC 9649)."""
    kind = data[12:16]
    if len(data) >= 30:
        if kind == b"VP8X":
            width, height = (1 + int.from_bytes(data[at : at + 3], "little") for at in (24, 27))
            return height, width
        if kind == b"VP8L" and data[20] == 0x2F:
            bits = int.from_bytes(data[21:25], "little")
            return 1 + (bits >> 14 & 0x3FFF), 1 + (bits & 0x3FFF)
        if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
            width, height = (int.from_bytes(data[at : at + 2], "little") & 0x3FFF for at in (26, 28))
            return height, width
    raise ImageFault("a damaged WebP: it has no size")


def decode_jpeg(data: bytes, *, channels: int, limit: int, method: str = "") -> npt.NDArray[np.uint8]:
    """The pixels (height, width, 1 or 3) of a JPEG, equal to those of TensorFlow with ``INTEGER_ACCURATE``.

    0 channels keeps those of the file; CMYK and YCCK become three channels, each ink multiplied with black, as in
    TensorFlow. Grey is the stored brightness. The EXIF orientation is ignored.

    With the ``method`` ``INTEGER_FAST``, the pixels equal those of TensorFlow with this method, its default, if
    simplejpeg is installed and can decode the file. Otherwise the method has no effect.

    Raises:
        ImageFault: the image is damaged, or does not fit ``channels`` or ``limit``.
        MissingExtraError: Pillow is needed, and is not installed.
    """
    if channels == 4:
        raise ImageFault("a JPEG has no alpha channel", "Pass channels=3 to Image, or 0 for those stored.")
    header = read_jpeg_header(data)
    if header is None:
        raise ImageFault("a damaged JPEG: it has no frame")
    check_pixels(header.height, header.width, limit)
    num_scans = data.count(b"\xff\xda")
    if num_scans * header.height * header.width > _MOST_JPEG_PASSES:
        raise ImageFault(
            f"a JPEG with {num_scans} scans of {header.height} x {header.width} pixels would take minutes to decode",
            hint="A progressive JPEG usually has about 10 scans. More is often an attack.",
        )
    size, is_fast = (header.height, header.width), method == "INTEGER_FAST"
    if header.components == 4:
        inks = _jpeg_samples(data, "CMYK", size, 4, is_fast=is_fast)
        # The remaining light after cyan, magenta, yellow and black, which is what Adobe stores.
        left = (inks if header.is_adobe else ~inks).astype(np.uint16)
        color = (left[:, :, :3] * left[:, :, 3:] // 255).astype(np.uint8)
        return to_grey(color) if channels == 1 else color
    wanted = channels or header.components
    return _jpeg_samples(data, "L" if wanted == 1 else "RGB", size, wanted, is_fast=is_fast)


def _jpeg_samples(
    data: bytes, mode: str, size: tuple[int, int], channels: int, *, is_fast: bool
) -> npt.NDArray[np.uint8]:
    """The samples (height, width, channels) in a Pillow mode."""
    if (library := jpeg_library()) is not None:
        try:
            pixels: npt.NDArray[np.uint8] = library.decode_jpeg(data, "GRAY" if mode == "L" else mode, fastdct=is_fast)
        except ValueError:
            pass  # damaged, or of a rare kind: Pillow decodes it or reports the error
        else:
            if pixels.shape == (*size, channels):
                return pixels
    return run_pillow("jpeg", mode, size, data, (mode, ""), of="JPEG").reshape(*size, channels)
