"""ArrayRecord and Parquet files that TFDS and Hugging Face wrote are read as they read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from registry.api import Catalog
from registry.features import Ragged
from registry.order import ReadConfig

FOLDER = Path(__file__).parent


def plain(value: Any) -> Any:
    """A decoded value as JSON holds it."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Ragged):
        return value.to_list()
    return [plain(item) for item in value] if value.dtype == object else value.tolist()


@pytest.mark.parametrize("name", ["lab_array", "lab_parquet"])
def test_files_written_by_tfds_are_read_in_the_order_of_tfds(catalog: Catalog, name: str) -> None:
    catalog.publish(FOLDER / name / "1.0.0")
    dataset = catalog.dataset(name)
    expected = json.loads((FOLDER / name / "1.0.0.expected.json").read_text())
    for split, examples in expected["reads"].items():
        assert list(map(plain, dataset.read(split, slicing="tfds-4"))) == examples
    for seed, ids in expected.get("shuffled", {}).items():
        config = ReadConfig(shuffle_files=True, shuffle_seed=int(seed))
        assert list(dataset.read("train", config).ids()) == ids
    assert dataset.verify(deep=True).faults == ()


def test_what_hugging_face_wrote_is_read_as_it_reads_it(catalog: Catalog) -> None:
    catalog.import_parquet(FOLDER / "hugging_face" / "animals")
    dataset = catalog.dataset("animals")
    assert dataset.features.labels() == {"label": ["cat", "dog"], "parts-k": ["x", "y"]}
    assert {name: split.num_examples for name, split in dataset.splits.items()} == {"train": 9, "test": 2}
    expected = json.loads((FOLDER / "hugging_face" / "animals.expected.json").read_text())
    for row in expected:  # here a list of dicts is a dict of lists
        row["parts"] = {key: [part[key] for part in row["parts"]] for key in ("a", "k")}
    assert list(map(plain, dataset.read("train"))) == expected
    assert dataset.read("train")[0]["image"].dtype == np.uint8
    assert list(map(plain, dataset.read("test"))) == expected[:2]
