"""Declares the tables of a catalog; ``guards.py`` has the triggers that keep published rows from changing.

The migrations (``registry.migrations``) create the tables and import nothing from here; ``registry db check`` compares
the two. These are SQLAlchemy Core tables, without the ORM: rows never leave this folder, frozen values do.

    builder ─< builder_config ─< dataset_version ─< split ─< shard
       │             │                  │              └──< fingerprint
       │             │                  ├─< attachment
       │             │                  ├─< version_location
       │             ├─< alias          └─< version_experiment >─ experiment
       │             ├─< alias_event
       │             └── search_document
       └─< dataset_name
    version_ledger, event, corrected_time: no foreign keys, because they outlive the rows that they mention
    reservation: no foreign keys, because it exists before its version, and is deleted when the version is published
    protection: of a dataset, a config, or the whole catalog, by name
    access_token, refusal, kept_answer: about the calls of a shared catalog, and not about what is published
    webhook: who gets the events of a shared catalog
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator

NAMING_CONVENTION: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

metadata: Final = sa.MetaData(naming_convention=NAMING_CONVENTION)


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC, timezone-aware on both databases; SQLite, which has no time zones, stores the UTC clock."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Convert an aware ``value`` to UTC. Raises ValueError for a naive one."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a time zone cannot be stored")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002 (SQLAlchemy passes it by name)
        """``value`` as an aware moment in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _id() -> sa.Column[int]:
    # Explicit autoincrement: builder_config.id is also part of a foreign key, which would turn it off.
    return sa.Column("id", sa.Integer, primary_key=True, autoincrement=True)


def _text(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, **options)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


