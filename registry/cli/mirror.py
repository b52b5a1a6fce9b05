"""``registry mirror`` and ``relocate``: the locations of the files of a version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.commands import Session, change_values, documented, joint_exit_code, session_command, version_values
from registry.cli.completion import complete_reference
from registry.cli.options import dry_run_option, processes_option, reference_argument
from registry.cli.output import Column, Note, Table, size
from registry.cli.progress import show_progress
from registry.envelope import fields_of
from registry.errors import UsageError, VerificationError
from registry.splits import counted

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.api.mirrors import Location
    from registry.api.reports import LocationReport
    from registry.catalog import LocationChange


@documented(click.group, "mirror")
def mirror() -> None:
    """Manage the locations of the files of a version.

    A version is read from its first location. If that location cannot be reached, or if a file there is missing or
    differs, the next location is read, with a note.

    Examples:
        registry mirror list mnist
        registry mirror add mnist:3.0.1 s3://mirror/mnist/3.0.1
    """


place_argument = click.argument("place", metavar="URL")
hashing_option = processes_option("Hash N files at the same time.")


@session_command("list", group=mirror)
@click.argument("reference", metavar="[REF]", required=False, shell_complete=complete_reference)
def list_(session: Session, reference: str | None) -> None:
    """List the locations of REF in the order in which they are read, with the date and author of each record.

    Without REF, lists all versions that have mirrors.

    Examples:
        registry mirror list
        registry mirror list mnist/plain:3.0.1 --format json
    """
    if reference is None:
        with session.connect() as catalog:
            versions = catalog.mirrors.list_all()
        listed = [{**version_values(exactly), "locations": _locations(found)} for exactly, found in versions]
        rows = [location | {"version": str(exactly)} for exactly, found in versions for location in _locations(found)]
        every: dict[str, Column] = {"VERSION": "version", **_LOCATION_COLUMNS}
        table = Table(rows, every, empty="No version has mirrors.")
        session.out.present("mirror.list.all", {"versions": listed}, lambda _: [table])
        return
    with session.connect() as catalog:
        dataset = session.look_up(catalog, reference)
        found = catalog.mirrors.list(dataset)
    value = {**version_values(dataset.reference), "locations": _locations(found)}
    session.out.present("mirror.list", value, lambda it: [Table(it["locations"], _LOCATION_COLUMNS)])


def _locations(locations: Iterable[Location]) -> list[dict[str, Any]]:
    return [fields_of(location, "location", "url", "is_published", "added_at", "added_by") for location in locations]


_LOCATION_COLUMNS: Final[dict[str, Column]] = {
    "LOCATION": "url",
    "RECORDED": lambda row: "published there" if row["is_published"] else "later",
    "WHEN (UTC)": "added_at",
    "BY": "added_by",
}


@session_command("add", group=mirror)
@reference_argument
@place_argument
@hashing_option
@dry_run_option
def add(session: Session, reference: str, place: str, processes: int | None, dry_run: bool) -> None:
    """Record the folder URL, which contains copies of the files of REF, as another location of REF.

    Every file there is hashed and compared with the catalog first. If one is missing or differs, nothing is recorded,
    and the exit code is 5.

    Examples:
        registry mirror add mnist:3.0.1 s3://mirror/mnist/3.0.1
        registry mirror add mnist /mnt/copy/mnist/3.0.1 --dry-run
    """
    with session.connect(reference) as catalog, show_progress(session.out) as progress:
        change = catalog.mirrors.add(reference, place, processes=processes, dry_run=dry_run, progress=progress)
        locate = catalog.mirrors.locate
    _present(session, "mirror.add", change, locate, f"{place} is already a location of it")


@session_command("remove", group=mirror)
@reference_argument
@place_argument
@dry_run_option
def remove(session: Session, reference: str, place: str, dry_run: bool) -> None:
    """Withdraw the location URL of REF: it is no longer read. Its files stay where they are.

    Examples:
        registry mirror remove mnist:3.0.1 s3://mirror/mnist/3.0.1 --dry-run
    """
    with session.connect(reference) as catalog:
        change = catalog.mirrors.remove(reference, place, dry_run=dry_run)
        locate = catalog.mirrors.locate
    _present(session, "mirror.remove", change, locate, "")


@session_command("check", group=mirror)
@reference_argument
@click.argument("place", metavar="[URL]", required=False)
@hashing_option
def check(session: Session, reference: str, place: str | None, processes: int | None) -> int:
    """Compare the files at every location of REF, or at URL, with the catalog, by size and sha256.

    If files are missing or differ, they are named, and the exit code is 5. If a location cannot be reached, it is 75.

    Examples:
        registry mirror check mnist:3.0.1
        registry mirror check mnist s3://mirror/mnist/3.0.1 --format json
    """
    with session.connect() as catalog:
        dataset = session.look_up(catalog, reference)
        with show_progress(session.out) as progress:
            result = catalog.mirrors.check(dataset, place, processes=processes, progress=progress)
    value = {**version_values(dataset.reference), "locations": list(map(_report_values, result))}
    session.out.present("mirror.check", value, lambda _: (line for report in result for line in _describe(report)))
    return joint_exit_code((report.error or VerificationError).exit_code for report in result if not report.is_sound)


@session_command("relocate")
@click.argument("reference", metavar="[REF]", required=False)
@click.argument("place", metavar="[URL]", required=False)
@click.option("--from", "old", metavar="OLD", help="Relocate every location that begins with this path or URL.")
@click.option("--to", "new", metavar="NEW", help="The path or URL that replaces it.")
@hashing_option
@dry_run_option
def relocate(
    session: Session,
    reference: str | None,
    place: str | None,
    old: str | None,
    new: str | None,
    processes: int | None,
    dry_run: bool,
) -> int:
    """Record that the folder of REF was moved by hand to URL, or everything below OLD to NEW.

    Every file there is first hashed and compared with the catalog. URL replaces the first location of REF; the
    published row does not change. Locations below the data directory are relative to it: if the whole directory was
    moved, only record the new directory: registry config data-dir NEW.

    Examples:
        registry relocate mnist:3.0.1 /archive/mnist/3.0.1
        registry relocate --from /data/tfds --to s3://bucket/tfds --dry-run
    """
    is_one, is_all = reference is not None and place is not None, old is not None and new is not None
    if is_one == is_all or (is_all and reference is not None) or (is_one and (old is not None or new is not None)):
        raise UsageError(
            "name one version and its new place, or --from and --to",
            hint="Try: registry relocate mnist:3.0.1 URL, or: registry relocate --from OLD --to NEW",
        )
    with session.connect() as catalog, show_progress(session.out) as progress:
        if reference is not None and place is not None:
            change = catalog.mirrors.relocate(reference, place, processes=processes, dry_run=dry_run, progress=progress)
            unchanged = f"{catalog.mirrors.locate(change.after[0])} is already its first location"
            _present(session, "relocate", change, catalog.mirrors.locate, unchanged)
            return 0
        report = catalog.mirrors.relocate_all(
            old or "", new or "", processes=processes, dry_run=dry_run, progress=progress
        )
    value = {
        "from": old,
        "to": new,
        "dry_run": dry_run,
        "locations": [
            {
                **version_values(version.reference),
                **fields_of(version, "before", "after"),
                "error": version.error,
            }
            for version in report
        ],
    }

    def human(_: object) -> Iterator[str | Note]:
        verb = "would relocate" if dry_run else "relocated"
        for version in report:
            if version.error is None:
                yield f"{verb} {version.reference} from {version.before} to {version.after}"
            else:
                yield f"{version.reference}: not relocated: {version.error.message}"
        if not report:
            yield Note(f"No location begins with {old}.")

    session.out.present("relocate.all", value, human)
    return joint_exit_code(version.error.exit_code for version in report if version.error is not None)


def _present(
    session: Session, schema: str, change: LocationChange, locate: Callable[[str], str], unchanged: str
) -> None:
    """People see complete places, as in `mirror list`; JSON has the recorded ones."""
    value = {**version_values(change.reference), **change_values(change)}

    def human(it: dict[str, Any]) -> Iterator[str]:
        if not it["would_change"]:
            yield f"{change.reference}: {unchanged}"
            return
        places = ", then ".join(map(locate, it["after"]))
        yield f"{change.reference} {'would be' if change.is_dry_run else 'is'} read from {places}"
        for location in it["before"] if schema == "relocate" else ():
            if location not in it["after"]:
                yield f"{locate(location)} {'would no longer be' if change.is_dry_run else 'is no longer'} read"

    session.out.present(schema, value, human)


def _describe(report: LocationReport) -> Iterator[str]:
    if report.report is None:
        yield f"{report.url}: not checked: {'' if report.error is None else report.error.message}"
        return
    checked = report.report
    sound = sum(map(len, checked.shards.values()))
    yield f"{report.url}: {sound} of {counted(checked.num_shards, 'file')} as published ({size(checked.num_bytes)})"
    yield from (f"  {fault.problem}" for fault in report.report.faults)
    if report.num_lacking:
        yield f"  {counted(report.num_lacking, 'attachment')} missing: also copy the hidden folder .attachments"


def _report_values(checked: LocationReport) -> dict[str, Any]:
    report = checked.report
    sizes = ("num_shards", "num_bytes")
    return {
        **fields_of(checked, "location", "url", "is_sound", "num_lacking"),
        **(dict.fromkeys(sizes) if report is None else fields_of(report, *sizes)),
        "faults": []
        if report is None
        else [fields_of(fault, "split", "filename", "code", "problem") for fault in report.faults],
        "error": checked.error,
    }
