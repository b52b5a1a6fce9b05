"""``Version``, ``VersionRequest``, and the bounds of the versions that a request allows.

A version is ``MAJOR.MINOR.PATCH`` as in Semantic Versioning 2.0.0, without pre-release or build parts, as the TFDS
versioning document uses it. A request is the text after ``name:``; it allows one or more versions. The catalog looks up
versions by ``request_bounds``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from registry.argument_types import require_type
from registry.errors import ReferenceSyntaxError, UsageError

MAX_PART: Final = 2**31 - 1
"""The largest MAJOR, MINOR or PATCH: every SQL database can store it as an INTEGER."""

Number: TypeAlias = tuple[int, int, int]

LOWEST: Final[Number] = (0, 0, 0)
HIGHEST: Final[Number] = (MAX_PART, MAX_PART, MAX_PART)

_PART = r"(?:0|[1-9][0-9]*)"
_VERSION = re.compile(rf"({_PART})\.({_PART})\.({_PART})")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_CLAUSE = re.compile(
    r"(?P<operator>\^|~|>=|<=|!=|>|<|=|) *"
    rf"(?P<major>{_PART}|\*)(?:\.(?P<minor>{_PART}|\*))?(?:\.(?P<patch>{_PART}|\*))?"
)


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Version:
    """A version number, with what builder code declares for it. Ordered by MAJOR, then MINOR, then PATCH.

    Create it from three numbers, or from text as in TFDS. In text, a part is ASCII digits without leading zeros, so
    ``01.0.0`` and digits of other scripts are refused. A version also compares with text:

    >>> Version("3.0.1") == Version(3, 0, 1) == "3.0.1"
    True
    >>> Version(3, 0, 1) < Version("3.1.0") and Version(3, 0, 1) >= "3.0.0"
    True
    >>> Version("2.0.0", experiments={"new_shuffle": True}).implements("new_shuffle")
    True

    Keyword arguments do not affect comparison or hash, and are not part of the published number.

    Args:
        major: MAJOR, or the text of all three parts, or another Version.
        minor, patch: the other parts.
        experiments: flags that this version overrides, by name or enum member (as in TFDS).
        version_to_prepare: the last version of the builder's code that can prepare this version, if the current code
        cannot: ``1.0.0``, ``v1.0.0``, or a commit.
        tfds_version_to_prepare: TFDS's name for ``version_to_prepare``.

    Attributes:
        major, minor, patch: the parts, whole numbers.
        version_to_prepare: as text without the ``v``, or None.

    Raises:
        ReferenceSyntaxError: a part is not a whole number from 0 to ``MAX_PART``, or the text is not ``x.y.z``.
            Comparing the order with other text also raises it; ``==`` returns False.
        UsageError: a flag is invalid, or both names of ``version_to_prepare`` are used.
    """

    major: int
    minor: int
    patch: int
    version_to_prepare: str | None = field(init=False)
    _overrides: tuple[tuple[str, bool], ...] = field(init=False)
    _defaults: tuple[tuple[str, bool], ...] = field(init=False)

    def __init__(
        self,
        major: int | str | Version,
        minor: int | None = None,
        patch: int | None = None,
        *,
        experiments: Mapping[str, bool] | Mapping[Any, bool] | None = None,
        version_to_prepare: str | Version | None = None,
        tfds_version_to_prepare: str | Version | None = None,
    ) -> None:
        overrides: tuple[tuple[str, bool], ...] = ()
        defaults: tuple[tuple[str, bool], ...] = ()
        to_prepare = None
        if type(major) is int and type(minor) is int and type(patch) is int:  # first: a catalog creates very many
            if not (0 <= major <= MAX_PART and 0 <= minor <= MAX_PART and 0 <= patch <= MAX_PART):
                raise _bad_version(f"{major}.{minor}.{patch}", f": every part must be from 0 to {MAX_PART}")
        elif isinstance(major, Version) and minor is None and patch is None:
            overrides, defaults, to_prepare = major._overrides, major._defaults, major.version_to_prepare
            major, minor, patch = major.parts
        else:
            major, minor, patch = _read_parts(major, minor, patch)
        if experiments is not None:
            from registry.model.experiment import read_experiments

            overrides = read_experiments(experiments)
        if version_to_prepare is not None or tfds_version_to_prepare is not None:
            if version_to_prepare is not None and tfds_version_to_prepare is not None:
                text = "version_to_prepare and tfds_version_to_prepare are two names for the same option"
                raise UsageError(text, hint="Use only one of them.")
            given = tfds_version_to_prepare if version_to_prepare is None else version_to_prepare
            to_prepare = read_code_version(given)
        put = object.__setattr__
        put(self, "major", major)
        put(self, "minor", minor)
        put(self, "patch", patch)
        put(self, "version_to_prepare", to_prepare)
        put(self, "_overrides", overrides)
        put(self, "_defaults", defaults)

    @classmethod
    def parse(cls, text: str) -> Version:
        """Parse ``MAJOR.MINOR.PATCH``. Surrounding space, signs and leading zeros are errors.

        Args:
            text: the version.

        Raises:
            ReferenceSyntaxError: the text is malformed.
        """
        return cls(*_parse_parts(text))

    @staticmethod
    def is_valid(text: object) -> bool:
        """Whether ``text`` is a version, ``x.y.z``. A wildcard is not."""
        return isinstance(text, str) and _parts_or_none(text) is not None

    def match(self, pattern: str) -> bool:
        """Whether ``pattern``, ``3.*.*`` as in TFDS or any version request, allows this version.

        >>> Version("3.0.1").match("3.*.*"), Version("3.0.1").match("3.1"), Version("3.0.1").match("^3")
        (True, False, True)

        Raises:
            ReferenceSyntaxError: ``pattern`` is not a version request.
        """
        return VersionRequest.parse(pattern).allows(self)

    def implements(self, flag: str | Enum) -> bool:
        """Whether an experiment is on: the override of this version, else the default that the build received.

        Args:
            flag: its name, or an enum member of that name.

        Raises:
            ExperimentNotFoundError: neither contains the flag.
        """
        from registry.model.experiment import experiment_name, no_experiment

        name = experiment_name(flag)
        for known, enabled in (*self._overrides, *self._defaults):
            if known == name:
                return enabled
        raise no_experiment(name, {known for known, _ in (*self._overrides, *self._defaults)}, where=f"version {self}")

    def with_defaults(self, defaults: Mapping[str, bool]) -> Version:
        """The same version, whose ``implements`` also knows these flags.

        Args:
            defaults: values for flags that the version does not override.
        """
        require_type("defaults", defaults, Mapping)
        bound = Version(self)
        object.__setattr__(bound, "_defaults", tuple(sorted(defaults.items())))
        return bound

    @property
    def experiments(self) -> Mapping[str, bool]:
        """The flags that this version overrides, by name."""
        return MappingProxyType(dict(self._overrides))

    @property
    def parts(self) -> tuple[int, int, int]:
        """MAJOR, MINOR and PATCH."""
        return self.major, self.minor, self.patch

    @property
    def number(self) -> Version:
        """The number without what builder code declares for it."""
        return Version(self.major, self.minor, self.patch)

    def bump(self, part: str) -> Version:
        """The version with one part raised by 1; the parts after it become 0.

        Args:
            part: ``"major"``, ``"minor"`` or ``"patch"``.

        Raises:
            UsageError: the part is unknown.

        >>> str(Version(3, 1, 4).bump("minor"))
        '3.2.0'
        """
        if part not in ("major", "minor", "patch"):
            raise UsageError(f"part must be 'major', 'minor' or 'patch', not {part!r:.60}")
        import semver  # takes 9 ms, and look-ups do not need it

        bumped = semver.Version(self.major, self.minor, self.patch).next_version(part)
        return Version(bumped.major, bumped.minor, bumped.patch)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Version):
            return self.parts == other.parts
        # A version has only one text form, so the text need not be parsed.
        return str(self) == other if isinstance(other, str) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))  # equal to the text, so it must have the same hash

    def __lt__(self, other: object) -> bool:
        return self.parts < _parts_of(other) if isinstance(other, Version | str) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self.parts <= _parts_of(other) if isinstance(other, Version | str) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return self.parts > _parts_of(other) if isinstance(other, Version | str) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return self.parts >= _parts_of(other) if isinstance(other, Version | str) else NotImplemented

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    def __repr__(self) -> str:
        text = f"Version(major={self.major}, minor={self.minor}, patch={self.patch}"
        if self._overrides:
            text += f", experiments={dict(self._overrides)}"
        if self.version_to_prepare is not None:
            text += f", version_to_prepare={self.version_to_prepare!r}"
        return f"{text})"


def read_code_version(value: object) -> str:
    """Check a version of builder code, ``x.y.z``, ``vx.y.z`` or a commit of 7 to 64 hex digits; return it without v.

    Raises:
        ReferenceSyntaxError: ``value`` is neither a version nor a commit.
    """
    text = str(value) if isinstance(value, Version) else value
    if isinstance(text, str):
        if _COMMIT.fullmatch(text):
            return text
        if _parts_or_none(text.removeprefix("v")) is not None:
            return text.removeprefix("v")
    raise ReferenceSyntaxError(
        f"invalid version of builder code {text!r:.80}",
        hint="Write the last version of the code that can prepare it, e.g. 1.0.0 or v1.0.0, or its commit.",
        details={"version_to_prepare": str(text)[:80]},
    )


def _read_parts(major: object, minor: object, patch: object) -> tuple[int, int, int]:
    """The parts of a ``Version`` that was not created from three whole numbers."""
    if isinstance(major, str) and minor is None and patch is None:
        return _parse_parts(major)
    hint = "Write Version(3, 0, 1) or Version('3.0.1')."
    if isinstance(major, str | Version) and isinstance(minor, str):
        hint = "In old TFDS code the second text was a description: move it to RELEASE_NOTES."
    elif isinstance(major, str | Version) and isinstance(minor, Mapping):
        hint = f"Write Version({str(major)!r}, experiments={{...}})."
    given = ", ".join(f"{value!r:.60}" for value in (major, minor, patch) if value is not None)
    raise ReferenceSyntaxError(f"invalid version: Version({given})", hint=hint, details={"version": given})


def _parts_of(version: Version | str) -> tuple[int, int, int]:
    return version.parts if isinstance(version, Version) else _parse_parts(version)


def _parse_parts(text: object) -> tuple[int, int, int]:
    parts = _parts_or_none(text) if isinstance(text, str) else None
    if parts is None:
        raise _bad_version(str(text)[:60])
    return parts


def _parts_or_none(text: str) -> tuple[int, int, int] | None:
    match = _VERSION.fullmatch(text) if len(text) <= 40 else None
    if match is None:
        return None
    major, minor, patch = map(int, match.groups())
    return (major, minor, patch) if max(major, minor, patch) <= MAX_PART else None


def _bad_version(text: str, why: str = "") -> ReferenceSyntaxError:
    return ReferenceSyntaxError(
        f"invalid version {text!r}{why}",
        hint="Write a version as MAJOR.MINOR.PATCH, numbers without leading zeros, e.g. 3.0.1.",
        details={"version": text},
    )


@dataclass(frozen=True, slots=True)
class VersionClause:
    """One condition of a request: an operator and up to three parts. A part is None if it is ``*`` or left out.

    Operators: ``""`` (equal in the parts given), ``^`` (no change left of the first non-zero part), ``~`` (no change of
    MAJOR.MINOR, or of MAJOR if only MAJOR is given), ``>=``, ``>``, ``<=``, ``<``, ``!=``. A comparison with
    missing parts compares with the whole series: ``<=3.1`` includes 3.1.9, ``>3`` starts at 4.0.0.
    """

    operator: str
    major: int | None
    minor: int | None = None
    patch: int | None = None

    @property
    def bounds(self) -> tuple[Number, Number]:
        """The lowest and the highest number that can meet this condition."""
        prefix = self.prefix
        match self.operator:
            case "":
                return _first(prefix), _last(prefix)
            case ">=":
                return _first(prefix), HIGHEST
            case ">":
                return _shifted(_last(prefix), 1), HIGHEST
            case "<=":
                return LOWEST, _last(prefix)
            case "<":
                return LOWEST, _shifted(_first(prefix), -1)
            case "~":
                return _first(prefix), _last(prefix[:2])
            case "^":  # the parts up to the first non-zero one are fixed
                fixed = next((index for index, part in enumerate(prefix) if part), len(prefix) - 1) + 1
                return _first(prefix), _last(prefix[:fixed])
            case _:
                return LOWEST, HIGHEST

    @property
    def prefix(self) -> tuple[int, ...]:
        """The numbers before the first wildcard."""
        return tuple(itertools.takewhile(lambda part: part is not None, self._given))  # type: ignore[arg-type] # mypy does not see that None ends it

    @property
    def says_more(self) -> bool:
        """Whether ``bounds`` do not express it completely: ``!=``, or a wildcard before a number (``3.*.1``)."""
        return self.operator == "!=" or len(self.prefix) < sum(part is not None for part in self._given)

    def allows(self, version: Version) -> bool:
        """Whether ``version`` meets this condition."""
        if self.operator in ("", "!="):
            is_in_series = all(part in (None, actual) for part, actual in zip(self._given, version.parts, strict=True))
            return is_in_series == (self.operator == "")
        low, high = self.bounds
        return low <= version.parts <= high

    @property
    def _given(self) -> tuple[int | None, int | None, int | None]:
        return self.major, self.minor, self.patch

    def __str__(self) -> str:
        parts = ["*" if part is None else str(part) for part in self._given]
        if self.operator in ("", "!="):
            return self.operator + ".".join(parts)
        return self.operator + ".".join(part for part in parts if part != "*")


@dataclass(frozen=True, slots=True)
class VersionRequest:
    """A condition on versions: every clause must allow the version.

    Grammar::

        request := clause ( "," clause )*
        clause  := operator? part ( "." part ( "." part )? )?
        part    := "*" | number without leading zeros        ("*" only without an operator, or with "!=")
        operator := "^" | "~" | ">=" | ">" | "<=" | "<" | "!=" | "="

    >>> request = VersionRequest.parse("3.*")
    >>> str(request), request.allows(Version(3, 1, 1)), request.allows(Version(4, 0, 0))
    ('3.*.*', True, False)
    >>> VersionRequest.parse(">=3.1, <4").allows(Version(3, 9, 0))
    True

    Raises:
        ReferenceSyntaxError: the text is malformed.
    """

    clauses: tuple[VersionClause, ...]

    @classmethod
    def parse(cls, text: str) -> VersionRequest:
        """Parse a request, e.g. ``3.0.1``, ``3.*.*``, ``3``, ``^3.1``, ``~3.1``, ``>=3.1,<4``.

        Args:
            text: the request.

        Raises:
            ReferenceSyntaxError: the text is malformed.
        """
        require_type("a version request", text, str)
        if len(text) > 200:
            raise _bad_request(text)
        return cls(tuple(_parse_clause(part.strip(" "), text) for part in text.split(",")))

    @classmethod
    def exactly(cls, version: Version) -> VersionRequest:
        """The request that only ``version`` meets."""
        require_type("version", version, Version)
        return cls((VersionClause("", version.major, version.minor, version.patch),))

    @property
    def exact(self) -> Version | None:
        """The version if this request names exactly one; None for a wildcard or range."""
        if len(self.clauses) == 1 and self.clauses[0].operator == "":
            clause = self.clauses[0]
            if clause.major is not None and clause.minor is not None and clause.patch is not None:
                return Version(clause.major, clause.minor, clause.patch)
        return None

    def allows(self, version: Version) -> bool:
        """Whether ``version`` meets every clause."""
        require_type("version", version, Version)
        return all(clause.allows(version) for clause in self.clauses)

    def highest(self, versions: Iterable[Version]) -> Version | None:
        """The highest of ``versions`` that this request allows, or None."""
        require_type("versions", versions, Iterable)
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
        hint="Write '*' for the highest version, experimental ones included."
        if text == "experimental_latest"  # the spelling of TFDS
        else "Write a version (3.0.1), a wildcard (3.*.*, 3.*, 3) or a range (^3.1, ~3.1, >=3.1,<4).",
        details={"request": text[:60]},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionBounds:
    """The lowest and the highest number that may meet a request, both included.

    If ``low`` is above ``high``, no number does. Both are in the range that every database can store, so nothing
    overflows: ``<=3.1`` ends at ``3.1.2147483647``. ``rest`` are the clauses that two bounds cannot express: ``!=``,
    and a wildcard before a number (``3.*.1``).
    """

    low: Number
    high: Number
    rest: tuple[VersionClause, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no number is within the bounds."""
        return self.low > self.high


