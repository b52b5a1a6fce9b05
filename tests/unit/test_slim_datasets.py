"""A dataset of TF-Slim: it does not change, travels to other processes, and is held against its files."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.golden import check_errors

from registry import slim
from registry.errors import AbsentFeatureWarning, CorruptExampleError, RegistryError, WrongTypeError
from registry.tfrecord import frame_record
from registry.wire import encode_example
from registry.wire.example_pb2 import SequenceExample

GOLDEN = Path(__file__).with_name("golden")

DECODER = slim.TFExampleDecoder(
    {"a": slim.FixedLenFeature((), "int64")}, {"number": slim.tfexample_decoder.Tensor("a")}
)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values: list[Any] = [np.array([1]), np.array([2]), [b"three"]]
    Path("f").write_bytes(b"".join(frame_record(encode_example({"a": value})) for value in values))
    Path("lines").write_text("1\n2\n3\n")


def test_a_dataset_is_copied_and_travels_to_another_process() -> None:
    dataset = slim.Dataset("f", slim.TFRecordReader, DECODER, 3, {"number": "it"}, num_classes=10)
    for same in (copy.copy(dataset), copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset))):  # noqa: S301 (our own)
        assert (same.data_sources, same.reader, same.num_samples) == ("f", slim.TFRecordReader, 3)
        assert same.items_to_descriptions == {"number": "it"}
        assert same.num_classes == same.extras["num_classes"] == 10
        assert same.validate() == 3


def test_a_record_that_cannot_be_decoded_is_named_as_a_provider_names_it() -> None:
    dataset = slim.Dataset("f", None, DECODER, 3, None)
    with pytest.raises(CorruptExampleError) as caught:
        dataset.validate(deep=True)
    provider = slim.DatasetDataProvider(dataset, shuffle=False, num_epochs=1)
    with pytest.raises(CorruptExampleError) as provided:
        list(provider.iter(["number"]))
    assert str(caught.value) == str(provided.value)
    assert str(caught.value) == "f: record at byte 60: feature 'a': expected int64 values, found string"
    assert caught.value.details == provided.value.details


def test_other_errors_of_a_decoder_carry_a_note_with_the_record() -> None:
    class Odd(slim.DataDecoder):
        def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[int]:
            return [1 // (int(data) - 2) for _ in self.check_items(items)]

        def list_items(self) -> list[str]:
            return ["number"]

    dataset = slim.Dataset("lines", slim.TextLineReader, Odd(), 3, None)
    with pytest.raises(ZeroDivisionError) as caught:
        dataset.validate(deep=True)
    assert caught.value.__notes__ == ["while decoding the record at line 2 of lines"]


def test_features_that_no_record_has_are_warned_of() -> None:
    Path("f").write_bytes(frame_record(encode_example({"a": np.array([1]), "b": np.array([2])})) * 2)
    spelled = slim.TFExampleDecoder(
        {
            "aa": slim.FixedLenFeature((), "int64", -1),
            "b": slim.VarLenFeature("int64"),
            "c": slim.SparseFeature("a", "value", "float32", 3),
        },
        {"number": slim.tfexample_decoder.Tensor("aa")},
        lazy=True,
    )
    dataset = slim.Dataset("f", None, spelled, 2, None)
    with pytest.warns(AbsentFeatureWarning) as warned:
        assert dataset.validate(deep=True) == 2
    assert str(warned[0].message) == "none of 2 records has the feature aa, value; they have a, b"
    assert warned[0].filename == __file__
    assert dataset.validate() == 2  # which looks at the first record alone


def test_steps_that_no_record_has_are_warned_of() -> None:
    record = SequenceExample()
    record.context.feature["a"].int64_list.value.append(1)
    record.feature_lists.feature_list["s"].feature.add().int64_list.value.append(1)
    Path("f").write_bytes(frame_record(record.SerializeToString()))
    numbers = slim.VarLenFeature("int64")
    decoder = slim.TFSequenceExampleDecoder({"a": numbers}, {"s": numbers, "t": numbers}, {})
    with pytest.warns(AbsentFeatureWarning, match=r"^none of 1 records has the feature t; they have a, s(?m:$)"):
        slim.Dataset("f", None, decoder, 1, None).validate(deep=True)


def test_a_decoder_of_another_kind_is_validated_too() -> None:
    Path("f").write_bytes(frame_record(b"7"))

    class Named(slim.DataDecoder):
        def decode(self, data: bytes, items: Sequence[str] | None = None) -> Any:
            return dict.fromkeys(self.check_items(items), int(data))

        def list_items(self) -> list[str]:
            return ["number"]

    with pytest.raises(
        WrongTypeError, match=r"^f: record at byte 0: the decoder Named returned a dict, not a list, for the items"
    ):
        slim.Dataset("f", None, Named(), 1, None).validate()


def test_validate_reports_every_difference_between_a_dataset_and_its_files() -> None:
    dataset = slim.Dataset("f", None, DECODER, 4, {"count": "it"})
    with pytest.raises(RegistryError) as caught:
        dataset.validate()
    assert str(caught.value) == (
        "the dataset does not match its files: item 'number' has no description; "
        "the description 'count' belongs to no item; "
        "expected 4 samples, found 3 in its files"
    )


def test_extra_arguments_of_a_dataset_become_read_only_attributes() -> None:
    dataset = slim.Dataset("f", None, DECODER, 3, None, num_classes=3, labels_to_names={0: "zero"})
    assert (dataset.num_classes, dataset.labels_to_names, dict(dataset.extras)["num_classes"]) == (3, {0: "zero"}, 3)
    with pytest.raises(AttributeError, match="a dataset is immutable: pass 'num_samples' when you create it"):
        dataset.num_samples = 7
    with pytest.raises(AttributeError, match="this dataset has no attribute 'num_clases'"):
        dataset.num_clases  # noqa: B018 (the access is what is tested)


def test_only_the_first_record_is_decoded_unless_all_are_requested() -> None:
    assert slim.Dataset("f", None, DECODER, 3, {"number": "it"}).validate() == 3
    records = [encode_example({"b": np.array([1])}), encode_example({"a": np.array([1])})]
    Path("g").write_bytes(b"".join(map(frame_record, records)))
    with pytest.raises(CorruptExampleError):
        slim.Dataset("g", None, DECODER, 2, None).validate()


def test_a_dataset_that_cannot_be() -> None:
    usual = {"data_sources": "f", "reader": None, "decoder": DECODER, "num_samples": 1, "items_to_descriptions": None}
    check_errors(
        GOLDEN / "slim_datasets" / "a_dataset_that_cannot_be.txt",
        (
            partial(slim.Dataset, **{**usual, **given})
            for given in [
                {"decoder": None},
                {"decoder": slim.TFExampleDecoder},
                {"reader": 5},
                {"num_samples": -1},
                {"num_samples": 0.5},
            ]
        ),
    )


def test_a_reader_of_tensorflow_is_refused() -> None:
    reader = type("TFRecordReader", (), {"__module__": "tensorflow.python.ops.io_ops"})
    with pytest.raises(TypeError, match="cannot be called with a path to return records"):
        slim.Dataset("f", reader, DECODER, 1, None)
