"""``registry list`` with conditions, what it marks, and ``registry describe``, which changes what they find."""

from __future__ import annotations

from collections.abc import Callable

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_a_long_description_is_not_repeated(numbers: Cli) -> None:
    assert len(numbers("describe", "numbers:1.1.0", "--description", "x" * 99_999).out) < 300
