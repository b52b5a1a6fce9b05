"""The second addition of every kind of change, for every kind of source: its number, and why."""

from __future__ import annotations

import csv
import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.levels import cases

import registry
from registry.errors import UnusableRowsError

Files: TypeAlias = dict[str, list[dict[str, Any]]]
"""Rows by the name of their file, without an ending. A file is in the folder of its split."""


def base() -> Files:
    rows = [{"id": number, "label": number % 2, "x": number + 0.5} for number in range(12)]
    return {"train/a": rows[:5], "train/b": rows[5:9], "test/a": rows[9:]}


def _value(files: Files) -> None:
    files["train/a"][0]["x"] = 99.5


def _row(files: Files) -> None:
    files["train/a"].append({"id": 50, "label": 1, "x": 50.5})


def _column(files: Files) -> None:
    for row in (row for rows in files.values() for row in rows):
        row["y"] = row["id"] * 2


def _class(files: Files) -> None:
    files["train/a"][0]["label"] = 2


def _type(files: Files) -> None:
    for row in (row for rows in files.values() for row in rows):
        row["id"] += 0.5


def _order(files: Files) -> None:
    files["train/a"].reverse()


def _split(files: Files) -> None:
    files["test/a"].append(files["train/a"].pop())


def _names(files: Files) -> None:
    files["train/c"] = files.pop("train/b")


def _files(files: Files) -> None:
    files["train/a"] += files.pop("train/b")


CHANGES: dict[str, Callable[[Files], None]] = {
    "a value": _value,
    "a row": _row,
    "a column": _column,
    "a class": _class,
    "a type": _type,
    "the order": _order,
    "a split": _split,
    "file names": _names,
    "fewer files": _files,
}


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.with_suffix(".csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _write_json(path: Path, rows: list[dict[str, Any]]) -> None:
    path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    kind = pa.float64() if any(isinstance(row["id"], float) for row in rows) else pa.int64()
    columns = {name: pa.array([row[name] for row in rows], kind if name == "id" else None) for name in rows[0]}
    pq.write_table(pa.table(columns), path.with_suffix(".parquet"))


def _write_arrays(path: Path, rows: list[dict[str, Any]]) -> None:
    np.savez(path.with_suffix(".npz"), **{name: np.array([row[name] for row in rows]) for name in rows[0]})


def _png(row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((4, 4), int(row["x"] * 2), np.uint8)).save(stream, "png")
    return stream.getvalue()


def _write_images(path: Path, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        folder = path.parent / f"class{row['label']}"
        folder.mkdir(exist_ok=True)
        (folder / f"{row['id']}.png").write_bytes(_png(row))


def _write_texts(path: Path, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        folder = path.parent / f"class{row['label']}"
        folder.mkdir(exist_ok=True)
        (folder / f"{row['id']}.txt").write_text(f"{row['x']}")


def _write_tar(path: Path, rows: list[dict[str, Any]]) -> None:
    with tarfile.open(path.with_suffix(".tar"), "w") as archive:
        for row in rows:
            for ending, data in (("png", _png(row)), ("json", json.dumps(row).encode())):
                entry = tarfile.TarInfo(f"{int(row['id'])}.{ending}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))


WRITERS: dict[str, Callable[[Path, list[dict[str, Any]]], None]] = {
    "csv": _write_csv,
    "json": _write_json,
    "parquet": _write_parquet,
    "arrays": _write_arrays,
    "images": _write_images,
    "text": _write_texts,
    "webdataset": _write_tar,
}


def _source(kind: str, files: Files, folder: Path) -> Any:
    if kind == "frame":
        splits: dict[str, list[dict[str, Any]]] = {}
        for name, rows in files.items():
            splits.setdefault(name.split("/")[0], []).extend(rows)
        return {split: pd.DataFrame(rows) for split, rows in splits.items()}
    shutil.rmtree(folder, ignore_errors=True)
    for name, rows in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        WRITERS[kind](folder / name, rows)
    return folder


def outcome(catalog: registry.Catalog, folder: Path, kind: str, change: str) -> str:
    catalog.add(_source(kind, base(), folder), "rows")
    files = base()
    if change != "shards":
        CHANGES[change](files)
    try:
        report = catalog.add(_source(kind, files, folder), "rows", num_shards=2 if change == "shards" else None)
    except UnusableRowsError as error:
        return error.message.splitlines()[1].strip()
    if report.outcome == "unchanged":
        return "unchanged"
    return f"{report.reference.request}: " + "; ".join(dict.fromkeys(one.brief for one in report.changes.reasons))


# By change: the outcome for tables, and for kinds in which it is another one. None: the kind has no such change.
VALUES = "2.0.0: split train has other values of"
OUTCOMES: dict[str, tuple[str, dict[str, str | None]]] = {
    "a value": (
        f"{VALUES} id, label, x",  # the keys are the content, so another value moves its record
        {"images": f"{VALUES} image", "text": f"{VALUES} text", "webdataset": f"{VALUES} png, x"},
    ),
    "a row": ("2.0.0: train has 10 records, had 9", {}),
    "a column": ("1.1.0: y is new", {"images": None, "text": None}),
    "a class": (
        f"{VALUES} id, label, x",
        {
            "images": "2.0.0: label has 3 classes, had 2 (new: 'class2'); split train has other values of image, path",
            "text": "2.0.0: label has 3 classes, had 2 (new: 'class2'); split train has other values of path, text",
            "webdataset": f"{VALUES} label",
        },
    ),
    "a type": ("column 'id': expected int64, found ", {"images": None, "text": None}),
    "the order": ("unchanged", {}),
    "a split": ("2.0.0: train has 8 records, had 9; test has 4 records, had 3", {}),
    "file names": ("unchanged", {}),
    "fewer files": ("unchanged", {}),
    "shards": ("1.0.1: split train has 2 shards, had 1 shard; split test has 2 shards, had 1 shard", {}),
}


@pytest.mark.parametrize("change", OUTCOMES)
@pytest.mark.parametrize("kind", cases([*WRITERS, "frame"], everyday=3))
def test_the_second_addition_has_the_number_of_its_change(tmp_path: Path, kind: str, change: str) -> None:
    usual, others = OUTCOMES[change]
    expected = others.get(kind, usual)
    if expected is None:
        return
    with registry.connect(f"sqlite:///{tmp_path / 'c.db'}", data_dir=tmp_path / "data", create=True) as catalog:
        result = outcome(catalog, tmp_path / "source", kind, change)
    if change == "a type":  # the place comes first
        place = "train:1, " if kind == "frame" else "train/a."
        assert result.startswith(place)
        assert expected in result
    else:
        assert result == expected
