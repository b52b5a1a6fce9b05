"""Each image format with all options, and the errors for its damaged files."""

from __future__ import annotations

import io
import sys
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow
from support.golden import check_errors
from support.slim_image_checks import COLORS, RAMP, check_problems, decode, drafted, pillow_file, problem
from support.slim_image_samples import (
    GREY,
    PALETTE,
    RGB,
    RGBA,
    bmp_file,
    gif_file,
    gif_frame,
    png_chunk,
    png_file,
    png_header,
)

from registry.images import pillow
from registry.images import png as png_decoder
from registry.slim import image_formats, image_handler

GOLDEN = Path(__file__).parent / "golden" / "slim_image_formats"


@pytest.fixture
def without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)


# PNG: tests/beside/tfds compares the rest with TensorFlow.


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


def test_grey_of_a_png_with_a_gamma_chunk_is_mixed_in_linear_light() -> None:
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


def test_other_formats_need_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [pillow_file(RAMP, form) for form in ("JPEG", "GIF", "WEBP")]
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setattr(image_formats, "jpeg_library", lambda: None)
    check_errors(GOLDEN / "other_formats_need_pillow.txt", (partial(decode, file) for file in files))


DAMAGED_PNG = [
    png_file(RAMP, 8, RGB)[:-5],
    png_header(4, 5, 8, RGB)[:-1] + b"x",
    png_header(4, 5, 3, GREY) + png_chunk(b"IEND", b""),
    png_header(4, 5, 8, RGB) + png_chunk(b"IEND", b""),
    png_file(RAMP[:, :, :1] & 1, 8, PALETTE),
    png_file(RAMP, 8, RGB, transparency=b"123"),
    png_header(1, 1, 8, GREY)
    + png_chunk(b"IDAT", b"x\x01\x01\x02\x00\xfd\xff\x05\x00\x00\x0c\x00\x06")
    + png_chunk(b"IEND", b""),
]


def test_a_damaged_png_says_what_is_wrong() -> None:
    cases = [(data, b"", {"channels": 4}) for data in DAMAGED_PNG]
    check_problems(GOLDEN / "a_damaged_png_says_what_is_wrong.txt", cases)


@pytest.mark.parametrize("has_isal", [False, True])
def test_data_of_a_png_that_do_not_inflate_to_its_size_are_refused(
    monkeypatch: pytest.MonkeyPatch, has_isal: bool
) -> None:
    if not has_isal:
        monkeypatch.setattr(png_decoder, "_inflate_library", lambda: (zlib.decompressobj, zlib.error))
    rows = bytes([0, 1, 2, 3, 4, 5] * 4)

    def png(data: bytes) -> bytes:
        return png_header(4, 5, 8, GREY) + png_chunk(b"IDAT", data) + png_chunk(b"IEND", b"")

    packed = zlib.compress(rows)
    assert decode(png(packed), channels=1)[3].ravel().tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(decode(png(zlib.compress(rows + rows))), decode(png(packed)))
    for cut in (1, 3, 4):
        assert problem(png(packed[:-cut]))[0] == "a damaged PNG: its data is truncated"
    assert problem(png(zlib.compress(rows[:-6])))[0] == "a damaged PNG: expected 24 bytes, found 18"
    for data in (packed[:-1] + b"x", b"xx" + packed[2:]):
        assert problem(png(data))[0].startswith("a damaged PNG: its data cannot be decompressed: ")


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
    check_problems(GOLDEN / "a_jpeg_has_the_channels_asked_for.txt", [(color, b"", {"channels": 4})])


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


def test_a_jpeg_that_is_cut_off_is_refused() -> None:
    cases = [(pillow_file(RAMP, "JPEG")[:length],) for length in (3, 20, 300, -1)]
    check_problems(GOLDEN / "a_jpeg_that_is_cut_off_is_refused.txt", cases)


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
    cases = [(data, b"", {"channels": 1}), (data[:-9],), (data[:20],), (data[:28] + b"\x10" + data[29:],)]
    check_problems(GOLDEN / "a_bmp_that_does_not_do_says_why.txt", cases)


# GIF and WebP.


