"""``registry proposal``: lists, approves and rejects changes of protected names that need two persons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, documented, session_command
from registry.cli.options import dry_run_option
from registry.cli.output import Column, Table
from registry.envelope import fields_of

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.catalog import Proposal


@documented(click.group, "proposal")
def proposal() -> None:
    """Approve changes to protected names that need two persons.

    'registry config protect --two-persons' enables this rule for a name. A promotion, or the removal of the protection,
    is then only a proposal until another person approves it. A proposal expires after 14 days.

    Examples:
        registry proposal list
        registry proposal approve 17
    """


@session_command("list", group=proposal)
@click.argument("dataset", required=False, metavar="[DATASET]")
def list_(session: Session, dataset: str | None) -> None:
    """List the proposals that wait for approval.

    Examples:
        registry proposal list
        registry proposal list mnist --format json
    """
    with session.connect(dataset) as catalog:
        waiting = catalog.lifecycle.proposals(dataset)
        if dataset is not None and not waiting:
            catalog.lifecycle.configs(dataset)  # it may be mistyped
    columns: dict[str, Column] = {
        "ID": lambda row: row.id,
        "CHANGE": str,
        "REPLACES": lambda row: row.before or "",
        "BY": lambda row: row.proposed_by,
        "AT (UTC)": lambda row: row.proposed_at,
        "WAITS UNTIL (UTC)": lambda row: row.expires_at,
    }
    session.out.present(
        "proposal.list",
        list(map(fields_of, waiting)),
        lambda _: [Table(list(waiting), columns, empty="No change waits for approval.")],
    )


@session_command("approve", group=proposal)
@click.argument("proposal_id", type=int, metavar="ID")
@dry_run_option
def approve(session: Session, proposal_id: int, dry_run: bool) -> None:
    """Approve and make a change that another person proposed.

    Refused if you proposed it yourself, or if its subject has changed since.

    Examples:
        registry proposal approve 17 --dry-run
        registry proposal approve 17
    """
    with session.connect() as catalog:
        approved = catalog.lifecycle.approve(proposal_id, dry_run=dry_run)
    _present(session, "proposal.approve", "would approve" if dry_run else "approved", approved, dry_run=dry_run)


@session_command("reject", group=proposal)
@click.argument("proposal_id", type=int, metavar="ID")
@click.option("--reason", default="", metavar="TEXT", help="Why, for the log.")
@dry_run_option
def reject(session: Session, proposal_id: int, reason: str, dry_run: bool) -> None:
    """Reject a proposal, or withdraw your own.

    Examples:
        registry proposal reject 17 --reason 'labels are shifted'
    """
    with session.connect() as catalog:
        rejected = catalog.lifecycle.reject(proposal_id, reason=reason, dry_run=dry_run)
    _present(session, "proposal.reject", "would reject" if dry_run else "rejected", rejected, dry_run=dry_run)


def describe_proposal(waiting: Proposal) -> str:
    """The line for a change that was only proposed."""
    if waiting.id is None:
        return f"would propose: {waiting}; it would wait until another person approves it"
    return (
        f"proposal {waiting.id} of {waiting.proposed_by} waits: {waiting}, until {waiting.expires_at:%Y-%m-%d}. "
        f"Another person approves it: registry proposal approve {waiting.id}"
    )


def proposal_values(waiting: Proposal | None) -> dict[str, Any]:
    """The proposal in the JSON of a change that was only proposed."""
    return {} if waiting is None else {"proposal": fields_of(waiting)}


def _present(session: Session, schema: str, done: str, decided: Proposal, *, dry_run: bool) -> None:
    line = f"{done} proposal {decided.id} of {decided.proposed_by}: {decided}"
    session.out.present(schema, {**fields_of(decided), "dry_run": dry_run}, lambda _: [line])
