"""``registry experiment``: flags that versions may override, from their introduction to their retirement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from registry.cli.commands import Session, examples, session_command
from registry.cli.options import experiment_argument
from registry.model import Experiment, ExperimentChange

_ON_OFF = click.Choice(["on", "off"])


class _Group(click.Group):
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; ``set`` is short for ``set-default``."""
        return super().get_command(ctx, "set-default" if cmd_name == "set" else cmd_name)


@click.group("experiment", cls=_Group)
def experiment() -> None:
    """Look after experiments: flags that a version of a builder may switch on or off."""


def _dry_run_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--dry-run", is_flag=True, help="Say what would be changed, and change nothing.")(function)


@session_command(
    "add",
    epilog=examples(
        "registry experiment add new_shuffle --description 'Shuffle by the hash of the key.'",
        "registry experiment add new_shuffle --description 'Shuffle by the hash.' --default on --dry-run",
    ),
)
@click.argument("name", metavar="NAME")
@click.option("--description", required=True, metavar="TEXT", help="What is different where it is on, in a line.")
@click.option("--default", type=_ON_OFF, default="off", show_default=True, help="What is meant where none says so.")
@_dry_run_option
def add(session: Session, name: str, description: str, default: str, dry_run: bool) -> None:
    """Add the flag NAME, so that versions may override it."""
    with session.connect() as catalog:
        change = catalog.experiments.add(name, description, default == "on", dry_run=dry_run)
    if change.is_change:
        line = f"{'would add' if dry_run else 'added'} {name}, {_on_off(change.after.default)} by default"
    else:
        line = f"{name} is there already"
    _print_change(session, "add", change, dry_run, line)


@session_command("list", epilog=examples("registry experiment list", "registry experiment list --format json"))
def list_(session: Session) -> None:
    """List every flag: its default, and how many versions that can be read override it."""
    with session.connect() as catalog:
        found = catalog.experiments.list()
    rows = [
        (
            one.name,
            f"on for good since {one.retired_at:%Y-%m-%d}" if one.retired_at else _on_off(one.default),
            one.num_enabling,
            one.num_disabling,
            one.description,
        )
        for one in found
    ]
    session.out.result(
        "experiment.list",
        [_as_json(one) for one in found],
        lambda: session.out.table(
            ("EXPERIMENT", "DEFAULT", "ENABLED BY", "DISABLED BY", "DESCRIPTION"),
            rows,
            empty="The catalog has no experiments. Add one with: registry experiment add NAME --description TEXT",
        ),
    )


@session_command(
    "set-default",
    epilog=examples(
        "registry experiment set-default new_shuffle on --dry-run", "registry experiment set-default new_shuffle on"
    ),
)
@experiment_argument
@click.argument("value", metavar="on|off", type=_ON_OFF)
@_dry_run_option
def set_default(session: Session, name: str, value: str, dry_run: bool) -> None:
    """Flip the default of NAME, for versions that are built from now on.

    Versions that are published keep what they were built with.
    """
    with session.connect() as catalog:
        change = catalog.experiments.set_default(name, value == "on", dry_run=dry_run)
    if change.is_change:
        line = f"{'would set' if dry_run else 'set'} the default of {name}: {_on_off(value != 'on')} -> {value}"
    else:
        line = f"{name} is {value} by default already"
    _print_change(session, "set-default", change, dry_run, line)


@session_command(
    "retire",
    epilog=examples("registry experiment retire new_shuffle --dry-run", "registry experiment retire new_shuffle"),
)
@experiment_argument
@_dry_run_option
def retire(session: Session, name: str, dry_run: bool) -> None:
    """Switch NAME on for good: no version that is published from now on can override it.

    Refused while it is off by default, or while a version that is neither yanked nor dropped switches it off.
    """
    with session.connect() as catalog:
        change = catalog.experiments.retire(name, dry_run=dry_run)
    if change.is_change:
        line = f"{'would retire' if dry_run else 'retired'} {name}: it is on for good"
    else:
        line = f"{name} is retired already, on for good since {change.after.retired_at:%Y-%m-%d}"
    _print_change(session, "retire", change, dry_run, line)


for subcommand in (add, list_, set_default, retire):
    experiment.add_command(subcommand)


def _print_change(session: Session, verb: str, change: ExperimentChange, dry_run: bool, line: str) -> None:
    data = {
        "experiment": _as_json(change.after),
        "before": None if change.before is None else _as_json(change.before),
        "changed": change.is_change and not dry_run,
        "would_change": change.is_change,
        "dry_run": dry_run,
    }
    session.out.result(f"experiment.{verb}", data, lambda: session.out.line(line))


def _as_json(one: Experiment) -> dict[str, Any]:
    return {
        "name": one.name,
        "description": one.description,
        "default": one.default,
        "retired": one.is_retired,
        "created_at": one.created_at.isoformat() if one.created_at else None,
        "retired_at": one.retired_at.isoformat() if one.retired_at else None,
        "num_enabling": one.num_enabling,
        "num_disabling": one.num_disabling,
    }


def _on_off(value: bool) -> str:
    return "on" if value else "off"
