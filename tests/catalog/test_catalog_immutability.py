from __future__ import annotations

import sqlite3

import psycopg
import pytest
from support.catalog_samples import execute, publish

from registry.catalog import CatalogBackend
from registry.model import Reference, Version, VersionState

DIGEST = "0" * 64
PUBLISHED = {
    "dataset_version": "location = 'elsewhere'",
    "version_experiment": "enabled = (1 = 0)",
    "version_location": "location = 'elsewhere'",
    "split": "num_examples = 1",
    "shard": f"sha256 = '{DIGEST}'",
    "fingerprint": f"digest = '{DIGEST}'",
    "version_ledger": f"content_digest = '{DIGEST}'",
    "alias_event": "actor = 'eve'",
    "event": "actor = 'eve'",
}
Refused = (sqlite3.IntegrityError, psycopg.errors.RestrictViolation)


@pytest.fixture
def populated(catalog: CatalogBackend, catalog_url: str) -> str:
    """A catalog with a row in every table whose rows never change."""
    publish(catalog, "mnist:1.0.0", experiments={"flag": True})
    catalog.locations.add(Reference.parse("mnist:1.0.0"), "s3://mirror/mnist", actor="ann")
    execute(catalog_url, "INSERT INTO fingerprint VALUES (1, '', 'a', 0, 7, 'f00d')")
    execute(
        catalog_url,
        "INSERT INTO alias_event (config_id, name, to_version_id, at, actor, message) "
        "VALUES (1, 'paper', 1, CURRENT_TIMESTAMP, 'ann', '')",
    )
    return catalog_url


@pytest.mark.parametrize("table", PUBLISHED)
def test_plain_sql_cannot_change_or_delete_a_published_row(populated: str, table: str) -> None:
    before = execute(populated, f"SELECT * FROM {table}")  # noqa: S608 (a test's own table)
    assert before

    with pytest.raises(Refused, match=f"published rows never change: UPDATE on {table}"):
        execute(populated, f"UPDATE {table} SET {PUBLISHED[table]}")  # noqa: S608 (the same)
    with pytest.raises(Refused, match=f"published rows never change: DELETE on {table}"):
        execute(populated, f"DELETE FROM {table}")  # noqa: S608 (the same)

    assert execute(populated, f"SELECT * FROM {table}") == before  # noqa: S608 (the same)


@pytest.mark.parametrize("table", PUBLISHED)
def test_no_other_statement_takes_published_rows_away(populated: str, table: str) -> None:
    if populated.startswith("sqlite"):
        statement = f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}"  # noqa: S608 (a test's own table)
        # Two triggers refuse such an event; SQLite does not say which of them comes first.
        first = "published rows never change: REPLACE on event|an event continues the log"
        with pytest.raises(
            Refused, match=first if table == "event" else f"published rows never change: REPLACE on {table}"
        ):
            execute(populated, statement)
    else:
        with pytest.raises(Refused, match=f"published rows never change: TRUNCATE on {table}"):
            execute(populated, f"TRUNCATE {table} CASCADE")


def test_no_column_of_a_version_but_its_state_changes(populated: str) -> None:
    for change in (
        *("content_digest = published_by || substr(content_digest, 4)", "id = 9", "major = 9", "features_json = '{}'"),
        *(
            "version_to_prepare = '9.0.0'",
            "published_at = CURRENT_TIMESTAMP",
            "state = 'yanked', location = 'elsewhere'",
        ),
    ):
        with pytest.raises(Refused, match="published rows never change"):
            execute(populated, f"UPDATE dataset_version SET {change}")  # noqa: S608 (a test's own values)


def test_the_state_of_a_version_may_change(populated: str, catalog: CatalogBackend) -> None:
    execute(populated, "UPDATE dataset_version SET state = 'yanked', state_message = 'wrong', superseded_by = '1.0.1'")

    found = catalog.find("mnist:1.0.0")
    assert (found.state, found.state_message, found.superseded_by) == (VersionState.YANKED, "wrong", Version(1, 0, 1))
    (summary,) = catalog.versions("mnist")
    assert summary.superseded_by == Version(1, 0, 1)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE dataset_version SET state = 'lost'",
        "INSERT INTO builder (name, has_configs, created_at) VALUES ('mnist', (1 = 0), CURRENT_TIMESTAMP)",
        "INSERT INTO builder (name, has_configs, created_at) VALUES ('', (1 = 0), CURRENT_TIMESTAMP)",
        "INSERT INTO builder_config (builder_id, name, is_default, created_at) "
        "VALUES (1, 'second default', (1 = 1), CURRENT_TIMESTAMP)",
        "INSERT INTO shard SELECT 1, 99, 0, -1, 0, sha256, NULL FROM shard WHERE split_id = 1 AND shard_index = 0",
        "INSERT INTO shard VALUES (1, 99, 0, 0, 0, 'short', NULL)",
        "INSERT INTO version_location SELECT 99, version_id, 'lose', location, at, actor FROM version_location",
    ],
)
def test_constraints_hold_against_plain_sql(populated: str, statement: str) -> None:
    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.IntegrityError)):
        execute(populated, statement)
