"""Events name the user of a PostgreSQL session, protected names may need two persons, and maintainers promote them.

Follows 0015. Events of earlier revisions stay as they are: what the details of an event have is sealed by its hash.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from registry.migrations.renames import in_present, read_present_names

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

ROLE = "ck_access_token_role"
RULES = "SELECT action, dataset, details_json FROM event WHERE action IN ('protect', 'unprotect') ORDER BY id"

CONTINUE_LOG = """
CREATE OR REPLACE FUNCTION registry_continue_log() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    newest record;
BEGIN
    SELECT id, hash INTO newest FROM event ORDER BY id DESC LIMIT 1;
    IF NEW.id <> coalesce(newest.id, 0) + 1
        OR NEW.previous_hash <> coalesce(newest.hash, repeat('0', 64))
        OR NEW.hash !~ '^[0-9a-f]{{64}}$' OR NEW.hash = repeat('0', 64)
        OR NEW.at NOT BETWEEN '0001-01-02' AND '9999-12-30'
        OR json_typeof(NEW.details_json::json) <> 'object'
{check}    THEN
        RAISE EXCEPTION 'an event continues the log: number, hashes, {subject}'
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$
"""
CHECK_USER = "        OR NEW.details_json::json ->> '@session_user' IS DISTINCT FROM session_user::text\n"


def upgrade() -> None:
    op.add_column("protection", sa.Column("two_persons", sa.Boolean(), server_default=sa.false(), nullable=False))
    restore_rules()
    let_roles("reader", "publisher", "maintainer", "admin")
    continue_log(CHECK_USER, "time, details and user")


def restore_rules() -> None:
    """A catalog that was taken back to the revision before and up again: the log still has every rule."""
    connection = op.get_bind()
    present, rules = read_present_names(connection), dict[str, Any]()
    for action, named, details in connection.execute(sa.text(RULES)).all():
        rules[in_present(present, named)] = action == "protect" and json.loads(details).get("two_persons", False)
    table = sa.table("protection", sa.column("scope", sa.Text), sa.column("two_persons", sa.Boolean))
    scopes = [scope for scope, is_on in rules.items() if is_on]
    connection.execute(sa.update(table).where(table.c.scope.in_(scopes)).values(two_persons=True))


def let_roles(*roles: str) -> None:
    """SQLite cannot change a constraint, so its table is made anew."""
    is_role = f"role IN ({', '.join(map(repr, roles))})"
    if op.get_context().dialect.name == "postgresql":
        op.drop_constraint(op.f(ROLE), "access_token", type_="check")
        op.create_check_constraint(op.f(ROLE), "access_token", is_role)
        return
    op.rename_table("access_token", "before_0016")
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
        sa.CheckConstraint(is_role, name=op.f(ROLE)),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_access_token")),
        sa.UniqueConstraint("digest", name=op.f("uq_access_token_digest")),
    )
    op.execute("INSERT INTO access_token SELECT * FROM before_0016")
    op.drop_table("before_0016")


def continue_log(check: str, subject: str) -> None:
    """Only PostgreSQL has users; the trigger of SQLite stays as it is."""
    if op.get_context().dialect.name == "postgresql":
        op.execute(CONTINUE_LOG.format(check=check, subject=subject))


def downgrade() -> None:
    """Maintainers become publishers, and one person promotes. The log keeps the rules for the way up, and no roles."""
    continue_log("", "time and details")
    op.execute("UPDATE access_token SET role = 'publisher' WHERE role = 'maintainer'")
    let_roles("reader", "publisher", "admin")
    op.drop_column("protection", "two_persons")
