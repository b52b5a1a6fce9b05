"""Passwords in URLs are not stored; those that older registries stored are removed by an upgrade, which tells of it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.catalog_samples import damage, execute, logged, publish, sample

from registry.catalog import CatalogBackend, open_catalog, rows, schema, sqlite_path, writes
from registry.cli.main import run
from registry.errors import UsageError
from registry.model import DatasetMetadata, Reference

BEFORE = "0007"

URL = "https://ann:hunter2@example.org/mnist/1.0.0?token=hunter2&page=1"
CLEAN = "https://example.org/mnist/1.0.0?page=1"
METADATA = DatasetMetadata(
    description="Its author wrote: https://example.org/?token=of-the-author",
    homepage="https://ann:hunter2@example.org/home",
    extra={"downloadChecksums": {"https://example.org/a?sig=hunter2": {"checksum": "0" * 64}}},
    custom={"source": ["s3://KEY:hunter2@bucket/x"], "question": "what?key=this"},
)
KEPT = {
    "homepage": "https://example.org/home",
    "extra": {"downloadChecksums": {"https://example.org/a?sig=***": {"checksum": "0" * 64}}},
    "custom": {"source": ["s3://***@bucket/x"], "question": "what?key=this"},
}


@pytest.fixture
def old(database_url: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A catalog of the revision before, with what older registries let in; the parameter are renames after that."""
    schema.upgrade(database_url)
    with monkeypatch.context() as older:
        older.setattr(rows, "has_secret", lambda _url: False)
        older.setattr(rows, "remove_secrets", lambda url: url)
        older.setattr(rows, "mask_all", lambda value, **_: value)
        older.setattr(writes, "_complete_location", lambda *_: {})  # their events had no location
        with open_catalog(database_url) as catalog:
            publish(catalog, "mnist:1.0.0", location=URL, metadata=METADATA)
            publish(catalog, "mnist:1.0.1")
            publish(catalog, "words/plain:1.0.0", location="s3://KEY:hunter2@bucket/words")
            catalog.lifecycle.yank(Reference.parse("mnist:1.0.0"), "wrong", None, actor="ann")
            for name, after in getattr(request, "param", ()):
                catalog.rename(name, after, actor="ann")
            assert catalog.log.verify().faults == ()
    schema.downgrade(database_url, BEFORE)
    return database_url


def upgrade(url: str) -> list[schema.RemovedSecrets]:
    removed: list[schema.RemovedSecrets] = []
    schema.upgrade(url, told=removed.append)
    return removed


def stored_text(url: str) -> str:
    """Everything that the tables of a catalog hold."""
    tables = (
        "builder",
        "builder_config",
        "dataset_version",
        "split",
        "event",
        "alias",
        "alias_event",
        "search_document",
    )
    return repr([execute(url, f"SELECT * FROM {table}") for table in tables])  # noqa: S608 (our tables)


def test_secrets_are_removed_and_the_log_holds(old: str) -> None:
    assert "hunter2" in stored_text(old)
    untouched = execute(old, "SELECT * FROM dataset_version WHERE patch = 1")
    events = execute(old, "SELECT id, hash FROM event ORDER BY id")

    removed = upgrade(old)

    assert removed == [
        schema.RemovedSecrets(
            reference="mnist:1.0.0", columns=("location", "metadata_json"), location=CLEAN, is_erased=True
        ),
        schema.RemovedSecrets(
            reference="words/plain:1.0.0", columns=("location",), location="s3://bucket/words", is_erased=True
        ),
    ]
    assert "hunter2" not in stored_text(old) + repr(removed)
    assert execute(old, "SELECT * FROM dataset_version WHERE patch = 1") == untouched
    assert execute(old, "SELECT id, hash FROM event ORDER BY id")[: len(events)] == events
    assert schema.check(old) == []
    with open_catalog(old) as catalog:
        report = catalog.log.verify()
        assert report.faults == ()
        assert report.num_events == len(events) + 2
        states = {one.version.patch: one.state.value for one in catalog.versions("mnist")}
        assert states == {0: "yanked", 1: "supported"}
        assert [event.action for event in logged(catalog)][-2:] == ["remove-secrets"] * 2
        event = list(logged(catalog))[-2]
        assert (event.dataset, event.version, event.actor) == ("mnist", "1.0.0", "registry db upgrade")
        assert event.details["columns"] == ["location", "metadata_json"]
        published = next(one for one in logged(catalog) if one.action == "publish" and one.version == "1.0.0")
        assert event.details["seal"]["before"] == published.details["seal"]
    metadata = json.loads(
        execute(old, "SELECT metadata_json FROM dataset_version WHERE patch = 0 AND location LIKE 'h%'")[0][0]
    )
    assert {name: metadata[name] for name in KEPT} == KEPT
    assert metadata["description"] == METADATA.description  # words of a person: printed masked, stored as they are


