"""The Image handler: what its options mean, what each format gives, and what it says of images that do not do."""

from __future__ import annotations

import io
import warnings
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow
from slim_image_samples import GREY, PALETTE, RGB, RGBA, bmp_file, gif_file, gif_frame, png_chunk, png_file, png_header

from registry.errors import CorruptExampleError, MissingExtraError, UsageError, WrongTypeError
from registry.slim import image_codec, image_handler, png_images
from registry.slim.image_handler import Image
from registry.slim.sparse import SparseTensorValue

RAMP = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
COLORS = bytes(range(12))


def decode(image: Any, form: Any = b"", **options: Any) -> Any:
    return Image(**options).tensors_to_item({"image/encoded": image, "image/format": form})


def problem(image: Any, form: Any = b"", **options: Any) -> tuple[str, str | None]:
    with pytest.raises(CorruptExampleError) as caught:
        decode(image, form, **options)
    assert caught.value.details["feature"] == "image/encoded"
    return caught.value.message.removeprefix("feature 'image/encoded': "), caught.value.hint


def strings(*values: bytes) -> np.ndarray[Any, Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def pillow_file(array: np.ndarray[Any, Any], form: str, mode: str | None = None, **options: Any) -> bytes:
    file = io.BytesIO()
    image = Pillow.fromarray(array) if mode is None else Pillow.frombytes(mode, array.shape[1::-1], array.tobytes())
    image.save(file, form, **options)
    return file.getvalue()


def drafted(data: bytes, mode: str) -> Any:
    """A JPEG as libjpeg itself converts it."""
    image = Pillow.open(io.BytesIO(data))
    image.draft(mode, image.size)
    return image


@pytest.fixture
def without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_codec, "_pillow", lambda: None)


# What comes in.


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
    assert problem(strings(png, png)) == (
        "2 images in 'image/encoded', where one belongs",
        "Image(repeated=True) takes several or none.",
    )
    assert problem(strings())[0] == "0 images in 'image/encoded', where one belongs"
    assert problem(png, strings(b"png", b"png")) == (
        "2 formats in 'image/format', where one belongs",
        "All images of a record have one format.",
    )
    assert problem(np.array([1, 2])) == (
        "it holds int and no strings",
        "Parse it with FixedLenFeature((), 'string').",
    )


def test_an_array_can_be_written_to() -> None:
    files = [png_file(RAMP, 8, RGB, filters=kinds) for kinds in ((0,), (1,), (2,), (3, 4))]
    files += [bmp_file(RAMP), pillow_file(RAMP, "JPEG"), pillow_file(RAMP, "GIF"), pillow_file(RAMP, "WEBP")]
    for data in files:
        decode(data)[:] = 0
    decode(RAMP.tobytes(), b"raw")[:] = 0


