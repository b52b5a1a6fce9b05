"""The page of a version: its description, its origin, the changes of each version, and code to use it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from registry.api import Dataset, catalog_url
from registry.catalog import VersionSummary, masked_url, sqlite_path
from registry.envelope import fields_of
from registry.errors import NotFoundError, RegistryError
from registry.features import Dataset as Nested
from registry.features import Feature, FeaturesDict
from registry.features import Sequence as ListOf
from registry.features.containers import columns_of
from registry.masking import MASK, mask
from registry.model import Producer, Reference, Version
from registry.pages.log import public_actor
from registry.pages.page import Page, Visit, version_path
from registry.pages.previews import Remembered, first_split, near_statistics
from registry.publishing import ChangeLevel, describe_type
from registry.statistics import distribution

_EVENTS: Final = 20
_VERSIONS: Final = 100
_MOST_FEATURES: Final = 200
_PROVED: Final = 5
_CHANGES: Final = Remembered(1000)
"""What versions changed since the one below, for the newest five of a page: each takes four requests to a service."""


def overview(visit: Visit, dataset: Dataset, rest: tuple[str, ...]) -> Page:
    """A version, or the one that a look-up of its dataset returns."""
    if rest:
        raise NotFoundError(f"{dataset.reference} has no page {'/'.join(rest)!r:.80}")
    facts, metadata, catalog = dataset.facts, dataset.metadata, visit.catalog
    reference = dataset.reference
    events = catalog.log(dataset=reference.dataset, limit=_EVENTS)
    aliases = [it for it in catalog.aliases.list(reference.dataset) if it.version == dataset.version]
    values = {
        **version_values(dataset),
        "message": facts.state_message,
        "superseded_by": facts.superseded_by,
        "notes": dataset.notes,
        "former_names": [name for name in facts.names if name != facts.name],
        "pretty_name": metadata.custom.get("pretty_name") or "",
        **fields_of(metadata, "description", "config_description", "config_tags", "homepage", "license", "citation"),
        **fields_of(facts, "published_at", "published_by", "file_format", "slicing", "experiments"),
        "content_digest": f"sha256:{facts.content_digest}",
        "origin": _origin(visit, reference),
        "num_examples": facts.num_examples,
        "splits": [fields_of(split, "name", "num_examples", "num_shards", "num_bytes") for split in facts.splits],
        "features": feature_rows(dataset),
        "aliases": [it.alias for it in aliases],
        **version_line(visit, reference, below=None),
        "events": [
            {**fields_of(event, "id", "at", "action", "version"), "actor": public_actor(event)} for event in events
        ],
        "preview": (*version_path(reference), "preview.png"),
        "code": code_of(visit, reference, first_split(tuple(dataset.splits))),
        "croissant": None if visit.is_live else _croissant(visit, dataset),  # for those who search the web
    }
    return Page(name="dataset", title=str(reference), values=values)


def _origin(visit: Visit, reference: Reference) -> str:
    """The producer of a version, without its place for those who may not see places; empty if it is not recorded."""
    producers = dict(visit.catalog.backend.producers(reference.name, reference.config))
    producer = producers.get(reference, Producer())
    if producer.action == "add" and visit.site is not None:
        return ""  # the catalog of a site records no producers, and what was imported may have been added before
    if producer.action == "add" and not visit.shows_places:
        return f"added data ({producer.kind})" if producer.kind else "added data"
    return mask(str(producer if visit.shows_places else replace(producer, place=None))) if producer.action else ""


def version_values(dataset: Dataset) -> dict[str, Any]:
    """What every page of a version has: its names, its state, and the address of its first page."""
    reference = dataset.reference
    return {
        "dataset": reference.dataset,
        "version": dataset.version,
        "reference": reference,
        "status": dataset.status,
        "version_path": version_path(reference),
    }


def versions(visit: Visit, dataset: Dataset, rest: tuple[str, ...]) -> Page:
    """The versions of a dataset below a number, as ``versions/below-1.2.0`` has it in its address."""
    match = re.fullmatch(r"below-(\d{1,9}\.\d{1,9}\.\d{1,9})", "/".join(rest)) if rest else None
    if rest and match is None:
        raise NotFoundError(f"{dataset.reference} has no page {'/'.join(rest)!r:.80} of versions")
    line = version_line(visit, dataset.reference, below=None if match is None else Version.parse(match[1]))
    values = {**version_values(dataset), "notes": dataset.notes, **line}
    return Page(name="versions", title=f"Versions of {dataset.reference.dataset}", values=values)


def version_line(visit: Visit, reference: Reference, *, below: Version | None) -> dict[str, Any]:
    """At most 100 versions, the newest first, each with the step of its number and what it changed."""
    of_dataset = Reference(name=reference.name, config=reference.config)
    summaries = visit.catalog.versions(of_dataset, below=below, limit=_VERSIONS + 1)
    befores = {newer.version: older for newer, older in pairwise(summaries)}
    waiting = visit.catalog.lifecycle.proposals(of_dataset) if visit.is_live else ()
    proposed = {proposal.version: proposal.proposed_by for proposal in waiting}
    line = [
        {**_version(summary, befores.get(summary.version)), "proposed_by": proposed.get(summary.version), "changes": ""}
        for summary in summaries[:_VERSIONS]
    ]
    for row, summary in zip(line[:_PROVED] if visit.is_live else (), summaries, strict=False):
        if summary.version in befores:
            row["changes"] = _proved_changes(visit, befores[summary.version], summary)
    return {"versions": line, "older": line[-1]["version"] if len(summaries) > _VERSIONS else None}


def _proved_changes(visit: Visit, old: VersionSummary, new: VersionSummary) -> str:
    """The level and the first reasons of the changes that fingerprints prove; empty if a version cannot be read."""
    text = ""

    def compare() -> str | None:
        nonlocal text
        with suppress(RegistryError):
            changes = visit.catalog.diff(old.reference, new.reference, show=0, most_bytes=0).changes
            lasting = [it for it in changes.changes if it.kind != "metadata"]  # these may be corrected
            level = max((it.level for it in lasting), default=ChangeLevel.PATCH).name
            text = f"{level}: {'; '.join(it.brief for it in lasting[:3]) or 'the same records and features'}"
            # Old versions may get fingerprints later.
            if all(it.where in changes.differing for it in lasting if it.kind == "records"):
                return text
        return None

    return _CHANGES.get((visit.catalog.url, *((it.reference, it.content_digest) for it in (old, new))), compare) or text


def _version(summary: VersionSummary, older: VersionSummary | None) -> dict[str, Any]:
    before = None if older is None else older.version
    steps = () if before is None else ("major", "minor", "patch")
    step = next((it for it in steps if getattr(summary.version, it) != getattr(before, it)), "first")
    return {
        **fields_of(
            summary, "version", "status", "num_examples", "num_bytes", "published_at", "published_by", "splits"
        ),
        "content_digest": f"sha256:{summary.content_digest}",
        "note": summary.release_note,
        "reason": summary.state_message,
        "step": step,
        "before": before,
        "path": version_path(summary.reference),
        "is_readable": str(summary.status) != "dropped",
    }


def feature_rows(dataset: Dataset) -> list[dict[str, Any]]:
    """A row for each feature, with those of dicts and sequences below it: path, type, description, distribution."""
    statistics = near_statistics(dataset)
    name = first_split(tuple(dataset.splits))
    splits = None if statistics is None or name is None else statistics.get(name)
    rows: list[dict[str, Any]] = []

    def add(features: Mapping[str, Feature], depth: int, prefix: str) -> None:
        for key, feature in features.items():
            if len(rows) >= _MOST_FEATURES:
                return
            path = f"{prefix}{key}"
            values = None if splits is None else splits.features.get(path)
            counts = () if values is None else distribution(values)
            kind, inner = _kind(feature)
            description = getattr(feature, "description", "") or ""
            row = {"name": key, "path": path, "depth": depth, "type": kind, "description": description}
            rows.append({**row, "counts": counts[:64], "nulls": 0 if values is None else values.nulls})
            if inner is not None:
                add(inner, depth + 1, f"{path}/")

    names = dataset.metadata.in_source_order(list(dataset.features))
    add({name: dataset.features[name] for name in names}, 0, "")
    return rows


def _kind(feature: Feature) -> tuple[str, FeaturesDict | None]:
    words, whole = [], feature
    while isinstance(feature, ListOf | Nested):
        words.append(feature.word + ("" if feature.length is None else f" of {feature.length}"))
        feature = feature.feature
    if isinstance(feature, FeaturesDict):
        return " of ".join((*words, "dict")), feature
    return describe_type(columns_of(whole)[0]), None


def older(visit: Visit, path: tuple[str, ...]) -> Page:
    """The only page of an older version in a site of files: its description, its changes, and code to use it.

    It is made from the list of versions, without a look-up: a site may have ten times as many older versions as
    datasets.
    """
    _, name, *config, number = path
    version = Version.parse(number)
    reference = Reference.exactly(name, config[0] if config else None, version)
    of_dataset = Reference(name=reference.name, config=reference.config)
    (newest,) = visit.catalog.versions(of_dataset, limit=1)
    next_number = Version(version.major, version.minor, version.patch + 1)
    summary, *before = visit.catalog.versions(of_dataset, below=next_number, limit=2) or (newest,)
    if summary.version != version:
        raise NotFoundError(f"no version {'/'.join(path)!r:.200}")
    row = _version(summary, before[0] if before else None)
    values = {
        **{key: value for key, value in row.items() if key != "path"},
        "proposed_by": None,
        "dataset": reference.dataset,
        "reference": reference,
        "newest": newest.version,
        "code": code_of(visit, reference, first_split(row["splits"])),
    }
    return Page(name="older", title=str(reference), values=values)


def opened_by(visit: Visit) -> tuple[str, str]:
    """The argument of ``connect`` and the option of commands that open the catalog of a page; empty for the default."""
    if visit.site is not None:
        url = visit.site.url or "URL of this site"
    elif visit.visitor is not None:
        url = visit.visitor.url
    else:
        file, default = visit.catalog.backend.file, sqlite_path(catalog_url())
        url = visit.catalog.url if file is None else str(file.absolute())
        if url in (masked_url(catalog_url()), str(default and default.absolute())) or MASK in url:
            return "", ""  # a URL with a password comes from the environment
    return json.dumps(url), f" --catalog {shlex.quote(url)}"


def code_of(visit: Visit, reference: Reference, split: str | None) -> dict[str, str]:
    """Code that uses exactly this version, for people to copy. ``split`` may be any expression, except for SQL."""
    split, quoted = split or "train", shlex.quote(str(reference))
    chosen = shlex.quote(split)
    here, option = opened_by(visit)
    query = f'SELECT count(*) FROM "{reference}[{split}]"'  # noqa: S608 (for people to copy)
    return {
        "Python": f'import registry\n\ndataset = registry.connect({here}).dataset("{reference}")\n'
        f"for example in dataset.read({json.dumps(split)}):\n    ...",
        "Shell": f"registry show {quoted}{option}\nregistry head {quoted} {chosen}{option}\n"
        f"registry read {quoted} {chosen} --take 10{option}",
        "SQL": f"registry sql {shlex.quote(query)}{option}",
        "Pin": f"registry pin create {quoted} {chosen} -o dataset.lock.yaml{option}\n"
        "registry pin cite dataset.lock.yaml",
    }


def _croissant(visit: Visit, dataset: Dataset) -> dict[str, Any] | None:
    """The document; in a site, without files that have no URL: their names would be relative to the page."""
    base = None if visit.site is None else visit.site.folder(dataset.facts.locations[0])
    with suppress(RegistryError, OSError):
        document = dataset.croissant(base_url=base)
        return {key: value for key, value in document.items() if base or key not in ("distribution", "recordSet")}
    return None
