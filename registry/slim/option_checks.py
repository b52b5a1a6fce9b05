"""Is an option a number of things, or a flag? A whole number, of whatever type, and not too small; or True or False."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from registry.errors import UsageError, WrongTypeError


def whole_number(name: str, value: Any) -> int:
    """``value`` as an int; WrongTypeError of the option ``name`` where it is none."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        return index(value)
    except TypeError:
        raise WrongTypeError(f"{name} must be a whole number, not {value!r:.60}") from None


def flag(name: str, value: Any) -> bool:
    """``value`` as a bool; WrongTypeError of the option ``name`` where it is none: the text ``"False"`` is true."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise WrongTypeError(f"{name} must be True or False, not {value!r:.60}")


def at_least(name: str, value: Any, least: int) -> int:
    """The same, ``least`` or more; UsageError where it is less."""
    number = whole_number(name, value)
    if number < least:
        raise UsageError(f"{name} must be {least} or more, not {number}", details={name: number})
    return number
