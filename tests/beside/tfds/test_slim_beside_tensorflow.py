"""Our decoders and TensorFlow parse the same records to the same values, or both refuse them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.slim_samples import element_features, examples, feature_maps, name_of, sequences, var_len_features

from registry.errors import CorruptExampleError
from registry.slim import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    ItemHandlerCallback,
    SparseFeature,
    SparseTensorValue,
    TFExampleDecoder,
    TFSequenceExampleDecoder,
    VarLenFeature,
)

pytestmark = pytest.mark.tfds


def theirs(tf: Any, spec: Any) -> Any:
    """The same feature as TensorFlow declares it."""
    dtype = tf.dtypes.as_dtype(name_of(spec))
    match spec:
        case FixedLenFeature():
            default = None if spec.default_value is None else spec.default_value.tolist()
            return tf.io.FixedLenFeature(spec.shape, dtype, default)
        case VarLenFeature():
            return tf.io.VarLenFeature(dtype)
        case SparseFeature():
            return tf.io.SparseFeature(spec.index_key[0], spec.value_key, dtype, spec.size[0], spec.already_sorted)
        case FixedLenSequenceFeature():
            return tf.io.FixedLenSequenceFeature(spec.shape, dtype, spec.allow_missing)


def raw_items(features: dict[str, Any]) -> dict[str, ItemHandlerCallback]:
    """Each parsed feature as an item."""
    return {key: ItemHandlerCallback(key, lambda values: next(iter(values.values()))) for key in features}


def plain(value: Any) -> Any:
    if hasattr(value, "dense_shape") and not isinstance(value, SparseTensorValue):
        value = SparseTensorValue(*(part.numpy() for part in (value.indices, value.values, value.dense_shape)))
    if isinstance(value, SparseTensorValue):
        return tuple(map(plain, value))
    array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    return array.dtype.kind.replace("S", "O"), array.shape, array.tolist()


@settings(deadline=None)
@given(data=st.data())
def test_examples_are_parsed_as_tensorflow_parses_them(tf: Any, data: st.DataObject) -> None:
    features = data.draw(feature_maps())
    record = data.draw(examples(features))
    specs = {key: theirs(tf, spec) for key, spec in features.items()}
    # Its own declarations are taken, too.
    decoder = TFExampleDecoder(specs if data.draw(st.booleans()) else features, raw_items(features))
    try:
        expected = tf.io.parse_single_example(record, specs)
    except (tf.errors.InvalidArgumentError, ValueError):
        with pytest.raises(CorruptExampleError):
            decoder.decode(record)
        return
    assert {key: plain(value) for key, value in expected.items()} == dict(
        zip(features, map(plain, decoder.decode(record)), strict=True)
    )


@settings(deadline=None)
@given(data=st.data())
def test_sequences_are_parsed_as_tensorflow_parses_them(tf: Any, data: st.DataObject) -> None:
    features = data.draw(st.dictionaries(st.sampled_from("xyz"), var_len_features() | element_features(), min_size=1))
    record = data.draw(sequences(features))
    decoder = TFSequenceExampleDecoder({}, features, raw_items(features))
    specs = {key: theirs(tf, spec) for key, spec in features.items()}
    try:
        _, expected = tf.io.parse_single_sequence_example(record, sequence_features=specs)
    except tf.errors.InvalidArgumentError:
        with pytest.raises(CorruptExampleError):
            decoder.decode(record)
        return
    assert {key: plain(value) for key, value in expected.items()} == dict(
        zip(features, map(plain, decoder.decode(record)), strict=True)
    )
