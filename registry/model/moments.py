"""The text form of moments and durations."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from typing import Final

from registry.errors import UsageError

_DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MOMENT: Final = (
    rf"(?P<date>{_DATE})"
    r"(?P<time>[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)


def parse_moment(text: str, *, end: bool) -> datetime:
    """The moment that ``text`` names, in UTC: ``2026-11-21``, or ``2026-11-21T10:00``, with a zone or in UTC.

    A date means the first moment of that day or, with ``end``, its last moment.

    >>> parse_moment("2026-11-21", end=True).isoformat()
    '2026-11-21T23:59:59.999999+00:00'
    >>> parse_moment("2026-11-21 10:00+02:00", end=True).isoformat()
    '2026-11-21T08:00:00+00:00'

    Raises:
        UsageError: ``text`` is malformed, or the day or hour does not exist.
    """
    match = re.fullmatch(_MOMENT, text)
    try:
        if match is None:
            raise ValueError(text)
        if match["time"] is None:
            day = datetime.combine(datetime.fromisoformat(text).date(), time.min, tzinfo=UTC)
            return day + timedelta(days=1, microseconds=-1) if end else day
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"invalid date {text[:60]!r}",
            hint="Write a day or a moment, e.g. 2026-11-21 or 2026-11-21T10:00. Without a time zone, it is in UTC.",
            details={"date": text[:60]},
        ) from error


_DURATION: Final = r"(?P<count>[0-9]{1,6})(?P<unit>[smhdw])"
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_duration(text: str) -> timedelta:
    """The duration that ``text`` names: a number and ``s``, ``m``, ``h``, ``d`` or ``w``; ``0`` needs no unit.

    >>> parse_duration("7d"), parse_duration("90m")
    (datetime.timedelta(days=7), datetime.timedelta(seconds=5400))

    Raises:
        UsageError: ``text`` is malformed.
    """
    match = re.fullmatch(_DURATION, "0s" if text == "0" else text)
    if match is None:
        raise UsageError(
            f"invalid duration {text[:60]!r}",
            hint="Write a number and s, m, h, d or w, e.g. 7d for seven days.",
            details={"duration": text[:60]},
        )
    return timedelta(**{_UNITS[match["unit"]]: int(match["count"])})


def describe_moment(moment: datetime) -> str:
    """A moment for people: to the second, or as the end of a day.

    >>> describe_moment(datetime(2026, 11, 21, 10, 0, tzinfo=UTC))
    '2026-11-21 10:00:00 UTC'
    """
    if (moment.hour, moment.minute, moment.second, moment.microsecond) == (23, 59, 59, 999_999):
        return f"the end of {moment:%Y-%m-%d} UTC"
    precise = f".{moment.microsecond:06}" if moment.microsecond else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{precise} UTC"
