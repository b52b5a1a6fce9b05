"""Optional tensors: None is not stored; it decodes to what TFDS gives through TensorFlow, or to None."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from registry.errors import CorruptExampleError, FeatureError
from registry.features import FeaturesDict, Scalar, Sequence, Tensor
from registry.features.content import ContentReader
from registry.wire import decode_example

LOWEST: list[tuple[str, Any]] = [
    ("bool", False),
    ("int8", -128),
    ("int16", -(2**15)),
    ("int32", -(2**31)),
    ("int64", -(2**63)),
    *((f"uint{bits}", 0) for bits in (8, 16, 32, 64)),
    ("float16", -65504.0),
    ("float32", float(np.finfo(np.float32).min)),
    ("float64", -np.inf),  # float32 is stored
    ("string", b""),
]


@pytest.mark.parametrize(("dtype", "lowest"), LOWEST)
def test_a_missing_value_decodes_to_what_tfds_gives(dtype: str, lowest: Any) -> None:
    features = FeaturesDict(
        {"one": Scalar(dtype, optional=True), "many": Tensor(shape=(2, 1), dtype=dtype, optional=True)}
    )
    record = features.encode_example({"one": None, "many": None})
    assert decode_example(record) == {}
    found = features.decode_example(record)
    assert found["one"] == lowest
    assert found["many"].tolist() == [[lowest], [lowest]]
    assert found["many"].dtype == features["many"].dtype
    if dtype != "string":
        assert found["one"].dtype == features["one"].dtype
    assert features.missing_as_none().decode_example(record) == {"one": None, "many": None}


def test_a_float64_that_is_stored_exactly_is_missing_exactly() -> None:
    features = FeaturesDict({"x": Tensor(shape=(), dtype="float64", encoding="bytes", optional=True)})
    assert features.decode_example(features.encode_example({"x": None}))["x"] == np.finfo(np.float64).min
    bfloat = FeaturesDict({"x": Tensor(shape=(), dtype="bfloat16", encoding="zlib", optional=True)})
    found = bfloat.decode_example(bfloat.encode_example({"x": None}))["x"]
    assert found.tobytes() == b"\x7f\xff"
    assert np.isfinite(found)


def test_a_value_that_is_the_lowest_is_a_value() -> None:
    features = FeaturesDict({"x": Scalar("int8", optional=True), "y": {"z": Scalar(str, optional=True)}})
    given = features.encode_example({"x": -128, "y": {"z": ""}})
    missing = features.encode_example({"x": None, "y": {"z": None}})
    as_none = features.missing_as_none()
    assert as_none.decode_example(given) == {"x": -128, "y": {"z": b""}}
    assert as_none.decode_example(missing) == {"x": None, "y": {"z": None}}
    assert features.decode_example(given) == features.decode_example(missing)
    for schema in (features, as_none):
        contents = [ContentReader(schema).read(record) for record in (given, missing)]
        assert all(one != other for one, other in zip(*contents, strict=True))
    assert ContentReader(features).read(missing) == ContentReader(as_none).read(missing)


def test_missing_as_none_changes_nothing_but_what_is_decoded() -> None:
    features = FeaturesDict({"x": Sequence({"y": Scalar("int8")}), "z": Scalar("int8", optional=True)})
    as_none = features.missing_as_none()
    assert as_none.to_json() == features.to_json()
    assert as_none["x"] is features["x"]
    assert as_none != features
    assert repr(as_none["z"]) == "Scalar(dtype=int8, optional=True, missing_is_none=True)"


def test_columns_hold_none_as_objects() -> None:
    features = FeaturesDict({"x": Scalar("int8", optional=True), "y": Tensor(shape=(2,), dtype="int8", optional=True)})
    records = [features.encode_example(one) for one in ({"x": 1, "y": [1, 2]}, {"x": None, "y": None})]
    for chosen in (records, records * 100, records[:1] * 100, []):
        data = np.frombuffer(b"".join(chosen), np.uint8)
        lengths = np.array([len(record) for record in chosen], np.int64)
        block = features.missing_as_none().decode_block(data, lengths.cumsum() - lengths, lengths)
        columns = block.columns()
        assert columns["x"].dtype == columns["y"].dtype == object
        assert columns["x"].shape == columns["y"].shape == (len(chosen),)
        plain = features.decode_block(data, lengths.cumsum() - lengths, lengths).columns()
        assert (plain["x"].dtype, plain["y"].dtype, plain["y"].shape) == (np.int8, np.int8, (len(chosen), 2))


def test_none_is_taken_only_where_nothing_can_be_stored() -> None:
    with pytest.raises(FeatureError, match="feature 'x': None does not fit int8"):
        FeaturesDict({"x": Scalar("int8")}).encode_example({"x": None})
    many = FeaturesDict({"x": Sequence(Scalar("int8", optional=True))})
    with pytest.raises(FeatureError, match=r"feature 'x': \[1, None\] does not fit int8"):
        many.encode_example({"x": [1, None]})
    assert many.decode_example(many.encode_example({"x": [1, 2]}))["x"].tolist() == [1, 2]
    with pytest.raises(FeatureError, match="feature 'x': the example does not hold this feature"):
        FeaturesDict({"x": Scalar("int8", optional=True)}).encode_example({})


def test_a_value_of_no_entries_is_not_a_missing_one() -> None:
    features = FeaturesDict({"x": Scalar("int8", optional=True)})
    for flat in ({"x": np.empty(0, np.int64)}, {"x": np.array([1, 2])}, {"x": [b"1"]}):
        with pytest.raises(CorruptExampleError):
            features.restore_example(flat)