# Options.


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"channels": 2}, "channels=2", "Give 1, 3 or 4, or 0 for those of the file."),
        ({"channels": None}, "channels=None", "Give 1, 3 or 4, or 0 for those of the file."),
        ({"dct_method": "FAST"}, "dct_method='FAST'", "Give '', 'INTEGER_FAST' or 'INTEGER_ACCURATE'."),
        (
            {"shape": (-1, -1, 3)},
            "shape=[-1, -1, 3]",
            "Give whole numbers, [height, width, channels]; one of them may be -1.",
        ),
        ({"shape": (-2,)}, "shape=[-2]", "Give whole numbers, [height, width, channels]; one of them may be -1."),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Image(**options)
    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (
            {"shape": (None, None, 3)},
            "shape=(None, None, 3)",
            "Give whole numbers, [height, width, channels]; one of them may be -1.",
        ),
        ({"shape": 5}, "shape=5", "Give whole numbers, [height, width, channels]; one of them may be -1."),
        ({"dtype": "string"}, "dtype='string' of an image", "Give a dtype of numbers, e.g. uint8 or float32."),
        ({"dtype": bool}, "dtype=<class 'bool'> of an image", "Give a dtype of numbers, e.g. uint8 or float32."),
        ({"dtype": "uint7"}, "dtype='uint7': 'uint7' is no dtype", "Give a dtype of numbers."),
    ],
)
def test_options_of_another_type_are_refused(options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(WrongTypeError) as caught:
        Image(**options)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_dtype_of_tensorflow_is_known_by_what_it_is_for_numpy() -> None:
    class Float32:
        as_numpy_dtype = np.float32

    png = png_file(RAMP, 8, RGB)
    for dtype in (Float32(), "float32", np.float32, np.dtype("float32")):
        assert decode(png, dtype=dtype).dtype == np.float32


# Formats.


def test_the_first_bytes_tell_the_format_whatever_the_record_says() -> None:
    np.testing.assert_array_equal(decode(png_file(RAMP, 8, RGB), b"jpeg"), RAMP)
    np.testing.assert_array_equal(decode(bmp_file(RAMP), b"png"), RAMP)


def test_raw_values_are_in_one_row_unless_a_shape_is_given() -> None:
    data = RAMP.tobytes()
    assert decode(data, b"raw").shape == (60,)
    np.testing.assert_array_equal(decode(data, b"RAW", shape=[4, 5, 3]), RAMP)
    np.testing.assert_array_equal(decode(b"\1\0\0\1", b"raw", dtype="uint16"), [1, 256])
    assert decode(b"", b"raw").shape == (0,)


def test_raw_bytes_that_are_no_whole_number_of_values_are_refused() -> None:
    assert problem(b"12345", b"raw", dtype="float32") == (
        "5 raw bytes are no whole number of float32 of 4 bytes",
        "Give Image the dtype that was written, or write the format of the encoded image, e.g. png.",
    )


def test_only_two_spellings_mean_raw() -> None:
    assert problem(RAMP.tobytes(), b"Raw", shape=[4, 5, 3]) == (
        "no image of a known format: it starts with b'\\x00\\x01\\x02\\x03\\x04\\x05\\x06\\x07'",
        "JPEG, PNG, BMP, GIF and WebP are read. "
        "Raw values have the format 'raw' or 'RAW' in the record, written just so.",
    )


def test_an_empty_image_is_a_missing_one() -> None:
    assert problem(b"") == (
        "the image is empty",
        "No image was stored: default_value='' stands for a missing one. Write one, or leave such records out.",
    )


def test_jpeg_xl_is_named() -> None:
    assert problem(b"\xff\x0a1234") == (
        "a JPEG XL, which is not read: JPEG, PNG, BMP, GIF and WebP are read",
        "Store it as PNG or JPEG.",
    )


def test_shape_arranges_the_values_and_resizes_nothing() -> None:
    png = png_file(RAMP, 8, RGB)
    np.testing.assert_array_equal(decode(png, shape=(5, 4, 3)), RAMP.reshape(5, 4, 3))
    np.testing.assert_array_equal(decode(png, shape=(-1, 3)), RAMP.reshape(-1, 3))
    hint = "shape only arranges the values: nothing is resized. Give the shape that was stored, or none."
    assert problem(png, shape=[9, 9, 3]) == ("it has 4 x 5 x 3 = 60 values, and shape=[9, 9, 3] takes 243", hint)
    assert problem(png, shape=[-1, 7]) == (
        "it has 4 x 5 x 3 = 60 values, and shape=[-1, 7] takes a multiple of 7",
        hint,
    )
    assert problem(b"", b"raw", shape=[-1, 0]) == ("it has 0 values, and shape=[-1, 0] takes a multiple of 0", hint)


def test_repeated_images_are_stacked() -> None:
    one, other = png_file(RAMP, 8, RGB), bmp_file(RAMP + 1)
    np.testing.assert_array_equal(decode(strings(one, other), repeated=True), [RAMP, RAMP + 1])
    assert decode(strings(), repeated=True, shape=(4, 5, 3), dtype="float32").shape == (0, 4, 5, 3)
    assert problem(strings(), repeated=True) == (
        "there are no images, and their shape is not known",
        "Give Image the shape of one, all sizes, to get an array of none.",
    )
    assert problem(strings(one, png_file(RAMP[:2], 8, RGB)), repeated=True) == (
        "image 1 has the shape [2, 5, 3], and those before it [4, 5, 3]",
        "Images of one record are stacked. Write them in one size, or one to a record.",
    )
    assert problem(strings(one, b""), repeated=True)[0] == "image 1: the image is empty"


# PNG: the rest stands beside TensorFlow in tests/tfds.


def test_a_png_of_16_bits_keeps_them_only_in_a_wide_dtype() -> None:
    png = png_file(np.array([[[0, 255, 256], [65535, 4660, 1]]]), 16, RGB)
    np.testing.assert_array_equal(decode(png, dtype="uint16"), [[[0, 255, 256], [65535, 4660, 1]]])
    np.testing.assert_array_equal(decode(png), [[[0, 0, 1], [255, 18, 0]]])
    np.testing.assert_array_equal(decode(png, dtype="float32")[0, 1, :1], [1])
    np.testing.assert_array_equal(decode(png, dtype="int8")[0, 1], [127, 9, 0])


def test_a_palette_with_transparency_has_four_channels_of_its_own() -> None:
    numbers = np.array([[[0], [1], [2], [3]]])
    png = png_file(numbers, 2, PALETTE, palette=COLORS, transparency=b"\x07\x08")
    np.testing.assert_array_equal(
        decode(png, channels=0), [[[0, 1, 2, 7], [3, 4, 5, 8], [6, 7, 8, 255], [9, 10, 11, 255]]]
    )
    np.testing.assert_array_equal(decode(png), [[[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]])


def test_transparency_is_dropped_and_not_mixed_in() -> None:
    png = png_file(np.array([[[200, 100, 50, 0]]]), 8, RGBA)
    np.testing.assert_array_equal(decode(png), [[[200, 100, 50]]])
    np.testing.assert_array_equal(decode(png, channels=1), [[[(200 * 299 + 100 * 587 + 50 * 114) // 1000]]])


def test_grey_of_a_png_that_says_its_gamma_is_mixed_as_light() -> None:
    plain = png_file(np.array([[[255, 0, 0], [9, 9, 9]]]), 8, RGB)
    srgb = plain[:33] + png_chunk(b"sRGB", b"\0") + plain[33:]
    assert decode(plain, channels=1).ravel().tolist() == [76, 9]
    assert decode(srgb, channels=1).ravel().tolist() == [147, 9]


@pytest.mark.parametrize("filters", [(0, 1, 2, 3, 4), (4,)])
@pytest.mark.parametrize("depth", [8, 16])
@pytest.mark.parametrize("color", [GREY, RGB, RGBA])
@pytest.mark.usefixtures("without_pillow")
def test_png_and_bmp_need_no_pillow(color: int, depth: int, filters: tuple[int, ...]) -> None:
    channels = {GREY: 1, RGB: 3, RGBA: 4}[color]
    samples = np.random.default_rng(3).integers(0, 1 << depth, (9, 7, channels))
    for interlaced in (False, True):
        png = png_file(samples, depth, color, filters=filters, interlaced=interlaced)
        wide = decode(png, channels=channels, dtype="uint16")
        np.testing.assert_array_equal(wide, samples * (257 if depth == 8 else 1))
    np.testing.assert_array_equal(decode(bmp_file(RAMP)), RAMP)


@pytest.mark.parametrize(("form", "name"), [("JPEG", "JPEG"), ("GIF", "GIF"), ("WEBP", "WebP")])
def test_other_formats_need_pillow(monkeypatch: pytest.MonkeyPatch, form: str, name: str) -> None:
    data = pillow_file(RAMP, form)
    monkeypatch.setattr(image_codec, "_pillow", lambda: None)
    with pytest.raises(MissingExtraError) as caught:
        decode(data)
    assert caught.value.message == f"decoding {name} images needs the package 'pillow', which is not installed"
    assert caught.value.hint == "Install it with: pip install 'dataset-registry[image]'"


DAMAGED_PNG = {
    "it is truncated": png_file(RAMP, 8, RGB)[:-5],
    "the checksum of chunk 'IHDR' is wrong": png_header(4, 5, 8, RGB)[:-1] + b"x",
    "it says 3 bits with colour type 0": png_header(4, 5, 3, GREY) + png_chunk(b"IEND", b""),
    "it holds 0 bytes, where 64 belong": png_header(4, 5, 8, RGB) + png_chunk(b"IEND", b""),
    "its palette has 0 bytes": png_file(RAMP[:, :, :1] & 1, 8, PALETTE),
    "its chunk tRNS has 3 bytes": png_file(RAMP, 8, RGB, transparency=b"123"),
    "it has an unknown filter": png_header(1, 1, 8, GREY)
    + png_chunk(b"IDAT", b"x\x01\x01\x02\x00\xfd\xff\x05\x00\x00\x0c\x00\x06")
    + png_chunk(b"IEND", b""),
}


@pytest.mark.parametrize("message", DAMAGED_PNG)
def test_a_damaged_png_says_what_is_wrong(message: str) -> None:
    assert problem(DAMAGED_PNG[message], channels=4) == (
        f"a damaged PNG: {message}",
        "The image is damaged or cut off. Write the record again.",
    )


@pytest.mark.parametrize("has_isal", [False, True])
def test_data_of_a_png_that_do_not_inflate_to_its_size_are_refused(
    monkeypatch: pytest.MonkeyPatch, has_isal: bool
) -> None:
    if not has_isal:
        monkeypatch.setattr(png_images, "_inflate_library", lambda: (zlib.decompressobj, zlib.error))
    rows = bytes([0, 1, 2, 3, 4, 5] * 4)

    def png(data: bytes) -> bytes:
        return png_header(4, 5, 8, GREY) + png_chunk(b"IDAT", data) + png_chunk(b"IEND", b"")

    packed = zlib.compress(rows)
    assert decode(png(packed), channels=1)[3].ravel().tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(decode(png(zlib.compress(rows + rows))), decode(png(packed)))
    for cut in (1, 3, 4):
        assert problem(png(packed[:-cut]))[0] == "a damaged PNG: its data are cut off"
    assert problem(png(zlib.compress(rows[:-6])))[0] == "a damaged PNG: it holds 18 bytes, where 24 belong"
    for data in (packed[:-1] + b"x", b"xx" + packed[2:]):
        assert problem(png(data))[0].startswith("a damaged PNG: its data does not inflate: ")


# JPEG.


def test_a_jpeg_is_cast_and_not_scaled() -> None:
    jpeg = pillow_file(RAMP, "JPEG")
    found = decode(jpeg, dtype="float32")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, decode(jpeg))
    np.testing.assert_array_equal(
        decode(jpeg, dct_method="INTEGER_ACCURATE"), np.asarray(Pillow.open(io.BytesIO(jpeg)))
    )


def test_a_jpeg_has_the_channels_asked_for() -> None:
    grey, color = pillow_file(RAMP[:, :, 0], "JPEG"), pillow_file(RAMP, "JPEG")
    assert decode(grey, channels=0).shape == (4, 5, 1)
    np.testing.assert_array_equal(decode(grey), np.repeat(decode(grey, channels=1), 3, axis=2))
    assert decode(color, channels=0).shape == (4, 5, 3)
    np.testing.assert_array_equal(decode(color, channels=1)[:, :, 0], np.asarray(drafted(color, "L")))
    assert problem(color, channels=4) == (
        "a JPEG has no channel of transparency",
        "Give channels=3 to Image, or 0 for those stored.",
    )


def test_the_inks_of_a_cmyk_jpeg_are_mixed_to_colours() -> None:
    inks = np.full((8, 8, 4), (255, 0, 128, 51), np.uint8)
    jpeg = pillow_file(inks, "JPEG", "CMYK", quality=100)
    assert decode(jpeg)[0, 0].tolist() == [0, 204, 127 * 204 // 255]
    assert decode(jpeg, channels=0).shape == (8, 8, 3)
    assert decode(jpeg, channels=1)[0, 0].tolist() == [(204 * 587 + 101 * 114) // 1000]


def test_bytes_between_the_segments_of_a_jpeg_are_passed_over() -> None:
    jpeg = pillow_file(RAMP, "JPEG")
    for other in (b"\xff\xff\xff", b"other\xff\x00bytes", b"\xff\x01", b"\xff\xd3"):
        np.testing.assert_array_equal(decode(jpeg[:20] + other + jpeg[20:]), decode(jpeg))


def test_a_photo_is_not_turned_as_its_camera_was() -> None:
    orientation = Pillow.Exif()
    orientation[0x0112] = 6
    assert decode(pillow_file(RAMP, "JPEG", exif=orientation)).shape == (4, 5, 3)


@pytest.mark.parametrize("length", [3, 20, 300, -1])
def test_a_jpeg_that_is_cut_off_is_refused(length: int) -> None:
    message, hint = problem(pillow_file(RAMP, "JPEG")[:length])
    assert message == (
        "a damaged JPEG: it has no frame" if 0 < length < 100 else "a damaged JPEG: not enough image data"
    )
    assert hint == "The image is damaged or cut off. Write the record again."


# BMP.


@pytest.mark.parametrize("top_down", [False, True])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_bmp_gives_the_channels_of_the_file_or_three_or_four(channels: int, top_down: bool) -> None:
    samples = np.random.default_rng(5).integers(0, 256, (3, 5, channels), dtype=np.uint8)
    data = bmp_file(samples, top_down=top_down)
    color = samples[:, :, :3] if channels > 1 else samples.repeat(3, axis=2)
    np.testing.assert_array_equal(decode(data, channels=0), samples)
    np.testing.assert_array_equal(decode(data, channels=3), color)
    alpha = samples[:, :, 3:] if channels == 4 else np.full((3, 5, 1), 255)
    np.testing.assert_array_equal(decode(data, channels=4), np.concatenate([color, alpha], axis=2))
    np.testing.assert_array_equal(decode(data, dtype="uint16"), color.astype(int) * 256)
    np.testing.assert_array_equal(decode(data, dtype="float32"), color * np.float32(1 / 255))


def test_a_bmp_that_does_not_do_says_why() -> None:
    data = bmp_file(RAMP)
    assert problem(data, channels=1) == ("a BMP is not made grey", "Give channels=3 to Image, or 0 for those stored.")
    assert problem(data[:-9])[0] == "a damaged BMP: it has 109 bytes, where 117 belong"
    assert problem(data[:20])[0] == "a damaged BMP: it has 20 bytes, and its header alone 34"
    assert problem(data[:28] + b"\x10" + data[29:]) == (
        "a BMP of 16 bits, header 40, compression 0",
        "Store it as PNG: of BMP, 8, 24 and 32 bits are read, not compressed.",
    )


# GIF and WebP.


def test_the_frames_of_a_gif_are_laid_on_each_other() -> None:
    one = gif_frame(np.array([[0, 1], [2, 3]], np.uint8))
    part = gif_frame(np.array([[3, 2]], np.uint8), top=1, transparent=2, disposal=2)
    found = decode(gif_file((2, 2), [one, part, part], palette=COLORS))
    assert found.shape == (3, 2, 2, 3)
    assert (found[:, :, :, 0] // 3).tolist() == [[[0, 1], [2, 3]], [[0, 1], [3, 3]], [[0, 1], [3, 3]]]


def test_a_canvas_is_as_large_as_the_largest_frame_whatever_the_screen() -> None:
    frame = gif_frame(np.full((2, 3), 3, np.uint8), transparent=0)
    assert decode(gif_file((9, 9), [frame], palette=COLORS)).shape == (1, 2, 3, 3)
    outside = gif_frame(np.full((1, 1), 1, np.uint8), left=7, top=1)
    assert decode(gif_file((9, 9), [frame, outside], palette=COLORS))[1].tolist() == [[[9, 10, 11]] * 3] * 2


def test_a_gif_that_does_not_do_says_why() -> None:
    frame = gif_frame(np.full((8, 8), 3, np.uint8))
    data = gif_file((8, 8), [frame], palette=COLORS)
    assert problem(data, channels=1) == (
        "a GIF has colours: not 1 channels",
        "Give channels=3 to Image, or 0 for those stored.",
    )
    for length in (5, 20, 40, -20, -1):
        assert problem(data[:length])[0] == "a damaged GIF: it is cut off"
    assert problem(gif_file((8, 8), [], palette=COLORS))[0] == "a damaged GIF: it has no frame"
    assert problem(gif_file((8, 8), [frame]))[0] == "a damaged GIF: frame 0 has no colours"
    assert problem(gif_file((8, 8), [frame], palette=COLORS[:6]))[0] == "a damaged GIF: frame 0 has colour 3 of 2"
    assert (
        problem(gif_file((8, 8), [b"x"], palette=COLORS))[0] == "a damaged GIF: byte 25 is 0x78, which starts nothing"
    )


@pytest.mark.parametrize("value", [0, 255])
def test_a_frame_whose_codes_end_early_is_cut_off(value: int) -> None:
    short = bytearray(gif_frame(np.full((4, 8), value, np.uint8)))
    short[8 + 7] = 9  # nine rows instead of four
    assert problem(gif_file((9, 8), [bytes(short)], palette=bytes(768)))[0] == "a damaged GIF: not enough image data"


def test_a_webp_gives_its_frames() -> None:
    still = pillow_file(RAMP, "WEBP", lossless=True)
    np.testing.assert_array_equal(decode(still), RAMP[np.newaxis])
    np.testing.assert_array_equal(decode(still, shape=(4, 5, 3)), RAMP)
    others = [Pillow.fromarray(RAMP + step) for step in (20, 40)]
    moving = pillow_file(RAMP, "WEBP", lossless=True, save_all=True, append_images=others)
    np.testing.assert_array_equal(decode(moving), [RAMP, RAMP + 20, RAMP + 40])
    assert problem(still, channels=4) == (
        "a WebP with 3 channels, not 4",
        "Give channels=3 to Image, or 0 for those stored.",
    )
    assert problem(still, dtype="float32") == (
        "a WebP is not decoded to float32",
        "Give dtype=uint8 to Image, and cast what it gives.",
    )
    assert problem(still[:16])[0] == "a damaged WebP: it has no size"
    assert problem(still[:-3])[0].startswith("a damaged WebP: ")


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


@pytest.mark.parametrize("form", LARGE)
def test_a_size_is_refused_before_anything_is_inflated(form: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert problem(LARGE[form]) == (
            "an image of 20000 x 10000 pixels: a record may ask for MAX_PIXELS = 178956970",
            "Store it smaller, or as several records. A header that asks for this is often an attack.",
        )


def test_the_frames_of_a_gif_count_together() -> None:
    blank = b",\0\0\0\0\x10\x27\x10\x27\0\x08\x02\0\x01\0"
    assert problem(gif_file((9, 9), [blank, blank], palette=COLORS))[0] == (
        "2 frames of 10000 x 10000 pixels: a record may ask for MAX_PIXELS = 178956970"
    )


def test_repeated_images_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_handler, "MAX_PIXELS", 30)
    png = png_file(RAMP, 8, RGB)
    assert decode(strings(png), repeated=True).shape == (1, 4, 5, 3)
    assert problem(strings(png, png), repeated=True)[0] == (
        "image 1: an image of 4 x 5 pixels: a record may ask for MAX_PIXELS = 178956970, of which 10 are left"
    )


@pytest.mark.parametrize(
    "data", [png_header(0, 5, 8, RGB) + png_chunk(b"IEND", b""), sized(LARGE["jpeg"], 7, (0, 2, "big"))]
)
def test_an_image_without_pixels_is_damaged(data: bytes) -> None:
    assert problem(data)[1] == "The image is damaged or cut off. Write the record again."
