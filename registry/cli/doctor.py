"""``registry doctor``: checks the requirements of the other commands, and says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from registry.cli.commands import Session, session_command
from registry.envelope import fields_of


@session_command("doctor")
@click.option(
    "--seconds", type=click.FloatRange(min=0.1), default=20, show_default=True, help="Time limit of each check."
)
def doctor(session: Session, seconds: float) -> int:
    """Check the catalog, your rights, the clock, the data directory, the cache and the installation.

    The catalog is not changed. Each line is ok, a warning or a problem, with advice. The exit code is 1 if there is a
    problem.

    Examples:
        registry doctor
        registry doctor --catalog https://data.example.org/ --format json
    """
    from registry.api.doctor import Level, examine

    findings = list(examine(session.url, session.data_dir, seconds=seconds))
    values = [fields_of(finding, "subject", "level", "text", "hint") for finding in findings]

    def human(rows: list[dict[str, Any]]) -> Iterator[str]:
        for row in rows:
            yield f"{row['level']:<7}  {row['subject']}: {row['text']}"
            if row["hint"]:
                yield f"         {row['hint']}"

    session.out.present("doctor", values, human)
    return int(any(finding.level is Level.PROBLEM for finding in findings))
