"""Whatever comes between two statements of an action, its outcome is that of before or of after."""

from __future__ import annotations

import difflib
import os
import pprint
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from support.catalog_between import Action, Ending, Rivals, changes, look_ups, postgres_rivals, sqlite_rivals

CHANGES = {one.name: one for one in changes()}
LOOK_UPS = {one.name: one for one in look_ups()}
ACTIONS = {**LOOK_UPS, **CHANGES}

SAMPLED = {"sqlite": 10, "postgresql": 5}
"""Pairs of actions that meet; three times as many in the long test. REGISTRY_PAIRS=500 takes 500, =all all of them."""

APPEARING = {
    "publish fresh:1.0.0": (
        "find fresh",
        "find fresh:1.*",
        "find fresh@new",
        "versions fresh",
        "log fresh",
        "aliases fresh",
        "configs fresh",
        "yank fresh:1.0.0",
        "set fresh@new",
        "publish fresh:1.0.0, content=other",
    ),
    "publish fresh/conf:1.0.0": ("find fresh", "find fresh/conf", "default fresh/conf", "publish fresh:1.0.0"),
    "default pair/right": ("find pair", "configs pair"),
    "add newer": (
        "default newer off",
        "experiment defaults",
        "publish many/a:2.1.0, promote=False, experiments={'newer': True}",
    ),
    "protect all": ("publish alone:4.0.0, promote=None", "publish alone:3.0.0", "datasets"),
    "publish alone:3.0.0": ("publish alone:4.0.0, promote=None", "protect alone", "find alone"),
    "rename alone": ("find alone", "find solo", "publish alone:3.0.0", "set alone@paper", "rename pair"),
    "rename many": (
        "find fresh",
        "publish fresh/conf:1.0.0",
        "publish many/a:2.0.0, promote=None, experiments={'other': False}",
    ),
}
"""What is added in the middle of what looks for it."""


@pytest.fixture(params=["sqlite", "postgresql"])
def rivals(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rivals]:
    if request.param == "sqlite":
        with sqlite_rivals(request.getfixturevalue("sqlite_template"), tmp_path) as made:
            yield made
    else:
        with postgres_rivals(request.getfixturevalue("postgres_server")) as made:
            yield made


def require_serial(rivals: Rivals, first: Action, second: Action) -> Counter[str]:
    """Let them meet at every place; how many places there were, and at how many SQLite's lock excludes the second."""
    counted: Counter[str] = Counter()
    before, after = rivals.in_turn(first, second)
    for place in rivals.places(first):
        if place.is_locked and rivals.monitor is None:  # nobody writes to SQLite in the middle of a write
            counted["excluded by the lock"] += 1
            continue
        counted["places"] += 1
        found = rivals.meet(first, second, place)
        where = f"{second.name!r} before statement {place.number} of {first.name!r}: {place.statement[:200]}"
        if "try again" in (found.first, found.second):
            counted["to be tried again"] += 1
            continue
        assert found in (before, after), f"{where}\n{differences(found, before)}\n{differences(found, after)}"
    return counted


def differences(found: Ending, expected: Ending) -> str:
    """What differs, a line each."""
    sides = [pprint.pformat(asdict(one), width=200).splitlines() for one in (expected, found)]
    return "\n".join(line for line in difflib.ndiff(*sides) if line[0] in "+-")


@pytest.mark.parametrize("added", APPEARING)
def test_a_row_that_appears_during_an_action_is_seen_completely_or_not_at_all(rivals: Rivals, added: str) -> None:
    counted = sum((require_serial(rivals, ACTIONS[name], ACTIONS[added]) for name in APPEARING[added]), Counter[str]())
    assert counted["places"] >= len(APPEARING[added])
    assert counted["to be tried again"] == 0


def test_a_number_that_a_rival_takes_meanwhile_is_decided_by_its_unique_row(rivals: Rivals) -> None:
    same = ACTIONS["publish fresh:1.0.0"]
    assert require_serial(rivals, same, same)["places"] >= 1


@pytest.mark.parametrize("factor", [1, pytest.param(3, marks=pytest.mark.long)])
def test_an_action_between_any_two_statements_of_another_leaves_what_one_after_the_other_does(
    rivals: Rivals, record_property: Callable[[str, Any], None], factor: int
) -> None:
    pairs = [(first, second) for first in ACTIONS.values() for second in CHANGES.values()]
    kind = "sqlite" if rivals.monitor is None else "postgresql"
    asked = os.environ.get("REGISTRY_PAIRS", "")
    number = len(pairs) if asked == "all" else int(asked or factor * SAMPLED[kind])
    if number < len(pairs):
        pairs = random.Random(19).sample(pairs, number)

    counted: Counter[str] = Counter({"pairs": len(pairs)})
    for first, second in pairs:
        counted += require_serial(rivals, first, second)

    record_property(f"between two statements, {kind}", {**counted, "waited for the other": rivals.waits})
    assert counted["places"] >= len(pairs)
    assert counted["to be tried again"] == 0
