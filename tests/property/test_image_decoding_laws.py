"""Scaled and cropped images: a batch is its images one by one, and libraries do not change pixels."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow
from support.block_checks import joined
from support.levels import either

from registry.errors import CorruptExampleError, FeatureError
from registry.features import FeaturesDict, Image, ImageDecoding, Sequence, codec_of
from registry.images import decode_picture, pictures, read_picture, reduce_pixels

MODES = {"L": 1, "RGB": 3, "CMYK": 4, "LA": 2, "RGBA": 4, "P": 1, "I;16": 2}


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A JPEG or a PNG of any kind that Pillow writes, sometimes with changed bytes, or cut off."""
    mode = draw(st.sampled_from(sorted(MODES)))
    width, height = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    data = np.random.default_rng(draw(st.integers(0, 2**32))).bytes(width * height * MODES[mode])
    file, image = io.BytesIO(), Pillow.frombytes(mode, (width, height), data)
    if mode == "CMYK" or (mode in ("L", "RGB") and draw(st.booleans())):
        subsampling, is_progressive = draw(st.sampled_from([0, 1, 2])), draw(st.booleans())
        image.save(file, "JPEG", subsampling=subsampling, progressive=is_progressive)
    else:
        image.save(file, "PNG")
    written = bytearray(file.getvalue())
    if draw(st.integers(0, 3)) == 0:
        place = draw(st.integers(0, len(written) - 1))
        written[place] ^= draw(st.integers(1, 255))
    return bytes(written[: draw(st.integers(0, len(written)))] if draw(st.integers(0, 4)) == 0 else written)


decodings = st.builds(
    ImageDecoding,
    ratio=st.sampled_from([1, 2, 4, 8]),
    crop=st.none()
    | st.tuples(st.integers(1, 6), st.integers(1, 6))
    | st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 4), st.integers(1, 4)),
)


def outcome(codec: Any, record: bytes) -> tuple[Any, str]:
    try:
        image = codec.decode(record)["image"]
    except CorruptExampleError as error:
        return None, error.message
    return (image.shape, image.dtype, image.tobytes()), ""


def records_of(images: list[bytes]) -> list[bytes]:
    stored = codec_of(FeaturesDict({"image": bytes}))
    return [stored.encode({"image": image}) for image in images]


@given(st.lists(files(), min_size=1, max_size=12), decodings, st.sampled_from([None, 1, 3, 4]), st.booleans())
def test_a_batch_is_its_images_one_by_one(
    images: list[bytes], decoding: ImageDecoding, channels: int | None, is_wide: bool
) -> None:
    image = Image(shape=(None, None, channels), dtype=np.uint16 if is_wide else np.uint8)
    codec = codec_of(FeaturesDict({"image": image}).decode_images({"image": decoding}))
    records = records_of(images)
    outcomes = [outcome(codec, record) for record in records]
    faults = [place for place, (_, message) in enumerate(outcomes) if message]
    repeated = records * 6  # so many that they are decoded together
    block = codec.decode_block(*joined(repeated))
    assert len(block) == (faults[0] if faults else len(repeated))
    for place, example in enumerate(block.sound.examples()):
        pixels = example["image"]
        assert (pixels.shape, pixels.dtype, pixels.tobytes()) == outcomes[place % len(records)][0]
    if faults:
        assert block.fault.message == outcomes[faults[0]][1]


