"""``registry import``: catalogs datasets that others prepared. Subcommands are imported when they are run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.browse import feature_lines
from registry.cli.commands import Session, joint_exit_code, session_command, version_values
from registry.cli.lazy_group import LazyGroup
from registry.cli.options import promote_option
from registry.cli.output import Block, Column, Note, Table, size
from registry.cli.progress import show_progress
from registry.cli.publish import describe_promotion, present_publication, promotion_values
from registry.envelope import fields_of
from registry.model import Reference
from registry.splits import counted

if TYPE_CHECKING:
    from registry.api.reports import ImportedVersion
    from registry.catalog import Promotion
    from registry.prepared import PreparedDataset


_COMMANDS: Final = {
    "tfds": ("registry.cli.import_:tfds", "Import a version, a dataset, or a whole data_dir that TFDS prepared."),
    "parquet": ("registry.cli.import_:parquet", "Import a folder of Parquet shards."),
    "earth-engine": ("plugin:import.earth-engine", "Import an export of Earth Engine: its TFRecords and their mixer."),
}


@click.group("import", cls=LazyGroup, table=_COMMANDS)
def import_() -> None:
    """Import datasets that other tools prepared: in place, or as copies in the data directory."""


@session_command("parquet", engine="importing")
@click.argument("folder", metavar="DIR")
@click.option("--name", metavar="N", help="Name of the dataset.  [default: from the folder's name]")
@click.option("--version", metavar="V", default="1.0.0", show_default=True, help="Number of the version.")
@click.option("--config", metavar="C", help="Name of the config, if the dataset has configs.")
@click.option("--copy", is_flag=True, help="Copy the shards into the data directory. Otherwise, DIR must not change.")
@promote_option
@click.option(
    "--dry-run", is_flag=True, help="Show the version that would be published, without verifying shards or writing."
)
def parquet(session: Session, folder: str, *, promote: bool | None, dry_run: bool, **options: Any) -> None:
    """Publish the Parquet shards in DIR: read the types of their columns, verify every shard, write one row.

    DIR, or one folder in it, contains files like train-00000-of-00005.parquet, or test.parquet if a split is one file.
    Each row is an example, and each column a feature. DIR is not changed, and is read in place unless you add --copy.

    Examples:
        registry import parquet ./mnist --dry-run
        registry import parquet ./mnist
        registry import parquet ./mnist --name mnist --version 2.0.0 --copy
        registry import parquet ./translations/de --name translations --config de
    """
    if dry_run:
        with session.connect_to_publish(dry_run=True) as catalog:
            prepared = catalog.preview_parquet(folder, **options)
            published = catalog.published_digest(prepared.reference)
        _present_prepared(session, prepared, published)
        return
    with session.connect_to_publish() as catalog, show_progress(session.out) as progress:
        publication = catalog.import_parquet(folder, promote=promote, progress=progress, **options)
    present_publication(session, publication)


def _present_prepared(session: Session, prepared: PreparedDataset, published: str | None) -> None:
    """Print the version that would be published; ``published`` is the digest of a version with the same number."""
    from registry.features import features_to_json

    reference = prepared.reference
    value = {
        **version_values(reference),
        "published": None if published is None else f"sha256:{published}",
        "num_examples": sum(split.num_examples for split in prepared.splits),
        "splits": [fields_of(split, "name", "num_examples", "num_shards") for split in prepared.splits],
        "features": json.loads(features_to_json(prepared.features)),
    }

    def human(it: dict[str, Any]) -> Iterator[Block]:
        yield f"{reference}: {counted(it['num_examples'], 'example')}"
        yield ""
        yield Table(it["splits"], {"SPLIT": "name", "EXAMPLES": "num_examples", "SHARDS": "num_shards"})
        yield ""
        yield from feature_lines(prepared.features)
        yield ""
        if published is None:
            yield "not published yet"
        else:
            yield f"a version with this number is already published (sha256:{published[:12]})"

    session.out.present("import.parquet", value, human)


@session_command("tfds", engine="importing")
@click.argument("folder", metavar="DIR")
@click.option("--name", metavar="N", help="Name of the dataset in the catalog.  [default: the name in its files]")
@click.option("--copy", is_flag=True, help="Copy the files into the data directory.  [default: read them in place]")
@click.option(
    "--trust-lengths",
    is_flag=True,
    help="Only hash the files, and trust the numbers of records in dataset_info.json: no record is read.",
)
@promote_option
@click.option("--dry-run", is_flag=True, help="Only show which versions were found.")
def tfds(session: Session, folder: str, *, dry_run: bool, **options: Any) -> int:
    """Import versions that TFDS prepared in DIR: the folder of a version, of a dataset, or a whole data_dir.

    Every shard is hashed, its records are counted and checked, and the values are fingerprinted. A version whose files
    contradict its dataset_info.json is refused; the others are imported. Importing again changes nothing. Slices of an
    imported version are the same as in TFDS (slicing rule tfds-4).

    Examples:
        registry import tfds ~/tensorflow_datasets --dry-run
        registry import tfds ~/tensorflow_datasets
        registry import tfds ~/tensorflow_datasets/mnist --no-promote
        registry import tfds ~/tensorflow_datasets/mnist/3.0.1 --copy
        registry import tfds ~/tensorflow_datasets/mnist/plain --name mnist_configs
        registry import tfds s3://my-bucket/datasets/imagenet2012 --trust-lengths
    """
    with session.connect_to_publish(dry_run=dry_run) as catalog, show_progress(session.out) as progress:
        report = catalog.import_tfds(folder, dry_run=dry_run, progress=progress, **options)
    for version in report:
        for note in version.notes:
            session.out.note(f"note: {version.reference}: {note}")
    value = {"dry_run": dry_run, "versions": list(map(_imported_values, report))}

    def human(it: dict[str, Any]) -> Iterator[Block]:
        columns: dict[str, Column] = {
            "VERSION": lambda row: f"{row['dataset']}:{row['version']}" if row["dataset"] else row["folder"],
            "OUTCOME": "outcome",
            "EXAMPLES": "num_examples",
            "SHARDS": "num_shards",
            "SIZE": lambda row: size(row["num_bytes"]),
        }
        yield Table(it["versions"], columns)
        for version in report:
            if version.error is not None:
                yield Note(f"refused {version.reference or version.folder}: {version.error.message}")
                if version.error.hint:
                    yield Note(f"hint: {version.error.hint}")
        for reference, promotion in last_promotions(report).items():
            yield describe_promotion(session, reference, promotion)

    session.out.present("import.tfds", value, human)
    return joint_exit_code(version.error.exit_code for version in report if version.error is not None)


def last_promotions(versions: Sequence[ImportedVersion]) -> dict[Reference, Promotion]:
    """For each dataset and config: which version became canonical and which it replaced, or why none did."""
    ends: dict[str, tuple[Reference, Promotion]] = {}
    for version in versions:
        if version.reference is None or version.promotion is None:
            continue
        before = ends.get(version.reference.dataset)
        if before is None:
            ends[version.reference.dataset] = version.reference, version.promotion
        elif version.promotion.reason is None:
            ends[version.reference.dataset] = version.reference, replace(version.promotion, before=before[1].before)
        elif before[1].reason is not None:  # keep the highest version that could be promoted
            ends[version.reference.dataset] = version.reference, version.promotion
    return dict(ends.values())


def _imported_values(version: ImportedVersion) -> dict[str, Any]:
    reference, error = version.reference, version.error
    return {
        "folder": version.folder,
        "dataset": None if reference is None else reference.dataset,
        "version": None if reference is None else reference.request,
        **fields_of(version, "outcome", "num_examples", "num_shards", "num_bytes"),
        "promotion": None if version.promotion is None else promotion_values(version.promotion),
        "notes": version.notes,
        "outside": list(map(fields_of, version.outside)),
        "error": None if error is None else fields_of(error, "code", "message", "hint", "details"),
    }
