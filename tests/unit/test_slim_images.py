"""The Image handler: its options, its input, and its errors for unsuitable images."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.golden import check_errors
from support.slim_image_checks import COLORS, RAMP, check_problems, decode, pillow_file, problem, strings
from support.slim_image_samples import GREY, PALETTE, RGB, bmp_file, gif_file, png_chunk, png_file, png_header

from registry.errors import CorruptExampleError, WrongTypeError
from registry.slim import FixedLenFeature, TFExampleDecoder, decode_image, image_handler
from registry.slim.data_decoder import as_block
from registry.slim.feature_specs import SparseTensorValue
from registry.slim.image_handler import Image
from registry.wire import encode_example

GOLDEN = Path(__file__).with_name("golden")

# Input.


def test_the_handler_asks_for_two_features_with_the_names_of_tf_slim() -> None:
    assert Image().keys == ["image/encoded", "image/format"]
    assert Image("", "").keys == ["image/encoded", "image/format"]
    handler = Image("picture", "kind", None, 1, np.uint8, False, "INTEGER_FAST")
    assert handler.keys == ["picture", "kind"]
    grey = png_file(RAMP[:, :, :1], 8, GREY)
    assert handler.tensors_to_item({"picture": grey, "kind": b"png"}).shape == (4, 5, 1)


@pytest.mark.parametrize("form", [b"", b"jpeg", "png", strings(b"png"), strings()])
def test_an_image_may_come_in_any_parsed_form(form: Any) -> None:
    png = png_file(RAMP, 8, RGB)
    sparse = SparseTensorValue(np.array([[0]]), strings(png), np.array([1]))
    for image in (png, strings(png), strings(png).reshape(()), sparse):
        np.testing.assert_array_equal(decode(image, form), RAMP)


def test_several_images_need_repeated() -> None:
    png = png_file(RAMP, 8, RGB)
    cases = [(strings(png, png),), (strings(),), (png, strings(b"png", b"png")), (np.array([1, 2]),)]
    check_problems(GOLDEN / "slim_images" / "several_images_need_repeated.txt", cases)


def test_an_array_can_be_written_to() -> None:
    files = [png_file(RAMP, 8, RGB, filters=kinds) for kinds in ((0,), (1,), (2,), (3, 4))]
    files += [bmp_file(RAMP), pillow_file(RAMP, "JPEG"), pillow_file(RAMP, "GIF"), pillow_file(RAMP, "WEBP")]
    for data in files:
        decode(data)[:] = 0
    decode(RAMP.tobytes(), b"raw")[:] = 0


# Options.


def test_invalid_options_are_refused() -> None:
    check_errors(
        GOLDEN / "slim_images" / "invalid_options_are_refused.txt",
        (
            partial(lambda options: Image(**options), row)
            for row in [
                {"channels": 2},
                {"channels": None},
                {"dct_method": "FAST"},
                {"shape": (-1, -1, 3)},
                {"shape": (-2,)},
                {"shape": (None, None, 3)},
                {"shape": [1, [2, 3]]},
                {"shape": [2**40]},
                {"shape": [float("inf")]},
            ]
        ),
    )


def test_options_of_another_type_are_refused() -> None:
    check_errors(
        GOLDEN / "slim_images" / "options_of_another_type_are_refused.txt",
        (
            partial(lambda options: Image(**options), row)
            for row in [{"dtype": "string"}, {"dtype": bool}, {"dtype": "uint7"}]
        ),
    )


def test_a_dtype_of_tensorflow_is_read_by_its_numpy_equivalent() -> None:
    class Float32:
        as_numpy_dtype = np.float32

    png = png_file(RAMP, 8, RGB)
    for dtype in (Float32(), "float32", np.float32, np.dtype("float32")):
        assert decode(png, dtype=dtype).dtype == np.float32


# Formats.


def test_the_first_bytes_decide_the_format_whatever_the_record_states() -> None:
    np.testing.assert_array_equal(decode(png_file(RAMP, 8, RGB), b"jpeg"), RAMP)
    np.testing.assert_array_equal(decode(bmp_file(RAMP), b"png"), RAMP)


def test_raw_values_are_in_one_row_unless_a_shape_is_given() -> None:
    data = RAMP.tobytes()
    assert decode(data, b"raw").shape == (60,)
    np.testing.assert_array_equal(decode(data, b"RAW", shape=[4, 5, 3]), RAMP)
    np.testing.assert_array_equal(decode(b"\1\0\0\1", b"raw", dtype="uint16"), [1, 256])
    assert decode(b"", b"raw").shape == (0,)


def test_data_that_is_no_image_is_refused() -> None:
    """Raw bytes that end within a value, a third spelling of raw, a missing image, and JPEG XL."""
    raw = (b"12345", b"raw", {"dtype": "float32"})
    cases = [raw, (RAMP.tobytes(), b"Raw", {"shape": [4, 5, 3]}), (b"",), (b"\xff\x0a1234",)]
    check_problems(GOLDEN / "slim_images" / "data_that_is_no_image_is_refused.txt", cases)


def test_shape_arranges_the_values_and_resizes_nothing() -> None:
    png = png_file(RAMP, 8, RGB)
    np.testing.assert_array_equal(decode(png, shape=(5, 4, 3)), RAMP.reshape(5, 4, 3))
    np.testing.assert_array_equal(decode(png, shape=(-1, 3)), RAMP.reshape(-1, 3))
    cases = [(png, b"", {"shape": [9, 9, 3]}), (png, b"", {"shape": [-1, 7]}), (b"", b"raw", {"shape": [-1, 0]})]
    check_problems(GOLDEN / "slim_images" / "shape_resizes_nothing.txt", cases)


def test_repeated_images_are_stacked() -> None:
    one, other = png_file(RAMP, 8, RGB), bmp_file(RAMP + 1)
    np.testing.assert_array_equal(decode(strings(one, other), repeated=True), [RAMP, RAMP + 1])
    assert decode(strings(), repeated=True, shape=(4, 5, 3), dtype="float32").shape == (0, 4, 5, 3)
    images = (strings(), strings(one, png_file(RAMP[:2], 8, RGB)), strings(one, b""))
    cases = [(image, b"", {"repeated": True}) for image in images]
    check_problems(GOLDEN / "slim_images" / "repeated_images_are_stacked.txt", cases)


# Size.


def sized(data: bytes, place: int, *numbers: tuple[int, int, Any]) -> bytes:
    body = b"".join(number.to_bytes(length, order) for number, length, order in numbers)
    return data[:place] + body + data[place + len(body) :]


LARGE = {
    "png": png_header(20000, 10000, 8, RGB) + png_chunk(b"IDAT", b"") + png_chunk(b"IEND", b""),
    "bmp": sized(bmp_file(RAMP), 18, (10000, 4, "little"), (20000, 4, "little")),
    "webp": sized(b"RIFF....WEBPVP8X" + bytes(20), 24, (9999, 3, "little"), (19999, 3, "little")),
    "jpeg": b"\xff\xd8\xff\xc0\0\x11\x08" + b"\x4e\x20\x27\x10" + b"\x03" + bytes(20),
}


def test_a_size_is_refused_before_anything_is_inflated() -> None:
    blank = b",\0\0\0\0\x10\x27\x10\x27\0\x08\x02\0\x01\0"
    frames = gif_file((9, 9), [blank, blank], palette=COLORS)  # they count together
    empty = [png_header(0, 5, 8, RGB) + png_chunk(b"IEND", b""), sized(LARGE["jpeg"], 7, (0, 2, "big"))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cases = [(data,) for data in (*LARGE.values(), frames, *empty)]
        check_problems(GOLDEN / "slim_images" / "a_size_is_refused_before_anything_is_inflated.txt", cases)


def test_repeated_images_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_handler, "MAX_PIXELS", 30)
    png = png_file(RAMP, 8, RGB)
    assert decode(strings(png), repeated=True).shape == (1, 4, 5, 3)
    assert problem(strings(png, png), repeated=True)[0] == (
        "image 1: an image of 4 x 5 pixels: a record may ask for MAX_PIXELS = 178956970, of which 10 are left"
    )


@pytest.mark.parametrize("bad", [None, 0, 6, 13])
def test_large_images_of_many_records_equal_those_of_each_record_alone(bad: int | None) -> None:
    features = {key: FixedLenFeature((), "string", "") for key in ("image/encoded", "image/format")}
    decoder = TFExampleDecoder(features, {"image": Image()})
    random = np.random.default_rng(3)
    images = [random.integers(0, 256, (40, 40, 3), dtype=np.uint8) for _ in range(14)]
    files = [pillow_file(image, "PNG") for image in images]
    assert min(map(len, files)) > 4096
    if bad is not None:
        files[bad] = files[bad][:-20]
    records = as_block([encode_example({"image/encoded": [file]}) for file in files])
    rows = decoder.decode_rows(records, ["image"])
    for image, (found,) in zip(images[:bad], rows, strict=False):
        np.testing.assert_array_equal(found, image)
    if bad is None:
        assert list(rows) == []
        return
    rows = decoder.decode_rows(records, ["image"])
    for _ in range(bad):
        next(rows)
    with pytest.raises(CorruptExampleError) as caught:
        next(rows)
    assert caught.value.message == "feature 'image/encoded': a damaged PNG: it is truncated"
    assert caught.value.details["record"] == bad


def test_an_image_is_decoded_by_a_function_too() -> None:
    png = pillow_file(RAMP, "PNG")
    np.testing.assert_array_equal(decode_image(png), RAMP)
    assert decode_image(png, 1, "float32").shape == (4, 5, 1)
    assert decode_image(pillow_file(RAMP, "GIF", "RGB")).shape == (1, 4, 5, 3)
    with pytest.raises(CorruptExampleError) as caught:
        decode_image(b"")
    assert caught.value.message == "feature 'image': the image is empty"


@pytest.mark.parametrize("path", ["x.png", Path("x.png")])
def test_a_path_is_not_decoded_but_the_error_says_how(path: Any) -> None:
    with pytest.raises(WrongTypeError, match=r"^an image must be bytes, not the path 'x\.png'") as caught:
        decode_image(path)
    assert caught.value.hint == "Read the file: decode_image(pathlib.Path(...).read_bytes())"


def test_images_that_are_decoded_together_have_palettes_and_memory_of_their_own() -> None:
    numbers = np.array([[[0], [1]], [[2], [3]]])
    palettes = [bytes(reversed(COLORS)) if place % 3 else COLORS for place in range(40)]
    for some in (palettes, palettes[:1] * 40):
        pngs = [png_file(numbers, 2, PALETTE, palette=palette) for palette in some]
        records = [encode_example({"image/encoded": [png], "image/format": [b"png"]}) for png in pngs]
        features = {key: FixedLenFeature((), "string") for key in ("image/encoded", "image/format")}
        decoder = TFExampleDecoder(features, {"image": Image()})
        rows = [image for (image,) in decoder.decode_rows(as_block(records), ["image"])]
        for png, row in zip(pngs, rows, strict=True):
            np.testing.assert_array_equal(row, decode(png))
        assert rows[0].base is None or not np.shares_memory(rows[0], rows[1])
        assert rows[0].nbytes == (rows[0] if rows[0].base is None else rows[0].base).nbytes
