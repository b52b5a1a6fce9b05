"""Computes changes to a published version and their effects on references. Each function maps a standing to a standing.

Dry runs and real changes use the same functions, so they cannot disagree. States rise from supported to deprecated,
yanked and dropped; a version reaches a lower state only by undoing a higher one. An effect is a reference that resolves
differently after the change.
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
"""Limit for the length of a reason, so that error messages stay short enough to read."""


def promote(standing: Standing, candidate: Candidate) -> Standing:
    """Make ``candidate`` the canonical version, to which a reference without a version resolves.

    Raises:
        VersionWithdrawnError: the version is yanked or dropped.
    """
    _refuse_withdrawn(standing, candidate, "promoted")
    return standing.promote(candidate.version)


def deprecate(standing: Standing, candidate: Candidate, message: str) -> Standing:
    """Deprecate ``candidate``: look-ups still return it, with ``message`` as a note.

    Raises:
        UsageError: the message is empty or too long.
        VersionWithdrawnError: the version is yanked or dropped.
    """
    _refuse_withdrawn(standing, candidate, "deprecated")
    return standing.replace(
        dataclasses.replace(candidate, state=VersionState.DEPRECATED, message=check_message(message))
    )


def yank(standing: Standing, candidate: Candidate, reason: str, superseded_by: Version | None = None) -> Standing:
    """Yank ``candidate``: only its exact number or an alias still resolves to it.

    Raises:
        UsageError: the reason is empty or too long, or the version would supersede itself.
        VersionNotFoundError: ``superseded_by`` is not published.
        VersionWithdrawnError: the version is dropped, or ``superseded_by`` is yanked or dropped.
    """
    reason = check_message(reason)
    reference = standing.exactly(candidate.version)
    if candidate.state is VersionState.DROPPED:
        raise _undo_first(standing, candidate, ": it cannot be yanked")
    if superseded_by is not None:
        if superseded_by == candidate.version:
            raise UsageError(f"{reference} cannot supersede itself", hint="Name a different version.")
        successor = standing.find(superseded_by)
        if successor is None:
            raise VersionNotFoundError(
                f"no version {str(superseded_by)!r} in {standing.dataset} that could supersede {reference}",
                hint=f"Publish it first. List the versions: registry versions {standing.dataset}",
            )
        if successor.is_withdrawn:
            raise VersionWithdrawnError(
                f"{standing.exactly(superseded_by)} is {successor.described}: it cannot supersede {reference}",
                hint=f"Name a readable version. To list the versions: registry versions {standing.dataset}",
            )
    return standing.replace(
        dataclasses.replace(candidate, state=VersionState.YANKED, message=reason, superseded_by=superseded_by)
    )


def drop(standing: Standing, candidate: Candidate, reason: str) -> Standing:
    """Drop ``candidate``: no look-up returns it, and its number cannot be used again.

    Raises:
        UsageError: the reason is empty or too long.
    """
    return standing.replace(dataclasses.replace(candidate, state=VersionState.DROPPED, message=check_message(reason)))


def undo(standing: Standing, candidate: Candidate, state: VersionState, before: Candidate) -> Standing:
    """Return ``candidate`` from ``state`` to its state ``before``. If its state is lower, nothing changes.

    Raises:
        VersionWithdrawnError: the version is in a higher state, which must be undone first.
    """
    order = list(VersionState)
    if order.index(candidate.state) > order.index(state):
        raise _undo_first(standing, candidate, f", which is a higher state than {state.value}")
    return standing.replace(before) if candidate.state is state else standing


def check_message(message: str) -> str:
    """Check a reason, which appears in errors and notes, and return it without surrounding space.

    Raises:
        UsageError: the reason is empty or too long.
    """
    said = message.strip()
    if not said or len(said) > MAX_MESSAGE:
        raise UsageError(
            "the reason is empty" if not said else f"the reason has {len(said):,} characters",
            hint=f"Write one or two sentences, at most {MAX_MESSAGE:,} characters.",
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
    """The resolution of a reference.

    Attributes:
        reference: the exact version, or None if the look-up is refused.
        note: the status if it is not supported (``experimental``, ``yanked`` ...), or why the look-up is refused.
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
    """The kind of change to the resolution of a reference."""

    MOVES = "moves"
    """The reference resolves to another version."""
    IS_REFUSED = "is_refused"
    IS_ANSWERED = "is_answered"
    """The reference was refused before, and now resolves to a version."""
    STARTS_TO_WARN = "starts_to_warn"
    STOPS_WARNING = "stops_warning"
    NOTE_CHANGES = "note_changes"
    """The reference resolves to the same version with another note, or is refused for another reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A reference that resolves differently after a change, and the places where it is used, if known."""

    wanted: Reference
    before: Answer
    after: Answer
    places: tuple[str, ...] = ()

    @property
    def kind(self) -> EffectKind:
        """The kind of change."""
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
    """A reference in use, and its place, e.g. ``train.yaml:12``."""

    reference: Reference
    place: str


