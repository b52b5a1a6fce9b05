"""The length of lists that Hugging Face's metadata declares is a constraint, whoever wrote the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import datasets
import pyarrow as pa
import pytest
from pyarrow import parquet

import registry
from registry.api import Catalog
from registry.errors import CorruptExampleError, NotFoundError, RegistryError, UnusableRowsError
from registry.features import ClassLabel, FeaturesDict, Sequence, Tensor, Text

WAYS: Final[dict[str, Callable[[Catalog, Path], Any]]] = {
    "add": lambda catalog, folder: catalog.add(folder, "rows"),
    "add in place": lambda catalog, folder: catalog.add(folder, "rows", in_place=True),
    "import": lambda catalog, folder: catalog.import_parquet(folder, name="rows"),
}

FEATURES: Final = {
    "numbers": {"feature": {"dtype": "int64", "_type": "Value"}, "length": 2, "_type": "Sequence"},
    "labels": {"feature": {"names": ["x", "y"], "_type": "ClassLabel"}, "length": 2, "_type": "List"},
    "texts": {"feature": {"dtype": "string", "_type": "Value"}, "length": 2, "_type": "List"},
    "any": {"feature": {"dtype": "int64", "_type": "Value"}, "length": -1, "_type": "List"},
}

ROWS: Final[dict[str, list[Any]]] = {
    "numbers": [[1, 2], [3, 4]],
    "labels": [[0, 1], [1, 0]],
    "texts": [["a", "b"], ["c", "d"]],
    "any": [[1], [2, 3]],
}


def write(folder: Path, rows: dict[str, list[Any]], features: dict[str, Any] = FEATURES) -> Path:
    """A file as other software writes it: lists of any length, and the description."""
    folder.mkdir()
    described = json.dumps({"info": {"features": features}})
    table = pa.table(rows).replace_schema_metadata({"huggingface": described})
    parquet.write_table(table, folder / "train.parquet")
    return folder


@pytest.mark.parametrize("way", WAYS)
def test_a_declared_length_is_part_of_the_schema(tmp_path: Path, way: str) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        WAYS[way](catalog, write(tmp_path / "source", ROWS))
        dataset = catalog.dataset("rows")
        features = dataset.features
        assert features["numbers"] == Tensor(shape=(2,), dtype="int64")
        assert features["labels"] == Sequence(ClassLabel(names=["x", "y"]), length=2)
        assert features["any"] in (Sequence("int64"), Sequence(Tensor(shape=(), dtype="int64")))
        assert dataset.verify(deep=True).faults == ()
        assert sorted(one["numbers"].tolist() for one in dataset.read("train")) == [[1, 2], [3, 4]]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("column", ["numbers", "labels", "texts"])
@pytest.mark.parametrize("row", [[], [1], [1, 0, 1]], ids=len)
def test_a_row_of_another_length_is_refused(tmp_path: Path, way: str, column: str, row: list[int]) -> None:
    values = [str(one) for one in row] if column == "texts" else row
    folder = write(tmp_path / "source", ROWS | {column: [ROWS[column][0], values]})
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        with pytest.raises(UnusableRowsError if way == "add" else CorruptExampleError) as caught:
            WAYS[way](catalog, folder)
        assert column in caught.value.message
        with pytest.raises(NotFoundError):
            catalog.dataset("rows")


@pytest.mark.parametrize("way", WAYS)
def test_files_of_datasets_itself_have_the_same_schema(tmp_path: Path, way: str) -> None:
    described = datasets.Features(
        {
            "numbers": datasets.Sequence(datasets.Value("int64"), length=2),
            "labels": datasets.Sequence(datasets.ClassLabel(names=["x", "y"]), length=2),
            "rows": datasets.Sequence({"q": datasets.Value("int64")}, length=2),
        }
    )
    values = {"numbers": ROWS["numbers"], "labels": ROWS["labels"], "rows": [{"q": [1, 2]}] * 2}
    (tmp_path / "source").mkdir()
    datasets.Dataset.from_dict(values, features=described).to_parquet(tmp_path / "source" / "train.parquet")
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        WAYS[way](catalog, tmp_path / "source")
        assert catalog.dataset("rows").features == FeaturesDict(
            {
                "numbers": Tensor(shape=(2,), dtype="int64"),
                "labels": Sequence(ClassLabel(names=["x", "y"]), length=2),
                "rows": FeaturesDict({"q": Tensor(shape=(2,), dtype="int64")}),
            }
        )


@pytest.mark.parametrize("length", [-1, 0, None, "2", 2.0, True, 2**40, -7])
def test_a_length_that_is_none_is_no_constraint(tmp_path: Path, length: Any) -> None:
    features = {"texts": FEATURES["texts"] | {"length": length}}
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.import_parquet(write(tmp_path / "source", {"texts": [["a"], ["b", "c"]]}, features), name="rows")
        assert catalog.dataset("rows").features["texts"] == Sequence(Text())


def test_the_length_of_a_struct_of_lists_is_that_of_each(tmp_path: Path) -> None:
    features = {"s": {"feature": {"q": {"dtype": "int64", "_type": "Value"}}, "length": 2, "_type": "Sequence"}}
    for name, rows in (("good", [{"q": [1, 2]}]), ("bad", [{"q": [1, 2, 3]}])):
        folder = write(tmp_path / name, {"s": rows}, features)
        for way in WAYS:
            with registry.connect(tmp_path / f"{name} {way}.db", create=True) as catalog:
                try:
                    WAYS[way](catalog, folder)
                except RegistryError:
                    assert name == "bad", way
                else:
                    assert name == "good", way
