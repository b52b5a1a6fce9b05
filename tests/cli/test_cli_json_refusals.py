"""With ``--format json`` a refusal is one JSON value on stderr, whatever was said before it, and stdout is empty."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

REFUSALS = {
    "diff with nothing": (["diff", "numbers:2.0.0", "numbers:9.*"], "version_not_found"),
    "diff with a yanked canonical one": (["diff", "words", "numbers"], "version_withdrawn"),
    "diff after a note": (["diff", "numbers:1.0.0", "numbers:9.0.0"], "version_not_found"),
    "diff without the second": (["diff", "numbers"], "usage"),
    "search for a mistake": (["search", "--sort", "colour", "numbers"], "usage"),
    "split of nothing": (["split", "cover", "nothing", "train"], "usage"),
    "show why": (["show", "numbers", "--why"], "version_withdrawn"),
    "show locked": (["show", "numbers:1.*", "--locked"], "locked"),
    "show at a time before": (["show", "numbers", "--at", "2001-01-01", "--why"], "dataset_not_found"),
    "resolve why, after a note": (["resolve", "numbers:1.0.0", "tran", "--why"], "split_not_found"),
    "versions": (["versions", "number"], "dataset_not_found"),
    "promote": (["promote", "numbers:1.0.0"], "version_withdrawn"),
    "deprecate": (["deprecate", "numbers:1.*", "--reason", "m"], "usage"),
    "yank": (["yank", "numbers:9.0.0", "--reason", "r"], "version_not_found"),
    "drop": (["drop", "numbers:9.0.0", "--reason", "r"], "version_not_found"),
    "alias set": (["alias", "set", "q", "numbers:2.0.0", "--expect", "2.0.0"], "alias_moved"),
    "alias rm": (["alias", "rm", "numbers@q"], "alias_not_found"),
    "experiment": (["experiment", "retire", "flag"], "experiment_not_found"),
    "config": (["config", "set-default", "words/fr"], "config_not_found"),
    "reservation": (["reservation", "release", "numbers:1.0.0"], "not_found"),
    "log": (["log", "--action", "yankk"], "usage"),
    "log verify": (["log", "verify", "--anchor", "0" * 64], "usage"),
    "build": (["build", "nowhere.at_all:Thing/config:1.*"], "builder_not_found"),
    "build dry": (["build", "digits:9.*", "--dry-run"], "version_not_found"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_is_one_json_value(numbers: Cli, case: str) -> None:
    arguments, code = REFUSALS[case]
    assert numbers("yank", "numbers:1.0.0", "--reason", "wrong").code == 0
    ran = numbers(*arguments, "--format", "json")
    assert (ran.error()["code"], ran.out) == (code, "")
    assert ran.code != 0
