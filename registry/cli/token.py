"""``registry token``: creates, lists and revokes the access tokens of a shared catalog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from registry.cli.commands import Session, session_command
from registry.cli.options import dry_run_option
from registry.cli.output import Column, Table
from registry.envelope import fields_of
from registry.model import Role


@click.group("token")
def token() -> None:
    """Manage access tokens for a catalog that a server shares."""


@session_command("create", group=token)
@click.argument("name", metavar="NAME")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default="reader",
    show_default=True,
    help="A reader reads, a publisher also publishes, a maintainer also promotes protected names, an admin may do all.",
)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    default=("*",),
    metavar="PATTERN",
    help="A dataset that the token covers: name or name/config, with * and ?; may be repeated.  [default: all]",
)
@click.option("--expires", metavar="DURATION", help="How long it is valid: 12h, 90d, 52w.  [default: no limit]")
@dry_run_option
def create(
    session: Session, name: str, role: str, datasets: tuple[str, ...], expires: str | None, dry_run: bool
) -> None:
    """Create a token for NAME, a person or a program, and print it.

    It is printed only once: the catalog stores only a digest. The event log records NAME as the actor of the holder's
    changes.

    Examples:
        registry token create ann
        registry token create ci --role publisher --dataset 'lab_*' --expires 90d
    """
    with session.connect() as catalog:
        created = catalog.tokens.create(name, role=role, datasets=datasets, expires=expires, dry_run=dry_run)

    def human(_: object) -> Iterator[str]:
        access = f"for {name}: {role} of {', '.join(created.token.datasets)}"
        if dry_run:
            session.out.note(f"would create a token {access}")
        else:
            session.out.note(f"created the token {created.token.id} {access}. Its text is printed only once:")
            yield created.text

    text = {} if dry_run else {"text": created.text}
    session.out.present("token.create", fields_of(created.token) | text | {"dry_run": dry_run}, human)


@session_command("list", group=token)
def list_(session: Session) -> None:
    """List the tokens of the catalog, without their texts.

    Examples:
        registry token list
        registry token list --format json
    """
    with session.connect() as catalog:
        tokens, now = catalog.tokens.list(), catalog.backend.now()
    columns: dict[str, Column] = {
        "ID": "id",
        "NAME": "name",
        "ROLE": "role",
        "DATASETS": "datasets",
        "STATE": _state,
        "CREATED (UTC)": "created_at",
        "BY": "created_by",
        "LAST USED (UTC)": lambda row: row["last_used_at"] or "never",
    }
    values = [fields_of(entry) | {"is_valid": entry.is_valid(now)} for entry in tokens]
    empty = "The catalog has no tokens. Create one with: registry token create NAME"
    session.out.present("token.list", values, lambda rows: [Table(rows, columns, empty=empty)])


@session_command("revoke", group=token)
@click.argument("token_id", metavar="ID")
@dry_run_option
def revoke(session: Session, token_id: str, dry_run: bool) -> None:
    """Make the token ID invalid as of its next request.

    Examples:
        registry token revoke 3f9a5c0d71be
    """
    with session.connect() as catalog:
        revoked = catalog.tokens.revoke(token_id, dry_run=dry_run)
    done = "would revoke" if dry_run else "revoked"
    session.out.present(
        "token.revoke", fields_of(revoked) | {"dry_run": dry_run}, lambda _: [f"{done} {revoked.id} of {revoked.name}"]
    )


@session_command("refusals", group=token)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="The number of refusals to show.",
)
def refusals(session: Session, limit: int) -> None:
    """List the calls that a service has refused to known tokens and to ID tokens, newest first.

    Examples:
        registry token refusals
        registry token refusals --limit 1000 --format json
    """
    with session.connect() as catalog:
        refused = catalog.backend.access.refusals(limit=limit)
    columns: dict[str, Column] = {
        "AT (UTC)": "at",
        "WHO": "principal",
        "TOKEN": lambda row: row["token"] or "",
        "CALL": "call",
        "DATASET": "dataset",
        "REASON": lambda row: " ".join(row["reason"].split()),  # a line of it could look like another row
    }
    empty = "No call was refused."
    session.out.present("token.refusals", [*map(fields_of, refused)], lambda rows: [Table(rows, columns, empty=empty)])


def _state(row: dict[str, Any]) -> str:
    if row["revoked_at"] is not None:
        return f"revoked by {row['revoked_by']}"
    if row["expires_at"] is None:
        return "valid"
    return f"{'valid until' if row['is_valid'] else 'expired'} {row['expires_at']:%Y-%m-%d %H:%M}"
