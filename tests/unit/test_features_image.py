"""Images: PNG with the same bytes everywhere, every readable kind, and the errors for damaged or hostile files."""

from __future__ import annotations

import builtins
import hashlib
import io
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow
from support.block_checks import joined
from support.golden import check_errors
from support.slim_image_samples import png_file as interlaced_png

from registry.errors import CorruptExampleError, MissingExtraError
from registry.features import FeaturesDict, Image, Sequence, codec_of
from registry.images.png import PngError, encode_png, read_png, undo_filters

GOLDEN = Path(__file__).with_name("golden")


def gradient(height: int, width: int, channels: int, dtype: Any = np.uint8) -> np.ndarray[Any, Any]:
    rows, columns, layers = np.mgrid[:height, :width, :channels]
    return (rows * 7 + columns * 13 + layers * 50 + rows * columns // 5).astype(dtype)


def png_file(array: np.ndarray[Any, Any], *, filters: list[int]) -> bytes:
    """A PNG with a filter for each row, written in the plainest way."""
    height, width, channels = array.shape
    depth = array.dtype.itemsize
    rows = (
        np.frombuffer(array.astype(array.dtype.newbyteorder(">")).tobytes(), np.uint8).reshape(height, -1).astype(int)
    )
    raw = bytearray()
    pixel = channels * depth
    for y in range(height):
        kind = filters[y % len(filters)]
        raw.append(kind)
        for x in range(rows.shape[1]):
            left = rows[y, x - pixel] if x >= pixel else 0
            up = rows[y - 1, x] if y else 0
            corner = rows[y - 1, x - pixel] if y and x >= pixel else 0
            guess = left + up - corner
            paeth = min((left, up, corner), key=lambda near: abs(guess - near))
            raw.append((rows[y, x] - [0, left, up, (left + up) // 2, paeth][kind]) % 256)
    header = (
        width.to_bytes(4, "big")
        + height.to_bytes(4, "big")
        + bytes([8 * depth, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0])
    )
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(raw))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big") for kind, body in chunks
    )


def pillow_file(array: np.ndarray[Any, Any], format_: str = "PNG", mode: str | None = None, **options: Any) -> bytes:
    file = io.BytesIO()
    image = Pillow.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    (image.convert(mode) if mode else image).save(file, format_, **options)
    return file.getvalue()


def read_image(data: bytes, **options: Any) -> Any:
    features = FeaturesDict({"image": Image(**options)})
    return codec_of(features).restore({"image": [data]})["image"]


def hide_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def fail(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "PIL":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", fail)


@pytest.mark.parametrize(
    ("shape", "dtype", "sha256"),
    [
        ((8, 8, 1), np.uint8, "71aef4823b37911718fc65c1b7e4bf04853a4978dd1104e9aab8e66b611cdebd"),
        ((40, 30, 3), np.uint8, "21a6baf7a4dc33b320eae12bbf80949e7b158a71c57f6c032cba373ca0566390"),
        ((20, 20, 4), np.uint16, "d67048f48ae9eb1691b2dfde10519edeaf46cf78394a2f1b17db8dd719c8c950"),
    ],
)
def test_png_of_an_array_has_these_very_bytes(shape: tuple[int, int, int], dtype: Any, sha256: str) -> None:
    assert hashlib.sha256(encode_png(gradient(*shape, dtype))).hexdigest() == sha256


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("filters", [[0], [1], [2], [3], [4], [0, 1, 2, 3, 4], [4, 3, 2, 1]])
def test_every_filter_is_undone_without_pillow(
    dtype: Any, channels: int, filters: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_pillow(monkeypatch)
    array = gradient(9, 11, channels, dtype)
    decoded = read_image(png_file(array, filters=filters), shape=(9, 11, channels), dtype=dtype)
    assert decoded.dtype == dtype
    np.testing.assert_array_equal(decoded, array)


def test_large_image_with_slow_filters_is_the_same_with_and_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    data = png_file(gradient(60, 50, 3), filters=[4, 3])
    with_pillow = read_image(data)
    hide_pillow(monkeypatch)
    np.testing.assert_array_equal(read_image(data), with_pillow)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_pillow_reads_what_is_written(channels: int) -> None:
    array = gradient(30, 40, channels)
    with Pillow.open(io.BytesIO(encode_png(array))) as image:
        np.testing.assert_array_equal(np.asarray(image).reshape(array.shape), array)


def test_palette_few_bits_and_transparency_are_read_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.repeat(gradient(16, 16, 1) // 64 * 64, 3, axis=2)
    palette = pillow_file(array, mode="P")
    bits = pillow_file((gradient(16, 16, 1) > 90).astype(np.uint8) * 255, mode="1")
    see_through = pillow_file(array, mode="P", transparency=0)
    grey = pillow_file(gradient(16, 16, 1), transparency=int(gradient(16, 16, 1)[3, 3, 0]))
    with Pillow.open(io.BytesIO(palette)) as image:
        colours = np.asarray(image.convert("RGB"))
    with Pillow.open(io.BytesIO(see_through)) as image:
        with_alpha = np.asarray(image.convert("RGBA"))
    with Pillow.open(io.BytesIO(grey)) as image:
        grey_with_alpha = np.asarray(image.convert("LA"))
    hide_pillow(monkeypatch)
    np.testing.assert_array_equal(read_image(palette), colours)
    assert read_image(palette, shape=(None, None, None)).shape == (16, 16, 3)
    assert set(read_image(bits, shape=(16, 16, 1)).reshape(-1).tolist()) == {0, 255}
    assert read_image(bits, shape=(16, 16, None)).shape == (16, 16, 1)
    np.testing.assert_array_equal(read_image(see_through, shape=(16, 16, None)), with_alpha)
    np.testing.assert_array_equal(read_image(grey, shape=(16, 16, 2)), grey_with_alpha)
    assert read_image(grey, shape=(16, 16, None)).shape == (16, 16, 1)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_interlaced_images_of_16_bits_are_read(channels: int) -> None:
    samples = np.random.default_rng(channels).integers(0, 2**16, (11, 9, channels))
    color = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    data = interlaced_png(samples, 16, color, interlaced=True, filters=(0, 1, 2, 3, 4))
    np.testing.assert_array_equal(read_image(data, shape=(11, 9, channels), dtype="uint16"), samples)


def test_jpeg_is_kept_and_decoded() -> None:
    data = pillow_file(gradient(32, 48, 3), "JPEG")
    features = FeaturesDict({"image": Image(encoding_format="jpeg")})
    record = codec_of(features).encode({"image": data})
    assert codec_of(features).flatten({"image": data})["image"] == [data]
    with Pillow.open(io.BytesIO(data)) as image:
        np.testing.assert_array_equal(codec_of(features).decode(record)["image"], np.asarray(image))


def test_grey_and_colour_jpeg_become_the_declared_channels() -> None:
    grey = pillow_file(gradient(16, 16, 1), "JPEG")
    assert read_image(grey).shape == (16, 16, 3)
    assert read_image(grey, shape=(16, 16, None)).shape == (16, 16, 1)
    colour = pillow_file(gradient(16, 16, 3), "JPEG")
    with Pillow.open(io.BytesIO(colour)) as image:
        image.draft("L", image.size)
        np.testing.assert_array_equal(read_image(colour, shape=(16, 16, 1))[:, :, 0], np.asarray(image))
    inks = pillow_file(gradient(16, 16, 3), "JPEG", mode="CMYK")
    assert read_image(inks).shape == (16, 16, 3)


def test_an_array_is_written_as_jpeg_on_request() -> None:
    features = FeaturesDict({"image": Image(shape=(16, 16, 1), encoding_format="jpeg")})
    array = np.full((16, 16, 1), 100, np.uint8)
    np.testing.assert_array_equal(
        codec_of(features).decode(codec_of(features).encode({"image": array}))["image"], array
    )


def test_channels_of_a_png_are_converted_to_the_declared_ones() -> None:
    grey, colour = gradient(4, 4, 1), gradient(4, 4, 3)
    np.testing.assert_array_equal(read_image(encode_png(grey)), np.repeat(grey, 3, axis=2))
    with_alpha = np.concatenate([colour, grey], axis=2)
    np.testing.assert_array_equal(read_image(encode_png(with_alpha)), colour)
    opaque = read_image(encode_png(colour), shape=(4, 4, 4))
    np.testing.assert_array_equal(opaque[:, :, :3], colour)
    assert opaque[:, :, 3].min() == 255
    flat = np.full((2, 2, 3), 77, np.uint8)
    assert read_image(encode_png(flat), shape=(2, 2, 1)).reshape(-1).tolist() == [77] * 4
    two = read_image(encode_png(np.concatenate([grey, grey], axis=2)), shape=(4, 4, 1))
    np.testing.assert_array_equal(two, grey)


def test_colour_of_png_becomes_the_grey_that_libpng_computes() -> None:
    # Decoded by TFDS 4.9.10 from these files: libpng truncates 8 bits and rounds 16, before it changes the depth.
    colours = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [1, 2, 3], [200, 100, 50], [77, 77, 77], [72, 99, 160]]
    grey = [76, 149, 29, 1, 124, 77, 97]
    colour = np.array([colours], np.uint8)
    palette = io.BytesIO()
    Pillow.fromarray(colour).quantize(8, dither=Pillow.Dither.NONE).save(palette, "PNG")
    np.testing.assert_array_equal(read_image(palette.getvalue()), colour)
    for file in (encode_png(colour), palette.getvalue()):
        assert read_image(file, shape=(1, 7, 1)).reshape(-1).tolist() == grey
        wide = read_image(file, shape=(1, 7, 1), dtype="uint16")
        assert wide.reshape(-1).tolist() == [value * 257 for value in grey]
    file = encode_png(colour.astype(np.uint16) * 256 + np.arange(7, dtype=np.uint16)[:, np.newaxis])
    assert read_image(file, shape=(1, 7, 1)).reshape(-1).tolist() == grey
    wide = read_image(file, shape=(1, 7, 1), dtype="uint16")
    assert wide.reshape(-1).tolist() == [19517, 38319, 7447, 468, 31798, 19717, 25064]


def test_a_png_with_another_bit_depth_is_converted_to_the_declared_one() -> None:
    wide = gradient(4, 4, 1, np.uint16) * 300
    assert (read_image(encode_png(wide), shape=(4, 4, 1)) == (wide >> 8)).all()
    narrow = gradient(4, 4, 1)
    assert (read_image(encode_png(narrow), shape=(4, 4, 1), dtype="uint16") == narrow.astype(np.uint16) * 257).all()


def test_float_image_keeps_every_bit() -> None:
    features = FeaturesDict({"depth": Image(shape=(None, None, 1), dtype="float32")})
    array = np.array([[[1e-30], [np.inf]], [[-0.0], [3.14]]], np.float32)
    decoded = codec_of(features).decode(codec_of(features).encode({"depth": array}))["depth"]
    assert decoded.tobytes() == array.tobytes()


def test_image_is_taken_from_array_bytes_path_or_file(tmp_path: Path) -> None:
    data = encode_png(gradient(5, 5, 3))
    path = tmp_path / "image.png"
    path.write_bytes(data)
    features = FeaturesDict({"image": Image()})
    for value in (gradient(5, 5, 3), gradient(5, 5, 3).astype(np.float64), data, path, str(path), io.BytesIO(data)):
        assert codec_of(features).flatten({"image": value})["image"] == [data]


def test_images_in_a_sequence_are_stacked_if_their_shapes_allow() -> None:
    features = FeaturesDict({"frames": Sequence(Image())})
    same = codec_of(features).decode(codec_of(features).encode({"frames": [gradient(4, 4, 3)] * 2}))["frames"]
    assert same.shape == (2, 4, 4, 3)
    mixed = codec_of(features).decode(codec_of(features).encode({"frames": [gradient(4, 4, 3), gradient(2, 3, 3)]}))[
        "frames"
    ]
    assert [frame.shape for frame in mixed] == [(4, 4, 3), (2, 3, 3)]
    assert codec_of(features).decode(codec_of(features).encode({"frames": []}))["frames"].shape == (0, 0, 0, 3)


def test_an_array_that_does_not_match_the_image_feature_is_refused() -> None:
    file = pillow_file(gradient(4, 4, 3), "JPEG")
    values: list[Any] = [
        *(gradient(5, 5, 3), np.full((4, 4, 3), 300), encode_png(gradient(5, 5, 3)), b"GIF89a", b"\xff\xd8\xff\xe0"),
        *(b"\xff\xd8?" + file[2:], file.replace(b"\xff\xdb", b"?\xff\xdb", 1)),
        *(7, None, "/no/such/file.png", "\0", io.StringIO("text")),
    ]
    codec = codec_of(FeaturesDict({"image": Image(shape=(4, 4, 3))}))
    calls = (partial(codec.encode, {"image": value}) for value in values)
    check_errors(GOLDEN / "features_image.txt", calls, details=["feature"])


def test_truncated_or_damaged_image_is_corrupt_and_names_the_feature() -> None:
    png, jpeg = encode_png(gradient(30, 30, 3)), pillow_file(gradient(30, 30, 3), "JPEG")
    palette = pillow_file(gradient(30, 30, 3), mode="P")
    damaged = [data[:size] for data in (png, jpeg, palette) for size in (0, 1, 10, len(data) // 2, len(data) - 20)]
    damaged.append(png[:60] + bytes([png[60] ^ 1]) + png[61:])
    for data in damaged:
        with pytest.raises(CorruptExampleError) as caught:
            read_image(data)
        assert caught.value.details["feature"] == "image"


@pytest.mark.parametrize(
    "options", [{"shape": (90, 60, 3)}, {}, {"shape": (90, 60, 1)}, {"dtype": np.uint16, "shape": (None, 60, 3)}]
)
@pytest.mark.parametrize("number", [14, 200])
def test_a_batch_of_images_is_its_images_one_by_one(options: dict[str, Any], number: int) -> None:
    features = FeaturesDict({"image": Image(**options), "id": "int64"})
    codec = codec_of(features)
    noise = np.random.default_rng(3).integers(0, 256, (number, 90, 60, 3), dtype=np.uint8)
    files = [pillow_file(pixels, "PNG" if place % 5 else "JPEG") for place, pixels in enumerate(noise)]
    records = [codec.encode({"image": file, "id": place}) for place, file in enumerate(files)]
    block = codec.decode_block(*joined(records))
    expected = [codec.decode(record)["image"] for record in records]
    column = block.columns()["image"]
    assert (column.shape[0], column.dtype) == (number, features["image"].dtype)
    assert column.flags.writeable
    assert all(map(np.array_equal, column, expected))
    assert all(np.array_equal(one["image"], image) for one, image in zip(block.examples(), expected, strict=True))
    records[number - 5] = codec.encode({"image": files[1], "id": 7}).replace(b"IDAT", b"IDAX")
    damaged = codec.decode_block(*joined(records))
    assert len(damaged) == number - 5
    assert damaged.fault.details["record"] == number - 5
    assert all(map(np.array_equal, damaged.sound.columns()["image"], expected))


def test_images_of_different_sizes_are_an_object_array_of_a_batch() -> None:
    codec = codec_of(FeaturesDict({"image": Image()}))
    arrays = [gradient(10 + place % 3, 20, 3) for place in range(100)]
    column = codec.decode_block(*joined([codec.encode({"image": array}) for array in arrays])).columns()["image"]
    assert (column.shape, column.dtype) == ((100,), object)
    assert all(map(np.array_equal, column, arrays))


def test_small_file_cannot_ask_for_a_huge_array() -> None:
    header = (50_000).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    body = zlib.compress(bytes(1000))
    chunks = [(b"IHDR", header), (b"IDAT", body), (b"IEND", b"")]
    bomb = b"\x89PNG\r\n\x1a\n" + b"".join(
        len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big") for kind, data in chunks
    )
    with pytest.raises(CorruptExampleError, match="expected at most 67108864 pixels, found an image of 50000 x 50000"):
        read_image(bomb)
    with pytest.raises(CorruptExampleError, match=r"expected shape \(4, 4, 3\)"):
        read_image(bomb, shape=(4, 4, 3))


def test_data_beyond_the_declared_size_is_not_inflated() -> None:
    array = gradient(4, 4, 1)
    long = png_file(np.concatenate([array] * 1000), filters=[0])
    header = long[:16] + (4).to_bytes(4, "big") + (4).to_bytes(4, "big") + long[24:29]
    forged = header + zlib.crc32(header[12:29]).to_bytes(4, "big") + long[33:]
    with pytest.raises(PngError, match="expected 20 bytes, found 21"):
        read_png(forged).inflate()


def test_pillow_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    data, inks = pillow_file(gradient(8, 8, 3), "JPEG"), pillow_file(gradient(8, 8, 3), "JPEG", mode="CMYK")
    expected = read_image(data)
    hide_pillow(monkeypatch)
    np.testing.assert_array_equal(read_image(data), expected)  # simplejpeg decodes the usual files alone
    with pytest.raises(MissingExtraError) as caught:
        read_image(inks)
    assert caught.value.hint == "Install it with: pip install 'shardbook[image]'"
    with pytest.raises(MissingExtraError):
        codec_of(FeaturesDict({"x": Image(encoding_format="jpeg")})).encode({"x": gradient(8, 8, 3)})


def test_image_feature_that_contradicts_itself_is_refused() -> None:
    wrong: list[dict[str, Any]] = [
        *({"shape": (4, 4)}, {"shape": (4, 4, 5)}, {"shape": (4, 4, 4), "encoding_format": "jpeg"}, {"dtype": "int32"}),
        *({"dtype": "uint16", "encoding_format": "jpeg"}, {"dtype": "float32"}, {"encoding_format": "gif"}),
    ]
    check_errors(GOLDEN / "features_image_options.txt", (partial(Image, **options) for options in wrong))


def test_filters_of_png_rows_are_undone() -> None:
    array = gradient(6, 5, 3)
    png = read_png(png_file(array, filters=[1, 2]))
    np.testing.assert_array_equal(undo_filters(png, png.inflate()), array)
