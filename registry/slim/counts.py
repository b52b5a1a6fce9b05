"""Is an option a number of things? A whole number, of whatever type, and not too small a one."""

from __future__ import annotations

from operator import index
from typing import Any

from registry.errors import UsageError, WrongTypeError


def whole_number(name: str, value: Any) -> int:
    """``value`` as an int; WrongTypeError of the option ``name`` where it is none."""
    try:
        return index(value)
    except TypeError:
        raise WrongTypeError(f"{name} must be a whole number, not {value!r:.60}") from None


def at_least(name: str, value: Any, least: int) -> int:
    """The same, ``least`` or more; UsageError where it is less."""
    number = whole_number(name, value)
    if number < least:
        raise UsageError(f"{name} must be {least} or more, not {number}", details={name: number})
    return number
