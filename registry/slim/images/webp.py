"""How does a WebP become frames? By libwebp, as Pillow brings it, after a look at the header that bounds the size."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt

from registry.errors import MissingExtraError
from registry.slim.images.codec import ImageFault, check_pixels, import_pillow, take_pixels


def decode_webp(data: bytes, *, channels: int, limit: int) -> npt.NDArray[np.uint8]:
    """All frames, (frames, height, width, 3 or 4); a still image is one frame.

    Raises:
        ImageFault: damaged, cut off, more pixels than ``limit`` in all frames together, or other channels than it has.
        MissingExtraError: Pillow is not installed.
    """
    import_pillow("WebP")
    from PIL import WebPImagePlugin

    if not WebPImagePlugin.SUPPORTED:
        raise MissingExtraError(package="pillow", extra="image", needed_for="decoding WebP images with libwebp")
    height, width = _read_size(data)
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


def _read_size(data: bytes) -> tuple[int, int]:
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
