"""Laws of features: encoded values are decoded, schemas are read back, and hostile input ends in a typed error."""

from __future__ import annotations

import io
import json
import wave
import zlib
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.feature_strategies import is_lazy, schemas, schemas_and_examples
from support.levels import examples

from registry.errors import CorruptExampleError, FeatureError, PreparedFormatError
from registry.features import (
    Audio,
    ClassLabel,
    Dataset,
    FeaturesDict,
    Image,
    NestedExamples,
    Ragged,
    Sequence,
    Tensor,
    TranslationVariableLanguages,
    codec_of,
    features_from_json,
    features_to_json,
)
from registry.features.containers import content_path
from registry.features.content import ContentReader
from registry.features.dtypes import lowest_value
from registry.images.deflate import compress
from registry.images.png import encode_png, read_png, undo_filters


def expected(feature: Any, value: Any, *, is_nested: bool = True) -> Any:
    """The decoded form of ``value`` as nested lists; a sequence of dicts becomes a dict of lists."""
    if isinstance(feature, FeaturesDict):
        return {name: expected(feature[name], value[name], is_nested=is_nested) for name in feature}
    if isinstance(feature, TranslationVariableLanguages):
        texts = {language: [text] if isinstance(text, str) else text for language, text in value.items()}
        pairs = sorted((language, text) for language, several in texts.items() for text in several)
        languages, translations = [pair[0].encode() for pair in pairs], [pair[1].encode() for pair in pairs]
        return {"language": languages, "translation": translations}
    if isinstance(feature, Dataset) and is_nested:
        return [expected(feature.feature, element) for element in value]
    if isinstance(feature, Sequence):
        elements = [expected(feature.feature, element, is_nested=False) for element in value]
        return _transposed(feature.feature, elements)
    if isinstance(feature, Audio) and feature.lazy_decode:
        with wave.open(io.BytesIO(value)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())
        return (samples if len(feature.shape) == 2 else samples[:, 0]).tolist()
    if value is None:
        if feature.missing is None:
            return None
        lowest = np.array(lowest_value(feature.dtype, exact=feature.encoding != "none"), feature.dtype)
        return np.broadcast_to(lowest, feature.shape).tolist()
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
    if isinstance(value, (Ragged, NestedExamples)):
        return [plain(row) for row in value]
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [plain(item) for item in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def check_types(feature: Any, value: Any, levels: int = 0) -> None:
    """Every value has the declared dtype and shape."""
    if isinstance(feature, FeaturesDict):
        for name in feature:
            check_types(feature[name], value[name], levels)
    elif isinstance(value, NestedExamples):
        assert isinstance(feature, Dataset)
        for element in value:
            check_types(feature.feature, element)
    elif isinstance(feature, Sequence):
        check_types(feature.feature, value, levels + 1)
    elif levels > 1:
        assert isinstance(value, Ragged)
        assert len(value.row_lengths) == levels - 1
        assert value.dtype in (feature.dtype, object)
    elif not levels and value is None:
        assert feature.may_read_none
    elif not levels and not feature.shape:
        assert isinstance(value, bytes) if feature.dtype == object else value.dtype == feature.dtype
        assert not isinstance(value, np.ndarray)
    elif value.dtype != object or feature.dtype == object:
        assert value.dtype == feature.dtype
        assert value.ndim == len(feature.shape) + levels


@given(schemas_and_examples())
def test_what_is_encoded_is_decoded(given_: tuple[FeaturesDict, dict[str, Any]]) -> None:
    features, example = given_
    for read_as in (features, features.missing_as_tfds()):
        decoded = codec_of(read_as).decode(codec_of(features).encode(example))
        np.testing.assert_equal(plain(decoded), expected(read_as, example))
        check_types(read_as, decoded)


@given(schemas_and_examples())
def test_what_is_decoded_encodes_to_the_same_bytes(given_: tuple[FeaturesDict, dict[str, Any]]) -> None:
    features, example = given_
    assume(not is_lazy(features))
    record = codec_of(features).encode(example)
    assert codec_of(features).encode(codec_of(features).decode(record)) == record


@given(schemas_and_examples())
def test_content_tells_missing_values_from_the_lowest(given_: tuple[FeaturesDict, dict[str, Any]]) -> None:
    features, example = given_
    reader = ContentReader(features)
    record = codec_of(features).encode(example)
    content = dict(zip(reader.paths, reader.read(record), strict=True))
    again = dict(zip(reader.paths, reader.read(codec_of(features).encode(example)), strict=True))
    assert again == content
    for name, feature in features.items():
        if isinstance(feature, Tensor) and feature.optional:
            other = features.missing_as_tfds()[name].restore_absent() if example[name] is None else None
            changed = reader.read(codec_of(features).encode(example | {name: other}))
            path = content_path((name,))
            assert dict(zip(reader.paths, changed, strict=True)) != content
            assert dict(zip(reader.paths, changed, strict=True)) | {path: content[path]} == content


@given(schemas())
def test_schema_is_read_back(features: FeaturesDict) -> None:
    text = features_to_json(features)
    again = features_from_json(text)
    assert features_to_json(again) == text
    try:
        labels = features.labels()
    except FeatureError:  # two labels with the same filename
        return
    assert again.with_labels(labels) == features


@given(schemas_and_examples(), st.data())
def test_damaged_record_decodes_or_is_corrupt(given_: tuple[FeaturesDict, dict[str, Any]], data: st.DataObject) -> None:
    features, example = given_
    flat = codec_of(features).flatten(example)
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
        codec_of(features).restore(flat)
    except CorruptExampleError as error:
        assert isinstance(error.details["feature"], str)  # noqa: PT017 - either end is right


@given(
    shape=st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 4)),
    dtype=st.sampled_from([np.uint8, np.uint16]),
    data=st.data(),
)
def test_a_png_stores_the_array_exactly(shape: tuple[int, int, int], dtype: Any, data: st.DataObject) -> None:
    array = data.draw(hnp.arrays(dtype, shape))
    png = read_png(encode_png(array))
    np.testing.assert_array_equal(undo_filters(png, png.inflate()), array)


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=3), st.integers(1, 900)), max_size=20))
def test_compressed_bytes_inflate_to_the_original_bytes(runs: list[tuple[bytes, int]]) -> None:
    data = b"".join(piece * number for piece, number in runs)
    assert zlib.decompress(compress(data)) == data


