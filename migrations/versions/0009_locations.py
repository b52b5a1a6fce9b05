"""Other locations of the files of published versions: mirrors, and folders that were moved.

Follows 0008. The row of a version keeps the location that it was published with. Each change is a row of its own, which
is never edited.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from registry.migrations.renames import in_present, read_present_names

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TABLE = "version_location"

TOLD = """
SELECT dataset, version, at, actor, action, details_json FROM event
WHERE action IN ('mirror-add', 'mirror-remove', 'relocate') ORDER BY id
"""
VERSION = """
SELECT v.id FROM dataset_version v JOIN builder_config c ON c.id = v.config_id JOIN builder b ON b.id = c.builder_id
WHERE b.name = :name AND c.name = :config AND v.major = :major AND v.minor = :minor AND v.patch = :patch
"""


def upgrade() -> None:
    table = op.create_table(
        TABLE,
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("version_id", sa.Integer(), nullable=False),
        # 'add': the last location; 'first': the first one; 'remove': no location any more.
        sa.Column("change", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.CheckConstraint("change IN ('add', 'first', 'remove')", name=op.f("ck_version_location_change")),
        sa.ForeignKeyConstraint(
            ["version_id"], ["dataset_version.id"], name=op.f("fk_version_location_version_id_dataset_version")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_version_location")),
    )
    op.create_index(op.f("ix_version_location_version_id_id"), TABLE, ["version_id", "id"], unique=False)
    op.create_index(op.f("ix_version_location_location"), TABLE, ["location"], unique=False)
    restore_locations(table)
    if op.get_context().dialect.name == "sqlite":
        create_sqlite_triggers()
    else:
        create_postgresql_triggers()


def restore_locations(table: sa.Table) -> None:
    """A catalog that was taken back to 0008 and up again: the log still tells every change."""
    connection = op.get_bind()
    told, present = sa.text(TOLD).columns(at=sa.DateTime(timezone=True)), read_present_names(connection)
    for dataset, version, at, actor, action, text in connection.execute(told).all():
        name, _, config = in_present(present, dataset).partition("/")
        major, minor, patch = map(int, version.split("."))
        number = {"name": name, "config": config, "major": major, "minor": minor, "patch": patch}
        version_id = connection.execute(sa.text(VERSION), number).scalar()
        for change, location in changes(action, json.loads(text)):
            values = {"version_id": version_id, "change": change, "location": location, "at": at, "actor": actor}
            connection.execute(sa.insert(table).values(**values))


def changes(action: str, details: dict[str, Any]) -> list[tuple[str, str]]:
    """The rows that an event told of."""
    if action == "relocate":
        return [("first" if details["is_first"] else "add", details["after"]), ("remove", details["before"])]
    return [(action.removeprefix("mirror-"), details["location"])]


def create_sqlite_triggers() -> None:
    guards = {
        "update": f"BEFORE UPDATE ON {TABLE}",
        "delete": f"BEFORE DELETE ON {TABLE}",
        "replace": f"BEFORE INSERT ON {TABLE} WHEN EXISTS (SELECT 1 FROM {TABLE} WHERE (id = NEW.id))",  # noqa: S608 (a constant above)
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
    """Versions are read from the location that they were published with. The log keeps the others for the way up."""
    op.drop_table(TABLE)
