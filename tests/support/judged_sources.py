"""Checks that ``registry add`` either stores a source, or refuses it with an error of ours whose hint helps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from registry.errors import RegistryError, UnusableRowsError
from registry.intake.feature_text import parse_feature
from registry.intake.objects import open_object
from registry.intake.options import AddOptions
from registry.intake.plan import plan_source
from registry.intake.source import Source
from registry.shards.arrow_values import flatten_table


def write(source: Source, wishes: Mapping[str, str]) -> None:
    """Everything that ``registry add`` does with the rows of a source but the files."""
    requested = {name: parse_feature(text) for name, text in wishes.items()}
    plan = plan_source(source, AddOptions(features=requested, skip_bad=10**6))
    features = plan.schema.features()
    for part in plan.source.parts:
        for rows in part.read():
            flatten_table(plan.schema.convert(part.name, rows).table, features)


def judge(open_it: Callable[[], Source], name: str, *, column: str | None = None) -> str | None:
    """Return the reason why a source is refused, or None. Fails if the error is not ours, or has no hint.

    Args:
        open_it: opens the source.
        name: a description of the source, for messages.
        column: the column whose type is tested. An error must name it, and the command in its hint must work.
    """
    refusal = attempt(open_it, {}, name)
    if refusal is None:
        return None
    assert "fault of the registry" not in refusal.message.lower(), name
    assert refusal.hint, f"{name}: {refusal.message}"
    if column is not None and "no rows" not in refusal.message and not isinstance(refusal, UnusableRowsError):
        assert column in refusal.message, f"{name}: {refusal.message}"
    for word in re.findall(r"'x': '(Text|skip)'", refusal.hint):
        again = attempt(open_it, {"x": word}, name)
        if again is not None:  # a source of this column alone has nothing left
            assert "no columns" in again.message, f"{name}: {word}: {again.message}"
            assert word == "skip"
    return refusal.message


def attempt(open_it: Callable[[], Source], wishes: Mapping[str, str], name: str) -> RegistryError | None:
    """Return the refusal of a source, or None. Fails if an exception is not ours."""
    try:
        write(open_it(), wishes)
    except RegistryError as error:
        return error
    except Exception as error:
        raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
    return None


def judge_object(given: Any, name: str, column: str | None = "x") -> str | None:
    def open_it() -> Source:
        source = open_object(given)
        assert source is not None
        return source

    return judge(open_it, name, column=column)
