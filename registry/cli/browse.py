"""``registry list``: the datasets of the catalog."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.commands import Session, examples, session_command
from registry.cli.options import reference_argument
from registry.cli.output import Output, give_up_stdout, size
from registry.errors import NotFoundError, UsageError
from registry.model import Considered, Reference, VersionStatus

if TYPE_CHECKING:
    from registry.catalog import VersionSummary
    from registry.features import FeaturesDict


@session_command("list", epilog=examples("registry list", "registry list --format json"))
def list_(session: Session) -> None:
    """List the datasets of the catalog, by name."""
    with session.connect() as catalog:
        found = catalog.datasets()
    data = [
        {
            "dataset": summary.dataset,
            "is_protected": summary.is_protected,
            "canonical": None if summary.canonical is None else str(summary.canonical),
            "latest": str(summary.latest),
            "num_versions": summary.num_versions,
            "num_examples": summary.num_examples,
            "splits": list(summary.splits),
            "description": summary.description,
            "default_config": summary.is_default and summary.config is not None,
            "config_description": summary.config_description,
            "config_tags": list(summary.config_tags),
        }
        for summary in found
    ]
    rows = [
        (
            summary.dataset,
            str(summary.canonical or summary.latest) + (" (protected)" if summary.is_protected else ""),
            summary.num_versions,
            summary.num_examples,
            ", ".join(summary.splits),
            _first_words(summary.description),
        )
        for summary in found
    ]
    session.out.result(
        "list",
        data,
        lambda: session.out.table(
            ("DATASET", "VERSION", "VERSIONS", "EXAMPLES", "SPLITS", "DESCRIPTION"),
            rows,
            empty="The catalog is empty. Start with: registry quickstart",
        ),
    )


def _first_words(text: str, limit: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: line.rfind(" ", 0, limit)] + " …"


@session_command(
    "search",
    epilog=examples(
        "registry search digits",
        "registry search handwritten dig",
        "registry search class_label cats --limit 5 --format json",
    ),
)
@click.argument("text", metavar="TEXT...", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Show the best N.")
def search(session: Session, text: tuple[str, ...], limit: int) -> None:
    """Find the datasets that all the words of TEXT are about, the best first.

    Looks into names, tags, features with their labels, descriptions, licence, homepage and citation. A word finds what
    begins with it, whatever its case and accents; TEXT has no other syntax. Nothing found is no failure: the exit code
    is 0, and a note says which word nothing has.
    """
    words = " ".join(text)
    with session.connect() as catalog:
        found = catalog.search(words, limit=limit + 1)  # one more, to know whether there are more
        if not found:
            session.out.note(catalog.explain_no_hits(words))
    shown = found[:limit]
    if len(found) > limit:
        session.out.note(f"note: these are the best {limit} of more. A further word narrows, --limit shows more.")
    data = [
        {
            "dataset": hit.dataset,
            "version": str(hit.version),
            "status": hit.status.value,
            "matched": list(hit.matched),
            "score": hit.score,
            "snippet": hit.snippet,
            "description": hit.description,
        }
        for hit in shown
    ]
    rows = [
        (
            hit.dataset,
            str(hit.version) if hit.status is VersionStatus.CANONICAL else f"{hit.version} ({hit.status.value})",
            ", ".join(hit.matched),
            hit.snippet,
        )
        for hit in shown
    ]
    session.out.result(
        "search", data, lambda: session.out.table(("DATASET", "VERSION", "MATCHED", "DESCRIPTION"), rows)
    )


@session_command(
    "show", at=True, locked=True, epilog=examples("registry show digits", "registry show 'mnist/plain:3.*' --why")
)
@reference_argument
@click.option("--why", is_flag=True, help="Say why it is this version, and what became of the others.")
def show(session: Session, reference: str, why: bool) -> None:
    """Show one dataset version: splits, features, licence, citation."""
    with session.connect_unless_pinned() as catalog:
        with explained_refusal(session.out, why):
            dataset = session.look_up(catalog, reference)
        folder = dataset.folder
        features = list(feature_lines(dataset.features))
        protected = dataset.protected
        reasons, considered = (dataset.why, dataset.considered) if why else ((), ())
    facts, metadata = dataset.facts, dataset.metadata
    data: dict[str, Any] = {
        "dataset": facts.reference.dataset,
        "version": str(facts.version),
        "config_description": metadata.config_description,
        "config_tags": list(metadata.config_tags),
        "status": facts.status.value,
        "protected": protected,
        "message": facts.state_message,
        "version_to_prepare": facts.version_to_prepare,
        "experiments": dict(facts.experiments),
        "superseded_by": None if facts.superseded_by is None else str(facts.superseded_by),
        "slicing": facts.slicing.value,
        "file_format": facts.file_format,
        "splits": [
            {
                "name": split.name,
                "num_examples": split.num_examples,
                "num_shards": split.num_shards,
                "num_bytes": split.num_bytes,
            }
            for split in facts.splits
        ],
        "features": json.loads(facts.features_json),
        "labels": {stem: list(names) for stem, names in facts.labels.items()},
        "supervised_keys": metadata.supervised_keys,
        "description": metadata.description,
        "homepage": metadata.homepage,
        "license": metadata.license,
        "citation": metadata.citation,
        "release_notes": dict(metadata.release_notes),
        "metadata": dict(metadata.custom),
        "folder": folder,
        "content_digest": f"sha256:{facts.content_digest}",
        "published_at": facts.published_at.isoformat() if facts.published_at else None,
        "published_by": facts.published_by,
    }

    if why:
        data["why"] = why_json(reasons, considered)

    def human() -> None:
        for reason in reasons:
            session.out.line(reason)
        print_considered(session.out, considered)
        if why and len(considered) < 2:
            session.out.line()
        code = facts.version_to_prepare
        prepared_by = "" if code is None else f"code {code} or older: today's code can only read it"
        published = f"{facts.published_at:%Y-%m-%d %H:%M} UTC" if facts.published_at else ""
        session.out.fields(
            [
                ("dataset", str(facts.reference)),
                ("status", ": ".join(filter(None, (facts.status.value, facts.state_message)))),
                ("protected", "" if protected is None else f"{protected or 'the whole catalog'}: see registry promote"),
                ("superseded by", "" if facts.superseded_by is None else str(facts.superseded_by)),
                ("description", metadata.description),
                ("config", metadata.config_description),
                ("tags", ", ".join(metadata.config_tags)),
                ("homepage", metadata.homepage),
                ("license", metadata.license),
                ("features", "\n".join(features)),
                ("metadata", ", ".join(metadata.custom) + (": see --format json" if metadata.custom else "")),
                (
                    "experiments",
                    ", ".join(f"{flag} {'on' if on else 'off'}" for flag, on in facts.experiments.items()),
                ),
                ("prepared by", prepared_by),
                ("slicing", facts.slicing.value),
                ("format", "" if facts.file_format == "tfrecord" else facts.file_format),
                ("order", "as they were made: TFDS's disable_shuffling" if facts.disable_shuffling else ""),
                ("folder", folder),
                ("content", f"sha256:{facts.content_digest}"),
                ("published", f"{published} by {facts.published_by}"),
                ("citation", metadata.citation),
            ]
        )
        session.out.line()
        session.out.table(
            ("SPLIT", "EXAMPLES", "SHARDS", "BYTES"),
            [(split.name, split.num_examples, split.num_shards, size(split.num_bytes)) for split in facts.splits],
        )

    session.out.result("show", data, human)


def feature_lines(features: FeaturesDict, indent: str = "") -> Iterator[str]:
    """A line for each feature, dicts and sequences of dicts as indented trees."""
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


@session_command(
    "versions", at=True, epilog=examples("registry versions digits", "registry versions mnist/plain --format json")
)
@reference_argument
def versions(session: Session, reference: str) -> None:
    """List every published version of a dataset, the highest first."""
    wanted = Reference.parse(reference)
    if wanted.request is not None or wanted.alias is not None:
        raise UsageError(
            f"{reference}: name a dataset without a version", hint=f"Try: registry versions {wanted.dataset}"
        )
    with session.connect() as catalog:
        found = catalog.versions(wanted.name, wanted.config, at=session.at)
    data = [
        {
            "version": str(summary.version),
            "status": summary.status.value,
            "message": summary.state_message,
            "superseded_by": None if summary.superseded_by is None else str(summary.superseded_by),
            "num_examples": summary.num_examples,
            "published_at": summary.published_at.isoformat(),
            "published_by": summary.published_by,
            "release_note": summary.release_note,
        }
        for summary in found
    ]
    rows = [
        (
            str(summary.version),
            summary.status.value,
            summary.num_examples,
            f"{summary.published_at:%Y-%m-%d %H:%M}",
            _note(summary),
        )
        for summary in found
    ]
    session.out.result(
        "versions",
        data,
        lambda: session.out.table(("VERSION", "STATUS", "EXAMPLES", "PUBLISHED (UTC)", "NOTES"), rows),
    )


def _note(summary: VersionSummary) -> str:
    """What is said of the version's state, else its release note."""
    if summary.superseded_by is not None:
        return f"{summary.state_message}; superseded by {summary.superseded_by}"
    return summary.state_message or summary.release_note


