"""``registry add``: publishes data that has no builder class."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.browse import describe_diff
from registry.cli.commands import Session, session_command, version_values
from registry.cli.options import (
    description_options,
    keep_columns_option,
    processes_option,
    promote_option,
    show_option,
    with_columns_option,
)
from registry.cli.output import Block, Note, Table
from registry.cli.progress import show_progress
from registry.cli.publish import describe_publication, keep_published, promotion_values
from registry.envelope import fields_of
from registry.errors import AlreadyStoredError, UsageError
from registry.model import DescriptionArguments, VersionStatus
from registry.splits import counted

if TYPE_CHECKING:
    from registry.api.adding import Addition
    from registry.api.reports import AddReport
    from registry.intake.plan import Plan
    from registry.publishing import RecordOverlap

_PUBLISHING: Final = ("bump", "number", "reason", "promote", "processes", "show")
"""The options of ``Addition.publish``. The others describe the source."""

_MOST_COLUMNS = 50
_MOST_OF_TYPE = 100
_MOST_FILES = 20
_EXAMPLES = {
    "--feature": "--feature label=ClassLabel",
    "--split": "--split 'train=2019/*'",
    "--rename-split": "--rename-split train.100=train_100",
    "--rename-column": "--rename-column 'Sepal Length=sepal_length'",
    "--rename-config": "--rename-config 'en (US)=en_US'",
}
# Column names and class names may contain "=": --feature a=b=Text, --feature 'label=ClassLabel(a=b, c)'
_TYPED: Final = re.compile(r"(.*?)=(\s*(?:[A-Za-z_]\w*\s*(?:[(\[].*[)\]]\s*)?\??|\?)\s*)", re.DOTALL)


def _pairs(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    """Read options of the form NAME=VALUE."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if param.name == "features" and (typed := _TYPED.fullmatch(text)):
            name, value = typed.groups()
        # A column without a name can be left out, or named: --feature =skip
        if not equals or not value or not (name or param.name in ("features", "rename_columns")):
            raise UsageError(
                f"{param.opts[0]} {text}: expected {param.metavar}", hint=f"For example: {_EXAMPLES[param.opts[0]]}"
            )
        if name in pairs:
            raise UsageError(f"{param.opts[0]} {name} is given twice", hint="Leave one of them out.")
        pairs[name] = value
    return pairs


