"""The example of a backup in docs/deployment.md is of the newest schema."""

from __future__ import annotations

from pathlib import Path

TOP = Path(__file__).parents[2]


def test_the_example_of_a_backup_has_the_newest_schema() -> None:
    newest = max(path.name[:4] for path in (TOP / "migrations/versions").glob("[0-9]*.py"))
    text = (TOP / "docs/deployment.md").read_text(encoding="utf-8")
    assert f'{{"format": "registry.backup/1", "schema": "{newest}"}}' in text
