"""Converts the arguments of API calls to values: datasets to references, text to versions, dates to moments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, TypeAlias

from registry import model
from registry.api.sliced_version import SlicedVersion
from registry.errors import ReferenceSyntaxError, UsageError, WrongTypeError
from registry.lazy import lazy_types
from registry.model import DatasetVersion, Reference, Version, parse_duration, parse_moment

if TYPE_CHECKING:
    from registry.model import Use
else:
    lazy_types(globals(), {"registry.model": "Use"})

DatasetLike: TypeAlias = str | Reference | SlicedVersion | DatasetVersion
"""A dataset version as an argument: the text of a reference, a ``Reference``, a ``Dataset`` or a ``DatasetVersion``.

A ``Dataset`` or ``DatasetVersion`` means exactly that version.
"""


def read_reference(reference: DatasetLike) -> Reference:
    """Convert an argument in one of the forms of ``DatasetLike`` to a reference.

    >>> str(read_reference("mnist:3.*"))
    'mnist:3.*.*'

    Raises:
        ReferenceSyntaxError: the text does not parse.
        WrongTypeError: the value has another type.
    """
    if isinstance(reference, Reference):
        return reference
    if isinstance(reference, str):
        return Reference.parse(reference)
    if isinstance(reference, SlicedVersion | DatasetVersion):
        return reference.reference
    raise WrongTypeError(
        f"expected a str, Reference, Dataset or DatasetVersion, not {_type_name(reference)}",
        hint='Write name[/config][:request | @alias], e.g. "mnist:3.*".',
        details={"type": _type_name(reference)},
    )


def read_exact_reference(reference: DatasetLike) -> Reference:
    """Convert an argument to a reference that names one version by its number.

    Raises:
        UsageError: the reference names a range, an alias, or no version.
    """
    wanted = read_reference(reference)
    if wanted.exact is None:
        raise UsageError(
            f"{wanted} does not name one version by its number",
            hint=f"Write {wanted.dataset}:1.0.0. List the versions: registry versions {wanted.dataset}",
        )
    return wanted


def exact_version(reference: Reference) -> Version:
    """The version of an exact reference."""
    if reference.exact is None:
        raise AssertionError(f"{reference} was checked to be exact")
    return reference.exact


def read_dataset(dataset: DatasetLike) -> Reference:
    """Convert an argument to a dataset, or a dataset and config: a reference without a version.

    >>> str(read_dataset("mnist/plain"))
    'mnist/plain'

    Raises:
        UsageError: a text or a ``Reference`` names a version, but the call is about all versions.
    """
    reference = read_reference(dataset)
    if isinstance(dataset, SlicedVersion | DatasetVersion):
        return Reference(reference.name, reference.config)
    if reference.request is not None or reference.alias is not None:
        raise UsageError(f"{reference}: name a dataset without a version", hint=f"Write {reference.dataset}.")
    return reference


def read_version(version: str | Version | None) -> Version | None:
    """Convert an argument to a version number, or None.

    Raises:
        ReferenceSyntaxError: the text is not ``MAJOR.MINOR.PATCH``.
        WrongTypeError: the value is neither text nor a ``Version``.
    """
    if version is None or isinstance(version, Version):
        return version
    if not isinstance(version, str):
        raise WrongTypeError(
            f"expected a version as str or Version, not {_type_name(version)}",
            hint='Write MAJOR.MINOR.PATCH, e.g. "3.0.1".',
            details={"type": _type_name(version)},
        )
    return Version.parse(version)


def read_duration(duration: str | timedelta, name: str) -> timedelta:
    """Convert the argument ``name`` to a duration.

    Raises:
        UsageError: the duration is malformed or negative.
    """
    result = parse_duration(duration) if isinstance(duration, str) else duration
    if result < timedelta(0):
        raise UsageError(f"{name} is negative: {result}", hint='Write a duration, e.g. "7d".')
    return result


def read_uses(lines: Iterable[str], place: str) -> list[Use]:
    """Parse the references in ``lines``, one per line. ``#`` starts a comment; empty lines are skipped.

    >>> [(str(use.reference), use.place) for use in read_uses(["mnist:3.*  # the paper", ""], "uses.txt")]
    [('mnist:3.*.*', 'uses.txt:1')]

    Raises:
        ReferenceSyntaxError: a line is not a reference; the message names the line.
    """
    uses = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            uses.append(model.Use(reference=Reference.parse(text), place=f"{place}:{number}"))
        except ReferenceSyntaxError as error:
            raise ReferenceSyntaxError(
                f"{place}, line {number}: {error.message}", hint=error.hint, details=error.details
            ) from error
    return uses


def make_uses(uses: Sequence[DatasetLike | Use]) -> list[Use]:
    """Convert an argument to uses. A reference becomes a use without a place."""
    return [use if isinstance(use, model.Use) else model.Use(reference=read_reference(use), place="") for use in uses]


Moment: TypeAlias = str | date | datetime


def read_moment(at: Moment | None) -> datetime | None:
    """Convert an argument to a moment in UTC. A day means its end.

    >>> read_moment("2026-11-21").isoformat()
    '2026-11-21T23:59:59.999999+00:00'

    Raises:
        UsageError: the text is not a date, or the datetime has no time zone.
        WrongTypeError: the value is not a str, date or datetime.
    """
    if at is None:
        return None
    if isinstance(at, str):
        return parse_moment(at, end=True)
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise UsageError("a moment needs a time zone", hint="Add one, e.g. tzinfo=datetime.UTC.")
        try:
            return at.astimezone(UTC)
        except OverflowError as error:
            raise UsageError(f"{at} is out of the range of dates") from error
    if isinstance(at, date):
        return datetime.combine(at, time.max, tzinfo=UTC)
    raise WrongTypeError(f"expected a moment as str, date or datetime, not {_type_name(at)}")


def _type_name(value: object) -> str:
    return type(value).__name__
