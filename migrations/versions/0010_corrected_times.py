"""Times of events that a wrong clock stamped, and triggers that let an event only continue the log.

Follows 0009. An event ``correct-clock`` lists the times at which other events are to be read; the table holds them for
queries. The triggers refuse a plain INSERT that would break the chain of hashes for every writer after it. They look
at new events only, because a log that was damaged before must stay readable.
"""

from __future__ import annotations

import json
from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TABLE = "corrected_time"

# The last condition: a text that is not UTF-8 has a character that does not come back from its number.
SQLITE_TRIGGER = """
CREATE TRIGGER event_continues BEFORE INSERT ON event
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
""".strip()

POSTGRES_FUNCTION = """
CREATE FUNCTION registry_continue_log() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    newest record;
BEGIN
    SELECT id, hash INTO newest FROM event ORDER BY id DESC LIMIT 1;
    IF NEW.id <> coalesce(newest.id, 0) + 1
        OR NEW.previous_hash <> coalesce(newest.hash, repeat('0', 64))
        OR NEW.hash !~ '^[0-9a-f]{64}$' OR NEW.hash = repeat('0', 64)
        OR NEW.at NOT BETWEEN '0001-01-02' AND '9999-12-30'
        OR json_typeof(NEW.details_json::json) <> 'object'
    THEN
        RAISE EXCEPTION 'an event continues the log: number, hashes, time and details'
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$
"""
POSTGRES_TRIGGER = """
CREATE TRIGGER event_continues BEFORE INSERT ON event FOR EACH ROW EXECUTE FUNCTION registry_continue_log()
"""

CORRECTIONS = "SELECT id, details_json FROM event WHERE dataset = '' AND action = 'correct-clock' ORDER BY id"


def upgrade() -> None:
    table = op.create_table(
        TABLE,
        sa.Column("event_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        # The id of the event that says so.
        sa.Column("corrected_by", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", name=op.f("pk_corrected_time")),
    )
    restore_times(table)
    if op.get_context().dialect.name == "sqlite":
        op.execute(SQLITE_TRIGGER)
    else:
        op.execute(POSTGRES_FUNCTION)
        op.execute(POSTGRES_TRIGGER)


def restore_times(table: sa.Table) -> None:
    """A catalog that was taken back to 0009 and up again: the log still has every correction."""
    connection = op.get_bind()
    is_sqlite = op.get_context().dialect.name == "sqlite"
    found = {}
    for number, text in connection.execute(sa.text(CORRECTIONS)).all():
        details = json.loads(text)
        for place, at in enumerate(details["times"]):
            moment = datetime.fromisoformat(at)
            found[details["first"] + place] = (moment.replace(tzinfo=None) if is_sqlite else moment, number)
    for event_id, (moment, number) in found.items():
        connection.execute(sa.insert(table).values(event_id=event_id, at=moment, corrected_by=number))


def downgrade() -> None:
    """Every event is read at the time that it was stamped with. The log keeps the corrections for the way up."""
    op.execute("DROP TRIGGER event_continues" + ("" if op.get_context().dialect.name == "sqlite" else " ON event"))
    if op.get_context().dialect.name != "sqlite":
        op.execute("DROP FUNCTION registry_continue_log()")
    op.drop_table(TABLE)
