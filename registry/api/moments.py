"""At which moment does a caller want to look? Text, a day or a moment, read here."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import TypeAlias

from registry.errors import UsageError
from registry.model import parse_moment

Moment: TypeAlias = str | date | datetime


def read_moment(at: Moment | None) -> datetime | None:
    """The moment that a caller gave, in UTC; a day means its end.

    >>> read_moment("2026-11-21").isoformat()
    '2026-11-21T23:59:59.999999+00:00'

    Raises:
        UsageError: no date, or a datetime without a time zone.
    """
    if at is None:
        return None
    if isinstance(at, str):
        return parse_moment(at, end=True)
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise UsageError(
                "a time without a time zone is not one moment", hint="Give it one, e.g. tzinfo=datetime.UTC."
            )
        try:
            return at.astimezone(UTC)
        except OverflowError as error:
            raise UsageError(f"{at} is out of the range of dates") from error
    if isinstance(at, date):
        return datetime.combine(at, time.max, tzinfo=UTC)
    raise UsageError(f"a moment is a text, a date or a datetime, not {type(at).__name__}")
