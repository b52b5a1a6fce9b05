"""``registry drop``: take a version away from every reader."""

from __future__ import annotations

from pathlib import Path

import click

from registry.cli.effects import change_options, load_uses, print_change, version_argument
from registry.cli.options import Session, examples, session_command
from registry.errors import UsageError


@session_command(
    "drop",
    epilog=examples(
        "registry drop mnist:1.0.0 --reason 'its licence ended' --dry-run",
        "registry drop mnist:1.0.0 --reason 'its licence ended'",
        "registry drop mnist:1.0.0 --undo",
    ),
)
@version_argument
@click.option("--reason", metavar="TEXT", help="Why, for everybody who asks for it.")
@click.option("--undo", is_flag=True, help="Take it back: the version stands as it did before.")
@change_options
def command(
    session: Session, reference: str, reason: str | None, undo: bool, dry_run: bool, use_files: tuple[Path, ...]
) -> None:
    """Drop a version: no look-up gives it any more, not even by its exact number.

    REF names one version, exactly or by an alias. Its number stays used, and its files stay where they are.
    """
    if undo == (reason is not None):
        raise UsageError("say why it is dropped, or --undo", hint="Add --reason TEXT, or --undo alone.")
    uses = load_uses(use_files)
    with session.connect() as catalog:
        if reason is None:
            change = catalog.lifecycle.undo("drop", reference, dry_run=dry_run, uses=uses)
        else:
            change = catalog.lifecycle.drop(reference, reason=reason, dry_run=dry_run, uses=uses)
    print_change(session.out, change, uses)
