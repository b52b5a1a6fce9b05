"""Why did a look-up find nothing? The errors, whose hints name what is there."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.tables import builder, builder_config
from registry.errors import (
    AliasNotFoundError,
    ConfigNotFoundError,
    DatasetNotFoundError,
    NotFoundError,
    ReferenceSyntaxError,
    VersionNotFoundError,
    VersionWithdrawnError,
)
from registry.model import Candidate, Choice, Reference, Refusal, Standing, VersionRequest, VersionState

_MAX_NAMES: Final = 10_000
_MAX_LISTED: Final = 12
_MAX_DETAILS: Final = 100


def explain_dataset(connection: sa.Connection, reference: Reference) -> NotFoundError:
    """The error for a dataset or config that is not there, for a connection that saw it missing in the same snapshot.

    A writer on PostgreSQL asks only for a dataset that it has locked (locking.py).
    """
    configs = connection.execute(
        sa.select(builder_config.c.name)
        .join_from(builder, builder_config, builder_config.c.builder_id == builder.c.id)
        .where(builder.c.name == reference.name)
        .order_by(builder_config.c.name)
    ).scalars()
    names = configs.all()
    if not names:
        return no_dataset(reference.name, list_names(connection))
    named = [name for name in names if name]
    if reference.config is not None:
        return _no_config(reference, reference.config, named)
    return no_default_config(reference.name, named)


def no_default_config(name: str, configs: list[str]) -> ConfigNotFoundError:
    """The error for a reference that names no config where none of several is the default one."""
    listed = ", ".join(f"{name}/{config}" for config in configs[:_MAX_LISTED])
    return ConfigNotFoundError(
        f"{name} has no default config",
        hint=f"Name one: {listed}.",
        details={"name": "", "known": configs[:_MAX_DETAILS]},
    )


def explain_refusal(choice: Choice, *, when: str | None = None) -> NotFoundError:
    """The error for a choice that chose nothing, ``when``: at a moment that is gone.

    Its ``details`` hold ``considered``: version, status, verdict of what was looked at; and ``num_considered``, of all.
    """
    wanted, standing = choice.wanted, choice.standing
    if choice.refusal is Refusal.NO_ALIAS:
        known = list(standing.aliases)
        hint = None if known else f"It has no aliases; its versions: registry versions {wanted.dataset}"
        where = wanted.dataset + ("" if when is None else f" at {when}")
        error = AliasNotFoundError.of(wanted.alias or "", known, where=where, hint=hint)
        error.details.update(_considered(choice))
        return error
    withdrawn = choice.refusal in (Refusal.WITHDRAWN, Refusal.ALL_WITHDRAWN)
    kind = VersionWithdrawnError if withdrawn else VersionNotFoundError
    return kind(
        choice.problem if when is None else f"at {when}: {choice.problem}",
        hint=_what_can_be_read(choice) if withdrawn else _what_is_published(choice),
        details={
            "name": "" if wanted.request is None else str(wanted.request),
            "known": [str(one.version) for one in standing.candidates[:_MAX_DETAILS]],
            "versions": [
                {"version": str(one.version), "status": standing.status(one).value}
                for one in standing.candidates[:_MAX_DETAILS]
            ],
            **_considered(choice),
        },
    )


def _considered(choice: Choice) -> dict[str, Any]:
    """What was considered, the highest first; of very many, those that the reference names come before others."""
    standing, wanted, every = choice.standing, choice.wanted, choice.considered
    named = [] if wanted.request is None else [one.version for one in standing.allowed(wanted.request)[:_MAX_DETAILS]]
    if choice.refused is not None:
        named = [choice.refused.version]
    kept = {*named, *[one.version for one in every if one.version not in named][: _MAX_DETAILS - len(named)]}
    return {
        "considered": [
            {"version": str(one.version), "status": one.status.value, "verdict": one.verdict}
            for one in every
            if one.version in kept
        ],
        "num_considered": len(every),
    }


def _what_is_published(choice: Choice) -> str:
    standing = choice.standing
    if not standing.candidates:
        return "No version of it is published."
    published = f"Published: {_listed(standing, standing.candidates)}."
    readable = next((one for one in standing.candidates if not one.is_withdrawn), None)
    if choice.refusal is not Refusal.NO_CANONICAL or readable is None:
        return published
    return f"{published} Make one canonical: registry promote {standing.exactly(readable.version)}"


def _what_can_be_read(choice: Choice) -> str:
    """What a person may ask for in the place of a version that is withdrawn."""
    standing, refused, request = choice.standing, choice.refused, choice.wanted.request
    parts = []
    if refused is not None and refused.superseded_by is not None:
        successor = standing.find(refused.superseded_by)
        if successor is not None and not successor.is_withdrawn:  # else it would lead from one refusal to the next
            parts.append(f"It is superseded by {standing.exactly(refused.superseded_by)}.")
    readable = tuple(one for one in standing.candidates if not one.is_withdrawn)
    parts.append(f"Readable: {_listed(standing, readable)}." if readable else "No version of it is left.")
    passed = [refused] if refused is not None else standing.allowed(request) if request is not None else []
    yanked = next((one for one in passed if one.state is VersionState.YANKED), None)
    if yanked is not None:
        parts.append(f"To get it anyway, name it exactly: {standing.exactly(yanked.version)}.")
    return " ".join(parts)


def _listed(standing: Standing, candidates: tuple[Candidate, ...]) -> str:
    listed = ", ".join(f"{one.version} ({standing.status(one).value})" for one in candidates[:_MAX_LISTED])
    return listed + (f" and {len(candidates) - _MAX_LISTED} more" if len(candidates) > _MAX_LISTED else "")


def list_names(connection: sa.Connection) -> list[str]:
    """The names of datasets, to suggest one: the first of very many."""
    query = sa.select(builder.c.name).order_by(builder.c.name).limit(_MAX_NAMES)
    return list(connection.execute(query).scalars())


def no_dataset(name: str, known: list[str]) -> NotFoundError:
    """The error for a dataset that is not among the ``known`` ones."""
    hint = None if known else "The catalog is empty. Start with: registry quickstart"
    return DatasetNotFoundError.of(name, known, where="the catalog", hint=hint)


def _no_config(reference: Reference, config: str, known: list[str]) -> NotFoundError:
    hint = None
    try:
        request = VersionRequest.parse(config)
    except ReferenceSyntaxError:
        pass
    else:
        hint = f"A version comes after ':', not '/'. Try: {reference.name}:{request}"
    if hint is None and not known:
        hint = f"{reference.name} has no configs. Name it without one: {reference.name}"
    return ConfigNotFoundError.of(config, known, where=reference.name, hint=hint)
