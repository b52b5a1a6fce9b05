"""Audio: samples of files as pydub, and so TFDS, gives them; arrays; files that are kept; damaged and hostile ones."""

from __future__ import annotations

import io
import struct
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from support.golden import check_errors

from registry.errors import CorruptExampleError, FeatureError, MissingExtraError
from registry.features import Audio, FeaturesDict, codec_of
from registry.features.audio import MAX_SAMPLES, decode_sound
from registry.features.content import ContentReader

GOLDEN = Path(__file__).with_name("golden")


def wav(frames: bytes, *, channels: int = 1, bits: int = 16, coding: int = 1, extra: bytes = b"") -> bytes:
    width = channels * bits // 8 % 2**16  # it is never read
    form = struct.pack("<HHIIHH", coding, channels, 8000, 8000 * width, width, bits) + extra
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + b"LIST" + struct.pack("<I", 3) + b"abc\0"
    chunks += b"data" + struct.pack("<I", len(frames)) + frames
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def decoded(feature: Audio, value: Any) -> Any:
    features = FeaturesDict({"x": feature})
    return codec_of(features).decode(codec_of(features).encode({"x": value}))["x"]


WAVES: list[tuple[int, bytes, list[int]]] = [
    (8, bytes([0, 127, 128, 255]), [-128, -1, 0, 127]),
    (16, struct.pack("<3h", -32768, 5, 32767), [-32768, 5, 32767]),
    # 24 bits are shifted up by 8, and the lowest byte of a negative sample is 255: so does pydub.
    (24, b"\x01\x00\x00" + b"\xff\xff\xff" + b"\x00\x00\x80" + b"\xff\xff\x7f", [256, -1, -(2**31) + 255, 2**31 - 256]),
    (32, struct.pack("<2i", -(2**31), 7), [-(2**31), 7]),
]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(("bits", "frames", "samples"), WAVES)
def test_samples_of_a_wav_file(bits: int, frames: bytes, samples: list[int], lazy: bool) -> None:
    found = decoded(Audio(lazy_decode=lazy), wav(frames, bits=bits))
    assert (found.dtype, found.tolist()) == (np.int64, samples)
    doubled = decoded(Audio(shape=(None, 2), dtype="int32", lazy_decode=lazy), wav(frames, bits=bits))
    assert (doubled.dtype, doubled.tolist()) == (np.int32, [[one, one] for one in samples])
    column = decoded(Audio(shape=(None, 1), dtype="float32", lazy_decode=lazy), wav(frames, bits=bits))
    assert column.shape == (len(samples), 1)


@pytest.mark.parametrize("lazy", [False, True])
def test_channels_are_mixed_as_pydub_does(lazy: bool) -> None:
    two = wav(struct.pack("<6h", 1, 2, -3, -4, 32767, 32767), channels=2)
    assert decoded(Audio(lazy_decode=lazy), two).tolist() == [1, -4, 32767]
    assert decoded(Audio(shape=(None, 2), lazy_decode=lazy), two).tolist() == [[1, 2], [-3, -4], [32767, 32767]]
    three = wav(struct.pack("<3h", 10, 11, -1), channels=3)
    assert decoded(Audio(lazy_decode=lazy), three).tolist() == [3 + 3 - 1]
    with pytest.raises(FeatureError) as caught:
        decoded(Audio(shape=(None, 2), lazy_decode=lazy), three)
    assert caught.value.message == "feature 'x': expected 2 channels, found 3, which cannot be converted"


def test_a_dtype_that_is_too_narrow_wraps_on_reading_and_is_refused_on_writing() -> None:
    file = wav(struct.pack("<i", 2**16 + 5), bits=32)
    assert decoded(Audio(dtype="int16", lazy_decode=True), file).tolist() == [5]
    with pytest.raises(FeatureError, match="expected dtype int16, found 65541"):
        decoded(Audio(dtype="int16"), file)


@pytest.mark.parametrize("encoding", ["none", "bytes", "zlib"])
def test_arrays_files_and_paths_are_taken(encoding: str, tmp_path: Path) -> None:
    feature = Audio(shape=(None,), dtype="int16", encoding=encoding)
    file = wav(struct.pack("<3h", 1, -2, 3))
    (tmp_path / "a.wav").write_bytes(file)
    for value in (
        [1, -2, 3],
        np.array([1, -2, 3]),
        file,
        io.BytesIO(file),
        tmp_path / "a.wav",
        str(tmp_path / "a.wav"),
    ):
        assert decoded(feature, value).tolist() == [1, -2, 3]


def test_a_file_that_is_kept_is_kept_byte_for_byte() -> None:
    file = wav(b"\0\0" * 5)
    features = FeaturesDict({"x": Audio(lazy_decode=True)})
    assert codec_of(features).flatten({"x": io.BytesIO(file)}) == {"x": [file]}
    with pytest.raises(FeatureError) as caught:
        codec_of(features).encode({"x": [1, 2]})
    assert caught.value.message == "feature 'x': lazy_decode stores files: expected an audio file, found list"
    assert caught.value.hint == "Pass its bytes or its path, or leave lazy_decode out to store samples."


