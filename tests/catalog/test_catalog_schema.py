from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from support import TESTS
from support.catalog_backups import answers, fill
from support.catalog_samples import append, execute, publish
from support.golden import check_texts
from support.levels import either

from registry.catalog import open_catalog, revision, schema, sqlite_path
from registry.catalog.session import migrating, open_engine
from registry.errors import (
    CatalogError,
    CatalogNotFoundError,
    NotACatalogError,
    NotFoundError,
    SchemaAheadError,
    SchemaBehindError,
    UsageError,
)
from registry.model import Attachment, Reference, Version

MIGRATIONS = TESTS.parent / "migrations"
REFUSED = (sqlite3.IntegrityError, psycopg.errors.RestrictViolation)
NEXT = f"{int(schema.HEAD) + 1:04d}"
BATCH = f"""
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "{NEXT}", "{schema.HEAD}", None, None


def upgrade():
    with op.batch_alter_table("dataset_version") as batch:
        batch.add_column(sa.Column("note", sa.Text()))
        batch.alter_column("location", new_column_name="place")
    {{more}}


def downgrade():
    with op.batch_alter_table("dataset_version") as batch:
        batch.alter_column("place", new_column_name="location")
        batch.drop_column("note")
"""


def migrate(url: str, folder: Path, more: str, revision: str) -> None:
    """Run our migrations and one more, ``NEXT`` in ``folder``, which copies a table in SQLite's batch mode."""
    (folder / f"{NEXT}_more.py").write_text(BATCH.format(more=more))
    engine = open_engine(url)
    try:
        with migrating(engine) as connection:
            ours = Path(schema.config(connection).get_main_option("script_location") or "") / "versions"
            settings = schema.config(connection, version_locations=f"{ours}\n{folder}")
            (command.upgrade if revision == NEXT else command.downgrade)(settings, revision)
    finally:
        engine.dispose()


def test_the_listed_revisions_are_those_of_the_migrations(sqlite_template: Path) -> None:
    engine = open_engine(sqlite_template)
    with migrating(engine) as connection:
        scripts = ScriptDirectory.from_config(schema.config(connection))
    engine.dispose()

    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(schema.REVISIONS)
    assert scripts.get_current_head() == schema.HEAD


def test_a_database_becomes_a_catalog_that_matches_its_schema(database_url: str) -> None:
    before = schema.status(database_url)
    assert before.state in ("absent", "empty")
    assert (before.revision, before.head) == (None, schema.HEAD)

    assert schema.upgrade(database_url) == (None, schema.HEAD)
    assert schema.upgrade(database_url) == (schema.HEAD, schema.HEAD)

    after = schema.status(database_url)
    assert (after.state, after.revision) == ("current", schema.HEAD)
    assert schema.check(database_url) == []


def test_a_new_sqlite_catalog_equals_one_that_the_migrations_made(tmp_path: Path) -> None:
    """``REGISTRY_WRITE_GOLDEN=1`` writes the statements again, after a new migration."""
    migrated, new = str(tmp_path / "migrated.db"), str(tmp_path / "new.db")
    schema.upgrade(migrated, schema.REVISIONS[0])
    schema.upgrade(migrated)
    statements = [
        "-- Generated from the migrations by test_catalog_schema.py: do not edit\nDROP TABLE IF EXISTS alembic_version",
        *(sql for name, sql in objects_of(migrated) if not name.startswith("search_index_")),  # SQLite makes these
        f"INSERT INTO alembic_version VALUES ('{schema.HEAD}')",  # noqa: S608 (a revision of ours)
    ]

    check_texts(MIGRATIONS / "sqlite.sql", [";\n\n".join(statements) + ";\n"])
    open_catalog(new).close()
    assert objects_of(new) == objects_of(migrated)
    for table in sorted({name for name, sql in objects_of(new) if sql.startswith("CREATE TABLE")}):
        assert execute(new, f'SELECT * FROM "{table}"') == execute(migrated, f'SELECT * FROM "{table}"')  # noqa: S608 (a table of ours)


def objects_of(url: str) -> list[tuple[str, str]]:
    """Name and statement of each object of an SQLite database, in the order in which they were created."""
    return list(execute(url, "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"))


@pytest.mark.parametrize("make", [schema.upgrade, lambda url: open_catalog(url).close()])
def test_a_catalog_without_tables_becomes_a_catalog_again(tmp_path: Path, make: Callable[[str], object]) -> None:
    url = str(tmp_path / "catalog.db")
    schema.upgrade(url)
    schema.downgrade(url, "base")

    make(url)

    assert schema.check(url) == []


