"""``registry config``: the configs of a dataset, the default one, and whose canonical version is protected."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from registry.cli.commands import Session, examples, session_command
from registry.cli.completion import complete_reference
from registry.cli.lifecycle import effects_json, load_uses, print_effects
from registry.cli.options import change_options, dataset_argument

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.catalog import ProtectionChange


@click.group(
    "config",
    epilog=examples(
        "registry config list mnist", "registry config set-default mnist/rotated", "registry config protect"
    ),
)
def config() -> None:
    """Look at the configs of a dataset, choose the default one, and protect canonical versions."""


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
            "is_protected": one.is_protected,
        }
        for one in found
    ]
    rows = [
        (
            one.config or "(none)",
            "default" if one.is_default else "",
            str(one.canonical or "none") + (" (protected)" if one.is_protected else ""),
            one.num_versions,
        )
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
        place = "" if before is None else f", replacing {before}"
        session.out.line(f"{verb} {after} the default config of {name}{place}")
        print_effects(session.out, change.effects, change.use_effects, uses, config=True)

    session.out.result("config.set-default", data, human)


_optional_dataset = click.argument("dataset", metavar="[NAME]", required=False, shell_complete=complete_reference)
_dry_run = click.option("--dry-run", is_flag=True, help="Change nothing: say what would be changed.")


@session_command(
    "protect",
    epilog=examples(
        "registry config protect mnist", "registry config protect mnist/rotated --dry-run", "registry config protect"
    ),
)
@_optional_dataset
@_dry_run
def protect(session: Session, dataset: str | None, dry_run: bool) -> None:
    """Let only 'registry promote' move the canonical version of NAME, or of every dataset without NAME.

    NAME is a dataset, or NAME/CONFIG. What is built, published or imported from then on leaves the canonical version as
    it is, and is refused with --promote. A dataset whose first version comes after that has no canonical version until
    one is promoted.
    """
    with session.connect() as catalog:
        change = catalog.lifecycle.protect(dataset, dry_run=dry_run)
    _print_protection(session, change)


@session_command("unprotect", epilog=examples("registry config unprotect mnist", "registry config unprotect"))
@_optional_dataset
@_dry_run
def unprotect(session: Session, dataset: str | None, dry_run: bool) -> None:
    """Undo 'registry config protect' of NAME, or of the whole catalog without NAME."""
    with session.connect() as catalog:
        change = catalog.lifecycle.unprotect(dataset, dry_run=dry_run)
    _print_protection(session, change)


def _print_protection(session: Session, change: ProtectionChange) -> None:
    scope, wider = change.scope or "the whole catalog", change.protected_by
    data = {
        "dataset": change.scope or None,
        "is_change": change.is_change,
        "dry_run": change.is_dry_run,
        "before": change.before,
        "after": change.after,
        "protected_by": None if wider is None else wider or "(catalog)",
    }

    def human() -> None:
        if not change.is_change:
            session.out.line(f"{scope} is {'protected already' if change.after else 'not protected: nothing to undo'}")
        else:
            verb = "would be" if change.is_dry_run else "is"
            no_longer = "would no longer be" if change.is_dry_run else "is no longer"
            moved = "its canonical version" if change.scope else "a canonical version"
            session.out.line(
                f"{scope} {verb} protected: only 'registry promote' moves {moved}"
                if change.after
                else f"{scope} {no_longer} protected"
            )
        if not change.after and wider is not None:
            undo = f"registry config unprotect {wider}".rstrip()
            session.out.line(f"It stays protected by {wider or 'the whole catalog'}: see {undo}")

    session.out.result("config.protect" if change.after else "config.unprotect", data, human)


for subcommand in (list_, set_default, protect, unprotect):
    config.add_command(subcommand)
