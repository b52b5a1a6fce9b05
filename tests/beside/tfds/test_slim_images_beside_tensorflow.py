"""Random images of every kind decode to the same bits as with ``tf.io.decode_image``.

JPEG matches with ``INTEGER_ACCURATE``; its grey and colour images also with ``INTEGER_FAST``. A BMP is compared as
uint8, because TensorFlow 2.21 corrupts its own memory when it converts one to another dtype.
"""

from __future__ import annotations

import io
import itertools
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow
from support.slim_image_samples import (
    GREY,
    PALETTE,
    PNG_CHANNELS,
    PNG_DEPTHS,
    RGB,
    bmp_file,
    gif_file,
    gif_frame,
    png_chunk,
    png_file,
)

from registry.errors import CorruptExampleError
from registry.slim.image_handler import Image

pytestmark = [pytest.mark.tfds, pytest.mark.filterwarnings("ignore")]

CHANNELS = (0, 1, 3, 4)
DTYPES = (
    *("uint8", "uint16", "float32", "int8", "int16", "int32", "int64"),
    *("uint32", "uint64", "float16", "float64", "bfloat16"),
)
KINDS = [(color, depth) for color in PNG_CHANNELS for depth in PNG_DEPTHS[color]]


def compare(tf: Any, data: bytes, channels: int, dtype: str = "uint8") -> Any:
    """Check that both decode to the same array, or both refuse; return the array, or None."""
    try:
        if data.startswith(b"\xff\xd8\xff"):
            expected = tf.cast(tf.io.decode_jpeg(data, channels, dct_method="INTEGER_ACCURATE"), dtype).numpy()
        else:
            expected = tf.io.decode_image(data, channels, getattr(tf, dtype)).numpy()
    except tf.errors.InvalidArgumentError:
        with pytest.raises(CorruptExampleError):
            decode(data, channels=channels, dtype=dtype)
        return None
    found = decode(data, channels=channels, dtype=getattr(tf, dtype))
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)
    return found


def decode(data: bytes, **options: Any) -> Any:
    return Image(**options).tensors_to_item({"image/encoded": data, "image/format": b""})


