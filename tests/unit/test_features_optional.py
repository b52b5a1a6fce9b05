"""Optional tensors: None is not stored and reads as None, or on request as the value of TFDS or a given value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from registry.errors import CorruptExampleError, FeatureError
from registry.features import FeaturesDict, Scalar, Sequence, Tensor, codec_of, features_to_json
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
    record = codec_of(features).encode({"one": None, "many": None})
    assert decode_example(record) == {}
    found = codec_of(features.missing_as_tfds()).decode(record)
    assert found["one"] == lowest
    assert found["many"].tolist() == [[lowest], [lowest]]
    assert found["many"].dtype == features["many"].dtype
    if dtype != "string":
        assert found["one"].dtype == features["one"].dtype
    assert codec_of(features).decode(record) == {"one": None, "many": None}
    assert codec_of(features.missing_as_tfds().missing_as_none()).decode(record) == {"one": None, "many": None}


def test_a_float64_that_is_stored_exactly_is_missing_exactly() -> None:
    features = FeaturesDict({"x": Tensor(shape=(), dtype="float64", encoding="bytes", optional=True)})
    found = codec_of(features.missing_as_tfds()).decode(codec_of(features).encode({"x": None}))["x"]
    assert found == np.finfo(np.float64).min
    bfloat = FeaturesDict({"x": Tensor(shape=(), dtype="bfloat16", encoding="zlib", optional=True)})
    found = codec_of(bfloat.missing_as_tfds()).decode(codec_of(bfloat).encode({"x": None}))["x"]
    assert found.tobytes() == b"\x7f\xff"
    assert np.isfinite(found)


def test_a_value_that_is_the_lowest_is_a_value() -> None:
    features = FeaturesDict({"x": Scalar("int8", optional=True), "y": {"z": Scalar(str, optional=True)}})
    given = codec_of(features).encode({"x": -128, "y": {"z": ""}})
    missing = codec_of(features).encode({"x": None, "y": {"z": None}})
    as_tfds = features.missing_as_tfds()
    assert codec_of(features).decode(given) == {"x": -128, "y": {"z": b""}}
    assert codec_of(features).decode(missing) == {"x": None, "y": {"z": None}}
    assert codec_of(as_tfds).decode(given) == codec_of(as_tfds).decode(missing)
    for schema in (features, as_tfds):
        contents = [ContentReader(schema).read(record) for record in (given, missing)]
        assert all(one != other for one, other in zip(*contents, strict=True))
    assert ContentReader(features).read(missing) == ContentReader(as_tfds).read(missing)


def test_the_option_for_missing_values_changes_only_missing_values() -> None:
    features = FeaturesDict({"x": Sequence({"y": Scalar("int8")}), "z": Scalar("int8", optional=True)})
    as_tfds = features.missing_as_tfds()
    assert features_to_json(as_tfds) == features_to_json(features)
    assert as_tfds["x"] is features["x"]
    assert as_tfds != features
    assert as_tfds.missing_as_none() == features
    assert repr(features["z"]) == "Scalar(dtype=int8, optional=True)"
    assert repr(as_tfds["z"]) == "Scalar(dtype=int8, optional=True, missing=np.int8(-128))"
    assert (features.optional_paths(), as_tfds.optional_paths()) == (["z"], [])


def test_a_missing_value_may_be_filled_with_one_of_ones_own() -> None:
    features = FeaturesDict(
        {
            "id": "int8",
            "age": Scalar("int8", optional=True),
            "in": {"text": Scalar(str, optional=True), "pair": Tensor(shape=(2,), dtype="float32", optional=True)},
            "many": Sequence(Scalar("int8", optional=True)),
        }
    )
    records = [
        codec_of(features).encode(
            {"id": n, "age": age, "in": {"text": age and "x", "pair": age and [1, 2]}, "many": []}
        )
        for n, age in enumerate([None, 3])
    ]
    filled = features.fill_missing({"age": -1, "in/text": "?", "in/pair": 0.5})
    first, second = map(codec_of(filled).decode, records)
    assert (first["age"], first["age"].dtype, first["in"]["text"]) == (-1, np.int8, b"?")
    assert (first["in"]["pair"].tolist(), first["in"]["pair"].dtype) == ([0.5, 0.5], np.float32)
    assert (second["age"], second["in"]["text"], second["in"]["pair"].tolist()) == (3, b"x", [1, 2])
    columns = decode(filled, records * 50)
    assert type(columns["age"]) is type(columns["in"]["text"]) is type(columns["in"]["pair"]) is np.ndarray
    assert columns["age"].tolist() == [-1, 3] * 50
    assert columns["in"]["text"].tolist() == [b"?", b"x"] * 50
    assert columns["in"]["pair"].tolist() == [[0.5, 0.5], [1, 2]] * 50
    assert features.fill_missing({"age": 0}).optional_paths() == ["in/text", "in/pair"]
    for values, message in (
        ({"ages": 0}, "feature 'ages': unknown feature"),
        ({"id": 0}, "feature 'id': the feature is not optional, so its values cannot be missing"),
        ({"many": 0}, "feature 'many': the feature is not optional, so its values cannot be missing"),
        ({"age": 1000}, "feature 'age': expected dtype int8, found 1000"),
        ({"age": None}, "feature 'age': expected dtype int8, found None"),
        ({"in/pair": [1, 2]}, "feature 'in/pair': expected one number, text or bytes, found [1, 2]"),
        ({"in/text": None}, "feature 'in/text': expected text or bytes, found None"),
    ):
        with pytest.raises(FeatureError) as refused:
            features.fill_missing(values)
        assert str(refused.value) == message
    with pytest.raises(FeatureError, match=r"^missing= requires an optional tensor(?m:$)"):
        Scalar("int8", missing=1)
    with pytest.raises(FeatureError, match=r"^expected dtype int8, found 300(?m:$)"):
        Scalar("int8", optional=True, missing=300)
    with pytest.raises(FeatureError) as refused:
        features.fill_missing({"ages": 0})
    assert refused.value.hint == "Did you mean 'age'? There are: id, age, in/text, in/pair, many."


def decode(features: FeaturesDict, records: list[bytes]) -> dict[str, Any]:
    data = np.frombuffer(b"".join(records), np.uint8)
    lengths = np.array([len(record) for record in records], np.int64)
    return codec_of(features).decode_block(data, lengths.cumsum() - lengths, lengths).columns()


def test_columns_of_every_kind_are_masked() -> None:
    features = FeaturesDict({"x": Scalar("int8", optional=True), "y": Tensor(shape=(2,), dtype="int8", optional=True)})
    records = [codec_of(features).encode(one) for one in ({"x": 1, "y": [1, 2]}, {"x": None, "y": None})]
    for chosen in (records, records * 100, records[:1] * 100, []):
        columns, plain = decode(features, chosen), decode(features.missing_as_tfds(), chosen)
        missing = [record == records[1] for record in chosen]
        for found in (columns, plain):
            assert (found["x"].dtype, found["x"].shape) == (np.int8, (len(chosen),))
            assert (found["y"].dtype, found["y"].shape) == (np.int8, (len(chosen), 2))
        assert columns["x"].mask.tolist() == missing
        assert columns["y"].mask.tolist() == [[one, one] for one in missing]
        assert columns["x"].tolist() == [None if one else 1 for one in missing]
        assert type(plain["x"]) is type(plain["y"]) is np.ndarray
        assert plain["x"].tolist() == [-128 if one else 1 for one in missing]


@pytest.mark.parametrize("dtype", [dtype for dtype, _ in LOWEST])
def test_nothing_that_looks_like_a_value_is_below_the_mask_of_floats_and_texts(dtype: str) -> None:
    features = FeaturesDict({"x": Scalar(dtype, optional=True), "y": Tensor(shape=(2,), dtype=dtype, optional=True)})
    one = np.zeros(2, features["y"].dtype)
    one[:] = b"a" if dtype == "string" else 1
    given, missing = (codec_of(features).encode({"x": x, "y": y}) for x, y in ((one[0], one), (None, None)))
    for chosen in ([given, missing], [given, missing] * 100, [missing] * 100):
        columns = decode(features, chosen)
        below = [columns["x"].data[1], *columns["y"].data[1]]
        if dtype == "string":
            assert below == [None] * 3
        else:
            assert all(np.isnan(below) if dtype.startswith("float") else np.equal(below, 0))
        if dtype.startswith("float"):
            assert np.isnan(columns["x"].filled()[1])
        assert columns["y"].filled(one[0]).tolist() == [one.tolist()] * len(chosen)


def test_an_empty_tensor_differs_from_a_missing_one() -> None:
    features = FeaturesDict({"x": Tensor(shape=(0, 2), dtype="int8", optional=True)})
    records = [codec_of(features).encode({"x": value}) for value in (np.empty((0, 2), np.int8), None)]
    assert codec_of(features).decode(records[1]) == {"x": None}
    for chosen in (records, records * 50):
        column = decode(features, chosen)["x"]
        assert column.mask.tolist() == [False, True] * (len(chosen) // 2)
        assert (column[0].shape, column[0].dtype) == ((0, 2), np.int8)


def test_none_is_accepted_only_if_it_can_be_stored() -> None:
    with pytest.raises(FeatureError, match="feature 'x': expected dtype int8, found None"):
        codec_of(FeaturesDict({"x": Scalar("int8")})).encode({"x": None})
    many = FeaturesDict({"x": Sequence(Scalar("int8", optional=True))})
    with pytest.raises(FeatureError, match=r"feature 'x': expected dtype int8, found \[1, None\]"):
        codec_of(many).encode({"x": [1, None]})
    assert codec_of(many).decode(codec_of(many).encode({"x": [1, 2]}))["x"].tolist() == [1, 2]
    with pytest.raises(FeatureError, match="feature 'x': missing in the example"):
        codec_of(FeaturesDict({"x": Scalar("int8", optional=True)})).encode({})


def test_an_empty_value_is_not_a_missing_one() -> None:
    features = FeaturesDict({"x": Scalar("int8", optional=True)})
    for flat in ({"x": np.empty(0, np.int64)}, {"x": np.array([1, 2])}, {"x": [b"1"]}):
        with pytest.raises(CorruptExampleError):
            codec_of(features).restore(flat)
