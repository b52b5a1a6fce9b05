"""An export that is replaced is there whole, the old one or the new one, wherever the process stops."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support import warm_python

from registry.builders.earth_engine.exporting.files import ExportFiles, find_files
from registry.errors import AlreadyStoredError, StorageError
from registry.storage import open_store
from registry.storage.local import LocalStore
from registry.tfrecord import read_records

_OLD = [b"old 0", b"old 1", b"old 2"]
_NEW = [b"new 0", b"new 1"]
_MOVES = len([*_OLD, "mixer"]) + len([*_NEW, "mixer"])


def _write(folder: Path, records: list[bytes], *, overwrite: bool = False) -> None:
    with ExportFiles(open_store(folder), "p", max_file_size=1, overwrite=overwrite) as files:
        for record in records:
            files.write(record)
        files.commit(records[0])


def _read(folder: Path) -> list[bytes]:
    store = open_store(folder)
    return [bytes(record) for name in find_files(store, "p")[1:] for record in read_records(store, name)]


def _is_whole(folder: Path, records: list[bytes]) -> bool:
    names = sorted(path.name for path in folder.iterdir())
    shards = [f"p-{number:05}.tfrecord.gz" for number in range(len(records))]
    whole = [*shards, "p-mixer.json"]
    return names == whole and _read(folder) == records and (folder / "p-mixer.json").read_bytes() == records[0]


@pytest.mark.parametrize("stop_at", range(_MOVES))
@pytest.mark.parametrize("moved", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, StorageError], ids=["interrupt", "failure"])
def test_what_fails_while_it_replaces_an_export_puts_the_old_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int, moved: bool, error: type[BaseException]
) -> None:
    _write(tmp_path, _OLD)
    moves = iter(range(10**6))
    move = LocalStore.move

    def stop(store: LocalStore, name: str, final: str) -> None:
        stops = next(moves) == stop_at
        if moved or not stops:
            move(store, name, final)
        if stops:
            raise error("stop")

    monkeypatch.setattr(LocalStore, "move", stop)
    with pytest.raises(error, match="stop"):
        _write(tmp_path, _NEW, overwrite=True)
    assert _is_whole(tmp_path, _OLD)
    _write(tmp_path, _NEW, overwrite=True)
    assert _is_whole(tmp_path, _NEW)


_DYING = """
import os, sys
from registry.builders.earth_engine.exporting.files import ExportFiles
from registry.storage import open_store
from registry.storage.local import LocalStore
move, moves = LocalStore.move, iter(range(10**6))
def die(store, name, final):
    if next(moves) == int(sys.argv[2]):
        os._exit(9)
    move(store, name, final)
LocalStore.move = die
with ExportFiles(open_store(sys.argv[1]), "p", max_file_size=1, overwrite=True) as files:
    files.write(b"new 0")
    files.write(b"new 1")
    files.commit(b"new 0")
"""


def _die(folder: Path, stop_at: int) -> None:
    assert warm_python.run([sys.executable, "-c", _DYING, str(folder), str(stop_at)], check=False).returncode == 9


@pytest.mark.parametrize("stop_at", range(_MOVES))
def test_what_a_process_began_to_replace_and_died_is_ended_by_the_next(tmp_path: Path, stop_at: int) -> None:
    _write(tmp_path, _OLD)
    _die(tmp_path, stop_at)
    assert not (tmp_path / "p-mixer.json").exists() or stop_at == 0
    with pytest.raises(AlreadyStoredError):
        _write(tmp_path, [b"other"])
    assert _read(tmp_path) == _NEW
    _write(tmp_path, [b"other"], overwrite=True)
    assert _is_whole(tmp_path, [b"other"])


def test_a_first_export_of_a_dead_process_is_completed_by_the_next(tmp_path: Path) -> None:
    _die(tmp_path, 1)
    with ExportFiles(open_store(tmp_path), "q") as files:
        files.write(b"q")
        files.commit(None)
    (tmp_path / "q-00000.tfrecord.gz").unlink()
    assert _is_whole(tmp_path, _NEW)


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"[",
        b"[" * 5000,
        b"{}",
        json.dumps({"prefix": "../p", "suffix": ".tfrecord.gz", "count": 1, "mixer": False}).encode(),
        json.dumps({"prefix": "p", "suffix": "/../x", "count": 1, "mixer": False}).encode(),
        json.dumps({"prefix": "p", "suffix": ".tfrecord.gz", "count": "1", "mixer": False}).encode(),
        json.dumps({"prefix": "p", "suffix": ".tfrecord.gz", "count": 10**12, "mixer": False}).encode(),
        json.dumps({"prefix": ["p"], "suffix": ".tfrecord.gz", "count": 1, "mixer": False}).encode(),
        json.dumps({"prefix": "p", "suffix": [], "count": 1, "mixer": False}).encode(),
        json.dumps({"prefix": "p", "suffix": ".tfrecord.gz", "count": 9, "mixer": False}).encode(),
        b"x" * 20_000,
    ],
    ids=range(12),
)
def test_an_invalid_or_false_commit_note_changes_nothing(tmp_path: Path, note: bytes) -> None:
    _write(tmp_path, _OLD)
    _die(tmp_path, 0)
    (staged,) = tmp_path.glob("incomplete.*")
    (staged / "commit.json").write_bytes(note)
    with pytest.raises(AlreadyStoredError):
        _write(tmp_path, _NEW)
    assert _read(tmp_path) == _OLD


def test_replacing_a_link_keeps_its_target(tmp_path: Path) -> None:
    folder, beside = tmp_path / "exports", tmp_path / "beside"
    beside.mkdir()
    _write(folder, _OLD)
    elsewhere = beside / "shard"
    (folder / "p-00001.tfrecord.gz").replace(elsewhere)
    (folder / "p-00001.tfrecord.gz").symlink_to(elsewhere)
    content = elsewhere.read_bytes()
    _write(folder, _NEW, overwrite=True)
    assert _is_whole(folder, _NEW)
    assert elsewhere.read_bytes() == content


def test_a_table_of_a_date_is_not_replaced_with_an_image(tmp_path: Path) -> None:
    table = tmp_path / "p-20240131.tfrecord.gz"
    table.write_bytes(b"a table")
    _write(tmp_path, _OLD)
    _write(tmp_path, _NEW, overwrite=True)
    assert table.read_bytes() == b"a table"
    assert _read(tmp_path) == _NEW
