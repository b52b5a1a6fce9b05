"""How do grey, colour and transparency become one another? As in TensorFlow's decoders, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def to_grey(color: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The brightness (height, width, 1) of colours (height, width, 3) of uint8 or uint16.

    It is 0.299 red + 0.587 green + 0.114 blue in 1/32768, as libpng has it, which cuts 8 bits and rounds 16.
    """
    red, green, blue = (color[:, :, channel].astype(np.uint32) for channel in range(3))
    half = 0x4000 if color.dtype == np.uint16 else 0
    return ((red * 9797 + green * 19234 + blue * 3737 + half) >> 15).astype(color.dtype)[:, :, np.newaxis]


def as_channels(color: npt.NDArray[Any], alpha: npt.NDArray[Any] | int, channels: int) -> npt.NDArray[Any]:
    """``channels`` 1 to 4 of colours (height, width, 1 or 3); ``alpha`` (height, width), or one value for all."""
    if channels < 3 and color.shape[2] == 3:
        color = to_grey(color)
    if channels in (1, 3):
        return color if color.shape[2] == channels else np.repeat(color, 3, axis=2)
    pixels = np.empty((*color.shape[:2], channels), color.dtype)
    pixels[:, :, :-1] = color  # grey fills all three
    pixels[:, :, -1] = alpha
    return pixels
