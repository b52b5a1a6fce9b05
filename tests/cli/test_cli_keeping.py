from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from registry.errors import StorageUnavailableError
from registry.storage.local import LocalStore
from registry.storage.names import Owner


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """TMPDIR and the cache of the test alone."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("tmp")))
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path_factory.mktemp("cache")))


DEAD = replace(Owner.this_process(), pid=2**22 + 1, started="1")
"""A process that has ended: no process has so large a number."""

OWNER = json.dumps(asdict(DEAD)).ljust(400)


def leave(workspace: Path, digits: str = "0a1b2c3d") -> Path:
    """What a process left that was killed; 405 bytes."""
    folder = workspace / f"datasets/numbers/incomplete.{digits}_3.0.0"
    folder.mkdir()
    (folder / "shard").write_text("12345")
    (folder / ".owner.json").write_text(OWNER)
    return folder


def test_gc_shows_what_it_would_remove_and_removes_it(numbers: Callable[..., Any], workspace: Path) -> None:
    folder = leave(workspace)
    (workspace / "datasets/numbers/4.0.0").mkdir()
    for number in range(7):
        (workspace / f"datasets/numbers/4.0.0/f{number}").write_text("1")

    kept = numbers("gc").out.splitlines()
    assert kept[:2] == ["removed 0 leftovers, 0 B", "kept 1 leftover, in use or too recent, 405 B:"]
    assert kept.pop(2).startswith(f"  {folder}: ")
    assert kept[2] == "not removed, because their owner is unknown; check them yourself:"
    assert kept[4].split()[0] == "unpublished"
    assert kept[4].endswith("no version of this catalog is there")
    assert kept[5:] == [f"  in {workspace}/datasets/numbers/4.0.0: f0, f1, f2, f3, f4 and 2 more"]

    planned = numbers("gc", "--dry-run", "--older-than", "0s").out.splitlines()
    assert planned[0].split() == ["KIND", "FILES", "SIZE", "CHANGED", "(UTC)", "PLACE", "WHY"]
    assert planned[1].split()[:4] == ["staged", "2", "405", "B"]
    assert str(folder) in planned[1]
    assert planned[2] == "would remove 1 leftover, 405 B"
    assert folder.exists()

    done = numbers("gc", "--older-than", "0s")
    assert (done.code, done.out.splitlines()[2]) == (0, "removed 1 leftover, 405 B")
    assert not folder.exists()
    assert numbers("verify", "--all").code == 0


def test_gc_names_ten_of_the_leftovers_that_it_kept(numbers: Callable[..., Any], workspace: Path) -> None:
    folders = [leave(workspace, f"0a1b2c{number:02}") for number in range(12)]
    kept = numbers("gc").out.splitlines()
    assert kept[1] == "kept 12 leftovers, in use or too recent, 4.7 KiB:"
    assert {line.partition(": ")[0].strip() for line in kept[2:12]} <= set(map(str, folders))
    assert kept[12:] == ["  and 2 more"]
    assert numbers("gc", "--older-than", "0").out.splitlines()[-1] == "removed 12 leftovers, 4.7 KiB"
    assert not any(folder.exists() for folder in folders)


def test_gc_as_json(numbers: Callable[..., Any], workspace: Path) -> None:
    folder = leave(workspace)
    told = numbers("gc", "--older-than", "0s", "--format", "json").json()
    assert told["schema"] == "registry.gc/1"
    (one,) = told["data"].pop("leftovers")
    assert told["data"] == {"dry_run": False, "older_than": "0s", "num_bytes": 405}
    assert one.pop("changed_at").startswith("20")
    assert one == {
        "kind": "staged",
        "place": str(folder),
        "outcome": "removed",
        "why": f"process {DEAD.pid} on {DEAD.host} left it and has ended",
        "num_files": 2,
        "num_bytes": 405,
        "filenames": [".owner.json", "shard"],
        "error": None,
    }


def test_gc_ends_with_the_code_of_what_could_not_be_removed(
    numbers: Callable[..., Any], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = leave(workspace)

    def refuse(self: LocalStore, name: str) -> None:
        raise StorageUnavailableError(f"cannot remove {name}: no answer")

    monkeypatch.setattr(LocalStore, "remove_tree", refuse)
    ran = numbers("gc", "--older-than", "0s")
    assert ran.code == 75
    assert ran.out.splitlines()[-1] == (
        f"{folder} could not be removed: cannot remove numbers/{folder.name}: no answer"
    )


def test_gc_names_what_another_catalog_may_own(numbers: Callable[..., Any], workspace: Path) -> None:
    folder = leave(workspace)
    (folder / ".owner.json").unlink()  # a folder of this name that somebody copied there, and recorded as a mirror
    ran = numbers("gc", "--older-than", "0s")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "removed 0 leftovers, 0 B")
    row = next(line for line in ran.out.splitlines() if str(folder) in line)
    assert row.split()[0] == "staged"
    assert row.endswith("it names no owner: another catalog may have recorded it")
    assert (folder / "shard").exists()
