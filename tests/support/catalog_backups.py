"""A catalog with rows in every table, the answers of a catalog, and backups that were changed or constructed."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from registry.catalog import CatalogBackend, Holder, PublicationDetails, load_shards
from registry.catalog.backup_file import FORMAT
from registry.catalog.sql_catalog import SqlCatalog
from registry.model import Attachment, DatasetMetadata, FeatureFingerprint, Reference, Role, SplitFingerprint, Version
from support.catalog_samples import logged, publish, sample

Line = Any


def fill(catalog: CatalogBackend) -> None:
    """Publish, withdraw, alias, protect and reserve, so that every table has rows."""
    at = Reference.parse
    publish(catalog, "mnist/plain:1.0.0", experiments={"fast": True}, lengths={"train": [3, 0, 4], "test": [0]})
    publish(catalog, "mnist/plain:1.1.0", content="other")
    publish(catalog, "mnist/tiny:2.0.0", lengths={"train": [1] * 30}, default_config=True)
    publish(catalog, "dessert:1.0.0", metadata=DatasetMetadata(description='Crème "brûlée"\n\t\\ 日本語 🎈'))
    for minor in range(5):
        publish(catalog, f"numbers:1.{minor}.0", content=str(minor), promote=minor == 1)
    version, shards = sample("proved:1.0.0", lengths={"train": [5]})
    leaf = FeatureFingerprint(digest="1" * 64, blocks=("2" * 64,))
    fingerprints = {"train": SplitFingerprint(num_examples=5, features={"label": leaf, "a/b": leaf})}
    attachments = (Attachment.of("statistics", "statistics.json", b"{}"),)
    details = PublicationDetails(fingerprints=fingerprints, attachments=attachments)
    moved = replace(version, location="/elsewhere/proved")
    assert catalog.publish(moved, shards, promote=True, actor="ann", details=details)
    for target in ("numbers:1.0.0", "numbers:1.3.0"):
        catalog.aliases.set("paper", at(target), expect=None, message="As submitted.", actor="ann")
    catalog.aliases.set("gone", at("mnist/plain:1.0.0"), expect=None, message="", actor="bob")
    catalog.aliases.remove(at("mnist/plain@gone"), expect=None, message="", actor="bob")
    catalog.lifecycle.deprecate(at("numbers:1.0.0"), "old", actor="ann")
    catalog.lifecycle.yank(at("numbers:1.2.0"), "wrong", Version(1, 3, 0), actor="ann")
    catalog.lifecycle.drop(at("numbers:1.4.0"), "private", actor="ann")
    catalog.locations.add(at("dessert:1.0.0"), "s3://mirror/dessert", actor="ann")
    catalog.locations.relocate(at("proved:1.0.0"), "/elsewhere/proved", "/archive/proved", actor="bob")
    catalog.experiments.set_default("fast", True, actor="ann")
    catalog.experiments.retire("fast", actor="ann")
    catalog.configs.set_protection(at("mnist/plain"), protect=True, actor="ann")
    held, _ = catalog.reservations.reserve(
        "s3://bucket/next/1.0.0", at("next:1.0.0"), "0" * 64, holder := Holder.of_this_process("ann")
    )
    catalog.reservations.note_found(held, holder, ["a", "b"])
    catalog.attach(version, Attachment.of("statistics", "later.json", b"[]"), actor="bob")
    catalog.rename("dessert", "pudding", actor="bob")
    publish(catalog, "pudding:1.1.0", content="pudding")
    catalog.access.create_token("0" * 12, "0" * 64, "ann", Role.ADMIN, expires_in=timedelta(days=1), actor="ann")
    catalog.access.revoke_token("0" * 12, actor="bob")
    catalog.access.note_refusal(token=None, principal="", call="find", dataset="secret", reason="no token")
    cast("SqlCatalog", catalog).webhooks.keys = ("a key of sixteen characters",)
    catalog.webhooks.create("0" * 12, "https://ci.example/", datasets=("lab_*",), actions=("publish",), actor="ann")
    catalog.log.correct_clock(first=1, last=1, ahead=timedelta(seconds=1), actor="ann")


def answers(catalog: CatalogBackend) -> dict[str, Any]:
    """What a catalog answers to every query."""
    found: dict[str, Any] = {
        "datasets": catalog.datasets(),
        "aliases": catalog.aliases.list(),
        "experiments": catalog.experiments.list(),
        "reservations": catalog.reservations.list(),
        "events": tuple(logged(catalog)),
        "log": catalog.log.verify(),
        "searches": [catalog.search(text) for text in ("mnist", "plain", "about", "creme", "日", "numClasses label")],
        "protected": catalog.configs.protection("mnist", "plain"),
    }
    for name in sorted({one.name for one in catalog.datasets()}):
        found[f"configs {name}"] = catalog.configs.list(name)
    for one in catalog.datasets():
        found[f"standing {one.dataset}"] = catalog.standing(one.name, one.config)
        for summary in catalog.versions(one.name, one.config):
            version = catalog.published(one.name, one.config, summary.version)
            found[str(version.reference)] = (
                summary,
                replace(version, splits=()),
                tuple(
                    (split.name, tuple(split.shard_lengths), split.files, split.num_bytes) for split in version.splits
                ),
                {split.name: load_shards(catalog.shards, version, split.name) for split in version.splits},
                catalog.fingerprints(version),
                catalog.attachments(version),
                catalog.experiments.of_version(version),
            )
    for alias in catalog.aliases.list():
        found[f"history {alias.reference}"] = catalog.aliases.history(alias.reference)
    return found


def opener(content: bytes | Path) -> Callable[[], Any]:
    """Return a function that opens a backup repeatedly."""
    return lambda: io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")


def packed(pieces: Iterable[bytes]) -> bytes:
    """A backup of these lines."""
    return gzip.compress(b"".join(pieces), mtime=0)


def lines_of(backup: bytes) -> list[Line]:
    """The lines of a backup, parsed."""
    return [json.loads(line) for line in gzip.decompress(backup).splitlines()]


def forge(lines: Sequence[Line], *, end: dict[str, Any] | None = None) -> bytes:
    """Make a backup of these lines with correct counts and sha256; the last of ``lines`` is replaced.

    Lines of bytes are written unchanged. ``end`` changes values of the last line.
    """
    *body, last = lines
    written = [one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n" for one in body]
    rows: dict[str, int] = {}
    for one in body:
        if isinstance(one, dict) and "table" in one:
            name = str(one["table"])
            rows[name] = 0
        elif rows:
            rows[name] += 1
    told = {**last["end"], "rows": rows, "sha256": hashlib.sha256(b"".join(written)).hexdigest(), **(end or {})}
    return packed([*written, json.dumps({"end": told}).replace('{"end": ', '{"end":', 1).encode() + b"\n"])


def empty_lines(schema: str) -> list[Line]:
    """A backup without tables."""
    end = {"head": "0" * 64, "made_at": "2026-11-23T00:00:00+00:00", "made_by": "a test"}
    return [{"format": FORMAT, "schema": schema}, {"end": end}]
