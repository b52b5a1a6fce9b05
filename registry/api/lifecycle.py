"""What may be changed in a catalog: the lifecycle of versions, aliases, experiments, and reservations of places.

Published records never change. What changes is which version a reference gives, and what its reader is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from registry.api.arguments import log_actor, make_uses, parse_reference, parse_version
from registry.catalog import (
    AliasChange,
    AliasMove,
    AliasSummary,
    CatalogBackend,
    Change,
    ConfigSummary,
    DefaultChange,
    ProtectionChange,
    Reservation,
    load_shards,
)
from registry.catalog.backend import AliasCalls, Expected, ExperimentCalls
from registry.errors import ShardMismatchError, UsageError
from registry.model import DatasetVersion, Experiment, ExperimentChange, Reference, Use, Version

if TYPE_CHECKING:
    from registry.publishing import Cleared
    from registry.storage import Store


_SHOWN: Final = 3

Uses: TypeAlias = Sequence[str | Reference | Use]


class Lifecycle:
    """``catalog.lifecycle``: what may be done to published versions.

    Every method names one version, exactly or by an alias, and gives a ``Change``: the standing before and after, and
    in ``effects`` every reference that resolves differently. With ``dry_run=True`` nothing is written, and the effects
    are those that the act would have. Doing again what is done changes nothing and says so (``Change.is_change``).

        change = catalog.lifecycle.yank("mnist:3.1.0", reason="labels are shifted", dry_run=True)
        for effect in change.effects:
            print(effect.wanted, effect.before, "->", effect.after)

    ``uses``: references in use, from papers and configs; ``Change.use_effects`` are those whose answer changes.

    Raises:
        NotFoundError: no such dataset, config, version or alias.
        UsageError: the reference names no single version, or no reason is given.
        VersionWithdrawnError: the version is yanked or dropped already, where that forbids it.
    """

    def __init__(
        self, catalog: CatalogBackend, *, data: Callable[[], Store], store_of: Callable[[DatasetVersion], Store]
    ) -> None:
        self._catalog = catalog
        self._data = data
        self._store_of = store_of

    def promote(self, reference: str | Reference, *, dry_run: bool = False, uses: Uses = ()) -> Change:
        """Make a version the canonical one, which a reference without a version gives."""
        return self._catalog.lifecycle.promote(
            parse_reference(reference), actor=log_actor(), dry_run=dry_run, uses=make_uses(uses)
        )

    def deprecate(self, reference: str | Reference, *, message: str, dry_run: bool = False, uses: Uses = ()) -> Change:
        """Tell its readers to move on: the version is found as before, with ``message``."""
        return self._catalog.lifecycle.deprecate(
            parse_reference(reference), message, actor=log_actor(), dry_run=dry_run, uses=make_uses(uses)
        )

    def yank(
        self,
        reference: str | Reference,
        *,
        reason: str,
        superseded_by: str | Version | None = None,
        dry_run: bool = False,
        uses: Uses = (),
    ) -> Change:
        """Withdraw a version: only who names it exactly, or by an alias, gets it, with a warning.

        ``superseded_by``: the version of the same config to use in its place.
        """
        return self._catalog.lifecycle.yank(
            parse_reference(reference),
            reason,
            parse_version(superseded_by),
            actor=log_actor(),
            dry_run=dry_run,
            uses=make_uses(uses),
        )

    def drop(self, reference: str | Reference, *, reason: str, dry_run: bool = False, uses: Uses = ()) -> Change:
        """Take a version away from every reader. Its number stays used, its files stay where they are."""
        return self._catalog.lifecycle.drop(
            parse_reference(reference), reason, actor=log_actor(), dry_run=dry_run, uses=make_uses(uses)
        )

    def undo(
        self,
        action: Literal["deprecate", "yank", "drop"],
        reference: str | Reference,
        *,
        dry_run: bool = False,
        uses: Uses = (),
    ) -> Change:
        """Take an action back: the version is again what it was before, as the event log tells.

        Raises:
            ShardMismatchError: the files of a dropped version are gone, or have other sizes; nothing was changed.
            StorageUnavailableError: the store of its files does not answer.
        """
        if action not in ("deprecate", "yank", "drop"):
            raise UsageError(f"{action!r:.40} cannot be undone", hint="One can undo deprecate, yank and drop.")
        wanted = parse_reference(reference)
        if action == "drop":
            change = self._catalog.lifecycle.undo(action, wanted, actor=log_actor(), dry_run=True)
            if change.is_change:
                self._require_files(change.reference)
        return self._catalog.lifecycle.undo(action, wanted, actor=log_actor(), dry_run=dry_run, uses=make_uses(uses))

    def _require_files(self, exactly: Reference) -> None:
        """Refuse to bring a version back whose files are not there: nobody could read it."""
        number = exactly.exact
        version = None if number is None else self._catalog.published(exactly.name, exactly.config, number)
        if version is None:
            raise AssertionError("a version that was just found is there")
        store, missing, num_shards = self._store_of(version), [], 0
        for split in version.splits:
            for name, shard in zip(
                split.filenames, load_shards(self._catalog.shards, version, split.name), strict=True
            ):
                num_shards += 1
                if not store.exists(name):
                    missing.append(f"{name} is not there")
                elif (found := store.size(name)) != shard.num_bytes:
                    missing.append(f"{name} has {found:,} bytes, expected {shard.num_bytes:,}")
        if missing:
            raise ShardMismatchError(
                f"{exactly} cannot be brought back: of its {num_shards:,} files {len(missing):,} are gone or changed: "
                + ", ".join(missing[:_SHOWN])
                + (f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""),
                hint=f"Put its files back into {store.url}, and try again. Nothing was changed.",
                details={"folder": store.url, "files": missing[:100], "num_files": len(missing)},
            )

    def configs(self, name: str) -> tuple[ConfigSummary, ...]:
        """The configs of a dataset, by name."""
        return self._catalog.configs.list(_dataset(name).name)

    def protect(self, dataset: str | None = None, *, dry_run: bool = False) -> ProtectionChange:
        """Let only ``promote`` move the canonical version of ``name``, of ``name/config``, or of every dataset.

        What is published from then on leaves it as it is. A dataset whose first version comes after that has no
        canonical version until one is promoted.
        """
        wanted = None if dataset is None else _dataset(dataset)
        return self._catalog.configs.set_protection(wanted, protect=True, actor=log_actor(), dry_run=dry_run)

    def unprotect(self, dataset: str | None = None, *, dry_run: bool = False) -> ProtectionChange:
        """Take ``protect`` back; what a wider scope protects stays protected (``ProtectionChange.protected_by``)."""
        wanted = None if dataset is None else _dataset(dataset)
        return self._catalog.configs.set_protection(wanted, protect=False, actor=log_actor(), dry_run=dry_run)

    def set_default_config(self, dataset: str, *, dry_run: bool = False, uses: Uses = ()) -> DefaultChange:
        """Make the config of ``name/config`` the one that a reference without a config means."""
        wanted = _dataset(dataset)
        if wanted.config is None:
            raise UsageError(f"{dataset} names no config", hint=f"Write {wanted.name}/CONFIG.")
        change = self._catalog.configs.set_default(
            wanted.name, wanted.config, actor=log_actor(), dry_run=dry_run, uses=make_uses(uses)
        )
        if not dry_run and (data := self._data()).exists(f"{wanted.name}/{wanted.config}"):
            from registry.prepared import write_default_config

            write_default_config(data, wanted.name, wanted.config)  # for those who read the folder without the catalog
        return change


def _dataset(text: str) -> Reference:
    wanted = parse_reference(text)
    if wanted.request is not None or wanted.alias is not None:
        raise UsageError(f"{text}: name a dataset without a version", hint=f"Write {wanted.dataset}.")
    return wanted


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
        """Let the alias ``name`` point to the version that ``reference`` names today. Raises as ``AliasCalls.set``."""
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
        """Remove the alias that ``reference`` names, ``name[/config]@alias``. Raises as ``AliasCalls.remove``."""
        wanted = parse_reference(reference)
        return self._calls.remove(wanted, expect=_expected(expect), message=message, actor=self._actor, dry_run=dry_run)

    def list(self, dataset: str | None = None) -> tuple[AliasSummary, ...]:
        """Every alias, by dataset and name, or those of ``name[/config]``."""
        return self._calls.list(dataset)

    def history(self, reference: str | Reference) -> tuple[AliasMove, ...]:
        """Everything that was done to an alias, the oldest first. Raises as ``AliasCalls.history``."""
        return self._calls.history(parse_reference(reference))


def _expected(expect: str | Version | None) -> Expected:
    if expect is None or isinstance(expect, Version):
        return expect
    if not isinstance(expect, str):
        raise UsageError(f"a version or 'none' is expected, not {expect!r:.60}")
    return "none" if expect == "none" else Version.parse(expect)


class Experiments:
    """The experiments of a catalog: ``catalog.experiments``.

    Every change is one transaction with one event, and making a change again changes nothing. ``dry_run`` tells what
    would be changed, with the same errors, and changes nothing. Each method raises as that of ``ExperimentCalls``.
    """

    def __init__(self, calls: ExperimentCalls, *, actor: str) -> None:
        self._calls = calls
        self._actor = actor

    def add(self, name: str, description: str, default: bool = False, *, dry_run: bool = False) -> ExperimentChange:
        """Add a flag that versions may override; ``default`` is meant where one does not."""
        return self._calls.add(name, description, default=default, actor=self._actor, dry_run=dry_run)

    def list(self) -> tuple[Experiment, ...]:
        """Every flag, by name, with its default and the number of live versions that override it."""
        return self._calls.list()

    def set_default(self, name: str, value: bool, *, dry_run: bool = False) -> ExperimentChange:
        """Flip a default, for versions that are built from now on; published ones keep what they were built with."""
        return self._calls.set_default(name, value, actor=self._actor, dry_run=dry_run)

    def retire(self, name: str, *, dry_run: bool = False) -> ExperimentChange:
        """Switch a flag on for good: no version that is published from now on can override it."""
        return self._calls.retire(name, actor=self._actor, dry_run=dry_run)


class Reservations:
    """The reservations of a catalog: ``catalog.reservations``.

    A publisher reserves the place of a version in an object store before it puts a file there; the row that publishes
    the version ends it. One that stays is of a publisher who was killed, and the next run of it goes on there.
    """

    def __init__(self, catalog: CatalogBackend, *, data: Callable[[], Store]) -> None:
        self._catalog = catalog
        self._data = data

    def list(self, dataset: str | None = None) -> tuple[Reservation, ...]:
        """Every reservation, or those of ``name[/config]``."""
        return self._catalog.reservations.list(None if dataset is None else parse_reference(dataset).dataset)

    def release(
        self, reference: str | Reference, *, force: bool = False, dry_run: bool = False
    ) -> tuple[Reservation, ...]:
        """Take the reservations of a version away from publishers that died on other machines; gives them as they were.

        Raises:
            UsageError: the reference does not name one version.
            As ``ReservationCalls.release``.
        """
        wanted = _exactly(reference)
        return self._catalog.reservations.release(wanted.dataset, str(wanted.request), force=force, dry_run=dry_run)

    def clear(self, reference: str | Reference, *, force: bool = False, dry_run: bool = False) -> Cleared:
        """Move what lies at the place of an unpublished version aside; see ``publishing.clear_place``."""
        from registry.publishing import clear_place

        wanted = _exactly(reference)
        return clear_place(self._data(), self._catalog, wanted, actor=log_actor(), force=force, dry_run=dry_run)


def _exactly(reference: str | Reference) -> Reference:
    wanted = parse_reference(reference)
    if wanted.exact is None:
        raise UsageError(
            f"{wanted} does not name one version by its number",
            hint=f"Write {wanted.dataset}:1.0.0. See what is reserved: registry reservation list",
        )
    return wanted
