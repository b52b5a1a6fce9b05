"""Converts results and errors to JSON for programs. The command line prints it; a server can send it.

A result is ``{"schema": "registry.NAME/1", "data": ..., "warnings": [...]}`` and an error is ``{"error": {...}}``.
This module is below the errors, whose details it converts: it converts values of other layers by their type.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from enum import Enum
from typing import Any, Final, NamedTuple

from registry.masking import mask

_OF_ERRORS: Final = ("code", "message", "hint")
"""The attributes by which an error of the registry is known, and which are shown of it."""


class Records(NamedTuple):
    """Records of a dataset as JSON values. They can be iterated only once, and URLs in them are not masked."""

    items: Iterable[Any]


def result_envelope(schema: str, value: Any, warnings: Sequence[str]) -> dict[str, Any]:
    """The JSON object of a result: ``value`` as plain JSON, under ``registry.<schema>/1``."""
    return {"schema": f"registry.{schema}/1", "data": to_plain(value), "warnings": to_plain(warnings)}


def error_envelope(code: str, message: str, hint: str | None, details: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object of an error."""
    return {"error": to_plain({"code": code, "message": message, "hint": hint, "details": details})}


def fields_of(source: Any, *names: str) -> dict[str, Any]:
    """The named attributes of an object as a dict, for ``to_plain``. Without names, all fields of a dataclass.

    >>> fields_of(3 + 4j, "real", "imag")
    {'real': 3.0, 'imag': 4.0}
    """
    return {name: getattr(source, name) for name in names or (field.name for field in fields(source))}


def to_plain(value: Any) -> Any:
    """Convert ``value`` to plain JSON: moments as ISO 8601, enums by value, versions and references as text.

    Numbers and arrays of numpy become those of Python; bytes, NaN and infinities become text. Secrets in URLs are
    masked. An error of the registry becomes its code, message and hint.

    >>> from datetime import UTC
    >>> to_plain({"at": datetime(2026, 11, 21, tzinfo=UTC), "url": "http://ann:PW@host", "sizes": (1, None)})
    {'at': '2026-11-21T00:00:00+00:00', 'url': 'http://***@host', 'sizes': [1, None]}
    """
    if (kind := type(value)) is str:  # most values are texts or numbers: abstract classes are slow to check
        return mask(value)
    if kind is not int and isinstance(value, Enum):
        return to_plain(value.value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {mask(str(key)): to_plain(item) for key, item in value.items()}
    if isinstance(value, Records):
        return list(value.items)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Exception):
        is_own = all(hasattr(value, name) for name in _OF_ERRORS)
        return to_plain(fields_of(value, *_OF_ERRORS) if is_own else str(value))
    if isinstance(value, bytes):  # such as a name that should be text
        return mask(value.decode(errors="backslashreplace"))
    if hasattr(value, "tolist") and not isinstance(value, type):
        values = value.tolist()
        return to_plain(str(values) if type(values) is type(value) else values)  # Python has no such number: longdouble
    if isinstance(value, Iterable):
        return [to_plain(item) for item in value]
    return mask(str(value))
