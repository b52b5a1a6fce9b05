"""Tensors stored as bytes, compressed or not, and bfloat16: exact, the same bytes everywhere, bounded when hostile."""

from __future__ import annotations

import sys
import tracemalloc
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.golden import check_errors

from registry.errors import CorruptExampleError, FeatureError, MissingExtraError
from registry.features import FeaturesDict, Sequence, Tensor, codec_of, features_from_json, features_to_json, tensor

GOLDEN = Path(__file__).with_name("golden")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def restore(feature: Any, flat: Any) -> Any:
    return codec_of(FeaturesDict({"x": feature})).restore(flat)["x"]


def test_a_compressed_tensor_is_a_zlib_stream_of_its_bytes() -> None:
    features = FeaturesDict({"x": Tensor(shape=(2, 2), dtype="float64", encoding="zlib")})
    value = np.arange(4).reshape(2, 2) / 7
    (data,) = codec_of(features).flatten({"x": value})["x"]
    assert zlib.decompress(data) == value.astype("<f8").tobytes()
    assert codec_of(features).restore({"x": [zlib.compress(value.tobytes(), 9)]})["x"].tolist() == value.tolist()


def test_shapes_are_stored_with_compressed_tensors_inside_sequences() -> None:
    tensor = Tensor(shape=(None, 2, None), dtype="int16", encoding="zlib")
    features = FeaturesDict({"x": Sequence(tensor), "y": Sequence(Sequence(tensor))})
    arrays = [np.arange(4, dtype=np.int16).reshape(1, 2, 2), np.zeros((0, 2, 5), np.int16)]
    flat = codec_of(features).flatten({"x": arrays, "y": [[], arrays]})
    assert flat["x/shape"].tolist() == flat["y/shape/ragged_flat_values"].tolist() == [1, 2, 2, 0, 2, 5]  # type: ignore[union-attr]
    assert flat["y/value/ragged_row_lengths_0"].tolist() == [0, 2]  # type: ignore[union-attr]
    found = codec_of(features).restore(flat)
    for one in (found["x"], found["y"][1]):
        assert [array.tolist() for array in one] == [array.tolist() for array in arrays]


@pytest.mark.parametrize("encoding", ["bytes", "zlib"])
def test_bfloat16_is_the_upper_half_of_a_float32(encoding: str) -> None:
    features = FeaturesDict({"x": Tensor(shape=(None,), dtype="bfloat16", encoding=encoding)})
    value = np.array([1, -0.0, np.inf, 3e38], np.float32)
    (data,) = codec_of(features).flatten({"x": value})["x"]
    stored = zlib.decompress(data) if encoding == "zlib" else data
    assert stored == value.astype(BFLOAT16).tobytes()
    found = codec_of(features).decode(codec_of(features).encode({"x": value}))["x"]
    assert found.dtype == BFLOAT16 == features["x"].dtype
    assert found.tobytes() == stored
    assert features == FeaturesDict({"x": Tensor(shape=(None,), dtype=ml_dtypes.bfloat16, encoding=encoding)})
    assert (
        codec_of(FeaturesDict({"x": Tensor(shape=(4,), dtype="float32")})).flatten({"x": found})["x"].dtype
        == np.float32
    )  # type: ignore[union-attr]
    with pytest.raises(FeatureError, match=r"expected dtype bfloat16, found 1e\+39"):
        codec_of(features).encode({"x": [1e39]})


def test_bfloat16_names_its_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    text = features_to_json(FeaturesDict({"x": Tensor(shape=(), dtype="bfloat16", encoding="zlib")}))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(MissingExtraError) as caught:
        features_from_json(text)
    assert caught.value.message == "a tensor of bfloat16 needs the package 'ml_dtypes', which is not installed"
    assert caught.value.hint == "Install it with: pip install 'shardbook[bfloat16]'"


def test_tensor_that_contradicts_itself_says_how() -> None:
    check_errors(
        GOLDEN / "features_stored" / "tensor_that_contradicts_itself_says_how.txt",
        (
            partial(lambda make: make(), row)
            for row in [
                lambda: Tensor(shape=(), dtype="int8", encoding="zip"),
                lambda: Tensor(shape=(), dtype=str, encoding="zlib"),
                lambda: Tensor(shape=(), dtype="bfloat16"),
                lambda: Tensor(shape=(None,), dtype="int8", optional=True),
            ]
        ),
    )


