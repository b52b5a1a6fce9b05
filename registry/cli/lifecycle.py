"""``registry promote``, ``deprecate``, ``yank``, ``drop``, ``describe``, ``rename`` and ``remove``.

The first four print every reference that resolves differently, before and after, as ``registry config`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.browse import first_words
from registry.cli.commands import Session, joint_exit_code, session_command, version_values
from registry.cli.options import (
    dataset_argument,
    description_options,
    dry_run_option,
    keep_uses_option,
    uses_option,
    version_argument,
)
from registry.cli.output import Block, Column, Note, Table, size
from registry.cli.proposal import describe_proposal, proposal_values
from registry.envelope import fields_of
from registry.errors import UsageError
from registry.model import (
    DESCRIBED_FIELDS,
    Candidate,
    DescriptionArguments,
    Effect,
    Reference,
    Standing,
    Use,
    describe_moment,
)
from registry.splits import counted

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.catalog import Change
    from registry.publishing.removal import RemovalReport

_SHOWN: Final = 20
_DONE: Final = {
    "promote": "promoted",
    "deprecate": "deprecated",
    "yank": "yanked",
    "drop": "dropped",
}
_undo_option: Final = click.option("--undo", is_flag=True, help="Restore the previous state of the version.")


@session_command("promote")
@version_argument
@dry_run_option
@uses_option
def promote(session: Session, reference: str, dry_run: bool, uses: list[Use]) -> None:
    """Make a version the canonical one, to which a reference without a version resolves.

    REF names one version, by exact number or alias. Prints every reference that resolves differently, before and after.
    If its name is protected with --two-persons, the promotion needs the approval of another person.

    Examples:
        registry promote mnist:3.1.1 --dry-run
        registry promote mnist:3.1.1
        registry promote mnist@candidate --uses references.txt
    """
    with session.connect(reference) as catalog:
        change = catalog.lifecycle.promote(reference, dry_run=dry_run, uses=uses)
    _present(session, change, uses)


def _withdrawal(action: str, reason: str, *more: Callable[..., Any]) -> Callable[[Callable[..., Any]], click.Command]:
    """Define a command that withdraws a version or restores it; ``reason`` describes the option ``--reason``."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        because = click.option("--reason", metavar="TEXT", help=reason)
        for option in (uses_option, dry_run_option, _undo_option, *more, because, version_argument):
            function = option(function)
        return session_command(action)(function)

    return decorate


@_withdrawal("deprecate", "Why readers should stop using it; shown to every reader.")
def deprecate(session: Session, **options: Any) -> None:
    """Deprecate a version: look-ups still find it, and its readers see the reason.

    REF names one version, by exact number or alias.

    Examples:
        registry deprecate mnist:2.0.0 --reason 'use 3.*, which has the test labels'
        registry deprecate mnist:2.0.0 --undo
    """
    _withdraw(session, "deprecate", **options)


@_withdrawal(
    "yank",
    "Why; shown with the version.",
    click.option("--superseded-by", metavar="VERSION", help="The version of the same config to use instead."),
)
def yank(session: Session, superseded_by: str | None, **options: Any) -> None:
    """Yank a version: wildcards, ranges and references without a version no longer resolve to it.

    REF names one version, by exact number or alias. Its exact number and its aliases still resolve to it, with a note.
    If it was the canonical version, references without a version are refused until another version is promoted.

    Examples:
        registry yank mnist:3.1.0 --reason 'labels are shifted' --dry-run
        registry yank mnist:3.1.0 --reason 'labels are shifted' --superseded-by 3.1.1
        registry yank mnist:3.1.0 --reason 'labels are shifted' --uses papers.txt --uses configs.txt --dry-run
        registry yank mnist:3.1.0 --undo
    """
    more: dict[str, Any] = {} if superseded_by is None else {"superseded_by": superseded_by}
    _withdraw(session, "yank", **options, **more)


