"""Attachments in the catalog: their rows, their events, and what the log says about them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.catalog_backups import forge, lines_of, opener, packed
from support.catalog_samples import damage, execute, logged, publish, sample

from registry.catalog import CatalogBackend, PublicationDetails, open_catalog, schema
from registry.catalog.backup import open_backup
from registry.catalog.restore import restore_backup
from registry.errors import ConflictError, RegistryError, UsageError, VersionNotFoundError
from registry.model import Attachment, DatasetVersion

STATISTICS = Attachment.of("statistics", "statistics.json", b"{}")
COLUMNS = Attachment.of("columns", "label.arrow", b"columns")
OTHER = Attachment.of("statistics", "statistics.json", b"other")


def publish_with(catalog: CatalogBackend, *attachments: Attachment) -> DatasetVersion:
    version, shards = sample("mnist:1.0.0")
    assert catalog.publish(
        version, shards, promote=True, actor="ann", details=PublicationDetails(attachments=attachments)
    )
    return version


def test_attachments_are_read_back_by_kind_and_name(catalog: CatalogBackend) -> None:
    version = publish_with(catalog, STATISTICS, COLUMNS)
    assert catalog.attachments(version) == (COLUMNS, STATISTICS)
    assert catalog.log.verify().faults == ()


def test_the_event_of_a_publication_lists_attachments_only_if_there_are_some(catalog: CatalogBackend) -> None:
    publish_with(catalog, STATISTICS, COLUMNS)
    publish(catalog, "cifar:1.0.0")
    first, second = (event for event in logged(catalog) if event.action == "publish")
    assert [told["name"] for told in first.details["attachments"]] == ["label.arrow", "statistics.json"]
    assert first.details["attachments"][0]["sha256"] == COLUMNS.sha256
    assert "attachments" not in second.details


def test_a_later_attachment_has_an_event_of_its_own(catalog: CatalogBackend) -> None:
    version = publish_with(catalog, STATISTICS)
    assert catalog.attach(version, COLUMNS, actor="bob")
    assert not catalog.attach(version, COLUMNS, actor="carl")
    assert catalog.attachments(version) == (COLUMNS, STATISTICS)
    [event] = (event for event in logged(catalog) if event.action == "attach")
    assert (event.actor, event.dataset, event.version) == ("bob", "mnist", "1.0.0")
    assert event.details == {
        "kind": "columns",
        "name": "label.arrow",
        "num_bytes": 7,
        "sha256": COLUMNS.sha256,
    }
    assert catalog.log.verify().faults == ()


def test_an_attachment_never_changes(catalog: CatalogBackend) -> None:
    version = publish_with(catalog, STATISTICS)
    with pytest.raises(ConflictError) as caught:
        catalog.attach(version, OTHER, actor="bob")
    assert caught.value.message == (
        "mnist:1.0.0 already has other statistics with the name statistics.json: "
        f"expected sha256 {STATISTICS.sha256[:12]}, found {OTHER.sha256[:12]}"
    )
    assert caught.value.hint == "Attachments never change. Attach the new bytes under another name."
    assert catalog.attachments(version) == (STATISTICS,)


def test_two_attachments_of_a_publication_have_different_names(catalog: CatalogBackend) -> None:
    with pytest.raises(UsageError, match="two attachments of a version have the same kind and name"):
        publish_with(catalog, STATISTICS, OTHER)
    assert catalog.datasets() == ()


def test_a_version_that_is_not_published_has_no_attachments(catalog: CatalogBackend) -> None:
    version, _ = sample("mnist:1.0.0")
    assert catalog.attachments(version) == ()
    with pytest.raises(VersionNotFoundError, match=r"mnist:1\.0\.0 is not published"):
        catalog.attach(version, STATISTICS, actor="ann")


def test_of_many_that_attach_the_same_name_one_does(catalog: CatalogBackend, catalog_url: str) -> None:
    version = publish_with(catalog)
    choices = [Attachment.of("statistics", "statistics.json", b"%d" % (number % 2)) for number in range(6)]

    def attach(choice: Attachment) -> bool | RegistryError:
        with open_catalog(catalog_url) as own:
            try:
                return own.attach(version, choice, actor="ann")
            except ConflictError as error:
                return error

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(attach, choices))
    [attached] = catalog.attachments(version)
    assert attached in choices
    for choice, result in zip(choices, results, strict=True):
        assert isinstance(result, ConflictError) is (choice != attached)
    assert results.count(True) == 1
    assert catalog.log.verify().faults == ()


def test_attachments_that_came_later_are_not_part_of_a_look_up(catalog: CatalogBackend) -> None:
    version = publish_with(catalog, STATISTICS)
    moment = catalog.now()
    catalog.attach(version, COLUMNS, actor="bob")
    past = catalog.find_at(version.reference, moment)
    assert past.version.version == version.version
    assert catalog.find("mnist") == catalog.published("mnist", None, version.version)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE attachment SET num_bytes = 3",
        "DELETE FROM attachment",
        "INSERT INTO attachment SELECT version_id, kind, 'copy', num_bytes, sha256, added_at, added_by FROM attachment",
        "UPDATE attachment SET sha256 = '" + "0" * 64 + "'",
    ],
)
@pytest.mark.parametrize("is_late", [False, True])
def test_the_log_notices_a_changed_row(
    catalog: CatalogBackend, catalog_url: str, statement: str, is_late: bool
) -> None:
    version = publish_with(catalog, *(() if is_late else (STATISTICS,)))
    if is_late:
        catalog.attach(version, STATISTICS, actor="bob")
    damage(catalog_url, statement)
    [fault] = catalog.log.verify().faults
    assert str(fault) == "mnist:1.0.0 has other attachments than its events say"


def test_the_log_notices_another_attacher(catalog: CatalogBackend, catalog_url: str) -> None:
    publish_with(catalog, STATISTICS)
    damage(catalog_url, "UPDATE attachment SET added_by = 'eve'")
    [fault] = catalog.log.verify().faults
    assert str(fault) == "mnist:1.0.0 got the attachment statistics.json by eve; its events say somebody else"


def test_rows_of_attachments_cannot_be_changed(catalog: CatalogBackend, catalog_url: str) -> None:
    publish_with(catalog, STATISTICS)
    for statement in ("UPDATE attachment SET num_bytes = 3", "DELETE FROM attachment"):
        with pytest.raises(Exception, match="published rows never change"):
            execute(catalog_url, statement)


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "a b", "ü", "x" * 101, "a\n"])
def test_names_of_attachments_are_names_of_files(name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid kind or name of an attachment"):
        Attachment.of("statistics", name, b"")
    with pytest.raises(UsageError, match="is not a valid kind or name of an attachment"):
        Attachment.of(name, "statistics.json", b"")


def test_the_log_restores_attachments_after_a_downgrade(catalog: CatalogBackend, catalog_url: str) -> None:
    version = publish_with(catalog, STATISTICS)
    catalog.attach(version, COLUMNS, actor="bob")
    rows = execute(catalog_url, "SELECT * FROM attachment ORDER BY kind")
    catalog.close()
    schema.downgrade(catalog_url, "0010")
    schema.upgrade(catalog_url)
    assert execute(catalog_url, "SELECT * FROM attachment ORDER BY kind") == rows
    with open_catalog(catalog_url) as again:
        assert again.attachments(version) == (COLUMNS, STATISTICS)
        assert again.log.verify().faults == ()
    assert schema.check(catalog_url) == []


def damaged_details() -> Iterator[Any]:
    """Details that an event of an attachment never has."""
    right = {"kind": "columns", "name": "label.arrow", "num_bytes": 7, "sha256": COLUMNS.sha256}
    yield from ([], 7, None, {}, {"attachments": 7}, {"attachments": [7]}, {"attachments": {"a": 1}})
    wrong = {"kind": [7, ""], "name": ["a/b", None], "num_bytes": [-1, 2**63, 1e300, "7", True], "sha256": ["0", 7]}
    for column, values in wrong.items():
        for value in values:
            yield {**right, column: value}
            yield {"attachments": [{**right, column: value}]}
    for moment in (7, "yesterday", "0001-01-01T00:00:00+14:00"):
        yield {**right, "@rows_at": moment}
    yield {"attachments": [right, right]}


def test_an_upgrade_skips_attachments_in_events_that_nobody_can_read(
    catalog: CatalogBackend, catalog_url: str, target: str
) -> None:
    version = publish_with(catalog, STATISTICS)
    catalog.attach(version, COLUMNS, actor="bob")
    catalog.close()
    schema.downgrade(catalog_url, "0010")
    with open_backup(catalog_url) as pieces:
        lines = lines_of(packed(pieces))
    [start] = (number for number, line in enumerate(lines) if isinstance(line, dict) and line.get("table") == "event")
    columns = lines[start]["columns"]
    action, details = columns.index("action"), columns.index("details_json")
    attach = next(number for number in range(start + 1, len(lines)) if lines[number][action] == "attach")
    row = lines[attach]
    extra = []
    for value in damaged_details():
        for verb in ("attach", "publish"):
            event = list(row)
            event[action], event[details] = verb, json.dumps(value)
            extra.append(event)
    ident, hashes = columns.index("id"), [columns.index(name) for name in columns if "hash" in name]
    for number, event in enumerate(extra, start=1):
        event[ident] = row[ident] + number
        for place in hashes:
            event[place] = f"{number:064x}"
    forged = forge([*lines[: attach + 1], *extra, *lines[attach + 1 :]], end={"head": f"{len(extra):064x}"})
    restore_backup(target, opener(forged), shown="forged", verify=False)
    with open_catalog(target) as again:
        assert again.attachments(version) == (COLUMNS, STATISTICS)
        assert again.log.verify().faults
