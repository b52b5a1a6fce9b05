"""What somebody sees who typed something wrong: the whole message, the exit code, and never a traceback."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

MISTAKES = {
    "unknown dataset": (
        ["show", "digit"],
        3,
        "error: no dataset 'digit' in the catalog\nhint: Did you mean 'digits'? There are: digits.\n",
    ),
    "unknown version": (
        ["show", "digits:2.*"],
        3,
        "error: no version '2.*.*' in digits\nhint: Published: 1.0.0 (canonical).\n",
    ),
    "unknown exact version": (
        ["show", "digits:1.0.1"],
        3,
        "error: no version '1.0.1' in digits\nhint: Published: 1.0.0 (canonical).\n",
    ),
    "unknown split": (
        ["resolve", "digits", "tran[:10%]"],
        3,
        "error: no split 'tran'\nhint: Did you mean 'train'? There are: train.\n",
    ),
    "malformed reference": (
        ["show", "9digits"],
        2,
        "error: invalid dataset name '9digits'\n"
        "hint: A dataset name is a letter, then letters, digits and '_', e.g. mnist.\n",
    ),
    "unknown command": (["biuld", "digits"], 2, "error: no command 'biuld'\nhint: Did you mean 'registry build'?\n"),
    "unknown builder": (
        ["build", "digitz"],
        3,
        "error: no builder 'digitz' in the installed packages\nhint: Did you mean 'digits'? There are: digits.\n",
    ),
    "missing argument": (["show"], 2, "error: Missing argument 'REF'.\nhint: See registry show --help.\n"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake(digits: Cli, mistake: str) -> None:
    arguments, code, message = MISTAKES[mistake]
    ran = digits(*arguments)
    assert (ran.code, ran.out, ran.err) == (code, "", message)
    as_json = digits(*arguments, "--format", "json")
    assert (as_json.code, as_json.out) == (code, "")
    assert as_json.error()["message"] == message.removeprefix("error: ").split("\nhint: ")[0]
    assert as_json.error()["hint"] == message.rstrip("\n").split("\nhint: ")[1]


def test_malformed_expression_draws_a_caret(digits: Cli) -> None:
    ran = digits("resolve", "digits", "train[:1O%]")
    assert ran.code == 2
    lines = ran.err.splitlines()
    assert lines[1] == "    train[:1O%]"
    assert lines[2].index("^") == lines[1].index("O")
    details = digits("resolve", "digits", "train[:1O%]", "--format", "json").error()["details"]
    assert details["expression"][details["start"] : details["stop"]].startswith("O")


def test_slice_out_of_range(digits: Cli) -> None:
    ran = digits("resolve", "digits", "train[:1798]")
    assert ran.code == 2
    assert "1798" in ran.err
    assert "1797" in ran.err


def test_a_folder_that_is_no_dataset(digits: Cli, workspace: Path) -> None:
    (workspace / "photos").mkdir()
    ran = digits("publish", str(workspace / "photos"))
    assert ran.code == 1
    assert "dataset_info.json" in ran.err
    assert digits("publish", str(workspace / "nowhere")).code == 1


def test_a_file_that_is_no_database(cli: Cli, workspace: Path) -> None:
    (workspace / "catalog.db").write_text("this is a letter to my grandmother, longer than a page header is " * 20)
    ran = cli("list")
    assert ran.code == 1
    assert ran.err == (
        f"error: sqlite:///{workspace}/catalog.db is no database\n"
        "hint: Name another file; one that does not exist becomes a new catalog.\n"
    )


def test_a_database_of_something_else(cli: Cli, workspace: Path) -> None:
    with sqlite3.connect(workspace / "catalog.db") as database:
        database.execute("create table recipes (name text)")
    database.close()
    ran = cli("list")
    assert ran.code == 1
    assert "hint: " in ran.err


def test_a_newer_catalog(digits: Cli, workspace: Path) -> None:
    with sqlite3.connect(workspace / "catalog.db") as database:
        database.execute("update alembic_version set version_num = '9999'")
    database.close()
    ran = digits("list")
    assert ran.code == 8
    assert "newer" in ran.err
    assert "hint: " in ran.err


def test_a_missing_shard_names_the_file(digits: Cli, workspace: Path) -> None:
    shard = workspace / "datasets/digits/1.0.0/digits-train.tfrecord-00001-of-00004"
    shard.unlink()
    ran = digits("read", "digits", "train[50%:51%]")
    assert ran.code == 0
    ran = digits("read", "digits", "train[30%:31%]")
    assert ran.code == 1
    assert shard.name in ran.err
    assert digits("verify", "digits").code == 5


@pytest.mark.parametrize("arguments", [["list"], ["build", "digits"], ["db", "upgrade"]])
def test_a_folder_that_cannot_be_written(cli: Cli, workspace: Path, arguments: list[str]) -> None:
    (workspace / "file").write_text("")
    ran = cli(*arguments, "--catalog", str(workspace / "file/below/catalog.db"))
    assert ran.code in (1, 75)
    assert "hint: " in ran.err


def test_a_fault_of_ours_shows_no_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import registry.api

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("gears")

    monkeypatch.setattr(registry.api, "connect", broken)
    ran = cli("list")
    assert ran.code == 1
    assert ran.err == (
        "error: RuntimeError: gears\n"
        "hint: This is a fault of the registry. Set REGISTRY_DEBUG=1 to see where, and report it.\n"
    )


def test_interrupting_ends_with_130(workspace: Path) -> None:
    script = (
        "import sys, registry.api\n"
        "def connect(*_, **__): raise KeyboardInterrupt\n"
        "registry.api.connect = connect\n"
        "from registry.cli.main import run\n"
        "sys.exit(run(['list', '--format', 'json']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert json.loads(done.stderr)["error"]["code"] == "interrupted"
