"""Reads the variables that configure the registry. docs/environment.md lists them all.

An empty variable counts as unset.
"""

from __future__ import annotations

import os
from typing import Final

from registry.errors import UsageError

_LEAST_TOO_LARGE: Final = 1e6
"""In seconds, about eleven days. PostgreSQL counts milliseconds in 32 bits."""


def read_variable(name: str) -> str:
    """Return the value of a variable; ``""`` if it is not set."""
    return os.environ.get(name, "")


def read_number(name: str, default: float) -> float:
    """Return the positive number that a variable contains; ``default`` if it is not set.

    Raises:
        UsageError: it contains something else, or a million or more.
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
