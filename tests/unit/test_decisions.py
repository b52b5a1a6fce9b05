"""Decisions are numbered once, without a gap, and each link to one leads to it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))


def test_each_decision_has_a_number_of_its_own_and_at_most_forty_lines() -> None:
    assert [path.name[:4] for path in DECISIONS] == [f"{number:04d}" for number in range(1, len(DECISIONS) + 1)]
    for path in DECISIONS:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith(f"# {int(path.name[:4])}. "), path.name
        assert len(lines) <= 40, path.name


def test_each_link_to_a_decision_leads_to_it() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        for number, target in re.findall(r"\[decision (\d+)\]\(((?:decisions/)?\d{4}[^)]*)\)", text):
            assert (page.parent / target).is_file(), f"{page.name}: {target}"
            assert f"{int(number):04d}-" in target, f"{page.name}: {target}"