@pytest.mark.parametrize(
    ("container", "subtype", "samples"),
    [
        ("FLAC", "PCM_16", np.array([[1, -2], [300, 4]], np.int16)),
        ("FLAC", "PCM_24", np.array([[256, -512], [2**24, 0]], np.int32)),
        ("FLAC", "PCM_S8", np.array([[1, -2], [127, -128]], np.int8)),
        ("WAV", "FLOAT", np.array([[2**30, -(2**31)], [0, 2**31 - 1]], np.int32)),
    ],
)
def test_other_files_are_read_by_soundfile(container: str, subtype: str, samples: Any) -> None:
    file = io.BytesIO()
    written = samples / 2**31 if subtype == "FLOAT" else samples
    if samples.dtype == np.int8:
        written = samples.astype(np.int16) << 8
    soundfile.write(file, written, 8000, format=container, subtype=subtype)
    for lazy in (False, True):
        found = decoded(Audio(shape=(None, 2), lazy_decode=lazy), file.getvalue())
        assert found.tolist() == samples.tolist()


def test_a_file_that_is_kept_is_checked_by_its_header_and_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    soundfile.write(file, np.zeros((100, 3), np.int16), 8000, format="FLAC", subtype="PCM_16")
    monkeypatch.setattr(soundfile.SoundFile, "read", None)
    data = file.getvalue()
    for shape in ((None,), (100,), (None, 3), (100, 1)):
        assert Audio(shape=shape, lazy_decode=True).flatten(data, "x") == ([data],)
    for shape, message in (
        ((None, 2), "expected 2 channels, found 3, which cannot be converted"),
        ((99, 3), "expected shape (99, 3), found audio of shape (100, 3)"),
        ((99,), "expected shape (99,), found audio of shape (100,)"),
    ):
        with pytest.raises(FeatureError) as caught:
            Audio(shape=shape, lazy_decode=True).flatten(data, "x")
        assert caught.value.message == f"feature 'x': {message}"


def test_a_wav_of_the_extensible_form_is_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    extra = struct.pack("<HHIH", 22, 16, 4, 1) + bytes(14)
    found = decoded(Audio(), wav(struct.pack("<2h", 1, 2), coding=0xFFFE, extra=extra))
    assert found.tolist() == [1, 2]
    with pytest.raises(MissingExtraError) as caught:
        decoded(Audio(), wav(struct.pack("<2f", 1, 0), coding=3, bits=32))
    assert caught.value.message == (
        "decoding audio other than WAV with integers needs the package 'soundfile', which is not installed"
    )
    assert caught.value.hint == "Install it with: pip install 'shardbook[audio]'"


def test_a_damaged_file_is_corrupt() -> None:
    codec = codec_of(FeaturesDict({"x": Audio(lazy_decode=True)}))
    files = [b"RIFF\0\0\0\0WAVE", wav(b"")[:30], wav(b"\0\0", channels=0), wav(b"\0\0", bits=12)]
    check_errors(GOLDEN / "features_sound_files.txt", (partial(codec.restore, {"x": [file]}) for file in files))
    for file in (b"nothing", b"fLaC" + bytes(50)):  # the rest is what libsndfile says
        with pytest.raises(CorruptExampleError) as caught:
            codec.restore({"x": [file]})
        assert caught.value.details["problem"].startswith("cannot read the audio file: ")


def test_a_file_that_would_become_huge_is_refused() -> None:
    channels = 2**30
    with pytest.raises(CorruptExampleError) as caught:
        codec_of(FeaturesDict({"x": Audio(shape=(None, channels), lazy_decode=True)})).restore({"x": [wav(b"\0\0")]})
    problem = f"expected at most {MAX_SAMPLES} samples, found an audio file of 1 in {channels} channels"
    assert caught.value.details["problem"] == problem
    with pytest.raises(CorruptExampleError, match="expected 1 audio files, found 2"):
        codec_of(FeaturesDict({"x": Audio(lazy_decode=True)})).restore({"x": [b"", b""]})


def test_the_content_of_audio_is_its_samples_if_we_decode_them() -> None:
    reader = ContentReader(FeaturesDict({"x": Audio(lazy_decode=True)}))
    frames = struct.pack("<2h", 1, 2)
    one, other = wav(frames), wav(frames, coding=0xFFFE, extra=struct.pack("<HHIH", 22, 16, 4, 1) + bytes(14))
    records = [codec_of(reader.features).encode({"x": file}) for file in (one, other, wav(frames + frames))]
    contents = [reader.read(record)[0] for record in records]
    assert contents[0] == contents[1] != contents[2]


def test_audio_that_contradicts_itself_is_refused() -> None:
    wrong: list[dict[str, Any]] = [{"shape": ()}, {"shape": (None, 2, 3)}, {"dtype": str}, {"sample_rate": -1}]
    wrong.append({"lazy_decode": True, "encoding": "zlib"})
    check_errors(GOLDEN / "features_sound.txt", (partial(Audio, **options) for options in wrong))


@pytest.mark.parametrize(("bits", "channels"), [(8, 127), (8, 128), (8, 300), (16, 32767), (16, 65535)])
def test_more_channels_than_a_sample_can_count_are_mixed(bits: int, channels: int) -> None:
    loud = b"\xff\x7f" if bits == 16 else b"\xff"
    mixed = decode_sound(wav(loud * channels, channels=channels, bits=bits), 1)
    each = (2 ** (bits - 1) - 1) // channels  # each is divided, then all are added
    assert mixed.tolist() == [[each * channels]]
