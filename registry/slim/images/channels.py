"""How do grey, colour and transparency become one another? As in TensorFlow's decoders, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from registry.features.pictures import mix, to_grey


def to_grey_by_light(color: npt.NDArray[Any], gamma: int, *, is_cut: bool) -> npt.NDArray[Any]:
    """The brightness (height, width, 1) of colours that were stored with ``gamma``, in 1/100000, mixed as light.

    libpng mixes so, by tables, where a PNG says its gamma and that is not about 1. Where 16 bits are cut to 8 after it
    (``is_cut``), its tables have 11 bits.
    """
    is_wide = color.dtype == np.uint16
    top = 65535 if is_wide else 255
    shift = 5 if is_wide and is_cut else 0
    steps = np.arange((top >> shift) + 1) / (top >> shift)
    to_light, from_light = (np.floor(top * steps**power + 0.5).astype(np.uint32) for power in _powers(gamma))
    red, green, blue = (to_light[color[:, :, channel] >> shift] for channel in range(3))
    mixed = mix(red, green, blue, 0x4000)
    grey: npt.NDArray[Any] = from_light[mixed >> shift].astype(color.dtype)
    is_grey = (color[:, :, :1] == color[:, :, 1:]).all(axis=2)
    grey[is_grey] = _keep(color[:, :, 0][is_grey], shift)
    return grey[:, :, np.newaxis]


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


def _powers(gamma: int) -> tuple[float, float]:
    """What stored values are raised to, to become light, and light to be stored; libpng counts in 1/100000."""
    to_light = int(1e10 / gamma + 0.5)
    return to_light / 100000, int(1e10 / to_light + 0.5) / 100000


def _keep(grey: npt.NDArray[Any], shift: int) -> npt.NDArray[Any]:
    """Values that are grey already; with the tables of 11 bits they are rounded to 8."""
    if not shift:
        return grey
    firsts = ((np.arange(256, dtype=np.uint32) * 257 + 128) * (65535 >> shift) + 32768) // 65535 + 1
    return (np.searchsorted(firsts[:-1], grey >> shift, side="right") * 257).astype(grey.dtype)