def test_looking_at_a_file_that_does_not_exist_does_not_create_it(tmp_path: Path) -> None:
    assert schema.status(tmp_path / "catalog.db").state == "absent"
    with pytest.raises(CatalogNotFoundError):
        schema.check(tmp_path / "catalog.db")
    with pytest.raises(CatalogNotFoundError):
        schema.downgrade(tmp_path / "catalog.db", "base")

    assert list(tmp_path.iterdir()) == []


def test_migrations_go_down_and_up_on_a_populated_catalog(catalog_url: str) -> None:
    with open_catalog(catalog_url) as catalog:
        publish(catalog, "mnist/plain:1.0.0", experiments={"flag": True})

    assert schema.downgrade(catalog_url, "base") == (schema.HEAD, None)
    assert schema.status(catalog_url).state == "empty"
    assert schema.downgrade(catalog_url, "base") == (None, None)
    assert schema.upgrade(catalog_url) == (None, schema.HEAD)

    assert schema.check(catalog_url) == []
    with open_catalog(catalog_url) as catalog:
        publish(catalog, "mnist/plain:1.0.0")


@pytest.mark.parametrize("revision", schema.REVISIONS[:-1])
def test_a_populated_catalog_of_every_older_schema_is_upgraded(database_url: str, revision: str) -> None:
    schema.upgrade(database_url)
    with open_catalog(database_url) as catalog:
        published = publish(catalog, "mnist:1.0.0", lengths={"train": [3, 0, 4], "test": [0]})
    schema.downgrade(database_url, revision)  # what today's code publishes needs today's tables
    with pytest.raises(SchemaBehindError, match=f"the schema {revision}, this registry needs") as caught:
        open_catalog(database_url)
    assert "registry db upgrade --catalog" in (caught.value.hint or "")

    assert schema.upgrade(database_url) == (revision, schema.HEAD)

    assert schema.check(database_url) == []
    with open_catalog(database_url) as catalog:
        assert catalog.find("mnist").splits == published.splits
    for table in ("dataset_version", "split", "shard", "version_ledger", "event"):
        with pytest.raises(REFUSED, match="published rows never change"):
            execute(database_url, f"DELETE FROM {table}")  # noqa: S608 (a test's own table)

    assert schema.downgrade(database_url, revision) == (schema.HEAD, revision)
    assert schema.upgrade(database_url) == (revision, schema.HEAD)
    assert schema.check(database_url) == []


def test_the_names_of_renamed_datasets_are_restored_from_the_log(database_url: str) -> None:
    schema.upgrade(database_url)
    with open_catalog(database_url) as catalog:
        for name in ("mnist", "cifar", "plain"):
            publish(catalog, f"{name}:1.0.0")
        for name, after in (("mnist", "digits"), ("cifar", "pictures"), ("digits", "mnist"), ("mnist", "numerals")):
            catalog.rename(name, after, actor="ann")
    names = execute(database_url, "SELECT name, builder_id, position FROM dataset_name ORDER BY name")
    assert len(names) == 5

    schema.downgrade(database_url, "0012")
    schema.upgrade(database_url)

    assert execute(database_url, "SELECT name, builder_id, position FROM dataset_name ORDER BY name") == names
    assert schema.check(database_url) == []
    with open_catalog(database_url) as catalog:
        assert str(catalog.find("digits").reference) == "numerals:1.0.0"
        assert catalog.log.verify().faults == ()
    with pytest.raises(REFUSED, match="published rows never change"):
        execute(database_url, "DELETE FROM dataset_name")


@pytest.mark.parametrize("step", either(len(schema.REVISIONS) - 2, 1))  # every day: the previous and the first revision
def test_rows_that_a_way_back_drops_are_restored_from_the_log(database_url: str, step: int) -> None:
    """Also of datasets that were renamed later: their events have the names of their time."""
    schema.upgrade(database_url)
    with open_catalog(database_url) as catalog:
        fill(catalog)
        pudding = Reference.parse("pudding:1.0.0")
        catalog.configs.set_protection(Reference.parse("pudding"), protect=True, actor="ann")
        catalog.lifecycle.yank(pudding, "wrong", Version(1, 1, 0), actor="ann")
        catalog.attach(catalog.find("pudding:1.1.0"), Attachment.of("statistics", "later.json", b"[]"), actor="bob")
        catalog.rename("pudding", "cake", actor="ann")
        expected = answers(catalog) | {"reservations": ()}  # no events tell of these

    for older in schema.REVISIONS[-2::-step]:
        schema.downgrade(database_url, older)
        schema.upgrade(database_url)

        assert schema.check(database_url) == []
        with open_catalog(database_url) as catalog:
            assert answers(catalog) | {"reservations": ()} == expected, older


