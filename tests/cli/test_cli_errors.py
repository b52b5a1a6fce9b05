"""What somebody sees who typed something wrong: the whole message, the exit code, and never a traceback."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import warm_python

from registry.cli.main import COMMANDS

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
    "unknown alias": (
        ["show", "digits@stable"],
        3,
        "error: no alias 'stable' in digits\nhint: It has no aliases; its versions: registry versions digits\n",
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
    "unknown command": (
        ["biuld", "digits"],
        2,
        "error: no command 'biuld'\n"
        "hint: Did you mean 'build'? There are: quickstart, add, build, publish, import, export, earth-engine, list, "
        f"search, show and {len(COMMANDS) - 10} more.\n",
    ),
    "unknown builder": (
        ["build", "digitz"],
        3,
        "error: no builder 'digitz' in the installed packages\n"
        "hint: Did you mean 'digits'? There are: digits, earth_patches.\n",
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
        f"error: sqlite:///{workspace}/catalog.db is not a database\n"
        "hint: Name the file of a catalog. Commands that publish create a file that does not exist.\n"
        "This catalog is named by the environment variable REGISTRY_CATALOG.\n"
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


@pytest.mark.parametrize(
    ("redirect", "split", "code", "said"),
    [
        (">&-", "train[:3]", 0, ""),
        (">&-", "trian", 3, "error: no split 'trian'"),
        (">&- 2>&-", "trian", 3, ""),
        ("> /dev/full", "train[:3]", 1, "error: no space is left in /dev, where the output goes"),
        ("> /dev/full", "trian", 3, "error: no split 'trian'"),
    ],
)
def test_an_output_that_takes_nothing_costs_no_traceback(
    digits: Cli, redirect: str, split: str, code: int, said: str
) -> None:
    program = Path(sys.executable).parent / "registry"
    done = subprocess.run(  # noqa: S602 (our own words)
        f"'{program}' resolve digits '{split}' {redirect}", shell=True, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.partition("\n")[0]) == (code, said)


def test_a_fault_of_ours_shows_no_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import registry.api

    # As if the registry itself raised it: a function of this file would be an author's.
    broken = "def connect(*_, **__): raise RuntimeError('gears')"
    exec(compile(broken, registry.api.__file__, "exec"), found := {})  # noqa: S102 (our own words)
    monkeypatch.setattr(registry.api, "connect", found["connect"])
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
    done = warm_python.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert json.loads(done.stderr)["error"]["code"] == "interrupted"


@pytest.mark.parametrize(("arguments", "usage"), [([], "registry"), (["db"], "registry db")])
def test_a_group_without_a_command_shows_its_help_and_no_error(cli: Cli, arguments: list[str], usage: str) -> None:
    ran = cli(*arguments)

    assert ran.code == 2
    assert ran.err.startswith(f"Usage: {usage} [OPTIONS] COMMAND")
    assert "error:" not in ran.err
    assert "hint:" not in ran.err


def test_a_missing_choice_is_listed_without_odd_characters(cli: Cli) -> None:
    ran = cli("completion")

    assert ran.code == 2
    assert "�" not in ran.err
    assert "    bash" in ran.err


def test_a_data_folder_that_is_a_file_says_so(cli: Cli, workspace: Path) -> None:
    (workspace / "file").write_text("no folder")

    ran = cli("build", "digits", "--data-dir", str(workspace / "file"))

    assert ran.code == 1
    hint = "A part of this path is a file, not a folder. Check the path, or choose another data directory."
    assert f"hint: {hint}" in ran.err


def test_an_authors_mistake_shows_the_authors_lines_and_debug_shows_all(
    cli: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "my_code.py").write_text(
        "from registry import DatasetBuilder\n"
        "from registry.features import FeaturesDict\n"
        "class Broken(DatasetBuilder):\n"
        "    VERSION = '1.0.0'\n"
        "    def features(self):\n"
        "        return FeaturesDict({'number': 'int64'})\n"
        "    def splits(self):\n"
        "        return {'train': self.examples()}\n"
        "    def examples(self):\n"
        "        yield 'first', {'number': 1}\n"
        "        raise ValueError('page 7 is missing')\n"
    )
    monkeypatch.syspath_prepend(str(workspace))
    ran = cli("build", "my_code:Broken")
    assert ran.code == 1
    assert ran.err == (
        "error: split 'train': the generator failed after 1 example, the last with key 'first': "
        f"ValueError: page 7 is missing ({workspace}/my_code.py, line 11)\n"
        "Traceback (most recent call last):\n"
        f'  File "{workspace}/my_code.py", line 11, in examples\n'
        "    raise ValueError('page 7 is missing')\n"
        "ValueError: page 7 is missing\n"
    )
    monkeypatch.setenv("REGISTRY_DEBUG", "1")
    assert "in build_dataset" in cli("build", "my_code:Broken").err


def test_a_dataset_that_can_be_built_is_offered(empty: Cli) -> None:
    ran = empty("show", "digits")
    assert ran.code == 3
    assert ran.err == "error: no dataset 'digits' in the catalog\nhint: Build it with: registry build digits\n"


def test_an_empty_catalog_url_is_a_mistake_and_not_the_default(cli: Cli) -> None:
    ran = cli("list", "--catalog", "")
    assert ran.code == 2
    assert ran.err.startswith("error: the catalog's URL is empty\n")


def test_a_folder_is_no_catalog(cli: Cli, workspace: Path) -> None:
    ran = cli("list", "--catalog", str(workspace))
    assert (ran.code, ran.err) == (
        1,
        f"error: sqlite:///{workspace} is a folder\nhint: Name a file in it, e.g. catalog.db.\n",
    )


@pytest.mark.parametrize("arguments", [["list"], ["resolve", "digits", "train"], ["db", "status"], ["db", "check"]])
@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_database_file_is_a_typed_error(
    digits: Cli, workspace: Path, arguments: list[str], seed: int
) -> None:
    path, chance = workspace / "catalog.db", random.Random(seed)
    damaged = bytearray(path.read_bytes())
    if seed % 3 == 0:
        del damaged[chance.randrange(1, len(damaged)) :]
    elif seed % 3 == 1:
        for _ in range(200):
            damaged[chance.randrange(4096)] = chance.randrange(256)
    else:
        page = chance.randrange(len(damaged) // 4096) * 4096
        damaged[page : page + 4096] = chance.randbytes(4096)
    path.write_bytes(damaged)
    ran = digits(*arguments)
    assert ran.code in (0, 1, 8)  # the damage may lie where this command does not look
    assert "fault of the registry" not in ran.err
    assert ran.code == 0 or "hint: " in ran.err


def test_a_dataset_without_splits_is_not_published(digits: Cli, workspace: Path) -> None:
    folder = workspace / "empty"
    folder.mkdir()
    for name in ("dataset_info.json", "features.json", "label.labels.txt"):
        shutil.copy(workspace / "datasets/digits/1.0.0" / name, folder)
    info = json.loads((folder / "dataset_info.json").read_text())
    (folder / "dataset_info.json").write_text(json.dumps({**info, "splits": [], "version": "2.0.0"}))
    ran = digits("publish", str(folder))
    assert ran.code == 1
    assert ran.err == (
        f"error: file://{folder}: dataset_info.json names no split\n"
        "hint: There is nothing to publish. Prepare the dataset again.\n"
    )
