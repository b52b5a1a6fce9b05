"""``registry experiment``: flags that versions may override, from their introduction to their retirement."""

from __future__ import annotations

from typing import Any

import click

from registry.cli.commands import Session, session_command
from registry.cli.options import dry_run_option, experiment_argument
from registry.cli.output import Column, Table
from registry.envelope import fields_of
from registry.model import Experiment, ExperimentChange

_ON_OFF = click.Choice(["on", "off"])


class _ExperimentGroup(click.Group):
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Find a command by its name; ``set`` is short for ``set-default``."""
        return super().get_command(ctx, "set-default" if cmd_name == "set" else cmd_name)


@click.group("experiment", cls=_ExperimentGroup)
def experiment() -> None:
    """Manage experiments: flags that a version of a builder may switch on or off."""


@session_command("add", group=experiment)
@click.argument("name", metavar="NAME")
@click.option("--description", required=True, metavar="TEXT", help="One line that says what changes if the flag is on.")
@click.option(
    "--default", type=_ON_OFF, default="off", show_default=True, help="The value for versions that do not override it."
)
@dry_run_option
def add(session: Session, name: str, description: str, default: str, dry_run: bool) -> None:
    """Add the flag NAME, so that versions may override it.

    Examples:
        registry experiment add new_shuffle --description 'Shuffle by the hash of the key.'
        registry experiment add new_shuffle --description 'Shuffle by the hash.' --default on --dry-run
    """
    with session.connect_to_publish(dry_run=dry_run, announce=True) as catalog:
        change = catalog.experiments.add(name, description, default == "on", dry_run=dry_run)
    if change.is_change:
        line = f"{'would add' if dry_run else 'added'} {name}, {_on_off(change.after.default)} by default"
    else:
        line = f"{name} already exists"
    _present(session, "add", change, line, dry_run=dry_run)


@session_command("list", group=experiment)
def list_(session: Session) -> None:
    """List every flag: its default, and the number of readable versions that override it.

    Examples:
        registry experiment list
        registry experiment list --format json
    """
    with session.connect() as catalog:
        found = [_values_of(flag) for flag in catalog.experiments.list()]
    columns: dict[str, Column] = {
        "EXPERIMENT": "name",
        "DEFAULT": lambda it: (
            f"always on since {it['retired_at']:%Y-%m-%d}" if it["retired_at"] else _on_off(it["default"])
        ),
        "ENABLED BY": "num_enabling",
        "DISABLED BY": "num_disabling",
        "DESCRIPTION": "description",
    }
    empty = "The catalog has no experiments. Add one with: registry experiment add NAME --description TEXT"
    session.out.present("experiment.list", found, lambda rows: [Table(rows, columns, empty=empty)])


@session_command("set-default", group=experiment)
@experiment_argument
@click.argument("value", metavar="on|off", type=_ON_OFF)
@dry_run_option
def set_default(session: Session, name: str, value: str, dry_run: bool) -> None:
    """Change the default of NAME for versions that are built from now on.

    Published versions keep the value that they were built with.

    Examples:
        registry experiment set-default new_shuffle on --dry-run
        registry experiment set-default new_shuffle on
    """
    with session.connect() as catalog:
        change = catalog.experiments.set_default(name, value == "on", dry_run=dry_run)
    if change.is_change:
        line = f"{'would set' if dry_run else 'set'} the default of {name}: {_on_off(value != 'on')} -> {value}"
    else:
        line = f"{name} is already {value} by default"
    _present(session, "set-default", change, line, dry_run=dry_run)


@session_command("retire", group=experiment)
@experiment_argument
@dry_run_option
def retire(session: Session, name: str, dry_run: bool) -> None:
    """Switch NAME on permanently: versions that are published from now on cannot override it.

    Refused while it is off by default, or while a version that is neither yanked nor dropped switches it off.

    Examples:
        registry experiment retire new_shuffle --dry-run
        registry experiment retire new_shuffle
    """
    with session.connect() as catalog:
        change = catalog.experiments.retire(name, dry_run=dry_run)
    if change.is_change:
        line = f"{'would retire' if dry_run else 'retired'} {name}: it is now always on"
    else:
        line = f"{name} is already retired, and always on since {change.after.retired_at:%Y-%m-%d}"
    _present(session, "retire", change, line, dry_run=dry_run)


def _present(session: Session, verb: str, change: ExperimentChange, line: str, *, dry_run: bool) -> None:
    value = {
        "experiment": _values_of(change.after),
        "before": None if change.before is None else _values_of(change.before),
        "changed": change.is_change and not dry_run,
        "would_change": change.is_change,
        "dry_run": dry_run,
    }
    session.out.present(f"experiment.{verb}", value, lambda _: [line])


def _values_of(flag: Experiment) -> dict[str, Any]:
    return {
        **fields_of(
            flag, "name", "description", "default", "created_at", "retired_at", "num_enabling", "num_disabling"
        ),
        "retired": flag.is_retired,
    }


def _on_off(value: bool) -> str:
    return "on" if value else "off"
