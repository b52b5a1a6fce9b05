"""What may be done to a published version, and what becomes of it? Pure: a standing in, a standing out.

A dry run and the act itself both come from here, so they cannot disagree. States rise from supported over deprecated
and yanked to dropped; a lower one is reached by undoing a higher one, never by setting it.
"""

from __future__ import annotations

import dataclasses

from registry.errors import UsageError, VersionNotFoundError, VersionWithdrawnError
from registry.model.dataset_version import VersionState
from registry.model.standing import Candidate, Standing
from registry.model.version import Version

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
    """``candidate`` as yanked: given to nobody who does not name it exactly or by an alias.

    Raises:
        UsageError: no reason, or it would supersede itself.
        VersionNotFoundError: ``superseded_by`` is not published.
        VersionWithdrawnError: it is dropped, or ``superseded_by`` is withdrawn itself.
    """
    reason = check_message(reason)
    reference = standing.exactly(candidate.version)
    if candidate.state is VersionState.DROPPED:
        raise VersionWithdrawnError(
            f"{reference} is {candidate.described}: it cannot be yanked",
            hint=f"Undo that first: registry drop {reference} --undo",
        )
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
    """``candidate`` as it stood ``before`` it came to ``state``; nothing changes where it is below that state.

    Raises:
        VersionWithdrawnError: it is in a higher state, which has to be undone first.
    """
    order = list(VersionState)
    if order.index(candidate.state) > order.index(state):
        reference = standing.exactly(candidate.version)
        command = "drop" if candidate.state is VersionState.DROPPED else "yank"
        raise VersionWithdrawnError(
            f"{reference} is {candidate.described}, which is more than {state.value}",
            hint=f"Undo that first: registry {command} {reference} --undo",
        )
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
        reference = standing.exactly(candidate.version)
        command = "yank" if candidate.state is VersionState.YANKED else "drop"
        raise VersionWithdrawnError(
            f"{reference} is {candidate.described}: it cannot be {done}",
            hint=f"Undo that first: registry {command} {reference} --undo",
        )
