"""``.ci/breaks.py`` can break every guarantee that it names: the line and the tests still exist."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_every_break_has_its_line_and_its_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("breaks", ROOT / ".ci" / "breaks.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "breaks", script)
    spec.loader.exec_module(script)
    assert len(script.BREAKS) >= 20
    for name, attempt in script.BREAKS.items():
        assert (ROOT / attempt.file).read_text().count(attempt.right) == 1, name
        assert attempt.wrong != attempt.right
        assert all((ROOT / test).exists() for test in attempt.tests), name
