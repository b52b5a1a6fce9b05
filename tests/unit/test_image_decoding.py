"""Images that a reader scales and crops: shapes, pixels, errors, and every way to read them."""

from __future__ import annotations

import io
import pickle
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow
from support.block_checks import joined
from support.slim_image_samples import png_chunk, png_header

import registry
from registry.errors import CorruptExampleError, FeatureError, WrongTypeError
from registry.features import (
    Audio,
    FeaturesDict,
    Image,
    ImageDecoding,
    LabeledImage,
    Sequence,
    Video,
    codec_of,
    features_to_json,
)
from registry.images import PictureError, encode_png, read_picture
from registry.wire import encode_example


def noise(*shape: int, dtype: Any = np.uint8, seed: int = 1) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max + 1, shape, dtype)


def jpeg(pixels: np.ndarray[Any, Any], mode: str | None = None, **options: Any) -> bytes:
    file = io.BytesIO()
    image = Pillow.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    (image.convert(mode) if mode else image).save(file, "JPEG", **options)
    return file.getvalue()


def draft(file: bytes, ratio: int, mode: str = "RGB") -> np.ndarray[Any, Any]:
    """A JPEG scaled by Pillow."""
    with Pillow.open(io.BytesIO(file)) as image:
        image.draft("L" if mode == "L" else None, (image.width / ratio, image.height / ratio))  # type: ignore[arg-type]  # exact
        pixels = np.asarray(image.convert(mode))
    return pixels if pixels.ndim == 3 else pixels[:, :, np.newaxis]


