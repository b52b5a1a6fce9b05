"""``registry alias``: names for versions, which may be moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, examples, session_command
from registry.cli.completion import complete_reference
from registry.cli.options import alias_argument, reference_argument
from registry.errors import UsageError

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.catalog import AliasChange
    from registry.model import Version


@click.group("alias")
def alias() -> None:
    """Give versions names that may be moved: mnist@paper, mnist@production."""


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What both moves take: --expect, --message, --dry-run."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Say what would be changed, and change nothing."),
        click.option("--message", default="", metavar="TEXT", help="Why, for the history."),
        click.option(
            "--expect", metavar="OLD", help="Only where this version stands there now; 'none': only where no alias is."
        ),
    ):
        function = option(function)
    return function


@session_command(
    "set",
    epilog=examples(
        "registry alias set paper mnist:3.0.1",
        "registry alias set production 'mnist/plain:3.*' --expect 3.0.1 --message 'Better labels.'",
        "registry alias set production mnist@candidate --expect none --dry-run",
    ),
)
@click.argument("name", metavar="NAME")
@reference_argument
@_options
def set_(session: Session, name: str, reference: str, expect: str | None, message: str, dry_run: bool) -> None:
    """Let the alias NAME stand for the version that REF names today.

    A range is looked up once: the alias stands for one number until somebody moves it. Setting it to the same number
    changes nothing. With --expect it is a compare-and-swap, which fails with exit code 4 where somebody was faster.
    """
    if "@" in name:
        alias = name.rpartition("@")[2]
        raise UsageError(
            f"{name!r} is no name of an alias", hint=f"Name it alone: registry alias set {alias} {reference}"
        )
    with session.connect() as catalog:
        change = catalog.aliases.set(name, reference, expect=expect, message=message, dry_run=dry_run)
    if change.is_change:
        line = f"{'would set' if dry_run else 'set'} {change.reference} to {change.after}{_before(change.before)}"
    else:
        line = f"{change.reference} stands for {change.after} already"
    _print_change(session, "set", change, line)


@session_command(
    "rm",
    epilog=examples("registry alias rm mnist@paper", "registry alias rm mnist/plain@paper --expect 3.0.1 --dry-run"),
)
@alias_argument
@_options
def rm(session: Session, reference: str, expect: str | None, message: str, dry_run: bool) -> None:
    """Remove the alias DATASET@NAME. Its history stays."""
    with session.connect() as catalog:
        change = catalog.aliases.remove(reference, expect=expect, message=message, dry_run=dry_run)
    line = f"{'would remove' if dry_run else 'removed'} {change.reference}{_before(change.before)}"
    _print_change(session, "rm", change, line)


@session_command("list", epilog=examples("registry alias list", "registry alias list mnist/plain --format json"))
@click.argument("dataset", metavar="[DATASET]", required=False, shell_complete=complete_reference)
def list_(session: Session, dataset: str | None) -> None:
    """List the aliases of the catalog, or of DATASET; without a config, of all its configs."""
    with session.connect() as catalog:
        found = catalog.aliases.list(dataset)
    data = [
        {
            "reference": str(one.reference),
            "dataset": one.reference.dataset,
            "alias": one.alias,
            "version": str(one.version),
            "state": one.state.value,
            "set_at": one.set_at.isoformat(),
            "set_by": one.set_by,
        }
        for one in found
    ]
    rows = [
        (str(one.reference), str(one.version), one.state.value, f"{one.set_at:%Y-%m-%d %H:%M}", one.set_by)
        for one in found
    ]
    of = f"{dataset} has" if dataset else "The catalog has"
    empty = f"{of} no aliases. Set one with: registry alias set NAME REF"
    session.out.result(
        "alias.list",
        data,
        lambda: session.out.table(("ALIAS", "VERSION", "STATE", "SET (UTC)", "BY"), rows, empty=empty),
    )


@session_command("history", epilog=examples("registry alias history mnist@paper"))
@alias_argument
def history(session: Session, reference: str) -> None:
    """Show everything that was done to DATASET@NAME, the newest last; it may be removed by now."""
    with session.connect() as catalog:
        moves = catalog.aliases.history(reference)
    data = [
        {
            "at": one.at.isoformat(),
            "actor": one.actor,
            "before": _number(one.before),
            "after": _number(one.after),
            "message": one.message,
        }
        for one in moves
    ]
    rows = [
        (f"{one.at:%Y-%m-%d %H:%M:%S}", one.actor, str(one.before or "none"), str(one.after or "none"), one.message)
        for one in moves
    ]
    session.out.result(
        "alias.history", data, lambda: session.out.table(("AT (UTC)", "WHO", "FROM", "TO", "MESSAGE"), rows)
    )


for subcommand in (set_, rm, list_, history):
    alias.add_command(subcommand)


def _print_change(session: Session, verb: str, change: AliasChange, line: str) -> None:
    data = {
        "alias": str(change.reference),
        "before": _number(change.before),
        "after": _number(change.after),
        "changed": change.is_change and not change.is_dry_run,
        "would_change": change.is_change,
        "dry_run": change.is_dry_run,
    }
    session.out.result(f"alias.{verb}", data, lambda: session.out.line(line))


def _before(version: Version | None) -> str:
    return "" if version is None else f", it stood for {version}"


def _number(version: Version | None) -> str | None:
    return None if version is None else str(version)
