"""The metadata of a published version may change: ``registry describe`` corrects a licence or a description.

Follows 0011. The rows stay as they are; the triggers let one more column change. Each change has an event with the
values before and after, and the seal of the version from then on.
"""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

CHANGING = ("state", "state_message", "superseded_by")
PUBLISHED_COLUMNS = (
    "id", "config_id", "major", "minor", "patch", "release_notes_json", "version_to_prepare", "slicing", "file_format",
    "disable_shuffling", "features_json", "labels_json", "metadata_json", "location", "content_digest", "published_at",
    "published_by",
)  # fmt: skip


def upgrade() -> None:
    let_change(*CHANGING, "metadata_json")


def downgrade() -> None:
    """Corrected metadata stays. A registry of the revision before says that it is not as published."""
    let_change(*CHANGING)


def let_change(*columns: str) -> None:
    """PostgreSQL's trigger lists the columns that may change, and SQLite's those that may not."""
    if op.get_context().dialect.name == "postgresql":
        arguments = ", ".join(f"'{name}'" for name in columns)
        op.execute("DROP TRIGGER IF EXISTS dataset_version_no_change ON dataset_version")
        op.execute(
            "CREATE TRIGGER dataset_version_no_change BEFORE UPDATE OR DELETE ON dataset_version "
            f"FOR EACH ROW EXECUTE FUNCTION registry_refuse_change({arguments})"
        )
        return
    changed = " OR ".join(f"NEW.{name} IS NOT OLD.{name}" for name in PUBLISHED_COLUMNS if name not in columns)
    op.execute("DROP TRIGGER IF EXISTS dataset_version_no_update")
    op.execute(
        f"CREATE TRIGGER dataset_version_no_update BEFORE UPDATE ON dataset_version WHEN {changed} "
        "BEGIN SELECT RAISE(ABORT, 'published rows never change: UPDATE on dataset_version'); END"
    )
