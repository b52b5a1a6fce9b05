"""How do the versions of one config stand at one moment? What a look-up chooses from.

The catalog loads a Standing from its tables, or replays it from the event log for a moment that is gone; what a
change would do is worked out on one, before anything is changed. ``choice.py`` chooses.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from registry.model.bounds import Number, request_bounds
from registry.model.dataset_version import VersionState, VersionStatus, version_status
from registry.model.reference import Reference
from registry.model.version import Version, VersionRequest

WITHDRAWN: Final = frozenset({VersionState.YANKED, VersionState.DROPPED})
"""States in which no wildcard, range or missing request gives a version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One published version and what its publisher says of it."""

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
        """The state and what is said of it.

        >>> Candidate(version=Version(1, 0, 0), state=VersionState.YANKED, message="wrong labels").described
        'yanked: wrong labels'
        """
        text = f"{self.state.value}: {self.message}" if self.message else self.state.value
        return text if self.superseded_by is None else f"{text}; superseded by {self.superseded_by}"


@dataclass(frozen=True, kw_only=True)  # no slots: the sorted numbers are worked out once, when they are asked for
class Standing:
    """The versions of one config, the highest first, the canonical one, and where aliases point."""

    name: str
    config: str | None = None
    candidates: tuple[Candidate, ...] = ()
    canonical: Version | None = None
    aliases: Mapping[str, Version] = field(default_factory=dict)

    @property
    def dataset(self) -> str:
        """``name`` or ``name/config``."""
        return self.name if self.config is None else f"{self.name}/{self.config}"

    def find(self, version: Version) -> Candidate | None:
        """The candidate of that number, or None."""
        return self._by_number.get(_number(version))

    def status(self, candidate: Candidate) -> VersionStatus:
        """How ``candidate`` stands to the canonical version."""
        return version_status(candidate.version, candidate.state, self.canonical)

    def highest(self, request: VersionRequest) -> Candidate | None:
        """The highest version that ``request`` allows and that is not withdrawn, or None.

        Costs the logarithm of the number of versions, where the request is no more than two bounds.
        """
        bounds = request_bounds(request)
        readable = self._readable
        place = bisect_right(readable, bounds.high)
        start = bisect_left(readable, bounds.low)
        while place > start:
            place -= 1
            found = self._by_number[readable[place]]
            if all(clause.allows(found.version) for clause in bounds.rest):
                return found
        return None

    def allowed(self, request: VersionRequest) -> list[Candidate]:
        """Every version that ``request`` allows, in any state, the highest first."""
        return [one for one in self.candidates if request.allows(one.version)]

    def exactly(self, version: Version) -> Reference:
        """The reference that names ``version`` of this config and nothing else."""
        return Reference.exactly(self.name, self.config, version)

    def replace(self, changed: Candidate) -> Standing:
        """The standing with ``changed`` in the place of the candidate of its number, or beside the others."""
        others = [one for one in self.candidates if one.version != changed.version]
        return dataclasses.replace(self, candidates=in_order([*others, changed]))

    def promote(self, version: Version | None) -> Standing:
        """The standing with another canonical version."""
        return dataclasses.replace(self, canonical=version)

    def point(self, alias: str, version: Version | None) -> Standing:
        """The standing with ``alias`` pointing to ``version``, or to nothing."""
        aliases = {name: target for name, target in self.aliases.items() if name != alias}
        if version is not None:
            aliases[alias] = version
        return dataclasses.replace(self, aliases=aliases)

    @cached_property
    def _by_number(self) -> dict[Number, Candidate]:
        return {_number(one.version): one for one in self.candidates}

    @cached_property
    def _readable(self) -> list[Number]:
        """Numbers of the versions that are not withdrawn, the lowest first."""
        return sorted(_number(one.version) for one in self.candidates if not one.is_withdrawn)


def in_order(candidates: list[Candidate]) -> tuple[Candidate, ...]:
    """``candidates``, the highest first."""
    return tuple(sorted(candidates, key=lambda one: _number(one.version), reverse=True))


def _number(version: Version) -> Number:
    return version.major, version.minor, version.patch
