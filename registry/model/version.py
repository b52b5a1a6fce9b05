"""What is a version number, and which versions does a request allow?

A version is ``MAJOR.MINOR.PATCH`` as in Semantic Versioning 2.0.0, without pre-release or build parts, as the TFDS
versioning document uses it. A request is what a person writes after ``name:``, and names one version or many.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from registry.errors import ReferenceSyntaxError

MAX_PART: Final = 2**31 - 1
"""The largest MAJOR, MINOR or PATCH: what every SQL database holds in an INTEGER."""

_PART = r"(?:0|[1-9][0-9]*)"
_CLAUSE = re.compile(
    rf"(?P<operator>\^|~|>=|<=|!=|>|<|=|)\s*(?P<major>{_PART}|\*)(?:\.(?P<minor>{_PART}|\*))?(?:\.(?P<patch>{_PART}|\*))?"
)


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A version number. Ordered by MAJOR, then MINOR, then PATCH.

    >>> Version.parse("3.0.1") < Version(3, 1, 0)
    True
    >>> str(Version(3, 0, 1))
    '3.0.1'

    Raises:
        ReferenceSyntaxError: a part is negative or above ``MAX_PART``, or the text is not ``x.y.z``.
    """

    major: int
    minor: int
    patch: int

    def __post_init__(self) -> None:
        for part in (self.major, self.minor, self.patch):
            if not 0 <= part <= MAX_PART:
                raise ReferenceSyntaxError(
                    f"invalid version {str(self)!r}: every part lies in 0..{MAX_PART}", details={"version": str(self)}
                )

    @classmethod
    def parse(cls, text: str) -> Version:
        """The version that ``text`` spells; surrounding space, signs and leading zeros are refused."""
        import semver  # 9 ms, and a look-up compares numbers that were parsed long ago

        try:
            if not text.isascii() or text != text.strip() or len(text) > 40:
                raise ValueError(text)
            parsed = semver.Version.parse(text)
            if parsed.prerelease or parsed.build:
                raise ValueError(text)
        except ValueError as error:
            raise ReferenceSyntaxError(
                f"invalid version {text[:60]!r}",
                hint="Write a version as MAJOR.MINOR.PATCH, numbers without leading zeros, e.g. 3.0.1.",
                details={"version": text[:60]},
            ) from error
        return cls(parsed.major, parsed.minor, parsed.patch)

    def bump(self, part: str) -> Version:
        """The next version in ``part`` (``major``, ``minor`` or ``patch``); the parts after it become 0.

        >>> str(Version(3, 1, 4).bump("minor"))
        '3.2.0'
        """
        import semver

        bumped = semver.Version(self.major, self.minor, self.patch).next_version(part)
        return Version(bumped.major, bumped.minor, bumped.patch)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


@dataclass(frozen=True, slots=True)
class VersionClause:
    """One condition of a request: an operator and up to three parts, None where a part is ``*`` or left out.

    Operators: ``""`` (equal in the parts given), ``^`` (no change left of the first non-zero part), ``~`` (no change of
    MAJOR.MINOR, or of MAJOR where only that is given), ``>=``, ``>``, ``<=``, ``<``, ``!=``. A comparison with
    missing parts is with the whole series: ``<=3.1`` includes 3.1.9, ``>3`` starts at 4.0.0.
    """

    operator: str
    major: int | None
    minor: int | None = None
    patch: int | None = None

    def allows(self, version: Version) -> bool:
        """Whether ``version`` meets this condition."""
        given = (self.major, self.minor, self.patch)
        actual = (version.major, version.minor, version.patch)
        in_series = all(part is None or part == other for part, other in zip(given, actual, strict=True))
        prefix = tuple(part for part in given if part is not None)
        series = actual[: len(prefix)]
        match self.operator:
            case "":
                return in_series
            case "!=":
                return not in_series
            case ">=":
                return series >= prefix
            case ">":
                return series > prefix
            case "<=":
                return series <= prefix
            case "<":
                return series < prefix
            case "~":
                return series >= prefix and actual[: min(2, len(prefix))] == prefix[:2]
            case _:
                fixed = next((index for index, part in enumerate(prefix) if part), len(prefix) - 1) + 1
                return series >= prefix and actual[:fixed] == prefix[:fixed]

    def __str__(self) -> str:
        parts = ["*" if part is None else str(part) for part in (self.major, self.minor, self.patch)]
        if self.operator in ("", "!="):
            return self.operator + ".".join(parts)
        return self.operator + ".".join(part for part in parts if part != "*")


@dataclass(frozen=True, slots=True)
class VersionRequest:
    """Which versions of a dataset will do: every clause must allow the version.

    Grammar::

        request := clause ( "," clause )*
        clause  := operator? part ( "." part ( "." part )? )?
        part    := "*" | number without leading zeros        ("*" only where there is no operator, or with "!=")
        operator := "^" | "~" | ">=" | ">" | "<=" | "<" | "!=" | "="

    >>> request = VersionRequest.parse("3.*")
    >>> str(request), request.allows(Version(3, 1, 1)), request.allows(Version(4, 0, 0))
    ('3.*.*', True, False)
    >>> VersionRequest.parse(">=3.1, <4").allows(Version(3, 9, 0))
    True

    Raises:
        ReferenceSyntaxError: the text is no request.
    """

    clauses: tuple[VersionClause, ...]

    @classmethod
    def parse(cls, text: str) -> VersionRequest:
        """The request that ``text`` spells, e.g. ``3.0.1``, ``3.*.*``, ``3``, ``^3.1``, ``~3.1``, ``>=3.1,<4``."""
        if len(text) > 200:
            raise _bad_request(text)
        return cls(tuple(_parse_clause(part.strip(), text) for part in text.split(",")))

    @classmethod
    def exactly(cls, version: Version) -> VersionRequest:
        """The request that only ``version`` meets."""
        return cls((VersionClause("", version.major, version.minor, version.patch),))

    @property
    def exact(self) -> Version | None:
        """The one version that this request names, or None where it is a wildcard or a range."""
        if len(self.clauses) == 1 and self.clauses[0].operator == "":
            clause = self.clauses[0]
            if clause.major is not None and clause.minor is not None and clause.patch is not None:
                return Version(clause.major, clause.minor, clause.patch)
        return None

    def allows(self, version: Version) -> bool:
        """Whether ``version`` meets every clause."""
        return all(clause.allows(version) for clause in self.clauses)

    def highest(self, versions: Iterable[Version]) -> Version | None:
        """The highest of ``versions`` that this request allows, or None."""
        return max((version for version in versions if self.allows(version)), default=None)

    def __str__(self) -> str:
        return ",".join(map(str, self.clauses))


def _parse_clause(text: str, whole: str) -> VersionClause:
    match = _CLAUSE.fullmatch(text)
    if match is None:
        raise _bad_request(whole)
    parts = [None if (part := match[name]) in (None, "*") else int(part[:11]) for name in ("major", "minor", "patch")]
    if any(part is not None and part > MAX_PART for part in parts):
        raise _bad_request(whole)
    operator = "" if match["operator"] == "=" else match["operator"]
    if operator not in ("", "!=") and (match["major"] == "*" or "*" in (match["minor"], match["patch"])):
        raise _bad_request(whole)
    return VersionClause(operator, *parts)


def _bad_request(text: str) -> ReferenceSyntaxError:
    return ReferenceSyntaxError(
        f"invalid version request {text[:60]!r}",
        hint="Write a version (3.0.1), a wildcard (3.*.*, 3.*, 3) or a range (^3.1, ~3.1, >=3.1,<4).",
        details={"request": text[:60]},
    )
