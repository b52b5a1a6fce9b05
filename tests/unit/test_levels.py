"""The table of sampled tests names tests that exist."""

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
