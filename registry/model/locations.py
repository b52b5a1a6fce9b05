"""The locations of the files of a published version: where they were published, and later changes.

A published row never changes. Mirrors and moved folders are recorded as steps, which are only appended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

StepKind: TypeAlias = Literal["add", "first", "remove"]


class LocationStep(NamedTuple):
    """One change of the locations of a version.

    Attributes:
        kind: ``add`` appends the location, ``first`` makes it the first one, ``remove`` removes it.
        location: a path below the data directory, an absolute path, or a URL.
    """

    kind: StepKind
    location: str


def current_locations(published: str, steps: Iterable[LocationStep]) -> tuple[str, ...]:
    """The current locations of a version, in the order in which they are read.

    >>> current_locations("mnist/1.0.0", [LocationStep("add", "s3://bucket/mnist"), LocationStep("first", "/data/m")])
    ('/data/m', 'mnist/1.0.0', 's3://bucket/mnist')

    Args:
        published: the location in the published row.
        steps: the changes since, oldest first.
    """
    result = [published]
    for kind, location in steps:
        if kind == "add" and location in result:
            continue
        if location in result:
            result.remove(location)
        if kind != "remove":
            result.insert(0 if kind == "first" else len(result), location)
    return tuple(result)


def is_absolute(location: str) -> bool:
    """Whether a location is an absolute path or a URL, and not a path below the data directory."""
    return location.startswith("/") or "://" in location
