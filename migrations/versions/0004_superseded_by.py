"""Which version takes the place of one that was yanked; and an index of the versions that can be read.

Follows 0003.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# Literal, as a query has to say it: a plan made for any parameters cannot use a partial index.
READABLE = "state NOT IN ('yanked', 'dropped')"


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
