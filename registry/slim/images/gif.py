"""How does a GIF become frames? As TensorFlow lays them on each other; Pillow's codec undoes the compression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from registry.slim.images.codec import ImageFault, check_pixels, run_codec

_CUT_OFF: Final = "a damaged GIF: it is cut off"
_EXTENSION, _IMAGE, _END = 0x21, 0x2C, 0x3B
_CONTROL: Final = 0xF9
_PIXELS_AT_ONCE: Final = 2**18


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
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
    frame is laid over the one before it, the first over black; what a file says of disposal is not heeded. All this is
    TensorFlow's way.

    Raises:
        ImageFault: damaged, cut off, more pixels than ``limit`` in all frames together, or other channels than 0 or 3.
        MissingExtraError: Pillow is not installed.
    """
    if channels not in (0, 3):
        raise ImageFault(
            f"a GIF has colours: not {channels} channels", "Give channels=3 to Image, or 0 for those stored."
        )
    frames = _read_frames(data)
    if not frames:
        raise ImageFault("a damaged GIF: it has no frame")
    height, width = max(frame.height for frame in frames), max(frame.width for frame in frames)
    check_pixels(height, width, limit, num_frames=len(frames))
    canvas = np.zeros((len(frames), height, width, 3), np.uint8)
    for place, frame in enumerate(frames):
        if place:
            canvas[place] = canvas[place - 1]
        part = canvas[place, frame.top : frame.top + frame.height, frame.left : frame.left + frame.width]
        _lay(frame, part, place)
    return canvas


def _lay(frame: _Frame, part: npt.NDArray[np.uint8], place: int) -> None:
    """Lay a frame on the part of the canvas that it covers, some rows at a time: an index takes 8 bytes a pixel."""
    numbers = _undo_lzw(frame)[: part.shape[0], : part.shape[1]]
    rows = max(1, _PIXELS_AT_ONCE // frame.width)
    for top in range(0, len(numbers), rows):
        some, under = numbers[top : top + rows], part[top : top + rows]
        shown = slice(None) if frame.transparent is None else some != frame.transparent
        seen = some[shown]
        if seen.size and int(seen.max()) >= len(frame.colors):
            raise ImageFault(f"a damaged GIF: frame {place} has colour {int(seen.max())} of {len(frame.colors)}")
        under[shown] = frame.colors[seen]


def _read_frames(data: bytes) -> list[_Frame]:
    """The frames of a file, taken apart, up to its end mark."""
    if len(data) < 13:
        raise ImageFault(_CUT_OFF)
    global_colors, place = _read_colors(data, 13, data[10])
    frames: list[_Frame] = []
    transparent, has_control = None, False
    while place < len(data) and data[place] != _END:
        kind, place = data[place], place + 1
        if kind == _EXTENSION:
            stop = _skip_blocks(data, place + 1)
            if data[place] == _CONTROL and data[place + 1] == 4 and not has_control:
                transparent, has_control = (data[place + 5] if data[place + 2] & 1 else None), True
            place = stop
        elif kind == _IMAGE:
            if place + 10 > len(data):
                raise ImageFault(_CUT_OFF)
            left, top, width, height = (
                int.from_bytes(data[at : at + 2], "little") for at in range(place, place + 8, 2)
            )
            flags = data[place + 8]
            check_pixels(height, width, 2**32)
            colors, place = _read_colors(data, place + 9, flags)
            colors = global_colors if colors is None else colors
            if colors is None:
                raise ImageFault(f"a damaged GIF: frame {len(frames)} has no colours")
            stop = _skip_blocks(data, place + 1)
            frames.append(
                _Frame(
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
        raise ImageFault(_CUT_OFF)
    return frames


def _read_colors(data: bytes, place: int, flags: int) -> tuple[npt.NDArray[np.uint8] | None, int]:
    """A table of colours (n, 3), where the flags say that there is one, and the place after it."""
    if not flags & 0x80:
        return None, place
    stop = place + 3 * (2 << (flags & 7))
    if stop > len(data):
        raise ImageFault(_CUT_OFF)
    return np.frombuffer(data[place:stop], np.uint8).reshape(-1, 3), stop


def _skip_blocks(data: bytes, place: int) -> int:
    """The place after a row of blocks, each after its length, and the empty one that ends them."""
    while place < len(data):
        length = data[place]
        place += 1 + length
        if not length:
            return place
    raise ImageFault(_CUT_OFF)


def _undo_lzw(frame: _Frame) -> npt.NDArray[np.uint8]:
    """The colour numbers (height, width) of a frame."""
    size = (frame.height, frame.width)
    arguments = (frame.code_bits, int(frame.is_interlaced), -1)  # no colour is transparent to the codec
    return run_codec("gif", "L", size, frame.blocks, arguments, of="GIF").reshape(size)