builder: Final = sa.Table(
    "builder",
    metadata,
    _id(),
    _text("name"),
    # It never changes whether a dataset has configs: a reference without a config must never change its meaning.
    sa.Column("has_configs", sa.Boolean, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.UniqueConstraint("name"),
    sa.CheckConstraint("name <> ''", name="name"),
)

# Every name that a renamed dataset has had, present and former ones, from position 0. No other dataset may take one.
dataset_name: Final = sa.Table(
    "dataset_name",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("builder_id", sa.ForeignKey("builder.id"), nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.UniqueConstraint("builder_id", "position"),
    sa.CheckConstraint("name <> ''", name="name"),
    sa.CheckConstraint("position >= 0", name="not_negative"),
)

builder_config: Final = sa.Table(
    "builder_config",
    metadata,
    _id(),
    sa.Column("builder_id", sa.ForeignKey("builder.id"), nullable=False),
    # '' is the only config of a dataset without configs. It is not NULL, because NULLs would not be unique.
    _text("name"),
    sa.Column("is_default", sa.Boolean, nullable=False),
    sa.Column("canonical_version_id", sa.Integer),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.UniqueConstraint("builder_id", "name"),
    # The canonical version must be a version of this config.
    sa.ForeignKeyConstraint(
        ["id", "canonical_version_id"], ["dataset_version.config_id", "dataset_version.id"], use_alter=True
    ),
)

dataset_version: Final = sa.Table(
    "dataset_version",
    metadata,
    _id(),
    sa.Column("config_id", sa.ForeignKey("builder_config.id"), nullable=False),
    sa.Column("major", sa.Integer, nullable=False),
    sa.Column("minor", sa.Integer, nullable=False),
    sa.Column("patch", sa.Integer, nullable=False),
    # The only columns that change after publication (MAY_CHANGE).
    _text("state"),
    _text("state_message"),
    sa.Column("superseded_by", sa.Text),
    _text("release_notes_json"),
    sa.Column("version_to_prepare", sa.Text),
    _text("slicing"),
    _text("file_format"),
    sa.Column("disable_shuffling", sa.Boolean, nullable=False),
    _text("features_json"),
    _text("labels_json"),
    _text("metadata_json"),
    _text("location"),
    _text("content_digest"),
    sa.Column("published_at", UtcDateTime, nullable=False),
    _text("published_by"),
    sa.UniqueConstraint("config_id", "major", "minor", "patch"),
    sa.UniqueConstraint("config_id", "id"),
    sa.CheckConstraint("major >= 0 AND minor >= 0 AND patch >= 0", name="number"),
    sa.CheckConstraint("state IN ('supported', 'deprecated', 'yanked', 'dropped')", name="state"),
    sa.CheckConstraint("slicing IN ('documented', 'tfds-4')", name="slicing"),
    sa.CheckConstraint("length(content_digest) = 64", name="content_digest"),
)

experiment: Final = sa.Table(
    "experiment",
    metadata,
    _id(),
    _text("name"),
    _text("description"),
    sa.Column("default_enabled", sa.Boolean, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("retired_at", UtcDateTime),
    sa.UniqueConstraint("name"),
    sa.CheckConstraint("name <> ''", name="name"),
)

version_experiment: Final = sa.Table(
    "version_experiment",
    metadata,
    sa.Column("version_id", sa.ForeignKey("dataset_version.id"), primary_key=True),
    sa.Column("experiment_id", sa.ForeignKey("experiment.id"), primary_key=True, index=True),
    sa.Column("enabled", sa.Boolean, nullable=False),
)

# Changes of the locations of a version, which begin with the one in its row; see model.current_locations.
version_location: Final = sa.Table(
    "version_location",
    metadata,
    _id(),
    sa.Column("version_id", sa.ForeignKey("dataset_version.id"), nullable=False),
    _text("change"),
    _text("location", index=True),
    sa.Column("at", UtcDateTime, nullable=False),
    _text("actor"),
    sa.Index(None, "version_id", "id"),
    sa.CheckConstraint("change IN ('add', 'first', 'remove')", name="change"),
)

# Files that are kept with a version and are not its shards, such as its statistics.
attachment: Final = sa.Table(
    "attachment",
    metadata,
    sa.Column("version_id", sa.ForeignKey("dataset_version.id"), primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    _count("num_bytes"),
    _text("sha256"),
    sa.Column("added_at", UtcDateTime, nullable=False),
    _text("added_by"),
    sa.CheckConstraint("kind <> '' AND name <> ''", name="name"),
    sa.CheckConstraint("num_bytes >= 0", name="not_negative"),
    sa.CheckConstraint("length(sha256) = 64", name="sha256"),
)

split: Final = sa.Table(
    "split",
    metadata,
    _id(),
    sa.Column("version_id", sa.ForeignKey("dataset_version.id"), nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    _text("name"),
    _count("num_examples"),
    _count("num_bytes"),
    sa.Column("num_shards", sa.Integer, nullable=False),
    _text("filename_template"),
    _text("filename_dataset"),
    _text("filename_format"),
    sa.UniqueConstraint("version_id", "name"),
    sa.UniqueConstraint("version_id", "position"),
    sa.CheckConstraint("name NOT IN ('', 'all')", name="name"),
    sa.CheckConstraint(
        "position >= 0 AND num_examples >= 0 AND num_bytes >= 0 AND num_shards >= 0", name="not_negative"
    ),
)

shard: Final = sa.Table(
    "shard",
    metadata,
    sa.Column("split_id", sa.ForeignKey("split.id"), primary_key=True, autoincrement=False),
    sa.Column("shard_index", sa.Integer, primary_key=True, autoincrement=False),
    _count("first_example"),
    _count("num_examples"),
    _count("num_bytes"),
    _text("sha256"),
    # The ETag of the object when it was published; NULL on disks, and if the store was not asked for it.
    sa.Column("entity_tag", sa.Text, nullable=True),
    # With this index, a slice that touches ten of a million shards is one range query.
    sa.Index(None, "split_id", "first_example"),
    sa.CheckConstraint(
        "shard_index >= 0 AND first_example >= 0 AND num_examples >= 0 AND num_bytes >= 0", name="not_negative"
    ),
    sa.CheckConstraint("length(sha256) = 64", name="sha256"),
    sqlite_with_rowid=False,
)

fingerprint: Final = sa.Table(
    "fingerprint",
    metadata,
    sa.Column("split_id", sa.ForeignKey("split.id"), primary_key=True, autoincrement=False),
    # '' for the whole record, otherwise the path of a feature. A row covers a block of records, or all of them.
    sa.Column("feature", sa.Text, primary_key=True),
    sa.Column("algorithm", sa.Text, primary_key=True),
    sa.Column("first_example", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("num_examples", sa.BigInteger, primary_key=True, autoincrement=False),
    _text("digest"),
    sa.CheckConstraint("first_example >= 0 AND num_examples >= 0", name="not_negative"),
)

alias: Final = sa.Table(
    "alias",
    metadata,
    _id(),
    sa.Column("config_id", sa.ForeignKey("builder_config.id"), nullable=False),
    _text("name"),
    sa.Column("version_id", sa.Integer, nullable=False),
    sa.Column("set_at", UtcDateTime, nullable=False),
    _text("set_by"),
    sa.UniqueConstraint("config_id", "name"),
    # The version must belong to the config of the alias.
    sa.ForeignKeyConstraint(["config_id", "version_id"], ["dataset_version.config_id", "dataset_version.id"]),
    sa.CheckConstraint("name <> ''", name="name"),
)

alias_event: Final = sa.Table(
    "alias_event",
    metadata,
    _id(),
    sa.Column("config_id", sa.ForeignKey("builder_config.id"), nullable=False),
    _text("name"),
    # NULL in from_version_id if the alias is new, NULL in to_version_id if it was removed.
    sa.Column("from_version_id", sa.ForeignKey("dataset_version.id")),
    sa.Column("to_version_id", sa.ForeignKey("dataset_version.id")),
    sa.Column("at", UtcDateTime, nullable=False),
    _text("actor"),
    _text("message"),
    sa.Index(None, "config_id", "name", "id"),
)

protection: Final = sa.Table(
    "protection",
    metadata,
    # 'name/config', 'name', or '' for the whole catalog.
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("protected_at", UtcDateTime, nullable=False),
    _text("protected_by"),
    # Whether changes of what it protects wait until another person approves them (proposals.py).
    sa.Column("two_persons", sa.Boolean, nullable=False, server_default=sa.false()),
)

version_ledger: Final = sa.Table(
    "version_ledger",
    metadata,
    sa.Column("builder_name", sa.Text, primary_key=True),
    sa.Column("config_name", sa.Text, primary_key=True),
    sa.Column("major", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("minor", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("patch", sa.Integer, primary_key=True, autoincrement=False),
    _text("content_digest"),
    sa.Column("used_at", UtcDateTime, nullable=False),
    _text("used_by"),
    sa.CheckConstraint("length(content_digest) = 64", name="content_digest"),
)

# Who uploads the files of a version to an object store, which itself does not keep writers apart (reservations.py).
reservation: Final = sa.Table(
    "reservation",
    metadata,
    _id(),
    _text("location"),
    _text("dataset"),
    _text("version"),
    _text("content_digest"),
    # The marker object in the store has the same token: it shows that this catalog holds the location.
    _text("token"),
    # True while files that another publisher left are removed. Nobody else may upload there, or publish it, meanwhile.
    sa.Column("is_cleaning", sa.Boolean, nullable=False),
    _text("owners_json"),
    # The objects that existed before the marker, which must not be removed; NULL until they are listed.
    sa.Column("found_json", sa.Text),
    sa.Column("reserved_at", UtcDateTime, nullable=False),
    sa.UniqueConstraint("location"),
    sa.CheckConstraint("length(content_digest) = 64", name="content_digest"),
)

event: Final = sa.Table(
    "event",
    metadata,
    # 1, 2, 3 ... without gaps: the writer assigns the id under a lock, not the database.
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", UtcDateTime, nullable=False),
    _text("actor"),
    _text("action"),
    _text("dataset"),
    _text("version"),
    _text("details_json"),
    _text("previous_hash"),
    _text("hash"),
    # Unique, so that no two events have the same predecessor and the chain cannot fork.
    sa.UniqueConstraint("previous_hash"),
    sa.UniqueConstraint("hash"),
    sa.Index(None, "dataset", "id"),
    sa.CheckConstraint("length(hash) = 64 AND length(previous_hash) = 64", name="hash"),
)

# The times of events that a wrong clock stamped, as an event `correct-clock` corrects them (corrections.py). The events
# stay as they are.
corrected_time: Final = sa.Table(
    "corrected_time",
    metadata,
    sa.Column("event_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("corrected_by", sa.Integer, nullable=False),
)

# Who may call a shared catalog (access.py). The text of a token is not stored.
access_token: Final = sa.Table(
    "access_token",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    _text("digest"),
    _text("name"),
    _text("role"),
    _text("datasets_json"),
    sa.Column("created_at", UtcDateTime, nullable=False),
    _text("created_by"),
    sa.Column("expires_at", UtcDateTime),
    # The only columns that change.
    sa.Column("last_used_at", UtcDateTime),
    sa.Column("revoked_at", UtcDateTime),
    sa.Column("revoked_by", sa.Text),
    sa.UniqueConstraint("digest"),
    sa.CheckConstraint("length(id) = 12", name="id"),
    sa.CheckConstraint("length(digest) = 64", name="digest"),
    sa.CheckConstraint("name <> ''", name="name"),
    sa.CheckConstraint("role IN ('reader', 'publisher', 'maintainer', 'admin')", name="role"),
)

# The newest calls that a shared catalog refused.
refusal: Final = sa.Table(
    "refusal",
    metadata,
    _id(),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("token", sa.Text),
    _text("principal"),
    _text("call"),
    _text("dataset"),
    _text("reason"),
)

# The answers of the last calls that changed something, for clients that ask again (kept_answers.py).
kept_answer: Final = sa.Table(
    "kept_answer",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    _text("principal"),
    _text("call"),
    _text("request_digest"),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("answer", sa.LargeBinary, nullable=False),
    sa.Column("kept_at", UtcDateTime, nullable=False, index=True),
    sa.CheckConstraint("length(key) BETWEEN 1 AND 200", name="key"),
)

# Who gets the events by HTTP, and how far each of them is (webhooks.py). No secret is stored.
webhook: Final = sa.Table(
    "webhook",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    _text("url"),
    _text("datasets_json"),
    _text("actions_json"),
    sa.Column("created_at", UtcDateTime, nullable=False),
    _text("created_by"),
    # The columns that change.
    sa.Column("delivered_through", sa.Integer, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("failing_since", UtcDateTime),
    sa.Column("next_try_at", UtcDateTime),
    _text("last_error"),
    sa.Column("disabled_at", UtcDateTime),
    sa.Column("disabled_because", sa.Text),
    sa.Column("leased_by", sa.Text),
    sa.Column("leased_until", UtcDateTime),
    sa.CheckConstraint("length(id) = 12", name="id"),
    sa.CheckConstraint("delivered_through >= 0", name="delivered_through"),
)

# The words of one version of each config. Each database has a full-text index of its own kind over it (search.py).
search_document: Final = sa.Table(
    "search_document",
    metadata,
    sa.Column("config_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("version_id", sa.Integer, nullable=False),
    _text("name"),
    _text("tags"),
    _text("features"),
    _text("description"),
    _text("details"),
    sa.ForeignKeyConstraint(["config_id", "version_id"], ["dataset_version.config_id", "dataset_version.id"]),
)


READABLE: Final = "state NOT IN ('yanked', 'dropped')"
"""The versions that a wildcard or range may give, in SQL. A query uses the partial index only with the same text."""


@cache
def whole_metadata() -> sa.MetaData:
    """``metadata`` with the partial indexes. They load PostgreSQL's dialect, 30 ms, so look-ups do without them."""
    # A dataset has at most one default config.
    _partial_index("ix_builder_config_default", builder_config.c.builder_id, where="is_default", unique=True)
    # Finds the empty shards of a slice without reading the others (paging.py). num_examples is always 0 here: with it,
    # SQLite need not read the table, and so prefers this index to the primary key.
    _partial_index(
        "ix_shard_empty", shard.c.split_id, shard.c.shard_index, shard.c.num_examples, where="num_examples = 0"
    )
    # Finds the highest readable version, whatever the number of yanked ones above it (selection.py).
    _partial_index(
        "ix_dataset_version_readable",
        dataset_version.c.config_id,
        dataset_version.c.major,
        dataset_version.c.minor,
        dataset_version.c.patch,
        dataset_version.c.state,
        where=READABLE,
    )
    return metadata


def _partial_index(name: str, *columns: sa.Column[Any], where: str, unique: bool = False) -> None:
    sa.Index(name, *columns, unique=unique, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
