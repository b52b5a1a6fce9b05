"""Audio in Parquet columns: decoded if Hugging Face's metadata declares it and the first file states its rate."""

from __future__ import annotations

import io
import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from registry.features import Audio, Feature, FeaturesDict, Sequence, Tensor
from registry.interop.parquet import describe_parquet
from registry.shards.blocks import TableBlock
from registry.storage import open_store

SOUND_BYTES = Tensor(shape=(), dtype=bytes, description="The bytes of an audio file.")


def wav(samples: list[list[int]]) -> bytes:
    """A WAV file of 16 bits and 16 kHz: a list for each moment, with a number for each channel."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((len(samples[0]), 2, 16000, 0, "NONE", ""))
        writer.writeframes(np.array(samples, "<i2").tobytes())
    return file.getvalue()


MONO, STEREO = wav([[1], [-2], [3]]), wav([[1, 3], [2, 4]])


def sounds(files: list[bytes | None], **hint: Any) -> pa.Table:
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    rows = [None if data is None else {"bytes": data, "path": "a.wav"} for data in files]
    return with_features(pa.table({"sound": pa.array(rows, kind)}), sound={"_type": "Audio", **hint})


def with_features(table: pa.Table, **features: Any) -> pa.Table:
    return table.replace_schema_metadata({b"huggingface": json.dumps({"info": {"features": features}}).encode()})


def features_of(folder: Path, table: pa.Table) -> FeaturesDict:
    parquet.write_table(table, folder / "train.parquet")
    return describe_parquet(open_store(folder), name="sounds").features


@pytest.mark.parametrize(
    ("first", "hint", "feature", "value"),
    [
        (MONO, {"sampling_rate": 16000}, Audio(dtype="int32", sample_rate=16000, lazy_decode=True), [1, -2, 3]),
        (MONO, {}, Audio(dtype="int32", sample_rate=16000, lazy_decode=True), [1, -2, 3]),
        (
            STEREO,
            {"sampling_rate": None},
            Audio(shape=(None, 2), dtype="int32", sample_rate=16000, lazy_decode=True),
            [[1, 3], [2, 4]],
        ),
        (STEREO, {"mono": True}, Audio(dtype="int32", sample_rate=16000, lazy_decode=True), [2, 3]),
        (STEREO, {"num_channels": 1}, Audio(dtype="int32", sample_rate=16000, lazy_decode=True), [2, 3]),
        (MONO, {"sampling_rate": 8000}, SOUND_BYTES, MONO),
        (b"no sound", {"sampling_rate": 16000}, SOUND_BYTES, b"no sound"),
        (MONO[:30], {"sampling_rate": 16000}, SOUND_BYTES, MONO[:30]),
        (b"", {"sampling_rate": 16000}, SOUND_BYTES, b""),
    ],
    ids=["rate", "no rate", "stereo", "mono", "one channel", "another rate", "no sound", "damaged", "empty"],
)
def test_audio_is_decoded_if_its_rate_is_known(
    tmp_path: Path, first: bytes, hint: dict[str, Any], feature: Feature, value: Any
) -> None:
    table = sounds([first, wav([[5]])], **hint)
    features = features_of(tmp_path, table)
    assert features == FeaturesDict({"sound": feature})
    one, other = TableBlock(table, features).decode().examples()
    if isinstance(feature, Audio):
        assert one["sound"].tolist() == value
        assert one["sound"].dtype == np.int32
        assert other["sound"].tolist() == ([[5, 5]] if len(feature.shape) == 2 else [5])
    else:
        assert one["sound"] == value


def test_audio_in_lists_is_decoded(tmp_path: Path) -> None:
    table = with_features(
        pa.table({"sounds": pa.array([[MONO, STEREO], []], pa.list_(pa.binary()))}), sounds=[{"_type": "Audio"}]
    )
    features = features_of(tmp_path, table)
    assert features == FeaturesDict({"sounds": Sequence(Audio(dtype="int32", sample_rate=16000, lazy_decode=True))})
    one, other = TableBlock(table, features).decode().examples()
    assert [sound.tolist() for sound in one["sounds"]] == [[1, -2, 3], [2, 3]]
    assert len(other["sounds"]) == 0


@pytest.mark.parametrize("files", [[], [None, MONO]], ids=["no rows", "null"])
def test_audio_that_nobody_can_look_at_stays_bytes(tmp_path: Path, files: list[bytes | None]) -> None:
    assert features_of(tmp_path, sounds(files)) == FeaturesDict({"sound": SOUND_BYTES})
