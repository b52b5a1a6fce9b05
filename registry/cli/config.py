"""``registry config``: the configs of datasets, protected canonical versions, and the data directory of the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, documented, session_command
from registry.cli.lifecycle import describe_effects, effect_values
from registry.cli.options import dataset_argument, dry_run_option, optional_dataset_argument, uses_option
from registry.cli.output import Block, Column, Table
from registry.cli.proposal import describe_proposal, proposal_values
from registry.envelope import fields_of
from registry.model import Use

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.catalog import ProtectionChange


@documented(click.group, "config")
def config() -> None:
    """Manage configs of datasets, the protection of canonical versions, and the data directory of the catalog.

    Examples:
        registry config list mnist
        registry config set-default mnist/rotated
        registry config protect
        registry config data-dir s3://bucket/datasets
    """


@session_command("list", group=config)
@dataset_argument
def list_(session: Session, dataset: str) -> None:
    """List the configs of DATASET, by name.

    Examples:
        registry config list mnist
    """
    names = ("config", "is_default", "canonical", "withdrawn", "num_versions", "is_protected", "needs_two_persons")
    with session.connect(dataset) as catalog:
        found = [fields_of(entry, *names) for entry in catalog.lifecycle.configs(dataset)]
    columns: dict[str, Column] = {
        "CONFIG": lambda row: row["config"] or "(none)",
        "DEFAULT": lambda row: "default" if row["is_default"] else "",
        "CANONICAL": _canonical,
        "VERSIONS": "num_versions",
    }
    session.out.present("config.list", found, lambda rows: [Table(rows, columns)])


def _canonical(row: dict[str, Any]) -> str:
    withdrawn = f" ({row['withdrawn']} is withdrawn)" if row["withdrawn"] else ""
    rule = " (protected by two persons)" if row["needs_two_persons"] else " (protected)" if row["is_protected"] else ""
    return f"{row['canonical'] or 'none'}{withdrawn}{rule}"


@session_command("set-default", group=config)
@dataset_argument
@dry_run_option
@uses_option
def set_default(session: Session, dataset: str, dry_run: bool, uses: list[Use]) -> None:
    """Make the config in DATASET (NAME/CONFIG) the default: references without a config resolve to it.

    Prints every reference that resolves differently, before and after.

    Examples:
        registry config set-default mnist/rotated --dry-run
        registry config set-default mnist/rotated
    """
    with session.connect(dataset) as catalog:
        change = catalog.lifecycle.set_default_config(dataset, dry_run=dry_run, uses=uses)
    value = {
        "dataset": change.after.name,
        "before": None if change.before is None else change.before.config,
        "after": change.after.config,
        "is_change": change.is_change,
        "dry_run": change.is_dry_run,
        **effect_values(change.effects, change.use_effects, uses),
    }

    def human(it: dict[str, Any]) -> Iterator[Block]:
        if not it["is_change"]:
            yield f"{it['after']} is already the default config of {it['dataset']}"
            return
        verb = "would make" if it["dry_run"] else "made"
        replacing = "" if it["before"] is None else f", replacing {it['before']}"
        yield f"{verb} {it['after']} the default config of {it['dataset']}{replacing}"
        yield from describe_effects(it, with_dataset=True)

    session.out.present("config.set-default", value, human)


@session_command("protect", group=config)
@optional_dataset_argument("[NAME]")
@click.option("--two-persons", is_flag=True, help="Promotions need the approval of another person.")
@dry_run_option
def protect(session: Session, dataset: str | None, two_persons: bool, dry_run: bool) -> None:
    """Protect the canonical version of NAME, or of every dataset: only 'registry promote' can change it.

    NAME is a dataset, or NAME/CONFIG. 'build', 'publish' and 'import' no longer change the canonical version, and
    refuse --promote. A protected dataset without versions has no canonical version until one is promoted.

    With --two-persons, promotions and 'unprotect' need the approval of another person: see 'registry proposal'.

    Examples:
        registry config protect mnist
        registry config protect mnist/rotated --dry-run
        registry config protect mnist --two-persons
        registry config protect
    """
    # A new catalog can be protected before anything is published.
    with session.connect_to_publish(dry_run=dry_run, announce=True) as catalog:
        change = catalog.lifecycle.protect(dataset, two_persons=two_persons, dry_run=dry_run)
    _present_protection(session, "config.protect", change)


@session_command("unprotect", group=config)
@optional_dataset_argument("[NAME]")
@dry_run_option
def unprotect(session: Session, dataset: str | None, dry_run: bool) -> None:
    """Undo 'registry config protect' for NAME, or without NAME for the whole catalog.

    Examples:
        registry config unprotect mnist
        registry config unprotect
    """
    with session.connect(dataset) as catalog:
        change = catalog.lifecycle.unprotect(dataset, dry_run=dry_run)
    _present_protection(session, "config.unprotect", change)


@session_command("data-dir", group=config)
@click.argument("folder", metavar="[DIR]", required=False)
@click.option("--force", is_flag=True, help="Record DIR even if files of versions are missing there.")
@dry_run_option
def data_dir(session: Session, folder: str | None, force: bool, dry_run: bool) -> None:
    """Show the data directory that the catalog records, or record DIR: a path or URL.

    Clients without --data-dir and REGISTRY_DATA_DIR use it. A client that names another directory can read, but not
    publish. The first publication records it. To change it later, first copy the files, then record the new directory.

    Examples:
        registry config data-dir
        registry config data-dir s3://bucket/datasets
        registry config data-dir /mnt/data
    """
    if folder is None:
        with session.connect() as catalog:
            value = {"data_dir": catalog.recorded_data_dir, "before": None, "is_change": False, "dry_run": dry_run}
    else:
        with session.connect_to_publish(dry_run=dry_run, announce=True) as catalog:
            change = catalog.set_data_dir(folder, force=force, dry_run=dry_run)
        if change.is_change and not change.is_checked:
            session.out.note(
                f"note: {change.after.place} was not opened, so it was not checked that it exists and can be read"
            )
        value = {
            "data_dir": change.after.place,
            "before": None if change.before is None else change.before.place,
            "is_change": change.is_change,
            "dry_run": dry_run,
        }

    def human(it: dict[str, Any]) -> Iterator[str]:
        if folder is None:
            yield it["data_dir"] or "not recorded yet; the first publication records it"
        elif not it["is_change"]:
            yield f"{it['data_dir']} is already the data directory"
        else:
            before = "" if it["before"] is None else f", instead of {it['before']}"
            yield f"{it['data_dir']} {'would be' if it['dry_run'] else 'is'} the data directory{before}"

    session.out.present("config.data-dir", value, human)


def _present_protection(session: Session, schema: str, change: ProtectionChange) -> None:
    wider = change.protected_by
    value = {
        "dataset": change.scope or None,
        "is_change": change.is_change,
        "dry_run": change.is_dry_run,
        "before": change.before,
        "after": change.after,
        "protected_by": None if wider is None else wider or "(catalog)",
        "two_persons": change.two_persons,
        **proposal_values(change.proposal),
    }

    def human(it: dict[str, Any]) -> Iterator[str]:
        scope = it["dataset"] or "the whole catalog"
        if change.proposal is not None:
            yield describe_proposal(change.proposal)
            return
        if not it["is_change"]:
            yield f"{scope} is {'already protected' if it['after'] else 'not protected: nothing to undo'}"
        elif it["after"]:
            moved = "its canonical version" if it["dataset"] else "a canonical version"
            yield f"{scope} {'would be' if it['dry_run'] else 'is'} protected: only 'registry promote' changes {moved}"
            if it["two_persons"]:
                yield "Promotions need the approval of another person: see registry proposal list"
        else:
            yield f"{scope} {'would no longer be' if it['dry_run'] else 'is no longer'} protected"
        if not it["after"] and wider is not None:
            undo = f"registry config unprotect {wider}".rstrip()
            yield f"It remains protected by {wider or 'the whole catalog'}: see {undo}"

    session.out.present(schema, value, human)
