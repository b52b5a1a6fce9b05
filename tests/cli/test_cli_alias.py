"""Aliases on the command line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_the_life_of_an_alias(digits: Cli) -> None:
    empty = digits("alias", "list")
    assert (empty.code, empty.out) == (0, "")
    assert empty.err == "The catalog has no aliases. Set one with: registry alias set NAME REF\n"
    assert digits("alias", "set", "paper", "digits:1.*", "--dry-run").out == "would set digits@paper to 1.0.0\n"
    assert digits("alias", "set", "paper", "digits:1.*", "--reason", "As submitted.").out == (
        "set digits@paper to 1.0.0\n"
    )
    assert digits("alias", "set", "paper", "digits").out == "digits@paper points to 1.0.0 already\n"
    head, row = digits("alias", "list", "digits").out.splitlines()
    assert head.split() == ["ALIAS", "VERSION", "STATE", "SET", "(UTC)", "BY"]
    assert [row.split()[place] for place in (0, 1, 2, -1)] == ["digits@paper", "1.0.0", "supported", "tester"]
    assert digits("resolve", "digits@paper", "train[:1]").code == 0
    assert digits("alias", "rm", "digits@paper", "--dry-run").out == (
        "would remove digits@paper, it pointed to 1.0.0\n"
    )
    assert digits("alias", "rm", "digits@paper", "--expect", "1.0.0").out == (
        "removed digits@paper, it pointed to 1.0.0\n"
    )
    head, first, second = digits("alias", "history", "digits@paper").out.splitlines()
    assert head.split() == ["AT", "(UTC)", "WHO", "FROM", "TO", "MESSAGE"]
    assert first.split()[2:] == ["tester", "none", "1.0.0", "As", "submitted."]
    assert second.split()[2:] == ["tester", "1.0.0", "none"]


def test_a_lost_race_is_a_conflict_that_names_the_winner(digits: Cli) -> None:
    digits("alias", "set", "paper", "digits")
    lost = digits("alias", "set", "paper", "digits", "--expect", "none")
    assert lost.code == 4
    assert lost.err.startswith("error: digits@paper points to 1.0.0, set by tester at ")
    assert lost.err.endswith(
        " UTC; you expected no alias\nhint: To see its changes: registry alias history digits@paper\n"
    )
    told = digits("alias", "rm", "digits@paper", "--expect", "2.0.0", "--format", "json")
    assert (told.code, told.error()["code"], told.error()["details"]["found"]) == (4, "alias_moved", "1.0.0")


def test_programs_get_the_same(digits: Cli) -> None:
    change = digits("alias", "set", "paper", "digits", "--format", "json").json()
    assert change["schema"] == "registry.alias.set/1"
    assert change["data"] == {
        "alias": "digits@paper",
        "before": None,
        "after": "1.0.0",
        "changed": True,
        "would_change": True,
        "dry_run": False,
    }
    (listed,) = digits("alias", "list", "--format", "json").json()["data"]
    assert {name: listed[name] for name in ("reference", "dataset", "alias", "version", "state", "set_by")} == {
        "reference": "digits@paper",
        "dataset": "digits",
        "alias": "paper",
        "version": "1.0.0",
        "state": "supported",
        "set_by": "tester",
    }
    (move,) = digits("alias", "history", "digits@paper", "--format", "json").json()["data"]
    assert (move["actor"], move["before"], move["after"], move["message"]) == ("tester", None, "1.0.0", "")
    gone = digits("alias", "rm", "digits@paper", "--format", "json").json()
    assert (gone["schema"], gone["data"]["before"], gone["data"]["after"]) == ("registry.alias.rm/1", "1.0.0", None)


@pytest.mark.parametrize(
    ("arguments", "code", "message", "hint"),
    [
        (
            ["set", "1.0.0", "digits"],
            2,
            "invalid alias '1.0.0'",
            "An alias is a letter, then letters, digits and '_', '.', '-', e.g. mnist@paper.",
        ),
        (
            ["set", "digits@paper", "digits"],
            2,
            "'digits@paper' is not the name of an alias",
            "Leave the dataset out: registry alias set paper digits",
        ),
        (
            ["set", "paper", "digits", "--expect", "1.x"],
            2,
            "invalid version '1.x'",
            "Write a version as MAJOR.MINOR.PATCH, numbers without leading zeros, e.g. 3.0.1.",
        ),
        (
            ["rm", "paper"],
            2,
            "paper does not name an alias",
            "Write dataset@alias, e.g. mnist@paper. To list aliases: registry alias list",
        ),
        (
            ["history", "digits:1.0.0"],
            2,
            "digits:1.0.0 does not name an alias",
            "Write dataset@alias, e.g. mnist@paper. To list aliases: registry alias list",
        ),
        (
            ["history", "digits@paper"],
            3,
            "no alias 'paper' in digits",
            "It has no aliases. Set one with: registry alias set paper digits",
        ),
        (["list", "digits:1.0.0"], 2, "digits:1.0.0: name a dataset without a version", "Write digits."),
        (["list", "digit"], 3, "no dataset 'digit' in the catalog", "Did you mean 'digits'? There are: digits."),
    ],
)
def test_mistakes_are_explained(digits: Cli, arguments: list[str], code: int, message: str, hint: str) -> None:
    ran = digits("alias", *arguments)
    assert (ran.code, ran.err) == (code, f"error: {message}\nhint: {hint}\n")


def test_who_expects_something_of_an_alias_that_never_was_is_not_sent_to_its_history(digits: Cli) -> None:
    first = digits("alias", "set", "paper", "digits", "--expect", "1.0.0")
    assert (first.code, first.err) == (
        4,
        "error: digits@paper does not exist; you expected 1.0.0\n"
        "hint: It was never set; to set it for the first time: --expect none\n",
    )
    assert digits("alias", "set", "paper", "digits", "--expect", "none").code == 0
    other = digits("alias", "rm", "digits@other", "--expect", "1.0.0")
    assert (other.code, other.err) == (
        4,
        "error: digits@other does not exist; you expected 1.0.0\n"
        "hint: It was never set; to list aliases: registry alias list digits\n",
    )
    digits("alias", "rm", "digits@paper")
    removed = digits("alias", "set", "paper", "digits", "--expect", "1.0.0")
    assert removed.err.endswith("\nhint: To see its changes: registry alias history digits@paper\n")
    assert digits("alias", "history", "digits@paper").code == 0
