"""``to_hf`` gives the features back that a column does not tell: arrays, translations, large lists, JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from registry.api import Catalog

FEATURES: dict[str, tuple[Any, list[Any]]] = {
    "Array2D": (datasets.Array2D((2, 3), "float32"), [[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [0, 1, 2]]]),
    "Array3D": (datasets.Array3D((1, 2, 2), "int64"), [[[[1, 2], [3, 4]]], [[[5, 6], [7, 8]]]]),
    "Translation": (datasets.Translation(["en", "fr"]), [{"en": "a", "fr": "b"}, {"en": "c", "fr": "d"}]),
    "LargeList": (datasets.LargeList(datasets.Value("int64")), [[1, 2], [3]]),
    "ClassLabel": (datasets.ClassLabel(names=["cat", "dog"]), [0, 1]),
    "List": (datasets.List(datasets.Value("string")), [["a"], ["b", "c"]]),
    "Value": (datasets.Value("float32"), [0.5, 1.5]),
}
SOURCES: dict[str, Callable[[datasets.Dataset, Path], Any]] = {
    "an object": lambda made, _: made,
    "a saved folder": lambda made, folder: made.save_to_disk(folder / "saved") or folder / "saved",
    "Parquet": lambda made, folder: made.to_parquet(folder / "x.parquet") and folder / "x.parquet",
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", FEATURES)
def test_a_feature_comes_back(tmp_path: Path, catalog: Catalog, kind: str, source: str) -> None:
    feature, values = FEATURES[kind]
    features = datasets.Features({"id": datasets.Value("int64"), "x": feature})
    made = datasets.Dataset.from_dict({"id": [0, 1], "x": values}, features=features)
    catalog.add(SOURCES[source](made, tmp_path), "x", key="id")
    for _ in range(2):  # also from the cache
        again = catalog.dataset("x").to_hf("train", cache_dir=tmp_path / "cache")
        assert again.features["x"] == feature
        assert sorted(again, key=lambda row: row["id"]) == list(made)


def test_a_description_that_does_not_fit_is_left_out(tmp_path: Path, catalog: Catalog) -> None:
    features = datasets.Features({"x": datasets.Array2D((2, 2), "int64")})
    made = datasets.Dataset.from_dict({"x": [[[1, 2], [3, 4]]]}, features=features)
    catalog.add(made, "x", features={"x": "Text"})
    again = catalog.dataset("x").to_hf("train", cache_dir=tmp_path / "cache")
    assert again.features["x"] == datasets.Value("string")
