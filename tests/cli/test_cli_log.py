"""The event log on the command line."""

from __future__ import annotations

import re
import shutil
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import ANY

import pytest
from support.catalog_clocks import set_clocks

from registry.model import ACTIONS

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


@pytest.fixture
def moved(digits: Cli) -> Cli:
    """The digits, published by their builder, with an alias and an experiment."""
    digits("alias", "set", "paper", "digits", "--reason", "As\nsubmitted.")
    digits("experiment", "add", "new_shuffle", "--description", "Shuffle by the hash.")
    return digits


def test_the_log_says_who_did_what_the_newest_last(moved: Cli) -> None:
    head, *rows = moved("log").out.splitlines()
    assert head.split() == ["ID", "AT", "(UTC)", "WHO", "ACTION", "DATASET", "DETAILS"]
    # Who claims to act, and beside it whom the operating system knows.
    words = [re.sub(r"tester +\(unverified, claimed by \S+@\S+\)", "tester", row).split() for row in rows]
    assert "tester (unverified, claimed by " in rows[2]
    assert words[0][4:] == ["data-dir", words[0][5]]
    assert words[1][4:] == ["publish", "digits:1.0.0", "1,797", "examples,", "sha256:fb3da6c4c4c9,", "canonical"]
    assert words[2][3:] == [
        "tester",
        "alias-set",
        "digits:1.0.0",
        "paper:",
        "none",
        "->",
        "1.0.0",
        "(As",
        "submitted.)",
    ]
    assert words[3][3:] == ["tester", "experiment-add", "new_shuffle,", "off", "by", "default"]


def test_the_log_is_filtered(moved: Cli) -> None:
    def ids(*arguments: str) -> list[int]:
        answer = moved("log", *arguments, "--format", "json").json()
        assert answer["schema"] == "registry.log/1"
        return [one["id"] for one in answer["data"]]

    assert ids() == [1, 2, 3, 4]
    assert ids("--limit", "1") == [4]
    assert ids("--dataset", "digits") == [2, 3]
    assert ids("--action", "publish", "--action", "experiment-add") == [2, 4]
    assert ids("--since", "2020-01-01", "--until", "2020-01-01") == []
    assert ids("--since", "2020-01-01T10:00") == [1, 2, 3, 4]
    assert moved("log", "--until", "2020-01-01").err == "No events match these options.\n"


def test_programs_get_every_detail(moved: Cli) -> None:
    event = moved("log", "--action", "alias-set", "--format", "json").json()["data"][0]
    assert event["details"] == {"alias": "paper", "before": None, "after": "1.0.0", "message": "As\nsubmitted."}
    assert event["recorded_by"].endswith(f"@{socket.gethostname()}")
    assert (event["session_user"], event["is_verified"]) == (None, False)
    assert (event["actor"], event["dataset"], event["version"], len(event["hash"])) == ("tester", "digits", "1.0.0", 64)


def test_a_sound_log_holds_and_has_a_head(moved: Cli) -> None:
    sound = moved("log", "verify")
    assert sound.code == 0
    first, second, third, last = sound.out.splitlines()
    assert third == "Reservations have no events, so they cannot be verified."
    assert last == "No file was opened: registry verify --all compares the files with these rows."
    assert first == "the log contains: 4 events, 1 version, 4 shards"
    told = moved("log", "verify", "--format", "json").json()
    assert told["schema"] == "registry.log.verify/1"
    assert told["data"] == {
        "is_sound": True,
        "num_events": 4,
        "num_versions": 1,
        "num_shards": 4,
        "head": second.removeprefix("head: "),
        "num_faults": 0,
        "faults": [],
    }
    assert moved("log", "verify", "--anchor", told["data"]["head"]).code == 0


def test_what_was_changed_behind_the_log_is_named(moved: Cli, workspace: Path) -> None:
    with closing(sqlite3.connect(workspace / "catalog.db", isolation_level=None)) as stranger:
        stranger.execute("UPDATE dataset_version SET state = 'yanked', state_message = 'wrong labels'")
        stranger.execute("DELETE FROM alias")
    bad = moved("log", "verify")
    assert bad.code == 5
    assert bad.out == (
        "digits@paper does not exist; its events say it points to 1.0.0\n"
        "digits:1.0.0 is yanked: wrong labels; its events say supported\n"
    )
    assert bad.err == (
        "error: the catalog does not match its event log: "
        "digits@paper does not exist; its events say it points to 1.0.0, and 1 more\n"
        "hint: Another program changed the database. Restore a copy that verifies, and compare: registry log.\n"
    )
    told = moved("log", "verify", "--format", "json")
    assert (told.error()["code"], told.error()["details"]["num_faults"]) == ("log_tampered", 2)
    assert told.json()["data"]["faults"][0]["where"] == "digits@paper"


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
