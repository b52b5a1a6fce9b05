"""The table of sampled tests names tests that exist, and every other test runs somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from support.sampled import EVERYDAY_CASES

TESTS = Path(__file__).parents[1]


def test_every_sampled_test_exists() -> None:
    defined = {
        name
        for path in [*TESTS.rglob("test_*.py"), *TESTS.rglob("*_laws.py")]
        for name in re.findall(r"^def (test_\w+)", path.read_text(), flags=re.M)
    }
    assert EVERYDAY_CASES.keys() - defined == set()


def test_every_file_beside_a_framework_has_its_mark() -> None:
    """``.ci/beside NAME`` runs the tests with the mark, and the everyday level does not import these files."""
    unmarked = {
        path
        for path in (TESTS / "beside").rglob("test_*.py")
        if not any(
            f"pytest.mark.{path.parent.name}" in file.read_text()
            for file in (path, path.with_name("conftest.py"))
            if file.exists()
        )
    }
    assert unmarked == set()
