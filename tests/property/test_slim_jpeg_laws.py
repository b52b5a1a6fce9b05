"""Every library decodes a JPEG to the same pixels, and reports the same error for a damaged one."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow
from support.slim_image_checks import decode

from registry.errors import CorruptExampleError
from registry.features import FeaturesDict, Image, codec_of
from registry.images import pictures
from registry.slim import image_formats


@st.composite
def jpegs(draw: st.DrawFn) -> bytes:
    """A JPEG of any kind that Pillow writes."""
    mode = draw(st.sampled_from(["RGB", "RGB", "L", "CMYK"]))
    shape = (draw(st.integers(1, 40)), draw(st.integers(1, 40)), {"RGB": 3, "L": 1, "CMYK": 4}[mode])
    samples = np.random.default_rng(draw(st.integers(0, 2**32))).integers(0, 256, shape, dtype=np.uint8)
    if draw(st.booleans()):
        samples[...] = samples[:1, :1]  # flat, while most of the others are noise
    file = io.BytesIO()
    Pillow.frombytes(mode, shape[1::-1], samples.tobytes()).save(
        file,
        "JPEG",
        quality=draw(st.sampled_from([1, 30, 75, 95, 100])),
        subsampling=draw(st.sampled_from([0, 1, 2])),
        progressive=draw(st.booleans()),
        optimize=draw(st.booleans()),
        restart_marker_blocks=draw(st.sampled_from([0, 1, 3])),
    )
    return file.getvalue()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A JPEG, most of the time with some bytes changed, or cut off."""
    data = bytearray(draw(jpegs()))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, min(len(data) - 1, draw(st.sampled_from([30, 600, 10_000])))))
        data[place] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(2, len(data)))] if draw(st.booleans()) else data)


def outcome(data: bytes, channels: int) -> tuple[Any, str]:
    try:
        pixels = decode(data, channels=channels)
    except CorruptExampleError as error:
        return None, error.message
    assert pixels.flags.writeable
    return (pixels.shape, pixels.tobytes()), ""


def test_the_fast_library_is_there() -> None:
    assert image_formats.jpeg_library() is not None


@given(damaged(), st.sampled_from([0, 1, 3]))
def test_the_decoding_library_does_not_change_the_result(data: bytes, channels: int) -> None:
    found = outcome(data, channels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(image_formats, "jpeg_library", lambda: None)
        assert outcome(data, channels) == found


def outcome_of_feature(data: bytes, channels: int | None) -> tuple[Any, str]:
    codec = codec_of(FeaturesDict({"image": Image(shape=(None, None, channels))}))
    try:
        pixels = codec.restore({"image": [data]})["image"]
    except CorruptExampleError as error:
        return None, error.message
    return (pixels.shape, pixels.dtype, pixels.tobytes()), ""


@given(damaged(), st.sampled_from([None, 1, 2, 3, 4]))
def test_the_decoding_library_does_not_change_what_an_image_feature_reads(data: bytes, channels: int | None) -> None:
    found = outcome_of_feature(data, channels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "jpeg_library", lambda: None)
        assert outcome_of_feature(data, channels) == found