@settings(max_examples=examples(30))
@given(st.integers(0, 2**32 - 1), st.integers(1, 16))
def test_compressed_noise_of_any_skew_inflates_to_the_original_bytes(seed: int, skew: int) -> None:
    noise = np.random.default_rng(seed).geometric(1 / 2**skew, 20_000).astype(np.uint8).tobytes()
    assert zlib.decompress(compress(noise)) == noise


@given(st.binary(max_size=60), st.booleans(), st.integers(0, 400))
def test_damaged_image_is_corrupt(junk: bytes, is_png: bool, place: int) -> None:
    data = bytearray(encode_png(np.full((6, 7, 3), 9, np.uint8)) if is_png else b"\xff\xd8\xff" + junk)
    data[place : place + len(junk)] = junk
    try:
        codec_of(FeaturesDict({"x": Image()})).restore({"x": [bytes(data)]})
    except CorruptExampleError as error:
        assert error.details["feature"] == "x"  # noqa: PT017 - an image may survive


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(schemas(), st.data())
def test_mutated_schema_is_read_or_names_the_key(features: FeaturesDict, data: st.DataObject) -> None:
    tree = {"root": json.loads(features_to_json(features))}
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
    text = features_to_json(features)
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 5)))
    check_is_read_or_refused(text[:start] + data.draw(st.text('{}[]":,-0129atrue\\ud8', max_size=5)) + text[stop:])


def check_is_read_or_refused(text: str) -> None:
    try:
        features = features_from_json(text)
    except PreparedFormatError as error:
        assert {"file", "key", "problem"} <= error.details.keys()  # noqa: PT017 - either end is right
    else:
        assert features_from_json(features_to_json(features)) == features
