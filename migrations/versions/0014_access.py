"""Who may call a shared catalog, which calls it refused, and its last answers, for clients that ask again.

Follows 0013.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "access_token",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("datasets_json", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_by", sa.Text(), nullable=True),
        sa.CheckConstraint("length(id) = 12", name=op.f("ck_access_token_id")),
        sa.CheckConstraint("length(digest) = 64", name=op.f("ck_access_token_digest")),
        sa.CheckConstraint("name <> ''", name=op.f("ck_access_token_name")),
        sa.CheckConstraint("role IN ('reader', 'publisher', 'admin')", name=op.f("ck_access_token_role")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_access_token")),
        sa.UniqueConstraint("digest", name=op.f("uq_access_token_digest")),
    )
    op.create_table(
        "refusal",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("token", sa.Text(), nullable=True),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("call", sa.Text(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_refusal")),
    )
    op.create_table(
        "kept_answer",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("call", sa.Text(), nullable=False),
        sa.Column("request_digest", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("kept_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("length(key) BETWEEN 1 AND 200", name=op.f("ck_kept_answer_key")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_kept_answer")),
    )
    op.create_index(op.f("ix_kept_answer_kept_at"), "kept_answer", ["kept_at"])


def downgrade() -> None:
    """Every token is lost: after the way up, people need new ones."""
    op.drop_table("kept_answer")
    op.drop_table("refusal")
    op.drop_table("access_token")
