"""Catalogs with private values of every kind, their snapshots, and the answers that a snapshot must give."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from registry.catalog import (
    CatalogBackend,
    DataDirectory,
    Holder,
    Origin,
    PublicationDetails,
    events,
    load_shards,
    open_catalog,
)
from registry.catalog.outcomes import BackupFacts
from registry.catalog.snapshot import write_snapshot
from registry.errors import RegistryError
from registry.model import Attachment, DatasetMetadata, Description, Producer, Reference, Version
from support.catalog_clocks import as_before, freeze_clocks
from support.catalog_samples import logged, publish, sample

AT = Reference.parse
START = datetime(2026, 3, 1, 12, tzinfo=UTC)

PRIVATE = (
    "zoe",
    "laptop77",
    "yann",
    "xaver",
    "/srv/",
    "private-bucket",
    "hunter2",
    "elsewhere.db",
    "wilma",
    "upcoming",
)
"""Texts that ``fill`` uses for people, machines and places, and only for them."""


def fill(catalog: CatalogBackend) -> None:
    """Publish two datasets, ``birds`` and ``secret``, and change them by every action of the log.

    The clock moves an hour with each change, so that the log is the same whenever this runs.
    """
    for hour, change in enumerate(_changes(catalog)):
        clock = freeze_clocks(START + timedelta(hours=hour))
        with mock.patch.object(events, "_system_user", return_value="zoe@laptop77"), as_before(), clock:
            change()


def _changes(catalog: CatalogBackend) -> list[Any]:
    place = DataDirectory(recorded="/srv/data", place="/srv/data")
    added = PublicationDetails(
        data_dir=place,
        producer=Producer(action="add", kind="csv", place="/srv/zoe/birds.csv"),
        attachments=(Attachment.of("statistics", "statistics.json", b"{}"),),
    )
    copied = PublicationDetails(
        origin=Origin(
            catalog="sqlite:////srv/elsewhere.db",
            published_at=START - timedelta(days=9),
            published_by="xaver",
            aliases=("stable",),
            events=(_imported(),),
        )
    )
    change, location = catalog.lifecycle, catalog.locations
    birds = AT("birds:1.0.0")

    def put(reference: str, at: str | None = None, details: PublicationDetails | None = None, **options: Any) -> None:
        version, shards = sample(reference, content=reference, **options)
        version = version if at is None else replace(version, location=at)
        assert catalog.publish(version, shards, promote="feathers" not in reference, actor="zoe", details=details)

    def reserve() -> None:
        catalog.reservations.reserve(
            "s3://private-bucket/next", AT("upcoming:1.0.0"), "0" * 64, Holder.of_this_process("wilma")
        )

    return [
        lambda: catalog.experiments.add("fast", "About fast.", actor="yann"),
        lambda: put("birds:1.0.0", details=added, experiments={"fast": True}),
        lambda: put("secret/plain:1.0.0", "/srv/secret/plain"),
        lambda: put("birds:1.1.0", "/srv/birds/new"),
        lambda: put("birds:1.2.0", "s3://public/birds/1.2.0", lengths={"train": [1] * 40}),
        lambda: put("secret/tiny:1.0.0", metadata=DatasetMetadata(description="Words that nobody may see.")),
        lambda: put("birds:1.3.0", details=copied),
        lambda: location.add(birds, "https://mirror/birds", actor="zoe"),
        lambda: location.add(birds, "/srv/mirror", actor="zoe"),
        lambda: location.remove(birds, "birds/1.0.0", actor="zoe"),
        lambda: location.relocate(AT("birds:1.1.0"), "/srv/birds/new", "/srv/birds/newer", actor="zoe"),
        lambda: location.relocate(AT("birds:1.2.0"), "s3://public/birds/1.2.0", "file:///srv/b", actor="zoe"),
        lambda: location.relocate(AT("birds:1.2.0"), "file:///srv/b", "s3://other/b", actor="zoe"),
        lambda: location.set_data_dir(DataDirectory(recorded="/srv/moved", place="/srv/moved"), actor="zoe"),
        lambda: catalog.aliases.set("paper", birds, expect=None, message="As submitted.", actor="yann"),
        lambda: catalog.aliases.set("paper", AT("birds:1.1.0"), expect=None, message="", actor="zoe"),
        lambda: catalog.aliases.set("gone", AT("secret/plain:1.0.0"), expect=None, message="", actor="zoe"),
        lambda: catalog.aliases.set("gone", birds, expect=None, message="", actor="zoe"),
        lambda: catalog.aliases.remove(AT("birds@gone"), expect=None, message="", actor="zoe"),
        lambda: change.deprecate(birds, "old", actor="zoe"),
        lambda: change.yank(AT("birds:1.2.0"), "wrong", Version(1, 3, 0), actor="yann"),
        lambda: change.describe(AT("birds:1.1.0"), Description(description="Feathers.", tags=["wild"]), actor="zoe"),
        lambda: change.describe(AT("birds:1.3.0"), Description(license="MIT", homepage="https://birds/"), actor="zoe"),
        lambda: change.drop(AT("birds:1.2.0"), "its licence ended", actor="zoe"),
        lambda: change.remove(AT("birds:1.2.0"), grace=timedelta(), actor="yann"),
        lambda: change.remove(AT("birds:1.2.0"), is_done=True, actor="zoe"),
        lambda: catalog.configs.set_default("secret", "tiny", actor="zoe"),
        lambda: catalog.configs.set_protection(AT("birds"), protect=True, actor="zoe"),
        lambda: catalog.configs.set_protection(AT("secret/tiny"), protect=True, actor="zoe"),
        lambda: catalog.configs.set_protection(None, protect=True, actor="zoe"),
        lambda: catalog.configs.set_protection(None, protect=False, actor="yann"),
        lambda: catalog.attach(sample("birds:1.0.0")[0], Attachment.of("card", "card.md", b"#"), actor="yann"),
        lambda: catalog.rename("birds", "feathers", actor="zoe"),
        lambda: catalog.rename("secret", "hidden", actor="zoe"),
        lambda: put("feathers:2.0.0", "/srv/feathers/2"),
        lambda: catalog.experiments.set_default("fast", True, actor="zoe"),
        lambda: catalog.add_producer(
            AT("feathers:2.0.0"), Producer(action="add", kind="csv", place="/srv/f"), "replace", actor="zoe"
        ),
        reserve,
        lambda: catalog.log.correct_clock(first=3, last=12, ahead=timedelta(minutes=30), actor="zoe"),
        lambda: catalog.log.correct_clock(first=3, last=3, ahead=timedelta(minutes=5), actor="zoe"),
    ]


def _imported() -> Any:
    with tempfile.TemporaryDirectory() as folder, open_catalog(f"{folder}/elsewhere.db") as catalog:
        publish(catalog, "birds:1.3.0")
        return next(logged(catalog))


@contextmanager
def snapshot_of(
    catalog: CatalogBackend, datasets: Collection[str] | None = None, *, with_actors: bool = False
) -> Iterator[tuple[CatalogBackend, Path, BackupFacts]]:
    """Return an open snapshot of a catalog, its file, and the result of ``write_snapshot``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "snapshot.db")
        lines = catalog.snapshot(datasets=datasets, with_actors=with_actors)
        facts = write_snapshot(path, lines, source=catalog.url)
        with open_catalog(path, create=False) as opened:
            yield opened, path, facts


