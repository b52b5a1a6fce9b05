"""``registry du`` and ``registry gc``: show the disk space of versions, and remove unneeded files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.commands import Session, joint_exit_code, session_command, version_values
from registry.cli.completion import complete_reference
from registry.cli.options import dry_run_option, keep_uses_option
from registry.cli.output import Block, Column, Table, size
from registry.cli.progress import show_progress
from registry.envelope import fields_of
from registry.errors import UsageError, VerificationError
from registry.model import Use
from registry.splits import counted

_MOST_KEPT: Final = 10

if TYPE_CHECKING:
    from registry.api.reports import GarbageReport
    from registry.publishing.garbage import Leftover
    from registry.publishing.usage import StoredUsage, Total, Usage, VersionUsage


@session_command("du")
@click.argument("reference", metavar="[REF]", required=False, shell_complete=complete_reference)
@click.option(
    "--by",
    type=click.Choice(["dataset", "version", "location"]),
    help="What to list.  [default: datasets; versions if REF is given]",
)
@click.option("--check", is_flag=True, help="Also list the folders and buckets, and compare names and sizes.")
def du(session: Session, reference: str | None, by: str | None, check: bool) -> int:
    """Show the disk space of datasets, or of the versions that REF means.

    The sizes of the shard files come from the catalog. Files that several versions share are counted once per total.
    With --check, the exit code is 5 if files are missing or have another size. If a folder or bucket cannot be listed,
    its line says why, the others are still checked, and the exit code is not 0.

    Examples:
        registry du
        registry du mnist --by version
        registry du --by location --check
    """
    with session.connect(reference) as catalog:
        usage = catalog.usage(reference, check=check)
    value = {
        "total": fields_of(usage.total),
        "datasets": [{"dataset": name, **fields_of(dataset)} for name, dataset in usage.datasets.items()],
        "locations": [{"location": name, **fields_of(location)} for name, location in usage.locations.items()],
        "versions": list(map(_version, usage.versions)),
        "stored": list(map(_stored, usage.stored)) if check else None,
    }
    listed = by or ("dataset" if reference is None else "version")
    session.out.present("du", value, lambda _: _describe(usage, listed))
    codes = [VerificationError.exit_code for place in usage.stored if place.num_faults]
    return joint_exit_code([*codes, *(place.error.exit_code for place in usage.stored if place.error is not None)])


@session_command("gc")
@click.option(
    "--older-than",
    default="7d",
    show_default=True,
    metavar="DURATION",
    help="The grace period: 30m, 12h, 7d, 2w or 0. Files of other machines, and folders that were moved aside, "
    "are removed only if they are older.",
)
@click.option(
    "--dropped-after",
    metavar="DURATION",
    help="Also remove the files of versions that were dropped longer ago than this, e.g. 90d, and are not in use.",
)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    metavar="PATTERN",
    help="Datasets to which --dropped-after applies, e.g. 'lab_*' or c4/en; may be repeated.  [default: all]",
)
@keep_uses_option
@dry_run_option
def gc(
    session: Session,
    *,
    older_than: str,
    dropped_after: str | None,
    datasets: tuple[str, ...],
    uses: list[Use],
    dry_run: bool,
) -> int:
    """Remove unneeded files from the data directory, TMPDIR and the index cache.

    These are: unfinished files and folders of processes that have ended, folders that were moved aside, leftovers of
    publishers to buckets, unused files of the cache, and files of dropped versions whose removal is due ('registry
    remove') or that --dropped-after selects.

    Other files of versions, files of running publishers, files that may belong to another catalog, and files that the
    registry did not create are never removed. Unknown files are listed.

    Examples:
        registry gc --dry-run
        registry gc --older-than 1d
        registry gc --dropped-after 90d --dataset 'lab_*'
    """
    if dropped_after is None and (datasets or uses):
        raise UsageError("--dataset and --uses need --dropped-after", hint="Add it, e.g.: --dropped-after 90d")
    with session.connect() as catalog, show_progress(session.out):
        garbage = catalog.collect_garbage(
            older_than=older_than,
            dropped_after=dropped_after,
            datasets=datasets or ("*",),
            uses=uses,
            dry_run=dry_run,
        )
    session.out.notes(garbage.notes)
    value = {
        "dry_run": dry_run,
        "older_than": older_than,
        "num_bytes": sum(leftover.num_bytes for leftover in _chosen(garbage)),
        "leftovers": list(map(_collected, garbage)),
    }
    session.out.present("gc", value, lambda _: _list_garbage(garbage, dry_run=dry_run))
    return joint_exit_code(leftover.error.exit_code for leftover in garbage if leftover.error is not None)


def _list_garbage(garbage: GarbageReport, *, dry_run: bool) -> Iterator[Block]:
    chosen, unknown, failed = _chosen(garbage), garbage.of("unknown"), garbage.of("failed")
    columns: dict[str, Column] = {
        "KIND": lambda row: row.kind,
        "FILES": lambda row: row.num_files,
        "SIZE": lambda row: size(row.num_bytes),
        "CHANGED (UTC)": lambda row: row.changed_at,
        "PLACE": lambda row: row.place,
        "WHY": lambda row: row.why,
    }
    yield Table(chosen, columns)
    verb = "would remove" if dry_run else "removed"
    yield f"{verb} {counted(len(chosen), 'leftover')}, {size(sum(leftover.num_bytes for leftover in chosen))}"
    if kept := garbage.of("kept"):
        kept_size = size(sum(leftover.num_bytes for leftover in kept))
        yield f"kept {counted(len(kept), 'leftover')}, in use or too recent, {kept_size}:"
        yield from (f"  {leftover.place}: {leftover.why}".replace("\n", " ") for leftover in kept[:_MOST_KEPT])
        if len(kept) > _MOST_KEPT:
            yield f"  and {len(kept) - _MOST_KEPT:,} more"
    if unknown:
        yield "not removed, because their owner is unknown; check them yourself:"
        yield Table(unknown, columns)
        for leftover in unknown:
            if leftover.filenames:
                named = ", ".join(leftover.filenames).replace("\n", " ")
                more = leftover.num_files - len(leftover.filenames)
                yield f"  in {leftover.place}: {named}{f' and {more:,} more' if more > 0 else ''}"
    for leftover in failed:
        yield f"{leftover.place} could not be removed: {'' if leftover.error is None else leftover.error.message}"


def _chosen(garbage: GarbageReport) -> tuple[Leftover, ...]:
    return garbage.of("found") + garbage.of("removed")


def _collected(leftover: Leftover) -> dict[str, Any]:
    names = ("kind", "place", "outcome", "why", "num_files", "num_bytes", "filenames", "changed_at", "error")
    return fields_of(leftover, *names)


def _describe(usage: Usage, by: str) -> Iterator[Block]:
    if by == "version":
        shared = (
            {"SHARED": lambda row: size(row.num_shared_bytes)}
            if any(version.num_shared_bytes for version in usage.versions)
            else {}
        )
        yield Table(
            usage.versions,
            {
                "VERSION": lambda row: row.reference,
                "STATE": lambda row: row.state,
                "FILES": lambda row: row.num_files,
                "SIZE": lambda row: size(row.num_bytes),
                **shared,
                "LOCATION": lambda row: row.location,
            },
            empty="Nothing is published.",
        )
    else:
        totals: Mapping[str, Total] = usage.datasets if by == "dataset" else usage.locations
        yield Table(
            list(totals.items()),
            {
                by.upper(): lambda row: row[0],
                "VERSIONS": lambda row: row[1].num_versions,
                "FILES": lambda row: row[1].num_files,
                "SIZE": lambda row: size(row[1].num_bytes),
            },
            empty="Nothing is published.",
        )
    total = usage.total
    yield f"{counted(total.num_versions, 'version')}, {counted(total.num_files, 'file')}, {size(total.num_bytes)}"
    for version in usage.stored:
        if version.error is None:
            yield f"{version.location} contains {counted(version.num_files, 'file')}, {size(version.num_bytes)}"
        else:
            yield f"{version.location} could not be checked: {version.error.message}"
        for word, names in (("is missing", version.missing), ("has another size", version.differing)):
            yield from (f"  {name} {word}" for name in names)
        if version.num_faults > len(version.missing) + len(version.differing):
            yield f"  {version.num_faults:,} files are missing or have another size"


def _version(version: VersionUsage) -> dict[str, Any]:
    return version_values(version.reference) | fields_of(
        version, "state", "location", "num_files", "num_bytes", "num_shared_bytes"
    )


def _stored(stored: StoredUsage) -> dict[str, Any]:
    told = fields_of(stored, "location", "num_files", "num_bytes", "num_faults", "missing", "differing", "error")
    return told | {"versions": stored.references}
