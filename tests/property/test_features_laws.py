"""Laws of features: what is encoded is decoded, schemas are read back, and hostile input ends in a typed error."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from registry.errors import CorruptExampleError, FeatureError, PreparedFormatError
from registry.features import (
    BBox,
    ClassLabel,
    Feature,
    FeaturesDict,
    Image,
    Ragged,
    Scalar,
    Sequence,
    Tensor,
    Text,
    features_from_json,
)
from registry.features.containers import columns_of
from registry.features.deflate import compress
from registry.features.png import encode_png, read_png, undo_filters

INTEGERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NAMES = st.text("abc/é-", min_size=1, max_size=4)


def dtypes() -> st.SearchStrategy[str]:
    return st.sampled_from([*INTEGERS, "float16", "float32", "float64", "string"])


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    dtype = draw(dtypes())
    shape: list[int | None] = list(draw(st.lists(st.integers(1, 3), max_size=3)))
    encoding = "none" if dtype == "string" else draw(st.sampled_from(["none", "bytes"]))
    for place in range(len(shape)):
        if draw(st.booleans()) and (encoding == "bytes" or None not in shape):
            shape[place] = None
    return Tensor(shape=tuple(shape), dtype=dtype, encoding=encoding)


def leaves() -> st.SearchStrategy[Feature]:
    shapes = st.tuples(st.none() | st.integers(1, 4), st.none() | st.integers(1, 4), st.integers(1, 4))
    return st.one_of(
        tensors(),
        dtypes().map(Scalar),
        st.integers(1, 5).map(lambda number: ClassLabel(num_classes=number)),
        st.lists(st.text("abc", min_size=1), min_size=1, unique=True).map(lambda names: ClassLabel(names=names)),
        st.just(Text()),
        st.just(BBox()),
        st.builds(lambda shape, dtype: Image(shape=shape, dtype=dtype), shapes, st.sampled_from(["uint8", "uint16"])),
        st.just(Image(shape=(None, None, 1), dtype="float32")),
    )


def schemas() -> st.SearchStrategy[FeaturesDict]:
    def nest(inner: st.SearchStrategy[Feature]) -> st.SearchStrategy[Feature]:
        return st.one_of(
            st.builds(_try_sequence, inner, st.none() | st.integers(0, 3)),
            st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(_try_dict),
        )

    features = st.recursive(leaves(), nest, max_leaves=4)
    return st.dictionaries(NAMES, features, max_size=4).map(_try_dict)


def _try_sequence(feature: Feature, length: int | None) -> Feature:
    differs = any(column.leaf.parts[0].size is None for column in columns_of(feature))
    if differs and not isinstance(feature, Tensor):  # their unknown dimension would have to be the same in each element
        return feature
    try:
        return Sequence(feature, length)
    except FeatureError:
        return feature


def _try_dict(features: dict[str, Feature]) -> FeaturesDict:
    try:
        return FeaturesDict(features)
    except FeatureError:  # two names that are stored under one key
        return FeaturesDict({"only": next(iter(features.values()))})


def arrays(shape: tuple[int, ...], dtype: np.dtype[Any]) -> st.SearchStrategy[Any]:
    if dtype.kind == "O":
        return hnp.arrays(object, shape, elements=st.binary(max_size=4) | st.text(max_size=4), fill=st.nothing())
    if dtype.name == "float64":  # as exact as they are stored
        return hnp.arrays(np.float32, shape).map(lambda array: array.astype(np.float64))
    return hnp.arrays(dtype, shape)


def values(draw: st.DrawFn, feature: Any) -> Any:
    """A value of ``feature``, in one of the forms that it takes."""
    if isinstance(feature, FeaturesDict):
        return {name: values(draw, feature[name]) for name in feature}
    if isinstance(feature, Sequence):
        number = draw(st.integers(0, 3)) if feature.length is None else feature.length
        if isinstance(feature.feature, Tensor) and None in feature.feature.shape and feature.feature.encoding == "none":
            shape = tuple(draw(st.integers(1, 3)) if size is None else size for size in feature.feature.shape)
            return draw(arrays((number, *shape), feature.feature.dtype))
        return [values(draw, feature.feature) for _ in range(number)]
    if isinstance(feature, ClassLabel):
        named = [] if feature.names is None else [st.sampled_from(feature.names)]
        return draw(st.one_of(st.integers(-1, feature.num_classes - 1), *named))
    if isinstance(feature, BBox):
        low, high = draw(
            hnp.arrays(np.float32, (2, 2), elements=st.floats(0, 1, width=32)).map(lambda a: np.sort(a, axis=0))
        )
        return np.concatenate([low, high])
    smallest = 1 if isinstance(feature, Image) else 0
    shape = tuple(draw(st.integers(smallest, 3)) if size is None else size for size in feature.shape)
    array = draw(arrays(shape, feature.dtype))
    return array if shape or draw(st.booleans()) else array[()]


@st.composite
def schemas_and_examples(draw: st.DrawFn) -> tuple[FeaturesDict, dict[str, Any]]:
    features = draw(schemas())
    return features, values(draw, features)


def expected(feature: Any, value: Any) -> Any:
    """What ``value`` decodes to, as nested lists; a sequence of dicts as a dict of lists."""
    if isinstance(feature, FeaturesDict):
        return {name: expected(feature[name], value[name]) for name in feature}
    if isinstance(feature, Sequence):
        elements = [expected(feature.feature, element) for element in value]
        return _transposed(feature.feature, elements)
    if isinstance(feature, ClassLabel):
        return feature.str2int(value) if isinstance(value, str) else value
    if feature.dtype == object:
        return _encoded(np.asarray(value, object).tolist())
    return np.asarray(value, feature.dtype).tolist()


def _transposed(feature: Any, elements: list[Any]) -> Any:
    while isinstance(feature, Sequence):
        feature = feature.feature
    if not isinstance(feature, FeaturesDict):
        return elements
    return {name: _transposed(feature[name], [element[name] for element in elements]) for name in feature}


def _encoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_encoded(item) for item in value]
    return value.encode() if isinstance(value, str) else value


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, Ragged):
        return [plain(row) for row in value]
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [plain(item) for item in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def check_types(feature: Any, value: Any, levels: int = 0) -> None:
    """Every value has the declared dtype and shape."""
    if isinstance(feature, FeaturesDict):
        for name in feature:
            check_types(feature[name], value[name], levels)
    elif isinstance(feature, Sequence):
        check_types(feature.feature, value, levels + 1)
    elif levels > 1:
        assert isinstance(value, Ragged)
        assert len(value.row_lengths) == levels - 1
        assert value.dtype in (feature.dtype, object)
    elif not levels and not feature.shape:
        assert isinstance(value, bytes) if feature.dtype == object else value.dtype == feature.dtype
        assert not isinstance(value, np.ndarray)
    elif value.dtype != object or feature.dtype == object:
        assert value.dtype == feature.dtype
        assert value.ndim == len(feature.shape) + levels


@given(schemas_and_examples())
def test_what_is_encoded_is_decoded(given_: tuple[FeaturesDict, dict[str, Any]]) -> None:
    features, example = given_
    decoded = features.decode_example(features.encode_example(example))
    np.testing.assert_equal(plain(decoded), expected(features, example))
    check_types(features, decoded)


@given(schemas_and_examples())
def test_what_is_decoded_encodes_to_the_same_bytes(given_: tuple[FeaturesDict, dict[str, Any]]) -> None:
    features, example = given_
    record = features.encode_example(example)
    assert features.encode_example(features.decode_example(record)) == record


@given(schemas())
def test_schema_is_read_back(features: FeaturesDict) -> None:
    text = features.to_json()
    again = features_from_json(text)
    assert again.to_json() == text
    try:
        labels = features.labels()
    except FeatureError:  # two labels whose files would have one name
        return
    assert again.with_labels(labels) == features


@given(schemas_and_examples(), st.data())
def test_damaged_record_decodes_or_is_corrupt(given_: tuple[FeaturesDict, dict[str, Any]], data: st.DataObject) -> None:
    features, example = given_
    flat = features.flatten_example(example)
    for key in list(flat):
        change = data.draw(st.sampled_from(["keep", "drop", "cut", "double", "kind", "negate"]))
        value = flat[key]
        if change == "drop":
            del flat[key]
        elif change == "cut":
            flat[key] = value[:-1]
        elif change == "double":
            flat[key] = value + value if isinstance(value, list) else np.concatenate([value, value])
        elif change == "kind":
            flat[key] = np.arange(2) if isinstance(value, list) else [b"x"]
        elif change == "negate" and not isinstance(value, list):
            flat[key] = -value
        elif change == "negate" and isinstance(value, list):
            flat[key] = [item[: len(item) // 2] for item in value]
    try:
        features.restore_example(flat)
    except CorruptExampleError as error:
        assert isinstance(error.details["feature"], str)  # noqa: PT017 - either end is right


@given(
    shape=st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 4)),
    dtype=st.sampled_from([np.uint8, np.uint16]),
    data=st.data(),
)
def test_png_holds_the_array(shape: tuple[int, int, int], dtype: Any, data: st.DataObject) -> None:
    array = data.draw(hnp.arrays(dtype, shape))
    png = read_png(encode_png(array))
    np.testing.assert_array_equal(undo_filters(png, png.inflate()), array)


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=3), st.integers(1, 900)), max_size=20))
def test_compressed_bytes_inflate_to_what_they_were(runs: list[tuple[bytes, int]]) -> None:
    data = b"".join(piece * number for piece, number in runs)
    assert zlib.decompress(compress(data)) == data


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 16))
def test_compressed_noise_of_any_skew_inflates_to_what_it_was(seed: int, skew: int) -> None:
    noise = np.random.default_rng(seed).geometric(1 / 2**skew, 20_000).astype(np.uint8).tobytes()
    assert zlib.decompress(compress(noise)) == noise


@given(st.binary(max_size=60), st.booleans(), st.integers(0, 400))
def test_damaged_image_is_corrupt(junk: bytes, is_png: bool, place: int) -> None:
    data = bytearray(encode_png(np.full((6, 7, 3), 9, np.uint8)) if is_png else b"\xff\xd8\xff" + junk)
    data[place : place + len(junk)] = junk
    try:
        FeaturesDict({"x": Image()}).restore_example({"x": [bytes(data)]})
    except CorruptExampleError as error:
        assert error.details["feature"] == "x"  # noqa: PT017 - an image may survive


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(schemas(), st.data())
def test_mutated_schema_is_read_or_names_the_key(features: FeaturesDict, data: st.DataObject) -> None:
    tree = {"root": json.loads(features.to_json())}
    place: Any = tree
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.integers(0, 3)) == 0:
            place[key] = data.draw(json_values)
            break
        place = place[key]
    check_is_read_or_refused(json.dumps(tree["root"]))


@given(schemas(), st.data())
def test_schema_with_changed_characters_is_read_or_names_the_key(features: FeaturesDict, data: st.DataObject) -> None:
    text = features.to_json()
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 5)))
    check_is_read_or_refused(text[:start] + data.draw(st.text('{}[]":,-0129atrue\\ud8', max_size=5)) + text[stop:])


def check_is_read_or_refused(text: str) -> None:
    try:
        features = features_from_json(text)
    except PreparedFormatError as error:
        assert {"file", "key", "problem"} <= error.details.keys()  # noqa: PT017 - either end is right
    else:
        assert features_from_json(features.to_json()) == features