def test_the_frames_of_a_gif_are_laid_on_each_other() -> None:
    one = gif_frame(np.array([[0, 1], [2, 3]], np.uint8))
    part = gif_frame(np.array([[3, 2]], np.uint8), top=1, transparent=2, disposal=2)
    found = decode(gif_file((2, 2), [one, part, part], palette=COLORS))
    assert found.shape == (3, 2, 2, 3)
    assert (found[:, :, :, 0] // 3).tolist() == [[[0, 1], [2, 3]], [[0, 1], [3, 3]], [[0, 1], [3, 3]]]


def test_a_canvas_is_as_large_as_the_largest_frame_with_any_screen_size() -> None:
    frame = gif_frame(np.full((2, 3), 3, np.uint8), transparent=0)
    assert decode(gif_file((9, 9), [frame], palette=COLORS)).shape == (1, 2, 3, 3)
    outside = gif_frame(np.full((1, 1), 1, np.uint8), left=7, top=1)
    assert decode(gif_file((9, 9), [frame, outside], palette=COLORS))[1].tolist() == [[[9, 10, 11]] * 3] * 2


def test_a_gif_that_does_not_do_says_why() -> None:
    frame = gif_frame(np.full((8, 8), 3, np.uint8))
    data = gif_file((8, 8), [frame], palette=COLORS)
    for length in (5, 20, 40, -20, -1):
        assert problem(data[:length])[0] == "a damaged GIF: it is truncated"
    damaged = [gif_file((8, 8), [], palette=COLORS), gif_file((8, 8), [frame])]
    damaged += [gif_file((8, 8), [frame], palette=COLORS[:6]), gif_file((8, 8), [b"x"], palette=COLORS)]
    cases = [(data, b"", {"channels": 1}), *((file,) for file in damaged)]
    check_problems(GOLDEN / "a_gif_that_does_not_do_says_why.txt", cases)


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
    cases = [(still, b"", {"channels": 4}), (still, b"", {"dtype": "float32"}), (still[:16],)]
    check_problems(GOLDEN / "a_webp_gives_its_frames.txt", cases)
    assert problem(still[:-3])[0].startswith("a damaged WebP: ")


# Much at once.


@pytest.mark.parametrize("form", ["GIF", "WEBP", "JPEG"])
def test_pixels_that_are_taken_some_rows_at_a_time_are_the_same(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.random.default_rng(5).integers(0, 256, (13, 7, 3), dtype=np.uint8)
    data = pillow_file(array, form, "RGB")
    monkeypatch.setattr(image_formats, "jpeg_library", lambda: None)
    expected = decode(data, channels=0)
    monkeypatch.setattr(pillow, "_BYTES_AT_ONCE", 50)
    monkeypatch.setattr(image_formats, "_PIXELS_AT_ONCE", 15)
    found = decode(data, channels=0)
    np.testing.assert_array_equal(found, expected)
    assert found.flags.writeable


def test_a_frame_of_a_gif_is_laid_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    below, above = np.zeros((6, 5), np.uint8), np.arange(30, dtype=np.uint8).reshape(6, 5) % 4
    frames = [gif_frame(below, palette=COLORS), gif_frame(above, transparent=2, palette=COLORS)]
    monkeypatch.setattr(image_formats, "_PIXELS_AT_ONCE", 10)
    found = decode(gif_file((6, 5), frames))
    colors = np.frombuffer(COLORS, np.uint8).reshape(-1, 3)
    np.testing.assert_array_equal(found[1], np.where((above == 2)[..., None], colors[0], colors[above]))
    with_a_bad_colour = [gif_frame(np.repeat(np.uint8([0, 3]), 15).reshape(6, 5), palette=COLORS[:6])]
    assert problem(gif_file((6, 5), with_a_bad_colour))[0] == "a damaged GIF: frame 0 has colour 3 of 2"


def test_a_jpeg_of_many_scans_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    jpeg = pillow_file(RAMP, "JPEG", progressive=True)
    num_scans = jpeg.count(b"\xff\xda")
    assert num_scans > 5
    monkeypatch.setattr(image_formats, "_MOST_JPEG_PASSES", num_scans * 20)
    assert decode(jpeg).shape == (4, 5, 3)
    assert problem(jpeg.replace(b"\xff\xd9", b"\xff\xda\xff\xd9")) == (
        f"a JPEG with {num_scans + 1} scans of 4 x 5 pixels would take minutes to decode",
        "A progressive JPEG usually has about 10 scans. More is often an attack.",
    )


def test_an_image_that_does_not_fit_into_memory_is_reported_as_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(image_handler, "decode_encoded", no_memory)
    check_problems(GOLDEN / "an_image_that_does_not_fit_into_memory.txt", [(b"GIF89a",)])
