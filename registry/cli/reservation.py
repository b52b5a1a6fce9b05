"""``registry reservation``: who is putting files into an object store, and what a dead publisher left there."""

from __future__ import annotations

from typing import Any

import click

from registry.cli.commands import Session, examples, session_command
from registry.cli.options import reference_argument
from registry.splits import counted

_DRY_RUN = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")


@click.group(
    "reservation",
    epilog=examples("registry reservation list", "registry reservation release mnist:3.0.1"),
)
def reservation() -> None:
    """Look after the places in object stores where publishers put files.

    A publisher reserves the place of a version until it is published. The next run finishes what a killed
    publisher left, or removes it if it publishes other content.
    """


@session_command("list", epilog=examples("registry reservation list", "registry reservation list mnist --format json"))
@click.argument("dataset", required=False, metavar="[DATASET]")
def list_(session: Session, dataset: str | None) -> None:
    """List the reservations of the catalog, or of DATASET, and who holds them."""
    with session.connect() as catalog:
        found = catalog.reservations.list(dataset)
    rows = [
        (
            one.reference,
            "; ".join(map(str, one.holders)) or "nobody",
            "in use" if one.living else "left",
            f"{one.reserved_at:%Y-%m-%d %H:%M}",
            one.location,
        )
        for one in found
    ]
    session.out.result(
        "reservation.list",
        [_as_json(one) for one in found],
        lambda: session.out.table(
            ("VERSION", "HELD BY", "STATE", "SINCE (UTC)", "PLACE"), rows, empty="Nothing is reserved."
        ),
    )


@session_command(
    "release",
    epilog=examples(
        "registry reservation release mnist:3.0.1 --dry-run",
        "registry reservation release mnist/plain:3.0.1 --force",
    ),
)
@reference_argument
@click.option("--force", is_flag=True, help="Also from a process of this machine that is alive.")
@_DRY_RUN
def release(session: Session, reference: str, force: bool, dry_run: bool) -> None:
    """Take the reservation of REF away from a publisher that died on another machine.

    Only you know that it is dead. What it put into the store stays: the next publisher finishes it or removes it.
    """
    with session.connect() as catalog:
        found = catalog.reservations.release(reference, force=force, dry_run=dry_run)
    data = {"released": [_as_json(one) for one in found], "dry_run": dry_run}

    def human() -> None:
        for one in found:
            who = ", ".join(map(str, one.holders)) or "nobody"
            session.out.line(
                f"{'would release' if dry_run else 'released'} {one.reference}: it was held by {who}, {one.location}"
            )

    session.out.result("reservation.release", data, human)


@session_command(
    "clear",
    epilog=examples(
        "registry reservation clear mnist:3.0.1 --dry-run",
        "registry reservation clear mnist:3.0.1 --data-dir s3://bucket/datasets",
    ),
)
@reference_argument
@click.option(
    "--force", is_flag=True, help="Also a whole version, and what another catalog or a living process put there."
)
@_DRY_RUN
def clear(session: Session, reference: str, force: bool, dry_run: bool) -> None:
    """Move what lies at the place of REF in an object store aside, so that REF can be published.

    REF is not published. Nothing is deleted: the files go to a folder leftover.<random>_<version> beside it.
    """
    with session.connect() as catalog:
        done = catalog.reservations.clear(reference, force=force, dry_run=dry_run)
    data = {
        "dataset": done.reference.dataset,
        "version": str(done.reference.request),
        "folder": done.folder,
        "moved_to": done.moved_to,
        "files": list(done.files),
        "dry_run": dry_run,
    }

    def human() -> None:
        verb = "would move" if dry_run else "moved"
        session.out.line(f"{verb} {counted(len(done.files), 'file')} of {done.folder} to {done.moved_to}")
        for name in done.files:
            session.out.line(f"  {name}")

    session.out.result("reservation.clear", data, human)


for subcommand in (list_, release, clear):
    reservation.add_command(subcommand)


def _as_json(one: Any) -> dict[str, Any]:
    return {
        "dataset": one.dataset,
        "version": one.version,
        "location": one.location,
        "content_digest": f"sha256:{one.content_digest}",
        "is_cleaning": one.is_cleaning,
        "reserved_at": one.reserved_at.isoformat(),
        "holders": [holder.as_json() for holder in one.holders],
    }
