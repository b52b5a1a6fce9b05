"""What an object store called the bytes of a shard when they were published, so that readers need not hash them.

Follows 0005.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("shard", sa.Column("entity_tag", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("shard", "entity_tag")