def test_a_former_name_that_an_older_registry_gave_away_is_not_restored(database_url: str) -> None:
    schema.upgrade(database_url)
    with open_catalog(database_url) as catalog:
        publish(catalog, "mnist:1.0.0")
        catalog.rename("mnist", "digits", actor="ann")
    schema.downgrade(database_url, "0012")
    execute(
        database_url,
        "INSERT INTO builder (name, has_configs, created_at) SELECT 'mnist', has_configs, created_at FROM builder",
    )
    schema.upgrade(database_url)
    assert execute(database_url, "SELECT count(*) FROM dataset_name") == [(0,)]
    with open_catalog(database_url) as catalog:
        assert catalog.log.verify().faults  # somebody has to decide whose name it is
        with pytest.raises(NotFoundError):
            catalog.find("mnist")


def test_events_that_nobody_can_read_restore_no_names(database_url: str) -> None:
    schema.upgrade(database_url)
    with open_catalog(database_url) as catalog:
        publish(catalog, "mnist:1.0.0")
        unreadable: list[dict[str, Any]] = [
            {},
            {"before": 1, "after": []},
            {"before": "mnist", "after": ""},
            {"before": "x", "after": "y"},
        ]
        for details in unreadable:
            append(catalog, "rename", "mnist", "", **details)
    schema.downgrade(database_url, "0012")
    schema.upgrade(database_url)
    assert execute(database_url, "SELECT count(*) FROM dataset_name") == [(0,)]


def test_a_version_may_be_superseded_since_0004_and_its_state_changes_before(database_url: str) -> None:
    change = "UPDATE dataset_version SET state = 'yanked', state_message = 'wrong'"
    schema.upgrade(database_url)
    with open_catalog(database_url) as catalog:
        publish(catalog, "mnist:1.0.0")
    schema.downgrade(database_url, "0003")  # what today's code publishes needs today's tables
    execute(database_url, change)
    schema.upgrade(database_url, "0004")
    execute(database_url, "UPDATE dataset_version SET superseded_by = '1.0.1'")
    with pytest.raises(REFUSED, match="published rows never change"):
        execute(database_url, "UPDATE dataset_version SET superseded_by = NULL, location = 'elsewhere'")

    schema.downgrade(database_url, "0003")

    execute(database_url, change)
    with pytest.raises(REFUSED, match="published rows never change"):
        execute(database_url, "UPDATE dataset_version SET location = 'elsewhere'")
    assert schema.upgrade(database_url) == ("0003", schema.HEAD)
    assert execute(database_url, "SELECT state, superseded_by FROM dataset_version") == [("yanked", None)]
    assert schema.check(database_url) == []


def test_the_successor_of_a_version_is_restored_from_the_log(database_url: str) -> None:
    schema.upgrade(database_url)
    with open_catalog(database_url) as catalog:
        for reference in ("mnist:1.0.0", "words/plain:1.0.0", "mnist:1.0.1"):
            publish(catalog, reference)
        for reference in ("mnist:1.0.0", "words/plain:1.0.0"):
            by = Version(1, 0, 1) if reference == "mnist:1.0.0" else None
            catalog.lifecycle.yank(Reference.parse(reference), "wrong", by, actor="ann")

    schema.downgrade(database_url, "0003")
    schema.upgrade(database_url)

    with open_catalog(database_url) as catalog:
        assert [one.superseded_by for one in catalog.versions("mnist")] == [None, Version(1, 0, 1)]
        assert catalog.log.verify().faults == ()


def test_copying_a_table_keeps_child_rows_and_triggers(catalog_url: str, tmp_path: Path) -> None:
    with open_catalog(catalog_url) as catalog:
        published = publish(catalog, "mnist:1.0.0")

    migrate(catalog_url, tmp_path, "pass", NEXT)

    assert execute(catalog_url, "SELECT count(*) FROM shard JOIN split ON split.id = split_id") == [(4,)]
    assert execute(catalog_url, "SELECT place, note FROM dataset_version") == [("mnist/1.0.0", None)]
    with pytest.raises(REFUSED, match="published rows never change"):
        execute(catalog_url, "DELETE FROM split")

    migrate(catalog_url, tmp_path, "pass", schema.HEAD)

    missing = [line for line in schema.check(catalog_url) if "check constraint" not in line]
    assert missing == []  # batch mode forgets CHECK constraints unless it is given the table: the template says so
    with open_catalog(catalog_url) as catalog:
        assert catalog.find("mnist").splits == published.splits
    with pytest.raises(REFUSED, match="published rows never change"):
        execute(catalog_url, "DELETE FROM dataset_version")


