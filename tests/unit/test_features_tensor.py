"""Tensor, Scalar, Text, ClassLabel and BBox: accepted, refused and stored values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.golden import check_errors

from registry.errors import FeatureError
from registry.features import BBox, ClassLabel, FeaturesDict, Scalar, Tensor, Text, codec_of

GOLDEN = Path(__file__).with_name("golden")


def decode_one(feature: Any, flat: Any) -> Any:
    return codec_of(FeaturesDict({"x": feature})).restore(flat)["x"]


def test_uint64_keeps_its_bits_in_int64() -> None:
    (flat,) = Scalar("uint64").flatten(2**64 - 1, "x")
    assert flat[0] == -1
    assert decode_one(Scalar("uint64"), {"x": flat}) == np.uint64(2**64 - 1)


UNFIT: list[tuple[Any, Any]] = [
    *(("uint8", 300), ("uint8", -1), ("int32", 1.5), ("int64", float("nan")), ("int64", 2.0**63), ("int64", 2**63)),
    *(("uint64", 2**64), ("bool", 2), ("bool", "False"), ("float32", 1e39), ("float64", 1e300), ("float16", 70000)),
    *(("float32", None), ("float32", 1j), ("int64", [1, 2]), ("int64", [[1], [2, 3]]), (str, 5), (str, "\ud800")),
]


def test_value_that_does_not_fit_is_refused() -> None:
    calls = (partial(codec_of(FeaturesDict({"x": dtype})).encode, {"x": value}) for dtype, value in UNFIT)
    check_errors(Path(__file__).with_name("golden") / "features_tensor.txt", calls, details=["feature"])


@pytest.mark.parametrize(
    ("dtype", "value", "decoded"),
    [
        ("int32", 2.0, np.int32(2)),
        ("bool", 1, np.True_),
        ("float32", float("nan"), np.float32("nan")),
        ("float16", 0.1, np.float16(0.1)),
        ("float64", 0.1, np.float64(np.float32(0.1))),
        ("uint8", np.float64(16), np.uint8(16)),
        (str, np.str_("é"), "é".encode()),
        (bytes, b"\0a\0", b"\0a\0"),
    ],
)
def test_value_that_fits_keeps_its_value_in_the_declared_dtype(dtype: Any, value: Any, decoded: Any) -> None:
    features = FeaturesDict({"x": dtype})
    found = codec_of(features).decode(codec_of(features).encode({"x": value}))["x"]
    assert type(found) is type(decoded)
    np.testing.assert_equal(found, decoded)


def test_text_in_arrays_keeps_trailing_zero_bytes() -> None:
    features = FeaturesDict({"x": Tensor(shape=(2,), dtype=str)})
    decoded = codec_of(features).decode(codec_of(features).encode({"x": [b"a\0", "b"]}))["x"]
    assert decoded.dtype == object
    assert decoded.tolist() == [b"a\0", b"b"]


def test_one_unknown_dimension_is_found_from_the_number_of_values() -> None:
    assert decode_one(Tensor(shape=(2, None), dtype="int32"), {"x": np.arange(6)}).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert decode_one(Tensor(shape=(2, None), dtype="int32"), {"x": np.arange(0)}).shape == (2, 0)
    assert decode_one(Tensor(shape=(None, 2), dtype="int32"), {}).shape == (0, 2)


def test_several_unknown_dimensions_are_stored_as_shape_and_bytes() -> None:
    features = FeaturesDict({"x": Tensor(shape=(None, 3, None), dtype="float64", encoding="bytes")})
    value = np.arange(12, dtype=np.float64).reshape(2, 3, 2) / 7
    flat = codec_of(features).flatten({"x": value})
    assert flat["x/shape"].tolist() == [2, 3, 2]
    assert flat["x/value"] == [value.astype("<f8").tobytes()]
    np.testing.assert_array_equal(codec_of(features).restore(flat)["x"], value)


def test_several_unknown_dimensions_need_an_encoding() -> None:
    with pytest.raises(FeatureError, match="several unknown dimensions") as caught:
        codec_of(FeaturesDict({"x": Tensor(shape=(None, None), dtype="int8")})).encode({"x": [[1]]})
    assert "encoding='bytes'" in str(caught.value.hint)


STORED = Tensor(shape=(None, None), dtype="int8", encoding="bytes")
NOT_HELD: list[tuple[Any, dict[str, Any]]] = [
    *((Scalar("int64"), {}), (Scalar("int64"), {"x": np.arange(2)}), (Scalar("int64"), {"x": [b"1"]})),
    *((Scalar("int64"), {"x": np.ones(1, np.float32)}), (Scalar("uint8"), {"x": np.array([300])})),
    *((Scalar("bool"), {"x": np.array([2])}), (Text(), {"x": []})),
    (Tensor(shape=(3,), dtype="float32"), {"x": np.ones(2, np.float32)}),
    (Tensor(shape=(2, None), dtype="float32"), {"x": np.ones(3, np.float32)}),
    (Tensor(shape=(2,), dtype="int16", encoding="bytes"), {"x": [b"123"]}),
    (Tensor(shape=(2,), dtype="bool", encoding="bytes"), {"x": [b"\1\2"]}),
    (STORED, {"x/shape": np.array([2, 2]), "x/value": [b"123"]}),
    (STORED, {"x/shape": np.array([-1, -1]), "x/value": [b"1"]}),
    (STORED, {"x/shape": np.array([2]), "x/value": [b"12"]}),
]


def test_record_that_does_not_hold_the_feature_is_corrupt() -> None:
    calls = (partial(decode_one, *case) for case in NOT_HELD)
    check_errors(GOLDEN / "features_tensor_records.txt", calls, details=["feature"])


CONTRADICTING: list[Callable[[], Any]] = [
    *(partial(Tensor, shape=(), dtype=dtype) for dtype in ("complex64", "no such")),
    *(partial(Tensor, shape=shape, dtype="int8") for shape in ((-1,), 5, (0, None))),
    *(partial(Tensor, shape=(), dtype="int8", encoding="zip"), partial(Tensor, shape=(), dtype=str, encoding="bytes")),
    partial(Tensor, shape=(), dtype="int8", minimum=float("nan")),
    *(partial(Tensor, shape=(), dtype="float32", maximum=most) for most in (0.5, float("inf"))),  # it holds int64
    partial(Tensor, shape=(), dtype="uint64", maximum=2**63),
    *(ClassLabel, partial(ClassLabel, num_classes=-1), partial(ClassLabel, num_classes=3, names=["a"])),
    *(partial(ClassLabel, names=names) for names in (["a", "a"], ["two\nlines"], [" a"], [""])),
]


def test_feature_that_contradicts_itself_is_refused() -> None:
    check_errors(GOLDEN / "features_tensor_contradictions.txt", CONTRADICTING)


def test_class_label_accepts_a_number_a_name_and_minus_one_for_no_label() -> None:
    features = FeaturesDict({"x": ClassLabel(names=["cat", "dog"])})
    for value, number in [("dog", 1), (b"cat", 0), (1, 1), (-1, -1), (np.uint8(1), 1)]:
        decoded = codec_of(features).decode(codec_of(features).encode({"x": value}))["x"]
        assert decoded == number
        assert type(decoded) is np.int64


def test_unknown_label_offers_the_nearest() -> None:
    with pytest.raises(FeatureError) as caught:
        codec_of(FeaturesDict({"animal": ClassLabel(names=["cat", "dog"])})).encode({"animal": "cot"})
    assert str(caught.value) == "feature 'animal': unknown label 'cot'"
    assert caught.value.hint == "Did you mean 'cat'? There are: cat, dog."


@pytest.mark.parametrize("value", [2, -2, 0.5, None, [0], "dog", "2", "00000000000000000001"])
def test_label_that_there_is_not_is_refused(value: Any) -> None:
    with pytest.raises(FeatureError):
        codec_of(FeaturesDict({"x": ClassLabel(num_classes=2)})).encode({"x": value})


def test_a_class_label_without_names_uses_its_numbers_as_names() -> None:
    label = ClassLabel(num_classes=3)
    assert (label.str2int("2"), label.int2str(2), label.names) == (2, "2", None)
    with pytest.raises(FeatureError):
        label.int2str(3)


@pytest.mark.parametrize(
    "box", [(0, 0, 1.5, 1), (0.5, 0, 0.2, 1), (0, 0.5, 1, 0.2), (0, 0, 1), (float("nan"), 0, 1, 1)]
)
def test_an_invalid_box_is_refused(box: Any) -> None:
    with pytest.raises(FeatureError):
        codec_of(FeaturesDict({"x": BBox()})).encode({"x": box})


def test_features_are_values() -> None:
    assert Scalar("int8") == Scalar(np.int8) != Tensor(shape=(), dtype="int8")
    assert ClassLabel(names=["a"]) != ClassLabel(num_classes=1)
    assert FeaturesDict({"a": "int8", "b": Text()}) == FeaturesDict({"b": Text(), "a": np.int8})
    assert len({FeaturesDict({"a": "int8"}), FeaturesDict({"a": np.int8})}) == 1


def test_small_and_large_numbers_together_keep_every_bit() -> None:
    numbers = [0, 2**63 + 1, 2**64 - 1]
    (flat,) = Tensor(shape=(3,), dtype="uint64").flatten(numbers, "n")
    assert np.asarray(flat).view(np.uint64).tolist() == numbers
    (flat,) = Tensor(shape=(2,), dtype="int64").flatten([np.uint64(2**53 + 1), -(2**53) - 1], "n")
    assert np.asarray(flat).tolist() == [2**53 + 1, -(2**53) - 1]
    with pytest.raises(FeatureError, match=r"^feature 'n': expected dtype uint64, found .*(?m:$)"):
        Tensor(shape=(2,), dtype="uint64").flatten([-1, 2**63 + 1], "n")
    with pytest.raises(FeatureError, match=r"^feature 'n': expected dtype int64, found .*(?m:$)"):
        Tensor(shape=(2,), dtype="int64").flatten([1, 2**63], "n")
