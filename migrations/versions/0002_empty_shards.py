"""An index of the empty shards, so that a slice of very many shards knows them without reading the full ones.

Follows 0001.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_shard_empty",
        "shard",
        # The number of examples, always 0 here: with it SQLite needs no look at the table, and so prefers this index
        # to the primary key.
        ["split_id", "shard_index", "num_examples"],
        unique=False,
        sqlite_where=sa.text("num_examples = 0"),
        postgresql_where=sa.text("num_examples = 0"),
    )


def downgrade() -> None:
    op.drop_index("ix_shard_empty", table_name="shard")
