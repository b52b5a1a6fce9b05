"""``registry config``: the configs of a dataset, and the one that a reference without a config means."""

from __future__ import annotations

from pathlib import Path

import click

from registry.cli.arguments import dataset_argument
from registry.cli.effects import change_options, effects_json, load_uses, print_effects
from registry.cli.options import Session, examples, session_command


@click.group("config", epilog=examples("registry config list mnist", "registry config set-default mnist/rotated"))
def command() -> None:
    """Look at the configs of a dataset, and choose the default one."""


@session_command("list", epilog=examples("registry config list mnist"))
@dataset_argument
def list_(session: Session, dataset: str) -> None:
    """List the configs of DATASET, by name."""
    with session.connect() as catalog:
        found = catalog.lifecycle.configs(dataset)
    data = [
        {
            "config": one.config,
            "is_default": one.is_default,
            "canonical": None if one.canonical is None else str(one.canonical),
            "num_versions": one.num_versions,
        }
        for one in found
    ]
    rows = [
        (one.config or "(none)", "default" if one.is_default else "", str(one.canonical or "none"), one.num_versions)
        for one in found
    ]
    session.out.result(
        "config.list", data, lambda: session.out.table(("CONFIG", "DEFAULT", "CANONICAL", "VERSIONS"), rows)
    )


@session_command(
    "set-default",
    epilog=examples("registry config set-default mnist/rotated --dry-run", "registry config set-default mnist/rotated"),
)
@dataset_argument
@change_options
def set_default(session: Session, dataset: str, dry_run: bool, use_files: tuple[Path, ...]) -> None:
    """Make the config of DATASET (NAME/CONFIG) the one that a reference without a config means.

    Prints every reference that resolves differently, before and after.
    """
    uses = load_uses(use_files)
    with session.connect() as catalog:
        change = catalog.lifecycle.set_default_config(dataset, dry_run=dry_run, uses=uses)
    before, after = None if change.before is None else change.before.config, change.after.config
    data = {
        "dataset": change.after.name,
        "before": before,
        "after": after,
        "is_change": change.is_change,
        "dry_run": change.is_dry_run,
        "effects": effects_json(change.effects),
        "uses": effects_json(change.use_effects),
        "num_uses": len(uses),
    }

    def human() -> None:
        name = change.after.name
        if not change.is_change:
            session.out.line(f"{after} is the default config of {name} already")
            return
        verb = "would make" if change.is_dry_run else "made"
        place = "" if before is None else f", in the place of {before}"
        session.out.line(f"{verb} {after} the default config of {name}{place}")
        print_effects(session.out, change.effects, change.use_effects, uses, config=True)

    session.out.result("config.set-default", data, human)


for subcommand in (list_, set_default):
    command.add_command(subcommand)
