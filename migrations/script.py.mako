"""${message}.

Follows ${down_revision | comma,n}. Imports no live code; goes up and down on a populated database of both kinds.
SQLite's batch mode copies the table: hand it the whole table (`copy_from=`), because CHECK constraints and WITHOUT ROWID
are not reflected. Afterwards append the revision to REVISIONS in registry/catalog/revision.py.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    ${downgrades if downgrades else "pass"}