@pytest.mark.parametrize("old", [[("words", "texts")]], indirect=True)
def test_versions_of_renamed_datasets_are_sealed_anew(old: str) -> None:
    removed = upgrade(old)

    assert [secrets.reference for secrets in removed] == ["mnist:1.0.0", "texts/plain:1.0.0"]
    with open_catalog(old) as catalog:
        assert catalog.log.verify().faults == ()
        assert list(logged(catalog))[-1].details["seal"]["before"]


def test_published_rows_are_as_immutable_as_before(old: str) -> None:
    upgrade(old)
    for change in ("UPDATE dataset_version SET location = 'elsewhere'", "DELETE FROM dataset_version"):
        with pytest.raises(Exception, match="published rows never change"):
            execute(old, change)
    execute(old, "UPDATE dataset_version SET state = 'deprecated', state_message = 'old'")


def test_a_second_upgrade_finds_nothing(old: str) -> None:
    upgrade(old)
    before = stored_text(old)
    schema.downgrade(old, BEFORE)
    assert upgrade(old) == []
    assert stored_text(old) == before
    with open_catalog(old) as catalog:
        assert catalog.log.verify().faults == ()


def test_a_catalog_without_secrets_is_left_alone(database_url: str) -> None:
    schema.upgrade(database_url)
    with open_catalog(database_url) as catalog:
        publish(
            catalog,
            "mnist:1.0.0",
            location="https://example.org/mnist",
            metadata=DatasetMetadata(homepage="https://x.org"),
        )
    schema.downgrade(database_url, BEFORE)
    before = stored_text(database_url)
    assert upgrade(database_url) == []
    assert stored_text(database_url) == before


def test_a_row_that_was_changed_before_is_not_sealed_anew(old: str) -> None:
    schema.upgrade(old, BEFORE)
    damage(old, "UPDATE dataset_version SET version_to_prepare = '9.9.9' WHERE location LIKE 'https%'")

    assert len(upgrade(old)) == 2

    assert "hunter2" not in stored_text(old)
    with open_catalog(old) as catalog:
        event = next(one for one in logged(catalog) if one.action == "remove-secrets" and one.dataset == "mnist")
        assert event.details == {"columns": ["location", "metadata_json"]}
        assert [str(fault) for fault in catalog.log.verify().faults] != []


def test_a_seal_that_nobody_gave_cannot_be_replaced(old: str) -> None:
    upgrade(old)
    with open_catalog(old) as catalog:
        events = list(logged(catalog))
    from registry.catalog.history import Replayed

    replayed = Replayed("mnist")
    for event in (one for one in events if one.dataset == "mnist"):
        replayed.apply(event)
    with pytest.raises(ValueError, match=r"^it replaces a seal that 1\.0\.0 did not have(?m:$)"):
        replayed.apply(events[-2])


def test_no_file_of_an_sqlite_catalog_holds_them_any_more(old: str) -> None:
    path = sqlite_path(old)
    if path is None:
        pytest.skip("a server's files are its own")
    files = lambda: b"".join(one.read_bytes() for one in path.parent.glob(f"{path.name}*"))  # noqa: E731
    assert b"hunter2" in files()
    assert all(one.is_erased for one in upgrade(old))
    assert b"hunter2" not in files()


