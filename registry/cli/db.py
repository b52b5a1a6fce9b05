"""``registry db``: shows, checks, upgrades and downgrades the schema of the catalog database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, session_command
from registry.cli.output import Fields
from registry.envelope import fields_of
from registry.errors import CatalogError, CatalogPermissionError, UsageError

if TYPE_CHECKING:  # Alembic is loaded when a schema changes
    from registry.catalog.schema import RemovedSecrets


@click.group("db")
def db() -> None:
    """Manage the catalog database: its schema, and moving it from one release to the next."""


@session_command("status", group=db)
def status(session: Session) -> None:
    """Show the schema revision of the catalog, the revision that this release needs, and the recorded data directory.

    Examples:
        registry db status
        registry db status --catalog postgresql://host/name
    """
    from registry.api.locations import resolve_data_dir
    from registry.catalog import schema, sqlite_path

    with session.name_origin():
        found = schema.status(session.catalog_url)
        recorded = schema.recorded_data_dir(session.catalog_url)
    session.out.present(
        "db.status",
        {
            **fields_of(found, "url", "state", "revision", "head"),
            "data_dir": resolve_data_dir(sqlite_path(session.catalog_url), recorded),
        },
        lambda it: [
            Fields(
                {
                    "catalog": it["url"],
                    "state": it["state"],
                    "revision": it["revision"] or "none",
                    "head": it["head"],
                    "data directory": it["data_dir"] or "none recorded",
                }
            )
        ],
    )


@session_command("upgrade", group=db)
@click.argument("revision", default="head")
def upgrade(session: Session, revision: str) -> None:
    """Upgrade the catalog's schema to REVISION, by default the newest. An empty database becomes a catalog.

    Examples:
        registry db upgrade
        registry db upgrade 0001
    """
    from registry.api import make_catalog_folder
    from registry.catalog import schema

    removed: list[RemovedSecrets] = []
    with session.name_origin():
        make_catalog_folder(session.catalog_url)
        before, after = schema.upgrade(session.catalog_url, revision, told=removed.append)
        _renew_rights(session)
    _note_secrets(session, removed)
    _present_move(session, before, after, removed)


@session_command("downgrade", group=db)
@click.argument("revision")
@click.option("--yes", is_flag=True, help="Confirm. Tables that REVISION does not have are dropped with their rows.")
def downgrade(session: Session, revision: str, yes: bool) -> None:
    """Downgrade the catalog's schema to REVISION (`base` removes all tables).

    Examples:
        registry db downgrade base --yes
    """
    from registry.catalog import schema

    with session.name_origin():
        notes = schema.downgrade_notes(session.catalog_url, revision)
        if not yes:
            raise UsageError(
                "\n".join([f"downgrading to {revision} drops tables with their rows", *notes]),
                hint="Make a copy, then add --yes.",
            )
        session.out.notes(notes)
        before, after = schema.downgrade(session.catalog_url, revision)
    _present_move(session, before, after)


@session_command("check", group=db)
def check(session: Session) -> None:
    """Compare the database with its schema: tables, columns, constraints, triggers, foreign keys and search index.

    Examples:
        registry db check
    """
    from registry.catalog import schema
    from registry.catalog.search import REPAIR_INDEX

    with session.name_origin():
        differences = schema.check(session.catalog_url)
    session.out.present(
        "db.check",
        {"differences": differences},
        lambda it: it["differences"] or ["the database matches its schema"],
    )
    if differences:
        is_index_only = all(line.endswith(REPAIR_INDEX) for line in differences)
        raise CatalogError(
            f"the database differs from its schema in {len(differences)} places",
            hint="Rebuild the search index: registry db reindex"
            if is_index_only
            else "Restore it from a copy, or upgrade it: registry db upgrade.",
            details={"differences": differences},
        )


@session_command("grant", group=db)
@click.argument("role")
@click.option(
    "--as",
    "level",
    type=click.Choice(["reader", "publisher", "curator", "admin"]),
    required=True,
    help="A reader can look up and read; a publisher can also publish; a curator can also withdraw versions, move "
    "aliases, protect names and record locations; an admin can also change the schema.",
)
@click.option("--dry-run", is_flag=True, help="Print the SQL without running it.")
def grant(session: Session, role: str, level: Any, dry_run: bool) -> None:
    """Grant ROLE of the PostgreSQL server the rights of a level, including on tables of later upgrades.

    Run it as the owner of the database. It revokes no rights, and can be run again. Only a superuser, or an admin of
    the owner's role, can grant the level admin.

    Examples:
        registry db grant ann --as reader
        registry db grant nightly_build --as publisher --dry-run
    """
    from registry.catalog import schema

    with session.name_origin():
        made = schema.grant_rights(session.catalog_url, role, level, dry_run=dry_run)
    value = {"role": role, "as": level, "statements": list(made.statements), "dry_run": dry_run}
    article = "an" if level == "admin" else "a"
    granted = [f"{role} now has the rights of {article} {level}"]
    lines = [f"{statement};" for statement in made.statements] if dry_run else granted
    session.out.present("db.grant", value, lambda _: lines)


@session_command("reindex", group=db)
def reindex(session: Session) -> None:
    """Rebuild the index of `registry search` from the published versions, if it differs from them.

    Examples:
        registry db reindex
    """
    from registry.catalog import schema

    with session.name_origin():
        mended = schema.reindex(session.catalog_url)
    text = "the search index now matches the published versions" + (
        f"; documents rebuilt: {mended:,}" if mended else ""
    )
    session.out.present("db.reindex", {"mended": mended}, lambda _: [text])


def _present_move(
    session: Session, before: str | None, after: str | None, removed: Sequence[RemovedSecrets] = ()
) -> None:
    value = {
        "before": before,
        "after": after,
        "secrets_removed": [fields_of(secret, "reference", "columns", "location") for secret in removed],
    }

    def human(it: dict[str, Any]) -> Iterator[str]:
        yield f"already at {after or 'empty'}" if before == after else f"{before or 'empty'} -> {after or 'empty'}"
        for secret in it["secrets_removed"]:
            place = "" if secret["location"] is None else f"; its folder is {secret['location']}"
            yield f"{secret['reference']}: secrets were removed from URLs in {', '.join(secret['columns'])}{place}"

    session.out.present("db.upgrade", value, human)


def _renew_rights(session: Session) -> None:
    """Give the roles of a server their rights on the tables that an upgrade added."""
    from registry.catalog import schema

    try:
        renewed = schema.renew_rights(session.catalog_url)
    except CatalogPermissionError as error:  # the upgrade itself is done
        session.out.note(f"note: the rights on new tables were not granted: {error.message}")
        return
    for pin in renewed:
        session.out.note(f"note: {pin.role} was given the rights of a {pin.level} on new tables")


def _note_secrets(session: Session, removed: Sequence[RemovedSecrets]) -> None:
    """Print notes on what an upgrade cannot undo: secrets may have been read, and copies of the database have them."""
    if not removed:
        return
    session.out.note(
        "note: change these passwords and tokens: everyone who could read the catalog may know them, and its backups, "
        "pins and exports still contain them"
    )
    if not all(secret.is_erased for secret in removed):
        session.out.note(
            "note: another process used the database, so its files still contain them; when it is not in use, run "
            "VACUUM (SQLite), or VACUUM (FULL) dataset_version, search_document (PostgreSQL)"
        )
