"""``registry list``, ``search``, ``show``, ``versions`` and ``diff``: show the catalog and how versions differ.

Other commands use these functions to print features, differences, and why a look-up chose its version.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from registry.cli.commands import Session, session_command
from registry.cli.completion import complete_reference
from registry.cli.options import check_output, force_option, html_option, reference_argument, show_option, write_file
from registry.cli.output import Block, Column, Fields, Note, Output, Table, size
from registry.cli.progress import show_progress
from registry.envelope import fields_of
from registry.errors import NotFoundError, RegistryError, UsageError
from registry.model import Reference, VersionState, VersionStatus, counted

if TYPE_CHECKING:
    from registry.catalog import DatasetSummary, SearchHit
    from registry.features import Feature
    from registry.model import Attachment, Considered
    from registry.publishing import VersionDiff

T = TypeVar("T", bound="DatasetSummary | SearchHit")

_SHOWN: Final = 20
_MOST_STATISTICS: Final = 2**20
_SORTED: Final[dict[str, dict[str, Column]]] = {
    "date": {"PUBLISHED (UTC)": lambda row: f"{row['published_at']:%Y-%m-%d %H:%M}"},
    "size": {"SIZE": lambda row: size(row["num_bytes"])},
}
"""The additional column of a list, by its sort order."""


_all_option: Final = click.option(
    "--all", "every", is_flag=True, help="Also show datasets whose versions are all yanked or dropped."
)


@session_command("list")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only datasets with this tag; may be repeated.")
@click.option("--like", metavar="GLOB", help="Only datasets whose name, including the config, matches GLOB.")
@click.option("--owner", metavar="NAME", help="Only datasets whose listed version was published by NAME.")
@click.option(
    "--state",
    type=click.Choice([state.value for state in VersionState]),
    help="Only datasets whose listed version has this state.",
)
@click.option(
    "--sort",
    type=click.Choice(["name", "date", "size", "examples", "versions"]),
    default="name",
    show_default=True,
    help="Sort by this, newest or largest first.",
)
@_all_option
def list_(session: Session, every: bool, **conditions: Any) -> None:
    """List the datasets of the catalog by name. Datasets without records are marked as empty.

    A dataset whose versions are all yanked or dropped is hidden unless you add --all, or --state yanked or dropped.

    Examples:
        registry list
        registry list --tag images --sort size
        registry list --like 'mnist*' --all --format json
        registry list --owner alice --state deprecated
    """
    from registry.catalog import first_step

    with session.connect() as catalog:
        datasets = catalog.datasets(**conditions)
    is_whole = every or conditions["state"] in ("yanked", "dropped")
    named = [(name.removesuffix("s"), value) for name, value in conditions.items() if value and name != "sort"]
    words = [
        f"--{name} {shlex.quote(text)}"
        for name, value in named
        for text in ([value] if isinstance(value, str) else value)
    ]
    readable = datasets if is_whole else _leave_out_withdrawn(session, datasets, " ".join(["registry list", *words]))
    found = [
        fields_of(summary, "dataset", "is_protected", "canonical", "withdrawn", "latest", "status", "num_versions")
        | fields_of(summary, "num_examples", "num_bytes", "splits", "published_at", "published_by")
        | fields_of(summary, "is_withdrawn", "is_empty")
        | {"default_config": summary.is_default and summary.config is not None}
        | fields_of(summary, "description", "config_description", "config_tags")
        for summary in readable
    ]
    columns: dict[str, Column] = {
        "DATASET": "dataset",
        "VERSION": _listed_version,
        "VERSIONS": "num_versions",
        "EXAMPLES": "num_examples",
        **_SORTED.get(conditions["sort"], {}),
        "SPLITS": "splits",
        "DESCRIPTION": lambda row: first_words(row["description"]),
    }
    has_conditions = any(value not in (None, ()) for name, value in conditions.items() if name != "sort")
    nothing = (
        "No dataset meets these conditions." if has_conditions else f"The catalog is empty. {first_step(catalog.url)}"
    )
    empty = "" if datasets else nothing
    session.out.present("list", found, lambda rows: [Table(rows, columns, empty=empty)])


def _leave_out_withdrawn(session: Session, found: Sequence[T], command: str) -> Sequence[T]:
    """The datasets or hits with a readable version; a note counts the others, which ``command`` shows."""
    readable = [summary for summary in found if not summary.is_withdrawn]
    if number := len(found) - len(readable):
        hidden = "1 dataset is hidden: all its" if number == 1 else f"{number:,} datasets are hidden: all their"
        again = f"{command} --all{session.pasted_options}"
        session.out.note(
            f"note: {hidden} versions are yanked or dropped. To see {'it' if number == 1 else 'them'}: {again}"
        )
    return readable


def _listed_version(row: dict[str, Any]) -> str:
    """The canonical version, or else the highest one, with remarks on how look-ups treat it."""
    status, remark = row["status"], ""
    if status in (VersionStatus.YANKED, VersionStatus.DROPPED):
        remark = f" ({status})"
    elif row["canonical"] is None:
        withdrawn = f": {row['withdrawn']} is withdrawn" if row["withdrawn"] else ""
        remark = f" (not canonical{withdrawn})"
    if status is VersionStatus.DEPRECATED:
        remark += f" ({status})"
    remark += " (empty)" if row["is_empty"] else ""
    return f"{row['canonical'] or row['latest']}{remark}{' (protected)' if row['is_protected'] else ''}"


@session_command("search")
@click.argument("text", metavar="TEXT...", nargs=-1, required=True)
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Show the best N.")
@_all_option
def search(session: Session, text: tuple[str, ...], limit: int, every: bool) -> None:
    """Find datasets that match all words of TEXT, best match first.

    Searches names, tags, features and their labels, descriptions, licences, homepages and citations. A word matches
    every word that begins with it; case and accents are ignored. TEXT has no other syntax. If nothing is found, the
    exit code is 0, and a note lists the words without a match. A dataset whose versions are all yanked or dropped is
    hidden unless you add --all.

    Examples:
        registry search digits
        registry search handwritten dig
        registry search class_label cats --limit 5 --format json
    """
    words = " ".join(text)
    with session.connect() as catalog:
        match: Sequence[SearchHit] = catalog.search(words, limit=limit + 1)  # one more, to know whether there are more
        if not match:
            session.out.note(catalog.backend.explain_no_hits(words))
    # Hits without a readable version come last, so the limit cuts them first.
    if not every:
        match = _leave_out_withdrawn(session, match, f"registry search {shlex.join(text)}")
    if len(match) > limit:
        session.out.note(f"note: only the best {limit} are shown. Add a word to narrow the search, or raise --limit.")
    listed = [
        fields_of(hit, "dataset", "version", "status", "matched", "score", "snippet", "description")
        for hit in match[:limit]
    ]
    columns: dict[str, Column] = {
        "DATASET": "dataset",
        "VERSION": lambda hit: (
            hit["version"] if hit["status"] is VersionStatus.CANONICAL else f"{hit['version']} ({hit['status']})"
        ),
        "MATCHED": "matched",
        "DESCRIPTION": "snippet",
    }
    session.out.present("search", listed, lambda rows: [Table(rows, columns)])


@session_command("show", at=True, locked=True)
@reference_argument
@click.option("--why", is_flag=True, help="Explain why this version was chosen, and why the others were not.")
def show(session: Session, reference: str, why: bool) -> None:
    """Show one dataset version: splits, features, licence, citation.

    Examples:
        registry show digits
        registry show 'mnist/plain:3.*' --why
    """
    with session.connect_unless_pinned() as catalog:
        with explained_refusal(session.out, why):
            dataset = session.look_up(catalog, reference)
        folder, attachments = dataset.folder, dataset.attachments
        names = dataset.metadata.in_source_order(list(dataset.features))
        features = list(feature_lines({name: dataset.features[name] for name in names}))
        statistics = None
        if folder.startswith("file:"):  # on other machines, reading them would take a request
            with suppress(RegistryError, OSError):
                if any(file.kind == "statistics" and file.num_bytes <= _MOST_STATISTICS for file in attachments):
                    statistics = dataset.statistics
        protected, has_rule = dataset.protected, False
        if catalog is not None and protected is not None and session.at is None:
            configs = catalog.lifecycle.configs(dataset)
            has_rule = any(it.needs_two_persons for it in configs if it.config == dataset.config)
        reasons, considered = (dataset.why, dataset.considered) if why else ((), ())
    facts, metadata = dataset.facts, dataset.metadata
    value: dict[str, Any] = {
        "dataset": facts.reference.dataset,
        **fields_of(metadata, "config_description", "config_tags"),
        "former_names": [name for name in facts.names if name != facts.name],
        "protected": protected,
        "needs_two_persons": has_rule,
        "message": facts.state_message,
        "version": facts.version,
        "status": dataset.status,  # that of a pin file, which does not name the canonical version
        **fields_of(facts, "version_to_prepare", "experiments", "superseded_by", "slicing"),
        "file_format": facts.file_format,
        "splits": [fields_of(split, "name", "num_examples", "num_shards", "num_bytes") for split in facts.splits],
        "features": json.loads(facts.features_json),
        "labels": facts.labels,
        **fields_of(metadata, "supervised_keys", "description", "homepage", "license", "citation", "release_notes"),
        "metadata": metadata.custom,
        "folder": folder,
        "content_digest": f"sha256:{facts.content_digest}",
        **fields_of(facts, "published_at", "published_by"),
    }
    if attachments:
        value["attachments"] = [fields_of(file, "kind", "name", "num_bytes", "sha256") for file in attachments]
    if statistics is not None:
        from registry.cli.stats import brief_blocks, brief_values

        value["statistics"] = brief_values(statistics)
    if why:
        value["why"] = why_values(reasons, considered)

    def human(it: dict[str, Any]) -> Iterator[Block]:
        if why:
            yield from reasons
            yield from describe_considered(considered)
            if len(considered) < 2:
                yield ""
        rule = "promotions need two persons: see registry proposal" if has_rule else "see registry promote"
        code, custom = it["version_to_prepare"], ", ".join(it["metadata"])
        published = ""  # a pin file does not name the moment and the person
        if it["published_at"]:
            published = f"{it['published_at']:%Y-%m-%d %H:%M} UTC by {it['published_by']}"
        yield Fields(
            {
                "dataset": facts.reference,
                "name": it["metadata"].get("pretty_name"),
                "former names": it["former_names"],
                "status": f"{it['status']}: {it['message']}" if it["message"] else it["status"],
                "protected": "" if protected is None else f"{protected or 'the whole catalog'}: {rule}",
                "superseded by": it["superseded_by"],
                "description": it["description"],
                "config": it["config_description"],
                "tags": it["config_tags"],
                "homepage": it["homepage"],
                "license": it["license"],
                "features": "\n".join(features),
                "supervised": " -> ".join(it["supervised_keys"] or ()),
                "metadata": f"{custom}: see --format json" if custom else "",
                "experiments": [f"{flag} {'on' if is_on else 'off'}" for flag, is_on in it["experiments"].items()],
                "prepared by": code and f"code {code} or older: newer code can only read it",
                "slicing": it["slicing"],
                "format": "" if it["file_format"] == "tfrecord" else it["file_format"],
                "order": "as generated (TFDS's disable_shuffling)" if facts.disable_shuffling else "",
                "folder": it["folder"],
                "content": it["content_digest"],
                "published": published,
                "attachments": "\n".join(_attachment_lines(attachments)),
                "citation": it["citation"],
            }
        )
        yield ""
        columns: dict[str, Column] = {"SPLIT": "name", "EXAMPLES": "num_examples", "SHARDS": "num_shards"}
        yield Table(it["splits"], columns | {"RECORD BYTES": lambda split: size(split["num_bytes"])})
        if statistics is not None:
            yield from brief_blocks(dataset, statistics)

    session.out.present("show", value, human)


@session_command("versions", at=True)
@reference_argument
def versions(session: Session, reference: str) -> None:
    """List every published version of a dataset, highest first.

    Examples:
        registry versions digits
        registry versions mnist/plain --format json
    """
    wanted = Reference.parse(reference)
    if wanted.request is not None or wanted.alias is not None:
        raise UsageError(
            f"{reference}: name a dataset without a version", hint=f"Try: registry versions {wanted.dataset}"
        )
    with session.connect(reference) as catalog:
        found = [
            {"message": version.state_message}
            | fields_of(version, "version", "status", "superseded_by", "num_examples", "published_at", "published_by")
            | {"release_note": version.release_note}
            for version in catalog.versions(wanted, at=session.at)
        ]

    def notes(row: dict[str, Any]) -> str:
        if row["superseded_by"] is not None:
            return f"{row['message']}; superseded by {row['superseded_by']}"
        return str(row["message"] or row["release_note"])

    columns: dict[str, Column] = {
        "VERSION": "version",
        "STATUS": "status",
        "EXAMPLES": "num_examples",
        "PUBLISHED (UTC)": "published_at",
        "NOTES": notes,
    }
    session.out.present("versions", found, lambda rows: [Table(rows, columns)])


@session_command("diff")
@click.argument("old", metavar="OLD", shell_complete=complete_reference)
@click.argument("new", metavar="NEW", shell_complete=complete_reference)
@show_option
@html_option
@force_option
def diff(session: Session, old: str, new: str, show: int, html: str | None, force: bool) -> None:
    """Show what changed from the version OLD to the version NEW, and the smallest number that the changes allow.

    Records are compared by the features that both versions have; shards and compression do not matter. Files are read
    only if the fingerprints in the catalog differ.

    Examples:
        registry diff mnist:3.0.0 mnist:3.0.1
        registry diff mnist:3.0.0 mnist@paper --format json
        registry diff mnist:3.0.0 mnist:3.0.1 --show 20 --html changes.html
    """
    if html is not None:
        check_output(html, option="--html", force=force)
    with session.connect() as catalog, show_progress(session.out) as progress:
        before, after = (session.look_up(catalog, reference) for reference in (old, new))
        found = catalog.diff(old, new, show=show, progress=progress)
        if html is not None:
            from registry.pages.changes import changes_as_file

            write_file(html, changes_as_file(before, after, found).encode(), force=force, option="--html")
    session.out.present("diff", found.to_json(), lambda _: describe_diff(found))


def feature_lines(features: Mapping[str, Feature], indent: str = "") -> Iterator[str]:
    """A line for each feature; dicts and sequences of dicts are indented trees."""
    from registry.features import FeaturesDict, Sequence

    for name, feature in features.items():
        kind, inner = "", feature
        if isinstance(feature, Sequence):
            kind, inner = feature.word, feature.feature
            kind += "" if feature.length is None else f" of {feature.length}"
        if isinstance(inner, FeaturesDict):
            yield f"{indent}{name}: {kind}".rstrip()
            yield from feature_lines(inner, indent + "  ")
        else:
            yield f"{indent}{name}: {feature}"


def _attachment_lines(attachments: Sequence[Attachment]) -> Iterator[str]:
    """A line for each attachment; columns share a line, because a version has many."""
    columns = [file.num_bytes for file in attachments if file.kind == "columns"]
    yield from (f"{file.kind}: {file.name}, {size(file.num_bytes)}" for file in attachments if file.kind != "columns")
    if columns:
        yield f"columns: {counted(len(columns), 'file')}, {size(sum(columns))}"


def why_values(sentences: Sequence[str], considered: Sequence[Considered]) -> dict[str, Any]:
    """Why a look-up chose its version: sentences, and every version considered."""
    return {
        "version": sentences,
        "considered": [fields_of(version, "version", "status", "verdict") for version in considered],
    }


def describe_considered(considered: Sequence[Considered]) -> Iterator[Block]:
    """A table of the versions that were considered: the first rows and the chosen version."""
    if len(considered) < 2:
        return  # the sentences say that no version exists
    rows = [fields_of(version, "version", "status", "verdict") for version in considered]
    listed = rows[:_SHOWN] + [row for row in rows[_SHOWN:] if row["verdict"] == "chosen"]
    yield from _tabulate(listed, len(rows), where="--format json lists them all")


@contextmanager
def explained_refusal(out: Output, why: bool) -> Iterator[None]:
    """If a look-up in this block is refused and ``why`` is True, print the versions it considered before the error.

    For programs, the ``details`` of the error contain the same.
    """
    try:
        yield
    except NotFoundError as error:
        considered = error.details.get("considered")
        if why and considered:
            named = [row for row in considered[_SHOWN:] if not row["verdict"].startswith("not ")]
            listed = [*considered[:_SHOWN], *named[:_SHOWN]]
            out.tell(_tabulate(listed, error.details["num_considered"], where="registry versions lists them all"))
        raise


def _tabulate(rows: Sequence[Any], total: int, *, where: str) -> Iterator[Block]:
    yield Table(rows, {"VERSION": "version", "STATUS": "status", "VERDICT": "verdict"})
    if total > len(rows):
        yield f"and {total - len(rows):,} more; {where}"
    yield ""


def first_words(text: str, limit: int = 60) -> str:
    """The beginning of a text, as one line of whole words."""
    line = " ".join(text.split())
    end = line.rfind(" ", 0, limit)
    return line if len(line) <= limit else f"{line[: limit if end < 0 else end]} …"


def describe_diff(diff: VersionDiff) -> Iterator[Block]:
    """The differences for people: changes, then records."""
    changes = diff.changes
    yield from diff.lines
    if not changes.changes:
        return
    if diff.unread:
        yield Note(f"records were not compared one by one: {diff.unread}")
    yield f"smallest number after {changes.old}: {changes.smallest or 'all numbers are used up'}"
