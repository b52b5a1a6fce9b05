"""Laws of images: samples come back, Pillow changes nothing, and damage ends in one kind of error."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow
from support.levels import examples
from support.slim_image_checks import decode, problem
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
from registry.slim import FixedLenFeature, TFExampleDecoder
from registry.slim.data_decoder import as_block
from registry.slim.image_handler import Image
from registry.wire import encode_example

_SIZES = st.integers(1, 11)
_FILTERS = st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple)


@st.composite
def pngs(draw: st.DrawFn) -> tuple[bytes, np.ndarray[Any, Any], int, int]:
    """A PNG without transparency, its samples, bits and colour type."""
    color = draw(st.sampled_from(sorted(PNG_CHANNELS)))
    depth = draw(st.sampled_from(PNG_DEPTHS[color]))
    shape = (draw(_SIZES), draw(_SIZES), PNG_CHANNELS[color])
    samples = np.random.default_rng(draw(st.integers(0, 2**32))).integers(0, 1 << depth, shape)
    palette = bytes(range(256)) * 3 if color == PALETTE else b""
    interlaced, filters = draw(st.booleans()), draw(_FILTERS)
    png = png_file(samples, depth, color, interlaced=interlaced, palette=palette[: 3 << depth], filters=filters)
    return png, samples, depth, color


@given(pngs())
def test_the_samples_of_a_png_come_back(sample: tuple[bytes, np.ndarray[Any, Any], int, int]) -> None:
    png, samples, depth, color = sample
    scaled = samples * (65535 // ((1 << depth) - 1))
    expected = (3 * samples + np.arange(3)) % 256 * 257 if color == PALETTE else scaled
    found = decode(png, channels=0, dtype="uint16")
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(decode(png, channels=0), found >> 8)


@given(pngs(), st.sampled_from([0, 1, 3, 4]), st.sampled_from(["uint8", "uint16", "float32"]))
def test_pillow_changes_nothing_of_a_png(
    sample: tuple[bytes, np.ndarray[Any, Any], int, int], channels: int, dtype: str
) -> None:
    found = decode(sample[0], channels=channels, dtype=dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "PIL", None)
        np.testing.assert_array_equal(decode(sample[0], channels=channels, dtype=dtype), found)


@st.composite
def many_pngs(draw: st.DrawFn) -> list[bytes]:
    """Four or more PNGs that differ in samples and filters; some may be transparent, different or cut off."""
    color = draw(st.sampled_from(sorted(PNG_CHANNELS)))
    depth = draw(st.sampled_from(PNG_DEPTHS[color]))
    random, height, width = np.random.default_rng(draw(st.integers(0, 2**32))), draw(_SIZES), draw(_SIZES)
    palette = bytes(range(256)) * 3 if color == PALETTE else b""
    see_through = {RGB: b"\0\1\0\1\0\1", GREY: b"\0\1", PALETTE: b"\7"}.get(color, b"")
    place, change = draw(st.integers(0, 3)), draw(st.sampled_from(["none", "key", "other", "cut"]))
    files = []
    for number, filters in enumerate(draw(st.lists(_FILTERS, min_size=4, max_size=6))):
        samples = random.integers(0, min(3, 1 << depth), (height, width, PNG_CHANNELS[color]))
        key = see_through if change == "key" and number >= place else b""
        files.append(png_file(samples, depth, color, palette=palette[: 3 << depth], transparency=key, filters=filters))
    if change == "other":
        files[place] = draw(pngs())[0]
    if change == "cut":
        files[place] = files[place][: draw(st.integers(-30, -1))]
    return files


@given(many_pngs(), st.sampled_from([0, 1, 3, 4]), st.sampled_from(["uint8", "uint16", "float32"]))
def test_small_pngs_of_many_records_equal_those_of_each_record_alone(
    files: list[bytes], channels: int, dtype: str
) -> None:
    features = {key: FixedLenFeature((), "string", "") for key in ("image/encoded", "image/format")}
    decoder = TFExampleDecoder(features, {"image": Image(channels=channels, dtype=dtype)})
    rows = decoder.decode_rows(as_block([encode_example({"image/encoded": [file]}) for file in files]), ["image"])
    for place, file in enumerate(files):
        if file.endswith(png_chunk(b"IEND", b"")):
            (found,) = next(rows)
            np.testing.assert_array_equal(found, decode(file, channels=channels, dtype=dtype), strict=True)
            assert found.flags.writeable
            continue
        with pytest.raises(CorruptExampleError) as caught:
            next(rows)
        assert caught.value.message == f"feature 'image/encoded': {problem(file)[0]}"
        assert caught.value.details["record"] == place
        return
    assert list(rows) == []


@given(
    st.tuples(_SIZES, _SIZES, st.sampled_from([1, 3])),
    st.sampled_from(["uint8", "int16", "float32", "float64", "int64"]),
    st.integers(0, 2**32),
)
def test_raw_values_of_any_dtype_come_back(shape: tuple[int, int, int], dtype: str, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)
    data = values.astype(values.dtype.newbyteorder("<")).tobytes()
    found = decode(data, b"raw", dtype=dtype, shape=shape)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(decode(data, b"RAW", dtype=dtype), values.reshape(-1))


@given(_SIZES, _SIZES, st.sampled_from([1, 3, 4]), st.booleans(), st.integers(0, 2**32))
def test_a_bmp_comes_back(height: int, width: int, channels: int, top_down: bool, seed: int) -> None:
    samples = np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)
    np.testing.assert_array_equal(decode(bmp_file(samples, top_down=top_down), channels=0), samples)


@given(_SIZES, _SIZES, st.booleans(), st.integers(1, 8), st.integers(0, 2**32))
def test_the_colours_of_a_gif_come_back(height: int, width: int, interlaced: bool, bits: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    colors = random.integers(0, 256, (1 << bits, 3), dtype=np.uint8)
    numbers = random.integers(0, 1 << bits, (height, width), dtype=np.uint8)
    gif = gif_file((height, width), [gif_frame(numbers, interlaced=interlaced)], palette=colors.tobytes())
    np.testing.assert_array_equal(decode(gif)[0], colors[numbers])


def _samples() -> dict[str, bytes]:
    values = np.random.default_rng(0).integers(0, 256, (9, 11, 3), dtype=np.uint8)
    picture, files = Pillow.fromarray(values), {}
    turned = [picture.rotate(90), picture.rotate(180)]
    for name, image, form, options in (
        ("jpeg", picture, "JPEG", {}),
        ("progressive", picture, "JPEG", {"progressive": True}),
        ("cmyk", picture.convert("CMYK"), "JPEG", {}),
        ("webp", picture, "WEBP", {}),
        ("webp lossless", picture.convert("RGBA"), "WEBP", {"lossless": True}),
        ("webp moving", picture, "WEBP", {"save_all": True, "append_images": turned}),
        ("gif moving", picture, "GIF", {"save_all": True, "append_images": turned}),
    ):
        file = io.BytesIO()
        image.save(file, form, **options)
        files[name] = file.getvalue()
    numbers = values[:, :, :1]
    files["png"] = png_file(values, 8, RGB, filters=(0, 1, 2, 3, 4))
    files["png wide"] = png_file(values.astype(int) * 255, 16, RGB, interlaced=True, filters=(4, 3))
    files["png palette"] = png_file(numbers & 15, 4, PALETTE, palette=bytes(48), transparency=b"12", interlaced=True)
    files["bmp"] = bmp_file(values)
    files["gif"] = gif_file((9, 11), [gif_frame(numbers[:, :, 0], transparent=3)], palette=bytes(768))
    return files


_FILES = _samples()


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    """A file cut off, or with some bytes changed, taken away or put in; the checksums of a PNG are put right."""
    name = draw(st.sampled_from(sorted(_FILES)))
    data = bytearray(_FILES[name])
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, min(len(data), draw(st.sampled_from([40, 10_000])))))
        data[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    if draw(st.booleans()):
        data = data[: draw(st.integers(0, len(data)))]
    return _checked(bytes(data)) if name.startswith("png") and draw(st.booleans()) else bytes(data)


def _checked(data: bytes) -> bytes:
    chunks, place = [data[:8]], 8
    while place + 12 <= len(data):
        stop = place + 8 + int.from_bytes(data[place : place + 4], "big")
        chunks.append(png_chunk(data[place + 4 : place + 8], data[place + 8 : stop]))
        place = stop + 4
    return b"".join(chunks)


@settings(max_examples=examples(1000))
@given(damaged_files(), st.sampled_from([0, 1, 3, 4]), st.sampled_from(["uint8", "uint16", "float32", "int32"]))
def test_a_damaged_file_is_an_image_or_a_corrupt_example(data: bytes, channels: int, dtype: str) -> None:
    with contextlib.suppress(CorruptExampleError):
        found = decode(data, channels=channels, dtype=dtype)
        assert found.dtype == dtype
        assert found.ndim in (3, 4)
        assert found.shape[-1] == channels or not channels
