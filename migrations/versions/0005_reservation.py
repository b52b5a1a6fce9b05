"""Who is putting a version's files into an object store: the reservation of a location.

Follows 0004.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "reservation",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("content_digest", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("is_cleaning", sa.Boolean(), nullable=False),
        sa.Column("owners_json", sa.Text(), nullable=False),
        sa.Column("found_json", sa.Text(), nullable=True),
        sa.Column("reserved_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("length(content_digest) = 64", name=op.f("ck_reservation_content_digest")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reservation")),
        sa.UniqueConstraint("location", name=op.f("uq_reservation_location")),
    )


def downgrade() -> None:
    """Objects that a dead publisher left keep their marker: `registry reservation clear` moves them aside."""
    op.drop_table("reservation")
