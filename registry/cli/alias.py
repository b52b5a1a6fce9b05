"""``registry alias``: sets, moves, removes and lists names for versions."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, change_values, session_command
from registry.cli.options import alias_argument, dry_run_option, optional_dataset_argument, reference_argument
from registry.cli.output import Column, Table
from registry.envelope import fields_of
from registry.errors import UsageError

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.catalog import AliasChange


@click.group("alias")
def alias() -> None:
    """Give versions movable names: mnist@paper, mnist@production."""


_expect_option = click.option(
    "--expect",
    metavar="OLD",
    help="Fail unless the alias currently points to this version, or, for 'none', does not exist.",
)
_reason_option = click.option("--reason", default="", metavar="TEXT", help="The reason, for the history of the alias.")


@session_command("set", group=alias)
@click.argument("name", metavar="NAME")
@reference_argument
@_expect_option
@_reason_option
@dry_run_option
def set_(session: Session, name: str, reference: str, expect: str | None, reason: str, dry_run: bool) -> None:
    """Point the alias NAME to the version that REF resolves to now.

    A range is looked up only once: the alias points to one version until somebody moves it. Setting it to the same
    version changes nothing. With --expect, it is a compare-and-swap, which fails with exit code 4 if somebody else
    moved the alias first.

    Examples:
        registry alias set paper mnist:3.0.1
        registry alias set production 'mnist/plain:3.*' --expect 3.0.1 --reason 'Better labels.'
        registry alias set production mnist@candidate --expect none --dry-run
    """
    if "@" in name:
        alone = name.rpartition("@")[2]
        raise UsageError(
            f"{name!r} is not the name of an alias",
            hint=f"Leave out the dataset: registry alias set {shlex.join([alone, reference])}",
        )
    with session.connect(reference) as catalog:
        change = catalog.aliases.set(name, reference, expect=expect, reason=reason, dry_run=dry_run)
    _present(session, "set", change, lambda it: f"{'would set' if dry_run else 'set'} {it['alias']} to {it['after']}")


@session_command("rm", group=alias)
@alias_argument
@_expect_option
@_reason_option
@dry_run_option
def rm(session: Session, reference: str, expect: str | None, reason: str, dry_run: bool) -> None:
    """Remove the alias DATASET@NAME. Its history is kept.

    Examples:
        registry alias rm mnist@paper
        registry alias rm mnist/plain@paper --expect 3.0.1 --dry-run
    """
    with session.connect(reference) as catalog:
        change = catalog.aliases.remove(reference, expect=expect, reason=reason, dry_run=dry_run)
    _present(session, "rm", change, lambda it: f"{'would remove' if dry_run else 'removed'} {it['alias']}")


@session_command("list", group=alias)
@optional_dataset_argument("[DATASET]")
def list_(session: Session, dataset: str | None) -> None:
    """List the aliases of the catalog or of DATASET. Without a config, lists those of all its configs.

    Examples:
        registry alias list
        registry alias list mnist/plain --format json
    """
    with session.connect(dataset) as catalog:
        found = [
            {"reference": entry.reference, "dataset": entry.reference.dataset}
            | fields_of(entry, "alias", "version", "state", "set_at", "set_by")
            for entry in catalog.aliases.list(dataset)
        ]
    columns: dict[str, Column] = {
        "ALIAS": "reference",
        "VERSION": "version",
        "STATE": "state",
        "SET (UTC)": "set_at",
        "BY": "set_by",
    }
    empty = (
        f"{f'{dataset} has' if dataset else 'The catalog has'} no aliases. Set one with: registry alias set NAME REF"
    )
    session.out.present("alias.list", found, lambda rows: [Table(rows, columns, empty=empty)])


@session_command("history", group=alias)
@alias_argument
def history(session: Session, reference: str) -> None:
    """Show the history of the alias DATASET@NAME, newest change last. Works for removed aliases, too.

    Examples:
        registry alias history mnist@paper
    """
    with session.connect(reference) as catalog:
        moves = [
            fields_of(move, "at", "actor", "before", "after", "message") for move in catalog.aliases.history(reference)
        ]
    columns: dict[str, Column] = {
        "AT (UTC)": lambda row: f"{row['at']:%Y-%m-%d %H:%M:%S}",
        "WHO": "actor",
        "FROM": lambda row: row["before"] or "none",
        "TO": lambda row: row["after"] or "none",
        "MESSAGE": "message",
    }
    session.out.present("alias.history", moves, lambda rows: [Table(rows, columns)])


def _present(session: Session, verb: str, change: AliasChange, describe: Callable[[dict[str, Any]], str]) -> None:
    value = {"alias": change.reference, **change_values(change)}

    def human(it: dict[str, Any]) -> list[str]:
        if not it["would_change"]:
            return [f"{it['alias']} already points to {it['after']}"]
        return [describe(it) + (f"; it pointed to {it['before']}" if it["before"] else "")]

    session.out.present(f"alias.{verb}", value, human)