@_withdrawal("drop", "Why; shown when somebody looks up the version.")
def drop(session: Session, **options: Any) -> None:
    """Drop a version: no look-up returns it anymore, not even by its exact number.

    REF names one version, by exact number or alias. Its number cannot be reused, and its files are kept until
    'registry remove'.

    Examples:
        registry drop mnist:1.0.0 --reason 'its licence ended' --dry-run
        registry drop mnist:1.0.0 --reason 'its licence ended'
        registry drop mnist:1.0.0 --undo
    """
    _withdraw(session, "drop", **options)


@session_command("describe")
@version_argument
@description_options
@click.option("--remove-tag", "remove_tags", multiple=True, metavar="TAG", help="A tag to remove; may be repeated.")
@dry_run_option
def describe(
    session: Session, reference: str, description: DescriptionArguments, remove_tags: tuple[str, ...], dry_run: bool
) -> None:
    """Correct the metadata of a published version: licence, description, citation, homepage, tags, supervised features.

    REF names one version, by exact number or alias. Its records, its number and its files do not change. An empty text
    removes a value. The event log records the old and new values, pins keep the old ones, and the next `registry add`
    inherits the new ones.

    Examples:
        registry describe mnist:3.0.1 --license CC-BY-SA-3.0 --dry-run
        registry describe mnist:3.0.1 --license CC-BY-SA-3.0 --tag images --tag digits
        registry describe mnist:3.0.1 --remove-tag images --homepage ''
        registry describe mnist:3.0.1 --supervised image,label
    """
    with session.connect(reference) as catalog:
        change = catalog.describe(reference, remove_tags=remove_tags, dry_run=dry_run, **description)
    value = {
        **version_values(change.reference),
        "is_change": change.is_change,
        "dry_run": dry_run,
        "changes": [
            {"field": name, "before": getattr(change.before, field), "after": getattr(change.after, field)}
            for name, field in DESCRIBED_FIELDS.items()
            if field in change.fields
        ],
    }

    def human(it: dict[str, Any]) -> Iterator[Block]:
        if not it["is_change"]:
            yield f"{change.reference} already has this metadata: nothing was changed"
        else:
            yield f"{'would describe' if dry_run else 'described'} {change.reference}"
        for row in it["changes"]:
            yield f"{row['field']}: {_shorten(row['before'])} -> {_shorten(row['after'])}"

    session.out.present("describe", value, human)


@session_command("rename")
@dataset_argument
@click.argument("name", metavar="NAME")
@dry_run_option
def rename(session: Session, dataset: str, name: str, dry_run: bool) -> None:
    """Rename DATASET to NAME.

    References and pins with a former name continue to work, with a note. Versions, numbers and aliases do not change,
    and files are not moved. New versions are published only under the new name. No other dataset can take a former
    name.

    Examples:
        registry rename mnist digits_mnist --dry-run
        registry rename mnist digits_mnist
    """
    with session.connect(dataset) as catalog:
        renaming = catalog.rename(dataset, name, dry_run=dry_run)
    value = {**fields_of(renaming, "before", "after", "names", "is_change"), "dry_run": dry_run}

    def human(it: dict[str, Any]) -> Iterator[Block]:
        if not it["is_change"]:
            yield f"the name of the dataset is already {it['after']}: nothing was changed"
            return
        yield f"{'would rename' if dry_run else 'renamed'} {it['before']} to {it['after']}"
        yield f"References and pins with the name {it['before']} still work. Publish new versions as {it['after']}."

    session.out.present("rename", value, human)


def _shorten(value: str | tuple[str, ...] | None) -> str:
    return first_words(value if isinstance(value, str) else ", ".join(value or ())) or "empty"


