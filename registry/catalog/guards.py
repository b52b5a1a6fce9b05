"""The triggers of a catalog, which prevent changes to published rows and breaks in the chain of the event log.

The migrations create them; ``registry db check`` compares the two.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from registry.catalog.tables import (
    alias_event,
    attachment,
    dataset_name,
    dataset_version,
    event,
    fingerprint,
    shard,
    split,
    version_experiment,
    version_ledger,
    version_location,
)

MAY_CHANGE: Final = {"dataset_version": ("state", "state_message", "superseded_by", "metadata_json")}
"""Columns of published rows that may change later."""

IMMUTABLE: Final = (
    dataset_name,
    dataset_version,
    version_experiment,
    version_location,
    attachment,
    split,
    shard,
    fingerprint,
    version_ledger,
    alias_event,
    event,
)

POSTGRES_FUNCTIONS: Final = {
    # Its arguments are the columns that may change.
    "registry_refuse_change": """
BEGIN
    IF TG_OP = 'UPDATE' AND TG_NARGS > 0 AND to_jsonb(NEW) - TG_ARGV = to_jsonb(OLD) - TG_ARGV THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'published rows never change: % on %', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
""",
    "registry_continue_log": """
DECLARE
    newest record;
BEGIN
    SELECT id, hash INTO newest FROM event ORDER BY id DESC LIMIT 1;
    IF NEW.id <> coalesce(newest.id, 0) + 1
        OR NEW.previous_hash <> coalesce(newest.hash, repeat('0', 64))
        OR NEW.hash !~ '^[0-9a-f]{64}$' OR NEW.hash = repeat('0', 64)
        OR NEW.at NOT BETWEEN '0001-01-02' AND '9999-12-30'
        OR json_typeof(NEW.details_json::json) <> 'object'
        OR NEW.details_json::json ->> '@session_user' IS DISTINCT FROM session_user::text
    THEN
        RAISE EXCEPTION 'an event continues the log: number, hashes, time, details and user'
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
""",
}
"""Bodies of the trigger functions."""

CONTINUES: Final = "event_continues"
"""The trigger that refuses an event which would break the chain of hashes."""
# The time must be the text that SQLAlchemy writes for a date that exists. json_each counts the characters of the texts:
# if a character does not round-trip through its code point, the text is not UTF-8, and Python could not read it. SQLite
# reads the last two code points of the first plane as another one, although they are valid.
_SQLITE_CONTINUES: Final = f"""
CREATE TRIGGER {CONTINUES} BEFORE INSERT ON event
WHEN NEW.id IS NOT (SELECT coalesce(max(id), 0) + 1 FROM event)
    OR NEW.previous_hash IS NOT coalesce((SELECT hash FROM event ORDER BY id DESC LIMIT 1), printf('%064d', 0))
    OR length(CAST(NEW.hash AS blob)) <> 64 OR NEW.hash GLOB '*[^0-9a-f]*' OR NEW.hash = printf('%064d', 0)
    OR NEW.at NOT GLOB '????-??-?? ??:??:??.[0-9][0-9][0-9][0-9][0-9][0-9]'
    OR NEW.at IS NOT strftime('%Y-%m-%d %H:%M:%S', substr(NEW.at, 1, 19), '+0 days') || substr(NEW.at, 20)
    OR NEW.at NOT BETWEEN '0001-01-02' AND '9999-12-30'
    OR NOT json_valid(NEW.details_json) OR json_type(NEW.details_json) <> 'object'
    OR NEW.details_json GLOB '*[^ -~]*'
    OR 'blob' IN (typeof(NEW.actor), typeof(NEW.action), typeof(NEW.dataset), typeof(NEW.version), typeof(NEW.hash))
    OR instr(CAST(NEW.actor || NEW.action || NEW.dataset || NEW.version || NEW.details_json AS blob), x'00')
    OR EXISTS (
        SELECT 1
        FROM (SELECT NEW.actor || ' ' || NEW.action || ' ' || NEW.dataset || ' ' || NEW.version || ' ' AS texts),
            json_each('[0' || replace(hex(zeroblob(length(texts))), '00', ',0') || ']')
        WHERE char(unicode(substr(texts, key + 1, 1))) IS NOT substr(texts, key + 1, 1)
            AND key < length(texts) AND hex(substr(texts, key + 1, 1)) NOT IN ('EFBFBE', 'EFBFBF')
    )
BEGIN SELECT RAISE(ABORT, 'an event continues the log: number, hashes, time and details'); END
""".strip()  # noqa: S608 (names of ours)


def guard_triggers_sqlite() -> dict[str, str]:
    """The ``CREATE TRIGGER`` statement of each trigger of an SQLite catalog, by the trigger's name.

    The trigger on INSERT refuses ``INSERT OR REPLACE``, which deletes rows without firing DELETE triggers.
    """
    statements = {CONTINUES: _SQLITE_CONTINUES}
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


def guard_triggers_postgresql() -> dict[tuple[str, str], tuple[str, tuple[str, ...]]]:
    """The function and the arguments of each trigger of a PostgreSQL catalog, by (table, trigger)."""
    return {(event.name, CONTINUES): ("registry_continue_log", ())} | {
        (table.name, f"{table.name}_no_{verb}"): (
            "registry_refuse_change",
            MAY_CHANGE.get(table.name, ()) if verb == "change" else (),
        )
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
