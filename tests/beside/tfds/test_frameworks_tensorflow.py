"""tf.data gets the examples that iterating gives, in its order, with the specs that the features decide."""

from __future__ import annotations

import os
from itertools import islice
from typing import Any

import numpy as np
import pytest
from support.framework_samples import FEATURES, plain, wide_reader

from registry.errors import UsageError
from registry.features import Dataset, FeaturesDict, Image
from registry.features import Sequence as SequenceOf
from registry.order import ReadConfig
from registry.reading import SupervisedReader

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.tfds

IDS = FeaturesDict({"id": "int64"})
FIXED = FeaturesDict({name: FEATURES[name] for name in ("id", "u64", "name", "image", "three", "place")})
TENSORS = FeaturesDict({name: FEATURES[name] for name in FEATURES if name != "pictures"}).missing_as_tfds()


def untensor(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: untensor(inner) for name, inner in value.items()}
    return value.to_list() if isinstance(value, tf.RaggedTensor) else value.numpy()


@pytest.mark.parametrize("lengths", [[], [0], [9, 4], [700, 30]])
@pytest.mark.parametrize("features", [IDS, FIXED, TENSORS, FeaturesDict({"mat": FEATURES["mat"]})])
@pytest.mark.parametrize("copy", [True, False])
def test_a_dataset_holds_the_examples_that_iterating_yields(
    lengths: list[int], features: FeaturesDict, copy: bool
) -> None:
    config = ReadConfig(shuffle="global", seed=1, add_tfds_id=True)
    reader = wide_reader(lengths, config, features=features, copy=copy)
    dataset = reader.to_tf_dataset()
    assert int(dataset.cardinality()) == len(reader)
    for _ in range(2):
        assert [plain(untensor(example)) for example in dataset] == [plain(example) for example in reader]


def test_supervised_pairs_are_tuples_of_tensors() -> None:
    pairs = SupervisedReader(wide_reader([9, 4], features=FIXED), ({"picture": "image"}, "id"))
    dataset = pairs.to_tf_dataset(batch_size=5)
    assert int(dataset.cardinality()) == 3
    found = [({name: value.numpy() for name, value in image.items()}, label.numpy()) for image, label in dataset]
    for (image, label), (wanted_image, wanted_label) in zip(found, pairs.batches(5), strict=True):
        assert np.array_equal(image["picture"], wanted_image["picture"])
        assert label.tolist() == wanted_label.tolist()


def test_the_element_spec_follows_from_the_features() -> None:
    spec = wide_reader([0], features=TENSORS).to_tf_dataset().element_spec
    assert {name: spec[name] for name in ("id", "u16", "name", "image", "picture", "mat", "words", "three")} == {
        "id": tf.TensorSpec((), tf.int64),
        "u16": tf.TensorSpec((), tf.uint16),
        "name": tf.TensorSpec((), tf.string),
        "image": tf.TensorSpec((2, 3, 1), tf.uint8),
        "picture": tf.TensorSpec((None, None, 3), tf.uint8),
        "mat": tf.TensorSpec((2, None), tf.float32),
        "words": tf.TensorSpec((None,), tf.string),
        "three": tf.TensorSpec((3,), tf.int32),
    }
    assert spec["deep"] == tf.RaggedTensorSpec((None, None, None), tf.int64, ragged_rank=2, row_splits_dtype=tf.int64)
    assert spec["boxes"]["box"] == tf.TensorSpec((None, 4), tf.float32)


def test_batches_come_as_they_are_read() -> None:
    reader = wide_reader([30, 9], ReadConfig(repeat=2), features=FIXED)
    dataset = reader.to_tf_dataset(batch_size=16)
    assert int(dataset.cardinality()) == 6
    assert dataset.element_spec["image"] == tf.TensorSpec((None, 2, 3, 1), tf.uint8)
    assert [plain(untensor(batch)) for batch in dataset] == [plain(batch) for batch in reader.batches(16)]
    whole = reader.to_tf_dataset(batch_size=16, drop_remainder=True)
    assert [len(batch["id"]) for batch in whole] == [16] * 4
    assert int(whole.cardinality()) == 4


