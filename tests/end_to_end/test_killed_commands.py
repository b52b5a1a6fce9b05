"""A command that was killed while it wrote files leaves no temporary files after it has run again."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support import FOLDER, warm_python
from support.levels import cases
from support.prepared_samples import animals, prepare

import registry
from registry.pins.citation import Citation
from registry.storage import open_store
from registry.storage.names import Owner

SCRIPT = FOLDER / "killed_commands.py"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with one small dataset, and a pin file, a key and a signature of it in ``given``."""
    folder = tmp_path_factory.mktemp("published")
    with registry.connect(folder / "catalog.db") as catalog:
        prepare(folder / "datasets/animals/1.0.0", splits={"train": animals(8)}, shards=1)
        catalog.publish(folder / "datasets/animals/1.0.0")
        catalog.dataset("animals").pin({"half": "train[:50%]"}).save(folder / "given.lock.yaml")
    return folder


# The codes with which the next run ends: a file of that name may be there by then, and is not replaced.
COMMANDS: dict[str, tuple[list[str], tuple[int, ...]]] = {
    "pin create": (["pin", "create", "animals", "train[:4]", "-o", "made.yaml"], (0,)),
    "pin add": (["pin", "add", "animals", "rest=train[4:]", "-o", "given.lock.yaml"], (0, 4)),
    "pin from-citation": (["pin", "from-citation", "CITED", "-o", "made.yaml"], (0,)),
    "pin bundle": (["pin", "bundle", "given.lock.yaml", "-o", "made.tar"], (0, 1)),
    "pin keygen": (["pin", "keygen", "made.key"], (0, 1)),
    "backup": (["backup", "made.gz"], (0, 1)),
    "export croissant": (["export", "croissant", "animals", "-o", "made.json"], (0,)),
}


@pytest.mark.parametrize("name", cases(COMMANDS, everyday=2))
def test_the_next_run_removes_what_a_killed_one_left(published: Path, tmp_path: Path, name: str) -> None:
    command, codes = COMMANDS[name]
    given = (published / "given.lock.yaml").read_text()
    (tmp_path / "given.lock.yaml").write_text(given)
    cited = str(Citation.of(registry.load_pin(published / "given.lock.yaml")["half"].entry))
    asked = {
        "command": [cited if word == "CITED" else word for word in command],
        "restore": {"given.lock.yaml": given},
    }
    ran = warm_python.run(
        [sys.executable, str(SCRIPT), str(tmp_path)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "REGISTRY_CATALOG": str(published / "catalog.db")},
    )
    rows: list[dict[str, Any]] = [json.loads(line) for line in ran.stdout.splitlines()]
    assert rows[-1]["code"] == 0
    assert len(rows) > 5
    assert any(part.startswith("incomplete.") for row in rows for part in row["left"])
    for row in rows:
        assert row["again"] in codes, row
        assert not [part for part in row["behind"] if part.startswith("incomplete.")], row


def test_the_file_of_a_process_that_lives_or_may_live_stays(tmp_path: Path) -> None:
    done = warm_python.run(
        [sys.executable, "-c", "from registry.storage.names import Owner; print(Owner.this_process().mark())"],
        capture_output=True,
        text=True,
        check=True,
    )
    dead, alive = done.stdout.strip(), Owner.this_process().mark()
    elsewhere = f"p{int(dead[1:9], 16) ^ 1:08x}{dead[9:]}"
    names = {
        f"incomplete.0a1b2c3d{dead}_a": False,
        f"incomplete.0a1b2c3d{dead[:9]}{int(dead[9:17], 16) ^ 1:08x}{dead[17:]}_a": False,  # before a restart
        f"incomplete.0a1b2c3d{alive}_a": True,
        f"incomplete.0a1b2c3d{alive.partition('t')[0]}t1_a": False,  # the number was given to another process since
        f"incomplete.0a1b2c3d{elsewhere}_a": True,
        "incomplete.0a1b2c3d_a": True,
        "incomplete.AB12CD_a": True,
        f"mine.0a1b2c3d{dead}_a": True,
    }
    for name in names:
        (tmp_path / name).write_text("x")
    (tmp_path / f"incomplete.0a1b2c3e{dead}_folder").mkdir()
    with open_store(tmp_path).create("b") as file:
        file.write(b"b")
    assert {name: (tmp_path / name).exists() for name in names} == names
    assert (tmp_path / f"incomplete.0a1b2c3e{dead}_folder").exists()
