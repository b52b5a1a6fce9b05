"""``registry reservation``: lists and releases the locations in object stores that publishers reserve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, documented, session_command, version_values
from registry.cli.options import dry_run_option, reference_argument
from registry.cli.output import Column, Table
from registry.envelope import fields_of
from registry.splits import counted

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.catalog import Reservation


@documented(click.group, "reservation")
def reservation() -> None:
    """Manage the locations in object stores that publishers reserve.

    A publisher reserves the location of a version until the version is published. If the publisher is killed, the next
    run completes the upload, or removes the files if it publishes other content.

    Examples:
        registry reservation list
        registry reservation release mnist:3.0.1
    """


@session_command("list", group=reservation)
@click.argument("dataset", required=False, metavar="[DATASET]")
def list_(session: Session, dataset: str | None) -> None:
    """List the reservations of the catalog, or of DATASET, and their holders.

    Examples:
        registry reservation list
        registry reservation list mnist --format json
    """
    with session.connect(dataset) as catalog:
        found = catalog.reservations.list(dataset)
    columns: dict[str, Column] = {
        "VERSION": lambda row: row.reference,
        "HELD BY": lambda row: "; ".join(map(str, row.holders)) or "nobody",
        "STATE": lambda row: "in use" if row.living else "left",
        "SINCE (UTC)": lambda row: row.reserved_at,
        "PLACE": lambda row: row.location,
    }
    session.out.present(
        "reservation.list",
        list(map(_values_of, found)),
        lambda _: [Table(found, columns, empty="There are no reservations.")],
    )


@session_command("release", group=reservation)
@reference_argument
@click.option("--force", is_flag=True, help="Release it even if a running process on this machine holds it.")
@dry_run_option
def release(session: Session, reference: str, force: bool, dry_run: bool) -> None:
    """Release the reservation of REF if its publisher died on another machine.

    First make sure that the publisher is no longer running, because the registry cannot check this. Its files remain in
    the store; the next publisher uses or removes them.

    Examples:
        registry reservation release mnist:3.0.1 --dry-run
        registry reservation release mnist/plain:3.0.1 --force
    """
    with session.connect() as catalog:
        found = catalog.reservations.release(reference, force=force, dry_run=dry_run)
    value = {"released": list(map(_values_of, found)), "dry_run": dry_run}

    def human(_: object) -> Iterator[str]:
        for place in found:
            who = ", ".join(map(str, place.holders)) or "nobody"
            done = "would release" if dry_run else "released"
            yield f"{done} {place.reference}: it was held by {who}, {place.location}"

    session.out.present("reservation.release", value, human)


@session_command("clear", group=reservation)
@reference_argument
@click.option(
    "--force", is_flag=True, help="Also move a complete version, and files of another catalog or of a running process."
)
@dry_run_option
def clear(session: Session, reference: str, force: bool, dry_run: bool) -> None:
    """Move leftover files away from the location of REF in an object store, so that REF can be published.

    REF must not be published yet. Nothing is deleted: the files are moved to a folder leftover.<random>_<version> next
    to the location.

    Examples:
        registry reservation clear mnist:3.0.1 --dry-run
        registry reservation clear mnist:3.0.1 --data-dir s3://bucket/datasets
    """
    with session.connect() as catalog:
        done = catalog.reservations.clear(reference, force=force, dry_run=dry_run)
    value = {
        **version_values(done.reference),
        **fields_of(done, "folder", "moved_to", "files"),
        "dry_run": dry_run,
    }

    def human(it: dict[str, Any]) -> Iterator[str]:
        verb = "would move" if dry_run else "moved"
        yield f"{verb} {counted(len(it['files']), 'file')} of {it['folder']} to {it['moved_to']}"
        for name in it["files"]:
            yield f"  {name}"

    session.out.present("reservation.clear", value, human)


def _values_of(held: Reservation) -> dict[str, Any]:
    return {
        **fields_of(held, "dataset", "version", "location", "is_cleaning", "reserved_at"),
        "content_digest": f"sha256:{held.content_digest}",
        "holders": [holder.as_json() for holder in held.holders],
    }
