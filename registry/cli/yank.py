"""``registry yank``: withdraw a version from all who do not name it."""

from __future__ import annotations

from pathlib import Path

import click

from registry.cli.effects import change_options, load_uses, print_change, version_argument
from registry.cli.options import Session, examples, session_command
from registry.errors import UsageError


@session_command(
    "yank",
    epilog=examples(
        "registry yank mnist:3.1.0 --reason 'labels are shifted' --dry-run",
        "registry yank mnist:3.1.0 --reason 'labels are shifted' --superseded-by 3.1.1",
        "registry yank mnist:3.1.0 --reason 'labels are shifted' --uses papers.txt --uses configs.txt --dry-run",
        "registry yank mnist:3.1.0 --undo",
    ),
)
@version_argument
@click.option("--reason", metavar="TEXT", help="Why, for everybody who meets it.")
@click.option("--superseded-by", metavar="VERSION", help="The version of the same config to use in its place.")
@click.option("--undo", is_flag=True, help="Take it back: the version stands as it did before.")
@change_options
def command(
    session: Session,
    reference: str,
    reason: str | None,
    superseded_by: str | None,
    undo: bool,
    dry_run: bool,
    use_files: tuple[Path, ...],
) -> None:
    """Yank a version: no wildcard, range or missing version gives it any more.

    REF names one version, exactly or by an alias. Who names it exactly, or by an alias, still gets it, with a note;
    where it was the canonical version, a reference without a version is refused until another one is promoted.
    """
    if undo == (reason is not None) or (undo and superseded_by is not None):
        raise UsageError("say why it is yanked, or --undo", hint="Add --reason TEXT, or --undo alone.")
    uses = load_uses(use_files)
    with session.connect() as catalog:
        if reason is None:
            change = catalog.lifecycle.undo("yank", reference, dry_run=dry_run, uses=uses)
        else:
            change = catalog.lifecycle.yank(
                reference, reason=reason, superseded_by=superseded_by, dry_run=dry_run, uses=uses
            )
    print_change(session.out, change, uses)
