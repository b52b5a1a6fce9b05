"""Reads what callers give where a reference, a version, a moment or a use of a dataset is asked for: text or values."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time
from typing import TypeAlias

from registry.errors import ReferenceSyntaxError, UsageError
from registry.model import Reference, Use, Version, parse_moment


def parse_reference(reference: str | Reference) -> Reference:
    """The reference that a caller gave.

    Raises:
        ReferenceSyntaxError: the text is none.
        UsageError: neither text nor a reference.
    """
    if isinstance(reference, Reference):
        return reference
    if not isinstance(reference, str):
        raise UsageError(
            f"a reference is a text or a Reference, not {type(reference).__name__}",
            hint='Write name[/config][:request], e.g. "mnist:3.*".',
        )
    return Reference.parse(reference)


def parse_version(version: str | Version | None) -> Version | None:
    """The version that a caller gave, or None."""
    return Version.parse(version) if isinstance(version, str) else version


def read_uses(lines: Iterable[str], place: str) -> list[Use]:
    """The references in use that ``lines`` name, one a line; ``#`` begins a comment, empty lines are passed over.

    >>> [(str(use.reference), use.place) for use in read_uses(["mnist:3.*  # the paper", ""], "uses.txt")]
    [('mnist:3.*.*', 'uses.txt:1')]

    Raises:
        ReferenceSyntaxError: a line that is no reference; the message names it.
    """
    uses = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            uses.append(Use(reference=Reference.parse(text), place=f"{place}:{number}"))
        except ReferenceSyntaxError as error:
            raise ReferenceSyntaxError(
                f"{place}, line {number}: {error.message}", hint=error.hint, details=error.details
            ) from error
    return uses


def make_uses(uses: Sequence[str | Reference | Use]) -> list[Use]:
    """The uses that a caller gave: as references they have no place."""
    return [one if isinstance(one, Use) else Use(reference=parse_reference(one), place="") for one in uses]


Moment: TypeAlias = str | date | datetime


def read_moment(at: Moment | None) -> datetime | None:
    """The moment that a caller gave, in UTC; a day means its end.

    >>> read_moment("2026-11-21").isoformat()
    '2026-11-21T23:59:59.999999+00:00'

    Raises:
        UsageError: no date, or a datetime without a time zone.
    """
    if at is None:
        return None
    if isinstance(at, str):
        return parse_moment(at, end=True)
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise UsageError(
                "a time without a time zone is not one moment", hint="Give it one, e.g. tzinfo=datetime.UTC."
            )
        try:
            return at.astimezone(UTC)
        except OverflowError as error:
            raise UsageError(f"{at} is out of the range of dates") from error
    if isinstance(at, date):
        return datetime.combine(at, time.max, tzinfo=UTC)
    raise UsageError(f"a moment is a text, a date or a datetime, not {type(at).__name__}")


def log_actor() -> str:
    """Who publishes, for the event log: ``$REGISTRY_ACTOR``, else the login name."""
    try:
        return os.environ.get("REGISTRY_ACTOR") or getpass.getuser()
    except (OSError, KeyError):  # no entry for this user id, as in many containers
        return f"uid {os.getuid()}"
