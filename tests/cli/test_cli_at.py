"""Look-ups of the past, and locked ones, on the command line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


@pytest.fixture
def then(numbers: Cli) -> str:
    """A moment at which numbers 1.1.1 stood as it was published; it is yanked since, and 2.0.0 canonical."""
    moment = datetime.now(UTC).isoformat()
    numbers("promote", "numbers:2.0.0")
    numbers("yank", "numbers:1.1.1", "--reason", "bad")
    numbers("drop", "words/de:2.0.0", "--reason", "gone")
    numbers("config", "set-default", "words/en")
    return moment


def when(moment: str) -> str:
    return f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M:%S.%f} UTC"


def test_every_look_up_command_can_look_back(numbers: Cli, then: str) -> None:
    notes = [
        f"note: at {when(then)}: numbers:1.1.1 is experimental: the canonical version is 1.0.0",
        "note: since then numbers:1.1.1 is yanked: bad",
    ]
    for command in (
        ["show", "numbers:1.*"],
        ["resolve", "numbers:1.*", "train"],
        ["read", "numbers:1.*", "train"],
        ["verify", "numbers:1.*"],
        ["split", "check", "numbers:1.*", "train[:50%]", "train[50%:]"],
    ):
        ran = numbers(*command, "--at", then, "--format", "json")
        assert ran.code == 0, ran.err
        assert (ran.json()["data"]["version"], ran.json()["warnings"]) == ("1.1.1", notes)
        assert numbers(*command, "--at", then).err.splitlines() == notes
        assert numbers(*command, "--format", "json").json()["data"]["version"] == "1.1.0"
    assert numbers("show", "words", "--at", then, "--format", "json").json()["data"]["dataset"] == "words/de"
    statuses = [
        row["status"] for row in numbers("versions", "numbers", "--at", then, "--format", "json").json()["data"]
    ]
    assert statuses == ["experimental", "experimental", "experimental", "canonical"]
    assert len(numbers("versions", "words/de", "--at", then, "--format", "json").json()["data"]) == 2
    why = numbers("resolve", "numbers", "train", "--at", then, "--why").out.splitlines()[1:3]
    assert why == [
        f"  By the event log, at {when(then)}:",
        "  numbers does not name a version: 1.0.0 is the canonical one.",
    ]


def test_what_cannot_be_answered_says_why(numbers: Cli, then: str) -> None:
    dropped = numbers("resolve", "words:2.*", "train", "--at", then)
    assert (dropped.code, dropped.err) == (
        6,
        f"error: words:2.*.* resolved to words/de:2.0.0 at {when(then)}, "
        "but that version has been dropped since: gone\n"
        "hint: List the remaining versions: registry versions words/de\n",
    )
    early = numbers("show", "numbers", "--at", "2001-01-01")
    assert early.code == 3
    assert early.err.startswith(
        "error: numbers was not in the catalog at the end of 2001-01-01 UTC\nhint: Its first version was published at 2"
    )
    wrong = numbers("show", "numbers", "--at", "yesterday")
    assert (wrong.code, wrong.err) == (
        2,
        "error: invalid date 'yesterday'\n"
        "hint: Write a day or a moment, e.g. 2026-11-21 or 2026-11-21T10:00. Without a time zone, it is in UTC.\n",
    )


def test_a_locked_look_up_of_the_past_says_what_it_was(numbers: Cli, then: str) -> None:
    ran = numbers("resolve", "numbers:^1", "train", "--locked", "--at", then)
    assert (ran.code, ran.err) == (
        6,
        "error: numbers:^1 does not name one version exactly, and look-ups are locked\n"
        f"hint: At {when(then)} it resolved to numbers:1.1.1. Write that.\n",
    )
