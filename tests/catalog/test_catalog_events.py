"""Events after an event: for those who follow the log, and in the order in which transactions are committed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from support.catalog_samples import publish

from registry.catalog import CatalogBackend, EventPage, follow_events, open_catalog, paging
from registry.catalog.events import append_event
from registry.catalog.session import write
from registry.errors import CatalogUnavailableError, CatalogUnavailableWarning, DatasetNotFoundError, UsageError


def append(catalog: CatalogBackend, *, action: str = "note", dataset: str = "") -> None:
    """Append an event as the registry does."""
    write(catalog._engine, lambda connection: append_event(connection, action, dataset, {}, actor="ann"))


def ids(page: EventPage) -> list[int]:
    return [event.id for event in page.events]


def test_pages_follow_each_other_without_gaps(catalog: CatalogBackend) -> None:
    for _ in range(5):
        append(catalog)
    first = catalog.events(limit=2)
    assert (ids(first), first.after) == ([1, 2], 2)
    rest = catalog.events(after=first.after)
    assert (ids(rest), rest.after) == ([3, 4, 5], 5)
    assert catalog.events(after=5) == EventPage(events=(), after=5)


def test_what_is_not_wanted_is_passed_over(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    for _ in range(3):
        append(catalog)
    page = catalog.events(dataset="mnist")
    assert (ids(page), page.after) == ([1], 4)
    page = catalog.events(actions=("note",), limit=2)
    assert (ids(page), page.after) == ([2, 3], 3)


def test_wrong_numbers_and_another_log_are_refused(catalog: CatalogBackend) -> None:
    append(catalog)
    for wrong in ({"limit": 0}, {"limit": 1001}, {"after": -1}, {"wait": -1.0}, {"wait": 31.0}, {"wait": float("nan")}):
        with pytest.raises(UsageError, match="expected"):
            catalog.events(**wrong)  # type: ignore[arg-type]  # one of several
    with pytest.raises(UsageError, match="the log ends with event 1, before event 7") as refused:
        catalog.events(after=7)
    assert refused.value.details == {"newest": 1}
    with pytest.raises(DatasetNotFoundError):
        catalog.events(dataset="absent")


def test_a_wait_ends_with_an_event_or_its_time(catalog: CatalogBackend) -> None:
    pages: list[EventPage] = []
    thread = threading.Thread(target=lambda: pages.append(catalog.events(wait=30)))
    thread.start()
    append(catalog)
    thread.join(20)
    assert [ids(page) for page in pages] == [[1]]
    assert catalog.events(after=1, wait=0.05) == EventPage(events=(), after=1)


def test_an_event_is_seen_only_when_its_transaction_is_committed_and_none_before_it_follows(catalog_url: str) -> None:
    # Two writers append at the same time, and one of them gives up. No follower may pass an id that is used later.
    with open_catalog(catalog_url) as catalog, open_catalog(catalog_url) as other:
        is_appended, may_end = threading.Event(), threading.Event()

        def slow(connection: sa.Connection) -> None:
            append_event(connection, "slow", "", {}, actor="ann")
            is_appended.set()
            may_end.wait(20)
            raise UsageError("it gives up")

        def run() -> None:
            with pytest.raises(UsageError, match="it gives up"):
                write(other._engine, slow)

        first = threading.Thread(target=run)
        first.start()
        is_appended.wait(20)
        second = threading.Thread(target=append, args=(catalog,), kwargs={"action": "quick"})
        second.start()
        time.sleep(0.1)
        assert catalog.events() == EventPage(events=(), after=0)
        may_end.set()
        first.join(20)
        second.join(20)
        assert [(event.id, event.action) for event in catalog.events().events] == [(1, "quick")]


def test_a_follower_gets_each_event_once_while_others_append(catalog_url: str) -> None:
    with open_catalog(catalog_url) as catalog, open_catalog(catalog_url) as other:
        append(catalog)
        events = follow_events(other, after=0, dataset=None, actions=None)
        threads = [threading.Thread(target=lambda: [append(catalog) for _ in range(25)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        followed = [next(events).id for _ in range(101)]
        for thread in threads:
            thread.join()
        assert followed == [*range(1, 102)]
        later = follow_events(other, after=None, dataset=None, actions=("late",))
        append(catalog)
        append(catalog, action="late")
        assert next(later).id == 103


class Broken:
    """A catalog that does not answer for a while."""

    def __init__(self, catalog: CatalogBackend, failures: int) -> None:
        self.log, self._events, self._failures = catalog.log, catalog.events, failures
        self.calls = 0

    def events(self, **options: object) -> EventPage:
        self.calls += 1
        if 1 < self.calls <= self._failures + 1:
            raise CatalogUnavailableError("cannot read it")
        return self._events(**options)  # type: ignore[arg-type]  # passed on


@pytest.fixture
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(paging, "_LEAST_PAUSE", 0.001)
    monkeypatch.setattr(paging, "_MOST_PAUSE", 0.002)
    return


@pytest.mark.usefixtures("_no_pauses")
def test_a_follower_goes_on_when_the_catalog_answers_again(catalog: CatalogBackend) -> None:
    append(catalog)
    broken = Broken(catalog, 5)
    events = follow_events(broken, after=0, dataset=None, actions=None)  # type: ignore[arg-type]  # what is used of it
    assert next(events).id == 1
    append(catalog)
    with pytest.warns(CatalogUnavailableWarning, match="cannot read it; new events are shown when") as warned:
        assert next(events).id == 2
    assert len(warned) == 1
    assert broken.calls == 7


@pytest.mark.usefixtures("_no_pauses")
def test_a_follower_gives_up_after_an_hour(catalog: CatalogBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    append(catalog)
    monkeypatch.setattr(paging, "_PATIENCE_SECONDS", 0.05)
    broken = Broken(catalog, 10**9)
    events = follow_events(broken, after=0, dataset=None, actions=None)  # type: ignore[arg-type]  # what is used of it
    next(events)
    with pytest.warns(CatalogUnavailableWarning), pytest.raises(CatalogUnavailableError, match="cannot read it"):
        next(events)
