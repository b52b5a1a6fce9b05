"""Snapshots of catalogs for others: the same answers about the chosen datasets, and nothing about anything else."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.catalog_backups import lines_of, opener, packed
from support.catalog_samples import damage, logged, publish
from support.catalog_snapshots import AT, PRIVATE, chain, file_of, fill, public_answers, snapshot_of

from registry.catalog import CatalogBackend, open_catalog, schema
from registry.catalog.restore import restore_backup
from registry.catalog.snapshot import _DETAILS, _NAMED, _PARENTS, _WHOLE, read_log_lines, write_snapshot
from registry.catalog.tables import builder, metadata
from registry.errors import DatasetNotFoundError, LogTamperedError, UsageError
from registry.model import current_locations
from registry.model.event import ACTIONS

HEADS = {
    None: "49b0db770637c9df966efb74eecd6a419835ad2b5d445a46daa9b67b67bb4e43",
    ("feathers",): "1cef03c47f7d41f60a13a7833cbd8b49b829a718cf82dc099c0f82c058aa0c9f",
}


@pytest.fixture(scope="module")
def shared(lasting_url: str) -> Iterator[CatalogBackend]:
    """A filled catalog that tests only read."""
    with open_catalog(lasting_url) as catalog:
        fill(catalog)
        yield catalog


@pytest.fixture
def filled(catalog: CatalogBackend) -> CatalogBackend:
    fill(catalog)
    assert catalog.log.verify().faults == ()
    return catalog


@pytest.mark.parametrize(
    ("chosen", "with_actors"),
    [(None, False), (None, True), (["birds"], False), (["feathers", "secret", "hidden"], True)],
)
def test_a_snapshot_answers_as_the_catalog(shared: CatalogBackend, chosen: list[str] | None, with_actors: bool) -> None:
    names = ["feathers", "hidden"] if chosen is None or len(chosen) == 3 else ["feathers"]
    with snapshot_of(shared, chosen, with_actors=with_actors) as (snapshot, _, facts):
        expected, found = public_answers(shared, *names), public_answers(snapshot, *names)
        for question in expected:
            assert (question, found[question]) == (question, expected[question])
        assert found.keys() == expected.keys()
        assert sorted({one.name for one in snapshot.datasets()}) == names
        report = snapshot.log.verify()
        assert report.faults == ()
        assert (facts.head, facts.rows["event"]) == (report.head, report.num_events)
        events = list(logged(snapshot))
        assert [event.id for event in events] == list(range(1, report.num_events + 1))
        assert {event.actor for event in events} == ({"zoe", "yann"} if with_actors else {"anonymous"})


def test_a_snapshot_without_people_contains_none_and_no_place_of_a_machine(shared: CatalogBackend) -> None:
    content = file_of(shared)
    assert [text for text in PRIVATE if text.encode() in content] == []
    assert b"As submitted." in content
    assert b"Words that nobody may see." in content


def test_a_snapshot_with_people_contains_no_place_of_a_machine(shared: CatalogBackend) -> None:
    content = file_of(shared, with_actors=True)
    assert [text for text in PRIVATE if text.encode() in content] == ["zoe", "laptop77", "yann", "xaver"]


def test_a_snapshot_contains_nothing_of_other_datasets(shared: CatalogBackend) -> None:
    content = file_of(shared, ["feathers"])
    assert [text for text in ("secret", "hidden", "tiny", "nobody may see") if text.encode() in content] == []
    assert b"feathers" in content
    assert b"birds" in content  # its former name
    assert b"birds" not in file_of(shared, ["hidden"])


def test_locations_stay_below_the_data_directory_or_are_those_that_others_can_open(shared: CatalogBackend) -> None:
    def locations(catalog: CatalogBackend) -> dict[str, tuple[str, ...]]:
        return {
            str(version.reference): current_locations(version.location, version.location_steps)
            for summary in catalog.versions("feathers")
            if (version := catalog.published("feathers", None, summary.version)) is not None
        }

    assert locations(shared) == {
        "feathers:1.0.0": ("https://mirror/birds", "/srv/mirror"),
        "feathers:1.1.0": ("/srv/birds/newer",),
        "feathers:1.2.0": ("s3://other/b",),
        "feathers:1.3.0": ("birds/1.3.0",),
        "feathers:2.0.0": ("/srv/feathers/2",),
    }
    with snapshot_of(shared) as (snapshot, _, _):
        assert locations(snapshot) == {
            "feathers:1.0.0": ("https://mirror/birds",),
            "feathers:1.1.0": ("birds/1.1.0",),
            "feathers:1.2.0": ("s3://other/b",),
            "feathers:1.3.0": ("birds/1.3.0",),
            "feathers:2.0.0": ("feathers/2.0.0",),
        }
        assert snapshot.locations.data_dir() is None
        assert snapshot.reservations.list() == ()


def test_the_same_rows_give_the_same_bytes_whatever_the_database(shared: CatalogBackend, target: str) -> None:
    content = file_of(shared, ["feathers"])
    assert file_of(shared, ["birds"]) == content
    restore_backup(target, opener(packed(shared.backup())), shown="backup.gz")
    with open_catalog(target) as other:
        assert file_of(other, ["feathers"]) == content


def test_changes_of_other_datasets_do_not_change_a_snapshot(filled: CatalogBackend) -> None:
    content = file_of(filled, ["feathers"])
    publish(filled, "hidden/plain:9.0.0")
    filled.lifecycle.yank(AT("hidden/tiny:1.0.0"), "bad", None, actor="zoe")
    assert file_of(filled, ["feathers"]) == content


@pytest.mark.parametrize("chosen", [None, ("feathers",)])
def test_a_later_snapshot_extends_the_chain_of_an_earlier_one(
    filled: CatalogBackend, chosen: tuple[str, ...] | None
) -> None:
    earlier = chain(filled, chosen)
    publish(filled, "feathers:3.0.0", promote=False)
    publish(filled, "new:1.0.0")
    filled.rename("feathers", "plumes", actor="zoe")
    later = chain(filled, chosen)
    assert len(later) == len(earlier) + (3 if chosen is None else 2)
    assert later[: len(earlier)] == earlier


@pytest.mark.parametrize("chosen", HEADS)
def test_the_chain_of_a_catalog_never_changes(shared: CatalogBackend, chosen: tuple[str, ...] | None) -> None:
    """Readers of a site refuse a chain that does not continue the one that they know. Never edit these hashes."""
    assert chain(shared, chosen)[-1] == HEADS[chosen]


def test_the_log_comes_first_in_the_lines_and_an_anchor_is_searched_in_it(shared: CatalogBackend) -> None:
    hashes = chain(shared)
    for anchor, has_anchor in [(hashes[3], True), ("0" * 64, True), (None, True), ("1" * 64, False)]:
        lines = shared.snapshot()
        log = read_log_lines(lines, anchor)
        assert (log.head, log.num_events, log.has_anchor) == (hashes[-1], len(hashes), has_anchor)
        assert lines_of(packed([*log.pieces, *lines]))[:-1] == lines_of(packed(shared.snapshot()))[:-1]


def test_a_snapshot_is_one_file_that_can_be_read_where_nothing_can_be_written(
    shared: CatalogBackend, tmp_path: Path
) -> None:
    path = tmp_path / "read" / "snapshot.db"
    path.parent.mkdir()
    path.write_bytes(file_of(shared))
    assert schema.check(shutil.copy(path, tmp_path / "checked.db")) == []
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as file:
        assert file.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert file.execute("PRAGMA freelist_count").fetchone() == (0,)
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert [one.name for one in path.parent.iterdir()] == ["snapshot.db"]


def test_a_snapshot_shows_one_moment_while_others_publish(filled: CatalogBackend) -> None:
    expected = lines_of(packed(filled.snapshot()))[:-1]
    pieces = filled.snapshot()
    begun = [next(pieces), next(pieces)]
    publish(filled, "feathers:9.0.0", promote=False)
    assert lines_of(packed([*begun, *pieces]))[:-1] == expected


def test_a_snapshot_of_no_dataset_is_an_empty_catalog(shared: CatalogBackend) -> None:
    with snapshot_of(shared, []) as (snapshot, _, _):
        assert snapshot.datasets() == ()
        assert snapshot.log.verify().faults == ()
        assert {event.dataset for event in logged(snapshot)} == {""}


def test_a_dataset_that_does_not_exist_is_refused(shared: CatalogBackend) -> None:
    with pytest.raises(DatasetNotFoundError, match="no dataset"):
        list(shared.snapshot(datasets=["feathers", "fethers"]))


@pytest.mark.parametrize("text", ["hidden/tiny", "feathers:1.0.0", "feathers@paper", "/"])
def test_only_whole_datasets_can_be_chosen(shared: CatalogBackend, text: str) -> None:
    with pytest.raises(UsageError):
        list(shared.snapshot(datasets=[text]))


def test_a_catalog_that_was_changed_by_others_is_not_published(
    filled: CatalogBackend, catalog_url: str, tmp_path: Path
) -> None:
    damage(catalog_url, "UPDATE dataset_version SET metadata_json = '{}' WHERE location = 'birds/1.3.0'")
    with pytest.raises(LogTamperedError, match=r"^catalog: .*feathers:1\.3\.0"):
        write_snapshot(tmp_path / "snapshot.db", filled.snapshot(), source="catalog", verify=True)
    assert not (tmp_path / "snapshot.db").exists()
    write_snapshot(tmp_path / "snapshot.db", filled.snapshot(datasets=["hidden"]), source="catalog", verify=True)


def test_a_new_chain_does_not_hide_that_the_log_of_the_catalog_was_changed(
    filled: CatalogBackend, catalog_url: str
) -> None:
    """Even if the event is of another dataset."""
    damage(catalog_url, "UPDATE event SET version = '1.0.1' WHERE dataset = 'secret/tiny' AND action = 'publish'")
    with pytest.raises(LogTamperedError, match=r"^event 7 of the catalog was changed, or does not follow event 6\n"):
        list(filled.snapshot(datasets=["feathers"]))


def test_every_table_and_every_event_has_a_rule() -> None:
    """A table that a migration adds, or a new event, is published only after somebody has thought of it."""
    of_log = {"event", "corrected_time", "version_location"}
    ruled = {table.name for table in (builder, *_PARENTS, *_NAMED, *_WHOLE)} | of_log
    empty = {"reservation", "search_document", "access_token", "refusal", "kept_answer", "webhook"}
    assert ruled | empty == metadata.tables.keys()
    private = {"data-dir", "imported", "producer", "propose", "reject"}
    written = {"mirror-add", "mirror-remove", "relocate", "correct-clock", "fingerprint"}
    assert {action.removeprefix("undo-") for action in ACTIONS} - private - written == _DETAILS.keys()
