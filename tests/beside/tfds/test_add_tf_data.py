"""Datasets of tf.data are added with their values and types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import registry
from registry.intake.objects import open_object

pytestmark = [pytest.mark.tfds, pytest.mark.filterwarnings("ignore")]


def rows_of(given: Any) -> list[dict[str, Any]]:
    source = open_object(given)
    return [row for part in source.parts for rows in part.read() for row in rows.table.to_pylist()]


def test_dicts_and_tuples_become_columns(tf: Any) -> None:
    numbers = tf.data.Dataset.from_tensor_slices({"x": np.eye(2, dtype=np.float32), "s": ["a", "b"]})
    assert rows_of(numbers) == [{"x": [1.0, 0.0], "s": b"a"}, {"x": [0.0, 1.0], "s": b"b"}]
    pairs = tf.data.Dataset.from_tensor_slices((np.zeros((2, 1), np.uint8), [3, 4]))
    assert rows_of(pairs) == [{"input": [0], "label": 3}, {"input": [0], "label": 4}]
    assert rows_of(tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]]))) == [
        {"input": [1]}, {"input": [2, 3]}
    ]  # fmt: skip


def test_an_infinite_dataset_is_refused(tf: Any) -> None:
    with pytest.raises(registry.RegistryError) as caught:
        open_object(tf.data.Dataset.range(3).repeat())
    assert str(caught.value) == "the tf.data dataset is infinite"


def test_splits_are_published(tf: Any, catalog: registry.Catalog) -> None:
    given = {"train": tf.data.Dataset.range(5), "test": tf.data.Dataset.range(2)}
    report = catalog.add(given, "numbers", processes=1)
    found = sorted(int(example["input"]) for example in catalog.dataset("numbers").read("train"))
    assert (report.splits, found) == ({"train": 5, "test": 2}, [0, 1, 2, 3, 4])
