"""What Hugging Face's ``datasets`` holds or writes is added and comes out equal: values, types, splits, class names."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image as Pillow

import registry


def png(value: int) -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(np.full((2, 3, 3), value, np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def both() -> Any:
    features = datasets.Features(
        {
            "at": datasets.Value("timestamp[us, tz=UTC]"),
            "box": {"size": datasets.List(datasets.Value("float32"), length=2), "name": datasets.Value("string")},
            "day": datasets.Value("date32"),
            "image": datasets.Image(decode=False),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "maybe": datasets.Value("int32"),
            "numbers": datasets.List(datasets.Value("int16")),
            "score": datasets.Value("float64"),
            "text": datasets.Value("string"),
        }
    )
    rows = [
        {
            "at": datetime(2024, 2, 29, 1, 2, 3, n, tzinfo=UTC),
            "box": {"size": [n, 0.5], "name": "x"},
            "day": date(2024, 2, 29),
            "image": {"bytes": png(n), "path": None},
            "label": n % 2,
            "maybe": n or None,
            "numbers": [n] * n,
            "score": n / 2,
            "text": f"{n:03}",
        }
        for n in range(5)
    ]
    datasets.disable_progress_bars()
    whole = datasets.Dataset.from_list(rows, features=features)
    return datasets.DatasetDict({"train": whole.select(range(3)), "test": whole.select(range(3, 5))})


def as_parquet(both: Any, folder: Path) -> Any:
    for split, one in both.items():
        one.to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))
    return folder


def as_saved(both: Any, folder: Path) -> Any:
    both.save_to_disk(folder / "saved")
    return folder / "saved"


WAYS: dict[str, Callable[[Any, Path], Any]] = {
    "in memory": lambda both, _: both,
    "streamed": lambda both, _: {split: one.to_iterable_dataset() for split, one in both.items()},
    "save_to_disk": as_saved,
    "to_parquet": as_parquet,
}


def test_every_feature_comes_out_equal(both: Any, tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        for place, (way, give) in enumerate(WAYS.items()):
            (tmp_path / str(place)).mkdir()
            report = catalog.add(give(both, tmp_path / str(place)), "things", processes=1)
            assert (way, report.outcome) == (way, "published" if way == "in memory" else "unchanged")
        found = catalog.dataset("things").to_hf(cache_dir=tmp_path / "cache")
    assert report.splits == {"train": 3, "test": 2}
    assert list(found) == ["train", "test"]
    for split, one in both.items():
        assert found[split].features == datasets.Features({**one.features, "image": datasets.Image()})
        plain = found[split].cast_column("image", datasets.Image(decode=False)).to_list()
        assert sorted(plain, key=by_text) == sorted(one.to_list(), key=by_text)  # records are stored in shuffled order


def by_text(row: Any) -> Any:
    return row["text"]


def test_tables_of_text_come_out_equal(both: Any, tmp_path: Path) -> None:
    plain = both.remove_columns(["image", "box", "numbers", "at", "day"])
    for split, one in plain.items():
        one.to_csv(str(tmp_path / "csv" / f"{split}.csv"))
        one.to_json(str(tmp_path / "json" / f"{split}.jsonl"))
    with registry.connect(tmp_path / "catalog.db") as catalog:
        for kind in ("csv", "json"):
            catalog.add(
                tmp_path / kind, kind, features={"label": "ClassLabel(cat, dog)", "maybe": "int32"}, processes=1
            )
            found = catalog.dataset(kind).to_hf(cache_dir=tmp_path / "cache")
            for split, one in plain.items():
                assert found[split].features == one.features
                assert sorted(found[split].to_list(), key=by_text) == sorted(one.to_list(), key=by_text)


def test_a_croissant_document_of_ours_comes_in_again(both: Any, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.import_parquet(as_parquet(both, tmp_path / "given"), name="first")
        first = catalog.dataset("first")
        (tmp_path / "given" / "croissant.json").write_text(json.dumps(first.croissant()))
        report = catalog.add(tmp_path / "given", "second", processes=1)
        assert report.plan.source.kind == "croissant"
        found = catalog.dataset("second")
        assert found.features["label"].names == ("cat", "dog")
        for split in ("train", "test"):
            assert by_texts(found, split) == by_texts(first, split)


def by_texts(dataset: Any, split: str) -> str:
    return repr(sorted((example["text"], example["label"], example["box"]) for example in dataset.read(split)))
