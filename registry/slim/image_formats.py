"""Decodes the bytes of an image as ``tf.io.decode_image`` does: the first bytes tell the format.

    bytes -> format -> pixels of 8 or 16 bits -> channels -> dtype

PNG has a file of its own; JPEG, BMP, GIF and WebP are decoded here. Each header is read before a codec of Pillow runs,
to bound the size. Images that TensorFlow refuses are refused here too, with a hint.

Where simplejpeg is installed (extra ``jpeg``), it decodes sound JPEGs in three quarters of the time and to the same
pixels, and Pillow reports on all others. Only simplejpeg offers libjpeg's other transform, TensorFlow's default.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import MissingExtraError
from registry.features.pictures import JPEG_SIGNATURE, as_channels, import_pillow, read_jpeg_header, to_grey
from registry.slim.image_codec import MAX_PIXELS, ImageFault, check_pixels, run_codec, take_pixels
from registry.slim.image_png import decode_png, decode_small_pngs

CHANNELS: Final = (0, 1, 3, 4)
"""The numbers of channels that can be asked for; 0 is what the file has."""

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_UINT8: Final = np.dtype(np.uint8)
_FORMATS: Final = "JPEG, PNG, BMP, GIF and WebP are read"
_BMP_CHANNELS = {8: 1, 24: 3, 32: 4}
_BMP_HINT = "Store it as PNG: of BMP, 8, 24 and 32 bits are read, not compressed."
_GIF_CUT_OFF: Final = "a damaged GIF: it is cut off"
_GIF_EXTENSION, _GIF_IMAGE, _GIF_END = 0x21, 0x2C, 0x3B
_GIF_CONTROL: Final = 0xF9
_PIXELS_AT_ONCE: Final = 2**18

_MOST_JPEG_PASSES: Final = 16 * MAX_PIXELS
"""Each scan goes over all pixels, however short it is."""


def decode_encoded(
    data: bytes, *, channels: int, dtype: np.dtype[Any], limit: int = MAX_PIXELS, method: str = ""
) -> npt.NDArray[Any]:
    """The array of an encoded image: (height, width, channels), of a GIF or WebP (frames, height, width, channels).

    A JPEG is cast to ``dtype`` (0..255 as float). Of the others floats are in 0..1, integers fill the range of theirs:
    a PNG has 16 bits on the way (its 8 repeated), a BMP and a GIF have theirs shifted up by 8; a WebP has uint8 only.
    How a JPEG is transformed is ``method``, see ``decode_jpeg``.

    Raises:
        ImageFault: empty, of no known format, damaged, cut off, more pixels than ``limit``, or not in these channels.
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
            raise ImageFault(f"a WebP is not decoded to {dtype}", "Give dtype=uint8 to Image, and cast what it gives.")
        return decode_webp(data, channels=channels, limit=limit)
    else:
        raise _unknown(data)
    return _convert(pixels, dtype)


def decode_small_images(
    images: Sequence[bytes], *, channels: int, dtype: np.dtype[Any], limit: int
) -> npt.NDArray[Any] | None:
    """What ``decode_encoded`` gives for each, stacked, where many can be decoded together: small PNGs of one kind.

    Raises:
        ImageFault: one of them is at fault, and ``decode_encoded`` says so, too.
    """
    if not images[0].startswith(_PNG):
        return None
    pixels = decode_small_pngs(images, channels=channels, wide=dtype != _UINT8, limit=limit)
    return None if pixels is None else _convert(pixels, dtype)


def decode_raw(data: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The values, (n,), that bytes hold as they are, the lowest byte first.

    Raises:
        ImageFault: the bytes are no whole number of values.
    """
    if len(data) % dtype.itemsize:
        raise ImageFault(
            f"{len(data)} raw bytes are no whole number of {dtype} of {dtype.itemsize} bytes",
            "Give Image the dtype that was written, or write the format of the encoded image, e.g. png.",
        )
    return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)


def _convert(pixels: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Pixels of 8 or 16 bits as ``dtype``; all but uint16 and float32 come from 16 bits."""
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
        with np.errstate(over="ignore"):  # the highest of 16 bits is infinite as float16, in TensorFlow too
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
            "No image was stored: default_value='' stands for a missing one. Write one, or leave such records out.",
        )
    if data.startswith((b"\xff\x0a", b"\x00\x00\x00\x0cJXL ")):
        return ImageFault(f"a JPEG XL, which is not read: {_FORMATS}", "Store it as PNG or JPEG.")
    return ImageFault(
        f"no image of a known format: it starts with {data[:8]!r}",
        f"{_FORMATS}. Raw values have the format 'raw' or 'RAW' in the record, written just so.",
    )


