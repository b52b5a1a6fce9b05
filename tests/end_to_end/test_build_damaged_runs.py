"""Runs of an interrupted build that are damaged later are never part of a version, and do not stop the next build."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from end_to_end.test_build_elsewhere import Elsewhere
from support.piece_builders import built
from support.repaired_builders import Repaired

from registry.building import piece_runs
from registry.building.keys import hash_keys
from registry.building.run_files import NamedRunFile
from registry.building.run_format import BlockTable, KeyedFrames, Run, RunEnd, pack_end, read_end
from registry.building.sorter import ExternalSorter
from registry.engines import Engine, use_engine
from registry.errors import BuildError, StorageError
from registry.storage import open_store
from registry.tfrecord import frame_records

# The build ends with its first error, while another worker may still write a shard into the folder that it removes.
pytestmark = pytest.mark.filterwarnings("ignore::registry.errors.LeftoverWarning")

DAMAGES = ("truncated", "empty", "changed", "removed")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(piece_runs, "_GROUP_SECONDS", 1e-9)  # one input for each run
    monkeypatch.setenv("PIECE_REPAIRED", str(tmp_path / "repaired"))
    with Elsewhere(2) as made, use_engine(made):
        yield made


def leave_damaged_run(folder: Path, how: str) -> None:
    """Build until an input fails, damage the run of the first input, and repair the input."""
    with pytest.raises(BuildError, match="it is damaged"):
        built(Repaired(), folder / "data", processes=2)
    (run,) = (folder / "data").rglob("0-1.*")
    damage(run, how)
    (folder / "repaired").touch()


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    place = len(content) // 2
    if how == "removed":
        path.unlink()
    elif how == "changed":
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    else:
        path.write_bytes(content[:place] if how == "truncated" else b"")


def test_an_end_with_one_wrong_bit_is_ignored(tmp_path: Path) -> None:
    run, table = saved_run(tmp_path)
    path = tmp_path / run.name
    content = path.read_bytes()
    for place in range(500, len(content)):
        for bit in range(8):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
            assert read_end(run) is None
    path.write_bytes(content)
    end = read_end(run)
    assert end is not None
    assert end[1] == RunEnd(500, None)
    assert all(map(np.array_equal, end[0], table))


def test_runs_that_are_cut_off_are_ignored(tmp_path: Path) -> None:
    run, _ = saved_run(tmp_path)
    path = tmp_path / run.name
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        assert read_end(run) is None
    path.unlink()
    assert read_end(run) is None


def saved_run(folder: Path) -> tuple[NamedRunFile, BlockTable]:
    """A run of two blocks."""
    run = NamedRunFile(open_store(folder), "train/0-1.run")
    table = BlockTable(np.array([[0] * 16, [1] * 16], np.uint8), np.array([0, 3, 5]), np.array([0, 300, 500]))
    with run.create() as file:
        file.write(bytes(500) + pack_end(table, RunEnd(500, None)))
    return run, table


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_run_is_never_part_of_a_version(how: str, tmp_path: Path) -> None:
    leave_damaged_run(tmp_path, how)
    try:
        found = built(Repaired(), tmp_path / "data", processes=2, finished=True)
    except StorageError:  # the reader of the run says what is damaged
        return
    assert found == built(Repaired(), tmp_path / "other", processes=1)


@pytest.mark.usefixtures("engine")
def test_runs_that_another_build_removed_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "repaired").touch()
    run = Elsewhere.run

    def remove(self: Elsewhere, pieces: Any, *, doing: str, **options: Any) -> Any:
        if doing == "wrote shards":
            for path in (tmp_path / "data").rglob("0-1.*"):
                path.unlink()
        yield from run(self, pieces, doing=doing, **options)

    monkeypatch.setattr(Elsewhere, "run", remove)
    with pytest.raises(StorageError) as caught:
        built(Repaired(), tmp_path / "data", processes=2)
    assert re.fullmatch(r"sorting: the run train/0-1\.[0-9a-f]{16}\.[0-9a-f]{8} is missing", caught.value.message)
    assert caught.value.hint == "Another build of this version has probably ended, and removed it. Build again."


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_run_does_not_stop_all_later_builds(how: str, tmp_path: Path) -> None:
    leave_damaged_run(tmp_path, how)
    expected = built(Repaired(), tmp_path / "other", processes=1)
    for _ in range(2):
        try:
            found = built(Repaired(), tmp_path / "data", processes=2, finished=True)
        except StorageError:
            continue
        assert found == expected
        return
    pytest.fail("each build ends with the same error")


@pytest.mark.parametrize(
    "table",
    [
        BlockTable(np.zeros((1, 16), np.uint8), np.array([1, 3]), np.array([0, 500])),
        BlockTable(np.zeros((1, 16), np.uint8), np.array([0, 3]), np.array([1, 500])),
        BlockTable(np.zeros((1, 16), np.uint8), np.array([0, 3]), np.array([0, 501])),
        BlockTable(np.zeros((2, 16), np.uint8), np.array([0, 3, 3]), np.array([0, 300, 500])),
        BlockTable(np.zeros((2, 16), np.uint8), np.array([0, 3, 5]), np.array([0, 600, 500])),
    ],
)
def test_ends_that_no_build_writes_are_ignored(table: BlockTable, tmp_path: Path) -> None:
    run, _ = saved_run(tmp_path)
    (tmp_path / run.name).write_bytes(bytes(500) + pack_end(table, RunEnd(500, None)))
    assert read_end(run) is None


@pytest.mark.parametrize("count", [2**64 - 1, 2**62, 10**9])
def test_an_end_that_claims_many_blocks_is_ignored(count: int, tmp_path: Path) -> None:
    run, _ = saved_run(tmp_path)
    path = tmp_path / run.name
    content = path.read_bytes()
    path.write_bytes(content[:-21] + count.to_bytes(8, "little") + content[-13:])
    assert read_end(run) is None


def test_a_run_with_the_table_of_another_is_damaged(tmp_path: Path) -> None:
    store, tables = open_store(tmp_path), []
    for name in ("a", "b"):
        with ExternalSorter(split="train") as sorter:
            frames = frame_records([f"{name}{number}".encode() for number in range(9)])
            sorter.add(KeyedFrames(hash_keys(name, list(range(9))), list("abcdefghi"), frames))
            tables.append(sorter.write_to(NamedRunFile(store, name)))
    assert tables[0].offsets.tolist() == tables[1].offsets.tolist()
    run = Run(NamedRunFile(store, "a"), 0, tables[1])
    with pytest.raises(StorageError, match=r"^sorting: the run a is damaged at byte 0(?m:$)"):
        list(run.blocks())
    with pytest.raises(StorageError, match=r"^sorting: the run a is damaged at byte \d+(?m:$)"):
        run.keys(0, 1)
