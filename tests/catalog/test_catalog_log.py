"""The event log: what is told, in which order, and which part of it is given."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from support.catalog_clocks import freeze_clocks
from support.catalog_samples import damage, logged, publish

from registry.catalog import CatalogBackend, paging
from registry.catalog.events import append_event
from registry.catalog.session import write
from registry.errors import CatalogError, DatasetNotFoundError, UsageError


def append(catalog: CatalogBackend, at: datetime, *, action: str = "note", dataset: str = "") -> None:
    """Append an event as the registry does, by a clock that shows ``at``."""

    def action_(connection: sa.Connection) -> None:
        append_event(connection, action, dataset, {"any": "thing"}, actor="ann")

    with freeze_clocks(at):
        write(catalog._engine, action_)


def test_every_event_is_later_than_the_one_before_whatever_the_clock_says(catalog: CatalogBackend) -> None:
    ahead = datetime.now(UTC) + timedelta(days=3)
    append(catalog, ahead)
    append(catalog, ahead - timedelta(minutes=59))
    append(catalog, ahead - timedelta(seconds=1))
    append(catalog, ahead + timedelta(days=1))

    times = [one.at for one in logged(catalog)]

    step = timedelta(microseconds=1)
    assert times == [ahead, ahead + step, ahead + 2 * step, ahead + timedelta(days=1)]


def test_an_event_says_who_did_what(catalog: CatalogBackend) -> None:
    version = publish(catalog, "mnist/plain:1.0.0", default_config=True)
    (event,) = logged(catalog)
    assert (event.id, event.actor, event.action, event.dataset, event.version) == (
        1,
        "ann",
        "publish",
        "mnist/plain",
        "1.0.0",
    )
    assert event.details["content_digest"] == version.content_digest
    assert abs(event.at - datetime.now(UTC)) < timedelta(minutes=5)


def test_the_log_is_given_by_dataset_config_action_and_number(catalog: CatalogBackend) -> None:
    for reference in ("mnist/plain:1.0.0", "mnist_c:1.0.0", "mnist/noisy:1.0.0", "mnist/plain:1.1.0", "Mnist2:1.0.0"):
        publish(catalog, reference)
    append(catalog, datetime.now(UTC), action="default-config", dataset="mnist")

    def ids(**options: object) -> list[int]:
        return [one.id for one in logged(catalog, **options)]  # type: ignore[arg-type]

    assert ids(dataset="mnist") == [1, 3, 4, 6]
    assert ids(dataset="mnist/plain") == [1, 4]
    assert ids(dataset="mnist/plain", limit=1) == [4]
    assert ids(actions=["default-config", "unheard-of"]) == [6]
    assert ids(limit=2) == [5, 6]
    assert ids(limit=100) == [1, 2, 3, 4, 5, 6]
    assert ids(actions=["nothing"], limit=3) == []
    assert ids(before=4, limit=2) == [2, 3]
    assert ids(dataset="mnist", before=6, limit=1) == [4]
    assert ids(before=1) == ids(before=1, limit=5) == []


def test_the_log_is_given_by_time_both_ends_included(catalog: CatalogBackend) -> None:
    start = datetime.now(UTC) + timedelta(days=1)
    for day in range(4):
        append(catalog, start + timedelta(days=day))
    found = logged(catalog, since=start + timedelta(days=1), until=start + timedelta(days=2))
    assert [one.id for one in found] == [2, 3]
    assert list(logged(catalog, until=datetime(1, 1, 1, tzinfo=UTC))) == []
    assert [one.id for one in logged(catalog, since=start, until=start)] == [1]
    with pytest.raises(UsageError, match=r"^since \(.*\) is after until \("):
        logged(catalog, since=start, until=start - timedelta(microseconds=1))


def test_a_log_longer_than_a_batch_is_read_to_its_end(catalog: CatalogBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "_EVENTS", 3)
    for _ in range(9):
        append(catalog, datetime.now(UTC))
    assert [one.id for one in logged(catalog)] == list(range(1, 10))
    assert [one.id for one in logged(catalog, limit=4)] == [6, 7, 8, 9]
    reader = logged(catalog)
    next(reader)
    append(catalog, datetime.now(UTC))  # a reader who pauses keeps no writer waiting
    assert [one.id for one in reader] == list(range(2, 11))


def test_invalid_filters_of_the_log_are_refused(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    with pytest.raises(DatasetNotFoundError, match="no dataset 'mnits' in the catalog"):
        logged(catalog, dataset="mnits")
    with pytest.raises(UsageError, match=r"^mnist:1.0.0: name a dataset without a version(?m:$)"):
        logged(catalog, dataset="mnist:1.0.0")
    with pytest.raises(UsageError, match=r"^a log shows from 1 to 2,147,483,647 events, not 0(?m:$)"):
        logged(catalog, limit=0)
    with pytest.raises(UsageError, match=r"^a time needs a time zone(?m:$)"):
        logged(catalog, since=datetime(2026, 1, 1))  # noqa: DTZ001 (that is the mistake)


def test_a_damaged_event_is_an_error_of_the_catalog(catalog: CatalogBackend, catalog_url: str) -> None:
    publish(catalog, "mnist:1.0.0")
    damage(catalog_url, "UPDATE event SET details_json = '[]'")
    with pytest.raises(CatalogError, match=r"^the catalog is damaged: a stored value cannot be read"):
        list(logged(catalog))


def test_an_event_has_the_claimed_actor_and_the_user_of_the_system(catalog: CatalogBackend, catalog_url: str) -> None:
    publish(catalog, "mnist:1.0.0")
    (event,) = logged(catalog)
    assert event.actor == "ann"
    assert event.recorded_by.endswith(f"@{socket.gethostname()}")
    user = None if catalog_url.startswith("sqlite") else "postgres"
    assert (event.session_user, event.is_verified) == (user, False)
    said = f"claimed by {event.recorded_by}" + ("" if user is None else f" as {user}")
    assert event.described_actor == f"ann (unverified, {said})"
    assert not {name for name in event.details if name.startswith("@")}
    assert catalog.log.verify().faults == ()

    damage(catalog_url, "UPDATE event SET details_json = replace(details_json, 'recorded_by', 'claimed_by')")

    assert next(str(one) for one in catalog.log.verify().faults) == (
        "event 1 (publish mnist:1.0.0) was changed: its hash does not match its content"
    )
