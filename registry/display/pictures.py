"""Small pictures of stored images, and how terminals draw them.

    files --``shrink``--> pixels of equal height --> PNG for kitty and iTerm2, sixels, or blocks of text

A program cannot ask what a terminal draws without waiting for its answer, so the environment decides.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby, zip_longest
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, MissingExtraError
from registry.features import Image, Leaf
from registry.images import encode_png
from registry.statistics.media import read_image_header

Pixels: TypeAlias = npt.NDArray[np.uint8]
"""Red, green and blue: shape (height, width, 3)."""

_MOST_PIXELS: Final = 2**24
"""Larger images are not decoded for a small picture: it would take seconds."""

_RED: Final = (214, 40, 40)

_CHUNK: Final = 4096
"""Bytes of base64 in one command of kitty's protocol."""


class Graphics(StrEnum):
    """The graphics that a terminal supports."""

    KITTY = "kitty"
    ITERM2 = "iterm2"
    SIXEL = "sixel"
    COLORS = "colors"
    """Two pixels in each character, in 24 bits."""
    SHADES = "shades"
    """Characters of five shades, two for each pixel."""


def terminal_graphics(environ: Mapping[str, str]) -> Graphics:
    """The graphics that the terminal supports, by the variables that it sets. tmux and screen pass nothing through.

    >>> terminal_graphics({"TERM": "xterm-kitty"}), terminal_graphics({"TERM": "foot"}), terminal_graphics({})
    (<Graphics.KITTY: 'kitty'>, <Graphics.SIXEL: 'sixel'>, <Graphics.SHADES: 'shades'>)
    """
    term, program = environ.get("TERM", ""), environ.get("TERM_PROGRAM", "")
    if "TMUX" not in environ and not term.startswith(("screen", "tmux")):
        if "KITTY_WINDOW_ID" in environ or "kitty" in term or program == "ghostty":
            return Graphics.KITTY
        if program in ("iTerm.app", "WezTerm") or environ.get("LC_TERMINAL") == "iTerm2":
            return Graphics.ITERM2
        if "sixel" in term or term.startswith(("foot", "mlterm", "yaft")):
            return Graphics.SIXEL
    return Graphics.COLORS if environ.get("COLORTERM") in ("truecolor", "24bit") else Graphics.SHADES


def shrink(leaf: Leaf, file: Any, side: int, *, grow: bool = False) -> Pixels | None:
    """A picture of a stored image with at most ``side`` pixels in each direction; ``grow`` enlarges smaller ones.

    None if the feature is not an image, or the image is damaged, too large, or needs a decoder that is not installed.
    """
    pixels = _decode(leaf, file)
    return None if pixels is None else _fit(as_rgb(_pool(pixels, side)), side if grow else 0)


class MarkedImages(NamedTuple):
    """Small pictures of two images, and of the second one in grey with the pixels in red that differ.

    ``marked`` is None if the images differ in size. ``num_differing`` of ``num_pixels`` differ.
    """

    old: Pixels
    new: Pixels
    marked: Pixels | None
    num_differing: int
    num_pixels: int


def mark_differences(leaf: Leaf, files: tuple[Any, Any], side: int) -> MarkedImages | None:
    """Two stored images of one feature next to each other, enlarged like those of ``shrink``; None as in ``shrink``.

    A pixel of a marked picture is red if any pixel of the image in its place differs.
    """
    before, after = (_decode(leaf, file) for file in files)
    if before is None or after is None:
        return None
    old, new = (as_rgb(_pool(pixels, side)) for pixels in (before, after))
    if before.shape != after.shape:
        return MarkedImages(_fit(old, side), _fit(new, side), None, 0, 0)
    is_nan = np.isnan(before) & np.isnan(after) if before.dtype.kind == "f" else np.False_
    differs = np.any([*np.moveaxis((before != after) & ~is_nan, 2, 0)], 0)[..., None]
    marked = np.broadcast_to(new.mean(2, keepdims=True) / 3 + 150, new.shape).astype(np.uint8)
    marked[_pool(differs.astype(np.float64), side)[..., 0] > 0] = _RED
    pictures = [_fit(picture, side) for picture in (old, new, marked)]
    return MarkedImages(pictures[0], pictures[1], pictures[2], int(differs.sum()), differs.size)


def _decode(leaf: Leaf, file: Any) -> npt.NDArray[Any] | None:
    header = read_image_header(file) if isinstance(leaf, Image) and isinstance(file, bytes) else None
    if header is None or header.height * header.width > _MOST_PIXELS:
        return None
    try:
        pixels: npt.NDArray[Any] = leaf.restore(([file],), None, "")
    except (CorruptExampleError, MissingExtraError):
        return None
    return pixels


