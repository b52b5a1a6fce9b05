"""``registry doctor``: checks the requirements of the other commands, and says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, session_command
from registry.envelope import fields_of

if TYPE_CHECKING:
    from registry.api.doctor import Finding


@session_command("doctor")
@click.option(
    "--seconds", type=click.FloatRange(min=0.1), default=20, show_default=True, help="Time limit of each check."
)
@click.option(
    "--config", "config_file", metavar="FILE", type=click.Path(), help="Check the settings and issuers of a service."
)
def doctor(session: Session, seconds: float, config_file: str | None) -> int:
    """Check the catalog, your rights, the clock, the data directory, the cache and the installation.

    The catalog is not changed. Each line is ok, a warning or a problem, with advice. The exit code is 1 if there is a
    problem. On the machine of a service, --config names its configuration file.

    Examples:
        registry doctor
        registry doctor --catalog https://data.example.org/ --format json
        registry doctor --config service.yaml
    """
    from registry.api.doctor import Level, examine, within

    services: list[Finding]
    url, data_dir, services = session.url, session.data_dir, []
    if config_file is not None:
        from registry.server.config import load_config
        from registry.server.oidc import examine_issuer

        config = load_config(config_file, catalog=url, data_dir=data_dir)
        url, data_dir = config.catalog, config.data_dir
        services = [within(seconds, f"issuer {it.name}", partial(examine_issuer, it)) for it in config.issuers]
    findings = [*examine(url, data_dir, seconds=seconds), *services]
    values = [fields_of(finding, "subject", "level", "text", "hint") for finding in findings]

    def human(rows: list[dict[str, Any]]) -> Iterator[str]:
        for row in rows:
            yield f"{row['level']:<7}  {row['subject']}: {row['text']}"
            if row["hint"]:
                yield f"         {row['hint']}"

    session.out.present("doctor", values, human)
    return int(any(finding.level is Level.PROBLEM for finding in findings))
