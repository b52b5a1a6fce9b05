"""``.ci/budget.py`` counts lines of code and names, and fails above the budget."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "budget.py"

MODULE = '''"""A module

of three lines."""

import os  # a comment


def first(one: int) -> str:
    """One line."""
    # a comment
    found = """text
    on two lines"""
    return found * one
'''


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("budget", SCRIPT)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_comments_and_docstrings_are_no_code(script: ModuleType) -> None:
    assert script.count_lines(MODULE) == 5
    assert script.bound_names(MODULE) == {"one": 1, "found": 1}


@pytest.mark.parametrize(
    ("lines", "percent", "problem"),
    [
        ('"registry/room" = 5', 100, ""),
        ('"registry/room" = 4', 100, "registry/room has 1 lines of code more than its budget"),
        ('"registry/room" = 5', 99, "too many names are fillers: use the noun, such as shard, version, row"),
        ("", 100, "registry/room has no budget"),
    ],
)
def test_what_is_over_the_budget_fails(
    script: ModuleType,
    lines: str,
    percent: int,
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "registry" / "room").mkdir(parents=True)
    (tmp_path / "registry" / "room" / "__init__.py").write_text(MODULE)
    (tmp_path / "builders").mkdir()
    (tmp_path / "builders" / "names.py").write_text("one = 1\n")
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "budget.toml").write_text(
        f'[lines]\nbuilders = 1\n{lines}\n[names]\nfillers = ["one", "found"]\npercent = {percent}\n'
    )
    monkeypatch.setattr(script, "ROOT", tmp_path)
    assert script.main() == (1 if problem else 0)
    assert capsys.readouterr().err.splitlines() == ([problem] if problem else [])
