"""``Experiment``: a flag that versions may switch on or off, after the TFDS versioning document.

A flag is added off by default, and versions that need it switch it on. Then its default becomes on, and versions that
cannot use it yet switch it off. When no readable version switches it off, it is retired and always on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from registry.errors import ExperimentNotFoundError, NotFoundError, UsageError, suggest

_NAME = re.compile(r"[a-z][a-z0-9_]{0,199}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A flag that a builder reads while it generates examples. A version may override ``default`` either way.

    Attributes:
        default: its value for versions that do not override it. A retired flag is on.
        created_at, retired_at: when it was added and retired, or None.
        num_enabling, num_disabling: number of versions, neither yanked nor dropped, that override it on and off.
    """

    name: str
    description: str = ""
    default: bool = False
    created_at: datetime | None = None
    retired_at: datetime | None = None
    num_enabling: int = 0
    num_disabling: int = 0

    @property
    def is_retired(self) -> bool:
        """Whether it is always on."""
        return self.retired_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentChange:
    """The change of a flag: its state before (None for a new flag) and after."""

    before: Experiment | None
    after: Experiment

    @property
    def is_change(self) -> bool:
        """Whether anything changed."""
        return self.before != self.after


def experiment_name(flag: object) -> str:
    """The name of ``flag``: text in snake_case, or the lower-case name of an enum member.

    >>> import enum
    >>> experiment_name(enum.Enum("Experiment", ["NEW_SHUFFLE"]).NEW_SHUFFLE)
    'new_shuffle'

    Raises:
        UsageError: the flag is invalid.
    """
    name = flag.name.lower() if isinstance(flag, Enum) else flag
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"invalid experiment {flag!r:.80}",
            hint="An experiment is a lower-case letter, then lower-case letters, digits and '_', e.g. new_shuffle.",
            details={"experiment": str(flag)[:80]},
        )
    return name


def read_experiments(flags: Mapping[Any, Any]) -> tuple[tuple[str, bool], ...]:
    """The flags that an author overrides, sorted by name, with their values.

    Raises:
        UsageError: ``flags`` is not a mapping, a flag is invalid or given twice, or a value is neither True nor False.
    """
    if not isinstance(flags, Mapping):
        raise UsageError(f"experiments = {flags!r:.80}: expected a dict of flag -> True or False")
    read: dict[str, bool] = {}
    for flag, enabled in flags.items():
        name = experiment_name(flag)
        if not isinstance(enabled, bool):
            raise UsageError(f"experiments = {{{name!r}: {enabled!r:.60}}}: expected True or False")
        if name in read:
            raise UsageError(f"experiments name {name!r} twice", hint="Write it once, as text or as an enum member.")
        read[name] = enabled
    return tuple(sorted(read.items()))


def no_experiment(name: str, known: Iterable[str], *, where: str) -> NotFoundError:
    """The error for a flag that does not exist in ``where``; ``known`` are the existing flags."""
    names = sorted(known)
    nearest = suggest(name, names)
    return ExperimentNotFoundError.of(
        name,
        names,
        where=where,
        hint=(f"{nearest} " if nearest else "") + f"Add it with: registry experiment add {name} --description TEXT",
    )
