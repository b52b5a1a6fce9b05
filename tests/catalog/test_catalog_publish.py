from __future__ import annotations

import dataclasses
import hashlib
import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.catalog_samples import execute, make_shards, publish, sample
from support.golden import check_errors

from registry.catalog import CatalogBackend
from registry.errors import ConflictError, ExperimentNotFoundError, ReferenceSyntaxError, UsageError, VersionExistsError
from registry.model import DatasetMetadata, Reference, Version

GOLDEN = Path(__file__).with_name("golden")


def count(url: str, table: str) -> int:
    return int(execute(url, f"SELECT count(*) FROM {table}")[0][0])  # noqa: S608 (a test's own table)


def test_publishing_the_same_content_again_changes_nothing(catalog: CatalogBackend, catalog_url: str) -> None:
    first = publish(catalog, "mnist:1.0.0")
    publish(catalog, "mnist:2.0.0", content="2")
    again, shards = sample("mnist:1.0.0", location="elsewhere")

    assert not catalog.publish(again, shards, promote=True, default_config=True, actor="bob")

    assert catalog.find("mnist").version == Version(2, 0, 0)
    assert catalog.find("mnist:1.0.0").location == first.location
    assert count(catalog_url, "event") == count(catalog_url, "dataset_version") == 2


def test_other_content_under_a_used_number_is_refused(catalog: CatalogBackend, catalog_url: str) -> None:
    first = publish(catalog, "mnist:1.0.0")
    other, shards = sample("mnist:1.0.0", content="other")

    with pytest.raises(VersionExistsError) as caught:
        catalog.publish(other, shards, promote=True, actor="bob")

    assert str(caught.value) == (
        f"mnist:1.0.0 is published with other content: "
        f"expected sha256 {first.content_digest[:12]}, found {other.content_digest[:12]}"
    )
    assert caught.value.exit_code == 4
    assert caught.value.details == {"published": first.content_digest, "offered": other.content_digest}
    assert count(catalog_url, "shard") == 4


def test_a_number_that_is_only_in_the_ledger_is_never_used_again(catalog: CatalogBackend, catalog_url: str) -> None:
    version, shards = sample("mnist:1.0.0")
    execute(
        catalog_url,
        "INSERT INTO version_ledger (builder_name, config_name, major, minor, patch, content_digest, used_at, used_by) "
        "VALUES ('mnist', '', 1, 0, 0, '0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef', "
        "CURRENT_TIMESTAMP, 'ann')",
    )

    assert catalog.published_digest("mnist", None, Version(1, 0, 0)) == "0123456789abcdef" * 4
    with pytest.raises(VersionExistsError, match=r"^mnist:1.0.0 was published and deleted(?m:$)"):
        catalog.publish(version, shards, promote=True, actor="bob")
    assert count(catalog_url, "builder") == 0


def test_a_free_number_has_no_digest(catalog: CatalogBackend) -> None:
    version = publish(catalog, "mnist/plain:1.0.0")

    assert catalog.published_digest("mnist", "plain", Version(1, 0, 0)) == version.content_digest
    assert catalog.published_digest("mnist", "plain", Version(1, 0, 1)) is None
    assert catalog.published_digest("mnist", None, Version(1, 0, 0)) is None


