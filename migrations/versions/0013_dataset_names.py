"""The names of renamed datasets: references by a former name go on naming the dataset.

Follows 0012. The table has every name that a renamed dataset has had, and is never edited. Datasets that never were
renamed are not in it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from registry.migrations.renames import read_names

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

TABLE = "dataset_name"
KEYS = (("name",), ("builder_id", "position"))


def upgrade() -> None:
    table = op.create_table(
        TABLE,
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("builder_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.CheckConstraint("name <> ''", name=op.f("ck_dataset_name_name")),
        sa.CheckConstraint("position >= 0", name=op.f("ck_dataset_name_not_negative")),
        sa.ForeignKeyConstraint(["builder_id"], ["builder.id"], name=op.f("fk_dataset_name_builder_id_builder")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_dataset_name")),
        sa.UniqueConstraint("builder_id", "position", name=op.f("uq_dataset_name_builder_id_position")),
    )
    restore_names(table)
    if op.get_context().dialect.name == "sqlite":
        create_sqlite_triggers()
    else:
        create_postgresql_triggers()


def restore_names(table: sa.Table) -> None:
    """A catalog that was taken back to 0012 and up again: the log still has every name."""
    connection = op.get_bind()
    known: dict[str, int] = dict(map(tuple, connection.execute(sa.text("SELECT name, id FROM builder")).all()))
    taken = set(known)  # a registry of the revision before may have given a former name to another dataset
    for present, names in read_names(connection).items():
        builder_id = known.get(present)
        if builder_id is not None and not taken & {*names} - {present}:
            taken |= {*names}
            rows = [{"name": name, "builder_id": builder_id, "position": place} for place, name in enumerate(names)]
            connection.execute(sa.insert(table), rows)


def create_sqlite_triggers() -> None:
    taken = " OR ".join("(" + " AND ".join(f"{column} = NEW.{column}" for column in key) + ")" for key in KEYS)
    guards = {
        "update": f"BEFORE UPDATE ON {TABLE}",
        "delete": f"BEFORE DELETE ON {TABLE}",
        "replace": f"BEFORE INSERT ON {TABLE} WHEN EXISTS (SELECT 1 FROM {TABLE} WHERE {taken})",  # noqa: S608 (constants above)
    }
    for verb, guard in guards.items():
        message = f"published rows never change: {verb.upper()} on {TABLE}"
        op.execute(f"CREATE TRIGGER {TABLE}_no_{verb} {guard} BEGIN SELECT RAISE(ABORT, '{message}'); END")


def create_postgresql_triggers() -> None:
    for verb, event, each in (("change", "UPDATE OR DELETE", "ROW"), ("truncate", "TRUNCATE", "STATEMENT")):
        op.execute(
            f"CREATE TRIGGER {TABLE}_no_{verb} BEFORE {event} ON {TABLE} "
            f"FOR EACH {each} EXECUTE FUNCTION registry_refuse_change()"
        )


def downgrade() -> None:
    """Datasets keep their present names, and nothing redirects the former ones. The log keeps them for the way up."""
    op.drop_table(TABLE)
