"""Backups of catalogs: the restored catalog answers as the original, and no file does more than fill an empty one."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from support.catalog_backups import answers, empty_lines, fill, forge, lines_of, opener, packed
from support.catalog_samples import damage, execute, publish

from registry.catalog import CatalogBackend, open_catalog, schema
from registry.catalog.backup import DERIVED, open_backup
from registry.catalog.restore import Restored, require_empty, restore_backup
from registry.catalog.session import open_engine
from registry.catalog.tables import metadata
from registry.errors import (
    BackupFormatError,
    CatalogNotEmptyError,
    CatalogNotFoundError,
    LogTamperedError,
    NotACatalogError,
    RegistryError,
    SchemaAheadError,
    SchemaBehindError,
    UsageError,
)
from registry.model import Reference


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> bytes:
    """A backup of a catalog that has rows in every table."""
    path = shutil.copy(sqlite_template, tmp_path_factory.mktemp("filled") / "catalog.db")
    with open_catalog(path) as catalog:
        fill(catalog)
        return packed(catalog.backup())


def restore(url: str, backup: bytes, **options: Any) -> Restored:
    return restore_backup(url, opener(backup), shown="backup.gz", **options)


def test_a_restored_catalog_answers_every_query_as_the_original(catalog_url: str, target: str) -> None:
    with open_catalog(catalog_url) as catalog:
        fill(catalog)
        backup, expected = packed(catalog.backup()), answers(catalog)

    restored = restore(target, backup)

    assert restored.log is not None
    assert restored.log == expected["log"]
    assert restored.facts.head == expected["log"].head
    assert schema.check(target) == []
    with open_catalog(target) as catalog:
        assert answers(catalog) == expected
        again = packed(catalog.backup())
        assert lines_of(again)[:-1] == lines_of(backup)[:-1]
        assert lines_of(again)[-1]["end"]["sha256"] == restored.facts.sha256
        # New rows get new ids: the database continues to count where the original was.
        publish(catalog, "mnist/plain:3.0.0", content="new", promote=False)
        publish(catalog, "fresh:1.0.0")
        catalog.aliases.set("new", Reference.parse("fresh:1.0.0"), expect="none", message="", actor="ann")
        assert catalog.log.verify().is_sound


def test_every_table_is_in_a_backup_or_is_left_out_for_a_reason(catalog: CatalogBackend, catalog_url: str) -> None:
    fill(catalog)
    rows = lines_of(packed(catalog.backup()))[-1]["end"]["rows"]
    engine = open_engine(catalog_url)
    own = {"alembic_version", "search_index"}
    present = {name for name in sa.inspect(engine).get_table_names() if not name.startswith("search_index_")} - own
    engine.dispose()

    assert present == metadata.tables.keys() == rows.keys() | DERIVED.keys()
    assert not [name for name, count in rows.items() if not count], "fill() does not test these tables"
    assert all(DERIVED.values())


def test_a_backup_shows_one_moment_while_others_publish(catalog: CatalogBackend, target: str) -> None:
    publish(catalog, "mnist:1.0.0", lengths={"train": [1] * 3000})
    expected = answers(catalog)

    pieces = catalog.backup()
    begun = [next(pieces), next(pieces)]
    publish(catalog, "mnist:2.0.0", content="later")
    catalog.lifecycle.yank(Reference.parse("mnist:1.0.0"), "wrong", actor="ann")

    restore(target, packed([*begun, *pieces]))
    with open_catalog(target) as restored:
        assert answers(restored) == expected


@pytest.mark.parametrize("revision", schema.REVISIONS[:-1])
def test_a_backup_of_an_older_schema_is_restored_and_upgraded(database_url: str, tmp_path: Path, revision: str) -> None:
    schema.upgrade(database_url)
    with open_catalog(database_url) as catalog:
        publish(catalog, "mnist/plain:1.0.0", lengths={"train": [3, 0, 4], "test": [0]})
        publish(catalog, "other:1.0.0")
    schema.downgrade(database_url, revision)  # what today's code publishes needs today's tables
    with open_backup(database_url) as lines:
        backup = packed(lines)
    assert lines_of(backup)[0]["schema"] == revision
    schema.upgrade(database_url)
    with open_catalog(database_url) as catalog:
        expected = answers(catalog)

    restored = tmp_path / "restored.db"
    assert restore(str(restored), backup).facts.schema == revision

    assert schema.check(restored) == []
    with open_catalog(restored) as catalog:
        assert answers(catalog) == expected


def test_secrets_of_an_older_schema_are_removed_by_the_upgrade(database_url: str, tmp_path: Path) -> None:
    schema.upgrade(database_url)
    with open_catalog(database_url) as catalog:
        publish(catalog, "mnist:1.0.0")
    schema.downgrade(database_url, "0007")
    damage(database_url, "UPDATE dataset_version SET location = 'http://ann:hunter2@host/mnist'")
    with open_backup(database_url) as lines:
        backup = packed(lines)

    restored = restore(str(tmp_path / "restored.db"), backup, verify=False)

    assert [(one.reference, one.location) for one in restored.secrets_removed] == [("mnist:1.0.0", "http://host/mnist")]
    assert b"hunter2" not in (tmp_path / "restored.db").read_bytes()


def test_a_catalog_without_rows_is_filled_and_one_with_rows_is_refused(catalog_url: str, filled: bytes) -> None:
    restore(catalog_url, filled)
    with open_catalog(catalog_url) as catalog:
        before = answers(catalog)

    with pytest.raises(CatalogNotEmptyError, match=r"is not empty: it has rows in the table access_token") as refused:
        restore(catalog_url, filled)

    assert "an empty catalog only" in (refused.value.hint or "")
    with open_catalog(catalog_url) as catalog:
        assert answers(catalog) == before


def test_an_older_catalog_without_rows_is_filled(database_url: str, filled: bytes) -> None:
    schema.upgrade(database_url, "0002")
    restore(database_url, filled)
    assert schema.check(database_url) == []


def test_a_database_of_something_else_is_refused(database_url: str, filled: bytes) -> None:
    engine = open_engine(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE users (id INTEGER)")
    engine.dispose()
    with pytest.raises(NotACatalogError):
        restore(database_url, filled)
    assert execute(database_url, "SELECT count(*) FROM users") == [(0,)]


def test_what_is_no_catalog_is_not_backed_up(database_url: str) -> None:
    is_file = database_url.startswith("sqlite")
    with (
        pytest.raises(CatalogNotFoundError if is_file else SchemaBehindError),
        open_backup(database_url) as lines,
    ):
        list(lines)
    assert schema.status(database_url).state == ("absent" if is_file else "empty")


def test_a_backup_of_rows_that_were_changed_is_restored_only_on_request(
    catalog: CatalogBackend, catalog_url: str, tmp_path: Path
) -> None:
    publish(catalog, "mnist:1.0.0")
    damage(catalog_url, "UPDATE dataset_version SET location = 'elsewhere'")
    backup = packed(catalog.backup())

    with pytest.raises(LogTamperedError, match=r"^backup.gz: the catalog does not match its event log: ") as refused:
        restore(str(tmp_path / "restored.db"), backup)
    assert "verify=False" in (refused.value.hint or "")
    assert not (tmp_path / "restored.db").exists()

    assert restore(str(tmp_path / "restored.db"), backup, verify=False).log is None
    with open_catalog(tmp_path / "restored.db") as restored:
        assert restored.find(Reference.parse("mnist")).location == "elsewhere"


def test_a_target_is_found_empty_or_refused_without_a_change(target: str, filled: bytes) -> None:
    before = schema.status(target).state
    require_empty(target)
    assert schema.status(target).state == before
    restore(target, filled)
    with pytest.raises(CatalogNotEmptyError):
        require_empty(target)


def test_a_log_that_lacks_the_anchor_is_refused(target: str, filled: bytes) -> None:
    with pytest.raises(LogTamperedError, match="does not contain the anchor: expected an event with the hash abab"):
        restore(target, filled, anchor="ab" * 32)
    assert schema.status(target).state in ("absent", "empty")
    head = lines_of(filled)[-1]["end"]["head"]
    with pytest.raises(UsageError):
        restore(target, filled, anchor=head, verify=False)
    assert restore(target, filled, anchor=head).log is not None


COLUMNS = ["id", "name", "description", "default_enabled", "created_at", "retired_at"]
GOOD = [1, "flag", "About it.", False, "2026-11-23T00:00:00+00:00", None]


def changed(place: int, value: object) -> list[Any]:
    return [value if place == index else one for index, one in enumerate(GOOD)]


ROWS: dict[str, tuple[list[Any] | bytes, str]] = {
    "too few values": (GOOD[:-1], "expected 6 values, found 5"),
    "too many values": ([*GOOD, None], "expected 6 values, found 7"),
    "a text for a number": (changed(0, "1; DROP TABLE event"), "expected a whole number of 64 bits"),
    "a large number": (changed(0, 2**63), "expected a whole number of 64 bits"),
    "a boolean for a number": (changed(0, True), "expected a whole number of 64 bits"),
    "a number for a text": (changed(1, 7), "expected a text, found 7"),
    "a container for a text": (changed(1, ["x"]), "expected a text"),
    "a NUL": (changed(1, "a\0b"), "a NUL or a lone surrogate"),
    "half a character": (changed(1, "a\ud800b"), "a NUL or a lone surrogate"),
    "a number for a boolean": (changed(3, 1), "expected true or false, found 1"),
    "no moment": (changed(4, "yesterday"), "Invalid isoformat string"),
    "a moment without a zone": (changed(4, "2026-11-23T00:00:00"), "expected a moment with its time zone"),
    "a missing value": (changed(1, None), "the rows contradict each other"),
    "a value that the schema forbids": (changed(1, ""), "the rows contradict each other"),
    "no JSON": (b"[1, 2\n", "it is not JSON"),
    "infinity": (b'[Infinity, "flag", "", false, "2026-11-23T00:00:00+00:00", null]\n', "expected a whole number"),
    "deep lists": (b"[" * 60_000 + b"\n", "it is not JSON"),
    "many lists": (b"[" + b"[]," * 40_000 + b"[]]\n", "it is not JSON: expected 6 values, each a number, a text"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_that_does_not_fit_is_refused_with_its_line(target: str, name: str) -> None:
    row, problem = ROWS[name]
    head, end = empty_lines(schema.HEAD)
    backup = forge([head, {"table": "experiment", "columns": COLUMNS}, row, end])
    with pytest.raises(BackupFormatError, match=r"^backup\.gz: line [34]: ") as refused:
        restore(target, backup)
    assert problem in refused.value.message
    assert refused.value.exit_code == 5
    assert schema.status(target).state in ("absent", "empty")


TABLES: dict[str, tuple[list[Any], str]] = {
    "an unknown table": ([{"table": "users", "columns": []}], "has no table 'users'"),
    "SQL for a table": ([{"table": "event; DROP TABLE event", "columns": []}], "has no table 'event; DROP"),
    "a table of the database": ([{"table": "sqlite_master", "columns": ["sql"]}], "has no table 'sqlite_master'"),
    "another revision": ([{"table": "alembic_version", "columns": ["version_num"]}], "has no table 'alembic_version'"),
    "SQL for a column": ([{"table": "experiment", "columns": [*COLUMNS[:-1], "x) --"]}], "has other columns"),
    "a column twice": ([{"table": "experiment", "columns": [*COLUMNS, "id"]}], "has other columns"),
    "columns of other types": ([{"table": "experiment", "columns": [1, None, {}, [], "a", "b"]}], "has other columns"),
    "no columns": ([{"table": "experiment"}], "expected the name of a table and its columns"),
    "a table twice": (2 * [{"table": "experiment", "columns": COLUMNS}], "the table 'experiment' occurs twice"),
    "the same row twice": ([{"table": "experiment", "columns": COLUMNS}, GOOD, GOOD], "contradict each other"),
    "a row without its parent": (
        [{"table": "version_experiment", "columns": ["version_id", "experiment_id", "enabled"]}, [1, 1, True]],
        "the rows contradict each other",
    ),
    "too few tables": ([{"table": "experiment", "columns": COLUMNS}], "it lacks the tables access_token, alias"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_do_not_fit_are_refused(target: str, name: str) -> None:
    lines, problem = TABLES[name]
    head, end = empty_lines(schema.HEAD)
    with pytest.raises(BackupFormatError) as refused:
        restore(target, forge([head, *lines, end]))
    assert problem in refused.value.message
    assert schema.status(target).state in ("absent", "empty")


def test_the_end_of_a_file_proves_that_it_is_whole(tmp_path: Path, filled: bytes) -> None:
    text = gzip.decompress(filled)
    lines = text.splitlines(keepends=True)
    end = json.loads(lines[-1])["end"]

    def ended(**changes: Any) -> bytes:
        return packed([*lines[:-1], json.dumps({"end": end | changes}, separators=(",", ":")).encode() + b"\n"])

    files = {
        "is not compressed with gzip": text,
        "the file ends before its last line": packed(lines[:-1]),
        "sha256 mismatch: expected": ended(sha256="0" * 64),
        "the head in the last line is not that of the event log": ended(head="0" * 64),
        "the numbers of rows differ": ended(rows=end["rows"] | {"shard": 1}),
        "the last line is malformed": ended(rows=[]),
        "there is data after the last line": packed([*lines, b"{}\n"]),
        "the file ends in the middle of a line": packed([*lines[:-1], lines[-1][:-1]]),
        "this is not a backup of a catalog": packed([b"[]\n"]),
        "expected a backup of a catalog (registry.backup/1), found 'registry.backup/2'": packed(
            [b'{"format":"registry.backup/2"}\n']
        ),
        "the revision of the schema is missing": packed([b'{"format":"registry.backup/1"}\n']),
    }
    for problem, content in files.items():
        with pytest.raises(BackupFormatError) as refused:
            restore(str(tmp_path / "restored.db"), content)
        assert problem in refused.value.message
        assert refused.value.details["problem"] in refused.value.message
    assert list(tmp_path.iterdir()) == []


def test_a_backup_of_a_newer_registry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaAheadError, match=r"^backup.gz has the schema 9999, made by a newer registry than this"):
        restore(str(tmp_path / "restored.db"), forge(empty_lines("9999")))


def test_a_line_without_end_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("registry.catalog.backup_file.MAX_LINE_BYTES", 1000)
    with pytest.raises(BackupFormatError, match="line 1: the line is too long"):
        restore(str(tmp_path / "restored.db"), packed([b"[" + b" " * 1000 + b"]\n"]))


def test_only_rows_are_long(tmp_path: Path) -> None:
    head = b'{"format":"registry.backup/1","schema":"0009"}\n'
    lists = b"[]," * 30_000 + b"[]"
    files = {
        "line 1: the line is too long": [b'{"format":"registry.backup/1","x":[' + lists + b"]}\n"],
        "line 2: the line is too long": [head, b'{"end":{"rows":[' + lists + b"]}}\n"],
        "line 1,002: there are more than 1,000 tables": [
            head,
            *(b'{"table":"t%d","columns":[]}\n' % number for number in range(1001)),
        ],
    }
    for problem, lines in files.items():
        with pytest.raises(BackupFormatError, match=problem):
            restore(str(tmp_path / "restored.db"), packed(lines))


def test_texts_of_a_megabyte_come_back(catalog: CatalogBackend, target: str) -> None:
    version = publish(
        catalog, "mnist:1.0.0", features_json=json.dumps({"x": 'é"\\' * 300_000}), content_digest="0" * 64
    )
    restore(target, packed(catalog.backup()), verify=False)
    with open_catalog(target) as restored:
        assert restored.find(Reference.parse("mnist")).features_json == version.features_json


def test_a_restoration_that_is_killed_at_any_statement_leaves_a_database_that_can_be_restored(
    target: str, filled: bytes, tmp_path: Path, start_script: Callable[..., Any]
) -> None:
    (tmp_path / "backup.gz").write_bytes(filled)
    for number in (1, 5, 40, 80, 160):
        process = start_script("catalog_restorer.py", target, str(tmp_path / "backup.gz"), str(number))
        assert process.wait(60) == -9, number
        assert schema.status(target).state in ("absent", "empty"), number
    process = start_script("catalog_restorer.py", target, str(tmp_path / "backup.gz"), "100000")
    assert process.wait(120) == 0
    assert schema.check(target) == []
    with open_catalog(target) as catalog:
        assert lines_of(packed(catalog.backup()))[:-1] == lines_of(filled)[:-1]


def test_a_writer_is_not_mixed_in(catalog: CatalogBackend, catalog_url: str, filled: bytes) -> None:
    publish(catalog, "mnist:1.0.0")
    with pytest.raises(RegistryError, match="is not empty"):
        restore(catalog_url, filled)
    assert [one.dataset for one in catalog.datasets()] == ["mnist"]
    assert catalog.log.verify().is_sound
