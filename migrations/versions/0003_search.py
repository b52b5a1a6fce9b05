"""A document for each config, of the words it is found by, and a full-text index over them.

Follows 0002.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import sqlalchemy as sa
from alembic import op

from registry.migrations.renames import read_names

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

FIELDS = ("name", "tags", "features", "description", "details")

SQLITE = (
    "CREATE VIRTUAL TABLE search_index USING fts5(name, tags, features, description, details, "
    "content='search_document', content_rowid='config_id', tokenize='ascii', prefix='1 2 3', detail='column', "
    "columnsize=0)",
    "CREATE TRIGGER search_document_insert AFTER INSERT ON search_document BEGIN "
    "INSERT INTO search_index(rowid, name, tags, features, description, details) "
    "VALUES (NEW.config_id, NEW.name, NEW.tags, NEW.features, NEW.description, NEW.details); END",
    "CREATE TRIGGER search_document_delete AFTER DELETE ON search_document BEGIN "
    "INSERT INTO search_index(search_index, rowid, name, tags, features, description, details) "
    "VALUES ('delete', OLD.config_id, OLD.name, OLD.tags, OLD.features, OLD.description, OLD.details); END",
    "CREATE TRIGGER search_document_update AFTER UPDATE ON search_document BEGIN "
    "INSERT INTO search_index(search_index, rowid, name, tags, features, description, details) "
    "VALUES ('delete', OLD.config_id, OLD.name, OLD.tags, OLD.features, OLD.description, OLD.details); "
    "INSERT INTO search_index(rowid, name, tags, features, description, details) "
    "VALUES (NEW.config_id, NEW.name, NEW.tags, NEW.features, NEW.description, NEW.details); END",
)

POSTGRESQL = (
    "ALTER TABLE search_document ADD COLUMN vector tsvector GENERATED ALWAYS AS (("
    "coalesce(replace(nullif(name, '') || ' ', ' ', ':1A '), '') || ' ' || "
    "coalesce(replace(nullif(tags, '') || ' ', ' ', ':2B '), '') || ' ' || "
    "coalesce(replace(nullif(features, '') || ' ', ' ', ':3B '), '') || ' ' || "
    "coalesce(replace(nullif(description, '') || ' ', ' ', ':4C '), '') || ' ' || "
    "coalesce(replace(nullif(details, '') || ' ', ' ', ':5D '), ''))::tsvector) STORED",
    "CREATE INDEX ix_search_document_vector ON search_document USING gin (vector)",
)

# The version that stands for each config: the canonical one, else the highest that can be read, else the highest.
STANDING = """
SELECT id, config_id, builder_name, config_name FROM (
    SELECT v.id, v.config_id, b.name AS builder_name, c.name AS config_name, row_number() OVER (
        PARTITION BY v.config_id
        ORDER BY CASE WHEN v.id = c.canonical_version_id THEN 0 ELSE 1 END,
            CASE WHEN v.state IN ('yanked', 'dropped') THEN 1 ELSE 0 END, v.major DESC, v.minor DESC, v.patch DESC
    ) AS place
    FROM dataset_version v JOIN builder_config c ON c.id = v.config_id JOIN builder b ON b.id = c.builder_id
) ranked WHERE place = 1 ORDER BY config_id
"""
VERSION = sa.table("dataset_version", *map(sa.column, ("id", "metadata_json", "features_json", "labels_json")))
DOCUMENT = sa.table("search_document", *map(sa.column, ("config_id", "version_id", *FIELDS)))
BATCH = 200


def upgrade() -> None:
    op.create_table(
        "search_document",
        sa.Column("config_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version_id", sa.Integer(), nullable=False),
        *(sa.Column(field, sa.Text(), nullable=False) for field in FIELDS),
        sa.ForeignKeyConstraint(
            ["config_id", "version_id"],
            ["dataset_version.config_id", "dataset_version.id"],
            name=op.f("fk_search_document_config_id_version_id_dataset_version"),
        ),
        sa.PrimaryKeyConstraint("config_id", name=op.f("pk_search_document")),
    )
    connection = op.get_bind()
    for statement in SQLITE if connection.dialect.name == "sqlite" else POSTGRESQL:
        connection.exec_driver_sql(statement)
    fill_documents(connection)


def downgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        op.execute("DROP TABLE search_index")
    op.drop_table("search_document")  # with its index and triggers


def fill_documents(connection: sa.Connection) -> None:
    renamed = read_names(connection)
    standing = iter(connection.execute(sa.text(STANDING)).all())
    while batch := list(islice(standing, BATCH)):
        chosen = sa.select(VERSION).where(VERSION.c.id.in_([row.id for row in batch]))
        stored = {row.id: row for row in connection.execute(chosen)}
        connection.execute(
            sa.insert(DOCUMENT),
            [
                {"config_id": row.config_id, "version_id": row.id, **document_words(renamed, row, stored[row.id])}
                for row in batch
            ],
        )


# What follows is registry/catalog/search_words.py as it was: a migration imports no live code.

READ = 100_000
LENGTH = 64
COST = 12
BUDGET = {"name": 20_000, "tags": 20_000, "features": 200_000, "description": 200_000, "details": 50_000}
UNSPACED = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
WORD = re.compile(rf"(?=[^\W_])[{UNSPACED}]|(?:(?![{UNSPACED}])[^\W_])+")
PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
PLAIN = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th"})
DROPPED = {"Mn", "Mc", "Me", "Cf"}


def document_words(renamed: dict[str, list[str]], named: Any, row: Any) -> dict[str, str]:
    names = (named.builder_name, named.config_name, *renamed.get(named.builder_name, ()))
    metadata, labels = load(row.metadata_json), load(row.labels_json)
    texts = {
        "name": (word for part in names for word in name_words(part)),
        "tags": words_of(metadata.get("config_tags")),
        "features": feature_words(load(row.features_json), labels),
        "description": words_of([metadata.get("description"), metadata.get("config_description")]),
        "details": detail_words(metadata),
    }
    return {field: " ".join(within(texts[field], BUDGET[field])) for field in FIELDS}


def name_words(name: str) -> Iterator[str]:
    parts = list(words(name))
    if parts:
        yield "".join(parts)[:LENGTH]
        yield from parts
    for piece in PIECE.findall(name[:READ]):
        if len(piece) > 1 or piece.isdigit():
            yield piece.lower()[:LENGTH]


def words(text: str) -> Iterator[str]:
    for match in WORD.finditer(fold(text[:READ])):
        yield match[0][:LENGTH]


def fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return "".join(letter for letter in folded if unicodedata.category(letter) not in DROPPED).translate(PLAIN)


def words_of(value: Any) -> Iterator[str]:
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str):
            yield from words(text)


def detail_words(metadata: dict[str, Any]) -> Iterator[str]:
    yield from words_of([metadata.get("license"), metadata.get("citation")])
    homepage = metadata.get("homepage")
    if isinstance(homepage, str):
        yield from (word for word in words(homepage) if word not in ("http", "https", "www"))


def feature_words(schema: dict[str, Any], labels: dict[str, Any]) -> Iterator[str]:
    names: list[str] = []
    about: list[str] = []
    messages = [schema]
    for message in messages:
        for written, value in message.items():
            match written.replace("_", "").lower(), value:
                case "pythonclassname", str() if not value.endswith("FeaturesDict"):
                    about.extend(name_words(value.rpartition(".")[2].removesuffix("Feature")))
                case "description" | "dtype" | "encodingformat", str():
                    about.extend(words(value))
                case "featuresdict", {"features": dict(inner)}:
                    for name, feature in inner.items():
                        names.extend(name_words(name))
                        if isinstance(feature, dict):
                            messages.append(feature)
                case _, dict():
                    messages.append(value)
    yield from names
    yield from about
    for stem, of_label in labels.items():
        yield from name_words(stem)
        yield from words_of(of_label)


def within(found: Iterable[str], budget: int) -> Iterator[str]:
    seen: set[str] = set()
    for word in found:
        if word in seen:
            continue
        budget -= len(word.encode()) + COST
        if budget < 0:
            return
        seen.add(word)
        yield word


def load(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
