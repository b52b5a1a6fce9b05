"""The event log on the command line."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import ANY

import pytest
from support.catalog_clocks import set_clocks

from registry.model import ACTIONS

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_the_head_that_was_printed_is_an_anchor(digits: Cli) -> None:
    head = digits("log", "verify", "--format", "json").json()["data"]["head"]
    assert f"\nhead: {head}\n" in digits("log", "verify").out
    assert digits("log", "verify", "--anchor", head).code == 0


def test_locations_have_the_times_of_their_events(digits: Cli, workspace: Path) -> None:
    copy = shutil.copytree(workspace / "datasets/digits/1.0.0", workspace / "copy")
    digits("mirror", "add", "digits", str(copy))
    listed = digits("mirror", "list", "digits", "--format", "json").json()["data"]["locations"]
    told = {event["action"]: event["at"] for event in digits("log", "--format", "json").json()["data"]}
    assert listed[0]["added_at"] <= told["publish"] < listed[1]["added_at"] == told["mirror-add"]


def test_every_known_action_may_be_asked_for(digits: Cli) -> None:
    for action in ACTIONS:
        assert digits("log", "--action", action).code == 0


def test_every_action_that_commands_write_is_known(numbers: Cli, workspace: Path) -> None:
    copy = shutil.copytree(workspace / "datasets/numbers/1.0.0", workspace / "copy")
    for call in (
        "promote numbers:2.0.0",
        "deprecate numbers:1.0.0 --reason m",
        "deprecate numbers:1.0.0 --undo",
        "yank numbers:1.0.0 --reason r",
        "yank numbers:1.0.0 --undo",
        "drop numbers:1.0.0 --reason r",
        "remove numbers:1.0.0",
        "drop numbers:1.0.0 --undo",
        "describe numbers:1.0.0 --license MIT",
        "rename numbers digits",
        "config set-default words/en",
        "config protect words",
        "config unprotect words",
        "alias set paper numbers",
        "alias rm numbers@paper",
        "experiment add flag --description d",
        "experiment set-default flag on",
        "experiment retire flag",
        f"mirror add numbers:1.0.0 {copy}",
        f"mirror remove numbers:1.0.0 {copy}",
        f"relocate numbers:1.0.0 {copy}",
        f"copy words --to {workspace}/other.db",
        f"config data-dir {workspace}/datasets --force",
        "log correct-clock --first 1 --last 1 --ahead 1s --yes",
    ):
        ran = numbers(*call.split())
        assert ran.code == 0, (call, ran.err)
    written = {
        one["action"]
        for catalog in ("catalog.db", "other.db")
        for one in numbers("log", "--limit", "1000", "--catalog", str(workspace / catalog), "--format", "json").json()[
            "data"
        ]
    }
    assert (
        set(ACTIONS) - {"attach", "fingerprint", "remove-secrets", "producer", "propose", "reject"}
        <= written
        <= set(ACTIONS)
    )


@pytest.fixture
def ahead(digits: Cli) -> Cli:
    """The digits, and an alias that was set by a clock that was 365 days ahead."""
    with set_clocks(timedelta(days=365)):
        assert digits("alias", "set", "paper", "digits").code == 0
    return digits


def test_a_wrong_clock_is_reported_with_the_command_that_corrects_it(ahead: Cli) -> None:
    ran = ahead("alias", "set", "best", "digits")
    assert ran.code == 1
    assert re.fullmatch(
        r"error: event 3 of sqlite:///\S+ is dated \S+ \S+ UTC, 365 days after the clock of this machine, \S+ \S+ UTC\n"
        r"hint: Compare the clock of this machine with another clock: date -u. If it is behind, set it, and run the "
        r"command again. If it is right, a wrong clock dated the event: registry log correct-clock --dry-run\n",
        ran.err,
    )


def test_a_correction_is_shown_confirmed_and_logged(ahead: Cli) -> None:
    planned = ahead("log", "correct-clock", "--ahead", "365d", "--dry-run")
    assert planned.code == 0
    head, row, last = planned.out.splitlines()
    assert head.split() == ["ID", "ACTION", "DATASET", "STAMPED", "(UTC)", "READ", "AT", "(UTC)"]
    year = datetime.now(UTC).year
    assert [words[:4] for words in row.split()] == ["3", "alia", "digi", f"{year + 1}", ANY, f"{year}", ANY]
    assert last == "would be corrected: 1 event"

    refused = ahead("log", "correct-clock", "--ahead", "365d")
    assert (refused.code, refused.err) == (
        2,
        "error: 1 event would be read at other times: not confirmed\n"
        "hint: Add --yes to make the change, or --dry-run to show it.\n",
    )
    done = ahead("log", "correct-clock", "--ahead", "365d", "--yes")
    assert (done.code, done.out.splitlines()[-1]) == (0, "corrected: 1 event")
    again = ahead("log", "correct-clock", "--yes")
    assert again.out.startswith("nothing to correct: the clock shows ")
    lines = ahead("log").out.splitlines()
    assert re.search(r"alias-set +digits:1.0.0 +paper: none -> 1.0.0 \(stamped \S+ \S+\)$", lines[3])
    assert re.search(r"correct-clock +event 3$", lines[4])
    assert ahead("alias", "set", "best", "digits").code == 0
    events = ahead("log", "--format", "json").json()["data"]
    assert ["stamped_at" in one for one in events] == [False, False, True, False, False]
    assert events[2]["at"][:4] == f"{year}"
    assert ahead("log", "verify").code == 0


def test_programs_get_both_times_of_a_correction(ahead: Cli) -> None:
    answer = ahead("log", "correct-clock", "--ahead", "365d", "--dry-run", "--format", "json").json()
    assert answer["schema"] == "registry.log.correct-clock/1"
    assert answer["data"].keys() == {"clock", "is_dry_run", "events"}
    (event,) = answer["data"]["events"]
    assert (event["id"], event["action"], event["dataset"], event["version"]) == (3, "alias-set", "digits", "1.0.0")
    apart = datetime.fromisoformat(event["stamped_at"]) - datetime.fromisoformat(event["at"])
    assert apart == timedelta(days=365)
