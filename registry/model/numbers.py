"""Checks that an option is a whole number, prints a number with its noun, and shortens values for error messages."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

from registry.errors import UsageError


def whole_number(
    value: Any,
    name: str,
    *,
    least: int | None = None,
    below: int | None = None,
    hint: str | None = None,
    error: type[UsageError] = UsageError,
) -> int:
    """The ``value`` of the option ``name`` as an int. NumPy integers are accepted, True and False are not.

    >>> whole_number(0, "batch_size", least=1)
    Traceback (most recent call last):
    registry.errors.UsageError: batch_size must be 1 or more, not 0

    Raises:
        UsageError: the value is not a whole number (raised as ``error``), is below ``least``, or is not less than
            ``below``.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = index(value)
    except TypeError:
        raise error(f"{name} must be a whole number, not {shown(value)}", hint=hint) from None
    if least is not None and number < least:
        raise UsageError(f"{name} must be {least} or more, not {shown(number)}", hint=hint)
    if below is not None and number >= below:
        powers = {2: below.bit_length() - 1, 10: len(f"{below}") - 1}
        limit = next((f"{base}**{power}" for base, power in powers.items() if below == base**power), f"{below:,}")
        raise UsageError(f"{name} must be less than {limit}, not {shown(number)}", hint=hint)
    return number


def counted(number: int, thing: str) -> str:
    """``number`` and the noun ``thing``, in the plural (with an s, or es) unless the number is 1.

    >>> counted(1, "record"), counted(1797, "record"), counted(2, "patch")
    ('1 record', '1,797 records', '2 patches')
    """
    return f"{number:,} {thing}{'' if number == 1 else 'es' if thing.endswith('ch') else 's'}"


def listed(texts: Sequence[str], most: int) -> str:
    """The first ``most`` of the texts, and how many more there are.

    >>> listed(["ann", "bob", "eve"], 2)
    'ann, bob and 1 more'
    """
    return ", ".join(texts[:most]) + (f" and {len(texts) - most:,} more" if len(texts) > most else "")


def listed_below(lines: Sequence[str], most: int) -> str:
    r"""The first ``most`` of the lines, each below a message and indented, and how many more there are.

    >>> "missing:" + listed_below(["ann", "bob", "eve"], 1)
    'missing:\n  ann\n  and 2 more'
    """
    more = [f"and {len(lines) - most:,} more"] if len(lines) > most else []
    return "".join(f"\n  {line}" for line in (*lines[:most], *more))


def shown(value: object) -> str:
    """The start of a value's repr, short enough for a message."""
    try:
        return f"{value!r:.60}"
    except ValueError:  # Python refuses to print numbers with thousands of digits
        return "a very long number"
