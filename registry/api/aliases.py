"""The aliases of a catalog: names for versions, which may be moved."""

from __future__ import annotations

from registry.api.arguments import parse_reference
from registry.catalog import AliasChange, AliasMove, AliasSummary
from registry.catalog.backend import AliasCalls, Expected
from registry.errors import UsageError
from registry.model import Reference, Version


class Aliases:
    """The aliases of a catalog: ``catalog.aliases``.

    An alias belongs to one config of a dataset and is looked up as ``name[/config]@alias``. Every move is one
    transaction with its event and an entry in the alias's history. ``expect`` makes it a compare-and-swap: the version
    that the caller saw there, or ``"none"``; of many who move an alias at once from one place, one wins.
    """

    def __init__(self, calls: AliasCalls, *, actor: str) -> None:
        self._calls = calls
        self._actor = actor

    def set(
        self,
        name: str,
        reference: str | Reference,
        *,
        expect: str | Version | None = None,
        message: str = "",
        dry_run: bool = False,
    ) -> AliasChange:
        """Let the alias ``name`` point to the version that ``reference`` names today; setting it again is no change.

        Raises:
            ReferenceSyntaxError: a name that no alias can have, because it reads as a version, or a bad reference.
            NotFoundError: nothing answers the reference.
            VersionWithdrawnError: what answers is yanked or dropped.
            AliasMovedError: it points to another version than ``expect``; it names who set it, and when.
        """
        wanted = parse_reference(reference)
        return self._calls.set(
            name, wanted, expect=_expected(expect), message=message, actor=self._actor, dry_run=dry_run
        )

    def remove(
        self,
        reference: str | Reference,
        *,
        expect: str | Version | None = None,
        message: str = "",
        dry_run: bool = False,
    ) -> AliasChange:
        """Remove the alias that ``reference`` names, ``name[/config]@alias``; its history stays.

        Raises:
            UsageError: the reference names no alias.
            AliasNotFoundError: there is none.
            AliasMovedError: it points to another version than ``expect``.
        """
        wanted = parse_reference(reference)
        return self._calls.remove(wanted, expect=_expected(expect), message=message, actor=self._actor, dry_run=dry_run)

    def list(self, dataset: str | None = None) -> tuple[AliasSummary, ...]:
        """Every alias, by dataset and name, or those of ``name[/config]``."""
        return self._calls.list(dataset)

    def history(self, reference: str | Reference) -> tuple[AliasMove, ...]:
        """Everything that was done to an alias, the oldest first, even where it is removed by now.

        Raises:
            AliasNotFoundError: there was never one.
        """
        return self._calls.history(parse_reference(reference))


def _expected(expect: str | Version | None) -> Expected:
    if expect is None or isinstance(expect, Version):
        return expect
    if not isinstance(expect, str):
        raise UsageError(f"a version or 'none' is expected, not {expect!r:.60}")
    return "none" if expect == "none" else Version.parse(expect)
