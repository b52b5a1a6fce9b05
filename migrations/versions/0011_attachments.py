"""Attachments: files that are kept with a published version and are not its shards, such as its statistics.

Follows 0010. A row names a file by its kind, name, size and digest. It is written with its version, or later with an
event of its own, and is never edited.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TABLE = "attachment"
KEY = ("version_id", "kind", "name")

TOLD = """
SELECT dataset, version, at, actor, action, details_json FROM event WHERE action IN ('publish', 'attach') ORDER BY id
"""
VERSION = """
SELECT v.id FROM dataset_version v JOIN builder_config c ON c.id = v.config_id JOIN builder b ON b.id = c.builder_id
WHERE b.name = :name AND c.name = :config AND v.major = :major AND v.minor = :minor AND v.patch = :patch
"""


def upgrade() -> None:
    table = op.create_table(
        TABLE,
        sa.Column("version_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("added_by", sa.Text(), nullable=False),
        sa.CheckConstraint("kind <> '' AND name <> ''", name=op.f("ck_attachment_name")),
        sa.CheckConstraint("num_bytes >= 0", name=op.f("ck_attachment_not_negative")),
        sa.CheckConstraint("length(sha256) = 64", name=op.f("ck_attachment_sha256")),
        sa.ForeignKeyConstraint(
            ["version_id"], ["dataset_version.id"], name=op.f("fk_attachment_version_id_dataset_version")
        ),
        sa.PrimaryKeyConstraint(*KEY, name=op.f("pk_attachment")),
    )
    restore_attachments(table)
    if op.get_context().dialect.name == "sqlite":
        create_sqlite_triggers()
    else:
        create_postgresql_triggers()


def restore_attachments(table: sa.Table) -> None:
    """A catalog that was taken back to 0010 and up again: the log still has every attachment."""
    connection = op.get_bind()
    told = sa.text(TOLD).columns(at=sa.DateTime(timezone=True))
    for dataset, version, at, actor, action, text in connection.execute(told).all():
        details = json.loads(text)
        attachments: list[dict[str, Any]] = [details] if action == "attach" else details.get("attachments", [])
        if not attachments:
            continue
        name, _, config = dataset.partition("/")
        major, minor, patch = map(int, version.split("."))
        number = {"name": name, "config": config, "major": major, "minor": minor, "patch": patch}
        version_id = connection.execute(sa.text(VERSION), number).scalar()
        rows_at = datetime.fromisoformat(details["@rows_at"]) if "@rows_at" in details else at
        if op.get_context().dialect.name == "sqlite":
            rows_at = rows_at.replace(tzinfo=None)
        for attachment in attachments:
            values = {column: attachment[column] for column in ("kind", "name", "num_bytes", "sha256")}
            row = {"version_id": version_id, "added_at": rows_at, "added_by": actor, **values}
            connection.execute(sa.insert(table).values(**row))


def create_sqlite_triggers() -> None:
    taken = " AND ".join(f"{column} = NEW.{column}" for column in KEY)
    guards = {
        "update": f"BEFORE UPDATE ON {TABLE}",
        "delete": f"BEFORE DELETE ON {TABLE}",
        "replace": f"BEFORE INSERT ON {TABLE} WHEN EXISTS (SELECT 1 FROM {TABLE} WHERE ({taken}))",  # noqa: S608 (constants above)
    }
    for verb, guard in guards.items():
        message = f"published rows never change: {verb.upper()} on {TABLE}"
        op.execute(f"CREATE TRIGGER {TABLE}_no_{verb} {guard} BEGIN SELECT RAISE(ABORT, '{message}'); END")


def create_postgresql_triggers() -> None:
    for verb, event, each in (("change", "UPDATE OR DELETE", "ROW"), ("truncate", "TRUNCATE", "STATEMENT")):
        op.execute(
            f"CREATE TRIGGER {TABLE}_no_{verb} BEFORE {event} ON {TABLE} "
            f"FOR EACH {each} EXECUTE FUNCTION registry_refuse_change()"
        )


def downgrade() -> None:
    """Nothing reads the attachments. The log keeps their rows for the way up."""
    op.drop_table(TABLE)
