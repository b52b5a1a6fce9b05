"""The shipped digits through a provider: every record once an epoch, and the same order for the same seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.golden import check_errors
from support.levels import cases

import registry
from registry import slim
from registry.wire import encode_example

GOLDEN = Path(__file__).with_name("golden")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Catalog]:
    with registry.connect(tmp_path_factory.mktemp("digits") / "catalog.db") as opened:
        opened.build("digits")
        yield opened


@pytest.mark.parametrize("split", cases(["train", "train[90%:]+train[10:500]"], everyday=1))
@pytest.mark.parametrize("num_epochs", [1, 3])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("num_readers", [1, 2, 4])
def test_digits_are_provided_once_an_epoch(
    catalog: registry.Catalog, num_readers: int, shuffle: bool, num_epochs: int, split: str
) -> None:
    version = catalog.dataset("digits")
    dataset = slim.Dataset.from_version(version, split)
    expected = [(example["image"].tobytes(), int(example["label"])) for example in version.read(split)]
    epochs = []
    for _ in range(2):
        options = {"num_readers": num_readers, "shuffle": shuffle, "num_epochs": num_epochs, "seed": 8}
        with slim.DatasetDataProvider(dataset, **options) as provider:
            assert provider.num_samples() == len(expected)
            epochs.append([(image.tobytes(), int(label)) for image, label in provider.iter(["image", "label"])])
    found, again = epochs
    assert found == again
    size = len(expected)
    assert [Counter(found[start : start + size]) for start in range(0, len(found), size)] == [
        Counter(expected)
    ] * num_epochs
    if num_readers == 1 and not shuffle and split == "train":
        names = slim.DatasetDataProvider(dataset, shuffle=False, num_epochs=1)
        keys = [key for (key,) in names.iter(["record_key"])]
        assert len(set(keys)) == size
        assert keys[0].endswith(b":0")


def test_a_builder_is_read_as_its_published_version(catalog: registry.Catalog) -> None:
    builder = registry.builder("digits", catalog=catalog)
    assert slim.Dataset.from_version(builder, "train[:7]").validate(deep=True) == 7


def test_a_pin_is_read_as_the_slice_that_it_pins(catalog: registry.Catalog) -> None:
    version = catalog.dataset("digits")
    pins = version.pin({"few": "train[5:12]"})
    pinned = slim.Dataset.from_version(pins["few"])
    assert pinned.validate(deep=True) == 7
    assert slim.Dataset.from_version(pins["few"], "train[5:12]").num_samples == 7
    assert slim.Dataset.from_version(pins).num_samples == 7  # the only pin of the file
    assert slim.Dataset.from_version(version).num_samples == 1797  # the only split of the version
    keys = [
        list(slim.DatasetDataProvider(one, num_epochs=1, seed=1).iter(["record_key"]))
        for one in (pinned, slim.Dataset.from_version(version, "train[5:12]"))
    ]
    assert keys[0] == keys[1]


def test_an_invalid_slice_of_a_version_is_refused(catalog: registry.Catalog) -> None:
    check_errors(
        GOLDEN / "slim_digits" / "an_invalid_slice_of_a_version_is_refused.txt",
        (
            partial(lambda source, split: slim.Dataset.from_version(source(catalog), split), source, split)
            for source, split in [
                (lambda catalog: catalog.dataset("digits").pin({"few": "train[5:12]"})["few"], "train"),
                (lambda catalog: catalog.dataset("digits").pin({"few": "train[5:12]", "more": "train[:5]"}), None),
                (lambda _: "digits", "train"),
            ]
        ),
    )


def test_the_features_do_not_describe_the_items_of_another_decoder(catalog: registry.Catalog) -> None:
    decoder = slim.TFExampleDecoder(
        {"label": slim.FixedLenFeature((), "int64")}, {"digit": slim.tfexample_decoder.Tensor("label")}
    )
    dataset = slim.Dataset.from_version(catalog.dataset("digits"), "train[:7]", decoder=decoder)
    assert dataset.items_to_descriptions is None
    assert dataset.validate(deep=True) == 7


def test_a_batch_is_made_while_the_last_one_is_used(catalog: registry.Catalog) -> None:
    dataset = slim.Dataset.from_version(catalog.dataset("digits"), "train")
    with (
        slim.DatasetDataProvider(dataset, num_epochs=1, seed=3) as provider,
        slim.prefetch_queue(lambda: provider.get(["image", "label"]), capacity=64) as queue,
    ):
        images, labels = queue.dequeue_many(32)
        assert images.shape == (32, *np.asarray(images[0]).shape)
        assert labels.shape == (32,)
        left = len(list(queue))
    assert 32 + left == dataset.num_samples


def test_an_empty_slice_is_a_dataset_of_no_records(catalog: registry.Catalog) -> None:
    dataset = slim.Dataset.from_version(catalog.dataset("digits"), "train[:0]")
    assert dataset.num_samples == dataset.validate() == 0
    assert list(slim.DatasetDataProvider(dataset, num_epochs=2)) == []
    with pytest.raises(registry.RegistryError) as caught:
        slim.DatasetDataProvider(dataset).get(["label"])
    assert str(caught.value) == "no records to repeat forever in an empty slice"


def test_options_given_with_a_version_override_its_own_values(catalog: registry.Catalog) -> None:
    known = slim.Dataset.from_version(catalog.dataset("digits"), "train")
    given = slim.Dataset.from_version(catalog.dataset("digits"), "train", num_classes=11, name="mine")
    assert (known.num_classes, given.num_classes, given.name) == (10, 11, "mine")
    assert given.labels_to_names == known.labels_to_names


def test_only_the_selected_features_of_a_version_are_decoded(catalog: registry.Catalog) -> None:
    decoder = slim.Dataset.from_version(catalog.dataset("digits"), "train").decoder
    records = [encode_example({"image": [b"no picture"], "label": np.array([number])}) for number in range(9)]
    assert decoder.decode(records[3], ["label"]) == [3]
    assert decoder.decode_batch(records, ["label"])[0].tolist() == list(range(9))
    with pytest.raises(registry.RegistryError):
        decoder.decode(records[3], ["image", "label"])