@session_command("remove")
@version_argument
@click.option("--now", is_flag=True, help="Remove the files at once.")
@click.option(
    "--grace",
    metavar="DURATION",
    help="How long after the drop the files are kept: 12h, 7d or 2w.  [default: as planned before, or 7d]",
)
@click.option(
    "--force",
    is_flag=True,
    help="Continue even if another version, an alias or a use names the files, or a location cannot be cleared.",
)
@dry_run_option
@keep_uses_option
def remove(
    session: Session, reference: str, now: bool, grace: str | None, force: bool, dry_run: bool, uses: list[Use]
) -> int:
    """Remove the files of a dropped version: in the data directory, at its mirrors, and in this machine's cache.

    REF names one version, by exact number or alias. Until the grace period ends, the removal is only planned, and
    'registry drop REF --undo' cancels it. After that, 'registry gc' or the same command removes the files. The number,
    the digests and the events of the version are kept.

    Files that were published in place, and files that the catalog does not record, are reported but not removed. If a
    location cannot be cleared, e.g. because it is on another machine, the exit code is not 0; run the command again to
    retry.

    Examples:
        registry remove mnist:1.0.0 --dry-run
        registry remove mnist:1.0.0
        registry remove mnist:1.0.0 --grace 30d --uses papers.txt
        registry remove mnist:1.0.0 --now
    """
    with session.connect(reference) as catalog:
        report = catalog.remove(reference, now=now, grace=grace, force=force, dry_run=dry_run, uses=uses)
    removal = report.removal
    value = {
        **version_values(removal.reference),
        **fields_of(removal, "step", "due", "is_change"),
        "requested_by": removal.actor,
        "dry_run": dry_run,
        "places": [
            fields_of(place, "place", "num_files", "num_bytes", "left", "why_left", "error") for place in report.places
        ],
    }
    session.out.present("remove", value, lambda _: _describe_removal(report, session.pasted_options))
    return joint_exit_code(place.error.exit_code for place in report.places if place.error is not None)


def _describe_removal(report: RemovalReport, options: str) -> Iterator[Block]:
    reference, due = report.removal.reference, report.removal.due
    for place in report.places:
        for name in place.left:
            yield f"{place.place}/{name} is kept: it is a link, or the catalog does not record it".replace("\n", " ")
        if place.error is not None:
            yield f"not cleared: {place.error.message}"
        elif place.why_left:
            yield f"{place.place} is kept: {place.why_left}"
        elif place.num_files:
            verb = "would remove" if report.is_dry_run else "removed"
            yield f"{verb} {counted(place.num_files, 'file')}, {size(place.num_bytes)}: {place.place}"
    if report.removal.step == "planned" and due is not None:
        until = describe_moment(due.replace(microsecond=0))
        yield f"the files of {reference} {'would be' if report.is_dry_run else 'are'} kept until {until}"
        yield f"After that, registry gc{options} removes them. Or now: registry remove {reference} --now{options}"
        yield f"To keep them: registry drop {reference} --undo{options}"
    elif report.removal.step == "ended":
        yield f"the files of {reference} are removed; its number cannot be used again"
    elif not report.is_dry_run:
        yield f"{reference} is not removed everywhere. To continue: registry remove {reference}{options}"


def _withdraw(session: Session, action: Any, reference: str, reason: str | None, undo: bool, **options: Any) -> None:
    if undo == (reason is not None) or (undo and "superseded_by" in options):
        raise UsageError(f"{action} needs a reason, or --undo", hint="Add --reason TEXT, or only --undo.")
    with session.connect(reference) as catalog:
        change = (
            catalog.lifecycle.undo(action, reference, **options)
            if undo
            else getattr(catalog.lifecycle, action)(reference, reason=reason, **options)
        )
    _present(session, change, options["uses"])


def effect_values(effects: Sequence[Effect], in_use: Sequence[Effect], uses: Sequence[Use]) -> dict[str, Any]:
    """The references that resolve differently after a change, and those of them that are in use."""

    def values(found: Sequence[Effect]) -> list[dict[str, Any]]:
        return [
            {
                "reference": effect.wanted,
                "kind": effect.kind,
                "before": fields_of(effect.before),
                "after": fields_of(effect.after),
            }
            | ({"places": effect.places} if effect.places else {})
            for effect in found
        ]

    return {"effects": values(effects), "uses": values(in_use), "num_uses": len(uses)}