def pillow_file(array: np.ndarray[Any, Any], form: str, mode: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Pillow.frombytes(mode, array.shape[1::-1], array.tobytes()).save(file, form, **options)
    return file.getvalue()


@pytest.mark.parametrize("transparent", [False, True])
@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(("color", "depth"), KINDS)
def test_png(tf: Any, color: int, depth: int, interlaced: bool, transparent: bool) -> None:
    random = np.random.default_rng(color * 100 + depth)
    for shape in ((1, 1), (3, 2), (7, 9), (13, 21)):
        samples = random.integers(0, 1 << depth, (*shape, PNG_CHANNELS[color]))
        palette = random.bytes(3 << depth) if color == PALETTE else b""
        transparency = b""
        if transparent and color == PALETTE:
            transparency = random.bytes(random.integers(1, (1 << depth) + 1))
        elif transparent and color in (GREY, RGB):
            transparency = samples[0, 0].astype(">u2").tobytes()
        filters = tuple(random.integers(0, 5, 7).tolist())
        png = png_file(
            *(samples, depth, color),
            interlaced=interlaced,
            palette=palette,
            transparency=transparency,
            filters=filters,
        )
        for channels, dtype in itertools.product(CHANNELS, DTYPES if shape == (3, 2) else DTYPES[:3]):
            compare(tf, png, channels, dtype)


@pytest.mark.parametrize("chunk", [("gAMA", 45455), ("gAMA", 60001), ("gAMA", 100_000), ("sRGB", None)])
@pytest.mark.parametrize(("color", "depth"), [(RGB, 8), (RGB, 16), (PALETTE, 4), (PALETTE, 8)])
def test_grey_of_a_png_with_a_gamma_chunk_equals_that_of_tensorflow(
    tf: Any, color: int, depth: int, chunk: tuple[str, int | None]
) -> None:
    random = np.random.default_rng(depth)
    samples = random.integers(0, 1 << depth, (40, 50, PNG_CHANNELS[color]))
    samples[0] = samples[0, :, :1]  # grey already
    png = png_file(samples, depth, color, palette=random.bytes(3 << depth) if color == PALETTE else b"")
    name, gamma = chunk
    said = png_chunk(name.encode(), b"\0" if gamma is None else gamma.to_bytes(4, "big"))
    for channels, dtype in itertools.product(CHANNELS, DTYPES[:3]):
        compare(tf, png[:33] + said + png[33:], channels, dtype)


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpeg(tf: Any, mode: str) -> None:
    random = np.random.default_rng(7)
    for place in range(12):
        height, width = random.integers(1, 40, 2).tolist()
        blocks = random.integers(0, 256, (10, 10, len(mode)), dtype=np.uint8)
        array = np.ascontiguousarray(blocks.repeat(4, 0).repeat(4, 1)[:height, :width])
        sampling = {"subsampling": place % 3} if mode == "RGB" else {}
        quality = int(random.integers(30, 100))
        data = pillow_file(array, "JPEG", mode, quality=quality, progressive=bool(place % 2), **sampling)
        for channels in CHANNELS:
            if (mode, channels) == ("CMYK", 1):  # TensorFlow cannot convert CMYK to grey
                assert decode(data, channels=1).shape == (height, width, 1)
                continue
            exact = compare(tf, data, channels)
            compare(tf, data, channels, DTYPES[place % len(DTYPES)])
            if exact is None:
                continue
            default = tf.io.decode_jpeg(data, channels).numpy()
            assert np.abs(exact.astype(int) - default).max() <= 15
            if mode != "CMYK":
                np.testing.assert_array_equal(decode(data, channels=channels, dct_method="INTEGER_FAST"), default)


@pytest.mark.parametrize("top_down", [False, True])
@pytest.mark.parametrize("stored", [1, 3, 4])
def test_bmp(tf: Any, stored: int, top_down: bool) -> None:
    random = np.random.default_rng(stored)
    for shape in ((1, 1), (3, 5), (8, 8), (13, 7)):
        samples = random.integers(0, 256, (*shape, stored), dtype=np.uint8)
        for channels in CHANNELS:
            compare(tf, bmp_file(samples, top_down=top_down), channels)


def test_gif(tf: Any) -> None:
    random = np.random.default_rng(11)
    for place in range(40):
        num_colors = (2, 4, 16, 256)[place % 4]
        height, width = random.integers(1, 12, 2).tolist()
        frames = []
        for _ in range(random.integers(1, 5)):
            rows, columns = int(random.integers(1, height + 1)), int(random.integers(1, width + 1))
            frames.append(
                gif_frame(
                    random.integers(0, num_colors, (rows, columns), dtype=np.uint8),
                    left=int(random.integers(0, width - columns + 1)),
                    top=int(random.integers(0, height - rows + 1)),
                    transparent=int(random.integers(0, num_colors)) if random.random() < 0.5 else None,
                    disposal=int(random.integers(0, 4)),
                    palette=random.bytes(3 * num_colors) if random.random() < 0.3 else b"",
                    interlaced=bool(random.integers(0, 2)),
                )
            )
        gif = gif_file((height, width), frames, palette=random.bytes(3 * num_colors))
        for channels, dtype in itertools.product(CHANNELS, ("uint8", "uint16", "float32", "int32", "float64")):
            compare(tf, gif, channels, dtype)


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_webp(tf: Any, mode: str, lossless: bool) -> None:
    random = np.random.default_rng(13)
    for quality in (10, 50, 90):
        array = random.integers(0, 256, (*random.integers(1, 40, 2).tolist(), len(mode)), dtype=np.uint8)
        data = pillow_file(array, "WEBP", mode, quality=quality, lossless=lossless)
        for channels, dtype in itertools.product(CHANNELS, ("uint8", "float32")):
            compare(tf, data, channels, dtype)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype not in ("uint32", "uint64")])
def test_raw(tf: Any, dtype: str) -> None:
    data = np.random.default_rng(17).bytes(48)
    found = Image(dtype=dtype).tensors_to_item({"image/encoded": data, "image/format": b"raw"})
    assert found.tobytes() == tf.io.decode_raw(data, getattr(tf, dtype)).numpy().tobytes()


@pytest.mark.parametrize("cut", [1, 2, 8, 30])
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_files_that_are_cut_off_are_refused(tf: Any, form: str, cut: int) -> None:
    array = np.random.default_rng(19).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    assert compare(tf, pillow_file(array, form, "RGB")[:-cut], 3) is None