def answer(standing: Standing | None, reference: Reference) -> Answer:
    """Resolve ``reference`` in ``standing``. None means a dataset without a default config."""
    if standing is None:
        return Answer(reference=None, note=f"{reference.name} has no default config")
    choice = choose(standing, reference)
    if choice.candidate is None:
        return Answer(reference=None, note=choice.problem)
    result = choice.candidate
    exactly = standing.exactly(result.version)
    if result.state is not VersionState.SUPPORTED:
        return Answer(reference=exactly, note=result.described)
    is_experimental = standing.status(result) is VersionStatus.EXPERIMENTAL
    return Answer(reference=exactly, note=VersionStatus.EXPERIMENTAL.value if is_experimental else "")


def natural_effects(before: Standing, after: Standing) -> tuple[Effect, ...]:
    """The natural references that resolve differently after a change of one config.

    Natural references are those that people write: no request, ``*``, ``3.*``, ``3.1.*``, ``^3.1``, each exact number
    and each alias. ``use_effects`` compares other references, from papers and configs, one by one.

    It takes O(c log n) for c changed versions of n.
    """
    touched = [*_touched(before, after), *_touched(after, before)]
    return _effects(before, after, _naturals(after.name, after.config, [before, after], touched))


def default_effects(before: Standing | None, after: Standing) -> tuple[Effect, ...]:
    """The natural references without a config that resolve differently after a change of the default config."""
    standings = [after] if before is None else [before, after]
    touched = [candidate for standing in standings for candidate in standing.candidates]
    return _effects(before, after, _naturals(after.name, None, standings, touched))


def use_effects(before: Standing | None, after: Standing, uses: Iterable[Use]) -> tuple[Effect, ...]:
    """The references in use that resolve differently after a change, each with its places, in the given order."""
    places: dict[Reference, list[str]] = {}
    for use in uses:
        places.setdefault(use.reference, []).append(use.place)
    return tuple(
        Effect(wanted=effect.wanted, before=effect.before, after=effect.after, places=tuple(places[effect.wanted]))
        for effect in _effects(before, after, places)
    )


def _effects(before: Standing | None, after: Standing, references: Iterable[Reference]) -> tuple[Effect, ...]:
    effects = (
        Effect(wanted=reference, before=answer(before, reference), after=answer(after, reference))
        for reference in references
    )
    return tuple(effect for effect in effects if effect.before != effect.after)


def _touched(first: Standing, second: Standing) -> Iterator[Candidate]:
    """The candidates of ``first`` that have another state or status in ``second``."""
    moved = first.canonical != second.canonical
    for candidate in first.candidates:
        other = second.find(candidate.version)
        is_as_before = other is candidate or other == candidate
        if not is_as_before or (moved and first.status(candidate) is not second.status(candidate)):
            yield candidate


def _naturals(
    name: str, config: str | None, standings: list[Standing], touched: list[Candidate]
) -> Iterator[Reference]:
    """The natural references that may resolve to one of the versions ``touched``, before or after; each once."""
    yield Reference(name, config)
    for alias in sorted({alias for standing in standings for alias in standing.aliases}):
        yield Reference(name, config, alias=alias)
    if touched:
        yield Reference(name, config, VersionRequest((VersionClause("", None),)))
    minors: dict[int, set[int]] = {}
    for candidate in touched:
        minors.setdefault(candidate.version.major, set()).add(candidate.version.minor)
    existing: dict[int, set[int]] = {}
    for standing in standings:
        for candidate in standing.candidates:
            if candidate.version.major in minors:
                existing.setdefault(candidate.version.major, set()).add(candidate.version.minor)
    for major in sorted(minors, reverse=True):
        yield Reference(name, config, VersionRequest((VersionClause("", major),)))
        for minor in sorted(minors[major], reverse=True):
            yield Reference(name, config, VersionRequest((VersionClause("", major, minor),)))
        highest = max(minors[major])
        for minor in sorted(existing[major], reverse=True):
            if minor <= highest:
                yield Reference(name, config, VersionRequest((VersionClause("^", major, minor),)))
    for version in sorted({reference.version for reference in touched}, reverse=True):
        yield Reference(name, config, VersionRequest.exactly(version))
