"""All tables of a catalog, and the triggers that keep published rows as they are.

First revision.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

CANONICAL_KEY = "fk_builder_config_id_canonical_version_id_dataset_version"

# The keys of each table whose rows are never deleted or changed, apart from the columns of MAY_CHANGE.
IMMUTABLE: dict[str, list[tuple[str, ...]]] = {
    "dataset_version": [("id",), ("config_id", "id"), ("config_id", "major", "minor", "patch")],
    "version_experiment": [("version_id", "experiment_id")],
    "split": [("id",), ("version_id", "name"), ("version_id", "position")],
    "shard": [("split_id", "shard_index")],
    "fingerprint": [("split_id", "feature", "algorithm", "first_example", "num_examples")],
    "version_ledger": [("builder_name", "config_name", "major", "minor", "patch")],
    "alias_event": [("id",)],
    "event": [("id",), ("hash",), ("previous_hash",)],
}
MAY_CHANGE = {"dataset_version": ("state", "state_message")}
PUBLISHED_COLUMNS = (
    "id", "config_id", "major", "minor", "patch", "release_notes_json", "version_to_prepare", "slicing", "file_format",
    "disable_shuffling", "features_json", "labels_json", "metadata_json", "location", "content_digest", "published_at",
    "published_by",
)  # fmt: skip

REFUSE_CHANGE = """
CREATE FUNCTION registry_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND TG_NARGS > 0 AND to_jsonb(NEW) - TG_ARGV = to_jsonb(OLD) - TG_ARGV THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'published rows never change: % on %', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$
"""


def upgrade() -> None:
    create_tables()
    if op.get_context().dialect.name == "sqlite":
        create_sqlite_triggers()
    else:
        create_postgresql_triggers()


def downgrade() -> None:
    postgresql = op.get_context().dialect.name == "postgresql"
    if postgresql:
        op.drop_constraint(op.f(CANONICAL_KEY), "builder_config", type_="foreignkey")
    for table in (
        "shard", "fingerprint", "split", "version_experiment", "experiment", "alias", "alias_event",
        "dataset_version", "builder_config", "builder", "version_ledger", "event",
    ):  # fmt: skip
        op.drop_table(table)  # with its indexes and triggers
    if postgresql:
        op.execute("DROP FUNCTION registry_refuse_change()")


def create_sqlite_triggers() -> None:
    """Refuse UPDATE, DELETE, and INSERT OR REPLACE, which deletes rows without firing DELETE triggers."""
    for table, keys in IMMUTABLE.items():
        condition = ""
        if table in MAY_CHANGE:
            condition = " WHEN " + " OR ".join(f"NEW.{name} IS NOT OLD.{name}" for name in PUBLISHED_COLUMNS)
        taken = " OR ".join("(" + " AND ".join(f"{name} = NEW.{name}" for name in key) + ")" for key in keys)
        guards = {
            "update": f"BEFORE UPDATE ON {table}{condition}",
            "delete": f"BEFORE DELETE ON {table}",
            "replace": f"BEFORE INSERT ON {table} WHEN EXISTS (SELECT 1 FROM {table} WHERE {taken})",  # noqa: S608 (constants above)
        }
        for verb, guard in guards.items():
            message = f"published rows never change: {verb.upper()} on {table}"
            op.execute(f"CREATE TRIGGER {table}_no_{verb} {guard} BEGIN SELECT RAISE(ABORT, '{message}'); END")


def create_postgresql_triggers() -> None:
    """Refuse UPDATE, DELETE and TRUNCATE."""
    op.execute(REFUSE_CHANGE)
    for table in IMMUTABLE:
        arguments = ", ".join(f"'{name}'" for name in MAY_CHANGE.get(table, ()))
        op.execute(
            f"CREATE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION registry_refuse_change({arguments})"
        )
        op.execute(
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION registry_refuse_change()"
        )


def create_tables() -> None:
    op.create_table(
        "builder",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("has_configs", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("name <> ''", name=op.f("ck_builder_name")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_builder")),
        sa.UniqueConstraint("name", name=op.f("uq_builder_name")),
    )
    op.create_table(
        "event",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("details_json", sa.Text(), nullable=False),
        sa.Column("previous_hash", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.CheckConstraint("length(hash) = 64 AND length(previous_hash) = 64", name=op.f("ck_event_hash")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
        sa.UniqueConstraint("hash", name=op.f("uq_event_hash")),
        sa.UniqueConstraint("previous_hash", name=op.f("uq_event_previous_hash")),
    )
    op.create_index(op.f("ix_event_dataset_id"), "event", ["dataset", "id"], unique=False)
    op.create_table(
        "experiment",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("default_enabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("name <> ''", name=op.f("ck_experiment_name")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiment")),
        sa.UniqueConstraint("name", name=op.f("uq_experiment_name")),
    )
    op.create_table(
        "version_ledger",
        sa.Column("builder_name", sa.Text(), nullable=False),
        sa.Column("config_name", sa.Text(), nullable=False),
        sa.Column("major", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("minor", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("patch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("content_digest", sa.Text(), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_by", sa.Text(), nullable=False),
        sa.CheckConstraint("length(content_digest) = 64", name=op.f("ck_version_ledger_content_digest")),
        sa.PrimaryKeyConstraint(
            "builder_name", "config_name", "major", "minor", "patch", name=op.f("pk_version_ledger")
        ),
    )
    op.create_table(
        "builder_config",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("builder_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("is_default", sa.Boolean(), nullable=False),
        sa.Column("canonical_version_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["builder_id"], ["builder.id"], name=op.f("fk_builder_config_builder_id_builder")),
        sa.ForeignKeyConstraint(
            ["id", "canonical_version_id"],
            ["dataset_version.config_id", "dataset_version.id"],
            name=op.f(CANONICAL_KEY),
            use_alter=True,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_builder_config")),
        sa.UniqueConstraint("builder_id", "name", name=op.f("uq_builder_config_builder_id_name")),
    )
    op.create_index(
        "ix_builder_config_default",
        "builder_config",
        ["builder_id"],
        unique=True,
        sqlite_where=sa.text("is_default"),
        postgresql_where=sa.text("is_default"),
    )
    op.create_table(
        "dataset_version",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("config_id", sa.Integer(), nullable=False),
        sa.Column("major", sa.Integer(), nullable=False),
        sa.Column("minor", sa.Integer(), nullable=False),
        sa.Column("patch", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("state_message", sa.Text(), nullable=False),
        sa.Column("release_notes_json", sa.Text(), nullable=False),
        sa.Column("version_to_prepare", sa.Text(), nullable=True),
        sa.Column("slicing", sa.Text(), nullable=False),
        sa.Column("file_format", sa.Text(), nullable=False),
        sa.Column("disable_shuffling", sa.Boolean(), nullable=False),
        sa.Column("features_json", sa.Text(), nullable=False),
        sa.Column("labels_json", sa.Text(), nullable=False),
        sa.Column("metadata_json", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("content_digest", sa.Text(), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("published_by", sa.Text(), nullable=False),
        sa.CheckConstraint("slicing IN ('documented', 'tfds-4')", name=op.f("ck_dataset_version_slicing")),
        sa.CheckConstraint(
            "state IN ('supported', 'deprecated', 'yanked', 'dropped')", name=op.f("ck_dataset_version_state")
        ),
        sa.CheckConstraint("length(content_digest) = 64", name=op.f("ck_dataset_version_content_digest")),
        sa.CheckConstraint("major >= 0 AND minor >= 0 AND patch >= 0", name=op.f("ck_dataset_version_number")),
        sa.ForeignKeyConstraint(
            ["config_id"], ["builder_config.id"], name=op.f("fk_dataset_version_config_id_builder_config")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dataset_version")),
        sa.UniqueConstraint("config_id", "id", name=op.f("uq_dataset_version_config_id_id")),
        sa.UniqueConstraint(
            "config_id", "major", "minor", "patch", name=op.f("uq_dataset_version_config_id_major_minor_patch")
        ),
    )
    if op.get_context().dialect.name == "postgresql":
        # The two tables need each other. SQLite has this constraint from create_table above: it takes the name of a
        # table that is not there yet, and cannot add constraints later.
        op.create_foreign_key(
            op.f(CANONICAL_KEY),
            "builder_config",
            "dataset_version",
            ["id", "canonical_version_id"],
            ["config_id", "id"],
        )
    op.create_table(
        "alias",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("config_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version_id", sa.Integer(), nullable=False),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.CheckConstraint("name <> ''", name=op.f("ck_alias_name")),
        sa.ForeignKeyConstraint(
            ["config_id", "version_id"],
            ["dataset_version.config_id", "dataset_version.id"],
            name=op.f("fk_alias_config_id_version_id_dataset_version"),
        ),
        sa.ForeignKeyConstraint(["config_id"], ["builder_config.id"], name=op.f("fk_alias_config_id_builder_config")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alias")),
        sa.UniqueConstraint("config_id", "name", name=op.f("uq_alias_config_id_name")),
    )
    op.create_table(
        "alias_event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("config_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("from_version_id", sa.Integer(), nullable=True),
        sa.Column("to_version_id", sa.Integer(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["config_id"], ["builder_config.id"], name=op.f("fk_alias_event_config_id_builder_config")
        ),
        sa.ForeignKeyConstraint(
            ["from_version_id"], ["dataset_version.id"], name=op.f("fk_alias_event_from_version_id_dataset_version")
        ),
        sa.ForeignKeyConstraint(
            ["to_version_id"], ["dataset_version.id"], name=op.f("fk_alias_event_to_version_id_dataset_version")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alias_event")),
    )
    op.create_index(op.f("ix_alias_event_config_id_name_id"), "alias_event", ["config_id", "name", "id"], unique=False)
    op.create_table(
        "split",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("version_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("num_examples", sa.BigInteger(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("num_shards", sa.Integer(), nullable=False),
        sa.Column("filename_template", sa.Text(), nullable=False),
        sa.Column("filename_dataset", sa.Text(), nullable=False),
        sa.Column("filename_format", sa.Text(), nullable=False),
        sa.CheckConstraint("name NOT IN ('', 'all')", name=op.f("ck_split_name")),
        sa.CheckConstraint(
            "position >= 0 AND num_examples >= 0 AND num_bytes >= 0 AND num_shards >= 0",
            name=op.f("ck_split_not_negative"),
        ),
        sa.ForeignKeyConstraint(
            ["version_id"], ["dataset_version.id"], name=op.f("fk_split_version_id_dataset_version")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_split")),
        sa.UniqueConstraint("version_id", "name", name=op.f("uq_split_version_id_name")),
        sa.UniqueConstraint("version_id", "position", name=op.f("uq_split_version_id_position")),
    )
    op.create_table(
        "version_experiment",
        sa.Column("version_id", sa.Integer(), nullable=False),
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiment.id"], name=op.f("fk_version_experiment_experiment_id_experiment")
        ),
        sa.ForeignKeyConstraint(
            ["version_id"], ["dataset_version.id"], name=op.f("fk_version_experiment_version_id_dataset_version")
        ),
        sa.PrimaryKeyConstraint("version_id", "experiment_id", name=op.f("pk_version_experiment")),
    )
    op.create_index(op.f("ix_version_experiment_experiment_id"), "version_experiment", ["experiment_id"], unique=False)
    op.create_table(
        "fingerprint",
        sa.Column("split_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("feature", sa.Text(), nullable=False),
        sa.Column("algorithm", sa.Text(), nullable=False),
        sa.Column("first_example", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("num_examples", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.CheckConstraint("first_example >= 0 AND num_examples >= 0", name=op.f("ck_fingerprint_not_negative")),
        sa.ForeignKeyConstraint(["split_id"], ["split.id"], name=op.f("fk_fingerprint_split_id_split")),
        sa.PrimaryKeyConstraint(
            "split_id", "feature", "algorithm", "first_example", "num_examples", name=op.f("pk_fingerprint")
        ),
    )
    op.create_table(
        "shard",
        sa.Column("split_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("shard_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("first_example", sa.BigInteger(), nullable=False),
        sa.Column("num_examples", sa.BigInteger(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.CheckConstraint("length(sha256) = 64", name=op.f("ck_shard_sha256")),
        sa.CheckConstraint(
            "shard_index >= 0 AND first_example >= 0 AND num_examples >= 0 AND num_bytes >= 0",
            name=op.f("ck_shard_not_negative"),
        ),
        sa.ForeignKeyConstraint(["split_id"], ["split.id"], name=op.f("fk_shard_split_id_split")),
        sa.PrimaryKeyConstraint("split_id", "shard_index", name=op.f("pk_shard")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_shard_split_id_first_example"), "shard", ["split_id", "first_example"], unique=False)
