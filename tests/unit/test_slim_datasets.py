"""A dataset of TF-Slim: it does not change, travels to other processes, and is held against its files."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from registry import slim
from registry.errors import CorruptExampleError, RegistryError
from registry.tfrecord import frame_record
from registry.wire import encode_example

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
    assert str(caught.value) == "f: record at byte 60: feature 'a' holds string values, where int64 was declared"
    assert caught.value.details == provided.value.details


def test_what_else_goes_wrong_in_a_decoder_comes_with_the_record_beside_it() -> None:
    class Odd(slim.DataDecoder):
        def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[int]:
            return [1 // (int(data) - 2) for _ in self.check_items(items)]

        def list_items(self) -> list[str]:
            return ["number"]

    dataset = slim.Dataset("lines", slim.TextLineReader, Odd(), 3, None)
    with pytest.raises(ZeroDivisionError) as caught:
        dataset.validate(deep=True)
    assert caught.value.__notes__ == ["while the record at line 2 of lines was decoded"]


def test_what_a_dataset_says_and_is_not_is_told_at_once() -> None:
    dataset = slim.Dataset("f", None, DECODER, 4, {"count": "it"})
    with pytest.raises(RegistryError) as caught:
        dataset.validate()
    assert str(caught.value) == (
        "the dataset is not what it says: item 'number' has no description; 'count' is described, and no item; "
        "it says 4 samples, and its files hold 3"
    )
