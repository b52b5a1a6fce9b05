"""``Standing``, the versions of a config at one moment, and ``choose``, the rule by which a look-up chooses one.

The catalog loads a ``Standing`` from its tables, or replays it from the event log for a past moment. ``choose`` applies
the rule: without a request, a reference resolves to the canonical version; a wildcard or range resolves to the highest
match that is neither yanked nor dropped; an exact number or an alias resolves to exactly that version, even if it is
yanked, unless it is dropped (docs/versions.md).
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final

from registry.model.dataset_version import WITHDRAWN, VersionState, VersionStatus, version_status
from registry.model.numbers import listed
from registry.model.reference import Reference
from registry.model.version import Number, Version, VersionRequest, request_bounds

"""States in which only an exact reference may resolve to a version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One published version, its state, and the reason for the state."""

    version: Version
    state: VersionState = VersionState.SUPPORTED
    message: str = ""
    superseded_by: Version | None = None

    @property
    def is_withdrawn(self) -> bool:
        """Whether it is yanked or dropped."""
        return self.state in WITHDRAWN

    @property
    def described(self) -> str:
        """The state and its message.

        >>> Candidate(version=Version(1, 0, 0), state=VersionState.YANKED, message="wrong labels").described
        'yanked: wrong labels'
        """
        text = f"{self.state.value}: {self.message}" if self.message else self.state.value
        return text if self.superseded_by is None else f"{text}; superseded by {self.superseded_by}"


@dataclass(frozen=True, kw_only=True)  # no slots: the sorted numbers are computed once, on first use
class Standing:
    """The versions of one config, highest first, its canonical version, and its aliases.

    For ``names``, see ``DatasetVersion``.
    """

    name: str
    config: str | None = None
    candidates: tuple[Candidate, ...] = ()
    canonical: Version | None = None
    aliases: Mapping[str, Version] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    @property
    def dataset(self) -> str:
        """``name`` or ``name/config``."""
        return self.name if self.config is None else f"{self.name}/{self.config}"

    def is_called(self, name: str) -> bool:
        """Whether its dataset has or had this name."""
        return name == self.name or name in self.names

    def find(self, version: Version) -> Candidate | None:
        """The candidate of that number, or None."""
        return self._by_number.get(version.parts)

    def status(self, candidate: Candidate) -> VersionStatus:
        """The relation of ``candidate`` to the canonical version."""
        return version_status(candidate.version, candidate.state, self.canonical)

    def highest(self, request: VersionRequest) -> Candidate | None:
        """The highest version that ``request`` allows and that is not withdrawn, or None.

        Takes O(log n) of n versions if the request amounts to two bounds.
        """
        bounds = request_bounds(request)
        readable = self._readable
        place = bisect_right(readable, bounds.high)
        start = bisect_left(readable, bounds.low)
        while place > start:
            place -= 1
            result = self._by_number[readable[place]]
            if all(clause.allows(result.version) for clause in bounds.rest):
                return result
        return None

    @property
    def usable_canonical(self) -> Version | None:
        """The canonical version, or None if it does not exist or is yanked or dropped."""
        result = None if self.canonical is None else self.find(self.canonical)
        return None if result is None or result.is_withdrawn else result.version

    @property
    def next_canonical(self) -> Version | None:
        """The version to promote if no canonical version is usable, or None if no version can be read.

        It is the successor that the withdrawn canonical version names; else the next lower version, because higher ones
        are experimental; else the highest version.
        """
        readable = [candidate.version for candidate in self.candidates if not candidate.is_withdrawn]
        before = None if self.canonical is None else self.find(self.canonical)
        if before is not None and before.superseded_by in readable:
            return before.superseded_by
        below = [version for version in readable if before is not None and version < before.version]
        return max(below or readable, default=None)

    def allowed(self, request: VersionRequest) -> list[Candidate]:
        """Every version that ``request`` allows, in any state, the highest first."""
        return [candidate for candidate in self.candidates if request.allows(candidate.version)]

    def exactly(self, version: Version) -> Reference:
        """The exact reference of ``version`` of this config."""
        return Reference.exactly(self.name, self.config, version)

    def replace(self, changed: Candidate) -> Standing:
        """The standing with ``changed`` instead of the candidate of that number, or added if it is new."""
        others = [candidate for candidate in self.candidates if candidate.version != changed.version]
        return dataclasses.replace(self, candidates=in_order([*others, changed]))

    def promote(self, version: Version | None) -> Standing:
        """The standing with another canonical version."""
        return dataclasses.replace(self, canonical=version)

    def point(self, alias: str, version: Version | None) -> Standing:
        """The standing with ``alias`` pointing to ``version``, or without it for None."""
        aliases = {name: target for name, target in self.aliases.items() if name != alias}
        if version is not None:
            aliases[alias] = version
        return dataclasses.replace(self, aliases=aliases)

    @cached_property
    def _by_number(self) -> dict[Number, Candidate]:
        return {candidate.version.parts: candidate for candidate in self.candidates}

    @cached_property
    def _readable(self) -> list[Number]:
        """Numbers of the versions that are not withdrawn, the lowest first."""
        return sorted(candidate.version.parts for candidate in self.candidates if not candidate.is_withdrawn)


def in_order(candidates: list[Candidate]) -> tuple[Candidate, ...]:
    """``candidates``, the highest first."""
    return tuple(sorted(candidates, key=lambda candidate: candidate.version.parts, reverse=True))


_SHOWN: Final = 5


class Refusal(StrEnum):
    """Why no version was chosen."""

    NO_CANONICAL = "no_canonical"
    NO_MATCH = "no_match"
    NO_ALIAS = "no_alias"
    WITHDRAWN = "withdrawn"
    """The named version is dropped, or the canonical version is yanked."""
    ALL_WITHDRAWN = "all_withdrawn"
    """Every version that matches is yanked or dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Considered:
    """A version that a look-up considered, and its verdict: ``chosen``, ``lower than 3.1.1``, ``yanked: why`` ..."""

    version: Version
    status: VersionStatus
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The version that a reference resolves to in a standing, or the reason why it is refused.

    Attributes:
        standing, wanted: the versions, and the reference.
        candidate: the version that was chosen, or None if the look-up is refused.
        refusal: why it is refused, or None.
        refused: the withdrawn version that the reference names, or None.
    """

    standing: Standing
    wanted: Reference
    candidate: Candidate | None = None
    refusal: Refusal | None = None
    refused: Candidate | None = None

    @property
    def version(self) -> Version | None:
        """The chosen version, or None."""
        return None if self.candidate is None else self.candidate.version

    @property
    def note(self) -> str | None:
        """The warning that the chosen version is experimental, deprecated or yanked, or None."""
        if self.candidate is None:
            return None
        return describe_trouble(self.standing.exactly(self.candidate.version), self.candidate, self.standing.canonical)

    @property
    def problem(self) -> str:
        """Why nothing was chosen, in words, or ``""``."""
        dataset, wanted = self.wanted.dataset, self.wanted
        match self.refusal:
            case Refusal.NO_CANONICAL:
                return f"{dataset} has no canonical version"
            case Refusal.NO_ALIAS:
                return f"no alias {wanted.alias!r} in {dataset}"
            case Refusal.NO_MATCH:
                return f"no version {str(wanted.request)!r} in {dataset}"
            case Refusal.WITHDRAWN if self.refused is not None:
                if wanted.alias is not None:
                    return f"{wanted} points to {self.refused.version}, which is {self.refused.described}"
                subject = "the canonical version" if wanted.request is None else "version"
                return f"{subject} {self.refused.version} of {dataset} is {self.refused.described}"
            case Refusal.ALL_WITHDRAWN if wanted.request is not None:
                allowed = self.standing.allowed(wanted.request)
                named = ", ".join(f"{candidate.version} is {candidate.described}" for candidate in allowed[:_SHOWN])
                more = f" and {len(allowed) - _SHOWN} more are withdrawn" if len(allowed) > _SHOWN else ""
                return f"no version {str(wanted.request)!r} of {dataset} can be read: {named}{more}"
            case _:
                return ""

    @property
    def sentences(self) -> tuple[str, ...]:
        """Why the look-up chose this version or none, in sentences."""
        return tuple(self._sentences())

    @property
    def considered(self) -> tuple[Considered, ...]:
        """Every version of the config with its verdict, the highest first."""
        standing = self.standing
        return tuple(
            Considered(version=candidate.version, status=standing.status(candidate), verdict=self._verdict(candidate))
            for candidate in standing.candidates
        )

    def _verdict(self, candidate: Candidate) -> str:
        if self.candidate is not None and candidate.version == self.candidate.version:
            return "chosen"
        request = self.wanted.request
        if self.refused is not None and candidate.version == self.refused.version:
            return candidate.described
        if self.wanted.alias is not None:
            return f"{self.wanted.alias} does not point to it"
        if request is None:
            return "not the canonical version"
        if not request.allows(candidate.version):
            return f"not {request}" if request.exact is not None else f"not in {request}"
        return candidate.described if candidate.is_withdrawn else f"lower than {self.version}"

    def _sentences(self) -> Iterator[str]:
        wanted, standing = self.wanted, self.standing
        if wanted.config is None and standing.config is not None:
            yield f"{wanted} does not name a config: {standing.config} is the default config of {standing.name}."
        if self.candidate is None:
            yield f"{self.problem}."
            return
        found = self.candidate
        if wanted.alias is not None:
            yield f"{wanted}: the alias {wanted.alias} points to {found.version}."
        elif wanted.request is None:
            yield f"{wanted} does not name a version: {found.version} is the canonical one."
        elif wanted.request.exact is not None:
            yield f"{wanted} names exactly {found.version}."
        else:
            yield from _explain_request(wanted, wanted.request, found, standing)
        if standing.status(found) is VersionStatus.EXPERIMENTAL:
            canonical = standing.canonical
            why = f"above the canonical version {canonical}" if canonical else "and no version is canonical yet"
            yield f"{found.version} is experimental, {why}."
        elif found.state is not VersionState.SUPPORTED:
            yield f"{found.version} is {found.described}."


def choose(standing: Standing, reference: Reference) -> Choice:
    """Choose the version that ``reference`` resolves to. The standing must belong to its dataset and config.

    >>> standing = Standing(name="mnist", candidates=(Candidate(version=Version(3, 0, 1)),))
    >>> choose(standing, Reference.parse("mnist:3.*")).version
    Version(major=3, minor=0, patch=1)
    """
    if reference.alias is not None:
        return _take(standing, reference, standing.aliases.get(reference.alias), missing=Refusal.NO_ALIAS)
    if reference.request is None:
        return _take(standing, reference, standing.canonical, missing=Refusal.NO_CANONICAL)
    exact = reference.request.exact
    if exact is not None:
        return _take(standing, reference, exact, missing=Refusal.NO_MATCH)
    result = standing.highest(reference.request)
    if result is not None:
        return Choice(standing=standing, wanted=reference, candidate=result)
    refusal = Refusal.ALL_WITHDRAWN if standing.allowed(reference.request) else Refusal.NO_MATCH
    return Choice(standing=standing, wanted=reference, refusal=refusal)


def describe_trouble(reference: Reference, candidate: Candidate, canonical: Version | None) -> str | None:
    """The warning that a version is experimental, deprecated or yanked, or None."""
    if candidate.state is not VersionState.SUPPORTED:
        return f"{reference} is {candidate.described}"
    if version_status(candidate.version, candidate.state, canonical) is VersionStatus.EXPERIMENTAL:
        return f"{reference} is experimental: " + (
            f"the canonical version is {canonical}" if canonical else "no version is canonical yet"
        )
    return None


def _take(standing: Standing, reference: Reference, version: Version | None, *, missing: Refusal) -> Choice:
    """The choice for a reference that names one version."""
    result = None if version is None else standing.find(version)
    if result is None:
        return Choice(standing=standing, wanted=reference, refusal=missing)
    unasked = reference.request is None and reference.alias is None
    if result.state is VersionState.DROPPED or (result.state is VersionState.YANKED and unasked):
        return Choice(standing=standing, wanted=reference, refusal=Refusal.WITHDRAWN, refused=result)
    return Choice(standing=standing, wanted=reference, candidate=result)


def _explain_request(
    reference: Reference, request: VersionRequest, found: Candidate, standing: Standing
) -> Iterator[str]:
    """Which versions a wildcard or range allows, and which it skips."""
    allowed = standing.allowed(request)
    listing = listed([str(candidate.version) for candidate in allowed], _SHOWN)
    if len(allowed) == 1:
        yield f"{reference} allows only {listing}, of {len(standing.candidates)} published versions."
    else:
        yield f"{reference} allows {listing}: {found.version} is the highest that is neither yanked nor dropped."
    passed = [candidate for candidate in allowed if candidate.is_withdrawn and candidate.version > found.version]
    for candidate in passed[:_SHOWN]:
        yield f"{candidate.version} is skipped: it is {candidate.described}."
    if len(passed) > _SHOWN:
        yield f"{len(passed) - _SHOWN} more above it are skipped: they are yanked or dropped."
