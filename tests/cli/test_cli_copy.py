"""``registry copy``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


def test_a_note_says_that_both_catalogs_use_one_data_directory(
    numbers: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = str(workspace / "datasets")
    monkeypatch.setenv("REGISTRY_DATA_DIR", shared)
    note = (
        f"note: both catalogs use the data directory {shared}, so existing files are not copied. "
        "To copy them: --to-data-dir DIR\n"
    )
    to = ("--to", str(workspace / "lab.db"))
    for options, expected in (("--dry-run",), note), ((), note), (("--to-data-dir", shared), ""):
        ran = numbers("copy", "numbers:1.0.0", *to, *options)
        assert (ran.code, ran.err) == (0, expected)


def test_files_that_the_catalogs_shared_are_copied_later(
    numbers: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the note about a data directory of both advises."""
    monkeypatch.setenv("REGISTRY_DATA_DIR", str(workspace / "datasets"))
    to = ("copy", "numbers:1.0.0", "--to", str(workspace / "lab.db"))
    assert numbers(*to).code == 0
    there = str(workspace / "lab")
    what = f"missing files of numbers:1.0.0 to {there}/numbers/1.0.0 (1 example, 1 file, 35 B)\n"
    assert numbers(*to, "--to-data-dir", there, "--dry-run").out == f"would copy {what}"
    assert not Path(there).exists()
    assert numbers(*to, "--to-data-dir", there).out == f"copied {what}"
    assert numbers(*to, "--to-data-dir", there).out == "numbers:1.0.0 already exists\n"
    (version,) = numbers(*to, "--to-data-dir", there, "--format", "json").json()["data"]["versions"]
    assert (version["outcome"], version["only_files"]) == ("known", False)
    assert numbers("verify", "--all", "--catalog", str(workspace / "lab.db"), "--data-dir", there).code == 0