def test_a_trigger_that_a_migration_drops_by_name_stays_dropped(tmp_path: Path, sqlite_template: Path) -> None:
    path = tmp_path / "catalog.db"
    path.write_bytes(sqlite_template.read_bytes())

    migrate(str(path), tmp_path, 'op.execute("DROP TRIGGER event_no_delete")', NEXT)

    names = [name for (name,) in execute(str(path), "SELECT name FROM sqlite_master WHERE type = 'trigger'")]
    assert "event_no_delete" not in names
    assert "dataset_version_no_delete" in names


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ('raise RuntimeError("interrupted")', "interrupted"),
        ('op.execute("DELETE FROM builder_config")', "rows without their parent|violates foreign key"),
    ],
)
def test_a_migration_that_fails_leaves_everything_as_it_was(
    catalog_url: str, tmp_path: Path, more: str, problem: str
) -> None:
    with open_catalog(catalog_url) as catalog:
        publish(catalog, "mnist:1.0.0")

        with pytest.raises(Exception, match=problem):
            migrate(catalog_url, tmp_path, more, NEXT)

        assert schema.status(catalog_url).state == "current"
        assert schema.check(catalog_url) == []
        assert catalog.find("mnist").num_examples == 9


def test_a_failed_upgrade_says_that_nothing_was_changed(
    catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{NEXT}_more.py").write_text(BATCH.format(more='op.execute("DELETE FROM builder_config")'))
    with open_catalog(catalog_url) as catalog:
        publish(catalog, "mnist:1.0.0")
    ours, head = schema.config, schema.HEAD
    for module in (schema, revision):
        monkeypatch.setattr(module, "HEAD", NEXT)
        monkeypatch.setattr(module, "REVISIONS", (*revision.REVISIONS, NEXT))

    def with_one_more(connection: sa.Connection) -> Config:
        folder = Path(ours(connection).get_main_option("script_location") or "") / "versions"
        return ours(connection, version_locations=f"{folder}\n{tmp_path}")

    monkeypatch.setattr(schema, "config", with_one_more)

    with pytest.raises(CatalogError, match=f"^the upgrade to {NEXT} failed and nothing was changed: ") as caught:
        schema.upgrade(catalog_url)

    assert caught.value.hint == "Look for damage with: registry db check."
    assert execute(catalog_url, "SELECT version_num FROM alembic_version") == [(head,)]


DAMAGES = {
    "sqlite": [
        ("DROP TRIGGER shard_no_delete", ["trigger is missing: shard_no_delete"]),
        (
            "DROP TRIGGER event_no_update; CREATE TRIGGER event_no_update BEFORE UPDATE ON event BEGIN SELECT 1; END",
            ["trigger differs: event_no_update"],
        ),
        ("ALTER TABLE experiment DROP COLUMN description", ["column is missing: experiment.description"]),
        (
            "INSERT INTO split VALUES (7, 99, 0, 'x', 0, 0, 0, '', '', '')",
            ["foreign key is broken: row 7 of split has no dataset_version"],
        ),
    ],
    "postgresql": [
        ("DROP TRIGGER shard_no_change ON shard", ["trigger is missing: shard_no_change"]),
        ("ALTER TABLE event DISABLE TRIGGER event_no_change", ["trigger is switched off: event_no_change"]),
        (
            "CREATE OR REPLACE FUNCTION registry_refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RETURN NEW; END $$",
            ["function differs: registry_refuse_change"],
        ),
        (
            "CREATE OR REPLACE TRIGGER dataset_version_no_change BEFORE UPDATE OR DELETE ON dataset_version "
            "FOR EACH ROW EXECUTE FUNCTION registry_refuse_change('state', 'state_message', 'location')",
            ["trigger differs: dataset_version_no_change"],
        ),
        ("ALTER TABLE experiment DROP COLUMN description", ["column is missing: experiment.description"]),
        ("ALTER TABLE shard DROP CONSTRAINT ck_shard_sha256", ["check constraint is missing: shard.ck_shard_sha256"]),
        ("ALTER TABLE alias DROP CONSTRAINT pk_alias", ["primary key differs: alias"]),
        ("ALTER TABLE alias ALTER COLUMN name DROP NOT NULL", ["nullable differs: alias.name"]),
    ],
}
BOTH = [
    ("DROP INDEX ix_event_dataset_id", ["index is missing: event.ix_event_dataset_id"]),
    ("DROP INDEX ix_shard_empty", ["index is missing: shard.ix_shard_empty"]),
    ("DROP INDEX ix_dataset_version_readable", ["index is missing: dataset_version.ix_dataset_version_readable"]),
    ("DROP TABLE fingerprint", ["table is missing: fingerprint"]),
    ("CREATE TABLE stranger (x INTEGER)", ["table is not part of the schema: stranger"]),
    ("ALTER TABLE builder ADD COLUMN colour TEXT", ["column is not part of the schema: builder.colour"]),
]


@pytest.mark.parametrize(("statement", "expected"), BOTH)
def test_check_finds_what_was_changed_on_either_database(catalog_url: str, statement: str, expected: list[str]) -> None:
    execute(catalog_url, statement)

    found = schema.check(catalog_url)

    assert set(expected) <= set(found)
    assert all("fingerprint" in line for line in set(found) - set(expected))


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("statements", "expected"), DAMAGES["sqlite"])
def test_check_finds_what_was_changed_on_sqlite(catalog_url: str, statements: str, expected: list[str]) -> None:
    stranger = sqlite3.connect(sqlite_path(catalog_url) or "")
    stranger.executescript(statements)
    stranger.close()

    assert schema.check(catalog_url) == expected