def describe_effects(value: Mapping[str, Any], *, with_dataset: bool = False) -> Iterator[Block]:
    """Tables of ``effect_values``; ``with_dataset`` shows whole references, for a change of the config."""

    def answer(row: dict[str, Any]) -> str:
        if row["reference"] is None:
            return "refused"
        named = str(row["reference"] if with_dataset else row["reference"].request)
        return f"{named} ({row['note']})" if row["note"] else named

    columns: dict[str, Column] = {
        "BEFORE": lambda row: answer(row["before"]),
        "AFTER": lambda row: answer(row["after"]),
    }
    if not value["effects"]:
        yield "No reference resolves differently."
    yield Table(value["effects"], {"REFERENCE": "reference", **columns}, limit=_SHOWN)
    if value["num_uses"]:
        num_changed = sum(len(effect.get("places", ())) for effect in value["uses"])
        yield ""
        yield f"Of {value['num_uses']:,} references in use, {num_changed:,} change."
        where: Column = lambda row: row.get("places", ())  # noqa: E731 (a column)
        yield Table(value["uses"], {"IN USE": "reference", **columns, "WHERE": where}, limit=_SHOWN)


def _present(session: Session, change: Change, uses: Sequence[Use]) -> None:
    """Print what was done to a version, or would be, and which references it affects."""
    reference = change.reference
    value = {
        "dataset": reference.dataset,
        "version": _candidate(change.after, reference).version,
        "action": change.action,
        "is_change": change.is_change,
        "dry_run": change.is_dry_run,
        "before": _state_of(change.before, reference),
        "after": _state_of(change.after, reference),
        "without_config_too": change.is_default and reference.config is not None,
        **effect_values(change.effects, change.use_effects, uses),
        **proposal_values(change.proposal),
    }

    missing = _missing_canonical(session, change)
    if missing and session.out.as_json:
        session.out.note(missing)

    def human(it: dict[str, Any]) -> Iterator[Block]:
        yield _describe(change) if change.proposal is None else describe_proposal(change.proposal)
        if it["is_change"] or change.proposal is not None:
            yield from describe_effects(it)
            if it["without_config_too"]:
                yield f"References without a config mean {reference.config}, so they change in the same way."
            if missing:
                yield Note(missing)

    session.out.present(change.action.removeprefix("undo-"), value, human)


def _missing_canonical(session: Session, change: Change) -> str:
    """How to get a canonical version again if the change withdraws it: look-ups without a version need one."""
    if change.before.usable_canonical is None or change.after.usable_canonical is not None:
        return ""
    after = change.after.next_canonical
    return (
        f"note: {change.reference.dataset} {'would have' if change.is_dry_run else 'has'} no canonical version. "
        + (
            f"No version is left to promote. To undo it: registry {change.action} {change.reference} --undo"
            if after is None
            else f"Make one canonical: registry promote {change.after.exactly(after)}"
        )
        + session.pasted_options
    )


def _candidate(standing: Standing, reference: Reference) -> Candidate:
    """The changed version among all versions of its dataset."""
    candidate = None if reference.exact is None else standing.find(reference.exact)
    if candidate is None:
        raise AssertionError("a changed version must be in the standings before and after the change")
    return candidate


def _state_of(standing: Standing, reference: Reference) -> dict[str, Any]:
    candidate = _candidate(standing, reference)
    return {
        "status": standing.status(candidate),
        **fields_of(candidate, "message", "superseded_by"),
        "canonical": standing.usable_canonical,
    }


def _describe(change: Change) -> str:
    """One line that says what was done, would be done, or was done before."""
    reference, action = change.reference, change.action.removeprefix("undo-")
    described = _candidate(change.after, reference).described
    reason = described.partition(": ")[2]
    if change.action != action:
        if not change.is_change:
            return f"{reference} is not {_DONE[action]}: there is nothing to undo"
        return f"{reference} {'would be' if change.is_dry_run else 'is'} {described} again, no longer {_DONE[action]}"
    if not change.is_change:
        if action == "promote":
            return f"{reference} is already the canonical version"
        return f"{reference} is already {_DONE[action]}" + (f": {reason}" if reason else "")
    done = f"would {action}" if change.is_dry_run else _DONE[action]
    if action == "promote":
        before = f", replacing {change.before.canonical}" if change.before.canonical else ""
        return f"{done} {reference}: references without a version resolve to it{before}"
    return f"{done} {reference}: {reason}"
