"""Runs of an interrupted build that are damaged later are never part of a version, and do not stop the next build."""

from __future__ import annotations

import hashlib
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
from registry.building.run_folder import RunFacts
from registry.building.run_format import BlockTable, KeyedFrames, Run
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
    (run,) = [path for path in (folder / "data").rglob("0-1*") if path.suffix != ".facts"]
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


def test_facts_with_one_wrong_bit_are_ignored(tmp_path: Path) -> None:
    facts, table = saved_facts(tmp_path)
    path = next(tmp_path.rglob("*.facts"))
    content = path.read_bytes()
    for place in range(len(content)):
        for bit in range(8):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
            assert facts.load() is None
    path.write_bytes(content)
    found = facts.load()
    assert found[2] == (500, None)
    assert list(found[1]) == ["run"]
    assert all(map(np.array_equal, found[1]["run"], table))


def test_facts_that_are_cut_off_are_ignored(tmp_path: Path) -> None:
    facts, _ = saved_facts(tmp_path)
    path = next(tmp_path.rglob("*.facts"))
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        assert facts.load() is None


def saved_facts(folder: Path) -> tuple[RunFacts, BlockTable]:
    """The facts of a run of two blocks."""
    facts = RunFacts(open_store(folder), "train/0-1", "digest")
    table = BlockTable(np.array([[0] * 16, [1] * 16], np.uint8), np.array([0, 3, 5]), np.array([0, 300, 500]))
    run = facts.new_file()
    with run.create() as file:
        file.write(bytes(500))
    facts.save(run, {"run": table}, (500, None))
    return facts, table


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
    "header",
    [
        b"[]",
        b"{}",
        b"[" * 100_000,
        b"\xff",
        b'{"digest": "digest", "facts": [1, null], "blocks": {"run": 0}}',
        b'{"digest": "digest", "facts": [1, null], "blocks": {"run": 0}, "task": "../../x"}',
        b'{"digest": "digest", "facts": [1, null], "blocks": [], "task": "00000000"}',
        b'{"digest": "digest", "facts": [1, null], "blocks": {"run": -1}, "task": "00000000"}',
        b'{"digest": "digest", "facts": [1, null], "blocks": {"run": 0.5}, "task": "00000000"}',
        b'{"digest": "digest", "facts": [1, null], "blocks": {"run": 99999999999999}, "task": "00000000"}',
        b'{"digest": "digest", "facts": [1, null], "blocks": {"run": 0, "../keys": 0}, "task": "00000000"}',
        b'{"digest": "digest", "facts": [1.5, null], "blocks": {"run": 0}}',
        b'{"digest": "digest", "facts": [1, "yes"], "blocks": {"run": 0}}',
        b'{"digest": "other", "facts": [1, null], "blocks": {"run": 0}}',
    ],
)
def test_facts_that_no_build_writes_are_ignored(header: bytes, tmp_path: Path) -> None:
    facts, _ = saved_facts(tmp_path)
    content = len(header).to_bytes(4, "little") + header + bytes(16)
    (tmp_path / "train" / "0-1.facts").write_bytes(hashlib.sha256(content).digest() + content)
    assert facts.load() is None


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
