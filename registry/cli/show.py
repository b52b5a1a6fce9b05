"""``registry show``: one dataset version, as a person wants to know it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from registry.cli.arguments import reference_argument
from registry.cli.considered import explained_refusal, print_considered, why_json
from registry.cli.options import Session, examples, session_command
from registry.cli.output import size

if TYPE_CHECKING:  # numpy is loaded when features are
    from registry.features import FeaturesDict


@session_command(
    "show", at=True, locked=True, epilog=examples("registry show digits", "registry show 'mnist/plain:3.*' --why")
)
@reference_argument
@click.option("--why", is_flag=True, help="Say why it is this version, and what became of the others.")
def command(session: Session, reference: str, why: bool) -> None:
    """Show one dataset version: splits, features, licence, citation."""
    with session.connect_unless_pinned() as catalog:
        with explained_refusal(session.out, why):
            dataset = session.look_up(catalog, reference)
        folder = dataset.folder
        features = list(feature_lines(dataset.features))
        protected = dataset.protected
        reasons, considered = (dataset.why, dataset.considered) if why else ((), ())
    details, metadata = dataset.details, dataset.metadata
    data: dict[str, Any] = {
        "dataset": details.reference.dataset,
        "version": str(details.version),
        "config_description": metadata.config_description,
        "config_tags": list(metadata.config_tags),
        "status": details.status.value,
        "protected": protected,
        "message": details.state_message,
        "version_to_prepare": details.version_to_prepare,
        "experiments": dict(details.experiments),
        "superseded_by": None if details.superseded_by is None else str(details.superseded_by),
        "slicing": details.slicing.value,
        "file_format": details.file_format,
        "splits": [
            {
                "name": split.name,
                "num_examples": split.num_examples,
                "num_shards": split.num_shards,
                "num_bytes": split.num_bytes,
            }
            for split in details.splits
        ],
        "features": json.loads(details.features_json),
        "labels": {stem: list(names) for stem, names in details.labels.items()},
        "supervised_keys": metadata.supervised_keys,
        "description": metadata.description,
        "homepage": metadata.homepage,
        "license": metadata.license,
        "citation": metadata.citation,
        "release_notes": dict(metadata.release_notes),
        "metadata": dict(metadata.custom),
        "folder": folder,
        "content_digest": f"sha256:{details.content_digest}",
        "published_at": details.published_at.isoformat() if details.published_at else None,
        "published_by": details.published_by,
    }

    if why:
        data["why"] = why_json(reasons, considered)

    def human() -> None:
        for reason in reasons:
            session.out.line(reason)
        print_considered(session.out, considered)
        if why and len(considered) < 2:
            session.out.line()
        code = details.version_to_prepare
        prepared_by = "" if code is None else f"code {code} or older: today's code can only read it"
        published = f"{details.published_at:%Y-%m-%d %H:%M} UTC" if details.published_at else ""
        session.out.fields(
            [
                ("dataset", str(details.reference)),
                ("status", ": ".join(filter(None, (details.status.value, details.state_message)))),
                ("protected", "" if protected is None else f"{protected or 'the whole catalog'}: see registry promote"),
                ("superseded by", "" if details.superseded_by is None else str(details.superseded_by)),
                ("description", metadata.description),
                ("config", metadata.config_description),
                ("tags", ", ".join(metadata.config_tags)),
                ("homepage", metadata.homepage),
                ("license", metadata.license),
                ("features", "\n".join(features)),
                ("metadata", ", ".join(metadata.custom) + (": see --format json" if metadata.custom else "")),
                (
                    "experiments",
                    ", ".join(f"{flag} {'on' if on else 'off'}" for flag, on in details.experiments.items()),
                ),
                ("prepared by", prepared_by),
                ("slicing", details.slicing.value),
                ("format", "" if details.file_format == "tfrecord" else details.file_format),
                ("order", "as they were made: TFDS's disable_shuffling" if details.disable_shuffling else ""),
                ("folder", folder),
                ("content", f"sha256:{details.content_digest}"),
                ("published", f"{published} by {details.published_by}"),
                ("citation", metadata.citation),
            ]
        )
        session.out.line()
        session.out.table(
            ("SPLIT", "EXAMPLES", "SHARDS", "BYTES"),
            [(split.name, split.num_examples, split.num_shards, size(split.num_bytes)) for split in details.splits],
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
