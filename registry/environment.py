"""Reads the environment variables that configure the registry. docs/environment.md lists them all.

An empty variable counts as unset. A team's service may provide defaults for some of them, see ``api.logins``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from registry.errors import UsageError

_LEAST_TOO_LARGE: Final = 1e6
"""In seconds: about eleven days. PostgreSQL stores milliseconds in 32 bits."""


_TEAM: Final[list[Callable[[str], str]]] = []


def use_team_defaults(default: Callable[[str], str]) -> None:
    """Make ``read_variable`` call ``default`` with the name of each variable that is not set."""
    _TEAM[:] = [default]


def read_variable(name: str) -> str:
    """Return the value of a variable, or the default of the team; ``""`` if there is neither."""
    return os.environ.get(name, "") or next((text for default in _TEAM if (text := default(name))), "")


def read_number(name: str, default: float) -> float:
    """Return the positive number that a variable contains, or ``default`` if it is not set.

    Raises:
        UsageError: the variable does not contain a positive number below one million.
    """
    text = read_variable(name).strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = 0
    if not 0 < value < _LEAST_TOO_LARGE:
        hint = f"Set it to a number, e.g. {name}={default:g}, or unset it."
        raise malformed_setting(name, text, "a positive number", hint=hint)
    return value


def malformed_setting(name: str, text: str, expected: str, *, hint: str) -> UsageError:
    """Return the error for the value of a variable, or of an option that may come from one.

    >>> print(malformed_setting("REGISTRY_TRIES", "many", "a positive number", hint="Set it to a number."))
    REGISTRY_TRIES is 'many': expected a positive number
    """
    shown = text[:80]
    return UsageError(f"{name} is {shown!r}: expected {expected}", hint=hint, details={"name": name, "value": shown})