_SHOWN: Final = 20


def considered_json(considered: Sequence[Considered]) -> list[dict[str, str]]:
    """Every version considered, for programs."""
    return [{"version": str(one.version), "status": one.status.value, "verdict": one.verdict} for one in considered]


def why_json(sentences: Sequence[str], considered: Sequence[Considered]) -> dict[str, Any]:
    """Why a look-up gave its version, for programs."""
    return {"version": list(sentences), "considered": considered_json(considered)}


def print_considered(out: Output, considered: Sequence[Considered]) -> None:
    """The table of what was considered, for people: the first rows and the one that was chosen."""
    if len(considered) < 2:
        return  # nothing to choose from, and the sentences say so
    shown = list(considered[:_SHOWN])
    shown += [one for one in considered[_SHOWN:] if one.verdict == "chosen"]
    rows = [(str(one.version), one.status.value, one.verdict) for one in shown]
    _print_table(out, rows, len(considered), where="--format json lists them all")


@contextmanager
def explained_refusal(out: Output, why: bool) -> Iterator[None]:
    """Where a look-up in this block is refused, ``why`` shows people what it considered, before the error.

    Programs find the same in the ``details`` of the error.
    """
    try:
        yield
    except NotFoundError as error:
        considered = error.details.get("considered")
        if why and considered and not out.as_json:
            named = [one for one in considered[_SHOWN:] if not one["verdict"].startswith("not ")]
            shown = [*considered[:_SHOWN], *named[:_SHOWN]]
            rows = [(one["version"], one["status"], one["verdict"]) for one in shown]
            try:
                _print_table(out, rows, error.details["num_considered"], where="registry versions lists them all")
                sys.stdout.flush()
            except BrokenPipeError:  # a reader who leaves changes nothing: it is refused all the same
                give_up_stdout()
        raise


def _print_table(out: Output, rows: Sequence[tuple[str, str, str]], total: int, *, where: str) -> None:
    out.table(("VERSION", "STATUS", "VERDICT"), rows)
    if total > len(rows):
        out.line(f"and {total - len(rows):,} more; {where}")
    out.line()
