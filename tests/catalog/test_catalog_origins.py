"""A version that is copied from another catalog: one transaction writes its rows, its events and its aliases."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from support.catalog_samples import damage, logged, publish, sample

from registry.catalog import CatalogBackend, Origin, PublicationDetails
from registry.errors import UsageError, VersionExistsError
from registry.model import Event, Reference, Version, VersionState

THEN = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
EVENT = Event(
    id=7,
    at=THEN,
    actor="eve",
    action="publish",
    dataset="mnist",
    version="1.0.0",
    details={"promote": True},
    hash="f" * 64,
)
ORIGIN = Origin(
    catalog="postgresql://lab/registry",
    published_at=THEN,
    published_by="eve",
    events=(EVENT,),
    aliases=("best", "paper"),
)


def copy(catalog: CatalogBackend, reference: str = "mnist:1.0.0", origin: Origin = ORIGIN, **changes: object) -> None:
    version, shards = sample(reference)
    promote = None if "state" not in changes else False
    version = replace(version, **changes)  # type: ignore[arg-type] # fields of a version
    catalog.publish(version, shards, promote=promote, actor="ann", details=PublicationDetails(origin=origin))


def test_a_copy_keeps_the_time_and_the_publisher_of_its_version(catalog: CatalogBackend) -> None:
    copy(catalog)
    found = catalog.find("mnist")
    assert (found.published_at, found.published_by) == (THEN, "eve")
    assert catalog.versions("mnist")[0].published_at == THEN
    assert found == catalog.find("mnist@paper") == catalog.find("mnist@best")


def test_its_events_are_imported_and_the_log_agrees_with_the_rows(catalog: CatalogBackend, catalog_url: str) -> None:
    publish(catalog, "mnist:0.9.0")
    before = datetime.now(UTC)
    copy(catalog)
    copy(
        catalog,
        "mnist:1.1.0",
        origin=replace(ORIGIN, aliases=("paper",)),
        state=VersionState.YANKED,
        state_message="wrong",
        superseded_by=Version(1, 0, 0),
    )
    told = [(one.action, one.actor, one.version) for one in logged(catalog)][1:]
    assert told == [
        ("publish", "ann", "1.0.0"),
        ("imported", "ann", "1.0.0"),
        ("alias-set", "ann", "1.0.0"),
        ("alias-set", "ann", "1.0.0"),
        ("publish", "ann", "1.1.0"),
        ("imported", "ann", "1.1.0"),
    ]
    imported = next(one for one in logged(catalog) if one.action == "imported")
    assert imported.details == {
        "catalog": "postgresql://lab/registry",
        "event": {
            "id": 7,
            "at": "2024-02-29T12:30:15.123456+00:00",
            "actor": "eve",
            "action": "publish",
            "recorded_by": None,
            "hash": "f" * 64,
            "details": {"promote": True},
        },
    }
    assert [one.message for one in catalog.aliases.history(Reference.parse("mnist@paper"))] == [
        "copied from postgresql://lab/registry"
    ]
    assert catalog.log.verify().faults == ()
    # It was not in this catalog then.
    assert str(catalog.find_at(Reference.parse("mnist"), before).version.version) == "0.9.0"
    yanked = catalog.find("mnist:1.1.0")
    assert (yanked.state, yanked.state_message, yanked.superseded_by) == (
        VersionState.YANKED,
        "wrong",
        Version(1, 0, 0),
    )
    assert str(catalog.find("mnist@paper").version) == "1.0.0"  # an alias that exists is not moved
    catalog.lifecycle.undo("yank", Reference.parse("mnist:1.1.0"), actor="ann")
    assert catalog.find("mnist:1.1.0").state is VersionState.SUPPORTED
    assert catalog.log.verify().faults == ()

    damage(catalog_url, "UPDATE dataset_version SET published_by = 'mallory' WHERE minor = 0 AND major = 1")
    assert [str(one) for one in catalog.log.verify().faults] == [
        "mnist:1.0.0 was published by mallory; its events say eve"
    ]


def test_a_copy_that_is_there_changes_nothing_and_other_content_is_refused(catalog: CatalogBackend) -> None:
    copy(catalog)
    events = list(logged(catalog))
    copy(catalog, origin=replace(ORIGIN, aliases=("new",)))
    assert list(logged(catalog)) == events
    version, shards = sample("mnist:1.0.0", content="other")
    with pytest.raises(VersionExistsError):
        catalog.publish(version, shards, promote=None, actor="ann", details=PublicationDetails(origin=ORIGIN))


def test_a_copy_with_an_invalid_alias_writes_nothing(catalog: CatalogBackend) -> None:
    with pytest.raises(UsageError):
        copy(catalog, origin=replace(ORIGIN, aliases=("3.*",)))
    assert catalog.datasets() == ()
    assert list(logged(catalog)) == []
