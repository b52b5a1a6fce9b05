"""Statements that a publisher's rights allow, but the registry never runs, and every call of a catalog after them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from registry.catalog import CatalogBackend, Holder, load_shards
from registry.catalog.tables import metadata
from registry.errors import RegistryError
from registry.model import Reference, SplitFingerprint, Version
from support.catalog_samples import logged, sample

INSERTS = (
    "builder",
    "builder_config",
    "dataset_version",
    "version_experiment",
    "split",
    "shard",
    "fingerprint",
    "version_ledger",
    "event",
    "search_document",
    "reservation",
)
UPDATES = {
    "builder": ("created_at",),
    "builder_config": ("canonical_version_id", "is_default"),
    "experiment": ("created_at",),
    "reservation": None,
    "search_document": None,
}
TEXTS = ("''", "'x'", "'[]'", "'{}'", "'{\"a\": [1'", "'null'", f"'{'0' * 64}'", f"'{'f' * 64}'", "'9.9.9'", "'a:1@c'")
NUMBERS = ("-1", "0", "7", "2147483647")
TIMES = {
    "sqlite": ("'yesterday'", "''", "7", "'9999-12-31 23:59:59.999999'"),
    "postgresql": ("'infinity'", "'-infinity'", "'20000-01-01 00:00:00+00'", "'9999-12-31 23:59:59.999999+00'"),
}


def nonsense(kind: str) -> Iterator[str]:
    """The statements, for a kind of database."""
    for name in INSERTS:
        table = metadata.tables[name]
        for column in table.columns:
            for value in _values(column, kind):
                yield _insert(table, {column.name: value})
    for name, columns in UPDATES.items():
        for column in metadata.tables[name].columns:
            if columns is None or column.name in columns:
                for value in _values(column, kind):
                    yield f"UPDATE {name} SET {column.name} = {value}"  # noqa: S608 (our tables)
    yield "DELETE FROM reservation"
    yield "DELETE FROM search_document"


def _values(column: sa.Column[Any], kind: str) -> tuple[str, ...]:
    match column.type:
        case sa.Boolean():
            return ("true", "false")
        case sa.Integer():
            return NUMBERS
        case sa.Text():
            return (*TEXTS, "NULL") if column.nullable else TEXTS
    return TIMES[kind]


def _insert(table: sa.Table, changed: dict[str, str]) -> str:
    """Insert a row like an existing one, which differs where it must be unique, and in ``changed``."""
    unique = {
        column.name for one in table.constraints if isinstance(one, sa.UniqueConstraint) for column in one.columns
    }
    unique |= {column.name for column in table.primary_key.columns}
    texts = []
    for column in table.columns:
        text = column.name
        if column.name in unique and not column.foreign_keys:
            if isinstance(column.type, sa.Integer):
                text = f"(SELECT max({column.name}) + 1 FROM {table.name})"  # noqa: S608 (our own tables)
            elif table.name == "event":
                text = "(SELECT hash FROM event ORDER BY id DESC LIMIT 1)" if column.name != "hash" else f"'{'5' * 64}'"
            else:
                text = f"{column.name} || 'x'"
        texts.append(changed.get(column.name, text))
    key = ", ".join(column.name for column in table.primary_key.columns)
    columns = ", ".join(column.name for column in table.columns)
    return f"INSERT INTO {table.name} ({columns}) SELECT {', '.join(texts)} FROM {table.name} ORDER BY {key} LIMIT 1"  # noqa: S608 (our own tables)


def calls(catalog: CatalogBackend) -> dict[str, Callable[[], object]]:
    """Every call of a catalog, by its name; those that write come last."""
    at, now = Reference.parse, datetime(2100, 1, 1, tzinfo=UTC)
    names = ["mnist/plain", "numbers", "proved", "x", "dessert"]

    def read_version(name: str) -> None:
        version = catalog.find(name)
        for split in version.splits:
            list(split.shard_lengths)
            load_shards(catalog.shards, version, split.name)
        catalog.fingerprints(version)
        catalog.experiments.of_version(version)

    def publish(reference: str) -> None:
        version, shards = sample(reference)
        catalog.publish(version, shards, promote=None, actor="ann")

    found: dict[str, Callable[[], object]] = {
        "datasets": catalog.datasets,
        "aliases": catalog.aliases.list,
        "experiments": catalog.experiments.list,
        "reservations": catalog.reservations.list,
        "log": lambda: list(logged(catalog)),
        "verify": catalog.log.verify,
        "search": lambda: catalog.search("mnist"),
        "no hits": lambda: catalog.explain_no_hits("mnits"),
        "sizes": lambda: list(catalog.sizes()),
        "outside": catalog.locations.outside,
        "published at": lambda: catalog.published_at("/elsewhere/proved"),
        "backup": lambda: list(catalog.backup()),
        "clock": catalog.now,
        "protection": lambda: catalog.configs.protection("mnist", "plain", at=now),
        "history": lambda: catalog.aliases.history(at("numbers@paper")),
    }
    for name in names:
        found |= {
            f"find {name}": lambda name=name: read_version(name),
            f"find {name}:1.*": lambda name=name: catalog.find(f"{name}:1.*"),
            f"find {name} at": lambda name=name: catalog.find_at(at(name), now),
            f"versions {name}": lambda name=name: catalog.versions(*_parts(name)),
            f"standing {name} at": lambda name=name: catalog.standing(*_parts(name), at=now),
            f"configs {name}": lambda name=name: catalog.configs.list(name.partition("/")[0]),
        }
    for name in ("numbers:9.9.9", "numbers:3.0.0", "fresh:1.0.0", "mnist/plain:3.0.0"):
        found[f"publish {name}"] = lambda name=name: publish(name)
    found |= {
        "alias": lambda: catalog.aliases.set("best", at("numbers:1.3.0"), expect=None, message="", actor="ann"),
        "promote": lambda: catalog.lifecycle.promote(at("numbers:1.3.0"), actor="ann"),
        "yank": lambda: catalog.lifecycle.yank(at("numbers:1.3.0"), "bad", Version(1, 0, 0), actor="ann"),
        "default": lambda: catalog.configs.set_default("mnist", "plain", actor="ann"),
        "protect": lambda: catalog.configs.set_protection(None, protect=True, actor="ann"),
        "mirror": lambda: catalog.locations.add(at("numbers:1.3.0"), "s3://mirror/x", actor="ann"),
        "flag": lambda: catalog.experiments.add("other", "Another flag.", actor="ann"),
        "retire": lambda: catalog.experiments.set_default("fast", True, actor="ann"),
        "fingerprint": lambda: catalog.add_fingerprints(
            sample("numbers:1.0.0")[0], {"train": SplitFingerprint(num_examples=7, features={})}, actor="ann"
        ),
        "reserve": lambda: catalog.reservations.reserve(
            "s3://bucket/next/1.0.0", at("next:1.0.0"), "0" * 64, Holder.of_this_process("ann")
        ),
        "release": lambda: catalog.reservations.release("next", "1.0.0", force=True),
        "correct": lambda: catalog.log.correct_clock(actor="ann"),
    }
    return found


def _parts(name: str) -> tuple[str, str | None]:
    dataset, _, config = name.partition("/")
    return dataset, config or None


def untyped(catalog: CatalogBackend) -> list[str]:
    """The calls that fail with another error than ours, or with SQLAlchemy's text."""
    found = []
    for name, call in calls(catalog).items():
        try:
            call()
        except RegistryError as error:
            if "sqlalche" in str(error) or "[SQL" in str(error):
                found.append(f"{name}: {error}")
        except Exception as error:  # noqa: BLE001 (that is what is looked for)
            found.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
    return found