def means(pixels: np.ndarray[Any, Any], ratio: int) -> np.ndarray[Any, Any]:
    """The mean of each box, by the plainest loop."""
    height, width, channels = pixels.shape
    result = np.empty((-(-height // ratio), -(-width // ratio), channels), pixels.dtype)
    for y, x, channel in np.ndindex(result.shape):
        box = pixels[y * ratio : (y + 1) * ratio, x * ratio : (x + 1) * ratio, channel].astype(int)
        result[y, x, channel] = (2 * int(box.sum()) + box.size) // (2 * box.size)
    return result


def decode(file: bytes, decoding: ImageDecoding, **options: Any) -> Any:
    features = FeaturesDict({"image": Image(**options)}).decode_images({"image": decoding})
    pixels = codec_of(features).restore({"image": [file]})["image"]
    assert all(size in (None, found) for size, found in zip(features["image"].shape, pixels.shape, strict=True))
    assert pixels.flags.writeable
    assert pixels.flags.c_contiguous
    return pixels


@pytest.mark.parametrize("ratio", [2, 4, 8])
def test_a_jpeg_is_scaled_by_libjpeg(ratio: int) -> None:
    pixels = noise(61, 90, 3)
    for file in (
        jpeg(pixels),
        jpeg(pixels, subsampling=0, progressive=True),
        jpeg(pixels[:, :, :1]),
        jpeg(pixels, "CMYK"),
    ):
        np.testing.assert_array_equal(decode(file, ImageDecoding(ratio=ratio)), draft(file, ratio))
    for file in (jpeg(pixels), jpeg(pixels[:, :, :1])):
        grey = decode(file, ImageDecoding(ratio=ratio), shape=(61, 90, 1))
        np.testing.assert_array_equal(grey, draft(file, ratio, "L"))
    wide = decode(jpeg(pixels), ImageDecoding(ratio=ratio), dtype="uint16")
    np.testing.assert_array_equal(wide, draft(jpeg(pixels), ratio).astype(np.uint16) * 257)


@pytest.mark.parametrize("ratio", [2, 4, 8])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_png_is_reduced_by_the_mean_of_boxes(ratio: int, channels: int, dtype: Any) -> None:
    for shape in ((16, 24), (13, 9), (1, 1), (2, 17)):
        pixels = noise(*shape, channels, dtype=dtype)
        found = decode(encode_png(pixels), ImageDecoding(ratio=ratio), shape=(None, None, channels), dtype=dtype)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, means(pixels, ratio))


def test_the_brightest_pixels_do_not_overflow() -> None:
    for dtype in (np.uint8, np.uint16):
        white = np.full((16, 16, 3), np.iinfo(dtype).max, dtype)
        assert (decode(encode_png(white), ImageDecoding(ratio=8), dtype=dtype) == white[:2, :2]).all()


def test_a_palette_and_16_bits_are_converted_before_they_are_reduced() -> None:
    colors = noise(20, 20, 3) // 64 * 64
    file = io.BytesIO()
    Pillow.fromarray(colors).quantize(64, dither=Pillow.Dither.NONE).save(file, "PNG")
    whole = decode(file.getvalue(), ImageDecoding())
    np.testing.assert_array_equal(decode(file.getvalue(), ImageDecoding(ratio=4)), means(whole, 4))
    wide = encode_png(noise(20, 20, 1, dtype=np.uint16))
    np.testing.assert_array_equal(decode(wide, ImageDecoding(ratio=2)), means(decode(wide, ImageDecoding()), 2))


def test_an_orientation_of_exif_is_ignored() -> None:
    pixels, exif = noise(40, 24, 3), Pillow.Exif()
    exif[0x0112] = 6
    turned = jpeg(pixels, exif=exif)
    for ratio in (1, 2):
        np.testing.assert_array_equal(decode(turned, ImageDecoding(ratio=ratio)), draft(jpeg(pixels), ratio))


@pytest.mark.parametrize(
    ("crop", "rows", "columns"),
    [
        ((10, 12), slice(2, 12), slice(5, 17)),
        ((15, 23), slice(0, 15), slice(0, 23)),
        ([14, 22], slice(0, 14), slice(0, 22)),
        ((3, 4, 5, 6), slice(3, 8), slice(4, 10)),
        ((0, 0, 1, 1), slice(0, 1), slice(0, 1)),
    ],
)
def test_a_crop_is_a_window_of_the_scaled_image(crop: Any, rows: slice, columns: slice) -> None:
    for file in (jpeg(noise(30, 46, 3)), encode_png(noise(30, 46, 3))):
        whole = decode(file, ImageDecoding(ratio=2))
        assert whole.shape == (15, 23, 3)
        decoding = ImageDecoding(ratio=2, crop=crop)
        np.testing.assert_array_equal(decode(file, decoding), whole[rows, columns])
        assert decode(file, decoding, shape=(30, 46, 3)).base is None


def test_masks_and_floats_are_cropped_and_never_scaled() -> None:
    mask = noise(8, 9, 1) % 5
    depth = noise(8, 9, 1).astype(np.float32) / 3
    features = FeaturesDict(
        {
            "mask": LabeledImage(shape=(8, 9, 1), names=list("abcde")),
            "depth": Image(shape=(None, None, 1), dtype="float32"),
        }
    )
    record = codec_of(features).encode({"mask": mask, "depth": depth})
    crop = ImageDecoding(crop=(1, 2, 5, 4))
    cropped = codec_of(features.decode_images({"mask": crop, "depth": crop})).decode(record)
    np.testing.assert_array_equal(cropped["mask"], mask[1:6, 2:6])
    np.testing.assert_array_equal(cropped["depth"], depth[1:6, 2:6])
    for name, noun in (("mask", "class numbers"), ("depth", "float32 pixels")):
        with pytest.raises(FeatureError) as caught:
            features.decode_images({name: ImageDecoding(ratio=2)})
        assert caught.value.message == f"feature '{name}': {noun} cannot be scaled, only cropped"


@pytest.mark.parametrize("options", [{"ratio": ratio} for ratio in (0, 3, 16, -2, 0.5, 2.0, True, "2", None)])
def test_a_ratio_is_1_2_4_or_8(options: Any) -> None:
    with pytest.raises(FeatureError, match="invalid ratio") as caught:
        ImageDecoding(**options)
    assert caught.value.hint == "Use 1, 2, 4 or 8: 2 gives a half."


@pytest.mark.parametrize("crop", [5, (), (1,), (1, 2, 3), (0, 4), (4, 0), (-1, 0, 2, 2), (2.0, 2), "ab", (1, 1, 0, 2)])
def test_a_crop_is_two_or_four_sizes(crop: Any) -> None:
    with pytest.raises(FeatureError) as caught:
        ImageDecoding(crop=crop)
    assert caught.value.message == f"invalid crop {crop!r}"
    assert caught.value.hint == "Pass (height, width), or (top, left, height, width), in pixels of the scaled image."


def test_a_feature_that_is_no_image_is_refused() -> None:
    features = FeaturesDict({"image": Image(shape=(20, 30, 3)), "sound": Audio(), "box": {"id": "int64"}})
    for decodings, message in (
        ({"imag": ImageDecoding()}, "feature 'imag': unknown feature"),
        ({"sound": ImageDecoding()}, "feature 'sound': it is a Audio, and only images can be scaled and cropped"),
        ({"box/id": ImageDecoding()}, "feature 'box/id': it is a Tensor, and only images can be scaled and cropped"),
        ({"image": 4}, "feature 'image': expected an ImageDecoding, found 4"),
        ({"image": ImageDecoding(crop=(21, 2))}, "feature 'image': the crop (21, 2) is not within 20 x 30 pixels"),
        (
            {"image": ImageDecoding(ratio=4, crop=(0, 5, 5, 4))},
            "feature 'image': the crop (0, 5, 5, 4) is not within 5 x 8 pixels",
        ),
    ):
        with pytest.raises(FeatureError) as caught:
            features.decode_images(decodings)
        assert caught.value.message == message
    with pytest.raises(FeatureError, match="decoding= is for readers"):
        Image(decoding=ImageDecoding(ratio=2))


def test_an_image_that_is_smaller_than_the_crop_is_an_error_of_its_record() -> None:
    codec = codec_of(FeaturesDict({"image": Image()}).decode_images({"image": ImageDecoding(ratio=2, crop=(8, 8))}))
    records = [codec.encode({"image": encode_png(noise(size, 20, 3))}) for size in (20, 16, 15, 14, 20)]
    block = codec.decode_block(*joined(records * 20))
    assert block.sound.columns()["image"].shape == (3, 8, 8, 3)
    assert block.fault.message == "feature 'image': the crop (8, 8) is not within an image of 7 x 10 pixels"
    assert block.fault.hint == "Choose a smaller crop or ratio."
    assert block.fault.details["record"] == 3


def test_a_decoding_changes_neither_what_is_stored_nor_the_schema_file() -> None:
    features = FeaturesDict(
        {"image": Image(shape=(20, 30, 3)), "mask": LabeledImage(num_classes=3, shape=(None, 8, 1))}
    )
    decoded = features.decode_images({"image": ImageDecoding(ratio=4), "mask": ImageDecoding(crop=(2, 2))})
    assert decoded.shape == {"image": (5, 8, 3), "mask": (2, 2, 1)}
    assert features_to_json(decoded) == features_to_json(features)
    example = {"image": noise(20, 30, 3), "mask": noise(9, 8, 1) % 3}
    assert codec_of(decoded).encode(example) == codec_of(features).encode(example)
    with pytest.raises(FeatureError, match=r"expected shape \(20, 30, 3\), found \(5, 8, 3\)"):
        codec_of(decoded).encode(example | {"image": noise(5, 8, 3)})
    again = decoded.decode_images({"image": ImageDecoding(ratio=2)})
    assert again.shape["image"] == (10, 15, 3)
    assert pickle.loads(pickle.dumps(decoded)) == decoded  # noqa: S301 (written here)
    assert decoded.with_labels({"mask": ["a", "b", "c"]})["mask"].shape == (2, 2, 1)


def test_frames_of_sequences_and_videos_are_scaled() -> None:
    features = FeaturesDict(
        {"frames": Sequence(Image()), "video": Video(shape=(None, 10, 12, 3)), "n": {"x": Sequence({"y": Image()})}}
    )
    frames = noise(3, 10, 12, 3)
    record = codec_of(features).encode({"frames": frames, "video": frames, "n": {"x": {"y": list(frames)}}})
    decoding = ImageDecoding(ratio=2, crop=(4, 6))
    some = features.decode_images(dict.fromkeys(["frames", "video", "n/x/y"], decoding))
    assert some.shape["video"] == (None, 4, 6, 3)
    decoded = codec_of(some).decode(record)
    expected = np.stack([means(frame, 2)[:4] for frame in frames])
    for value in (decoded["frames"], decoded["video"], decoded["n"]["x"]["y"]):
        np.testing.assert_array_equal(value, expected)


def test_frames_are_read_in_every_form() -> None:
    features = FeaturesDict(
        {"frames": Sequence(Image(shape=(6, 5, 3))), "two": Sequence(Image(shape=(6, 5, 3)), length=2)}
    )
    codec = codec_of(features)
    clips = [noise(place % 4, 6, 5, 3, seed=place) for place in range(40)]
    block = codec.decode_block(*joined([codec.encode({"frames": clip, "two": noise(2, 6, 5, 3)}) for clip in clips]))
    columns = block.columns()
    assert (columns["frames"].dtype, columns["two"].shape) == (object, (40, 2, 6, 5, 3))
    assert all(map(np.array_equal, columns["frames"], clips))
    equal = codec.decode_block(*joined([codec.encode({"frames": clips[3], "two": noise(2, 6, 5, 3)})] * 40))
    np.testing.assert_array_equal(equal.columns()["frames"], np.stack([clips[3]] * 40))


@pytest.mark.parametrize("shape", [(6, 5, 3), (None, None, 3)])
@pytest.mark.parametrize("count", [0, 2])
def test_a_record_without_exactly_one_image_is_corrupt(shape: Any, count: int) -> None:
    codec = codec_of(FeaturesDict({"image": Image(shape=shape)}))
    block = codec.decode_block(*joined([encode_example({"image": [encode_png(noise(6, 5, 3))] * count})] * 64))
    assert len(block) == 0
    assert str(block.fault).startswith(f"feature 'image': expected 1 images, found {count}")


def test_a_small_file_cannot_ask_for_a_huge_array_by_a_ratio() -> None:
    bomb = png_header(50_000, 50_000, 8, 2) + png_chunk(b"IDAT", zlib.compress(bytes(1000))) + png_chunk(b"IEND", b"")
    huge = bytearray(jpeg(noise(16, 16, 3)))
    frame = huge.index(b"\xff\xc0")
    huge[frame + 5 : frame + 9] = b"\xff\xff\xff\xff"
    decoding = ImageDecoding(ratio=8, crop=(2, 2))
    with pytest.raises(CorruptExampleError, match="expected at most 67108864 pixels, found an image of 50000 x 50000"):
        decode(bomb, decoding)
    with pytest.raises(CorruptExampleError, match="expected at most 67108864 pixels, found an image of 65535 x 65535"):
        decode(bytes(huge), decoding)
    with pytest.raises(CorruptExampleError, match=r"expected shape \(16, 16, 3\), found an image of 65535 x 65535"):
        decode(bytes(huge), decoding, shape=(16, 16, 3))


@pytest.mark.parametrize(
    "file", [jpeg(noise(50, 60, 3)), jpeg(noise(50, 60, 3), progressive=True), encode_png(noise(50, 60, 3))]
)
def test_a_truncated_image_is_corrupt_at_every_ratio(file: bytes) -> None:
    for size in (len(file) // 2, len(file) * 3 // 4, 200, 20):
        for ratio in (1, 2, 4, 8):
            with pytest.raises(CorruptExampleError):
                decode(file[:size], ImageDecoding(ratio=ratio))


def test_each_header_is_read_whatever_was_decoded_before() -> None:
    files = [jpeg(noise(16, 24, 3)), jpeg(noise(16, 16, 3)), jpeg(noise(16, 24, 1)), jpeg(noise(16, 24, 3), quality=20)]
    head = files[0].index(b"\xff\xc0") + 12
    files += [files[0][:place] + bytes([files[0][place] ^ 1]) + files[0][place + 1 :] for place in range(3, head)]
    files += [files[0][:place] for place in range(3, head)]

    def facts(file: bytes) -> Any:
        try:
            return read_picture(file).jpeg
        except PictureError as error:
            return str(error)

    other = jpeg(noise(40, 50, 3))  # no file begins with its header, so that each header is read
    alone = [(facts(other), facts(file))[1] for file in files]
    assert len(set(alone)) > 9  # other facts and errors
    after_the_same = [(facts(files[0]), facts(file))[1] for file in files]
    assert after_the_same == alone


def test_two_threads_decode_at_once() -> None:
    files = [jpeg(noise(64, 80, 3, seed=place)) for place in range(64)]
    codec = codec_of(FeaturesDict({"image": Image()}).decode_images({"image": ImageDecoding(ratio=2, crop=(30, 30))}))
    block = joined([codec.encode({"image": file}) for file in files])
    expected = np.stack([draft(file, 2)[1:31, 5:35] for file in files])
    with ThreadPoolExecutor(2) as threads:
        for images in threads.map(lambda _: codec.decode_block(*block).columns()["image"], range(8)):
            np.testing.assert_array_equal(images, expected)


@pytest.mark.parametrize("shape", [(512, 1024, 3), (None, None, 3)])
def test_a_reader_decodes_few_images_ahead_if_they_are_much_larger_than_their_files(tmp_path: Path, shape: Any) -> None:
    blank = encode_png(np.zeros((512, 1024, 3), np.uint8))  # 1.5 MB, as a file of 1.6 KB
    catalog = registry.connect(tmp_path / "c.db", data_dir=tmp_path / "data")
    catalog.add([{"image": blank, "n": n} for n in range(90)], "blanks", features={"image": Image(shape=shape)})
    tracemalloc.start()
    try:
        for copy in (True, False):
            reader = catalog.dataset("blanks").read("train", copy=copy, keep=None)
            assert sum(1 for _ in reader.batches(1)) == 90
            assert sum(1 for _ in reader) == 90
        assert tracemalloc.get_traced_memory()[1] < 110 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("copy", [True, False])
def test_a_small_image_before_large_ones_does_not_make_the_reader_decode_many_ahead(tmp_path: Path, copy: bool) -> None:
    blank, dot = encode_png(np.zeros((512, 1024, 3), np.uint8)), encode_png(np.zeros((1, 1, 3), np.uint8))
    catalog = registry.connect(tmp_path / "c.db", data_dir=tmp_path / "data")
    rows = [{"image": blank if n % 3 else dot, "n": n} for n in range(240)]  # so many that all of them take more
    catalog.add(rows, "sizes", features={"image": Image(shape=(None, None, 3))}, num_shards=8)
    tracemalloc.start()
    try:
        assert sum(1 for _ in catalog.dataset("sizes").read("train", copy=copy, keep=None)) == 240
        assert tracemalloc.get_traced_memory()[1] < 110 * 2**20
    finally:
        tracemalloc.stop()


def test_every_way_to_read_scales_and_crops(tmp_path: Path) -> None:
    files = {f"{place:02}": noise(24 + place % 3, 30, 3, seed=place) for place in range(70)}
    for split in ("train", "test"):
        (tmp_path / "pictures" / split / "a").mkdir(parents=True)
    for name, pixels in files.items():
        data = jpeg(pixels) if int(name) % 2 else encode_png(pixels)
        (tmp_path / "pictures" / ("test" if int(name) > 60 else "train") / "a" / f"{name}.img").with_suffix(
            ".jpg" if int(name) % 2 else ".png"
        ).write_bytes(data)
    decoding = ImageDecoding(ratio=2, crop=(10, 12))
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.add(tmp_path / "pictures", name="pictures")
        dataset = catalog.dataset("pictures")
        config = registry.ReadConfig(shuffle="global", seed=5)
        whole = dataset.read("train+test", config, keep=None)
        name = next(name for name in whole.features if isinstance(whole.features[name], Image))
        with pytest.raises(WrongTypeError):
            whole.decode_images(5)  # type: ignore[arg-type]

        def scaled(file: bytes) -> np.ndarray[Any, Any]:
            return decode(file, decoding)

        expected = np.stack([scaled(one[name]) for one in whole.files_as_bytes()])
        for options in ({"keep": None}, {"keep": "memory"}, {"copy": False}, {"verify": "off"}):
            reader = dataset.read("train+test", config, **options).decode_images({name: decoding})
            assert reader.features[name].shape == (10, 12, 3)
            np.testing.assert_array_equal(reader.to_numpy()[name], expected)
            np.testing.assert_array_equal([one[name] for one in reader], expected)
            np.testing.assert_array_equal(
                np.concatenate([batch[name] for batch in reader.reopened().batches(16)]), expected
            )
            np.testing.assert_array_equal(reader[[5, 1, 5]][name], expected[[5, 1, 5]])
            np.testing.assert_array_equal(reader[7][name], expected[7])
            np.testing.assert_array_equal(pickle.loads(pickle.dumps(reader))[7][name], expected[7])  # noqa: S301
            np.testing.assert_array_equal(reader.select(name)[3][name], expected[3])
            np.testing.assert_array_equal(reader.as_supervised(name).decode_images({name: decoding})[3][0], expected[3])
            begun = dataset.read("train+test", config)
            assert len(list(islice(begun, 9))) == 9
            resumed = dataset.read("train+test", config, state=begun.state()).decode_images({name: decoding})
            np.testing.assert_array_equal([one[name] for one in resumed], expected[9:])
            pairs = begun.as_supervised(name).decode_images({name: decoding})
            np.testing.assert_array_equal([image for (image,) in pairs], expected[9:])
        setting = f"{name}=ImageDecoding(ratio=2, crop=(10, 12))"
        assert repr(reader) == f"<Reader train+test: 70 examples, {setting}>"
        assert repr(whole.decode_images({name: ImageDecoding()})).endswith(
            f", {name}=ImageDecoding(ratio=1, crop=None)>"
        )
        assert (
            repr(reader.as_supervised(name)) == f"<SupervisedReader train+test: 70 examples, {setting} as ({name!r},)>"
        )
        rest = reader.where("path != 'none'")
        assert len(rest) == len(files)
        np.testing.assert_array_equal(rest[9][name], expected[9])
        pinned = dataset.pin("train[10:20]")["train"]
        np.testing.assert_array_equal(
            pinned.read().decode_images({name: decoding}).to_numpy()[name],
            [scaled(one[name]) for one in pinned.read().files_as_bytes()],
        )
        begun = pinned.read()
        assert len(list(islice(begun, 4))) == 4
        resumed = pinned.read(state=begun.state()).decode_images({name: decoding})
        cropped = pinned.read().decode_images({name: decoding}).to_numpy()[name]
        np.testing.assert_array_equal([one[name] for one in resumed], cropped[4:])
