"""The metadata of a published version is corrected: the row, the log, the past, searches, copies and backups."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.catalog_backups import packed
from support.catalog_samples import damage, execute, logged, publish
from support.levels import either

from registry.catalog import CatalogBackend, open_catalog, schema
from registry.catalog.remembering import KnownVersions
from registry.catalog.restore import restore_backup
from registry.errors import UsageError, VersionNotFoundError
from registry.model import DatasetMetadata, Description, Event, Reference, described_before

VERSION = Reference.parse("mnist:1.0.0")
Start = Callable[..., "subprocess.Popen[str]"]


def described(catalog: CatalogBackend) -> Iterator[Event]:
    return (event for event in logged(catalog) if event.action == "describe")


def test_metadata_is_corrected_and_the_log_has_both_sides(catalog: CatalogBackend) -> None:
    version = publish(catalog, "mnist:1.0.0")
    words = Description(license="cc-by-4.0", tags=["digits"], homepage="https://ann:secret@example.org/")
    change = catalog.lifecycle.describe(VERSION, words, actor="bob")
    assert change.is_change
    found = catalog.find("mnist")
    assert found.metadata == change.after
    assert found == replace(version, metadata=found.metadata, **_of_row(found))
    assert (found.metadata.license, found.metadata.config_tags) == ("CC-BY-4.0", ("digits",))
    assert found.metadata.homepage == "https://example.org/"
    assert found.metadata.release_notes == version.metadata.release_notes
    [event] = described(catalog)
    assert (event.actor, event.dataset, event.version) == ("bob", "mnist", "1.0.0")
    assert event.details["before"] == {"config_tags": [], "described": [], "homepage": "", "license": ""}
    assert event.details["after"]["license"] == "CC-BY-4.0"
    assert "secret" not in json.dumps(event.details)
    assert catalog.log.verify().faults == ()
    assert catalog.datasets()[0].config_tags == ("digits",)
    assert [hit.matched for hit in catalog.search("digits")] == [("tags",)]


def _of_row(version: Any) -> dict[str, Any]:
    return {name: getattr(version, name) for name in ("canonical", "published_at", "published_by", "splits")}


def test_what_changes_nothing_writes_no_event(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    catalog.lifecycle.describe(VERSION, Description(license="MIT"), actor="bob")
    for words in (Description(license="mit"), Description(remove_tags=["none"]), Description()):
        assert not catalog.lifecycle.describe(VERSION, words, actor="bob").is_change
    change = catalog.lifecycle.describe(VERSION, Description(license="BSD-2-Clause"), actor="bob", dry_run=True)
    assert change.is_change
    assert catalog.find("mnist").metadata.license == "MIT"
    assert len(list(described(catalog))) == 1


def test_an_empty_text_removes_a_value_and_that_it_was_said(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    catalog.lifecycle.describe(VERSION, Description(license="MIT", supervised=["label", "label"]), actor="bob")
    assert catalog.find("mnist").metadata.described == ("license", "supervised_keys")
    words = Description(license="", supervised=[], description="")
    after = catalog.lifecycle.describe(VERSION, words, actor="bob").after
    assert (after.license, after.supervised_keys, after.description, after.described) == ("", None, "", ())
    assert catalog.log.verify().faults == ()


@pytest.mark.parametrize("action", ["yank", "drop"])
def test_a_withdrawn_version_can_be_described(catalog: CatalogBackend, action: str) -> None:
    publish(catalog, "mnist:1.0.0")
    getattr(catalog.lifecycle, action)(VERSION, "wrong", actor="ann")
    assert catalog.lifecycle.describe(VERSION, Description(license="MIT"), actor="ann").is_change
    assert catalog.log.verify().faults == ()


def test_a_version_that_does_not_exist_cannot_be_described(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    with pytest.raises(VersionNotFoundError):
        catalog.lifecycle.describe(Reference.parse("mnist:2.0.0"), Description(license="MIT"), actor="ann")
    with pytest.raises(UsageError, match="does not name one version"):
        catalog.lifecycle.describe(Reference.parse("mnist"), Description(license="MIT"), actor="ann")


def test_the_past_has_the_metadata_of_its_moment(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    publish(catalog, "mnist:1.0.1", content="b", promote=False)
    texts = ["About mnist.", "one", "two", "three"]
    moments = [catalog.now()]
    for text in texts[1:]:
        words = Description(description=text, tags=[text], remove_tags=["one"] if text == "three" else [])
        catalog.lifecycle.describe(VERSION, words, actor="ann")
        catalog.lifecycle.describe(Reference.parse("mnist:1.0.1"), Description(description=f"b {text}"), actor="ann")
        moments.append(catalog.now())
    past = [catalog.find_at(VERSION, moment).version.metadata for moment in moments]
    assert [metadata.description for metadata in past] == texts
    assert [metadata.config_tags for metadata in past] == [(), ("one",), ("one", "two"), ("two", "three")]
    assert past[0] == publish(catalog, "cifar:1.0.0").metadata.__class__(
        description="About mnist.", release_notes=past[0].release_notes
    )
    assert past[-1] == catalog.find(VERSION).metadata


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE dataset_version SET metadata_json = replace(metadata_json, 'MIT', 'GPL')",
        'UPDATE dataset_version SET metadata_json = replace(metadata_json, \'"described":["license"]\', \'"x":1\')',
    ],
)
def test_metadata_that_was_changed_behind_the_log_is_found(
    catalog: CatalogBackend, catalog_url: str, statement: str
) -> None:
    publish(catalog, "mnist:1.0.0")
    catalog.lifecycle.describe(VERSION, Description(license="MIT"), actor="ann")
    execute(catalog_url, statement)  # no trigger refuses it
    [fault, *_] = catalog.log.verify().faults
    assert str(fault) == (
        "mnist:1.0.0 differs from what was published in its place, files' names, metadata, time or experiments"
    )
    # A description does not hide it.
    catalog.lifecycle.describe(VERSION, Description(license="BSD-2-Clause"), actor="ann")
    assert any("it replaces a seal that 1.0.0 did not have" in str(fault) for fault in catalog.log.verify().faults)


def test_only_the_metadata_of_a_published_row_may_change(catalog: CatalogBackend, catalog_url: str) -> None:
    publish(catalog, "mnist:1.0.0")
    for column in ("release_notes_json", "location", "features_json", "content_digest"):
        with pytest.raises(Exception, match="published rows never change"):
            execute(catalog_url, f"UPDATE dataset_version SET {column} = 'x'")  # noqa: S608 (a constant above)


def test_backups_and_notes_of_this_machine_have_what_was_corrected(
    catalog: CatalogBackend, catalog_url: str, tmp_path: Path
) -> None:
    publish(catalog, "mnist:1.0.0")
    catalog.lifecycle.describe(VERSION, Description(license="MIT", tags=["a"]), actor="ann")
    found = catalog.find(VERSION)
    backup = packed(catalog.backup())
    (tmp_path / "backup.gz").write_bytes(backup)
    target = f"sqlite:///{tmp_path}/copy.db"
    restore_backup(target, lambda: (tmp_path / "backup.gz").open("rb"), shown="backup.gz")
    with open_catalog(target) as copy:
        assert copy.find(VERSION).metadata == found.metadata
        assert copy.log.verify().faults == ()
    known = KnownVersions(tmp_path / "known", catalog_url)
    known.keep(VERSION, found, catalog)
    recalled = known.find(VERSION)
    assert recalled.facts.metadata == found.metadata


def test_a_catalog_goes_back_a_revision_and_up_again_with_what_was_corrected(catalog_url: str) -> None:
    with open_catalog(catalog_url) as catalog:
        publish(catalog, "mnist:1.0.0")
        catalog.lifecycle.describe(VERSION, Description(license="MIT"), actor="ann")
    schema.downgrade(catalog_url, "0011")
    with pytest.raises(Exception, match="published rows never change"):
        execute(catalog_url, "UPDATE dataset_version SET metadata_json = '{}'")
    schema.upgrade(catalog_url)
    assert schema.check(catalog_url) == []
    with open_catalog(catalog_url) as catalog:
        assert catalog.find(VERSION).metadata.license == "MIT"
        assert catalog.log.verify().faults == ()


def test_a_publication_of_an_older_registry_gets_its_first_seal(catalog: CatalogBackend, catalog_url: str) -> None:
    publish(catalog, "mnist:1.0.0")
    [stored] = execute(catalog_url, "SELECT details_json FROM event WHERE id = 1")
    details = json.loads(stored[0])
    details.pop("seal")
    text = json.dumps(details, sort_keys=True, separators=(",", ":")).replace("'", "''")
    damage(catalog_url, f"UPDATE event SET details_json = '{text}' WHERE id = 1")  # noqa: S608 (our own text)
    before = [str(fault) for fault in catalog.log.verify().faults]
    catalog.lifecycle.describe(VERSION, Description(license="MIT"), actor="ann")
    assert [str(fault) for fault in catalog.log.verify().faults] == before  # the hash of event 1


@pytest.mark.parametrize("number", either(3, 16))
def test_of_many_that_describe_at_once_none_is_lost(
    catalog: CatalogBackend, catalog_url: str, start_script: Start, number: int
) -> None:
    publish(catalog, "mnist:1.0.0")
    crowd = [start_script("catalog_describer.py", "race", catalog_url, str(place)) for place in range(number)]
    for process in crowd:
        assert process.stdout.readline() == "ready\n"
    for process in crowd:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in crowd:
        assert json.loads(process.stdout.readline()) == {"changed": 10}
    tags = {f"tag-{place}-{turn}" for place in range(number) for turn in range(10)}
    # A version has at most 100 tags in one call, and any number over time.
    assert set(catalog.find(VERSION).metadata.config_tags) == tags
    assert len(list(described(catalog))) == 10 * number
    assert catalog.log.verify().faults == ()
    assert schema.check(catalog_url) == []


@pytest.mark.parametrize("step", either(5, 1))
def test_a_description_that_is_killed_at_any_step_is_whole_or_absent(
    catalog: CatalogBackend, catalog_url: str, start_script: Start, step: int
) -> None:
    publish(catalog, "mnist:1.0.0")
    process = start_script("catalog_describer.py", "kill", catalog_url, str(step), "describe")
    codes = json.loads(process.communicate(timeout=120)[0])
    assert codes[-1] == 0
    assert set(codes[:-1]) == {-9}
    assert len(codes) > 10 // step
    assert catalog.find(VERSION).metadata.license == "MIT"
    assert len(list(described(catalog))) == 1  # no killed one left its event, and none its row
    assert catalog.log.verify().faults == ()
    assert schema.check(catalog_url) == []


TEXTS = st.none() | st.sampled_from(["", "MIT", "x"])
TAGS = st.lists(st.sampled_from("abc"), max_size=3)
URLS = st.none() | st.sampled_from(["", "https://example.org"])
WORDS = st.builds(
    Description, description=TEXTS, license=TEXTS, citation=TEXTS, homepage=URLS, tags=TAGS, remove_tags=TAGS
)


@given(first=WORDS, second=WORDS, other=WORDS)
def test_a_description_applied_twice_is_applied_once_and_the_next_version_keeps_it(
    first: Description, second: Description, other: Description
) -> None:
    source = DatasetMetadata(description="of the source", license="Apache-2.0", config_tags=("a", "s"))
    metadata = first.apply(source)
    assert first.apply(metadata) == metadata
    assert second.apply(metadata) == second.apply(second.apply(metadata))
    kept = described_before(other.apply(source), metadata)
    for name in metadata.described:
        assert getattr(kept, name) == getattr(metadata, name)
    assert kept.described == metadata.described
    # What nobody said follows the source.
    fresh = described_before(DatasetMetadata(description="new", license="ISC"), metadata)
    assert fresh.license == (metadata.license if "license" in metadata.described else "ISC")
