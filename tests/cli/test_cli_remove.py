"""``registry remove``: what it prints, its JSON, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.prepared_samples import prepare

import registry
from registry.cli.main import run
from registry.errors import StorageUnavailableError
from registry.storage.local import LocalStore

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """animals:1.0.0, which is dropped, in the catalog that commands open."""
    monkeypatch.setenv("REGISTRY_CATALOG", str(tmp_path / "catalog.db"))
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "cache"))
    with registry.connect(data_dir=tmp_path / "data") as catalog:
        catalog.publish(prepare(tmp_path / "given", shards=2))
        catalog.lifecycle.drop("animals:1.0.0", reason="wrong")


def test_a_plan_says_how_to_hurry_and_how_to_cancel_it(capsys: Output) -> None:
    assert run(["remove", "animals:1.0.0"]) == 0
    kept, then, undo = capsys.readouterr().out.splitlines()
    assert kept.startswith("the files of animals:1.0.0 are kept until 20")
    assert then == "After that, registry gc removes them. Or now: registry remove animals:1.0.0 --now"
    assert undo == "To keep them: registry drop animals:1.0.0 --undo"
    assert run(["log", "--action", "remove"]) == 0
    assert "dropped -> dropped (planned, due at 20" in capsys.readouterr().out
    assert run(["gc"]) == 0
    assert "animals:1.0.0: the files of a dropped version, whose removal " in capsys.readouterr().out


def test_files_that_were_removed_and_left_are_listed(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "data/animals/1.0.0/LICENSE").write_text("mine")
    folder = tmp_path / "data/animals/1.0.0"
    assert run(["remove", "animals:1.0.0", "--now", "--dry-run"]) == 0
    assert f"would remove 6 files, 3.6 KiB: {folder}" in capsys.readouterr().out
    assert run(["remove", "animals:1.0.0", "--now"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{folder}/LICENSE is kept: it is a link, or the catalog does not record it",
        f"removed 6 files, 3.6 KiB: {folder}",
        "the files of animals:1.0.0 are removed; its number cannot be used again",
    ]
    assert run(["remove", "animals:1.0.0", "--now"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "the files of animals:1.0.0 are removed; its number cannot be used again"
    ]
    assert run(["show", "animals:1.0.0"]) == 6
    assert "is dropped: wrong; " in capsys.readouterr().err


def test_json_has_the_step_and_the_places(tmp_path: Path, capsys: Output) -> None:
    assert run(["remove", "animals:1.0.0", "--now", "--format", "json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["schema"] == "registry.remove/1"
    data = value["data"]
    assert (data["dataset"], data["version"], data["step"], data["is_change"]) == ("animals", "1.0.0", "ended", True)
    [place] = data["places"]
    assert place | {"num_bytes": 0} == {
        "place": str(tmp_path / "data/animals/1.0.0"),
        "num_files": 6,
        "num_bytes": 0,
        "left": [],
        "why_left": "",
        "error": None,
    }


def test_a_store_that_does_not_answer_has_its_exit_code(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    def be_away(_: LocalStore, name: str) -> None:
        raise StorageUnavailableError(f"{name}: no answer")

    monkeypatch.setattr(LocalStore, "remove", be_away)
    assert run(["remove", "animals:1.0.0", "--now"]) == 75
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "not cleared: dataset_info.json: no answer"
    assert lines[-1] == "animals:1.0.0 is not removed everywhere. To continue: registry remove animals:1.0.0"


def test_uses_and_versions_that_are_not_dropped_are_refused(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "uses.txt").write_text("animals:1.0.0\n")
    assert run(["remove", "animals:1.0.0", "--uses", str(tmp_path / "uses.txt")]) == 4
    assert "animals:1.0.0 is in use: animals:1.0.0 in " in capsys.readouterr().err
    assert run(["drop", "animals:1.0.0", "--undo"]) == 0
    assert run(["remove", "animals:1.0.0"]) == 4
    assert "hint: Drop it first: registry drop animals:1.0.0 --reason TEXT" in capsys.readouterr().err
    assert run(["remove", "animals:1.0.0", "--now", "--grace", "1d"]) == 2
