"""``registry backup`` and ``registry restore``: save a catalog to a file, and fill an empty catalog from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, session_command
from registry.cli.options import dry_run_option, file_argument, force_option
from registry.cli.output import Block, Fields, Note, size
from registry.cli.progress import show_progress
from registry.envelope import fields_of
from registry.splits import counted

if TYPE_CHECKING:
    from registry.catalog import BackupFacts


@session_command("backup")
@file_argument
@force_option
@dry_run_option
def backup(session: Session, file: str, force: bool, dry_run: bool) -> None:
    """Save every row of the catalog to FILE, while the catalog is in use.

    FILE can be restored into SQLite or PostgreSQL. It contains no files of datasets: copy the data directory after the
    backup. Keep the head of the log, which is printed: restore --anchor HEAD proves that FILE is this backup.

    Examples:
        registry backup catalog.backup.gz
        registry backup s3://bucket/backups/2026-11-23.gz
    """
    from registry.api import back_up

    with session.name_origin(), show_progress(session.out) as progress:
        done = back_up(file, session.catalog_url, force=force, dry_run=dry_run, progress=progress)
    value = {"file": done.path, "dry_run": dry_run, "num_bytes": done.num_bytes, **fields_of(done.facts)}
    value["num_secret_rows"] = done.num_secret_rows

    def human(it: dict[str, Any]) -> Iterator[Block]:
        verb = "would save" if dry_run else "saved"
        yield f"{verb} {_described(done.facts)} to {it['file']} ({size(it['num_bytes'])})"
        yield Fields({"schema": it["schema"], "head": it["head"], "sha256": it["sha256"]})
        yield Note("note: the backup does not contain the files of the datasets; copy the data directory after it")
        if done.num_secret_rows:
            rows = counted(done.num_secret_rows, "row")
            yield Note(f"warning: {rows} may contain passwords or tokens in URLs, which older releases stored")
            yield Note("  Keep the backup secret, or first remove them by upgrading the catalog: registry db upgrade")

    session.out.present("backup", value, human)


@session_command("restore")
@file_argument
@click.option("--anchor", metavar="HEAD", help="The head that registry backup printed: the log must contain it.")
@click.option("--no-verify", is_flag=True, help="Do not compare the rows with the event log.")
@dry_run_option
def restore(session: Session, file: str, anchor: str | None, no_verify: bool, dry_run: bool) -> None:
    """Fill an empty catalog from a backup, in one transaction.

    The catalog is a new SQLite file, or an empty database. FILE is checked first. If it is damaged, or its rows do not
    match its event log, nothing is restored.

    A backup contains no files of datasets. The command prints the data directory in which the restored catalog looks
    for them: --data-dir, or the one that the backup records. If their copies are elsewhere, record that place with
    'registry config data-dir'.

    Examples:
        registry restore catalog.backup.gz --catalog restored.db
        registry restore catalog.backup.gz --catalog postgresql://host/name
    """
    from registry.api import data_folder
    from registry.api import restore as restore_file
    from registry.api.locations import named_data_folder

    with session.name_origin(), show_progress(session.out) as progress:
        done = restore_file(
            file, session.catalog_url, verify=not no_verify, anchor=anchor, dry_run=dry_run, progress=progress
        )
    is_server = not session.is_sqlite
    folder = named_data_folder(session.data_dir)
    if folder is None and not dry_run:
        with session.connect() as catalog:
            folder = catalog.recorded_data_dir if is_server else catalog.data_dir
    if folder is None and not is_server:
        folder = data_folder(session.catalog_url)
    value = {
        "catalog": done.url,
        "data_dir": folder if folder is None or "://" in folder else str(Path(folder).absolute()),
        "dry_run": dry_run,
        **fields_of(done.facts),
        "is_verified": done.log is not None,
        "secrets_removed": [fields_of(secret, "reference", "columns", "location") for secret in done.secrets_removed],
    }

    def human(it: dict[str, Any]) -> Iterator[Block]:
        yield f"{'would restore' if dry_run else 'restored'} {_described(done.facts)} to {it['catalog']}"
        if done.log is not None:
            yield f"the log and the rows match: {counted(done.log.num_events, 'event')}, head {done.log.head}"
        for secret in it["secrets_removed"]:
            yield f"{secret['reference']}: secrets were removed from URLs in {', '.join(secret['columns'])}"
        if it["secrets_removed"]:
            yield Note(f"warning: {file} still contains these secrets; replace it with a new backup, and revoke them")
        if it["data_dir"] is None:
            if not dry_run:
                yield Note("note: the catalog records no data directory; to record the place of the files:")
                yield Note(f"  registry config data-dir URL{session.pasted_options}")
            return
        yield Note(
            f"note: the files of the datasets are expected in {it['data_dir']}; to compare them with the catalog:"
        )
        yield Note(f"  registry verify --all{session.pasted_options}")

    session.out.present("restore", value, human)


def _described(facts: BackupFacts) -> str:
    tables = {"version": "dataset_version", "shard": "shard", "event": "event"}
    return ", ".join(counted(facts.rows.get(table, 0), noun) for noun, table in tables.items())
