"""Which moment does a person mean by a date? ISO dates and date-times, read as moments in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from typing import Final

from registry.errors import UsageError

_DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MOMENT: Final = re.compile(
    rf"(?P<date>{_DATE})"
    r"(?P<time>[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)


def parse_moment(text: str, *, end: bool) -> datetime:
    """The moment that ``text`` names, in UTC: ``2026-11-21``, or ``2026-11-21T10:00``, with a zone or in UTC.

    A date alone is a whole day: its first moment, or its last one where ``end`` says so.

    >>> parse_moment("2026-11-21", end=True).isoformat()
    '2026-11-21T23:59:59.999999+00:00'
    >>> parse_moment("2026-11-21 10:00+02:00", end=True).isoformat()
    '2026-11-21T08:00:00+00:00'

    Raises:
        UsageError: it is neither, or there is no such day or hour.
    """
    match = _MOMENT.fullmatch(text)
    try:
        if match is None:
            raise ValueError(text)
        if match["time"] is None:
            day = datetime.combine(datetime.fromisoformat(text).date(), time.min, tzinfo=UTC)
            return day + timedelta(days=1, microseconds=-1) if end else day
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"invalid date {text[:60]!r}",
            hint="Write a day or a moment, e.g. 2026-11-21 or 2026-11-21T10:00; without a zone it is UTC.",
            details={"date": text[:60]},
        ) from error


def describe_moment(moment: datetime) -> str:
    """A moment for people: the last one of a day as that day's end, else to the second.

    >>> describe_moment(datetime(2026, 11, 21, 10, 0, tzinfo=UTC))
    '2026-11-21 10:00:00 UTC'
    """
    if (moment.hour, moment.minute, moment.second, moment.microsecond) == (23, 59, 59, 999_999):
        return f"the end of {moment:%Y-%m-%d} UTC"
    precise = f".{moment.microsecond:06}" if moment.microsecond else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{precise} UTC"
