"""A small version with kept columns of every kind, and helpers of its tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import registry
from registry.api import Catalog
from registry.reading import split_columns
from support.ready_catalogs import copy_built

COUNT = 300
TOP = Path(__file__).parents[2]


def use_small_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use an empty cache in ``tmp_path``, and blocks so small that a small split has several."""
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "indexes"))
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "100MB")
    monkeypatch.setattr(split_columns, "_BLOCK_RECORDS", (16, 64))


@contextmanager
def open_goods(tmp_path: Path) -> Iterator[Catalog]:
    """A catalog with the version ``goods``."""
    copy_built(add_goods, tmp_path)
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as opened:
        yield opened


def add_goods(folder: Path) -> None:
    with registry.connect(folder / "catalog.db", data_dir=folder / "data") as opened:
        opened.add(rows(), name="goods", num_shards=3)


def rows() -> dict[str, Any]:
    """Columns with nulls, texts of different lengths and lists."""
    rng = np.random.default_rng(4)
    return {
        "id": np.arange(COUNT),
        "price": [None if number % 7 == 0 else float(number) for number in range(COUNT)],
        "name": [f"name {number}" * (number % 4) for number in range(COUNT)],
        "tags": [list(range(number % 5)) for number in range(COUNT)],
        "vector": rng.random((COUNT, 3), np.float32),
    }


def plain(example: Any) -> Any:
    if isinstance(example, dict):
        return {name: plain(value) for name, value in example.items()}
    if isinstance(example, np.ma.MaskedArray):
        return [plain(value) for value in example.tolist()]
    if isinstance(example, np.ndarray | list):
        return [plain(value) for value in example]
    return bytes(example) if isinstance(example, memoryview) else example


def examples_of(dataset: Any, **options: Any) -> list[Any]:
    return [plain(example) for example in dataset.read("train", **options)]


def is_kept(reader: Any) -> bool:
    found: bool = reader._keeper.is_in_use
    return found


def files_of(tmp_path: Path, pattern: str = "*.npy") -> list[Path]:
    return sorted((tmp_path / "cache").rglob(pattern))


def is_kept_after_reading(dataset: Any) -> bool:
    reader = dataset.read("train")
    list(reader)
    return is_kept(reader)


def in_stored_order(dataset: Any, **options: Any) -> Any:
    return dataset.read("train", registry.ReadConfig(interleave_cycle_length=1), **options)


def flip_entry(file: Path, entry: int) -> None:
    """Change an entry of an array of 64-bit numbers."""
    content = bytearray(file.read_bytes())
    content[len(content) - 8 * len(np.load(file)) + 8 * entry + 3] ^= 1
    file.write_bytes(content)