def file_of(catalog: CatalogBackend, datasets: Collection[str] | None = None, *, with_actors: bool = False) -> bytes:
    """The bytes of a snapshot of a catalog."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "snapshot.db")
        write_snapshot(path, catalog.snapshot(datasets=datasets, with_actors=with_actors), source=catalog.url)
        return path.read_bytes()


def chain(catalog: CatalogBackend, datasets: Collection[str] | None = None) -> list[str]:
    """The hashes of the events of a snapshot."""
    with snapshot_of(catalog, datasets) as (opened, _, _):
        return [event.hash for event in logged(opened)]


def public_answers(catalog: CatalogBackend, *names: str) -> dict[str, Any]:
    """Return a catalog's answers about datasets, without people, places and the log, which a snapshot leaves out."""
    found: dict[str, Any] = {
        "datasets": [one for one in catalog.datasets() if one.name in names],
        "experiments": [(one.name, one.description, one.default) for one in catalog.experiments.list()],
        "hits": [
            hit for text in ("about", "feathers", "mit", "label") for hit in catalog.search(text) if hit.name in names
        ],
        "removals": [one for one in catalog.lifecycle.removals() if one.reference.name in names],
    }
    moments = [START + timedelta(hours=hour, minutes=45) for hour in (2, 7, 12, 22, 25, 34)]
    for one in [one for one in catalog.datasets() if one.name in names]:
        found[f"configs {one.name}"] = catalog.configs.list(one.name)
        found[f"standing {one.dataset}"] = catalog.standing(one.name, one.config)
        found[f"protection {one.dataset}"] = catalog.configs.protection(one.name, one.config)
        for summary in catalog.versions(one.name, one.config):
            version = catalog.published(one.name, one.config, summary.version)
            found[f"version {version.reference}"] = (
                summary,
                replace(version, splits=()),
                [(split.name, tuple(split.shard_lengths), split.files, split.num_bytes) for split in version.splits],
                {split.name: load_shards(catalog.shards, version, split.name) for split in version.splits},
                catalog.fingerprints(version),
                catalog.attachments(version),
                catalog.experiments.of_version(version),
            )
            for moment in moments:
                found[f"{version.reference} at {moment}"] = _try(catalog.find_at, version.reference, moment)
        for moment in moments:
            found[f"versions {one.dataset} at {moment}"] = _try(catalog.versions, one.name, one.config, at=moment)
            found[f"standing {one.dataset} at {moment}"] = _try(catalog.standing, one.name, one.config, at=moment)
            found[f"protection {one.dataset} at {moment}"] = catalog.configs.protection(one.name, one.config, at=moment)
    for alias in catalog.aliases.list():
        if alias.reference.name in names:
            found[f"alias {alias.reference}"] = alias, catalog.aliases.history(alias.reference)
    return {question: _without_people_and_places(answer) for question, answer in found.items()}


def _try(call: Any, *given: Any, **options: Any) -> Any:
    try:
        return call(*given, **options)
    except RegistryError as error:
        return type(error).__name__, error.message


def _without_people_and_places(value: Any) -> Any:
    if isinstance(value, str):
        value = value.replace("sqlite:////srv/elsewhere.db", "another catalog")
        return re.sub("zoe|yann|xaver", "anonymous", value)
    if is_dataclass(value) and not isinstance(value, type):
        names = [one.name for one in fields(value) if one.name not in ("location", "location_steps")]
        return type(value).__name__, [_without_people_and_places(getattr(value, name)) for name in names]
    if isinstance(value, dict):
        return {key: _without_people_and_places(item) for key, item in value.items()}
    return [_without_people_and_places(item) for item in value] if isinstance(value, list | tuple) else value