def request_bounds(request: VersionRequest) -> VersionBounds:
    """The narrowest bounds of the versions that ``request`` allows.

    >>> bounds = request_bounds(VersionRequest.parse(">=3.1,<4,!=3.2.0"))
    >>> bounds.low, bounds.high, str(bounds.rest[0])
    ((3, 1, 0), (3, 2147483647, 2147483647), '!=3.2.0')
    """
    bounds = [clause.bounds for clause in request.clauses]
    return VersionBounds(
        low=max((low for low, _ in bounds), default=LOWEST),
        high=min((high for _, high in bounds), default=HIGHEST),
        rest=tuple(clause for clause in request.clauses if clause.says_more),
    )


def _first(prefix: tuple[int, ...]) -> Number:
    major, minor, patch = (*prefix, 0, 0, 0)[:3]
    return major, minor, patch


def _last(prefix: tuple[int, ...]) -> Number:
    major, minor, patch = (*prefix, *HIGHEST)[:3]
    return major, minor, patch


def _shifted(number: Number, step: int) -> Number:
    """The next number (``step`` 1) or the one before (-1). Past either end, the range to the bound is empty."""
    base = MAX_PART + 1
    rest, patch = divmod((number[0] * base + number[1]) * base + number[2] + step, base)
    return rest // base, rest % base, patch
