"""The experiments of a catalog: flags that versions may override, from their introduction to their retirement."""

from __future__ import annotations

from registry.catalog.backend import ExperimentCalls
from registry.model import Experiment, ExperimentChange


class Experiments:
    """The experiments of a catalog: ``catalog.experiments``.

    Every change is one transaction with one event, and a change that is there already is none. ``dry_run`` tells what
    would be changed, with the same errors, and changes nothing.
    """

    def __init__(self, calls: ExperimentCalls, *, actor: str) -> None:
        self._calls = calls
        self._actor = actor

    def add(self, name: str, description: str, default: bool = False, *, dry_run: bool = False) -> ExperimentChange:
        """Add a flag that versions may override; ``default`` is meant where one does not.

        Raises:
            UsageError: a name that no flag can have, or no description.
            ConflictError: it is there with another description or default, or it is retired.
        """
        return self._calls.add(name, description, default=default, actor=self._actor, dry_run=dry_run)

    def list(self) -> tuple[Experiment, ...]:
        """Every flag, by name, with its default and the number of live versions that override it."""
        return self._calls.list()

    def set_default(self, name: str, value: bool, *, dry_run: bool = False) -> ExperimentChange:
        """Flip a default, for versions that are built from now on. Published versions keep what they were built with.

        Raises:
            ExperimentNotFoundError: it was never added.
            ConflictError: it is retired, and is never off again.
        """
        return self._calls.set_default(name, value, actor=self._actor, dry_run=dry_run)

    def retire(self, name: str, *, dry_run: bool = False) -> ExperimentChange:
        """Switch a flag on for good: no version that is published from now on can override it.

        Raises:
            ExperimentNotFoundError: it was never added.
            ConflictError: it is off by default, or versions that are neither yanked nor dropped switch it off.
        """
        return self._calls.retire(name, actor=self._actor, dry_run=dry_run)
