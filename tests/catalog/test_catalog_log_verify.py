"""What was changed past the registry is found: events, rows, and both made to fit each other."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa
from support.catalog_backups import fill
from support.catalog_changes import cells, faults_after, without_guards
from support.catalog_samples import append, damage, execute, logged, publish, sample
from support.levels import either

from registry.catalog import CatalogBackend, PublicationDetails, events, log_verify, schema, stored_content
from registry.catalog.session import write
from registry.catalog.sql_catalog import SqlCatalog
from registry.catalog.tables import metadata
from registry.errors import CatalogError, LogTamperedError, UsageError
from registry.model import FeatureFingerprint, Reference, SplitFingerprint, Version, VersionState, describe_moment


def values(state: str, message: str = "", superseded_by: str | None = None) -> dict[str, str | None]:
    return {"state": state, "message": message, "superseded_by": superseded_by}


@pytest.fixture
def lived(catalog: CatalogBackend, catalog_url: str) -> CatalogBackend:
    """A catalog in which a little of everything has happened; events 1 to 10."""
    publish(catalog, "mnist/plain:1.0.0", default_config=True)
    publish(catalog, "mnist/plain:1.1.0")
    publish(catalog, "mnist/noisy:1.0.0", promote=False)
    publish(catalog, "digits:1.0.0", lengths={"train": [5] * 7, "test": []})
    for name, reference in (("paper", "mnist:1.0.0"), ("best", "mnist"), ("paper", "mnist:1.1.0")):
        catalog.aliases.set(name, Reference.parse(reference), expect=None, message="", actor="bob")
    catalog.aliases.remove(Reference.parse("mnist@best"), expect=None, message="", actor="bob")
    catalog.experiments.add("new_shuffle", "Shuffle by the hash.", default=False, actor="ann", dry_run=False)
    # As `registry yank` does it.
    execute(
        catalog_url,
        "UPDATE dataset_version SET state = 'yanked', state_message = 'bad', superseded_by = '1.1.0' WHERE id = 1",
    )
    append(catalog, "yank", "mnist/plain", "1.0.0", before=values("supported"), after=values("yanked", "bad", "1.1.0"))
    return catalog


def faults(catalog: CatalogBackend, **options: Any) -> list[str]:
    report = catalog.log.verify(**options)
    assert report.num_faults >= len(report.faults)
    assert report.is_sound is (not report.faults)
    return [str(one) for one in report.faults]


def test_a_log_that_only_the_registry_wrote_is_sound(lived: CatalogBackend) -> None:
    report = lived.log.verify()
    report.require_sound()
    assert (report.faults, report.num_faults) == ((), 0)
    assert (report.num_events, report.num_versions, report.num_shards) == (10, 4, 19)
    assert report.head == list(logged(lived))[-1].hash


def test_an_empty_catalog_holds(catalog: CatalogBackend) -> None:
    report = catalog.log.verify()
    assert (report.faults, report.num_events, report.head) == ((), 0, "0" * 64)
    assert faults(catalog, anchor="0" * 64) == []


def test_the_head_of_an_empty_log_is_not_an_anchor_of_another_log(lived: CatalogBackend) -> None:
    with pytest.raises(UsageError, match=r"^an anchor of 64 zeros is the beginning of every log, so it proves"):
        lived.log.verify(anchor="0" * 64)


def test_every_action_of_the_lifecycle_is_replayed(lived: CatalogBackend, catalog_url: str) -> None:
    steps: list[tuple[str, str, str, str, dict[str, Any]]] = [
        ("state = 'supported', state_message = '', superseded_by = NULL WHERE id = 1", "undo", "mnist/plain", "1.0.0",
         {"before": values("yanked", "bad", "1.1.0"), "after": values("supported")}),
        ("state = 'deprecated', state_message = 'old' WHERE id = 1", "deprecate", "mnist/plain", "1.0.0",
         {"before": values("supported"), "after": values("deprecated", "old")}),
        ("state = 'dropped', state_message = 'law' WHERE id = 3", "drop", "mnist/noisy", "1.0.0",
         {"before": values("supported"), "after": values("dropped", "law")}),
        ("state = 'supported', state_message = '' WHERE id = 3", "undo-drop", "mnist/noisy", "1.0.0",
         {"before": values("dropped", "law"), "after": values("supported")}),
    ]  # fmt: skip
    for changed, action, dataset, version, details in steps:
        execute(catalog_url, f"UPDATE dataset_version SET {changed}")  # noqa: S608 (ours)
        append(lived, action, dataset, version, **details)
    execute(catalog_url, "UPDATE builder_config SET canonical_version_id = 3 WHERE name = 'noisy'")
    append(lived, "promote", "mnist/noisy", "1.0.0", before=None)
    execute(catalog_url, "UPDATE builder_config SET is_default = false WHERE name = 'plain'")
    execute(catalog_url, "UPDATE builder_config SET is_default = true WHERE name = 'noisy'")
    append(lived, "default-config", "mnist", "", before="plain", after="noisy")
    append(lived, "an-action-of-tomorrow", "mnist/plain", "1.0.0", anything=True)
    lived.experiments.set_default("new_shuffle", default=True, actor="ann", dry_run=False)
    lived.experiments.retire("new_shuffle", actor="ann", dry_run=False)
    assert faults(lived) == []


def test_versions_published_in_a_state_hold(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0", state=VersionState.YANKED, state_message="bad")
    assert faults(catalog) == []


EVENTS: list[tuple[str, list[str]]] = [
    ("UPDATE event SET actor = 'eve' WHERE id = 2",
     ["event 2 (publish mnist/plain:1.1.0) was changed: its hash does not match its content",
      "mnist/plain:1.1.0 was published by ann; its events say eve"]),
    ("UPDATE event SET hash = '" + "0" * 63 + "1' WHERE id = 5",
     ["event 5 (alias-set mnist/plain:1.0.0) was changed: its hash does not match its content",
      "event 6 (alias-set mnist/plain:1.1.0) does not continue the chain: the event before it has another hash"]),
    ("DELETE FROM event WHERE id = 9",
     ["event 9 is missing", "the experiment new_shuffle is not what its events say"]),
    ("DELETE FROM event WHERE id IN (4, 5)",
     ["events 4..5 are missing",
      "event 6 (alias-set mnist/plain:1.1.0) differs from the history of aliases",
      "digits has the one without a name as its default config; its events say none",
      "digits exists, but no event published a version of it",
      "digits has the canonical version 1.0.0; its events say none",
      "digits:1.0.0 is published, but no event says so"]),
    ("DELETE FROM event WHERE id = 10",
     ["mnist/plain:1.0.0 is yanked: bad (superseded by 1.1.0); its events say supported"]),
    ("DELETE FROM event WHERE id = 1",
     ["event 1 is missing",
      "event 5 (alias-set mnist/plain:1.0.0) cannot have happened: no event published 1.0.0",
      "event 6 (alias-set mnist/plain:1.1.0) differs from the history of aliases",
      "event 10 (yank mnist/plain:1.0.0) cannot have happened: no event published 1.0.0"]),
    ("UPDATE event SET details_json = 'x' WHERE id = 3", ["event 3 cannot be read"]),
    ("UPDATE event SET details_json = '[]' WHERE id = 3", ["event 3 cannot be read"]),
    ("UPDATE event SET id = -id WHERE id = 9",
     ["event -9 (experiment-add) was changed: its hash does not match its content",
      "event -9 (experiment-add) comes before the first event"]),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "found"), EVENTS)
def test_changed_events_are_found(lived: CatalogBackend, catalog_url: str, statement: str, found: list[str]) -> None:
    damage(catalog_url, statement)
    assert faults(lived)[: len(found)] == found


def test_reordered_events_are_found(lived: CatalogBackend, catalog_url: str) -> None:
    for statement in ("id = 99 WHERE id = 2", "id = 2 WHERE id = 3", "id = 3 WHERE id = 99"):
        damage(catalog_url, f"UPDATE event SET {statement}")  # noqa: S608 (ours)
    assert [one for one in faults(lived) if "was changed" in one] == [
        "event 2 (publish mnist/noisy:1.0.0) was changed: its hash does not match its content",
        "event 3 (publish mnist/plain:1.1.0) was changed: its hash does not match its content",
    ]


def test_an_event_that_never_happened_is_found_though_its_hash_is_right(lived: CatalogBackend) -> None:
    append(lived, "yank", "digits", "1.0.0", before=values("supported"), after=values("yanked", "bad"))
    append(lived, "publish", "flags", "1.0.0", content_digest="0" * 64, default_config=False, promote=False)
    append(lived, "publish", "digits", "1.0.0", content_digest="0" * 64, default_config=False, promote=False)
    append(lived, "alias-set", "digits", "1.0.0", alias="paper", before=None, after="1.0.0", message="")
    append(lived, "promote", "nowhere", "1.0.0")
    append(lived, "publish", "digits", "one", content_digest="0" * 64, default_config=False, promote=False)
    append(lived, "experiment-add", "", "", name="other", description="Other.", default=False)
    assert faults(lived) == [
        "event 13 (publish digits:1.0.0) cannot have happened: an event published 1.0.0 before",
        "event 14 (alias-set digits:1.0.0) differs from the history of aliases",
        "event 16 (publish digits:one) cannot have happened: invalid version 'one'",
        "digits@paper does not exist; its events say it points to 1.0.0",
        "digits:1.0.0 is supported; its events say yanked: bad",
        "flags has none as its default config; its events say the one without a name",
        "flags:1.0.0 was published by an event but does not exist",
        "event 15 (promote nowhere:1.0.0) cannot have happened: no event published a version of nowhere",
        "the experiment other was added by an event but does not exist",
    ]


SEALED = "digits:1.0.0 differs from what was published in its place, files' names, metadata, time or experiments"
ROWS: list[tuple[str, list[str]]] = [
    ("UPDATE dataset_version SET state = 'supported', superseded_by = NULL WHERE id = 1",
     ["mnist/plain:1.0.0 is supported: bad; its events say yanked: bad (superseded by 1.1.0)"]),
    ("UPDATE dataset_version SET superseded_by = '1.2.0' WHERE id = 1",
     ["mnist/plain:1.0.0 is yanked: bad (superseded by 1.2.0); its events say yanked: bad (superseded by 1.1.0)"]),
    ("UPDATE builder_config SET canonical_version_id = 1 WHERE name = 'plain'",
     ["mnist/plain has the canonical version 1.0.0; its events say 1.1.0",
      "the search document of mnist/plain is not made from its rows: registry db reindex"]),
    ("UPDATE builder_config SET is_default = false WHERE name = 'plain'",
     ["mnist has none as its default config; its events say plain"]),
    ("UPDATE alias SET version_id = 1", ["mnist/plain@paper points to 1.0.0; its events say 1.1.0"]),
    ("UPDATE alias SET set_by = 'eve'", ["mnist/plain@paper was set by eve; its events say somebody else"]),
    ("UPDATE alias SET name = 'other'",
     ["mnist/plain@other points to 1.1.0; its events say none",
      "mnist/plain@paper does not exist; its events say it points to 1.1.0"]),
    ("DELETE FROM alias", ["mnist/plain@paper does not exist; its events say it points to 1.1.0"]),
    ("UPDATE alias_event SET actor = 'eve' WHERE id = 2",
     ["event 6 (alias-set mnist/plain:1.1.0) differs from the history of aliases"]),
    ("DELETE FROM alias_event WHERE id = 4",
     ["event 8 (alias-remove mnist/plain) differs from the history of aliases"]),
    ("INSERT INTO alias_event SELECT 99, config_id, name, from_version_id, to_version_id, at, 'eve', '' FROM "
     "alias_event WHERE id = 1", ["mnist/plain@paper was moved by eve without an event"]),
    ("UPDATE shard SET sha256 = '" + "0" * 64 + "' WHERE split_id = 3 AND shard_index = 1",
     ["mnist/plain:1.1.0 has other content than was published: schema, labels, slicing rule or shards"]),
    ("UPDATE shard SET num_bytes = num_bytes + 1 WHERE split_id = 7 AND shard_index = 6",
     ["digits:1.0.0 has other content than was published: schema, labels, slicing rule or shards"]),
    ("UPDATE shard SET first_example = 4 WHERE split_id = 7 AND shard_index = 1",
     ["digits:1.0.0 train has rows of splits and shards that contradict each other"]),
    ("DELETE FROM shard WHERE split_id = 7 AND shard_index = 6",
     ["digits:1.0.0 train has rows of splits and shards that contradict each other",
      "digits:1.0.0 has other content than was published: schema, labels, slicing rule or shards"]),
    ("UPDATE split SET num_examples = 36 WHERE id = 7",
     ["digits:1.0.0 train has rows of splits and shards that contradict each other"]),
    ("UPDATE split SET name = 'training' WHERE id = 7",
     ["digits:1.0.0 has other content than was published: schema, labels, slicing rule or shards"]),
    ("UPDATE split SET position = 2 WHERE id = 7",
     ["digits:1.0.0 train has rows of splits and shards that contradict each other"]),
    ("UPDATE dataset_version SET slicing = 'tfds-4' WHERE id = 4",
     ["digits:1.0.0 has other content than was published: schema, labels, slicing rule or shards"]),
    ("UPDATE dataset_version SET features_json = '{}' WHERE id = 4",
     ["digits:1.0.0 has other content than was published: schema, labels, slicing rule or shards",
      "the search document of digits is not made from its rows: registry db reindex"]),
    ("UPDATE dataset_version SET content_digest = '" + "0" * 64 + "' WHERE id = 4",
     ["digits:1.0.0 has another content digest than in its event"]),
    ("UPDATE dataset_version SET published_by = 'eve' WHERE id = 4",
     ["digits:1.0.0 was published by eve; its events say ann"]),
    ("UPDATE dataset_version SET patch = 7 WHERE id = 4",
     ["digits has the canonical version 1.0.7; its events say 1.0.0",
      "digits:1.0.7 is published, but no event says so",
      "digits:1.0.0 was published by an event but does not exist",
      "digits:1.0.0 is in the ledger of used numbers but does not exist"]),
    ("UPDATE version_ledger SET content_digest = '" + "0" * 64 + "' WHERE builder_name = 'digits'",
     ["digits:1.0.0 has other content or another publisher in the ledger than in its event"]),
    ("DELETE FROM version_ledger WHERE builder_name = 'digits'",
     ["digits:1.0.0 is published, but its number is not in the ledger"]),
    ("UPDATE version_ledger SET used_by = 'eve' WHERE builder_name = 'digits'",
     ["digits:1.0.0 has other content or another publisher in the ledger than in its event"]),
    ("INSERT INTO version_ledger SELECT 'flags', '', 1, 2, 3, content_digest, used_at, used_by FROM version_ledger "
     "WHERE builder_name = 'digits'", ["flags:1.2.3 is in the ledger of used numbers but does not exist"]),
    ("UPDATE experiment SET default_enabled = true", ["the experiment new_shuffle is not what its events say"]),
    ("UPDATE experiment SET retired_at = created_at", ["the experiment new_shuffle is not what its events say"]),
    ("UPDATE experiment SET name = 'other'",
     ["the experiment other is not what its events say",
      "the experiment new_shuffle was added by an event but does not exist"]),
    ("UPDATE dataset_version SET location = '/etc' WHERE id = 4", [SEALED]),
    ("UPDATE dataset_version SET metadata_json = replace(metadata_json, 'About', 'Above') WHERE id = 4",
     [SEALED, "the search document of digits is not made from its rows: registry db reindex"]),
    ("UPDATE dataset_version SET published_at = used_at FROM version_ledger WHERE id = 4 AND config_name = 'noisy'",
     [SEALED]),
    ("UPDATE split SET filename_template = '{DATASET}-{SHARD_X_OF_Y}' WHERE id = 7", [SEALED]),
    ("INSERT INTO version_experiment SELECT 4, id, false FROM experiment", [SEALED]),
    ("INSERT INTO fingerprint VALUES (7, '', 'registry.split/1', 0, 35, '" + "0" * 64 + "')",
     ["digits:1.0.0 has fingerprints that cannot be read: the catalog is damaged: "
      "the fingerprints of split 'train' contradict each other"]),
    ("UPDATE dataset_version SET labels_json = 'x' WHERE id = 4",
     ["digits cannot be read: the catalog is damaged: a stored value cannot be read (JSONDecodeError: "
      "Expecting value: line 1 column 1 (char 0))"]),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "found"), ROWS)
def test_changed_rows_are_found(lived: CatalogBackend, catalog_url: str, statement: str, found: list[str]) -> None:
    damage(catalog_url, statement)
    assert faults(lived) == found


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM fingerprint",
        "DELETE FROM fingerprint WHERE feature = '' OR feature = 'label'",
        "UPDATE fingerprint SET digest = replace(digest, '0', '1') WHERE algorithm = 'registry.block/1'",
    ],
)
def test_changed_fingerprints_are_found(catalog: CatalogBackend, catalog_url: str, statement: str) -> None:
    leaves = FeatureFingerprint.of_leaves(b"0" * 32, num_examples=7)
    version, shards = sample("digits:1.0.0", {"train": [7]})
    found = {"train": SplitFingerprint(num_examples=7, features={"label": leaves})}
    catalog.publish(version, shards, promote=True, actor="ann", details=PublicationDetails(fingerprints=found))
    older, others = sample("digits:0.9.0", {"train": [7]})
    catalog.publish(older, others, promote=False, actor="ann")
    assert catalog.add_fingerprints(older, found, actor="bob")
    assert faults(catalog) == []

    damage(catalog_url, statement)

    assert faults(catalog) == [
        f"digits:{number} has other fingerprints than were computed when it was published"
        for number in ("1.0.0", "0.9.0")
    ]


def test_overrides_that_are_gone_are_found(catalog: CatalogBackend, catalog_url: str) -> None:
    publish(catalog, "digits:1.0.0", experiments={"flag": False})
    assert faults(catalog) == []
    damage(catalog_url, "DELETE FROM version_experiment")
    assert faults(catalog) == [SEALED]


def test_small_batches_find_the_same(lived: CatalogBackend, catalog_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_BATCH", 2)
    monkeypatch.setattr(stored_content, "_SHARDS", 3)
    monkeypatch.setattr(log_verify, "_VERSIONS", 1)
    advanced: list[int] = []
    assert faults(lived, advance=advanced.append) == []
    assert sum(advanced) == lived.log.num_rows() == 29
    damage(catalog_url, "UPDATE shard SET num_bytes = 1 WHERE split_id = 7 AND shard_index = 4")
    damage(catalog_url, "UPDATE event SET actor = 'eve' WHERE id = 9")
    assert faults(lived) == [
        "event 9 (experiment-add) was changed: its hash does not match its content",
        "digits:1.0.0 has other content than was published: schema, labels, slicing rule or shards",
    ]


def test_an_override_that_the_build_did_not_have_is_found(lived: CatalogBackend, catalog_url: str) -> None:
    publish(lived, "flags:1.0.0", experiments={"new_shuffle": True})
    assert faults(lived) == []
    damage(catalog_url, "UPDATE version_experiment SET enabled = false")
    assert faults(lived) == [
        "flags:1.0.0 overrides the experiment new_shuffle with another value than in its event",
        SEALED.replace("digits", "flags"),
    ]


def test_a_log_written_anew_as_a_whole_lacks_the_head_noted_down_before(
    lived: CatalogBackend, catalog_url: str
) -> None:
    head = lived.log.verify().head
    append(lived, "note", "digits", "1.0.0", train="0" * 64)
    assert faults(lived, anchor=head) == []
    damage(catalog_url, "DELETE FROM event WHERE id IN (10, 11)")
    damage(catalog_url, "UPDATE dataset_version SET state = 'supported', state_message = '', superseded_by = NULL")
    assert faults(lived) == []  # nothing is left that could tell
    assert faults(lived, anchor=head) == [f"the log has no event with the hash {head}: it was truncated or rewritten"]


def test_events_in_the_wrong_order_of_time_are_found(
    lived: CatalogBackend, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_out_of_order(lived, "note", "digits", datetime.now(UTC) - timedelta(days=1))
    (found,) = faults(lived)
    assert found.startswith("event 11 (note digits:1.0.0) is dated ")
    assert found.endswith(" UTC, before the previous event")


def test_publications_of_older_registries_may_be_dated_a_little_early(
    catalog: CatalogBackend, catalog_url: str
) -> None:
    """They looked at the clock before they waited for their turn: the row and the event say the same moment."""
    publish(catalog, "mnist:1.0.0")
    publish(catalog, "digits:1.0.0")
    damage(catalog_url, "DELETE FROM event")
    early = datetime.now(UTC) - timedelta(hours=1)
    for name, at in (("mnist", early + timedelta(minutes=1)), ("digits", early)):
        digest = catalog.find(name).content_digest
        stored = f"{at:%Y-%m-%d %H:%M:%S.%f}" + ("" if catalog_url.startswith("sqlite") else "+00")
        of_version = f"WHERE location = '{name}/1.0.0'"
        damage(catalog_url, f"UPDATE dataset_version SET published_at = '{stored}' {of_version}")  # noqa: S608 (ours)
        for table, column in (
            ("builder", "created_at"),
            ("builder_config", "created_at"),
            ("version_ledger", "used_at"),
        ):
            damage(catalog_url, f"UPDATE {table} SET {column} = '{early:%Y-%m-%d} 00:00:00.000000'")  # noqa: S608 (ours)
        details = {"content_digest": digest, "default_config": False, "num_examples": 9, "promote": True}
        append_out_of_order(catalog, "publish", name, at, **details)
    assert faults(catalog) == []
    damage(catalog_url, "UPDATE dataset_version SET published_at = '2020-01-01 00:00:00.000000'")
    assert [one[:40] for one in faults(catalog)] == ["event 2 (publish digits:1.0.0) is dated "]


def append_out_of_order(catalog: CatalogBackend, action: str, dataset: str, at: datetime, **details: Any) -> None:
    """Append an event by a clock that is not monotone, as older registries did."""
    from registry.catalog.rows import canonical_json
    from registry.catalog.tables import event

    def append_(connection: sa.Connection) -> None:
        last = connection.execute(sa.select(event).order_by(event.c.id.desc()).limit(1)).first()
        user = events.session_user(connection)  # PostgreSQL refuses an event without it
        row = {
            "id": 1 if last is None else last.id + 1,
            "at": at,
            "actor": "ann",
            "action": action,
            "dataset": dataset,
            "version": "1.0.0",
            "details_json": canonical_json(details | ({} if user is None else {events.SESSION_USER: user})),
            "previous_hash": events.FIRST_PREVIOUS if last is None else last.hash,
        }
        connection.execute(sa.insert(event).values(**row, hash=events.event_hash(row)))

    write(catalog._engine, append_)


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_values_of_another_type_are_reported_as_faults(lived: CatalogBackend, catalog_url: str) -> None:
    damage(catalog_url, "UPDATE event SET at = 'yesterday' WHERE id = 3")
    damage(catalog_url, "UPDATE event SET actor = x'ff00' WHERE id = 5")
    assert faults(lived) == ["event 3 cannot be read", "event 5 cannot be read"]


def test_many_faults_are_counted_and_the_first_of_them_kept(
    catalog: CatalogBackend, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert events._MAX_FAULTS == 100
    monkeypatch.setattr(events, "_MAX_FAULTS", 5)
    for number in range(8):
        publish(catalog, f"mnist:{number}.0.0", lengths={"train": [1]})
    damage(catalog_url, "UPDATE dataset_version SET published_by = 'eve'")
    report = catalog.log.verify()
    assert (len(report.faults), report.num_faults) == (5, 8)
    with pytest.raises(LogTamperedError) as caught:
        report.require_sound()
    assert str(caught.value) == (
        "the catalog does not match its event log: mnist:0.0.0 was published by eve; its events say ann, and 7 more"
    )
    assert caught.value.exit_code == 5
    assert len(caught.value.details["faults"]) == 5


def test_verifying_sees_one_moment_while_others_write(catalog: CatalogBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(catalog, "mnist:1.0.0")
    seen: Callable[..., Any] = log_verify.recompute_contents

    def publish_meanwhile(*arguments: Any) -> Any:
        if len(catalog.versions("mnist")) == 1:
            publish(catalog, "mnist:2.0.0")
        return seen(*arguments)

    monkeypatch.setattr("registry.catalog.log_verify.recompute_contents", publish_meanwhile)
    report = catalog.log.verify()
    assert (report.faults, report.num_events, report.num_versions) == ((), 1, 1)
    assert len(list(logged(catalog))) == 2


DOCUMENT = Path(__file__).parents[2] / "docs/publishing.md"


def not_proved() -> set[str]:
    """The tables and columns of which the document says that the log does not prove them."""
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text[text.index("| not proved |") :].partition("\n\n")[0]
    return {name for line in table.splitlines()[2:] for name in re.findall("`([a-z_.]+)`", line.split("|")[1])}


@pytest.mark.parametrize(("rows", "most", "step"), either((1, 1, 13), (1, 9, 1)))
def test_every_change_of_every_column_is_found_or_documented(
    catalog: CatalogBackend, catalog_url: str, rows: int, most: int, step: int
) -> None:
    fill(catalog)
    version, shards = sample("tagged:1.0.0", {"train": [2, 3]})
    tagged = {name: tuple(replace(one, entity_tag="t") for one in found) for name, found in shards.items()}
    catalog.publish(version, tagged, promote=True, actor="ann")
    cast("SqlCatalog", catalog).answer_once("key", "ann", "now", "0" * 64, lambda: b"{}")
    catalog.log.verify().require_sound()
    checked, missed = set(), []

    with without_guards(catalog_url) as connection:
        for where, what, statement in list(cells(connection, rows=rows, most=most))[::step]:
            try:
                found = faults_after(connection, statement)
            except sa.exc.IntegrityError:
                continue  # the database refuses it
            checked.add(where)
            if not found:
                missed.append((where, what))

    known = not_proved()
    assert [one for one in missed if not known & {one[0], one[0].partition(".")[0]}] == []
    if step > 1:
        return
    assert known == {where if where in known else where.partition(".")[0] for where, _ in missed}
    unchecked = {f"{one.table.name}.{one.name}" for table in metadata.sorted_tables for one in table.columns} - checked
    # At most one config is the default; constraints refuse other ids and roles.
    assert unchecked <= {"builder_config.is_default", "access_token.id", "access_token.role", "webhook.id"}


def test_triggers_that_were_dropped_are_found(catalog: CatalogBackend, catalog_url: str) -> None:
    if catalog_url.startswith("postgresql"):
        execute(catalog_url, "ALTER TABLE shard DISABLE TRIGGER shard_no_change")
        assert faults(catalog) == ["the schema trigger is switched off: shard_no_change"]
        execute(catalog_url, "DROP TRIGGER shard_no_change ON shard")
    else:
        execute(catalog_url, "DROP TRIGGER shard_no_delete")
    verb = "change" if catalog_url.startswith("postgresql") else "delete"
    assert faults(catalog) == [f"the schema trigger is missing: shard_no_{verb}"]


FOREIGN = {
    "sqlite": [("CREATE TRIGGER evil AFTER INSERT ON event BEGIN DELETE FROM alias; END", "trigger")],
    "postgresql": [
        ("CREATE TRIGGER evil AFTER INSERT ON event EXECUTE FUNCTION registry_refuse_change()", "trigger"),
        ("CREATE RULE evil AS ON INSERT TO event DO ALSO DELETE FROM alias", "rule"),
    ],
}


def test_triggers_that_others_added_to_our_tables_are_found(catalog: CatalogBackend, catalog_url: str) -> None:
    for statement, kind in FOREIGN[catalog_url.partition(":")[0]]:
        execute(catalog_url, statement)
        assert faults(catalog) == [f"the schema {kind} is not part of the schema: evil"]
        assert schema.check(catalog_url) == [f"{kind} is not part of the schema: evil"]
        execute(catalog_url, f"DROP {kind} evil" + (" ON event" if catalog_url.startswith("postgresql") else ""))
    assert faults(catalog) == schema.check(catalog_url) == []


def set_aside(url: str, number: int) -> None:
    """Run the statements of docs/troubleshooting.md as the owner of the database."""
    text = (DOCUMENT.parent / "troubleshooting.md").read_text(encoding="utf-8")
    (statement,) = re.findall(r"UPDATE event SET [^;]*;", text)
    damage(url, statement.replace("number", str(number)))


BY_POSTGRES = '{"@session_user": "postgres"}'
FOREIGN_EVENTS = {
    ("publish", "mnist", "9.0.0", BY_POSTGRES): "its details lack 'content_digest'",
    ("publish", "mnist", "nine", BY_POSTGRES): "invalid version 'nine'",
    ("yank", "mnist", "7.0.0", BY_POSTGRES): "no event published 7.0.0",
    ("alias-remove", "mnist", "", '{"alias": [], "@session_user": "postgres"}'): "there was no alias []",
}


@pytest.mark.parametrize("what", FOREIGN_EVENTS)
def test_an_event_of_other_software_is_named_by_look_ups_and_set_aside_by_the_owner(
    catalog: CatalogBackend, catalog_url: str, what: tuple[str, ...]
) -> None:
    publish(catalog, "mnist:1.0.0")
    action, dataset, version, details = what
    execute(
        catalog_url,
        f"INSERT INTO event SELECT 2, at, 'eve', '{action}', '{dataset}', '{version}', '{details}', hash, '{'a' * 64}' "  # noqa: S608 (constants)
        "FROM event",
    )
    publish(catalog, "mnist:1.1.0")  # writes go on
    now = catalog.now()
    title = f"event 2 ({action} {dataset}{':' if version else ''}{version})"

    for look_up in (
        lambda: catalog.find_at(Reference.parse("mnist:1.0.0"), now),
        lambda: catalog.versions("mnist", at=now),
    ):
        with pytest.raises(LogTamperedError) as caught:
            look_up()
        moment = describe_moment(now)
        assert str(caught.value) == (
            f"{title} cannot have happened: {FOREIGN_EVENTS[what]}. So the state of mnist at {moment} is unknown"
        )
        assert caught.value.hint == (
            "Other software wrote the event. registry log verify names all such events; the owner of the database "
            "can set them aside as described in docs/troubleshooting.md."
        )
    assert catalog.find("mnist").version == Version(1, 1, 0)
    assert f"{title} was changed: its hash does not match its content" in faults(catalog)

    set_aside(catalog_url, 2)

    assert str(catalog.find_at(Reference.parse("mnist"), now).version.version) == "1.1.0"
    assert [str(one.version) for one in catalog.versions("mnist", at=now)] == ["1.1.0", "1.0.0"]
    assert faults(catalog) == ["event 2 (set-aside) was changed: its hash does not match its content"]
    publish(catalog, "mnist:1.2.0")


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("column", ["actor", "action", "dataset", "version", "details_json", "at"])
def test_an_event_that_cannot_be_read_is_named_and_set_aside_by_the_owner(
    catalog: CatalogBackend, catalog_url: str, column: str
) -> None:
    publish(catalog, "mnist:1.0.0")
    publish(catalog, "mnist:1.1.0")
    catalog.experiments.add("flag", "A flag.", actor="ann")
    value = "'2026-02-30 00:00:00.000000'" if column == "at" else "CAST(x'ff41' AS text)"
    damage(catalog_url, f"UPDATE event SET {column} = {value} WHERE id = 3")  # noqa: S608 (constants)

    with pytest.raises(CatalogError, match="is damaged: "):
        list(logged(catalog))
    assert faults(catalog) == ["event 3 cannot be read"]

    set_aside(catalog_url, 3)

    assert [one.action for one in logged(catalog)] == ["publish", "publish", "set-aside"]
    assert faults(catalog) == [
        "event 3 (set-aside) was changed: its hash does not match its content",
        "the experiment flag is not what its events say",
    ]
    publish(catalog, "mnist:1.2.0")


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("UPDATE builder SET name = CAST(x'ff41' AS text)", "the catalog"),
        ("UPDATE dataset_version SET published_by = CAST(x'ff41' AS text)", "mnist"),
        ("UPDATE alias SET set_by = CAST(x'ff41' AS text)", "mnist"),
        ("UPDATE experiment SET description = CAST(x'ff41' AS text)", "the catalog"),
        ("INSERT INTO builder VALUES (7, 'other', 0, 'garbage')", "other"),
    ],
)
def test_rows_that_cannot_be_read_are_faults(
    catalog: CatalogBackend, catalog_url: str, statement: str, where: str
) -> None:
    publish(catalog, "mnist:1.0.0")
    catalog.aliases.set("paper", Reference.parse("mnist:1.0.0"), expect=None, message="", actor="ann")
    catalog.experiments.add("flag", "A flag.", actor="ann")
    damage(catalog_url, statement)
    assert [found for found in faults(catalog) if found.startswith(f"{where} cannot be read: ")] != []


def test_events_of_older_releases_do_not_tell_the_time_of_their_rows(
    catalog: CatalogBackend, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(events, "ROWS_AT", "of_tomorrow")
        publish(catalog, "mnist:1.0.0")
    assert faults(catalog) == []
    at = execute(catalog_url, "SELECT created_at FROM builder")
    damage(catalog_url, "UPDATE builder SET created_at = '2026-01-02 03:04:05.000006'")
    assert execute(catalog_url, "SELECT created_at FROM builder") != at
    assert faults(catalog) == []
    damage(catalog_url, "UPDATE builder SET created_at = '2226-01-02 03:04:05.000006'")
    assert faults(catalog)[0].startswith("mnist was created at 2226-01-02T03:04:05.000006+00:00; its events say 20")
