"""``registry webhook``: sends the events of a shared catalog to URLs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from registry.cli.commands import Session, session_command
from registry.cli.options import dry_run_option
from registry.cli.output import Column, Table
from registry.envelope import fields_of
from registry.errors import PartialFailureError
from registry.splits import counted


@click.group("webhook")
def webhook() -> None:
    """Send the events of a shared catalog to URLs."""


@session_command("create", group=webhook)
@click.argument("receiver", metavar="URL")
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    default=("*",),
    metavar="PATTERN",
    help="Only events of name or name/config, with * and ?. May be repeated.",
)
@click.option(
    "--action", "actions", multiple=True, metavar="ACTION", help="Only this kind, e.g. publish. May be repeated."
)
@click.option("--after", type=click.IntRange(0), metavar="ID", help="Begin after this event. [default: the newest]")
@dry_run_option
def create(session: Session, receiver: str, dry_run: bool, **filters: Any) -> None:
    """Send each event from now on to URL, and print the secret for its receiver.

    The receiver verifies messages with the secret, see registry.verify_webhook. 'registry webhook secret' prints it
    again: the catalog does not store it.

    Examples:
        registry webhook create https://ci.example/hooks/data
        registry webhook create https://ci.example/hooks/data --dataset 'lab_*' --action publish
    """
    with session.connect() as catalog:
        created = catalog.webhooks.create(receiver, dry_run=dry_run, **filters)

    def human(_: object) -> Iterator[str]:
        if dry_run:
            session.out.note(f"would send events to {receiver}")
        else:
            session.out.note(f"created the webhook {created.webhook.id}. The secret of its receiver:")
            yield created.secret or ""

    secret = {} if dry_run else {"secret": created.secret}
    session.out.present("webhook.create", fields_of(created.webhook) | secret | {"dry_run": dry_run}, human)


@session_command("list", group=webhook)
def list_(session: Session) -> None:
    """List the webhooks, with the progress and the last error of each.

    Examples:
        registry webhook list
        registry webhook list --format json
    """
    with session.connect() as catalog:
        webhooks = catalog.webhooks.list()
        newest = next((event.id for event in catalog.log(limit=1)), 0)
    columns: dict[str, Column] = {
        "ID": "id",
        "URL": "url",
        "DATASETS": "datasets",
        "ACTIONS": lambda row: row["actions"] or "all",
        "DELIVERED": "delivered_through",
        "BEHIND": "events_behind",
        "STATE": _state,
        "BY": "created_by",
    }
    values = [fields_of(entry) | {"events_behind": max(newest - entry.delivered_through, 0)} for entry in webhooks]
    empty = "The catalog has no webhooks. Create one with: registry webhook create URL"
    session.out.present("webhook.list", values, lambda rows: [Table(rows, columns, empty=empty)])


@session_command("secret", group=webhook)
@click.argument("webhook_id", metavar="ID")
def secret(session: Session, webhook_id: str) -> None:
    """Print the secret of the webhook ID for its receiver, derived from the newest key of the service.

    Examples:
        registry webhook secret 3f9a5c0d71be
    """
    with session.connect() as catalog:
        text = catalog.webhooks.secret(webhook_id)
    session.out.present("webhook.secret", {"id": webhook_id, "secret": text}, lambda _: [text])


@session_command("remove", group=webhook)
@click.argument("webhook_id", metavar="ID")
@dry_run_option
def remove(session: Session, webhook_id: str, dry_run: bool) -> None:
    """Send no more events to the webhook ID.

    Examples:
        registry webhook remove 3f9a5c0d71be
    """
    with session.connect() as catalog:
        removed = catalog.webhooks.remove(webhook_id, dry_run=dry_run)
    done = "would remove" if dry_run else "removed"
    session.out.present(
        "webhook.remove", fields_of(removed) | {"dry_run": dry_run}, lambda _: [f"{done} {removed.id}: {removed.url}"]
    )


@session_command("resume", group=webhook)
@click.argument("webhook_id", metavar="ID")
@click.option(
    "--after", type=click.IntRange(0), metavar="EVENT", help="Continue after this event: an earlier one is sent again."
)
@dry_run_option
def resume(session: Session, webhook_id: str, after: int | None, dry_run: bool) -> None:
    """Retry the webhook ID at once, even if it was disabled.

    Examples:
        registry webhook resume 3f9a5c0d71be
        registry webhook resume 3f9a5c0d71be --after 120
    """
    with session.connect() as catalog:
        resumed = catalog.webhooks.resume(webhook_id, after=after, dry_run=dry_run)
    done = "would continue" if dry_run else "continues"
    after = resumed.delivered_through if after is None else after
    session.out.present(
        "webhook.resume",
        fields_of(resumed) | {"delivered_through": after, "dry_run": dry_run},
        lambda _: [f"{done} {resumed.id} after event {after}: {resumed.url}"],
    )


@session_command("test", group=webhook)
@click.argument("webhook_id", metavar="ID")
@dry_run_option
def test(session: Session, webhook_id: str, dry_run: bool) -> None:
    """Send the newest event to the webhook ID again, and print whether it arrived.

    The service sends it. The exit code is 1 if the receiver did not accept it.

    Examples:
        registry webhook test 3f9a5c0d71be
    """
    with session.connect() as catalog:
        tested = catalog.webhooks.test(webhook_id, dry_run=dry_run)
    outcome = "would be sent" if dry_run else "was delivered" if not tested.failures else "failed"
    session.out.present(
        "webhook.test",
        fields_of(tested) | {"dry_run": dry_run},
        lambda _: [f"the newest event {outcome}: {tested.url}"],
    )
    if tested.failures and not dry_run:
        raise PartialFailureError(f"the webhook {tested.id} failed: {tested.last_error}", hint="Correct its receiver.")


def _state(row: dict[str, Any]) -> str:
    if row["disabled_at"] is not None:
        return f"disabled: {row['disabled_because']}"
    return f"failed {counted(row['failures'], 'time')}: {row['last_error']}" if row["failures"] else "ok"
