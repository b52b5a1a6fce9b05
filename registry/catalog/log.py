"""Implements ``LogCalls`` of the catalog protocol in SQL: pages of events, and their verification."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from registry.catalog.backend import EventPage
from registry.catalog.events import find_datasets, read_page
from registry.catalog.session import SqlGroup, reading, require_known_schema, transact
from registry.catalog.tables import event, split
from registry.errors import UsageError
from registry.model import Event, describe_moment, whole_number

if TYPE_CHECKING:
    from datetime import timedelta

    from registry.catalog.backend import EventFilter
    from registry.catalog.outcomes import ClockCorrection, LogReport
    from registry.model import Advance

_MAX_LIMIT = 2**31 - 1
_MOST_FOLLOWED: Final = 1000
_MOST_SECONDS: Final = 30
_PAUSE_SECONDS: Final = 0.5


class SqlLog(SqlGroup):
    """``LogCalls`` in SQL. Each page is one transaction, so that a slow reader does not block others."""

    def page(
        self, event_filter: EventFilter, *, after: int = 0, limit: int = 1000, newest: int | None = None
    ) -> tuple[Event, ...]:
        since, until = event_filter.since, event_filter.until
        if any(moment is not None and moment.tzinfo is None for moment in (since, until)):
            raise UsageError("a time needs a time zone", hint="Give it one, e.g. tzinfo=datetime.UTC.")
        if since is not None and until is not None and since > until:
            raise UsageError(
                f"since ({describe_moment(since)}) is after until ({describe_moment(until)})",
                hint="Exchange the two moments.",
            )
        for number in (limit, newest):
            if number is not None and not 1 <= whole_number(number, "limit") <= _MAX_LIMIT:
                raise UsageError(f"a log shows from 1 to {_MAX_LIMIT:,} events, not {number!s:.40}")
        with reading(self._engine) as connection:
            datasets = None if event_filter.dataset is None else find_datasets(connection, event_filter.dataset)
            return read_page(
                connection,
                since=since,
                until=until,
                datasets=datasets,
                actions=event_filter.actions,
                before=event_filter.before,
                after=after,
                limit=limit,
                newest=newest,
            )

    def verify(self, *, anchor: str | None = None, advance: Advance | None = None) -> LogReport:
        from registry.catalog.log_verify import verify_log
        from registry.catalog.search import index_faults

        require_known_schema(self._engine)
        index = index_faults(self._engine)
        with reading(self._engine) as connection:
            return verify_log(connection, anchor=anchor, advance=advance, index=index)

    def correct_clock(
        self,
        *,
        first: int | None = None,
        last: int | None = None,
        ahead: timedelta | None = None,
        actor: str,
        dry_run: bool = False,
    ) -> ClockCorrection:
        from registry.catalog.corrections import correct_clock  # hardly anybody needs it

        def action(connection: sa.Connection) -> ClockCorrection:
            return correct_clock(connection, first=first, last=last, ahead=ahead, actor=actor, dry_run=dry_run)

        return transact(self._engine, action, actor=actor, dry_run=dry_run)

    def num_rows(self) -> int:
        with reading(self._engine) as connection:
            events = connection.execute(sa.select(sa.func.count()).select_from(event)).scalar_one()
            shards = connection.execute(sa.select(sa.func.sum(split.c.num_shards))).scalar_one()
        return int(events) + int(shards or 0)


def events(
    engine: sa.Engine,
    *,
    after: int = 0,
    limit: int = 1000,
    wait: float = 0,
    dataset: str | None = None,
    actions: tuple[str, ...] | None = None,
) -> EventPage:
    """``CatalogBackend.events``. While it waits, it holds no connection."""
    if not 0 < whole_number(limit, "limit") <= _MOST_FOLLOWED or not 0 <= whole_number(after, "after") <= _MAX_LIMIT:
        raise UsageError(f"expected 1 to {_MOST_FOLLOWED:,} events after an id of 0 or more, not {limit} after {after}")
    if not (math.isfinite(wait) and 0 <= wait <= _MOST_SECONDS):
        raise UsageError(f"expected a wait of 0 to {_MOST_SECONDS} seconds, not {wait:g}")
    end = time.monotonic() + wait
    while True:
        with reading(engine) as connection:
            newest = connection.execute(sa.select(sa.func.max(event.c.id))).scalar() or 0
            if newest < after:
                raise UsageError(
                    f"the log ends with event {newest}, before event {after}",
                    hint="It is another log than the one that was followed, or it was restored from an older backup.",
                    details={"newest": newest},
                )
            datasets = None if dataset is None else find_datasets(connection, dataset)
            page = read_page(connection, datasets=datasets, actions=actions, after=after, limit=limit)
        after = page[-1].id if len(page) == limit else newest  # what follows it is not wanted
        if page or time.monotonic() >= end:
            return EventPage(events=page, after=after)
        time.sleep(max(min(_PAUSE_SECONDS, end - time.monotonic()), 0))
