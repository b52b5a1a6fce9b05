"""Pictures on terminals: what is sent decodes to the picture, and damaged or huge images are left out."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from registry.display import Graphics, draw, mark_differences, shrink
from registry.features import Image, Text
from registry.images import decode_picture, encode_png, read_picture

pictures = arrays.arrays(np.uint8, st.tuples(st.integers(1, 20), st.integers(1, 20), st.just(3)))


def read_sixels(text: str) -> Any:
    """A decoder of sixels, after the manual of the VT330."""
    body = text.removeprefix("\x1bPq").removesuffix("\x1b\\")
    width, height = map(int, re.match(r'"1;1;(\d+);(\d+)', body).groups())  # type: ignore[union-attr]
    result, colors = np.zeros((height + 6, width + 1, 3)), {}
    top = left = color = 0
    for sign in re.findall(r"#\d+(?:;\d+){4}|#\d+|!\d+[?-~]|[?-~]|\$|-", body):
        if sign[0] == "#":
            number, *parts = map(int, sign[1:].split(";"))
            color = number
            if parts:
                colors[number] = parts[1:]
        elif sign in "$-":
            left, top = 0, top + 6 * (sign == "-")
        else:
            count = int(sign[1:-1] or 1) if sign[0] == "!" else 1
            for bit in range(6):
                if (ord(sign[-1]) - 63) >> bit & 1:
                    result[top + bit, left : left + count] = colors[color]
            left += count
    return result[:height, :width] * 2.55


@given(pictures)
def test_sixels_are_the_picture_in_six_levels(picture: Any) -> None:
    assert np.abs(read_sixels(draw([picture], Graphics.SIXEL)) - picture).max() <= 26


@given(pictures)
def test_half_blocks_are_the_picture(picture: Any) -> None:
    lines = draw([picture], Graphics.COLORS).split("\n")
    numbers = [
        [list(map(int, it)) for it in re.findall(r"38;2;(\d+);(\d+);(\d+);48;2;(\d+);(\d+);(\d+)", line)]
        for line in lines
    ]
    rows = (
        np.array(numbers)
        .reshape(len(lines), picture.shape[1], 2, 3)
        .transpose(0, 2, 1, 3)
        .reshape(-1, *picture.shape[1:])
    )
    assert (rows[: len(picture)] == picture).all()


@pytest.mark.parametrize("graphics", [Graphics.KITTY, Graphics.ITERM2])
def test_a_png_is_sent_whole(graphics: Graphics) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (60, 50, 3), dtype=np.uint8)
    text = draw([picture, picture], graphics)
    if graphics is Graphics.KITTY:
        chunks = re.findall("\x1b_G([^;]*);([^\x1b]*)\x1b\\\\", text)
        assert [head[-3:] for head, _ in chunks] == ["m=1"] * (len(chunks) - 1) + ["m=0"]
        assert max(len(data) for _, data in chunks) <= 4096
        data = "".join(data for _, data in chunks)
    else:
        data = text.removesuffix("\a").partition(":")[2]
    sheet = decode_picture(read_picture(base64.b64decode(data)), channels=3, wide=False)
    assert (sheet[:, :50] == picture).all()
    assert (sheet[:, 54:] == picture).all()


@given(st.integers(1, 300), st.integers(1, 300), st.integers(4, 100), st.booleans())
def test_a_small_picture_fits(height: int, width: int, side: int, grow: bool) -> None:
    leaf = Image(shape=(None, None, 1))
    picture = shrink(leaf, encode_png(np.full((height, width, 1), 200, np.uint8)), side, grow=grow)
    assert max(picture.shape[:2]) <= side
    assert min(picture.shape) >= 1
    assert (picture == 200).all()


def test_damaged_and_huge_images_are_left_out() -> None:
    leaf, png = Image(shape=(None, None, 3)), encode_png(np.zeros((9, 9, 3), np.uint8))
    assert shrink(leaf, png[:60], 8) is None
    assert shrink(leaf, b"GIF89a", 8) is None

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 2**16, 2**16, 8, 2, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(10**6))) + chunk(b"IEND", b"")
    assert shrink(leaf, bomb, 8) is None


RED = [214, 40, 40]


@given(arrays.arrays(np.uint8, st.tuples(st.integers(1, 60), st.integers(1, 60), st.just(3))), st.data())
def test_a_pixel_that_differs_is_red(pixels: Any, data: Any) -> None:
    changed = pixels.copy()
    place = data.draw(st.tuples(st.integers(0, len(pixels) - 1), st.integers(0, pixels.shape[1] - 1)))
    changed[place] = 255 - changed[place]
    files = encode_png(pixels), encode_png(changed)
    marked = mark_differences(Image(shape=(None, None, 3)), files, 64)
    assert (marked.num_differing, marked.num_pixels) == (1, pixels.shape[0] * pixels.shape[1])
    assert marked.old.shape == marked.new.shape == marked.marked.shape
    times = marked.marked.shape[0] // len(pixels)
    is_red = (marked.marked == RED).all(2)
    assert is_red.sum() == times**2
    assert is_red[place[0] * times, place[1] * times]


def test_a_pixel_of_a_large_image_stays_visible() -> None:
    pixels = np.zeros((1000, 700, 1), np.uint8)
    changed = pixels.copy()
    changed[500, 300] = 1
    marked = mark_differences(Image(shape=(None, None, 1)), (encode_png(pixels), encode_png(changed)), 100)
    assert marked.marked.shape == (100, 70, 3)
    assert np.argwhere((marked.marked == RED).all(2)).tolist() == [[50, 30]]


def test_images_of_other_sizes_have_no_marks_and_damaged_ones_no_pictures() -> None:
    small, large = (encode_png(np.zeros((side, side, 3), np.uint8)) for side in (3, 9))
    marked = mark_differences(Image(shape=(None, None, 3)), (small, large), 60)
    assert (marked.marked, marked.num_pixels) == (None, 0)
    assert mark_differences(Image(shape=(None, None, 3)), (small, small[:30]), 60) is None
    assert mark_differences(Text(), (small, large), 60) is None