def same(found: Any, expected: Any) -> bool:
    """Whether two arrays are equal with their shapes and dtypes, and so are the arrays in them."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    return all(map(same, found, expected)) if found.dtype == object else np.array_equal(found, expected)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=8),
    st.sampled_from([(9, 13, 3), (None, 13, 3), (None, None, None)]),
    decodings,
    st.booleans(),
    st.data(),
)
def test_images_in_sequences_are_read_together_as_one_by_one(
    counts: list[int], shape: Any, decoding: ImageDecoding, is_fixed: bool, data: st.DataObject
) -> None:
    chance = np.random.default_rng(7)
    height = 9 if shape[0] else data.draw(st.sampled_from([9, 10]))
    counts = [counts[0]] * len(counts) if is_fixed else counts
    pictures_of = [
        [chance.integers(0, 256, (height if place % 2 else 9, 13, 3), dtype=np.uint8) for place in range(count)]
        for count in counts
    ]
    frames = Sequence(
        Image(shape=shape, encoding_format="jpeg" if shape[2] else None), length=counts[0] if is_fixed else None
    )
    features = FeaturesDict({"frames": frames, "inner": Sequence({"deep": Sequence(Image())})})
    inner = [{"deep": some} for some in pictures_of[:2]]
    records = [codec_of(features).encode({"frames": some, "inner": inner}) for some in pictures_of] * 8
    try:
        codec = codec_of(features.decode_images({"frames": decoding}))
    except FeatureError:
        return
    block = codec.decode_block(*joined(records))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Image, "restore_block", lambda *_: None)
        expected = codec.decode_block(*joined(records))
    assert len(block) == len(expected)
    assert str(block.fault) == str(expected.fault)
    if block.fault is None:
        assert same(block.columns()["frames"], expected.columns()["frames"])
        for example, other in zip(block.examples(), expected.examples(), strict=True):
            assert same(example["frames"], other["frames"])
            deep, others = example["inner"]["deep"], other["inner"]["deep"]
            assert same(deep.flat_values, others.flat_values)
            assert all(map(np.array_equal, deep.row_lengths, others.row_lengths))


@given(files(), decodings, st.sampled_from([None, 1, 3]))
def test_the_library_does_not_change_the_pixels(file: bytes, decoding: ImageDecoding, channels: int | None) -> None:
    codec = codec_of(FeaturesDict({"image": Image(shape=(None, None, channels))}).decode_images({"image": decoding}))
    (record,) = records_of([file])
    expected = outcome(codec, record)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "jpeg_library", lambda: None)
        assert outcome(codec, record) == expected


@pytest.mark.parametrize("step", either(7, 1))
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_jpeg_of_every_size_has_the_pixels_of_pillow(step: int, mode: str) -> None:
    for height, width in ((number // 40 + 1, number % 40 + 1) for number in range(0, 1600, step)):
        file = io.BytesIO()
        data = np.random.default_rng(height * 41 + width).bytes(width * height * MODES[mode])
        Pillow.frombytes(mode, (width, height), data).save(file, "JPEG")
        for ratio in (2, 4, 8):
            with Pillow.open(io.BytesIO(file.getvalue())) as image:
                image.draft(None, (width / ratio, height / ratio))  # type: ignore[arg-type]  # it gives this very ratio
                expected = np.asarray(image)
            pixels = decode_picture(read_picture(file.getvalue()), channels=None, wide=False, ratio=ratio)
            assert pixels.shape[:2] == (-(-height // ratio), -(-width // ratio))
            np.testing.assert_array_equal(pixels.reshape(expected.shape), expected)


@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from([2, 4, 8]),
    st.sampled_from(["uint8", "uint16"]),
    st.integers(0, 2**32),
)
def test_whole_boxes_have_the_mean_of_exact_arithmetic(
    height: int, width: int, ratio: int, dtype: str, seed: int
) -> None:
    pixels = np.random.default_rng(seed).integers(0, np.iinfo(dtype).max + 1, (height, width, 2), dtype)
    reduced = reduce_pixels(pixels, ratio)
    assert (reduced.shape, reduced.dtype) == ((-(-height // ratio), -(-width // ratio), 2), pixels.dtype)
    for (y, x), mean in np.ndenumerate(reduced[:, :, 1]):
        box = pixels[y * ratio : y * ratio + ratio, x * ratio : x * ratio + ratio, 1]
        assert mean == (2 * int(box.sum(dtype=np.int64)) + box.size) // (2 * box.size)
