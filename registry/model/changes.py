"""Changes to a published version, and their effects on references. Pure: a standing in, a standing out.

A dry run and the change itself both use these functions, so they cannot disagree. States rise from supported over
deprecated and yanked to dropped; a lower state is reached by undoing a higher one, never by setting it. An effect is
a reference whose look-up gives another answer after the change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from registry.errors import UsageError, VersionNotFoundError, VersionWithdrawnError
from registry.model.dataset_version import VersionState, VersionStatus
from registry.model.reference import Reference
from registry.model.standing import Candidate, Standing, choose
from registry.model.version import Version, VersionClause, VersionRequest

MAX_MESSAGE = 10_000
"""Characters of a reason: a page or two, and no error message grows without end."""


def promote(standing: Standing, candidate: Candidate) -> Standing:
    """``candidate`` as the canonical version, which a look-up without a version gives.

    Raises:
        VersionWithdrawnError: it is yanked or dropped.
    """
    _refuse_withdrawn(standing, candidate, "promoted")
    return standing.promote(candidate.version)


def deprecate(standing: Standing, candidate: Candidate, message: str) -> Standing:
    """``candidate`` as deprecated: found as before, with ``message``.

    Raises:
        UsageError: no message.
        VersionWithdrawnError: it is yanked or dropped.
    """
    _refuse_withdrawn(standing, candidate, "deprecated")
    return standing.replace(
        dataclasses.replace(candidate, state=VersionState.DEPRECATED, message=check_message(message))
    )


def yank(standing: Standing, candidate: Candidate, reason: str, superseded_by: Version | None = None) -> Standing:
    """``candidate`` as yanked: given only to references that name it exactly or by an alias.

    Raises:
        UsageError: no reason, or it would supersede itself.
        VersionNotFoundError: ``superseded_by`` is not published.
        VersionWithdrawnError: it is dropped, or ``superseded_by`` is withdrawn itself.
    """
    reason = check_message(reason)
    reference = standing.exactly(candidate.version)
    if candidate.state is VersionState.DROPPED:
        raise _undo_first(standing, candidate, ": it cannot be yanked")
    if superseded_by is not None:
        if superseded_by == candidate.version:
            raise UsageError(f"{reference} cannot supersede itself", hint="Name another version.")
        successor = standing.find(superseded_by)
        if successor is None:
            raise VersionNotFoundError(
                f"no version {str(superseded_by)!r} in {standing.dataset} that could supersede {reference}",
                hint=f"Publish it first; there are: registry versions {standing.dataset}",
            )
        if successor.is_withdrawn:
            raise VersionWithdrawnError(
                f"{standing.exactly(superseded_by)} is {successor.described}: it cannot supersede {reference}",
                hint=f"Name one that can be read: registry versions {standing.dataset}",
            )
    return standing.replace(
        dataclasses.replace(candidate, state=VersionState.YANKED, message=reason, superseded_by=superseded_by)
    )


def drop(standing: Standing, candidate: Candidate, reason: str) -> Standing:
    """``candidate`` as dropped: no look-up gives it any more, and its number stays used.

    Raises:
        UsageError: no reason.
    """
    return standing.replace(dataclasses.replace(candidate, state=VersionState.DROPPED, message=check_message(reason)))


def undo(standing: Standing, candidate: Candidate, state: VersionState, before: Candidate) -> Standing:
    """``candidate`` as it was ``before`` it came to ``state``; unchanged if it is below that state.

    Raises:
        VersionWithdrawnError: it is in a higher state, which has to be undone first.
    """
    order = list(VersionState)
    if order.index(candidate.state) > order.index(state):
        raise _undo_first(standing, candidate, f", which is more than {state.value}")
    return standing.replace(before) if candidate.state is state else standing


def check_message(message: str) -> str:
    """``message`` if it says something; people read it in errors and notes for years."""
    said = message.strip()
    if not said or len(said) > MAX_MESSAGE:
        raise UsageError(
            "say why, in a few words" if not said else f"the message has {len(said):,} characters",
            hint=f"One or two sentences, {MAX_MESSAGE:,} characters at most.",
        )
    return said


def _refuse_withdrawn(standing: Standing, candidate: Candidate, done: str) -> None:
    if candidate.is_withdrawn:
        raise _undo_first(standing, candidate, f": it cannot be {done}")


def _undo_first(standing: Standing, candidate: Candidate, why: str) -> VersionWithdrawnError:
    reference = standing.exactly(candidate.version)
    command = "drop" if candidate.state is VersionState.DROPPED else "yank"
    return VersionWithdrawnError(
        f"{reference} is {candidate.described}{why}", hint=f"Undo that first: registry {command} {reference} --undo"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a reference gives.

    Attributes:
        reference: the exact version, or None where the look-up is refused.
        note: its status if it is not a supported version (``experimental``, ``yanked`` ...), or why it is refused.
    """

    reference: Reference | None
    note: str = ""

    @property
    def is_warning(self) -> bool:
        """Whether the version is deprecated or yanked."""
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
    """What ``wanted`` gives in ``standing``; None means a dataset without a default config."""
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

    Natural references are what people write: no request, ``*``, ``3.*``, ``3.1.*``, ``^3.1``, each exact number, each
    alias. Others, from papers and configs, are compared one by one by ``use_effects``.

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
    """Candidates of ``first`` whose state or status differs in ``second``."""
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