def test_only_promoting_moves_the_canonical_version(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    publish(catalog, "mnist:2.0.0", promote=False, content="2")
    assert catalog.find("mnist").version == Version(1, 0, 0)

    publish(catalog, "mnist:3.0.0", content="3")

    assert catalog.find("mnist").version == Version(3, 0, 0)


@pytest.mark.parametrize(
    ("first", "second"), [("mnist:1.0.0", "mnist/plain:1.0.0"), ("mnist/plain:1.0.0", "mnist:1.0.0")]
)
def test_whether_a_dataset_has_configs_never_changes(catalog: CatalogBackend, first: str, second: str) -> None:
    publish(catalog, first)

    with pytest.raises(ConflictError, match="configs"):
        publish(catalog, second)


def test_every_publication_is_sealed_in_the_event_chain(catalog: CatalogBackend, catalog_url: str) -> None:
    for number in ("1.0.0", "1.0.1", "2.0.0"):
        publish(catalog, f"mnist/plain:{number}", promote=number == "2.0.0", content=number)

    rows = execute(
        catalog_url,
        "SELECT id, actor, action, dataset, version, details_json, previous_hash, hash, at FROM event ORDER BY id",
    )

    previous, earlier = "0" * 64, datetime.min.replace(tzinfo=UTC)
    for number, row in enumerate(rows, 1):
        identity, actor, action, dataset, version, details, before, digest, stored = row
        # SQLite gives the text that it stores, UTC without saying so.
        at = datetime.fromisoformat(f"{stored}+00:00") if isinstance(stored, str) else stored.astimezone(UTC)
        told = {
            "id": number,
            "actor": actor,
            "action": action,
            "dataset": dataset,
            "version": version,
            "details_json": details,
            "at": at.isoformat(timespec="microseconds"),
        }
        text = json.dumps(told, sort_keys=True, separators=(",", ":"))
        assert (identity, before) == (number, previous)
        assert digest == hashlib.sha256((before + text).encode()).hexdigest()
        assert at > earlier
        assert at > next(one.published_at for one in catalog.versions("mnist", "plain") if str(one.version) == version)
        previous, earlier = digest, at
    assert [(row[1], row[2], row[3], row[4]) for row in rows] == [
        ("ann", "publish", "mnist/plain", number) for number in ("1.0.0", "1.0.1", "2.0.0")
    ]
    assert [json.loads(row[5])["promote"] for row in rows] == [False, False, True]


def test_a_new_dataset_has_a_name_that_look_ups_find(catalog: CatalogBackend, catalog_url: str) -> None:
    version, shards = sample("my_dataset:1.0.0")
    with pytest.raises(ReferenceSyntaxError) as caught:
        catalog.publish(dataclasses.replace(version, name="MyDataset"), shards, promote=True, actor="ann")
    assert caught.value.hint == "Use the name my_dataset."
    assert count(catalog_url, "builder") == 0

    catalog.publish(version, shards, promote=True, actor="ann")
    assert catalog.find("MyDataset:1").reference == Reference.parse("my_dataset:1.0.0")


def test_a_dataset_that_was_published_under_another_name_still_reads(catalog: CatalogBackend, catalog_url: str) -> None:
    version, shards = sample("my_dataset:1.0.0")
    catalog.publish(version, shards, promote=True, actor="ann")
    # As a registry before the rule wrote it; the ledger, which cannot be changed, gets a second line.
    execute(catalog_url, "UPDATE builder SET name = 'MyDataset'")
    execute(
        catalog_url,
        "INSERT INTO version_ledger SELECT 'MyDataset', config_name, major, minor, patch, content_digest, used_at, "
        "used_by FROM version_ledger",
    )
    old = dataclasses.replace(version, name="MyDataset")

    assert catalog.find(Reference(name="MyDataset")).reference == old.reference
    assert [summary.name for summary in catalog.datasets()] == ["MyDataset"]
    assert not catalog.publish(old, shards, promote=True, actor="ann")


def _changed(**fields: Any) -> Any:
    version, shards = sample("mnist:1.0.0")
    train = (dataclasses.replace(shards["train"][0], **fields), *shards["train"][1:])
    return version, {**shards, "train": train}


def test_shards_that_do_not_match_their_splits_are_refused(catalog: CatalogBackend) -> None:
    version = sample("mnist:1.0.0")[0]
    wrong: list[Any] = [
        *((version, {}), (version, {"train": (), "test": ()}), _changed(index=1), _changed(num_examples=4)),
        *(_changed(first_example=1), _changed(num_bytes=-1), _changed(num_bytes=2**63), _changed(sha256="abc")),
        *(_changed(sha256="A" * 64), sample("mnist:1.0.0", content_digest="0"), sample("mnist:1.0.0", location="a\0b")),
    ]
    calls = (partial(catalog.publish, *each, promote=True, actor="ann") for each in wrong)
    check_errors(GOLDEN / "catalog_publish.txt", calls)
    for problem, changes in (  # no JSON says them, so that a client of a service refuses them in other words
        ("NUL or a lone surrogate|half of a surrogate pair", {"features_json": "\ud800"}),
        ("stored as JSON|not a JSON number", {"metadata": DatasetMetadata(extra={"x": float("nan")})}),
        ("cannot be stored as JSON", {"metadata": DatasetMetadata(extra={"x": object()})}),
    ):
        with pytest.raises(UsageError, match=problem):
            catalog.publish(*sample("mnist:1.0.0", **changes), promote=True, actor="ann")

    assert catalog.datasets() == ()


def test_a_database_refuses_what_no_json_says(catalog: CatalogBackend) -> None:
    for message, changes in (
        ("the feature schema contains a NUL or a lone surrogate", {"features_json": "\ud800"}),
        ("the metadata cannot be stored as JSON", {"metadata": DatasetMetadata(extra={"x": float("nan")})}),
        ("the metadata cannot be stored as JSON", {"metadata": DatasetMetadata(extra={"x": object()})}),
    ):
        with pytest.raises(UsageError, match=f"^{message}"):
            catalog.publish(*sample("mnist:1.0.0", **changes), promote=True, actor="ann")


def test_a_failure_late_in_the_transaction_leaves_nothing(catalog: CatalogBackend, catalog_url: str) -> None:
    # The experiments are looked at after the shards are written.
    version, shards = sample("mnist:1.0.0", experiments={"nobody_added_it": True})

    with pytest.raises(ExperimentNotFoundError, match="no experiment 'nobody_added_it' in the catalog"):
        catalog.publish(version, shards, promote=True, actor="ann")

    tables = ("builder", "builder_config", "dataset_version", "split", "shard", "version_ledger", "event")
    assert {table: count(catalog_url, table) for table in tables} == dict.fromkeys(tables, 0)


def test_shards_are_written_in_batches_without_loss(catalog: CatalogBackend, catalog_url: str) -> None:
    lengths = [1] * 20_001  # two full batches and one shard
    version, _ = sample("mnist:1.0.0", {"train": lengths})

    catalog.publish(version, {"train": make_shards(lengths, "x")}, promote=True, actor="ann")

    assert execute(catalog_url, "SELECT count(*), max(shard_index), max(first_example) FROM shard") == [
        (20_001, 20_000, 20_000)
    ]
