"""What somebody sees who typed something wrong: the whole message, the exit code, and never a traceback."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import warm_python

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


@pytest.mark.parametrize(
    ("redirect", "split", "code", "said"),
    [
        (">&-", "train[:3]", 0, ""),
        (">&-", "trian", 3, "error: no split 'trian'"),
        (">&- 2>&-", "trian", 3, ""),
        ("> /dev/full", "train[:3]", 1, "error: no space is left in /dev, to which the output is written"),
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
        f"error: file://{folder}: dataset_info.json lists no splits\n"
        "hint: There is nothing to publish. Prepare the dataset again.\n"
    )
