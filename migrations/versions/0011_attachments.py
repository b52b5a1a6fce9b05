"""Attachments: files that are kept with a published version and are not its shards, such as its statistics.

Follows 0010. A row names a file by its kind, name, size and digest. It is written with its version, or later with an
event of its own, and is never edited.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

from registry.migrations.renames import in_present, read_present_names

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TABLE = "attachment"
KEY = ("version_id", "kind", "name")
PART = "[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}"

TOLD = """
SELECT dataset, version, at, actor, action, details_json FROM event WHERE action IN ('publish', 'attach') ORDER BY id
"""
VERSION = """
SELECT v.id FROM dataset_version v JOIN builder_config c ON c.id = v.config_id JOIN builder b ON b.id = c.builder_id
WHERE b.name = :name AND c.name = :config AND v.major || '.' || v.minor || '.' || v.patch = :version
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
    """A catalog that was taken back to 0010 and up again: the log still has every attachment.

    An event that nobody can read is skipped: ``registry log verify`` names it.
    """
    connection, taken = op.get_bind(), set()
    told, present = sa.text(TOLD).columns(at=sa.DateTime(timezone=True)), read_present_names(connection)
    for dataset, version, at, actor, action, text in connection.execute(told).all():
        try:
            details = json.loads(text)
            attachments = [details] if action == "attach" else details.get("attachments", [])
            rows = [read_row(attachment) for attachment in attachments]
            name, _, config = in_present(present, dataset).partition("/")
            rows_at = datetime.fromisoformat(details["@rows_at"]).astimezone(UTC) if "@rows_at" in details else at
        except (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            continue
        subject = {"name": name, "config": config, "version": version}
        version_id = connection.execute(sa.text(VERSION), subject).scalar() if rows else None
        if op.get_context().dialect.name == "sqlite":
            rows_at = rows_at.replace(tzinfo=None)
        for row in rows:
            key = (version_id, row["kind"], row["name"])
            if version_id is not None and key not in taken:
                taken.add(key)
                values = {"version_id": version_id, "added_at": rows_at, "added_by": actor, **row}
                connection.execute(sa.insert(table).values(**values))


def read_row(attachment: dict[str, Any]) -> dict[str, Any]:
    """The columns of an attachment in an event; ValueError, KeyError or TypeError if it has others."""
    row = {column: attachment[column] for column in ("kind", "name", "num_bytes", "sha256")}
    texts = (PART, row["kind"]), (PART, row["name"]), ("[0-9a-f]{64}", row["sha256"])
    is_text = all(re.fullmatch(pattern, text) for pattern, text in texts)
    if not is_text or type(row["num_bytes"]) is not int or not 0 <= row["num_bytes"] < 2**63:
        raise ValueError("not an attachment")
    return row


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
