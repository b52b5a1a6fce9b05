"""``registry list`` with conditions, what it marks, and ``registry describe``, which changes what they find."""

from __future__ import annotations

import json
from collections.abc import Callable

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def listed(cli: Cli, *words: str) -> list[str]:
    return [row["dataset"] for row in cli("list", *words, "--format", "json").json()["data"]]


def test_a_list_is_narrowed_and_sorted(numbers: Cli) -> None:
    every = listed(numbers)
    assert every == ["numbers", "words/de", "words/en"]
    assert listed(numbers, "--like", "words/*") == ["words/de", "words/en"]
    assert set(listed(numbers, "--sort", "size")) == set(every)
    heads = {order: numbers("list", "--sort", order).out.splitlines()[0].split() for order in ("name", "size", "date")}
    assert set(heads["size"]) - set(heads["name"]) == {"SIZE"}
    assert set(heads["date"]) - set(heads["name"]) == {"PUBLISHED", "(UTC)"}
    assert listed(numbers, "--owner", "nobody") == []
    [row] = numbers("list", "--like", "numbers", "--format", "json").json()["data"]
    assert (row["is_withdrawn"], row["is_empty"]) == (False, False)
    assert row["num_bytes"] > 0


def test_what_was_described_is_found_by_its_tag(numbers: Cli) -> None:
    ran = numbers("describe", "numbers:2.0.0", "--tag", "odd", "--tag", "two words", "--license", "mit")
    assert ran.out == "described numbers:2.0.0\nlicense: MIT, was empty\ntags: odd, two words, was empty\n"
    assert listed(numbers, "--tag", "odd") == []  # 1.0.0 is the canonical version, which a list shows
    numbers("describe", "numbers:1.0.0", "--tag", "odd")
    assert listed(numbers, "--tag", "odd") == ["numbers"]
    assert listed(numbers, "--tag", "odd", "--tag", "none") == []
    assert numbers("list", "--tag", "none").err == "No dataset meets these conditions.\n"
    long = numbers("describe", "numbers:1.1.0", "--description", "x" * 99_999)
    assert len(long.out) < 300
    again = numbers("describe", "numbers:2.0.0", "--license", "MIT", "--format", "json").json()["data"]
    assert (again["is_change"], again["changes"]) == (False, [])
    planned = numbers("describe", "numbers:2.0.0", "--remove-tag", "odd", "--dry-run", "--format", "json").json()[
        "data"
    ]
    assert json.dumps(planned["changes"]) == json.dumps(
        [{"field": "tags", "before": ["odd", "two words"], "after": ["two words"]}]
    )
    assert "odd" in numbers("show", "numbers:2.0.0").out
    assert "license 'MIT', was ''" in numbers("log", "--action", "describe").out


def test_withdrawn_datasets_are_hidden_with_the_conditions_that_show_them(numbers: Cli) -> None:
    for version in ("1.0.0", "2.0.0"):
        numbers("drop", f"words/de:{version}", "--reason", "wrong")
    ran = numbers("list", "--like", "words/*")
    assert "words/de" not in ran.out
    assert ran.err.startswith("note: 1 dataset is hidden: all its versions are yanked or dropped. To see it: ")
    assert "registry list --like 'words/*' --all" in ran.err
    assert "(dropped)" in numbers("list", "--state", "dropped").out