def _pool(pixels: npt.NDArray[Any], side: int) -> npt.NDArray[Any]:
    """The means of squares of pixels, so that at most ``side`` are left in each direction."""
    factor = -(-max(pixels.shape[:2]) // side)
    if factor == 1:
        return pixels
    height, width = (max(factor, length // factor * factor) for length in pixels.shape[:2])
    missing = [(0, max(0, size - length)) for size, length in zip((height, width), pixels.shape, strict=False)]
    whole: npt.NDArray[Any] = np.pad(pixels, [*missing, (0, 0)], "edge")[:height, :width]
    # Whole rows are summed first: a mean over both axes takes ten times as long.
    rows = whole.reshape(height // factor, factor, -1).sum(1, dtype=np.float64)
    means: npt.NDArray[Any] = rows.reshape(height // factor, width // factor, factor, -1).sum(2) / factor**2
    return means.astype(pixels.dtype)


def _fit(picture: Pixels, side: int) -> Pixels:
    """The picture, enlarged by a whole number to at most ``side`` pixels."""
    times = max(1, side // max(picture.shape[:2]))
    return picture.repeat(times, 0).repeat(times, 1)


def as_rgb(pixels: npt.NDArray[Any]) -> Pixels:
    """Pixels of any image feature as red, green and blue: small numbers, such as classes, and floats are spread out."""
    values = np.nan_to_num(pixels.astype(np.float64), posinf=0, neginf=0)
    if pixels.dtype == np.uint16:
        values /= 257
    elif pixels.dtype != np.uint8 or (pixels.shape[2] == 1 and values.max() <= 32):
        values = (values - values.min()) * 255 / max(np.ptp(values), 1e-300)
    if pixels.shape[2] in (2, 4):  # the last channel is the opacity, on white
        alpha = values[..., -1:] / 255
        values = values[..., :-1] * alpha + 255 * (1 - alpha)
    return np.broadcast_to(values.round(), (*pixels.shape[:2], 3)).astype(np.uint8)


def draw(pictures: Sequence[Pixels], graphics: Graphics, *, shades: str = " ░▒▓█", gap: int = 4) -> str:
    """Pictures next to each other in the form that a terminal draws, without foreign text, so it is safe to print.

    ``gap`` is between two pictures, in pixels of a picture or in columns of text.
    """
    if graphics in (Graphics.COLORS, Graphics.SHADES):
        lines = [list(_half_blocks(it) if graphics is Graphics.COLORS else _shaded(it, shades)) for it in pictures]
        blank = [" " * it.shape[1] * (1 + (graphics is Graphics.SHADES)) for it in pictures]
        rows = [[part or space for part, space in zip(row, blank, strict=True)] for row in zip_longest(*lines)]
        return "\n".join((" " * gap).join(row).rstrip() for row in rows)
    sheet = _join(pictures, gap)
    if graphics is Graphics.SIXEL:
        return f"\x1bPq{''.join(_sixels(sheet))}\x1b\\"
    png = encode_png(sheet)
    data = base64.b64encode(png).decode("ascii")
    if graphics is Graphics.ITERM2:
        return f"\x1b]1337;File=inline=1;size={len(png)}:{data}\a"
    chunks = [data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK)]
    heads = ["a=T,f=100,q=2,", *[""] * len(chunks)]
    last = len(chunks) - 1
    return "".join(f"\x1b_G{heads[at]}m={int(at < last)};{chunk}\x1b\\" for at, chunk in enumerate(chunks))


def _join(pictures: Sequence[Pixels], gap: int) -> Pixels:
    """Pictures next to each other as one picture, with a grey background for dark and light screens."""
    height = max(len(picture) for picture in pictures)
    width = sum(picture.shape[1] + gap for picture in pictures) - gap
    sheet, left = np.full((height, width, 3), 128, np.uint8), 0
    for picture in pictures:
        sheet[: len(picture), left : left + picture.shape[1]] = picture
        left += picture.shape[1] + gap
    return sheet


def _sixels(picture: Pixels) -> Iterator[str]:
    """Bands of six rows in 216 colours; each colour of a band has a line, in which a letter is a column."""
    height, width = picture.shape[:2]
    levels = (picture.astype(np.int64) * 5 + 127) // 255
    colors = levels @ np.array([36, 6, 1])
    yield f'"1;1;{width};{height}'
    for color in np.unique(colors).tolist():
        yield f"#{color};2;{color // 36 * 20};{color // 6 % 6 * 20};{color % 6 * 20}"
    for top in range(0, height, 6):
        band = colors[top : top + 6]
        for color in np.unique(band).tolist():
            bits = ((band == color) * (1 << np.arange(len(band)))[:, None]).sum(0)
            runs = ((chr(63 + value), len(list(run))) for value, run in groupby(bits.tolist()))
            yield f"#{color}{''.join(f'!{count}{letter}' if count > 3 else letter * count for letter, count in runs)}$"
        yield "-"


def _half_blocks(picture: Pixels) -> Iterator[str]:
    padded = np.pad(picture, ((0, len(picture) % 2), (0, 0), (0, 0)), "edge").tolist()
    for upper, lower in zip(padded[::2], padded[1::2], strict=True):
        cells = zip(upper, lower, strict=True)
        yield "".join("\x1b[38;2;{};{};{};48;2;{};{};{}m▀".format(*top, *bottom) for top, bottom in cells) + "\x1b[0m"


def _shaded(picture: Pixels, shades: str) -> Iterator[str]:
    grey = (picture @ np.array([299, 587, 114])) // 1000 * len(shades) // 256
    for row in grey.tolist():
        yield "".join(shades[level] * 2 for level in row)
