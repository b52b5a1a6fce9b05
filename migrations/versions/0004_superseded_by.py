"""Which version takes the place of one that was yanked; and an index of the versions that can be read.

Follows 0003.
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

from registry.migrations.renames import in_present, read_present_names

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# Literal, as a query has to say it: a plan made for any parameters cannot use a partial index.
READABLE = "state NOT IN ('yanked', 'dropped')"

TOLD = "SELECT dataset, version, details_json FROM event WHERE version <> '' AND action <> 'publish' ORDER BY id"
RESTORE = """
UPDATE dataset_version SET superseded_by = :successor
WHERE major = :major AND minor = :minor AND patch = :patch AND config_id IN (
    SELECT c.id FROM builder_config c JOIN builder b ON b.id = c.builder_id WHERE b.name = :name AND c.name = :config
)
"""


def upgrade() -> None:
    op.add_column("dataset_version", sa.Column("superseded_by", sa.Text(), nullable=True))
    op.create_index(
        "ix_dataset_version_readable",
        "dataset_version",
        # With the state SQLite needs no look at the table.
        ["config_id", "major", "minor", "patch", "state"],
        unique=False,
        sqlite_where=sa.text(READABLE),
        postgresql_where=sa.text(READABLE),
    )
    let_change("state", "state_message", "superseded_by")
    restore_successors()


def restore_successors() -> None:
    """A catalog that was taken back to 0003 and up again: the log still tells what took the place of each version."""
    connection = op.get_bind()
    told: dict[tuple[str, str], str | None] = {}
    for dataset, version, details in connection.execute(sa.text(TOLD)):
        after = json.loads(details).get("after")
        if isinstance(after, dict) and "superseded_by" in after:
            told[dataset, version] = after["superseded_by"]
    present = read_present_names(connection)
    for (dataset, version), successor in told.items():
        if successor is not None:
            name, _, config = in_present(present, dataset).partition("/")
            major, minor, patch = map(int, version.split("."))
            values = {"name": name, "config": config, "major": major, "minor": minor, "patch": patch}
            connection.execute(sa.text(RESTORE), {**values, "successor": successor})


def downgrade() -> None:
    let_change("state", "state_message")
    op.drop_index("ix_dataset_version_readable", table_name="dataset_version")
    op.drop_column("dataset_version", "superseded_by")


def let_change(*columns: str) -> None:
    """Tell PostgreSQL's trigger which columns may change. SQLite's one lists those that may not: it stays as it is."""
    if op.get_context().dialect.name != "postgresql":
        return
    arguments = ", ".join(f"'{name}'" for name in columns)
    op.execute("DROP TRIGGER dataset_version_no_change ON dataset_version")
    op.execute(
        "CREATE TRIGGER dataset_version_no_change BEFORE UPDATE OR DELETE ON dataset_version "
        f"FOR EACH ROW EXECUTE FUNCTION registry_refuse_change({arguments})"
    )
