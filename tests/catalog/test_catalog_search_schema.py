"""What is searched: filled by the migration, looked after by ``registry db check`` and ``registry db reindex``."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from support.catalog_samples import execute, publish

from registry.catalog import open_catalog, schema, sqlite_path
from registry.catalog.faults import typed_faults
from registry.catalog.urls import parse_url
from registry.errors import CatalogError, NotACatalogError
from registry.model import DatasetMetadata, Reference

BEFORE = "0002"
REMEDY = "repair it with: registry db reindex"
DOCUMENTS = "SELECT config_id, version_id, name, tags, features, description, details FROM search_document ORDER BY 1"


def fill(url: str) -> None:
    """Configs whose standing version is not simply their last one."""
    with open_catalog(url) as catalog:
        for number, promote in (("1.0.0", True), ("3.0.0", False), ("2.0.0", False)):
            text = DatasetMetadata(description=f"Größe {number}, 手書き", config_tags=("a_b", "Ünï"), license="MIT")
            publish(catalog, f"mnist/plain:{number}", promote=promote, content=number, metadata=text)
            publish(catalog, f"mnist/other:{number}", promote=False, content=number, metadata=text)
            publish(catalog, f"open_images:{number}", promote=False, content=number, labels={"kind": ("x y", "é")})
    execute(url, "UPDATE dataset_version SET state = 'yanked' WHERE config_id = 2 AND major > 1")
    execute(url, "UPDATE dataset_version SET state = 'dropped' WHERE config_id = 3")


def test_the_migration_writes_the_documents_of_what_is_published(database_url: str) -> None:
    schema.upgrade(database_url)
    fill(database_url)
    schema.reindex(database_url)
    written = execute(database_url, DOCUMENTS)
    assert [row[:2] for row in written] == [(1, 1), (2, 2), (3, 6)]

    assert schema.downgrade(database_url, BEFORE) == (schema.HEAD, BEFORE)
    assert schema.upgrade(database_url) == (BEFORE, schema.HEAD)

    assert execute(database_url, DOCUMENTS) == written
    assert schema.check(database_url) == []
    with open_catalog(database_url) as catalog:
        found = {hit.dataset: str(hit.version) for text in ("mnist", "images") for hit in catalog.search(text)}
        assert found == {"mnist/plain": "1.0.0", "mnist/other": "1.0.0", "open_images": "3.0.0"}
        publish(catalog, "mnist/plain:4.0.0", metadata=DatasetMetadata(description="anew"), content="4")
        assert [hit.dataset for hit in catalog.search("anew")] == ["mnist/plain"]


def test_the_migration_writes_a_document_for_each_of_many_configs(catalog_url: str) -> None:
    with open_catalog(catalog_url) as catalog:
        publish(catalog, "mnist/c0:1.0.0")
    schema.downgrade(catalog_url, BEFORE)
    execute(
        catalog_url,
        "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 450) "
        "INSERT INTO builder_config (id, builder_id, name, is_default, created_at) "
        "SELECT i, 1, 'c' || i, false, CURRENT_TIMESTAMP FROM n",
    )
    columns = (
        "major, minor, patch, state, state_message, release_notes_json, slicing, file_format, disable_shuffling, "
        "features_json, labels_json, metadata_json, location, content_digest, published_at, published_by"
    )
    execute(
        catalog_url,
        f"INSERT INTO dataset_version (id, config_id, {columns}) SELECT c.id, c.id, {columns} "  # noqa: S608 (constants)
        "FROM dataset_version v JOIN builder_config c ON c.id > 1",
    )

    schema.upgrade(catalog_url)

    with open_catalog(catalog_url) as catalog:
        assert len(catalog.search("mnist", limit=1000)) == 450
        assert [hit.dataset for hit in catalog.search("c450")] == ["mnist/c450"]
    assert schema.check(catalog_url) == []


def test_the_migration_passes_over_what_does_not_read(catalog_url: str) -> None:
    with open_catalog(catalog_url) as catalog:
        publish(catalog, "mnist:1.0.0")
    schema.downgrade(catalog_url, BEFORE)
    is_sqlite = catalog_url.startswith("sqlite")
    unguarded = "ALTER TABLE dataset_version DISABLE TRIGGER dataset_version_no_change"
    execute(catalog_url, "DROP TRIGGER dataset_version_no_update" if is_sqlite else unguarded)
    execute(catalog_url, "UPDATE dataset_version SET metadata_json = '{', features_json = '[1]', labels_json = '7'")

    schema.upgrade(catalog_url)

    assert execute(catalog_url, DOCUMENTS) == [(1, 1, "mnist", "", "", "", "")]
    with open_catalog(catalog_url) as catalog, pytest.raises(CatalogError, match="the catalog is damaged"):
        catalog.search("mnist")


BOTH = [
    ("UPDATE search_document SET tags = 'digits'", f"search documents are out of date: digits/a; {REMEDY}"),
    ("DELETE FROM search_document", f"search documents are out of date: digits/a; {REMEDY}"),
    ("UPDATE search_document SET version_id = 2", f"search documents are out of date: digits/a; {REMEDY}"),
]
SQLITE = [
    (
        "INSERT INTO search_index(search_index) VALUES ('delete-all')",
        f"search index differs from its documents; {REMEDY}",
    ),
    ("UPDATE search_index_data SET block = x'00'", f"search index differs from its documents; {REMEDY}"),
]


def mended(url: str, statement: str, expected: str) -> None:
    """Damage, find and mend what is searched."""
    with open_catalog(url) as catalog:
        publish(catalog, "digits/a:1.0.0")
        publish(catalog, "digits/a:2.0.0", promote=False, content="2")
        assert schema.check(url) == []

    execute(url, statement)

    assert schema.check(url) == [expected]
    assert schema.reindex(url) == expected.startswith("search documents")
    assert schema.reindex(url) == 0
    assert schema.check(url) == []
    with open_catalog(url) as catalog:
        assert [str(hit.version) for hit in catalog.search("digits a")] == ["1.0.0"]
        publish(catalog, "digits/a:1.0.1", content="1", metadata=DatasetMetadata(description="Patched."))
        assert [str(hit.version) for hit in catalog.search("digits patched")] == ["1.0.1"]
    assert schema.check(url) == []


@pytest.mark.parametrize(("statement", "expected"), BOTH)
def test_documents_that_are_not_what_is_published_are_found_and_mended(
    catalog_url: str, statement: str, expected: str
) -> None:
    mended(catalog_url, statement, expected)


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("statement", "expected"), SQLITE)
def test_an_index_that_is_not_that_of_its_documents_is_found_and_mended(
    catalog_url: str, statement: str, expected: str
) -> None:
    mended(catalog_url, statement, expected)


BROKEN = [
    "INSERT INTO search_index(search_index) VALUES ('delete-all')",
    "DELETE FROM search_index_data",
    "DELETE FROM search_index_config",
    "UPDATE search_index_data SET block = x'00'",
    "UPDATE search_index_data SET block = x'ffffffffffffffff'",
    "DROP TABLE search_index",
    "DROP TABLE search_index_data",
    "DROP TABLE search_index_idx",
    "DROP TABLE search_index_config",
]


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("statement", BROKEN)
def test_a_damaged_index_is_named_with_the_command_that_rebuilds_it(catalog_url: str, statement: str) -> None:
    with open_catalog(catalog_url) as catalog:
        publish(catalog, "sales:1.0.0")
    execute(catalog_url, statement)

    found = schema.check(catalog_url)
    assert all("search_index" in line or line.startswith("search index ") for line in found)
    assert any(line.startswith("search index ") for line in found)
    with open_catalog(catalog_url) as catalog:
        assert [fault.where for fault in catalog.log.verify().faults] == ["the schema"]
        for action in (
            lambda: catalog.search("sales") or catalog.explain_no_hits("sales"),
            lambda: catalog.lifecycle.yank(Reference.parse("sales:1.0.0"), "bad", None, actor="ann"),
            lambda: publish(catalog, "sales:1.1.0"),
        ):
            raised = None  # an index that is damaged in part still serves some of them
            try:
                action()
            except CatalogError as error:
                raised = error
            if raised is not None:
                assert str(raised).startswith(f"the search index of {catalog.url} is damaged: ")
                assert raised.hint == ("Rebuild it from the published versions: registry db reindex")
        assert catalog.find("sales").num_examples == 9

    schema.reindex(catalog_url)
    assert schema.check(catalog_url) == []
    with open_catalog(catalog_url) as catalog:
        assert catalog.log.verify().faults == ()
        publish(catalog, "sales:2.0.0", metadata=DatasetMetadata(description="Patched."))
        assert [str(hit.version) for hit in catalog.search("sales patched")] == ["2.0.0"]
    assert schema.check(catalog_url) == []


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_search_does_not_say_that_a_dataset_is_unknown_because_the_index_is_empty(catalog_url: str) -> None:
    with open_catalog(catalog_url) as catalog:
        publish(catalog, "sales:1.0.0")
        execute(catalog_url, BROKEN[0])
        assert catalog.search("sales") == ()
        with pytest.raises(CatalogError) as caught:
            catalog.explain_no_hits("sales")
        assert str(caught.value) == (
            f"the search index of {catalog.url} is damaged: it lacks 'sales', a word in the name of a dataset"
        )
        with pytest.raises(CatalogError) as caught:
            publish(catalog, "sales:1.1.0")
        assert str(caught.value) == f"the search index of {catalog.url} is damaged: database disk image is malformed"
        assert [str(fault) for fault in catalog.log.verify().faults] == [
            f"the schema search index differs from its documents; {REMEDY}"
        ]


def test_many_documents_out_of_date_are_one_line(catalog_url: str) -> None:
    with open_catalog(catalog_url) as catalog:
        for number in range(7):
            publish(catalog, f"d{number}:1.0.0")
    execute(catalog_url, "DELETE FROM search_document")

    assert schema.check(catalog_url) == [f"search documents are out of date: d0, d1, d2, d3, d4 and 2 more; {REMEDY}"]
    assert schema.reindex(catalog_url) == 7


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (["DROP TRIGGER search_document_update"], ["trigger is missing: search_document_update"]),
        (["DROP TABLE search_index"], [f"search index is missing: search_index; {REMEDY}"]),
        (
            ["DROP TABLE search_index", "CREATE VIRTUAL TABLE search_index USING fts5(name)"],
            ["table is not part of the schema: search_index_content", f"search index differs: search_index; {REMEDY}"],
        ),
        (["ALTER TABLE search_document DROP COLUMN version_id"], None),
    ],
)
def test_check_finds_what_is_missing_of_the_search_on_sqlite(
    catalog_url: str, statements: list[str], expected: list[str] | None
) -> None:
    if expected is None:  # a column that a foreign key needs cannot go alone
        with pytest.raises(sqlite3.OperationalError):
            execute(catalog_url, statements[0])
        return
    for statement in statements:
        execute(catalog_url, statement)

    assert set(schema.check(catalog_url)) >= set(expected)


@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("DROP INDEX ix_search_document_vector", ["search index is missing: ix_search_document_vector"]),
        (
            "ALTER TABLE search_document DROP COLUMN vector",
            ["search index is missing: search_document.vector", "search index is missing: ix_search_document_vector"],
        ),
        (
            "ALTER TABLE search_document ALTER COLUMN vector DROP EXPRESSION",
            ["search index differs: search_document.vector"],
        ),
        (
            "DROP INDEX ix_search_document_vector; "
            "CREATE INDEX ix_search_document_vector ON search_document USING btree (config_id)",
            ["search index differs: ix_search_document_vector"],
        ),
        (
            "ALTER TABLE search_document DROP COLUMN vector; ALTER TABLE search_document ADD COLUMN vector tsvector "
            "GENERATED ALWAYS AS (name::tsvector) STORED; "
            "CREATE INDEX ix_search_document_vector ON search_document USING gin (vector)",
            [f"search index differs from its documents; {REMEDY}"],
        ),
        ("ALTER TABLE search_document DROP COLUMN tags CASCADE", ["column is missing: search_document.tags"]),
        (
            "CREATE INDEX strange ON search_document (name)",
            ["index is not part of the schema: search_document.strange"],
        ),
    ],
)
def test_check_finds_what_is_missing_of_the_search_on_postgresql(
    catalog_url: str, statement: str, expected: list[str]
) -> None:
    with open_catalog(catalog_url) as catalog:
        publish(catalog, "digits:1.0.0")
    execute(catalog_url, statement)

    assert [line for line in schema.check(catalog_url) if line in expected] == expected


def test_a_database_that_is_no_catalog_is_not_reindexed(tmp_path: Path) -> None:
    execute(str(tmp_path / "other.db"), "CREATE TABLE bookmarks (x INTEGER)")

    with pytest.raises(NotACatalogError):
        schema.reindex(tmp_path / "other.db")


def test_a_catalog_on_a_read_only_file_system_is_searched_and_checked(
    tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "catalog.db"
    path.write_bytes(sqlite_template.read_bytes())
    with open_catalog(path) as catalog:
        publish(catalog, "digits:1.0.0")
    facts = os.statvfs_result((*os.statvfs(path)[:8], os.ST_RDONLY, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: facts)

    with open_catalog(path) as catalog:
        assert [hit.dataset for hit in catalog.search("digits")] == ["digits"]
    assert schema.check(path) == []
    with pytest.raises(CatalogError, match="is read-only"):
        schema.reindex(path)


def test_an_sqlite_without_fts5_is_told_so(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "x.db")

    # The real error of a module that is not there; its name goes on where FTS5's ends.
    with pytest.raises(CatalogError) as caught, typed_faults(parse_url("catalog.db")):
        connection.execute("CREATE VIRTUAL TABLE x USING fts5_of_another_build(a)")
    connection.close()

    assert str(caught.value) == "sqlite:///catalog.db cannot be searched: this Python's SQLite has no FTS5"
    assert caught.value.hint == "Use a Python whose SQLite has FTS5, as nearly all do, or a PostgreSQL catalog."


def test_sqlites_own_tables_of_the_index_are_those_that_are_passed_over(catalog_url: str) -> None:
    if path := sqlite_path(catalog_url):
        from registry.catalog.search import OWN_TABLES

        names = execute(str(path), "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'search_index%'")
        assert {name for (name,) in names} == OWN_TABLES
