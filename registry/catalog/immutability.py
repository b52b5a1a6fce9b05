"""What keeps published rows as they are? Triggers, on both databases, that refuse to change or delete them.

The first migration creates them from its own frozen copy; here is what they must be, for ``registry db check``.
The API has no way to change a published row; the triggers stand against plain SQL, ours included.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from registry.catalog import tables

MAY_CHANGE: Final = {"dataset_version": ("state", "state_message", "superseded_by")}
"""Columns of published rows that a later decision may change."""

IMMUTABLE: Final = (
    tables.dataset_version,
    tables.version_experiment,
    tables.split,
    tables.shard,
    tables.fingerprint,
    tables.version_ledger,
    tables.alias_event,
    tables.event,
)

POSTGRES_FUNCTION: Final = """
BEGIN
    IF TG_OP = 'UPDATE' AND TG_NARGS > 0 AND to_jsonb(NEW) - TG_ARGV = to_jsonb(OLD) - TG_ARGV THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'published rows never change: % on %', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
"""
"""Body of ``registry_refuse_change()``; its arguments are the columns that may change."""


def sqlite_triggers() -> dict[str, str]:
    """The ``CREATE TRIGGER`` statement of each trigger of an SQLite catalog, by the trigger's name.

    The one on INSERT stands against ``INSERT OR REPLACE``, which deletes rows without firing DELETE triggers.
    """
    statements = {}
    for table in IMMUTABLE:
        name = table.name
        allowed = MAY_CHANGE.get(name, ())
        changed = " OR ".join(f"NEW.{c.name} IS NOT OLD.{c.name}" for c in table.columns if c.name not in allowed)
        taken = " OR ".join(_equals_new(columns) for columns in unique_keys(table))
        guards = {
            "update": f"BEFORE UPDATE ON {name}" + (f" WHEN {changed}" if allowed else ""),
            "delete": f"BEFORE DELETE ON {name}",
            "replace": f"BEFORE INSERT ON {name} WHEN EXISTS (SELECT 1 FROM {name} WHERE {taken})",  # noqa: S608 (names of our tables)
        }
        for verb, guard in guards.items():
            message = f"published rows never change: {verb.upper()} on {name}"
            statements[f"{name}_no_{verb}"] = (
                f"CREATE TRIGGER {name}_no_{verb} {guard} BEGIN SELECT RAISE(ABORT, '{message}'); END"
            )
    return statements


def postgres_triggers() -> dict[tuple[str, str], tuple[str, ...]]:
    """The arguments of each trigger of a PostgreSQL catalog, by (table, trigger)."""
    return {
        (table.name, f"{table.name}_no_{verb}"): MAY_CHANGE.get(table.name, ()) if verb == "change" else ()
        for table in IMMUTABLE
        for verb in ("change", "truncate")
    }


def unique_keys(table: sa.Table) -> list[tuple[str, ...]]:
    """The columns of the primary key and of each unique constraint of ``table``, in a stable order."""
    unique = [
        tuple(column.name for column in constraint.columns)
        for constraint in table.constraints
        if isinstance(constraint, sa.UniqueConstraint)
    ]
    return [tuple(column.name for column in table.primary_key.columns), *sorted(unique)]


def _equals_new(columns: tuple[str, ...]) -> str:
    return "(" + " AND ".join(f"{column} = NEW.{column}" for column in columns) + ")"