def _complete_kind(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from registry.intake.kinds import KINDS

    return [kind for kind in KINDS if kind.startswith(incomplete)]


@session_command("add", engine="adding")
@click.argument("source", metavar="SOURCE...", nargs=-1, required=True, type=click.Path(readable=False))
@click.option("--as", "name", metavar="NAME", help="Name of the dataset.  [default: from the path]")
@click.option(
    "--from",
    "kind",
    metavar="KIND",
    shell_complete=_complete_kind,
    help="Kind of the source, such as csv or images.  [default: detected]",
)
@click.option("--config", metavar="NAME", help="Config of the dataset; also the config of SOURCE to read.")
@click.option(
    "--records",
    metavar="NAME",
    help="The records to read: for a JSON object, the key of a list, or . for the object itself, which may take "
    "several lines; for Croissant, a record set.",
)
@click.option(
    "--feature",
    "features",
    multiple=True,
    callback=_pairs,
    metavar="COLUMN=TYPE",
    help="Type of a column, such as label=ClassLabel or age=int32; may be repeated.  [default: inferred from all rows]",
)
@click.option("--schema", type=click.Path(path_type=Path), metavar="FILE", help="Read the types of columns from FILE.")
@click.option("--retype", is_flag=True, help="Infer all types anew, ignoring the types of the previous version.")
@click.option("--dates", is_flag=True, help="Convert text columns in which every value is an ISO date or time.")
@click.option(
    "--path/--no-path",
    "paths",
    default=None,
    help="Store the name of the file of each record in a column path.  [default: as in the previous version; yes for "
    "images, sounds, videos, texts and WebDataset, no for tables]",
)
@click.option(
    "--schema-out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --dry-run: write the types of all columns to FILE, which you can edit and pass to --schema.",
)
@click.option(
    "--null",
    "nulls",
    multiple=True,
    metavar="TEXT",
    help="CSV: this text means null unless it is in quotes, such as NA; '\"NA\"' means null in quotes, too. "
    "May be repeated.  [default: empty fields]",
)
@click.option(
    "--header/--no-header",
    default=None,
    help="CSV: whether the first row has the names of the columns.  [default: detected]",
)
@click.option("--delimiter", metavar="CHAR", help="CSV: the character between fields, or tab.  [default: detected]")
@click.option(
    "--quotes/--no-quotes",
    default=None,
    help="CSV: whether fields may be in quotes; with --no-quotes, quotes are text.  [default: as in the previous "
    "version; yes]",
)
@click.option(
    "--encoding",
    metavar="NAME",
    help="CSV, lines: the encoding, such as WINDOWS-1252.  [default: UTF-8, or the byte order mark]",
)
@click.option(
    "--split",
    "splits",
    multiple=True,
    callback=_pairs,
    metavar="NAME=GLOB",
    help="The files of a split; may be repeated.  [default: from the names of folders and files]",
)
@click.option(
    "--rename-split",
    "rename_splits",
    multiple=True,
    callback=_pairs,
    metavar="OLD=NEW",
    help="Rename a split of SOURCE, such as train.100=train_100; may be repeated.",
)
@click.option(
    "--rename-column",
    "rename_columns",
    multiple=True,
    callback=_pairs,
    metavar="OLD=NEW",
    help="Rename a column of SOURCE; may be repeated. All other options use NEW.",
)
@click.option(
    "--rename-config",
    "rename_configs",
    multiple=True,
    callback=_pairs,
    metavar="OLD=NEW",
    help="Rename the config of SOURCE that is read.",
)
@click.option("--split-by", metavar="COLUMN", help="The column that decides the split; it is not stored.")
@click.option("--holdout", metavar="NAME=P%", help="Split off a part by the hash of the key: test=10%.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the holdout.")
@click.option(
    "--key",
    metavar="COLUMN",
    help="The column whose values are the keys.  [default: as in the previous version, file paths, or the content]",
)
@click.option(
    "--key-by",
    type=click.Choice(["path", "content"]),
    help="Derive the keys from the paths of files or from the content, regardless of the previous version.",
)
@click.option(
    "--skip-bad",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Leave out up to N rows or files that cannot be used; a list of them is stored with the version.",
)
@click.option("--bump", type=click.Choice(["patch", "minor", "major"]), help="Raise at least this part of the number.")
@click.option("--number", metavar="V", help="Publish under this number.  [default: the smallest that is allowed]")
@click.option("-m", "--reason", metavar="TEXT", default="", help="What changed: the release note of the version.")
@click.option("--in-place", is_flag=True, help="Leave the files where they are: Parquet, TFRecord, ArrayRecord.")
@click.option(
    "--replace",
    is_flag=True,
    help="Publish SOURCE as the next version even if the dataset comes from another source.",
)
@click.option("--shards", "num_shards", type=click.IntRange(min=1), metavar="N", help="Shards of each split.")
@processes_option("Processes that encode records; the bytes are the same for any N.")
@description_options
@promote_option
@click.option("--dry-run", is_flag=True, help="Show what was found and what changed, down to records; publish nothing.")
@show_option
@keep_columns_option
@with_columns_option
def add(
    session: Session,
    source: tuple[str, ...],
    *,
    name: str | None,
    schema_out: Path | None,
    dry_run: bool,
    keep_columns: bool,
    with_columns: bool,
    description: DescriptionArguments,
    **options: Any,
) -> None:
    """Publish SOURCE under the smallest version number that its changes allow.

    SOURCE is a path or URL: CSV, TSV, JSON, JSON lines, Parquet or Arrow files; a folder of images, sounds, videos or
    texts, with labels from folders or from metadata.csv; WebDataset tars; .npy and .npz files; a Hugging Face folder; a
    Croissant file; a zip or tar of any of these; or several files of one kind, such as data/*.csv. The command shows
    what it found before it writes anything.

    The first version is 1.0.0. Adding the same content again publishes nothing. Other shards of the same records are
    PATCH, a new column is MINOR, anything else is MAJOR.

    Examples:
        registry add prices.csv
        registry add ./photos --as photos --dry-run
        registry add data/*.csv --as prices
        registry add reviews.jsonl --feature stars=ClassLabel --key review_id
        registry add ./text --split 'train=2019/*' --split 'test=2020/*'
        registry add people.csv --holdout test=10% --seed 7 -m 'Data of May'
        registry add people.csv --schema people.yaml --skip-bad 3
        registry add corpus.txt --from lines
        registry add survey.csv --null NA --no-header --encoding WINDOWS-1252
        registry add hf://org/name@v1.0 --as name
        registry add ./shards --in-place --schema shards.yaml
    """
    if schema_out is not None and not dry_run:
        raise UsageError("--schema-out needs --dry-run", hint="Add --dry-run, edit the file, and pass it to --schema.")
    if schema_out is not None and schema_out.exists():
        raise AlreadyStoredError(
            f"{schema_out} already exists", hint="Name another file, or remove it.", details={"path": str(schema_out)}
        )
    *files, last = source
    if files and name is None and last.isidentifier() and not Path(last).exists() and Path(files[0]).exists():
        hint = f"If it is the name of the dataset: registry add {shlex.join(files)} --as {last}"
        raise UsageError(f"no file or folder {last!r}", hint=hint, details={"path": last})
    publishing = {option: options.pop(option) for option in _PUBLISHING}
    with session.connect_to_publish(dry_run=dry_run) as catalog:
        if not dry_run:
            catalog.backend.require_publisher()  # before all of the source is read
        with show_progress(session.out) as progress:
            addition = catalog.plan_add(
                source[0] if len(source) == 1 else source, name, progress=progress, **description, **options
            )
        session.out.tell(_describe_plan(addition))
        if schema_out is not None:
            from registry.intake.schema import write_schema_file

            with schema_out.open("w", encoding="utf-8") as stream:
                write_schema_file(addition.plan.schema, stream)
        with show_progress(session.out) as progress:
            report = addition.publish(dry_run=dry_run, progress=progress, **publishing)
            if not dry_run:
                reference = report.reference
                keep_published(session, catalog, reference, progress, attach=with_columns, keep=keep_columns)
    latest = report.latest
    if report.outcome == "unchanged" and latest and latest.status in (VersionStatus.YANKED, VersionStatus.DROPPED):
        why = f" ({latest.state_message})" if latest.state_message else ""
        session.out.note(f"note: {latest.reference} is {latest.status}{why}; --bump patch publishes the content again")
    session.out.notes(report.notes)
    if report.overlap is not None:
        session.out.note(_describe_overlap(session, report, report.overlap))
    session.out.present("add", report_values(report), lambda _: _describe_report(session, report))


def _describe_overlap(session: Session, report: AddReport, overlap: RecordOverlap) -> str:
    """A note about equal records in different splits, with which a model would be tested on its training data."""
    names, (first, *more) = list(report.splits), overlap.shared
    pairs = [f"{names[pair.first]} and {names[pair.second]}" for pair in (first, *more)]
    (split, record), (other, other_record) = first.pairs[0]
    shared = counted(first.num_values, "equal record")
    sentences = [f"{pairs[0]} share {shared}, such as {split} {record:,} = {other} {other_record:,}."]
    if more:
        others = f"; and {len(more) - 3:,} more pairs" if len(more) > 3 else ""
        sentences.append(f"So do {'; '.join(pairs[1:4])}{others}.")
    if report.outcome != "would_publish":
        splits = f"{names[first.first]} {names[first.second]}"
        sentences.append(
            f"To list them: registry split check {report.reference} {splits} --by content{session.pasted_options}"
        )
    return f"note: {' '.join(sentences)}"


def _describe_plan(addition: Addition) -> Iterator[Block]:
    """Lines about the source and the plan, before anything is written."""
    from registry.intake.records import describe_candidate
    from registry.intake.schema import describe_type

    plan = addition.plan
    source = plan.source
    if addition.name_origin:
        yield f"name: {addition.reference.name} ({addition.name_origin}; to change it: --as NAME)"
    yield f"found {source.kind}: {source.summary}"
    if plan.split_by is not None:
        yield f"splits: by the column {plan.split_by!r}, which is not stored"
    else:
        yield f"splits: {', '.join(source.splits)}" + (f" ({source.split_reason})" if source.split_reason else "")
    if plan.holdout is not None:
        yield f"holdout: {plan.holdout.fraction:.6%} for {plan.holdout.split}, seed {plan.holdout.seed}".replace(
            ".000000%", "%"
        )
    if plan.remembered:
        words = [f"{name} {value!r}" for name, value in sorted(plan.remembered.items())]
        yield f"options, as in the previous version: {', '.join(words)}"
    if plan.suggested_key is None:
        yield f"keys: {plan.rule} ({plan.rule_reason})"
    else:
        yield f"keys: {plan.rule}. {describe_candidate(plan.suggested_key, is_first=plan.is_first)}"
    yield ""
    yield Table(
        plan.schema.columns,
        {
            "FEATURE": lambda row: row.name,
            "TYPE": lambda row: _shorten(describe_type(row)),
            "EXAMPLE": lambda row: row.example,
            "NULLS": lambda row: "" if row.num_nulls is None else row.num_nulls,
            "REASON": lambda row: row.reason,
        },
        limit=_MOST_COLUMNS,
    )
    if plan.schema.skipped:
        yield f"columns left out, as requested: {', '.join(name or repr(name) for name in plan.schema.skipped)}"
    yield ""
    yield from _describe_files(plan)


def _shorten(word: str) -> str:
    """Shorten a type, such as an object with a field for each user; ``--schema-out`` and ``--format json`` do not."""
    return word if len(word) <= _MOST_OF_TYPE else f"{word[:_MOST_OF_TYPE]}…"


def _describe_files(plan: Plan) -> Iterator[Block]:
    """The files that are not records."""
    others = [file for file in plan.source.files if file.role != "records"]
    for use in others[:_MOST_FILES]:
        files = f" ({use.num_files:,} files)" if use.num_files != 1 else ""
        yield f"{use.role}: {use.name}{files}" + (f": {use.reason}" if use.reason else "")
    if len(others) > _MOST_FILES:
        yield f"and {len(others) - _MOST_FILES:,} more; --format json lists them all"


def _describe_report(session: Session, report: AddReport) -> Iterator[Block]:
    if report.num_bad:
        left_out = "1 row or file was" if report.num_bad == 1 else f"{report.num_bad:,} rows or files were"
        yield Note(f"note: {left_out} left out:")
        for row in report.bad[:20]:
            yield Note(f"  {row}")
        if report.num_bad > 20:
            yield Note(f"  and {report.num_bad - 20:,} more; --format json lists them")
    if len(report.splits) > 1 and report.outcome != "unchanged":
        yield f"examples: {', '.join(f'{name} {num:,}' for name, num in report.splits.items())}"
    if report.diff is not None and report.outcome != "unchanged":
        yield from describe_diff(report.diff)
    if report.outcome == "unchanged":
        yield f"{report.reference} already has this content: nothing was published"
    elif report.outcome == "would_publish":
        first = "" if report.latest is not None else ", the first version"
        yield f"would publish {report.reference}: {counted(report.num_examples, 'example')}{first}"
    elif report.publication is not None:
        yield from describe_publication(session, report.publication, report.diff)
    if report.outcome != "unchanged" and report.has_grown and report.latest is not None:
        before = report.latest
        name, major = before.reference.dataset, before.version.major
        subject = "the splits have grown" if report.diff is None or report.diff.unread else "only records were added"
        yield (
            f"{subject}: `{name}`, an alias or `{name}:>={min(major, 1)}` names growing data; `{name}:{major}.*` stays "
            f"at {before.version}, whose slices do not change"
        )


def report_values(report: AddReport) -> dict[str, Any]:
    """The result for programs."""
    from registry.intake.schema import describe_type

    plan, publication = report.plan, report.publication
    source = plan.source
    return {
        **version_values(report.reference),
        "outcome": report.outcome,
        "num_examples": report.num_examples,
        "splits": dict(report.splits),
        "source": {
            **fields_of(source, "kind", "summary", "split_reason"),
            "files": [
                fields_of(file, "name", "role", "reason", "split", "num_files", "num_bytes") for file in source.files
            ],
        },
        "key": plan.rule.to_json(),
        "suggested_key": report.suggested_key,
        "features": [
            {**fields_of(column, "name", "example", "num_nulls", "reason"), "type": describe_type(column)}
            for column in plan.schema.columns
        ],
        "overlap": []
        if report.overlap is None
        else [
            {
                "first": list(report.splits)[pair.first],
                "second": list(report.splits)[pair.second],
                **fields_of(pair, "num_values", "num_first", "num_second"),
            }
            for pair in report.overlap.shared
        ],
        "num_bad": report.num_bad,
        "bad": [fields_of(row, "file", "line", "column", "reason") for row in report.bad],
        "latest": None if report.latest is None else report.latest.version,
        "level": None if report.changes is None else report.changes.level.name.lower(),
        "changes": []
        if report.changes is None
        else (report.changes if report.diff is None else report.diff.changes).to_json(),
        "diff": None if report.diff is None else report.diff.to_json(),
        "content_digest": None if publication is None else f"sha256:{publication.version.content_digest}",
        "promotion": None if publication is None else promotion_values(publication.promotion),
    }
