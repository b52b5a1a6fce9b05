"""``registry config protect --two-persons`` and ``registry proposal``."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from support.catalog_clocks import set_clocks
from support.prepared_samples import prepare
from support.service_calls import authenticated

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


@pytest.fixture
def ruled(cli: Cli, tmp_path: Path) -> Cli:
    """A catalog with animals 1.0.0, which is canonical, and 2.0.0; changes of animals need two persons."""
    for number, shards in (("1.0.0", 1), ("2.0.0", 2)):
        cli("publish", str(prepare(tmp_path / number, number, shards=shards)), "--no-promote")
    cli("promote", "animals:1.0.0")
    assert cli("config", "protect", "animals", "--two-persons").out == (
        "animals is protected: only 'registry promote' changes its canonical version\n"
        "Promotions need the approval of another person: see registry proposal list\n"
    )
    return cli


@pytest.fixture
def act(ruled: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs a command as a person whom a service has authenticated."""

    def run(actor: str, *arguments: str) -> object:
        monkeypatch.setenv("REGISTRY_ACTOR", actor)
        with authenticated(actor):
            return ruled(*arguments)

    return run


def test_one_person_proposes_and_another_one_approves(act: Cli) -> None:
    would = act("ann", "promote", "animals:2.0.0", "--dry-run").out.splitlines()[0]
    assert would == "would propose: promote animals:2.0.0; it would wait until another person approves it"
    first, *effects = act("ann", "promote", "animals:2.0.0").out.splitlines()
    proposed = re.fullmatch(
        r"proposal (\d+) of ann waits: promote animals:2\.0\.0, until \d{4}-\d\d-\d\d\. "
        r"Another person approves it: registry proposal approve \1",
        first,
    )
    assert proposed
    assert any("animals:2.0.0" in line or "2.0.0" in line for line in effects)
    number = proposed[1]
    listed = act("bob", "proposal", "list", "--format", "json").json()["data"]
    assert [(it["id"], it["version"], it["before"], it["proposed_by"]) for it in listed] == [
        (int(number), "2.0.0", "1.0.0", "ann")
    ]
    assert "promote animals:2.0.0" in act("bob", "proposal", "list", "animals").out

    own = act("ann", "proposal", "approve", number)
    assert (own.code, own.err) == (
        1,
        f"error: ann cannot approve proposal {number}, because ann made it: it needs another person\n"
        f"hint: To withdraw it: registry proposal reject {number}\n",
    )
    assert act("bob", "proposal", "approve", number, "--dry-run").out == (
        f"would approve proposal {number} of ann: promote animals:2.0.0\n"
    )
    assert (
        act("bob", "proposal", "approve", number).out == f"approved proposal {number} of ann: promote animals:2.0.0\n"
    )
    assert act("bob", "show", "animals", "--format", "json").json()["data"]["version"] == "2.0.0"
    assert "1.0.0 -> 2.0.0, proposed by ann" in act("bob", "log").out
    assert act("bob", "log", "verify").code == 0


def test_the_end_of_the_protection_is_proposed_and_rejected(act: Cli) -> None:
    answer = act("ann", "config", "unprotect", "animals", "--format", "json").json()["data"]
    assert (answer["is_change"], answer["proposal"]["action"], answer["two_persons"]) == (False, "unprotect", False)
    number = str(answer["proposal"]["id"])
    assert act("bob", "proposal", "reject", number, "--reason", "not now").out == (
        f"rejected proposal {number} of ann: unprotect animals\n"
    )
    gone = act("bob", "proposal", "approve", number)
    assert (gone.code, gone.err) == (
        3,
        f"error: no pending proposal {number}: it was decided or replaced, has expired, or never existed\n"
        "hint: To list the pending proposals: registry proposal list\n",
    )
    assert act("bob", "proposal", "list").err == "No change waits for approval.\n"
    assert "proposed by ann, not now" in act("bob", "log").out


def test_an_expired_proposal_is_not_listed(act: Cli) -> None:
    act("ann", "promote", "animals:2.0.0")
    with set_clocks(timedelta(days=15)):
        assert act("bob", "proposal", "list", "--format", "json").json()["data"] == []


def test_an_sqlite_file_proves_nobody(ruled: Cli) -> None:
    refused = ruled("promote", "animals:2.0.0")
    assert (refused.code, refused.err) == (
        1,
        "error: this change needs two persons, and an SQLite file does not prove who opens it\n"
        "hint: Propose and approve it through the service of the catalog: docs/service.md\n",
    )


def test_a_name_that_needs_two_persons_says_so_and_a_mistyped_one_is_refused(ruled: Cli) -> None:
    assert "protected    animals: promotions need two persons: see registry proposal\n" in ruled("show", "animals").out
    assert ruled("show", "animals", "--format", "json").json()["data"]["needs_two_persons"] is True
    assert "1.0.0 (protected by two persons)" in ruled("config", "list", "animals").out
    assert [
        it["needs_two_persons"] for it in ruled("config", "list", "animals", "--format", "json").json()["data"]
    ] == [True]
    assert ruled("proposal", "list", "animals").err == "No change waits for approval.\n"
    mistyped = ruled("proposal", "list", "animal")
    assert (mistyped.code, mistyped.err) == (
        3,
        "error: no dataset 'animal' in the catalog\nhint: Did you mean 'animals'? There are: animals.\n",
    )
    assert ruled("config", "list", "animals/x").err == "error: no config 'x' in animals\n"
