"""``registry promote``: which version a reference without a version gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.commands import Session, examples, session_command
from registry.cli.options import change_options, version_argument
from registry.cli.output import Output
from registry.errors import UsageError
from registry.model import Answer, Effect, Reference, Standing, Use

if TYPE_CHECKING:
    from registry.catalog import Change


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
def promote(session: Session, reference: str, dry_run: bool, use_files: tuple[Path, ...]) -> None:
    """Make a version the canonical one, which a reference without a version gives.

    REF names one version, exactly or by an alias. Prints every reference that resolves differently, before and after.
    """
    uses = load_uses(use_files)
    with session.connect() as catalog:
        change = catalog.lifecycle.promote(reference, dry_run=dry_run, uses=uses)
    print_change(session.out, change, uses)


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
def deprecate(
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
def yank(
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
def drop(
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


_SHOWN: Final = 20
_DONE: Final = {
    "promote": "promoted",
    "deprecate": "deprecated",
    "yank": "yanked",
    "drop": "dropped",
}


def load_uses(paths: Sequence[Path]) -> list[Use]:
    """The references in use that the files name: lists, and pin files.

    Raises:
        UsageError: a file that cannot be read as text, or a line that is no reference.
    """
    from registry.api import read_uses

    uses = []
    for path in paths:
        if path.suffix in (".yaml", ".yml"):
            uses += _pinned_uses(path)
            continue
        try:
            with path.open(encoding="utf-8") as lines:
                uses += read_uses(lines, str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{path} cannot be read as text: {error}", hint="Write one reference a line, e.g. mnist:3.*."
            ) from error
    return uses


def _pinned_uses(path: Path) -> list[Use]:
    """The versions that the pins of a file use; they are named exactly."""
    from registry.api.pin_files import open_pin_file

    return [Use(reference=pin.reference, place=f"{path}: {pin.name}") for pin in open_pin_file(path).values()]


def print_change(out: Output, change: Change, uses: Sequence[Use]) -> None:
    """Say what was done to a version, or would be, and to which references."""
    version = change.reference.request.exact if change.reference.request else None
    data = {
        "dataset": change.reference.dataset,
        "version": str(version),
        "action": change.action,
        "is_change": change.is_change,
        "dry_run": change.is_dry_run,
        "before": _standing_json(change.before, change.reference),
        "after": _standing_json(change.after, change.reference),
        "without_config_too": change.is_default and change.reference.config is not None,
        "effects": effects_json(change.effects),
        "uses": effects_json(change.use_effects),
        "num_uses": len(uses),
    }

    def human() -> None:
        out.line(_told(change))
        if change.is_change:
            print_effects(out, change.effects, change.use_effects, uses)
            if change.is_default and change.reference.config is not None:
                out.line(f"References without a config mean {change.reference.config}: they change alike.")

    out.result(change.action.removeprefix("undo-"), data, human)


def print_effects(
    out: Output, effects: Sequence[Effect], in_use: Sequence[Effect], uses: Sequence[Use], *, config: bool = False
) -> None:
    """The references that change, as tables for people; ``config``: it is the config that they change."""
    if not effects:
        out.line("No reference resolves differently.")
    _table(out, ("REFERENCE", "BEFORE", "AFTER"), [_row(one, config=config) for one in effects])
    if uses:
        out.line()
        out.line(f"Of {len(uses):,} references in use, {sum(len(one.places) for one in in_use):,} change.")
        rows = [(*_row(one, config=config), ", ".join(one.places)) for one in in_use]
        _table(out, ("IN USE", "BEFORE", "AFTER", "WHERE"), rows)


def effects_json(effects: Sequence[Effect]) -> list[dict[str, Any]]:
    """The references that change, for programs."""
    return [
        {
            "reference": str(effect.wanted),
            "kind": effect.kind.value,
            "before": _answer_json(effect.before),
            "after": _answer_json(effect.after),
            **({"places": list(effect.places)} if effect.places else {}),
        }
        for effect in effects
    ]


def _row(effect: Effect, *, config: bool) -> tuple[str, str, str]:
    return str(effect.wanted), _answer(effect.before, config=config), _answer(effect.after, config=config)


def _table(out: Output, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    out.table(columns, rows[:_SHOWN])
    if len(rows) > _SHOWN:
        out.line(f"and {len(rows) - _SHOWN:,} more; --format json lists them all")


def _answer(answer: Answer, *, config: bool) -> str:
    """What a reference gives: the number, with the dataset before it where the ``config`` may be another one."""
    if answer.reference is None:
        return "refused"
    named = str(answer.reference if config else answer.reference.request)
    return f"{named} ({answer.note})" if answer.note else named


def _answer_json(answer: Answer) -> dict[str, str | None]:
    return {"reference": None if answer.reference is None else str(answer.reference), "note": answer.note}


def _standing_json(standing: Standing, reference: Reference) -> dict[str, Any]:
    version = reference.request.exact if reference.request else None
    candidate = None if version is None else standing.find(version)
    if candidate is None:
        raise AssertionError("the version of a change is in both its standings")
    return {
        "status": standing.status(candidate).value,
        "message": candidate.message,
        "superseded_by": None if candidate.superseded_by is None else str(candidate.superseded_by),
        "canonical": None if standing.canonical is None else str(standing.canonical),
    }


def _told(change: Change) -> str:
    """One line: what was done, would be done, or had been done before."""
    reference, action = change.reference, change.action.removeprefix("undo-")
    version = reference.request.exact if reference.request else None
    candidate = None if version is None else change.after.find(version)
    described = candidate.described if candidate is not None else ""
    reason = described.partition(": ")[2]
    if change.action != action:
        if not change.is_change:
            return f"{reference} is not {_DONE[action]}: there is nothing to undo"
        verb = "would be" if change.is_dry_run else "is"
        return f"{reference} {verb} {described} again, no longer {_DONE[action]}"
    if not change.is_change:
        return f"{reference} is {'the canonical version' if action == 'promote' else _DONE[action]} already" + (
            f": {reason}" if reason and action != "promote" else ""
        )
    done = f"would {action}" if change.is_dry_run else _DONE[action]
    if action == "promote":
        before = f", replacing {change.before.canonical}" if change.before.canonical else ""
        return f"{done} {reference}: it is what a reference without a version gives{before}"
    return f"{done} {reference}: {reason}"
