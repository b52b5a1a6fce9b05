"""``registry du`` and ``registry gc``: what versions take on disks and in buckets, and what nobody needs there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.commands import Session, examples, joint_exit_code, session_command, version_values
from registry.cli.completion import complete_reference
from registry.cli.options import dry_run_option
from registry.cli.output import Block, Column, Table, size
from registry.cli.progress import show_progress
from registry.envelope import fields_of
from registry.errors import VerificationError
from registry.splits import counted

_MOST_KEPT: Final = 10

if TYPE_CHECKING:
    from registry.api.reports import Collected, GarbageReport
    from registry.api.usage import StoredUsage, Total, Usage, VersionUsage


@session_command(
    "du",
    epilog=examples("registry du", "registry du mnist --by version", "registry du --by location --check"),
)
@click.argument("reference", metavar="[REF]", required=False, shell_complete=complete_reference)
@click.option(
    "--by",
    type=click.Choice(["dataset", "version", "location"]),
    help="What to list.  [default: datasets; versions if REF is given]",
)
@click.option("--check", is_flag=True, help="Also list the folders and buckets, and compare names and sizes.")
def du(session: Session, reference: str | None, by: str | None, check: bool) -> int:
    """Show the disk space of datasets, or of the versions that REF means.

    The sizes of the shard files come from the catalog. Files that several versions name are counted once in each total.
    With --check, the exit code is 5 if files are missing or have another size. If a folder or bucket cannot be listed,
    its line says why, and the others are checked; the exit code is then not 0.
    """
    with session.connect() as catalog:
        found = catalog.usage(reference, check=check)
    value = {
        "total": _total(found.total),
        "datasets": [{"dataset": name, **_total(one)} for name, one in found.datasets.items()],
        "locations": [{"location": name, **_total(one)} for name, one in found.locations.items()],
        "versions": list(map(_version, found.versions)),
        "stored": list(map(_stored, found.stored)) if check else None,
    }
    listed = by or ("dataset" if reference is None else "version")
    session.out.present("du", value, lambda _: _describe(found, listed))
    codes = [VerificationError.exit_code for one in found.stored if one.num_faults]
    return joint_exit_code([*codes, *(one.error.exit_code for one in found.stored if one.error is not None)])


@session_command("gc", epilog=examples("registry gc --dry-run", "registry gc --older-than 1d"))
@click.option(
    "--older-than",
    default="7d",
    show_default=True,
    metavar="DURATION",
    help="The grace period: 30m, 12h, 7d, 2w or 0. Files of other machines, and folders that were moved aside, "
    "are removed if they are older.",
)
@dry_run_option
def gc(session: Session, older_than: str, dry_run: bool) -> int:
    """Remove what nobody needs from the data directory, TMPDIR and the index cache.

    That is: unfinished files and folders of processes that have ended, folders that were moved aside, what
    publishers to buckets left behind, and files of the cache that were not used.

    It never removes files that a version names, files of a running publisher, files that another catalog may own, or
    files that the registry did not make. It lists files that it does not know.
    """
    with session.connect() as catalog, show_progress(session.out):
        found = catalog.collect_garbage(older_than=older_than, dry_run=dry_run)
    for note in found.notes:
        session.out.note(f"note: {note}")
    value = {
        "dry_run": dry_run,
        "older_than": older_than,
        "num_bytes": sum(one.num_bytes for one in _chosen(found)),
        "leftovers": list(map(_collected, found)),
    }
    session.out.present("gc", value, lambda _: _list_garbage(found, dry_run=dry_run))
    return joint_exit_code(one.error.exit_code for one in found if one.error is not None)


def _list_garbage(found: GarbageReport, *, dry_run: bool) -> Iterator[Block]:
    chosen, unknown, failed = _chosen(found), found.of("unknown"), found.of("failed")
    columns: dict[str, Column] = {
        "KIND": lambda one: one.kind,
        "FILES": lambda one: one.num_files,
        "SIZE": lambda one: size(one.num_bytes),
        "CHANGED (UTC)": lambda one: one.changed_at,
        "PLACE": lambda one: one.place,
        "WHY": lambda one: one.why,
    }
    yield Table(chosen, columns)
    verb = "would remove" if dry_run else "removed"
    yield f"{verb} {counted(len(chosen), 'leftover')}, {size(sum(one.num_bytes for one in chosen))}"
    if kept := found.of("kept"):
        yield f"kept {counted(len(kept), 'leftover')}, in use or too young, {size(sum(one.num_bytes for one in kept))}:"
        yield from (f"  {one.place}: {one.why}".replace("\n", " ") for one in kept[:_MOST_KEPT])
        if len(kept) > _MOST_KEPT:
            yield f"  and {len(kept) - _MOST_KEPT:,} more"
    if unknown:
        yield "not removed, because the registry cannot tell whose they are; look at them yourself:"
        yield Table(unknown, columns)
        for one in unknown:
            if one.filenames:
                named = ", ".join(one.filenames).replace("\n", " ")
                more = one.num_files - len(one.filenames)
                yield f"  in {one.place}: {named}{f' and {more:,} more' if more > 0 else ''}"
    for one in failed:
        yield f"{one.place} could not be removed: {'' if one.error is None else one.error.message}"


def _chosen(found: GarbageReport) -> tuple[Collected, ...]:
    return found.of("found") + found.of("removed")


def _collected(one: Collected) -> dict[str, Any]:
    error = None if one.error is None else fields_of(one.error, "code", "message", "hint")
    told = fields_of(one, "kind", "place", "outcome", "why", "num_files", "num_bytes", "filenames", "changed_at")
    return told | {"error": error}


def _describe(found: Usage, by: str) -> Iterator[Block]:
    if by == "version":
        shared = (
            {"SHARED": lambda one: size(one.num_shared_bytes)}
            if any(one.num_shared_bytes for one in found.versions)
            else {}
        )
        yield Table(
            found.versions,
            {
                "VERSION": lambda one: one.reference,
                "STATE": lambda one: one.state,
                "FILES": lambda one: one.num_files,
                "SIZE": lambda one: size(one.num_bytes),
                **shared,
                "LOCATION": lambda one: one.location,
            },
            empty="Nothing is published.",
        )
    else:
        totals: Mapping[str, Total] = found.datasets if by == "dataset" else found.locations
        yield Table(
            list(totals.items()),
            {
                by.upper(): lambda one: one[0],
                "VERSIONS": lambda one: one[1].num_versions,
                "FILES": lambda one: one[1].num_files,
                "SIZE": lambda one: size(one[1].num_bytes),
            },
            empty="Nothing is published.",
        )
    total = found.total
    yield f"{counted(total.num_versions, 'version')}, {counted(total.num_files, 'file')}, {size(total.num_bytes)}"
    for one in found.stored:
        if one.error is None:
            yield f"{one.location} contains {counted(one.num_files, 'file')}, {size(one.num_bytes)}"
        else:
            yield f"{one.location} could not be checked: {one.error.message}"
        for word, names in (("is missing", one.missing), ("has another size", one.differing)):
            yield from (f"  {name} {word}" for name in names)
        if one.num_faults > len(one.missing) + len(one.differing):
            yield f"  {one.num_faults:,} files are missing or have another size"


def _total(one: Total) -> dict[str, Any]:
    return fields_of(one, "num_versions", "num_files", "num_bytes")


def _version(one: VersionUsage) -> dict[str, Any]:
    return version_values(one.reference) | fields_of(
        one, "state", "location", "num_files", "num_bytes", "num_shared_bytes"
    )


def _stored(one: StoredUsage) -> dict[str, Any]:
    told = fields_of(one, "location", "num_files", "num_bytes", "num_faults", "missing", "differing")
    error = None if one.error is None else fields_of(one.error, "code", "message", "hint")
    return told | {"versions": [str(reference) for reference in one.references], "error": error}
