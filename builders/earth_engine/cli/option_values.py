"""What do options of a command say? Pairs, sizes and shapes, from their texts."""

from __future__ import annotations

from collections.abc import Iterable

from registry.errors import UsageError


def read_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """``NAME=VALUE`` of an option that may be repeated; the value may have equal signs.

    >>> read_pairs(["train=a", "eval=b=c"], "--prefix")
    {'train': 'a', 'eval': 'b=c'}

    Raises:
        UsageError: one has another form, or a name twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name and value):
            raise _refuse(option, text, "it is written NAME=VALUE")
        if name in found:
            raise _refuse(option, text, f"{name} is there twice")
        found[name] = value
    return found


def read_numbers(text: str, option: str) -> list[int]:
    """``N`` or ``W,H``, also written ``WxH``.

    >>> read_numbers("128", "--kernel"), read_numbers("3x2", "--kernel")
    ([128], [3, 2])

    Raises:
        UsageError: something else.
    """
    parts = [part.strip() for part in text.replace("x", ",").split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise _refuse(option, text, "it is a whole number, or several: 128,128")
    return [int(part) for part in parts]


def read_number(text: str, option: str) -> int:
    """``N``. Raises UsageError where it is something else."""
    numbers = read_numbers(text, option)
    if len(numbers) != 1:
        raise _refuse(option, text, "it is one whole number")
    return numbers[0]


def _refuse(option: str, text: str, why: str) -> UsageError:
    return UsageError(f"{option} {text!r:.80} cannot be read: {why}", details={"option": option})
