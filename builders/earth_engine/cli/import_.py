"""``registry import earth-engine``: publishes the exports in a folder as a version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from registry.builders.earth_engine.cli.inspect import describe_export, export_json
from registry.builders.earth_engine.cli.options import (
    band_option,
    layout_options,
    patch_option,
    read_pairs,
    read_shapes,
)
from registry.cli import (
    Block,
    Session,
    describe_publication,
    promote_option,
    promotion_values,
    session_command,
    show_progress,
    version_values,
)
from registry.errors import UsageError
from registry.splits import counted

if TYPE_CHECKING:  # numpy is loaded when something is imported
    from registry.builders.earth_engine.stored.importing import ImportPlan
    from registry.publishing import Publication


def _read_prefixes(
    _context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> str | dict[str, str] | None:
    """Return one prefix, or a mapping of split to prefix, which may contain equal signs."""
    if len(texts) == 1 and "=" not in texts[0]:
        return texts[0]
    if plain := [text for text in texts if "=" not in text]:
        raise UsageError(
            f"expected SPLIT=PREFIX for each of several prefixes, found {plain[0]!r}",
            hint=f"For example: --prefix train={plain[0]}",
            details={"option": "prefix"},
        )
    return read_pairs(texts, option, split=str.partition) or None


@session_command("earth-engine", engine="importing")
@click.argument("folder", metavar="DIR|FILE")
@click.option(
    "--prefix",
    metavar="[SPLIT=]P",
    multiple=True,
    callback=_read_prefixes,
    help="Prefix of an export; to import several as splits: SPLIT=P.",
)
@click.option("--split", metavar="S", default="train", show_default=True, help="Name of the split of a single export.")
@click.option("--name", metavar="N", help="Name of the dataset.  [default: from the prefix or the folder]")
@click.option("--version", metavar="V", default="1.0.0", show_default=True, help="Version number.")
@click.option("--config", metavar="C", help="Name of the config, if the dataset has several.")
@click.option("--description", metavar="TEXT", default="", help="Description of the dataset.")
@band_option("import")
@patch_option
@click.option(
    "--shape",
    "shapes",
    metavar="COLUMN=H,W",
    multiple=True,
    callback=read_shapes,
    help="Shape of a table's array column.",
)
@layout_options
@click.option("--copy", is_flag=True, help="Copy the files into the data directory; without it, keep DIR unchanged.")
@promote_option
@click.option("--dry-run", is_flag=True, help="Read all records and show what would be published; write nothing.")
def command(session: Session, folder: str, *, promote: bool | None, dry_run: bool, **given: Any) -> None:
    """Publish Earth Engine exports as a version. Check that their files are complete, and keep the mixer.

    DIR|FILE is a folder, or one file of an export in it. Bands, data types, tile size and overlap are inferred from the
    records and reported. Without --copy, the version reads the files in DIR, so keep them unchanged.

    Examples:
        registry import earth-engine exports/ --dry-run
        registry import earth-engine exports/ --prefix area --name area
        registry import earth-engine exports/ --prefix train=training_patches --prefix eval=eval_patches
        registry import earth-engine samples.tfrecord.gz --shape patch=16,16 --copy
    """
    from registry.builders.earth_engine.stored.importing import preview_export

    with session.connect_to_publish(dry_run=dry_run) as catalog:
        if given["copy"]:
            catalog.require_data_dir()  # before all records are read
        with show_progress(session.out) as progress:
            plan = preview_export(folder, progress=progress, **given)
        if plan.is_derived:
            catalog.require_same_source(plan.prepared, folder)
        if dry_run:
            _print(session, plan, None, catalog.published_digest(plan.prepared.reference))
            return
        with show_progress(session.out) as progress:
            publication = plan.publish(catalog, promote=promote, progress=progress)
    _print(session, plan, publication, None)


def _print(session: Session, plan: ImportPlan, publication: Publication | None, published: str | None) -> None:
    """Print the exports and what was published; without a ``publication``, what would be published."""
    reference = plan.prepared.reference
    num_examples = sum(split.num_examples for split in plan.prepared.splits)
    session.out.notes(plan.notes)
    data: dict[str, Any] = {
        **version_values(reference),
        "num_examples": num_examples,
        "splits": {split.name: split.num_examples for split in plan.prepared.splits},
        "exports": {split: export_json(export) for split, export in plan.exports.items()},
        "notes": list(plan.notes),
    }
    if publication is None:
        data |= {"dry_run": True, "published": None if published is None else f"sha256:{published}"}
    else:
        digest = f"sha256:{publication.version.content_digest}"
        promotion = promotion_values(publication.promotion)
        data |= {"dry_run": False, "newly": publication.newly, "content_digest": digest, "promotion": promotion}

    def human(_: object) -> Iterator[Block]:
        for split, export in plan.exports.items():
            yield from describe_export(export, title=split)
            yield ""
        if publication is None:
            yield f"{reference}: {counted(num_examples, 'example')}"
            known = f"is already published (sha256:{published[:12]})" if published else "is not published yet"
            yield f"a version with this number {known}"
        else:
            yield from describe_publication(session, publication)

    session.out.present("import.earth-engine", data, human)
