"""Which references would resolve differently after a change? Two standings, compared by every natural reference.

Natural is what people write: no request, ``*``, ``3.*``, ``3.1.*``, ``^3.1``, each exact number, each alias. References
in use, from papers and configs, are looked at one by one whatever they look like.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from registry.model.choice import choose
from registry.model.dataset_version import VersionState, VersionStatus
from registry.model.reference import Reference
from registry.model.standing import Candidate, Standing
from registry.model.version import VersionClause, VersionRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a reference gives.

    Attributes:
        reference: the exact version, or None where the look-up is refused.
        note: what a reader is told of it (``experimental``, ``yanked`` ...), or why it is refused; else empty.
    """

    reference: Reference | None
    note: str = ""

    @property
    def is_warning(self) -> bool:
        """Whether its reader is told to go elsewhere: it is deprecated or yanked."""
        return self.note not in ("", VersionStatus.EXPERIMENTAL.value)

    def __str__(self) -> str:
        if self.reference is None:
            return f"refused: {self.note}"
        return str(self.reference) if not self.note else f"{self.reference} ({self.note})"


class EffectKind(StrEnum):
    """What happens to a reference."""

    MOVES = "moves"
    """It gives another version."""
    IS_REFUSED = "is_refused"
    IS_ANSWERED = "is_answered"
    """It was refused before."""
    STARTS_TO_WARN = "starts_to_warn"
    STOPS_WARNING = "stops_warning"
    NOTE_CHANGES = "note_changes"
    """The same version, experimental or so no longer, or deprecated for another reason; or refused for another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A reference whose answer a change alters, and where it is used, as far as that was said."""

    wanted: Reference
    before: Answer
    after: Answer
    places: tuple[str, ...] = ()

    @property
    def kind(self) -> EffectKind:
        """What happens to it."""
        before, after = self.before.reference, self.after.reference
        if before != after:
            if after is None:
                return EffectKind.IS_REFUSED
            return EffectKind.IS_ANSWERED if before is None else EffectKind.MOVES
        if self.before.is_warning == self.after.is_warning:
            return EffectKind.NOTE_CHANGES
        return EffectKind.STARTS_TO_WARN if self.after.is_warning else EffectKind.STOPS_WARNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A reference in use, and where: ``train.yaml:12``."""

    reference: Reference
    place: str


def answer(standing: Standing | None, wanted: Reference) -> Answer:
    """What ``wanted`` gives in ``standing``; None stands for a dataset without a default config."""
    if standing is None:
        return Answer(reference=None, note=f"{wanted.name} has no default config")
    choice = choose(standing, wanted)
    if choice.candidate is None:
        return Answer(reference=None, note=choice.problem)
    found = choice.candidate
    exactly = standing.exactly(found.version)
    if found.state is not VersionState.SUPPORTED:
        return Answer(reference=exactly, note=found.described)
    is_experimental = standing.status(found) is VersionStatus.EXPERIMENTAL
    return Answer(reference=exactly, note=VersionStatus.EXPERIMENTAL.value if is_experimental else "")


def natural_effects(before: Standing, after: Standing) -> tuple[Effect, ...]:
    """Every natural reference that a change of one config alters; both are of the same config.

    The cost grows with the number of versions that changed, not with all there are, times its logarithm.
    """
    touched = [*_touched(before, after), *_touched(after, before)]
    return _effects(before, after, _naturals(after.name, after.config, [before, after], touched))


def default_effects(before: Standing | None, after: Standing) -> tuple[Effect, ...]:
    """Every natural reference without a config that another default config alters."""
    standings = [after] if before is None else [before, after]
    touched = [candidate for standing in standings for candidate in standing.candidates]
    return _effects(before, after, _naturals(after.name, None, standings, touched))


def use_effects(before: Standing | None, after: Standing, uses: Iterable[Use]) -> tuple[Effect, ...]:
    """The references in use that a change alters, each with its places, in the order in which they came."""
    places: dict[Reference, list[str]] = {}
    for use in uses:
        places.setdefault(use.reference, []).append(use.place)
    return tuple(
        Effect(wanted=effect.wanted, before=effect.before, after=effect.after, places=tuple(places[effect.wanted]))
        for effect in _effects(before, after, places)
    )


def _effects(before: Standing | None, after: Standing, references: Iterable[Reference]) -> tuple[Effect, ...]:
    effects = (
        Effect(wanted=wanted, before=answer(before, wanted), after=answer(after, wanted)) for wanted in references
    )
    return tuple(effect for effect in effects if effect.before != effect.after)


def _touched(first: Standing, second: Standing) -> Iterator[Candidate]:
    """Candidates of ``first`` that stand differently in ``second``."""
    moved = first.canonical != second.canonical
    for one in first.candidates:
        other = second.find(one.version)
        is_as_before = other is one or other == one
        if not is_as_before or (moved and first.status(one) is not second.status(one)):
            yield one


def _naturals(
    name: str, config: str | None, standings: list[Standing], touched: list[Candidate]
) -> Iterator[Reference]:
    """The natural references that may give one of the versions ``touched``, now or before: each of them once."""
    yield Reference(name, config)
    for alias in sorted({alias for standing in standings for alias in standing.aliases}):
        yield Reference(name, config, alias=alias)
    if touched:
        yield Reference(name, config, VersionRequest((VersionClause("", None),)))
    minors: dict[int, set[int]] = {}
    for one in touched:
        minors.setdefault(one.version.major, set()).add(one.version.minor)
    existing: dict[int, set[int]] = {}
    for standing in standings:
        for one in standing.candidates:
            if one.version.major in minors:
                existing.setdefault(one.version.major, set()).add(one.version.minor)
    for major in sorted(minors, reverse=True):
        yield Reference(name, config, VersionRequest((VersionClause("", major),)))
        for minor in sorted(minors[major], reverse=True):
            yield Reference(name, config, VersionRequest((VersionClause("", major, minor),)))
        highest = max(minors[major])
        for minor in sorted(existing[major], reverse=True):
            if minor <= highest:
                yield Reference(name, config, VersionRequest((VersionClause("^", major, minor),)))
    for version in sorted({one.version for one in touched}, reverse=True):
        yield Reference(name, config, VersionRequest.exactly(version))
