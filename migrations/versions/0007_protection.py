"""Datasets, or a whole catalog, whose canonical version only a promotion moves.

Follows 0006.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from registry.migrations.renames import in_present, read_present_names

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

TOLD = "SELECT action, dataset, at, actor FROM event WHERE action IN ('protect', 'unprotect') ORDER BY id"


def upgrade() -> None:
    table = op.create_table(
        "protection",
        # 'name/config', 'name', or '' for the whole catalog.
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("protected_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("protected_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("scope", name=op.f("pk_protection")),
    )
    # A catalog that was taken back to 0006 and up again: the log still tells what is protected.
    told = sa.text(TOLD).columns(at=sa.DateTime(timezone=True))
    present = read_present_names(op.get_bind())
    protected: dict[str, dict[str, Any]] = {}
    for action, named, at, actor in op.get_bind().execute(told):
        scope = in_present(present, named)
        protected.pop(scope, None)
        if action == "protect":
            protected[scope] = {"scope": scope, "protected_at": at, "protected_by": actor}
    if protected:
        op.bulk_insert(table, list(protected.values()))


def downgrade() -> None:
    op.drop_table("protection")