def test_an_infinite_dataset_repeats_epochs() -> None:
    reader = wide_reader([5, 2], ReadConfig(repeat=None, shuffle="global", seed=4), features=IDS)
    dataset = reader.to_tf_dataset()
    assert int(dataset.cardinality()) == int(tf.data.INFINITE_CARDINALITY)
    assert [int(example["id"]) for example in dataset.take(30)] == [int(one["id"]) for one in islice(reader, 30)]


def test_features_without_a_tensor_are_refused() -> None:
    with pytest.raises(UsageError) as refused:
        wide_reader([3]).missing_as_tfds().to_tf_dataset(batch_size=2)
    assert str(refused.value) == (
        "feature 'picture' differs in shape from example to example, so a batch of it is not a tensor"
    )
    assert refused.value.hint == (
        "Leave batch_size out, and write reader.to_tf_dataset().ragged_batch(32), or .padded_batch(32)."
    )
    deep = FeaturesDict({"deep": SequenceOf(SequenceOf(Image(shape=(None, 2, 1))))})
    reader = wide_reader([0], features=deep)
    with pytest.raises(UsageError) as refused:
        reader.to_tf_dataset()
    assert str(refused.value) == (
        "feature 'deep' is ragged and its values differ in shape: TensorFlow has no tensor for that"
    )
    pictures = wide_reader([3], features=FeaturesDict({"pictures": FEATURES["pictures"]})).to_tf_dataset()
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="the sequence of an example has values that differ in shape"
    ):
        list(pictures)
    assert np.dtype("uint8") == FEATURES["image"].dtype


@pytest.mark.parametrize("batch_size", [None, 2])
def test_optional_features_are_refused_until_a_value_is_chosen(batch_size: int | None) -> None:
    reader = wide_reader([4], features=FeaturesDict({name: FEATURES[name] for name in ("id", "maybe", "corners")}))
    with pytest.raises(UsageError) as refused:
        reader.to_tf_dataset(batch_size=batch_size)
    assert str(refused.value) == ("feature 'maybe' is optional: its value may be None, which a tensor cannot represent")
    assert refused.value.hint == (
        "Choose a value for None: reader.fill_missing({'maybe': 0}), or TFDS's value, with "
        "reader.missing_as_tfds(). Or leave the feature out, with reader.select(...)."
    )
    assert refused.value.details == {"feature": "maybe", "optional": ["maybe", "corners"]}
    filled = reader.fill_missing({"maybe": -1, "corners": 7})
    dataset = filled.to_tf_dataset(batch_size=batch_size)
    expected = filled if batch_size is None else filled.batches(batch_size)
    assert [plain(untensor(item)) for item in dataset] == [plain(item) for item in expected]
    assert [int(value) for item in dataset for value in np.atleast_1d(item["maybe"])] == [0, -1, -1, 3]


@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_dataset_of_images_of_any_shape_is_refused_before_it_is_read(batch_size: int | None) -> None:
    """A Sequence needs one shape for all elements, and only reading them would show whether they have it."""
    features = FeaturesDict({"id": "int64", "steps": Dataset({"seen": Image(shape=(None, 2, 1)), "reward": "float32"})})
    reader = wide_reader([0], features=features)
    with pytest.raises(UsageError) as refused:
        reader.to_tf_dataset(batch_size=batch_size)
    assert str(refused.value) == (
        "feature 'steps/seen' belongs to the examples of a Dataset and may differ in shape, so TensorFlow "
        "cannot stack them"
    )
    assert refused.value.hint == (
        "Iterate over the reader, which yields these examples one by one; or declare their common shape."
    )
    assert refused.value.details == {"feature": "steps/seen"}
    declared = FeaturesDict({"steps": Dataset({"seen": Image(shape=(4, 2, 1))})})
    spec = wide_reader([0], features=declared).to_tf_dataset().element_spec
    assert spec["steps"]["seen"] == tf.TensorSpec((None, 4, 2, 1), tf.uint8)
