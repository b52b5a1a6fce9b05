"""``registry import tfds``: catalog what TFDS prepared, and say of each version what became of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from registry.cli.options import Session, examples, session_command
from registry.cli.output import size
from registry.cli.progress import import_progress
from registry.cli.promotions import describe_promotion, promotion_json
from registry.errors import VerificationError
from registry.model import Reference

if TYPE_CHECKING:  # numpy is loaded when something is imported
    from registry.api.imports import ImportedVersion
    from registry.catalog import Promotion


@session_command(
    "tfds",
    epilog=examples(
        "registry import tfds ~/tensorflow_datasets --dry-run",
        "registry import tfds ~/tensorflow_datasets",
        "registry import tfds ~/tensorflow_datasets/mnist/3.0.1 --copy",
        "registry import tfds ~/tensorflow_datasets/mnist/plain --name mnist_configs",
        "registry import tfds s3://my-bucket/datasets/imagenet2012 --trust-lengths",
    ),
)
@click.argument("folder", metavar="DIR")
@click.option("--name", metavar="N", help="Name of the dataset in the catalog.  [default: the name in its files]")
@click.option(
    "--copy", is_flag=True, help="Copy the files into the data directory.  [default: read them where they lie]"
)
@click.option(
    "--trust-lengths",
    is_flag=True,
    help="Only hash the files, and trust dataset_info.json for the number of records: no record is read.",
)
@click.option("--dry-run", is_flag=True, help="Show which versions there are; open no shard, write nothing.")
def command(session: Session, folder: str, name: str | None, *, copy: bool, trust_lengths: bool, dry_run: bool) -> int:
    """Catalog what TFDS prepared in DIR: one version's folder, a dataset's, or a whole data_dir.

    Every shard is hashed, its records are counted and checked, and the values are fingerprinted. A version whose files
    are not what its dataset_info.json says is refused, and the others are imported. Importing again is harmless.
    Slices of an imported version are what TFDS resolves (slicing rule tfds-4).
    """
    with session.connect() as catalog, import_progress(session.out, passes=1 if trust_lengths else 2) as progress:
        found = list(
            catalog.import_tfds(
                folder, name=name, copy=copy, trust_lengths=trust_lengths, dry_run=dry_run, progress=progress
            )
        )
    for version in found:
        for note in version.notes:
            session.out.note(f"note: {version.reference}: {note}")
    session.out.result(
        "import.tfds", {"dry_run": dry_run, "versions": list(map(_to_json, found))}, lambda: _print(session, found)
    )
    codes = {version.error.exit_code for version in found if version.error is not None}
    return VerificationError.exit_code if VerificationError.exit_code in codes else max(codes, default=0)


def _print(session: Session, found: list[ImportedVersion]) -> None:
    rows = [
        (
            str(version.reference or version.folder),
            str(version.outcome),
            version.num_examples,
            version.num_shards,
            size(version.num_bytes),
        )
        for version in found
    ]
    session.out.table(("VERSION", "OUTCOME", "EXAMPLES", "SHARDS", "SIZE"), rows)
    for version in found:
        if version.error is not None:
            session.out.note(f"refused {version.reference or version.folder}: {version.error.message}")
            if version.error.hint:
                session.out.note(f"hint: {version.error.hint}")
    for reference, promotion in last_promotions(found).items():
        session.out.line(describe_promotion(session, reference, promotion))


def last_promotions(found: list[ImportedVersion]) -> dict[Reference, Promotion]:
    """What became canonical of each dataset and config, and what it replaced; where nothing did, why."""
    ends: dict[str, tuple[Reference, Promotion]] = {}
    for one in found:
        if one.reference is None or one.promotion is None:
            continue
        before = ends.get(one.reference.dataset)
        if before is None:
            ends[one.reference.dataset] = one.reference, one.promotion
        elif one.promotion.reason is None:
            ends[one.reference.dataset] = one.reference, replace(one.promotion, before=before[1].before)
        elif before[1].reason is not None:  # the highest that could be promoted
            ends[one.reference.dataset] = one.reference, one.promotion
    return dict(ends.values())


def _to_json(version: ImportedVersion) -> dict[str, Any]:
    error = version.error
    return {
        "folder": version.folder,
        "dataset": None if version.reference is None else version.reference.dataset,
        "version": None if version.reference is None else str(version.reference.request),
        "outcome": str(version.outcome),
        "num_examples": version.num_examples,
        "num_shards": version.num_shards,
        "num_bytes": version.num_bytes,
        "promotion": None if version.promotion is None else promotion_json(version.promotion),
        "notes": list(version.notes),
        "error": None
        if error is None
        else {"code": error.code, "message": error.message, "hint": error.hint, "details": error.details},
    }
