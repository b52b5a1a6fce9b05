"""``registry build`` and ``publish``: build a version or take it from a folder, verify it and publish it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.browse import describe_diff
from registry.cli.commands import Session, session_command, version_values
from registry.cli.options import (
    builder_argument,
    description_options,
    keep_columns_option,
    processes_option,
    promote_option,
    show_option,
    with_columns_option,
)
from registry.cli.output import Block, Note, size
from registry.cli.progress import show_progress
from registry.envelope import fields_of
from registry.errors import RegistryError, UsageError, spell
from registry.model import DescriptionArguments, ProgressCallback, Reference
from registry.splits import counted

if TYPE_CHECKING:  # sqlalchemy and numpy are loaded when something is published
    from registry.api import Catalog, Dataset
    from registry.catalog import Promotion
    from registry.publishing import Preview, Publication, VersionDiff
    from registry.reading.column_filling import ColumnsReport

_COLUMNS: Final = {
    "attach": ("attach_columns", "attached to {}", "attached", "registry publish {} --with-columns"),
    "keep": ("keep_columns", "of {} kept in the cache", "kept", "registry cache build {}"),
}


@session_command("build", engine="building")
@builder_argument
@processes_option("Processes that encode examples; the bytes are the same for any N.")
@click.option(
    "--shards",
    "num_shards",
    type=click.IntRange(min=1),
    metavar="N",
    help="Shards of each split.  [default: by size and count, as TFDS does]",
)
@click.option("--rebuild", is_flag=True, help="Build even if the version is published, and compare the content.")
@click.option(
    "--finished", is_flag=True, help="Publish what an earlier run finished: its shards, or on a cluster its runs."
)
@description_options
@promote_option
@click.option(
    "--dry-run", is_flag=True, help="Build, show what changed and whether the version number allows it; keep nothing."
)
@show_option
@keep_columns_option
@with_columns_option
def build(
    session: Session,
    builder: str,
    *,
    finished: bool,
    promote: bool | None,
    dry_run: bool,
    show: int,
    keep_columns: bool,
    with_columns: bool,
    description: DescriptionArguments,
    **options: Any,
) -> int:
    """Run BUILDER: write shards, verify them, publish the version.

    BUILDER is NAME for a builder that an installed package offers under the entry point registry.builders, or
    package.module:Class for importable code. A config and a version can follow: NAME/CONFIG:VERSION. A published
    version is not built again.

    Examples:
        registry build digits
        registry build digits:1.0.0 --rebuild
        registry build digits --no-promote
        registry build my_package.my_data:MyData -j 8
        registry build 'my_package.my_data:MyData/small:1.*'
        registry build my_data --dry-run --show 20
    """
    if dry_run and finished:
        raise UsageError("--finished publishes shards, so it cannot be combined with --dry-run")
    options |= description
    with (
        session.connect_to_publish(dry_run=dry_run) as catalog,
        show_progress(session.out) as progress,
        redirect_stdout(sys.stderr),  # output of the builder is not part of the result
    ):
        if dry_run:
            preview = catalog.preview_build(builder, show=show, progress=progress, **options)
        else:
            publication = catalog.build(builder, finished=finished, promote=promote, progress=progress, **options)
            reference = publication.version.reference
            keep_published(session, catalog, reference, progress, attach=with_columns, keep=keep_columns)
    if not dry_run:
        present_publication(session, publication)
    elif preview is not None:
        return _present_preview(session, preview)
    else:
        lines = [f"{builder} is already published: nothing would be done"]
        session.out.present("preview", {"published": True, "allowed": True}, lambda _: lines)
    return 0


def keep_published(
    session: Session, catalog: Catalog, reference: Reference, progress: ProgressCallback | None, **wanted: bool
) -> None:
    """Attach or keep the columns of a version that was just published; it is published, even if that fails."""
    for name, (method, success, past, command) in _COLUMNS.items():
        if not wanted[name]:
            continue
        try:
            report = getattr(catalog.dataset(reference), method)(progress=progress)
        except RegistryError as error:
            session.out.note(f"note: {reference} is published, but its columns are not {past}: {error.message}")
        except KeyboardInterrupt:
            session.out.note(f"note: {reference} is published; {name} its columns with: {command.format(reference)}")
            raise
        else:
            columns = f"{counted(report.num_columns, 'column')} ({size(report.num_bytes)})"
            session.out.note(f"note: {columns} {success.format(reference)}")
            if name == "keep":
                note_second_copy(session, catalog.dataset(reference), report)


def note_second_copy(session: Session, dataset: Dataset, report: ColumnsReport) -> None:
    """Note that the cached columns are also attached on this machine, where reads do not need the cache."""
    is_local = dataset.folder.startswith(("/", "file:"))
    if report.num_new_columns and is_local and any(file.kind == "columns" for file in dataset.attachments):
        session.out.note(
            f"note: columns are attached to {dataset.reference} in {dataset.folder}, where they are read without the "
            "cache: the cache now has a second copy"
        )


@session_command("publish", engine="publishing")
@click.argument("folder", metavar="DIR|REF")
@description_options
@promote_option
@click.option(
    "--version-to-prepare",
    metavar="V",
    help="The last version (or commit) of the builder's code that can prepare it, if the current code cannot.",
)
@click.option("--dry-run", is_flag=True, help="Show what changed and whether the version number allows it.")
@show_option
@with_columns_option
def publish(
    session: Session,
    folder: str,
    promote: bool | None,
    version_to_prepare: str | None,
    dry_run: bool,
    show: int,
    with_columns: bool,
    description: DescriptionArguments,
) -> int:
    """Publish the prepared version folder DIR: verify every shard, check the number, copy the files, write one row.

    DIR is a version folder in TFDS's layout, with dataset_info.json, features.json and its shards. Publishing the same
    content again changes nothing. Other content under a used number is refused, and so is a number that is too small
    for the changes since the next lower version, e.g. PATCH for changed records (exit code 5).

    With --with-columns, the argument may also be the reference REF of a published version, whose columns are attached.

    Examples:
        registry publish ./prepared/mnist/3.0.1
        registry publish ./mnist/4.0.0 --no-promote
        registry publish ./mnist/3.0.2 --dry-run --show 20
        registry publish ./mnist/0.0.9 --version-to-prepare 1.0.0
        registry publish mnist:3.0.1 --with-columns
    """
    if with_columns and _is_published(session, folder):
        options = {"promote": promote, "version_to_prepare": version_to_prepare, **description}
        if unused := [name for name, value in options.items() if value not in (None, ())]:
            raise UsageError(
                f"{folder} is a published version, to which --with-columns attaches columns: "
                f"{', '.join(map(spell, unused))} cannot be used with it",
                hint="To correct its description: registry describe. To make it canonical: registry promote.",
            )
        _attach_columns(session, folder, dry_run=dry_run)
        return 0
    with session.connect_to_publish(dry_run=dry_run) as catalog, show_progress(session.out) as progress:
        if dry_run:
            preview = catalog.preview(folder, show=show, progress=progress, **description)
        else:
            publication = catalog.publish(
                folder, promote=promote, version_to_prepare=version_to_prepare, progress=progress, **description
            )
            keep_published(session, catalog, publication.version.reference, progress, attach=with_columns, keep=False)
    if dry_run:
        return _present_preview(session, preview)
    present_publication(session, publication)
    return 0


def _is_published(session: Session, text: str) -> bool:
    """Whether DIR|REF is a reference: a folder of this name may have other files, e.g. the images of the dataset."""
    if "://" in text or (Path(text) / "dataset_info.json").exists():
        return False
    if Path(text).exists():
        try:
            with session.connect() as catalog:
                catalog.dataset(text)
        except RegistryError:
            return False
    return True


def _attach_columns(session: Session, reference: str, *, dry_run: bool) -> None:
    with session.connect_to_publish(dry_run=dry_run) as catalog, show_progress(session.out) as progress:
        report = session.look_up(catalog, reference).attach_columns(dry_run=dry_run, progress=progress)
    names = ("splits", "features", "num_examples", "num_columns", "num_new_columns", "num_bytes", "folder")
    value = {**version_values(report.reference), **fields_of(report, *names), "dry_run": dry_run}

    def human(it: dict[str, Any]) -> list[str]:
        columns, new = counted(it["num_columns"], "column"), f"{it['num_new_columns']:,} of them new"
        if not it["num_new_columns"]:
            return [f"{report.reference}: {columns} ({size(it['num_bytes'])}) attached before: nothing to attach"]
        if dry_run:  # the size is unknown until they are made
            return [f"{report.reference}: {columns} would be attached, {new}"]
        return [f"{report.reference}: {columns} ({size(it['num_bytes'])}) attached, {new}"]

    session.out.present("publish.columns", value, human)


def _present_preview(session: Session, preview: Preview) -> int:
    """Print what publishing would do; returns the exit code."""
    proof, refusal = preview.proof, preview.refusal
    reference = proof.version.reference
    value = {
        **version_values(reference),
        "published": preview.is_published,
        "allowed": refusal is None,
        "smallest": proof.smallest,
        "problem": None if refusal is None else refusal.message.splitlines()[0],
        "diff": None if preview.diff is None else preview.diff.to_json(),
    }

    def human(it: dict[str, Any]) -> Iterator[Block]:
        if preview.diff is not None:
            yield from describe_diff(preview.diff)
        if refusal is not None:
            yield f"refused: {it['problem']}"
            yield refusal.hint or ""
        elif it["published"]:
            yield f"{reference} is already published: nothing would be done"
        else:
            yield f"{reference} may be published" + (f": {proof.note}" if proof.note else "")

    session.out.present("preview", value, human)
    return 0 if refusal is None else refusal.exit_code


def present_publication(session: Session, publication: Publication) -> None:
    """Print what was published, or that it was published already."""
    version = publication.version
    value = {
        **version_values(version.reference),
        "newly": publication.newly,
        "num_examples": version.num_examples,
        "splits": {split.name: split.num_examples for split in version.splits},
        "content_digest": f"sha256:{version.content_digest}",
        "proof": publication.proof.note if publication.proof else "",
        "promotion": promotion_values(publication.promotion),
        "outside": list(map(fields_of, publication.outside)),
        "recorded_data_dir": publication.recorded_data_dir,
    }
    session.out.notes(publication.notes)
    session.out.present("publish", value, lambda _: describe_publication(session, publication))


def describe_publication(
    session: Session, publication: Publication, diff: VersionDiff | None = None
) -> Iterator[Block]:
    """Lines that say what was published, why under this number, and what became canonical."""
    version = publication.version
    digest = f"sha256:{version.content_digest[:12]}"
    if publication.newly:
        num_shards = sum(split.num_shards for split in version.splits)
        yield (
            f"published {version.reference}: {counted(version.num_examples, 'example')} in "
            f"{counted(num_shards, 'shard')}, {size(publication.num_bytes)}, {digest}"
        )
        proof = publication.proof
        if proof is not None and proof.lower is not None:
            # If another version was published in the meantime, the number was proved again, against that version.
            is_same = diff is not None and diff.changes.old == proof.lower.changes.old
            note = proof.describe(diff.changes, diff.records) if diff is not None and is_same else proof.note
            yield note if note.startswith("MAJOR because") else f"proved: {note}"
    else:
        yield f"{version.reference} is already published ({digest})"
    yield describe_promotion(session, version.reference, publication.promotion)
    place = publication.recorded_data_dir
    if place is not None and not session.is_sqlite:
        yield Note(f"note: the catalog now records {place} as the data directory for all clients")


def promotion_values(promotion: Promotion) -> dict[str, Any]:
    """The effect of a publication on the canonical version."""
    return fields_of(promotion, "before", "after", "reason", "protected")


def describe_promotion(session: Session, published: Reference, promotion: Promotion) -> str:
    """The last line of a publication: what became canonical and what it replaced, or why nothing did."""
    dataset, before, after = published.dataset, promotion.before, promotion.after
    if promotion.reason is None:
        return f"canonical: {published}, " + ("the first" if before in (None, after) else f"replacing {before}")
    if after == published.exact:
        return f"canonical: {published}, as before"
    stays = f"canonical: {dataset}:{after}, as before" if after is not None else f"canonical: no version of {dataset}"
    reasons = {
        "protected": f"{promotion.protected or 'the whole catalog'} is protected",
        "lower": f"{published.exact} is lower",
        "experimental": f"{published.exact} is not the VERSION of its builder",
        "published_before": f"{published.exact} was published before",
    }
    why = reasons.get(promotion.reason, f"{published.exact} was published with --no-promote")
    return f"{stays}, because {why}. To change it: registry promote {published}{session.pasted_options}"
