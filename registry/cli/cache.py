"""``registry cache``: shows, fills and clears the cache: files of other machines, and decoded columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.commands import Session, documented, session_command, version_values
from registry.cli.completion import complete_split
from registry.cli.options import Slicing, columns_option, dry_run_option, reference_argument, slicing_options
from registry.cli.output import Fields, size
from registry.cli.progress import show_progress
from registry.cli.publish import note_second_copy
from registry.envelope import fields_of
from registry.errors import UsageError
from registry.splits import counted

if TYPE_CHECKING:
    from registry.features import ImageDecoding

_PIXELS: Final = re.compile(
    r"(?P<feature>[^=]+)(?:=(?=\d)(?:1/(?P<ratio>[1248]))?(?:(?:(?<==)|,)(?P<height>\d{1,9})x(?P<width>\d{1,9}))?)?"
)


@documented(click.group, "cache")
def cache() -> None:
    """Show, fill and clear the cache: files of other machines, and decoded columns.

    Reads store the files that they fetch from buckets and web servers in REGISTRY_CACHE_DIR, up to
    REGISTRY_CACHE_BYTES. The least recently used files are deleted first. The cache can be deleted at any time.

    Examples:
        registry cache show
        registry cache fetch mnist:3.0.1 'train[:10%]'
        registry cache build mnist:3.0.1 train
    """


@session_command("show", group=cache, catalog=False)
def show(session: Session) -> None:
    """Show the folder of the cache, its size and its limit.

    Examples:
        registry cache show
        registry cache show --format json
    """
    from registry.api import cache as open_cache

    found = open_cache()
    usage = fields_of(found.usage(), "num_files", "num_blocks", "num_columns", "num_bytes", "max_bytes")
    value = {"folder": str(found.folder), **usage}
    session.out.present(
        "cache.show",
        value,
        lambda it: [
            Fields(
                {
                    "folder": it["folder"],
                    "size": size(it["num_bytes"]),
                    "limit": size(it["max_bytes"]) if it["max_bytes"] else "switched off",
                    "parts of": counted(it["num_files"], "file"),
                    "columns": f"{it['num_columns']:,}",
                }
            )
        ],
    )


@session_command("clear", group=cache, catalog=False)
@dry_run_option
def clear(session: Session, dry_run: bool) -> None:
    """Delete everything in the cache. Running reads continue from the store.

    Examples:
        registry cache clear --dry-run
    """
    from registry.api import cache as open_cache

    found = open_cache()
    before = fields_of(found.clear(dry_run=dry_run), "num_files", "num_blocks", "num_columns", "num_bytes")
    verb = "would delete" if dry_run else "deleted"
    session.out.present(
        "cache.clear",
        {"folder": str(found.folder), "dry_run": dry_run, **before},
        lambda it: [f"{verb} {size(it['num_bytes'])} of {it['folder']}"],
    )


@session_command("fetch", group=cache, at=True, locked=True)
@reference_argument
@click.argument("split", metavar="[SPLIT]", required=False, shell_complete=complete_split)
@slicing_options
def fetch(session: Session, reference: str, split: str | None, *, slicing: Slicing) -> None:
    """Fetch the files of REF, or only those with the records of SPLIT, to read them later without the store.

    Each file is compared with its published sha256. Reading an exact version or a pin, in any order, then sends no
    request to the store.

    Examples:
        registry cache fetch mnist:3.0.1
        registry cache fetch mnist:3.0.1 'train[:10%]'
        REGISTRY_LOCKED=dataset.lock.yaml registry cache fetch mnist
    """
    with session.dataset(reference) as dataset, show_progress(session.out) as progress:
        report = dataset.fetch(split, **slicing, progress=progress)
    value = {
        **version_values(report.reference),
        **fields_of(report, "split", "num_files", "num_bytes", "num_new_bytes", "folder"),
    }

    def human(it: dict[str, Any]) -> list[str]:
        subject = f"{report.reference}{f' {report.split}' if report.split else ''}"
        files = f"{counted(it['num_files'], 'file')} ({size(it['num_bytes'])})"
        if it["folder"] is None:
            return [f"{subject}: {files} on this machine: nothing to fetch"]
        return [f"{subject}: {files} in the cache, {size(it['num_new_bytes'])} of which were fetched now"]

    session.out.present("cache.fetch", value, human)


@session_command("build", group=cache, at=True, locked=True)
@reference_argument
@click.argument("split", metavar="[SPLIT]", required=False, shell_complete=complete_split)
@columns_option
@click.option(
    "--pixels",
    multiple=True,
    metavar="FEATURE[=1/N][,HxW]",
    help="Keep an image as pixels: whole, at 1/2, 1/4 or 1/8 of its size, or cropped to the centre H x W pixels.",
)
def build(
    session: Session, reference: str, split: str | None, *, columns: list[str] | None, pixels: tuple[str, ...]
) -> None:
    """Keep the decoded columns of REF, or of one SPLIT, so that reads of any slice need not decode records.

    They are plain .npy files in the cache. Images and sounds are kept as their files, which each read decodes; --pixels
    keeps the pixels of an image. If the command was interrupted, run it again to continue.

    Examples:
        registry cache build mnist:3.0.1
        registry cache build mnist:3.0.1 train --columns image,label
        registry cache build photos --pixels image=1/4,56x56
    """
    decodings = dict(map(_read_pixels, pixels))
    with session.dataset(reference) as dataset:
        with show_progress(session.out) as progress:
            report = dataset.keep_columns(split, columns=columns, pixels=decodings, progress=progress)
        if not decodings:  # pixels are not attached
            note_second_copy(session, dataset, report)
    names = ("splits", "features", "num_examples", "num_columns", "num_new_columns", "num_bytes", "folder")
    value = {**version_values(report.reference), **fields_of(report, *names)}

    def human(it: dict[str, Any]) -> list[str]:
        kept = f"{counted(it['num_columns'], 'column')} of {counted(it['num_examples'], 'record')}"
        new = "all existed before" if not it["num_new_columns"] else f"{it['num_new_columns']:,} of them new"
        return [f"{report.reference} {'+'.join(report.splits)}: {kept} ({size(it['num_bytes'])}) in the cache, {new}"]

    session.out.present("cache.build", value, human)


def _read_pixels(text: str) -> tuple[str, ImageDecoding]:
    """A feature and how it is decoded: ``image``, ``image=1/4``, ``image=56x56`` or ``image=1/4,56x56``."""
    from registry.features import ImageDecoding

    parts = _PIXELS.fullmatch(text)
    if parts is None:
        raise UsageError(
            f"cannot read --pixels {text!r:.80}",
            hint="Write a feature and, optionally, how to decode it: image, image=1/4, image=56x56 or image=1/4,56x56.",
        )
    crop = None if parts["height"] is None else (int(parts["height"]), int(parts["width"]))
    return parts["feature"], ImageDecoding(ratio=int(parts["ratio"] or 1), crop=crop)
