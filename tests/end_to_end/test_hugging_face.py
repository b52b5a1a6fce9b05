"""Hugging Face's ``datasets`` gets the values, types and class names of a version, and its own come out equal."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from support.framework_samples import wide_reader

import registry
from registry.features import ClassLabel, FeaturesDict, Sequence, Text
from registry.images.png import encode_png
from registry.interop.export_tables import write_parquet
from registry.interop.hugging_face import load_plan
from registry.model import DatasetMetadata
from registry.reading import Reader
from registry.reading.frameworks.table_columns import TableColumns


class Words(registry.DatasetBuilder):
    """Words with their kind and the places where they occur."""

    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict(
            {
                "kind": ClassLabel(names=["noun", "verb"]),
                "places": Sequence({"page": "int32", "line": "int32"}),
                "word": Text(),
            }
        )

    def splits(self) -> Any:
        def words(count: int) -> Any:
            return [
                (n, {"kind": n % 2, "places": [{"page": n, "line": 1}] * (n % 3), "word": f"wörd{n}"})
                for n in range(count)
            ]

        return {"train": words(10), "test": words(3)}


def test_a_version_becomes_a_dataset_dict_and_an_expression_a_dataset(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.build(Words(), processes=1)
        words = catalog.dataset("words")
        both = words.to_hf(cache_dir=tmp_path / "cache")
        some = words.to_hf("train[:2]+test", columns=["word", "kind"], cache_dir=tmp_path / "cache")
        stored = list(words.read("train[:2]+test", registry.ReadConfig(interleave_cycle_length=1)))
        head = words.to_hf("train[:2]", cache_dir=tmp_path / "cache")
    assert isinstance(both, datasets.DatasetDict)
    assert {name: (len(one), one.split) for name, one in both.items()} == {"train": (10, "train"), "test": (3, "test")}
    assert both["train"].features == datasets.Features(
        {
            "kind": datasets.ClassLabel(names=["noun", "verb"]),
            "places": datasets.List({"page": datasets.Value("int32"), "line": datasets.Value("int32")}),
            "word": datasets.Value("string"),
        }
    )
    assert isinstance(some, datasets.Dataset)
    assert (some.column_names, some.split) == (["word", "kind"], None)
    assert some["word"][:] == [example["word"].decode() for example in stored]
    assert some["kind"][:] == [example["kind"] for example in stored]
    assert list(head) == list(both["train"].select(range(2)))


def test_the_records_are_written_once(tmp_path: Path) -> None:
    seen: list[registry.Progress] = []
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.build(Words(), processes=1)
        words = catalog.dataset("words")
        first = words.to_hf("train", cache_dir=tmp_path / "cache", progress=seen.append)
        assert str(seen[-1]) == "exporting words:1.0.0: 10 of 10 records"
        del seen[:]
        again = words.to_hf("train[:100%]", cache_dir=tmp_path / "cache", progress=seen.append)
    assert seen == []
    assert first.cache_files == again.cache_files  # type: ignore[union-attr]
    (file,) = (tmp_path / "cache/shardbook").iterdir()
    assert str(file) == again.cache_files[0]["filename"]  # type: ignore[union-attr]


def test_a_feature_of_every_kind_arrives(tmp_path: Path) -> None:
    reader = wide_reader([5, 4])
    columns = TableColumns(reader.features, DatasetMetadata(license="MIT"), labels="numbers")
    plain = Reader(reader.readable.with_features(columns.features), reader.plan)
    batches = [columns.batch(block) for block in plain.blocks()]
    found = load_plan(reader.plan, lambda: batches, columns.schema, content_digest="0f", cache_dir=tmp_path)
    assert found.with_format("arrow")[:].equals(pa.Table.from_batches(batches))
    assert found.info.license == "MIT"
    with (tmp_path / "wide.parquet").open("wb") as file:
        write_parquet(batches, columns.schema, file)
    assert datasets.Features.from_arrow_schema(pa.parquet.read_schema(tmp_path / "wide.parquet")) == found.features
    example = found[3]
    assert (example["label"], example["maybe"], example["name"], example["image"].size) == (1, 3, "grün 3", (3, 2))


FEATURES = datasets.Features(
    {
        "at": datasets.Value("timestamp[us, tz=UTC]"),
        "blob": datasets.Value("binary"),
        "boxes": [{"box": datasets.List(datasets.Value("float32"), length=4), "name": datasets.Value("string")}],
        "day": datasets.Value("date32"),
        "image": datasets.Image(decode=False),
        "label": datasets.ClassLabel(names=["cat", "dog"]),
        "maybe": datasets.Value("int32"),
        "nested": {"at": datasets.Value("time64[us]"), "note": datasets.Value("string")},
        "note": datasets.Value("string"),
        "score": datasets.Value("float64"),
        "text": datasets.Value("string"),
        "words": datasets.List(datasets.Value("string")),
    }
)


def theirs() -> datasets.Dataset:
    """A dataset with values of many types, and with nulls."""
    picture = encode_png(np.zeros((2, 3, 1), np.uint8))
    rows = [
        {
            "at": datetime(2024, 2, 29, 1, 2, 3, n, tzinfo=UTC),
            "blob": [b"\xff", None, b"a"][n],
            "boxes": [{"box": [0.0, n, 1.0, 0.5], "name": "x"}] * n,
            "day": date(2024, 2, 29 - n),
            "image": {"bytes": picture, "path": None},
            "label": n % 2,
            "maybe": n or None,
            "nested": {"at": time(1, 2, 3, n), "note": [None, "q", ""][n]},
            "note": [None, "", "x"][n],
            "score": 0.1 * n,
            "text": ["007", "NA", ""][n],
            "words": ["ä"] * n,
        }
        for n in range(3)
    ]
    return datasets.Dataset.from_list(rows, features=FEATURES)


@pytest.mark.parametrize("way", ["object", "disk", "parquet", "in place", "jsonl"])
def test_what_hugging_face_made_comes_out_equal(way: str, tmp_path: Path) -> None:
    given = source = theirs()
    features = FEATURES
    if way == "disk":
        given.save_to_disk(str(tmp_path / "disk"))
        source = tmp_path / "disk"
    with registry.connect(tmp_path / "catalog.db") as catalog:
        if way == "jsonl":  # what JSON can tell apart
            features = datasets.Features({name: FEATURES[name] for name in ("boxes", "note", "score", "text", "words")})
            given = given.select_columns(list(features))
            catalog.add(given, "things", processes=1)
            source = tmp_path / "things.jsonl"
            catalog.dataset("things").export("jsonl", source)
        elif way == "parquet":  # from Hugging Face's file to ours
            given.to_parquet(str(tmp_path / "train.parquet"))
            catalog.add(tmp_path / "train.parquet", "things", processes=1)
            source = tmp_path / "again.parquet"
            catalog.dataset("things").export("parquet", source)
        if way == "in place":  # an import keeps the files, and does not tell text that may be null from bytes
            features = datasets.Features({name: FEATURES[name] for name in FEATURES if name not in ("nested", "note")})
            given = given.select_columns(list(features))
            (tmp_path / "files").mkdir()
            given.to_parquet(str(tmp_path / "files/train.parquet"))
            catalog.import_parquet(tmp_path / "files", name="again")
        else:
            catalog.add(source, "again", processes=1)
        found = catalog.dataset("again").to_hf("train", cache_dir=tmp_path / "cache")
    found = found.cast_column("image", datasets.Image(decode=False)) if "image" in features else found
    if way != "jsonl":
        assert found.features == features
    assert sorted(found.to_list(), key=str) == sorted(given.to_list(), key=str)


def test_without_the_package_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.build(Words(), processes=1)
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(registry.RegistryError) as refused:
            catalog.dataset("words").to_hf("train", cache_dir=tmp_path)
    assert str(refused.value) == "a dataset of Hugging Face needs the package 'datasets', which is not installed"
    assert refused.value.hint == "Install it with: pip install 'shardbook[huggingface]'"
