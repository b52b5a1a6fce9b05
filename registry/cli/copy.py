"""``registry copy``: copies versions to another catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, joint_exit_code, session_command, version_values
from registry.cli.completion import complete_reference
from registry.cli.options import dry_run_option
from registry.cli.output import size
from registry.cli.progress import show_progress
from registry.envelope import fields_of
from registry.errors import UsageError
from registry.splits import counted

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.api.reports import CopiedVersion


@session_command("copy", engine="copying")
@click.argument("references", metavar="[REF]...", nargs=-1, shell_complete=complete_reference)
@click.option("--all", "every", is_flag=True, help="Copy every version that is not dropped, including yanked ones.")
@click.option(
    "--to", "target", metavar="CATALOG", required=True, help="Database URL or SQLite file of the other catalog."
)
@click.option(
    "--to-data-dir",
    metavar="DIR",
    help="Data directory of the other catalog.  [default: $REGISTRY_DATA_DIR, else the one that it records]",
)
@dry_run_option
def copy(
    session: Session, references: tuple[str, ...], every: bool, target: str, to_data_dir: str | None, dry_run: bool
) -> int:
    """Copy versions with their files, aliases, experiments and log entries to another catalog.

    REF without a version, or with a range such as mnist:3.*, means every matching version. A version keeps its number,
    its time and its publisher. Each file is hashed while it is sent. If the command is interrupted, run it again: files
    that have arrived are not sent again. Versions that the other catalog already has are not changed, but missing files
    are copied. If the other catalog has a number with other content, the exit code is 4.

    Examples:
        registry copy mnist:3.0.1 --to lab.db
        registry copy mnist 'digits:1.*' --to postgresql://host/lab --to-data-dir s3://bucket/data
        registry copy --all --to lab.db --dry-run
    """
    if every == bool(references):
        raise UsageError("name versions, or --all alone", hint="Try: registry copy digits --to CATALOG")
    from registry.api.copying import choose_versions
    from registry.catalog import masked_url

    other = Session(url=target, data_dir=to_data_dir, out=session.out)
    with session.connect(*references) as catalog, ExitStack() as stack:
        versions = choose_versions(catalog.backend, None if every else list(references))
        to = stack.enter_context(other.connect_to_publish(dry_run=dry_run))  # last: a mistyped REF creates no catalog
        if to_data_dir is None and to.data_dir == catalog.data_dir:  # e.g. both are $REGISTRY_DATA_DIR
            session.out.note(
                f"note: both catalogs use the data directory {to.data_dir}, so existing files are not copied. "
                "To copy them: --to-data-dir DIR"
            )
        with show_progress(session.out) as progress:
            report = catalog.copy(
                versions,
                to,
                dry_run=dry_run,
                progress=progress,
                each=lambda row: session.out.tell(_describe(row)),
            )
        value = {
            "to": masked_url(other.catalog_url),  # a dry run creates no catalog, and uses a temporary one
            "data_dir": to.data_dir,
            "dry_run": dry_run,
            "versions": list(map(_version_values, report)),
        }
    session.out.present("copy", value, lambda _: ())
    return joint_exit_code(version.error.exit_code for version in report.failed if version.error is not None)


def _describe(version: CopiedVersion) -> Iterator[str]:
    files = (
        f"{counted(version.num_examples, 'example')}, {counted(version.num_shards, 'file')}, {size(version.num_bytes)}"
    )
    attachments = counted(version.num_attachments, "attachment") if version.num_attachments else ""
    files += f", {attachments}" * bool(attachments)
    subject = f"missing files of {version.reference}" if version.only_files else str(version.reference)
    match version.outcome.value:
        case "copied":
            yield f"copied {subject} to {version.folder} ({files})"
        case "found":
            yield f"would copy {subject} to {version.folder} ({files})"
        case "known":
            yield f"{version.reference} already exists" + f", except {attachments}" * bool(attachments)
        case _:
            yield f"{version.reference}: not copied: {'' if version.error is None else version.error.message}"
            if version.error is not None and version.error.hint is not None:
                yield f"  {version.error.hint}"
    yield from (f"  note: {note}" for note in version.notes)


def _version_values(version: CopiedVersion) -> dict[str, Any]:
    return {
        **version_values(version.reference),
        **fields_of(version, "outcome", "folder", "num_examples", "num_shards", "num_bytes"),
        **fields_of(version, "num_attachments", "only_files", "notes"),
        "canonical": None if version.promotion is None else version.promotion.after,
        "error": version.error,
    }