def decode_bmp(data: bytes, *, channels: int, limit: int) -> npt.NDArray[np.uint8]:
    """The pixels (height, width, channels); 0 channels are those of the file.

    With 8 bits they are the stored numbers, whatever the palette says, as in TensorFlow, which does not make one
    channel of a BMP either. Errors as ``decode_encoded``.
    """
    if channels == 1:
        raise ImageFault("a BMP is not made grey", "Give channels=3 to Image, or 0 for those stored.")
    if len(data) < 34:
        raise ImageFault(f"a damaged BMP: it has {len(data)} bytes, and its header alone 34")
    start, header_size = (int.from_bytes(data[place : place + 4], "little") for place in (10, 14))
    width, stored_height = (int.from_bytes(data[place : place + 4], "little", signed=True) for place in (18, 22))
    bits, compression = int.from_bytes(data[28:30], "little"), int.from_bytes(data[30:34], "little")
    stored = _BMP_CHANNELS.get(bits, 0)
    is_plain = compression == 0 or (compression == 3 and bits == 32)  # 3 names the places of the channels
    if header_size < 40 or not stored or not is_plain:
        raise ImageFault(f"a BMP of {bits} bits, header {header_size}, compression {compression}", _BMP_HINT)
    height = abs(stored_height)
    check_pixels(height, width, limit)
    row = (width * stored + 3) // 4 * 4
    # The padding of the last row may be missing.
    used = row * (height - 1) + width * stored
    if len(data) - start < used:
        raise ImageFault(f"a damaged BMP: it has {len(data)} bytes, where {start + used} belong")
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

    The canvas is as wide as the widest frame and as high as the highest, whatever the file says of its screen. Each
    frame is laid over the one before it, the first over black; disposal methods are ignored. All this is
    TensorFlow's way. ``limit`` is for all frames together. Errors as ``decode_encoded``.
    """
    if channels not in (0, 3):
        raise ImageFault(
            f"a GIF has colours: not {channels} channels", "Give channels=3 to Image, or 0 for those stored."
        )
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
    """Lay a frame on the part of the canvas that it covers, some rows at a time: an index takes 8 bytes a pixel."""
    size = (frame.height, frame.width)
    arguments = (frame.code_bits, int(frame.is_interlaced), -1)  # no colour is transparent to the codec
    numbers = run_codec("gif", "L", size, frame.blocks, arguments, of="GIF").reshape(size)
    numbers = numbers[: part.shape[0], : part.shape[1]]
    rows = max(1, _PIXELS_AT_ONCE // frame.width)
    for top in range(0, len(numbers), rows):
        some, under = numbers[top : top + rows], part[top : top + rows]
        shown = slice(None) if frame.transparent is None else some != frame.transparent
        seen = some[shown]
        if seen.size and int(seen.max()) >= len(frame.colors):
            raise ImageFault(f"a damaged GIF: frame {place} has colour {int(seen.max())} of {len(frame.colors)}")
        under[shown] = frame.colors[seen]


def _read_gif_frames(data: bytes) -> list[_GifFrame]:
    """The frames of a file, taken apart, up to its end mark."""
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
            raise ImageFault(f"a damaged GIF: byte {place - 1} is {kind:#04x}, which starts nothing")
    if place >= len(data):
        raise ImageFault(_GIF_CUT_OFF)
    return frames


def _read_gif_colors(data: bytes, place: int, flags: int) -> tuple[npt.NDArray[np.uint8] | None, int]:
    """A table of colours (n, 3), where the flags say that there is one, and the place after it."""
    if not flags & 0x80:
        return None, place
    stop = place + 3 * (2 << (flags & 7))
    if stop > len(data):
        raise ImageFault(_GIF_CUT_OFF)
    return np.frombuffer(data[place:stop], np.uint8).reshape(-1, 3), stop


def _skip_gif_blocks(data: bytes, place: int) -> int:
    """The place after a row of blocks, each after its length, and the empty one that ends them."""
    while place < len(data):
        length = data[place]
        place += 1 + length
        if not length:
            return place
    raise ImageFault(_GIF_CUT_OFF)


def decode_webp(data: bytes, *, channels: int, limit: int) -> npt.NDArray[np.uint8]:
    """All frames, (frames, height, width, 3 or 4); a still image is one frame.

    ``limit`` is for all frames together. Errors as ``decode_encoded``.
    """
    import_pillow("decoding WebP images")
    from PIL import WebPImagePlugin

    if not WebPImagePlugin.SUPPORTED:
        raise MissingExtraError(package="pillow", extra="image", needed_for="decoding WebP images with libwebp")
    height, width = _read_webp_size(data)
    # Counted before the file is opened, which makes two canvases: an animation has its frames in chunks of this name.
    num_frames = max(1, data.count(b"ANMF"))
    check_pixels(height, width, limit, num_frames=num_frames)
    try:
        image = WebPImagePlugin.WebPImageFile(io.BytesIO(data))
        stored = 4 if image.mode == "RGBA" else 3
        if channels not in (0, stored):
            raise ImageFault(
                f"a WebP with {stored} channels, not {channels}",
                f"Give channels={stored} to Image, or 0 for those stored.",
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
    """The pixels (height, width, 1 or 3) of a JPEG, as TensorFlow gives them with ``INTEGER_ACCURATE``.

    0 channels are those of the file, of CMYK and YCCK three: the product of each ink with black, as TensorFlow mixes
    them. Grey is the stored brightness itself. The orientation that a camera notes down is not applied.

    The ``method`` ``INTEGER_FAST`` gives what TensorFlow gives with it, and by default, where simplejpeg is installed
    and can decode the file; elsewhere it makes no difference. Errors as ``decode_encoded``.
    """
    if channels == 4:
        raise ImageFault("a JPEG has no channel of transparency", "Give channels=3 to Image, or 0 for those stored.")
    header = read_jpeg_header(data)
    if header is None:
        raise ImageFault("a damaged JPEG: it has no frame")
    check_pixels(header.height, header.width, limit)
    num_scans = data.count(b"\xff\xda")
    if num_scans * header.height * header.width > _MOST_JPEG_PASSES:
        raise ImageFault(
            f"{num_scans} scans of {header.height} x {header.width} pixels: they would take minutes to decode",
            hint="A progressive JPEG has some 10. More is often an attack.",
        )
    size, is_fast = (header.height, header.width), method == "INTEGER_FAST"
    if header.components == 4:
        inks = _jpeg_samples(data, "CMYK", size, 4, is_fast=is_fast)
        # What cyan, magenta, yellow and black leave of the light, as Adobe stores it.
        left = (inks if header.is_adobe else ~inks).astype(np.uint16)
        color = (left[:, :, :3] * left[:, :, 3:] // 255).astype(np.uint8)
        return to_grey(color) if channels == 1 else color
    wanted = channels or header.components
    return _jpeg_samples(data, "L" if wanted == 1 else "RGB", size, wanted, is_fast=is_fast)


def _jpeg_samples(
    data: bytes, mode: str, size: tuple[int, int], channels: int, *, is_fast: bool
) -> npt.NDArray[np.uint8]:
    """The samples (height, width, channels) in a mode of Pillow."""
    if (library := _fast_library()) is not None:
        try:
            pixels: npt.NDArray[np.uint8] = library.decode_jpeg(data, "GRAY" if mode == "L" else mode, fastdct=is_fast)
        except ValueError:
            pass  # damaged, or of a kind that is rare
        else:
            if pixels.shape == (*size, channels):
                return pixels
    return run_codec("jpeg", mode, size, data, (mode, ""), of="JPEG").reshape(*size, channels)


@cache
def _fast_library() -> Any:
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg
