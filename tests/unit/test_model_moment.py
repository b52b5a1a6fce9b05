from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from registry.errors import UsageError
from registry.model import parse_moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-21T10:05", "2026-11-21T10:05:00+00:00"),
        ("2026-11-21 10:05:06.5", "2026-11-21T10:05:06.500000+00:00"),
        ("2026-11-21T10:05Z", "2026-11-21T10:05:00+00:00"),
        ("2026-11-21T10:05+0200", "2026-11-21T08:05:00+00:00"),
        ("2024-02-29T00:00-01:30", "2024-02-29T01:30:00+00:00"),
    ],
)
def test_a_date_time_is_that_very_moment(text: str, moment: str) -> None:
    assert parse_moment(text, end=True).isoformat() == parse_moment(text, end=False).isoformat() == moment


def test_a_day_covers_all_of_its_microseconds() -> None:
    start, end = parse_moment("2026-11-21", end=False), parse_moment("2026-11-21", end=True)
    assert start == datetime(2026, 11, 21, tzinfo=UTC)
    assert end + timedelta(microseconds=1) == datetime(2026, 11, 22, tzinfo=UTC)
    assert parse_moment("9999-12-31", end=True).year == 9999


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2026-13-01", "2026-02-30", "20261121", "2026-W01", "2026-11-21T25:00", "2026-11-21T10",
     "٢٠٢٦-١١-٢١", "0001-01-01T00:00+05:00", "9999-12-31T23:59-05:00", " 2026-11-21", "2026-11-21\n"],
)  # fmt: skip
def test_an_invalid_date_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_moment(text, end=False)
    assert caught.value.message == f"invalid date {text!r}"
    assert caught.value.hint == (
        "Write a day or a moment, e.g. 2026-11-21 or 2026-11-21T10:00. Without a time zone, it is in UTC."
    )
