"""``registry promote``: which version a reference without a version gives."""

from __future__ import annotations

from pathlib import Path

from registry.cli.effects import change_options, load_uses, print_change, version_argument
from registry.cli.options import Session, examples, session_command


@session_command(
    "promote",
    epilog=examples(
        "registry promote mnist:3.1.1 --dry-run",
        "registry promote mnist:3.1.1",
        "registry promote mnist@candidate --uses references.txt",
    ),
)
@version_argument
@change_options
def command(session: Session, reference: str, dry_run: bool, use_files: tuple[Path, ...]) -> None:
    """Make a version the canonical one, which a reference without a version gives.

    REF names one version, exactly or by an alias. Prints every reference that resolves differently, before and after.
    """
    uses = load_uses(use_files)
    with session.connect() as catalog:
        change = catalog.lifecycle.promote(reference, dry_run=dry_run, uses=uses)
    print_change(session.out, change, uses)