def test_a_reader_in_the_way_is_told_of(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sqlite_path(old)
    if path is None:
        pytest.skip("a server's files are its own")
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM dataset_version").fetchone()
        monkeypatch.setenv("REGISTRY_LOCK_TIMEOUT", "0.2")
        removed = upgrade(old)
    assert [one.is_erased for one in removed] == [False, False]
    assert "hunter2" not in stored_text(old)


def test_the_command_line_says_what_it_removed(
    old: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_CATALOG", old)
    assert run(["db", "upgrade"]) == 0
    told = capsys.readouterr()
    assert told.out == (
        f"{BEFORE} -> {schema.HEAD}\n"
        f"mnist:1.0.0: secrets were removed from URLs in location, metadata_json; its folder is {CLEAN}\n"
        "words/plain:1.0.0: secrets were removed from URLs in location; its folder is s3://bucket/words\n"
    )
    assert told.err == (
        "note: change these passwords and tokens: everyone who could read the catalog may know them, and its backups, "
        "pins and exports still contain them\n"
    )
    for command in (["log"], ["log", "verify"], ["db", "check"], ["versions", "mnist"]):
        assert run(command) == 0
    assert run(["log", "--format", "json"]) == 0
    told = capsys.readouterr()
    assert "hunter2" not in told.out + told.err
    assert "remove-secrets" in told.out
    assert "secrets in URLs: location, metadata_json" in told.out


@pytest.mark.parametrize("revision", ["0004", "0007"])
def test_a_downgrade_says_first_what_the_old_software_will_report(
    old: str, capsys: pytest.CaptureFixture[str], revision: str
) -> None:
    note = (
        "an upgrade removed secrets from the URLs of versions (2): `registry log verify` of the software for the "
        f"schema {revision} will report that these versions were changed; after the next upgrade it is sound again"
    )
    upgrade(old)
    assert run(["db", "downgrade", revision, "--catalog", old]) == 2
    assert capsys.readouterr().err == (
        f"error: downgrading to {revision} drops tables with their rows\n{note}\nhint: Make a copy, then add --yes.\n"
    )
    assert schema.status(old).revision == schema.HEAD

    assert run(["db", "downgrade", revision, "--catalog", old, "--yes"]) == 0
    assert capsys.readouterr().err == f"note: {note}\n"
    schema.upgrade(old)
    with open_catalog(old) as catalog:
        assert catalog.log.verify().faults == ()
    assert run(["db", "downgrade", "0008", "--catalog", old, "--yes"]) == 0  # this software knows the event
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("location", ["http://ann:PW@host/x", "s3://KEY:PW@bucket/x", "https://host/x?token=PW"])
def test_a_location_with_a_secret_is_not_stored(catalog: CatalogBackend, location: str) -> None:
    version, shards = sample("mnist:1.0.0", location=location)
    with pytest.raises(
        UsageError, match=r"^the location .*\*\*\*.* contains a password or another secret, which is never"
    ) as caught:
        catalog.publish(version, shards, promote=True, default_config=False, actor="ann")
    assert "PW" not in f"{caught.value} {caught.value.details}"


def test_the_urls_of_facts_are_stored_without_secrets(catalog: CatalogBackend, catalog_url: str) -> None:
    publish(catalog, "mnist:1.0.0", metadata=METADATA)
    assert "hunter2" not in stored_text(catalog_url)
    metadata = json.loads(execute(catalog_url, "SELECT metadata_json FROM dataset_version")[0][0])
    assert {name: metadata[name] for name in KEPT} == KEPT


def test_a_backup_of_an_old_schema_says_that_it_contains_secrets(
    old: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REGISTRY_CATALOG", old)
    file = tmp_path / "old.gz"
    assert run(["backup", str(file)]) == 0
    said = capsys.readouterr()
    assert "\nwarning: 2 rows may contain passwords or tokens in URLs, which older releases stored\n" in (
        "\n" + said.err
    )
    assert "hunter2" not in said.out + said.err
    assert run(["restore", str(file), "--catalog", str(tmp_path / "new.db")]) == 0
    said = capsys.readouterr()
    assert f"warning: {file} still contains these secrets; replace it with a new backup, and revoke them\n" in said.err
    assert "hunter2" not in said.out + said.err
    assert run(["backup", str(tmp_path / "new.gz"), "--catalog", str(tmp_path / "new.db"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["num_secret_rows"] == 0
