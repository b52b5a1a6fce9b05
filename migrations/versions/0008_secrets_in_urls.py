"""Passwords, tokens and signatures in the URLs of published versions are removed.

Follows 0007. Older registries stored the URL of a data folder, a homepage or a download as it was given, with what it
held: ``http://ann:PW@host``, ``?token=PW``. Scheme, host and path stay.

Published rows never change: for these rows the trigger is lifted, and put back as it was. Each of them gets an event,
"remove-secrets", with the columns that changed, the seal that the log gave the version until now, and the one it has
from now on. Where the row did not have the seal that the log gave it, somebody had changed it before: then the event
gives no new seal, and `registry log verify` goes on to say so.

The way back restores no secret. A registry of the revision before this one takes the event for an unknown one, and
tells of such a version that its place or its metadata is not as published.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import sqlalchemy as sa
from alembic import context, op

from registry.migrations.renames import read_names

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

EVENT_LOCK = (0x72656769, 2)  # "regi", and the number of the lock: 2 is for the event chain
FIRST_PREVIOUS = "0" * 64
TRIGGER = {"sqlite": "dataset_version_no_update", "postgresql": "dataset_version_no_change"}

MASK = "***"
USER_INFO = re.compile(r"(?<=://)(?:[^\s/?#]+|[^\s/?#:@\[]+:(?!\d{1,5}(?:[/?#\s]|$))[^\s@]{0,200})@")
PUBLIC_USER = re.compile(r"(?:abfss?|azure|az|wasbs?|postgresql(?:\+psycopg)?)://", re.IGNORECASE)
QUERY = re.compile(r"[?#][^\s?#]*=[^\s#]*")
SECRET_PARTS = (
    *("token", "secret", "passw", "passphrase", "signature", "credential", "authorization", "oauth", "sharedaccess"),
    *("apikey", "accesskey", "authkey", "privatekey", "subscriptionkey", "accountkey", "keypair", "sessionid", "jwt"),
)
SECRET_NAMES = frozenset({"auth", "hmac", "key", "pass", "pat", "pw", "pwd", "sas", "sid", "sig"})

VERSIONS = """
SELECT v.id, b.name, c.name AS config, v.major, v.minor, v.patch, v.location, v.metadata_json, v.release_notes_json,
       v.version_to_prepare, v.published_at
