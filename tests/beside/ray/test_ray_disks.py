"""A disk that fills while a cluster builds is a typed error that names the folder, and a build with room goes on.

A limit on the size of files stands in for a full disk: to mount a small one, a test would need rights that it may lack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest
from support.piece_builders import built
from support.ray_disk_builders import Filling, make_room

import registry
from registry.errors import StorageError


@pytest.fixture
def builder(connected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Filling]:
    monkeypatch.setenv("REGISTRY_TEST_FOLDER", str(tmp_path / "notes"))
    made = Filling()
    made.folder.mkdir()
    yield made
    make_room(made.folder)


def calls(builder: Filling) -> list[str]:
    """The inputs that were generated since the last call of this function."""
    path = builder.folder / "calls"
    found = sorted(path.read_text().split())
    path.unlink()
    return found


@pytest.mark.parametrize("is_spilled", [False, True], ids=["data directory", "temporary folder"])
def test_a_disk_that_fills_is_named_and_the_next_build_goes_on(
    is_spilled: bool, builder: Filling, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    options = {"processes": 2, "budget_bytes": 10_000_000 if not is_spilled else 500_000}
    with registry.use_engine("ray"), pytest.raises(StorageError) as caught:
        built(builder, data, **options)
    if is_spilled:
        assert caught.value.message == f"sorting: cannot write a temporary file in {gettempdir()}: File too large"
        assert str(caught.value.hint).endswith(f"Free space in {gettempdir()}.")
    else:
        assert re.fullmatch(
            rf"cannot write {data}/filling/incomplete\.[0-9a-f]{{8}}_1\.0\.0\.runs/train/.*: File too large",
            caught.value.message,
        )
        assert str(caught.value.hint).startswith("The file would be larger than its file system or your limit allows")
    assert list(data.rglob("dataset_info.json")) == []
    assert set(calls(builder)) >= {"5"}
    make_room(builder.folder)
    with registry.use_engine("ray"):
        found = built(builder, data, finished=True, **options)
    assert {"5"} <= set(calls(builder)) < set("01234567")
    with registry.use_engine("local"):
        assert found == built(builder, tmp_path / "local", processes=1)
    assert [path for path in data.rglob("*") if path.is_file()] == []
