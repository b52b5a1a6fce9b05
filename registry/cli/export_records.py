"""``registry export csv``, ``jsonl``, ``parquet``, ``arrow``, ``imagefolder`` and ``webdataset``: write records."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.commands import Session, note_overlaps, session_command, version_values
from registry.cli.completion import complete_split
from registry.cli.options import (
    Slicing,
    columns_option,
    dry_run_option,
    reference_argument,
    slicing_options,
    where_option,
)
from registry.cli.output import Block, open_stdout, size
from registry.cli.progress import show_progress
from registry.envelope import fields_of
from registry.errors import UsageError

if TYPE_CHECKING:  # numpy is loaded when something is exported
    from registry.interop.exporting import ExportKind, ExportReport
    from registry.model import ProgressCallback

_STDOUT: Final = "-"


def _refuse_output(context: click.Context, _: click.Parameter, dest: str | None) -> None:
    """Other commands, such as ``export croissant``, have ``-o FILE``."""
    if dest is not None:
        command = f"{context.command_path} REF {shlex.quote(dest)}"
        raise UsageError("the output file is an argument, not an option", hint=f"Write: {command}")


def _export_command(kind: ExportKind, *, labels: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Define a command that exports records; ``labels`` describes the default of ``--labels``."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        for option in reversed(
            (
                reference_argument,
                click.argument("dest", metavar="DEST", type=click.Path(allow_dash=True)),
                click.option(
                    "--split",
                    metavar="SPLIT",
                    shell_complete=complete_split,
                    help="The records to write, e.g. 'train[:10%]+test'.  [default: a file for each split]",
                ),
                click.option("-o", "--output", hidden=True, is_eager=True, expose_value=False, callback=_refuse_output),
                columns_option,
                where_option,
                click.option(
                    "--labels",
                    type=click.Choice(["names", "numbers"]),
                    help=f"Write class labels as names or as numbers.  [default: {labels}]",
                ),
                click.option("--force", is_flag=True, help="Replace files that exist."),
                dry_run_option,
                slicing_options,
            )
        ):
            function = option(function)
        return session_command(kind, at=True, locked=True)(function)

    return decorate


@_export_command("csv", labels="names")
def csv(session: Session, **options: Any) -> None:
    """Write records as CSV: with a header, texts in quotes, nulls as empty cells without quotes.

    With --split, DEST is one file; - is stdout. Without it, DEST is a folder, in which each split becomes SPLIT.csv; if
    there is only one split, DEST may be a .csv or .csv.gz file. Dates and times are ISO 8601 texts. CSV cannot
    represent lists, arrays, images and dicts: leave them out with --columns, or export another format.

    Examples:
        registry export csv prices prices.csv
        registry export csv prices:1.0.0 head.csv.gz --split 'train[:10%]+test'
        registry export csv prices - --split train | head
        registry export csv prices dear.csv --where 'price > 100'
    """
    _export(session, "csv", **options)


@_export_command("jsonl", labels="names")
def jsonl(session: Session, **options: Any) -> None:
    """Write records as JSON lines: one JSON object on each line.

    With --split, DEST is one file; - is stdout. Without it, DEST is a folder, in which each split becomes SPLIT.jsonl;
    if there is only one split, DEST may be a .jsonl or .jsonl.gz file. Dates and times are ISO 8601 texts. Files of
    images and sounds, and bytes that are not UTF-8, become {"base64": ...}; NaN and infinities become "nan", "inf" and
    "-inf".

    Examples:
        registry export jsonl reviews reviews.jsonl.gz
        registry export jsonl reviews - --split 'train[:100]' | jq .text
    """
    _export(session, "jsonl", **options)


@_export_command("parquet", labels="numbers, whose names are in the schema")
def parquet(session: Session, **options: Any) -> None:
    """Write records as Parquet, with the schema metadata of Hugging Face's datasets.

    With --split, DEST is one file. Without it, DEST is a folder, in which each split becomes SPLIT.parquet; if there is
    only one split, DEST may be a .parquet file. Images and sounds are the bytes of their files.

    Examples:
        registry export parquet mnist mnist/
        registry export parquet mnist s3://bucket/mnist-test.parquet --split test
    """
    _export(session, "parquet", **options)


@_export_command("arrow", labels="numbers, whose names are in the schema")
def arrow(session: Session, **options: Any) -> None:
    """Write records in Arrow IPC's file format (Feather), with the schema metadata of Hugging Face's datasets.

    With --split, DEST is one file. Without it, DEST is a folder, in which each split becomes SPLIT.arrow; if there is
    only one split, DEST may be a .arrow file. Images and sounds are the bytes of their files.

    Examples:
        registry export arrow mnist mnist/
        registry export arrow mnist test.feather --split test
    """
    _export(session, "arrow", **options)


@_export_command("imagefolder", labels="names")
def imagefolder(session: Session, **options: Any) -> None:
    """Write records as a folder of images, DEST/SPLIT/CLASS/000017.png, as Hugging Face's imagefolder reads it.

    With --split, the folders of classes are in DEST itself. The images are the stored files, named by the numbers of
    their records. If there are other features, metadata.jsonl contains them, and the class, for each file.

    Examples:
        registry export imagefolder mnist mnist/
        registry export imagefolder mnist some/ --split 'train[:10%]' --labels numbers
    """
    _export(session, "imagefolder", **options)


@_export_command("webdataset", labels="numbers")
@click.option(
    "--shard-size",
    type=click.IntRange(min=1),
    metavar="MIB",
    help="The maximum size of a tar in MiB, unless a single record is larger.  [default: 512]",
)
def webdataset(session: Session, shard_size: int | None, **options: Any) -> None:
    """Write records as tars of files, DEST/SPLIT-000000.tar ..., as WebDataset reads them.

    With --split, the tars are named after the dataset. Each record is a group of files with the same key: the image or
    sound (.png, .jpg, .wav ...), the class (.cls), the text (.txt) and the other features (.json). The same records
    give the same bytes.

    Examples:
        registry export webdataset mnist mnist/
        registry export webdataset mnist s3://bucket/mnist --split train --shard-size 1000
    """
    _export(session, "webdataset", shard_bytes=None if shard_size is None else shard_size * 2**20, **options)


def _export(
    session: Session,
    kind: ExportKind,
    *,
    reference: str,
    dest: str,
    split: str | None,
    slicing: Slicing,
    **options: Any,
) -> None:
    to_stdout = dest == _STDOUT
    if to_stdout and session.out.as_json:
        raise UsageError(
            "records and the JSON of --format json cannot both go to stdout", hint="Name a file instead of -."
        )
    with session.dataset(reference) as dataset:
        if split is not None:
            note_overlaps(session.out, dataset.resolve(split, **slicing))
        with open_stdout() as stdout, _progress(session, to_stdout=to_stdout) as progress:
            try:
                place = stdout if to_stdout else dest
                report = dataset.export(kind, place, split=split, progress=progress, **slicing, **options)
            except BrokenPipeError:  # the reader of stdout has closed it
                return
    files = [fields_of(file, "path", "split", "num_records", "num_bytes") for file in report.files]
    value = {**version_values(dataset.reference), **fields_of(report, "num_records", "num_bytes", "dry_run")}

    def human(_: object) -> Iterator[Block]:
        return iter(()) if to_stdout else _lines(report, is_relative=not (dest.startswith(("/", "~")) or "://" in dest))

    session.out.present(f"export.{kind}", {**value, "files": files}, human)


def _progress(session: Session, *, to_stdout: bool) -> AbstractContextManager[ProgressCallback | None]:
    """A bar, unless the terminal shows the records."""
    return nullcontext() if to_stdout and sys.stdout.isatty() else show_progress(session.out)


def _lines(report: ExportReport, *, is_relative: bool) -> Iterator[str]:
    """A line for each file, with a relative path if DEST was relative."""
    for file in report.files:
        path = os.path.relpath(file.path) if is_relative else file.path
        records = f"{file.num_records:,} record{'s' * (file.num_records != 1)}"
        if file.num_bytes is None:
            yield f"would write {path}: {records} of {file.split}"
        else:
            yield f"wrote {path}: {records} of {file.split}, {size(file.num_bytes)}"