FROM dataset_version v JOIN builder_config c ON c.id = v.config_id JOIN builder b ON b.id = c.builder_id
WHERE v.location LIKE '%://%' OR v.metadata_json LIKE '%://%' ORDER BY v.id
"""
SPLITS = """
SELECT num_bytes, filename_template, filename_dataset, filename_format FROM split WHERE version_id = :id ORDER BY id
"""
OVERRIDES = """
SELECT e.name, o.enabled FROM version_experiment o JOIN experiment e ON e.id = o.experiment_id WHERE o.version_id = :id
"""
PUBLISHED = "SELECT details_json FROM event WHERE dataset IN :datasets AND version = :version AND action = 'publish'"

EVENT = sa.table(
    "event",
    *map(sa.column, ("id", "actor", "action", "dataset", "version", "details_json", "previous_hash", "hash")),
    sa.column("at", sa.DateTime(timezone=True)),
)


def upgrade() -> None:
    connection = op.get_bind()
    query = sa.text(VERSIONS).columns(published_at=sa.DateTime(timezone=True))
    found = []
    for stored in connection.execute(query).mappings():
        row = dict(stored)
        values = {"location": clean_url(row["location"]), "metadata_json": clean_metadata(row["metadata_json"])}
        changed = {name: value for name, value in values.items() if value != row[name]}
        if changed:
            found.append((row, changed))
    if not found:
        return
    trigger = lift_trigger(connection)
    for row, changed in found:
        assignments = ", ".join(f"{name} = :{name}" for name in changed)
        update = f"UPDATE dataset_version SET {assignments} WHERE id = :id"  # noqa: S608 (names of our columns)
        connection.execute(sa.text(update), {**changed, "id": row["id"]})
        forget_words(connection, row, changed)
    restore_trigger(connection, trigger)
    if connection.dialect.name == "sqlite":
        op.execute("INSERT INTO search_index(search_index) VALUES ('rebuild')")
    for row, changed in found:
        append_event(connection, row, changed)


def downgrade() -> None:
    """Nothing to do: what was removed is nowhere."""


def append_event(connection: sa.Connection, row: dict[str, Any], changed: dict[str, str]) -> None:
    """Tell of one version, in the log and to whoever runs the migration."""
    dataset = f"{row['name']}/{row['config']}" if row["config"] else row["name"]
    version = f"{row['major']}.{row['minor']}.{row['patch']}"
    told: dict[str, Any] = {"columns": sorted(changed)}
    names = read_names(connection).get(row["name"], [row["name"]])
    datasets = [f"{name}/{row['config']}" if row["config"] else name for name in names]
    published = sa.text(PUBLISHED).bindparams(sa.bindparam("datasets", expanding=True))
    logged = connection.execute(published, {"datasets": datasets, "version": version}).scalar()
    before = json.loads(logged).get("seal") if logged is not None else None
    if before is not None and before == seal_of(connection, row):
        told["seal"] = {"before": before, "after": seal_of(connection, {**row, **changed})}
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(*EVENT_LOCK)))
    last = connection.execute(sa.select(EVENT).order_by(EVENT.c.id.desc()).limit(1)).first()
    at, number, previous = datetime.now(UTC), 1, FIRST_PREVIOUS
    if last is not None:
        number, previous, at = last.id + 1, last.hash, max(at, in_utc(last.at) + timedelta(microseconds=1))
    values = {
        "id": number,
        "actor": "registry db upgrade",
        "action": "remove-secrets",
        "dataset": dataset,
        "version": version,
        "details_json": canonical_json(told),
    }
    sealed = canonical_json({**values, "at": at.isoformat(timespec="microseconds")})
    digest = hashlib.sha256((previous + sealed).encode("ascii")).hexdigest()
    stored_at = at.replace(tzinfo=None) if connection.dialect.name == "sqlite" else at
    connection.execute(sa.insert(EVENT).values(**values, at=stored_at, previous_hash=previous, hash=digest))
    changes = context.config.attributes.setdefault("changes", [])
    changes.append(
        {"reference": f"{dataset}:{version}", "columns": sorted(changed), "location": changed.get("location")}
    )


def seal_of(connection: sa.Connection, row: Mapping[str, Any]) -> str:
    """The seal of a version, its splits and its experiments, as the registry computes it at this revision."""
    splits = connection.execute(sa.text(SPLITS), {"id": row["id"]}).all()
    overrides = connection.execute(sa.text(OVERRIDES), {"id": row["id"]}).all()
    told = {name: row[name] for name in ("location", "metadata_json", "release_notes_json", "version_to_prepare")}
    told["published_at"] = in_utc(row["published_at"]).isoformat(timespec="microseconds")
    told["splits"] = [list(split) for split in splits]
    told["overrides"] = {name: bool(enabled) for name, enabled in overrides}
    return hashlib.sha256(canonical_json(told).encode("ascii")).hexdigest()


def lift_trigger(connection: sa.Connection) -> str | None:
    """Let rows of dataset_version change; gives what ``restore_trigger`` needs, None where somebody took it away."""
    name = TRIGGER[connection.dialect.name]
    if connection.dialect.name == "postgresql":
        query = sa.text(
            "SELECT 1 FROM pg_trigger WHERE tgrelid = 'dataset_version'::regclass AND tgname = :name"
            " AND tgenabled = 'O'"
        )
        if connection.execute(query, {"name": name}).first() is None:
            return None
        op.execute(f"ALTER TABLE dataset_version DISABLE TRIGGER {name}")
        return name
    query = sa.text("SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = :name")
    statement: str | None = connection.execute(query, {"name": name}).scalar()
    if statement is not None:
        op.execute(f"DROP TRIGGER {name}")
    return statement


def restore_trigger(connection: sa.Connection, trigger: str | None) -> None:
    if trigger is None:
        return
    if connection.dialect.name == "postgresql":
        op.execute(f"ALTER TABLE dataset_version ENABLE TRIGGER {trigger}")
    else:
        connection.exec_driver_sql(trigger)


def forget_words(connection: sa.Connection, row: dict[str, Any], changed: dict[str, str]) -> None:
    """Take the words of what was removed out of what is searched; `registry db reindex` puts right what is missing."""
    gone = words_of(row["metadata_json"]) - words_of(changed.get("metadata_json", row["metadata_json"]))
    query = sa.text("SELECT config_id, details FROM search_document WHERE version_id = :id")
    for document in connection.execute(query, {"id": row["id"]}).all():
        kept = " ".join(word for word in document.details.split(" ") if word not in gone)
        if kept != document.details:
            update = sa.text("UPDATE search_document SET details = :details WHERE config_id = :id")
            connection.execute(update, {"details": kept, "id": document.config_id})


def words_of(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower().replace("_", " ")))


def clean_metadata(text: str) -> str:
    """The metadata without secrets in homepage, downloads and what else is no text that a person wrote."""
    try:
        stored = json.loads(text)
    except ValueError:
        return text
    if not isinstance(stored, dict):
        return text
    cleaned = dict(stored)
    if isinstance(stored.get("homepage"), str):
        cleaned["homepage"] = clean_url(stored["homepage"])
    for name in ("extra", "custom"):
        if name in stored:
            cleaned[name] = mask_all(stored[name])
    return text if cleaned == stored else canonical_json(cleaned)


def clean_url(url: str) -> str:
    """``url`` without user info and without the parameters that grant access; as it is, if it has none."""
    masked = mask(url)
    if masked == url:
        return url
    masked = re.sub(rf"(?<=://)[^\s/?#]*{re.escape(MASK)}@", "", masked)
    kept = re.sub(rf"(?<=[?&;#])[^=&;#?\s]+={re.escape(MASK)}&?", "", masked)
    return re.sub(r"[?&;#]+(?=[\s#]|$)", "", kept)


def mask_all(value: Any) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {mask(key): mask_all(one) for key, one in value.items()}
    return [mask_all(one) for one in value] if isinstance(value, list) else value


def mask(text: str) -> str:
    """``text`` in which every URL has ``***`` in place of its secrets."""
    if "://" not in text:  # no URL: what looks like a parameter in it is somebody's words
        return text
    return QUERY.sub(mask_query, USER_INFO.sub(mask_user, text))


def mask_user(match: re.Match[str]) -> str:
    before = match.string[max(match.start() - 24, 0) : match.start()]
    is_public = ":" not in match[0] and PUBLIC_USER.search(before) is not None
    return match[0] if is_public or match[0].endswith(f":{MASK}@") else f"{MASK}@"


def mask_query(match: re.Match[str]) -> str:
    masked, is_in_secret = [], False
    parts = re.split("([?#&;])", match[0])
    for separator, part in zip(parts[1::2], parts[2::2], strict=True):
        if is_in_secret and separator in ";?":
            continue
        name, equals, value = part.partition("=")
        letters = re.sub("[^a-z0-9]", "", unquote(name).lower())
        is_secret = letters in SECRET_NAMES or any(one in letters for one in SECRET_PARTS)
        is_in_secret = bool(value) and is_secret and not re.fullmatch(rf"{re.escape(MASK)}\W*", value)
        masked += [separator, name, equals, MASK if is_in_secret else value]
    return "".join(masked)


def in_utc(moment: datetime) -> datetime:
    """SQLite stores the UTC clock without a zone."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