KNOWN = Tensor(shape=(2,), dtype="int16", encoding="zlib")
UNKNOWN = Tensor(shape=(None,), dtype="int16", encoding="zlib")
SHAPED = Tensor(shape=(None, None), dtype="int16", encoding="zlib")
GOOD = zlib.compress(bytes(4))


def test_what_does_not_make_the_tensor_is_corrupt() -> None:
    check_errors(
        GOLDEN / "features_stored" / "what_does_not_make_the_tensor_is_corrupt.txt",
        (
            partial(restore, feature, flat)
            for feature, flat in [
                (KNOWN, {"x": [b""]}),
                (KNOWN, {"x": [b"junk"]}),
                (KNOWN, {"x": [GOOD[:-1]]}),
                (KNOWN, {"x": [GOOD + b"x"]}),
                (KNOWN, {"x": [GOOD[:-1] + b"x"]}),
                (KNOWN, {"x": [zlib.compress(bytes(5))]}),
                (KNOWN, {"x": [zlib.compress(bytes(2))]}),
                (UNKNOWN, {"x": [zlib.compress(bytes(3))]}),
                (SHAPED, {"x/shape": np.array([2, -1]), "x/value": [GOOD]}),
                (SHAPED, {"x/shape": np.array([2, 2]), "x/value": [GOOD]}),
                (SHAPED, {"x/shape": np.array([1, 1]), "x/value": [GOOD]}),
                (SHAPED, {"x/shape": np.array([2]), "x/value": [GOOD]}),
            ]
        ),
        details=["problem"],
    )


def peak_of(feature: Any, flat: Any) -> int:
    """Bytes that are taken to refuse ``flat``."""
    tracemalloc.start()
    try:
        with pytest.raises(CorruptExampleError):
            restore(feature, flat)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


BOMB = zlib.compress(bytes(2**26), 9)


@pytest.mark.parametrize(
    ("feature", "flat"),
    [
        (KNOWN, {"x": [BOMB]}),
        (Sequence(KNOWN), {"x": [BOMB, BOMB]}),
        (SHAPED, {"x/shape": np.array([2, 2]), "x/value": [BOMB]}),
        (SHAPED, {"x/shape": np.array([2**40, 2**40]), "x/value": [GOOD]}),
        (SHAPED, {"x/shape": np.array([2**40, 0]), "x/value": [GOOD]}),
        (
            Tensor(shape=(None, None), dtype="int16", encoding="bytes"),
            {"x/shape": np.array([2**40, 1]), "x/value": [b""]},
        ),
        (Tensor(shape=(2**31 - 1, 2), dtype="int16", encoding="zlib"), {"x": [GOOD]}),
        (Tensor(shape=(2**31 - 1, 2), dtype="int16"), {"x": np.arange(2)}),
    ],
)
def test_a_small_record_takes_little_memory_with_any_claimed_shape(feature: Any, flat: Any) -> None:
    assert peak_of(feature, flat) < 2**20


def test_a_stream_without_a_known_shape_is_bounded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor, "MAX_INFLATED", 2**16)
    assert restore(UNKNOWN, {"x": [zlib.compress(bytes(2**16))]}).size == 2**15
    assert peak_of(UNKNOWN, {"x": [BOMB]}) < 2**20


def test_shapes_that_no_array_can_have_are_refused() -> None:
    huge = 2**31 - 1
    for make in (
        lambda: Tensor(shape=(huge, huge), dtype="int8"),
        lambda: Tensor(shape=(0, huge, huge), dtype="int8"),
        lambda: Sequence(Tensor(shape=(huge,), dtype="int8"), length=huge),
        lambda: Tensor(shape=(2**27,), dtype="int8", optional=True),
    ):
        with pytest.raises(FeatureError, match=r"at most|more than"):
            make()
    for flat in (
        {"x/shape": np.array([2**62, 0]), "x/value": [b""]},
        {"x/shape": np.array([0, 2**62]), "x/value": [b""]},
    ):
        with pytest.raises(CorruptExampleError):
            restore(Tensor(shape=(None, None), dtype="int16", encoding="bytes"), flat)