@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize(("statement", "expected"), DAMAGES["postgresql"])
def test_check_finds_what_was_changed_on_postgresql(catalog_url: str, statement: str, expected: list[str]) -> None:
    execute(catalog_url, statement)

    assert schema.check(catalog_url) == expected


def test_a_catalog_of_a_newer_registry_is_refused(catalog_url: str) -> None:
    execute(catalog_url, "UPDATE alembic_version SET version_num = '9999'")

    assert schema.status(catalog_url).state == "ahead"
    for action in (open_catalog, schema.upgrade, schema.check, lambda url: schema.downgrade(url, "base")):
        with pytest.raises(
            SchemaAheadError, match=r"the schema 9999, made by a newer registry than this one"
        ) as caught:
            action(catalog_url)
        assert f"({schema.HEAD})" in str(caught.value)


def test_a_catalog_of_an_older_registry_asks_for_an_upgrade(catalog_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    present = schema.HEAD
    for module in (schema, revision):
        monkeypatch.setattr(module, "HEAD", NEXT)
        monkeypatch.setattr(module, "REVISIONS", (*revision.REVISIONS, NEXT))

    with pytest.raises(SchemaBehindError, match=f"has the schema {present}, this registry needs {NEXT}") as caught:
        open_catalog(catalog_url)

    command = (caught.value.hint or "").removeprefix("Bring it up to date with: ")
    assert shlex.split(command) == ["registry", "db", "upgrade", "--catalog", schema.status(catalog_url).url]
    assert caught.value.exit_code == 8


@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
def test_an_empty_database_on_a_server_becomes_a_catalog_only_by_an_upgrade(catalog_url: str) -> None:
    schema.downgrade(catalog_url, "base")

    with pytest.raises(SchemaBehindError, match="holds no catalog yet") as caught:
        open_catalog(catalog_url)

    command = (caught.value.hint or "").removeprefix("Create one with: ")
    assert shlex.split(command) == ["registry", "db", "upgrade", "--catalog", schema.status(catalog_url).url]


@pytest.mark.parametrize(
    "tables",
    [
        ("CREATE TABLE bookmarks (x INTEGER)",),
        (
            "CREATE TABLE alembic_version (version_num VARCHAR(32))",
            "INSERT INTO alembic_version VALUES ('0001')",
            "CREATE TABLE experiment (x INTEGER)",
        ),
    ],
)
def test_a_database_of_something_else_is_refused_and_left_alone(database_url: str, tables: tuple[str, ...]) -> None:
    for statement in tables:
        execute(database_url, statement)
    path = sqlite_path(database_url)
    before = path.read_bytes() if path else b""

    assert schema.status(database_url).state == "foreign"
    for action in (open_catalog, schema.upgrade, schema.check, lambda url: schema.downgrade(url, "base")):
        with pytest.raises(NotACatalogError, match="holds the tables of something else"):
            action(database_url)
    assert (path.read_bytes() if path else b"") == before


@pytest.mark.parametrize("action", [schema.upgrade, schema.downgrade])
def test_an_unknown_revision_is_refused(catalog_url: str, action) -> None:
    with pytest.raises(UsageError, match="no schema revision 'nine'"):
        action(catalog_url, "nine")
