"""``registry deprecate``: tell the readers of a version to move on."""

from __future__ import annotations

from pathlib import Path

import click

from registry.cli.effects import change_options, load_uses, print_change, version_argument
from registry.cli.options import Session, examples, session_command
from registry.errors import UsageError


@session_command(
    "deprecate",
    epilog=examples(
        "registry deprecate mnist:2.0.0 --message 'use 3.*, which has the test labels'",
        "registry deprecate mnist:2.0.0 --undo",
    ),
)
@version_argument
@click.option("--message", metavar="TEXT", help="What its readers are told.")
@click.option("--undo", is_flag=True, help="Take it back: the version stands as it did before.")
@change_options
def command(
    session: Session, reference: str, message: str | None, undo: bool, dry_run: bool, use_files: tuple[Path, ...]
) -> None:
    """Deprecate a version: it is found as before, and its readers are told MESSAGE.

    REF names one version, exactly or by an alias.
    """
    if undo == (message is not None):
        raise UsageError("say what its readers are told, or --undo", hint="Add --message TEXT, or --undo alone.")
    uses = load_uses(use_files)
    with session.connect() as catalog:
        if message is None:
            change = catalog.lifecycle.undo("deprecate", reference, dry_run=dry_run, uses=uses)
        else:
            change = catalog.lifecycle.deprecate(reference, message=message, dry_run=dry_run, uses=uses)
    print_change(session.out, change, uses)
