"""Changes to a catalog: the lifecycle of versions, aliases, experiments, and reservations of places.

Published records never change. These calls change which version a reference resolves to, and the notes that its
readers see. Each call parses its arguments, adds the actor, and passes them to the catalog protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from registry.api.arguments import (
    DatasetLike,
    make_uses,
    read_dataset,
    read_exact_reference,
    read_reference,
    read_version,
)
from registry.api.locations import log_actor, mirrors_of, open_data, open_version
from registry.argument_types import typed_methods
from registry.catalog import load_shards, published_version
from registry.catalog.absent import to_publish
from registry.errors import ConfigNotFoundError, NotFoundError, ShardMismatchError, UsageError
from registry.model import Use, listed

if TYPE_CHECKING:  # fsspec is loaded when a store is opened
    from registry.catalog import (
        AliasChange,
        AliasMove,
        AliasSummary,
        CatalogBackend,
        Change,
        ConfigSummary,
        DefaultChange,
        Proposal,
        ProtectionChange,
        Reservation,
    )
    from registry.catalog.backend import AliasCalls, ChangeOptions, Expected
    from registry.model import DatasetVersion, Experiment, ExperimentChange, Reference, Version
    from registry.publishing import Cleared
    from registry.storage import Store

_SHOWN: Final = 3

Uses: TypeAlias = Sequence[DatasetLike | Use]


@typed_methods
class Lifecycle:
    """``catalog.lifecycle``: promote, deprecate, yank and drop versions; protect datasets; choose the default config.

    A method that changes a version takes its ``reference``, an exact number or an alias, and returns a ``Change``: the
    state of the dataset before and after and, in ``effects``, every reference whose resolution changes. With
    ``dry_run=True``, the result is the same, but nothing is written. Repeating a change has no effect:
    ``Change.is_change`` is then False.

    >>> change = catalog.lifecycle.yank("digits:1.0.0", reason="labels are shifted", dry_run=True)
    >>> for effect in change.effects[:2]:
    ...     print(effect.wanted, "->", effect.after)
    digits -> refused: the canonical version 1.0.0 of digits is yanked: labels are shifted
    digits:*.*.* -> refused: no version '*.*.*' of digits can be read: 1.0.0 is yanked: labels are shifted

    ``uses`` are references in use, e.g. in papers and configs: ``Change.use_effects`` lists those whose resolution
    changes. ``registry.api.read_uses`` reads them from a file.
    """

    def __init__(self, catalog: CatalogBackend, *, data_dir: str) -> None:
        self._catalog = catalog
        self._data_dir = data_dir

    def promote(self, reference: DatasetLike, *, dry_run: bool = False, uses: Uses = ()) -> Change:
        """Make a version canonical: a reference without a version resolves to it.

        If its name is protected with ``two_persons``, the promotion is only proposed: ``Change.proposal`` waits until
        another person calls ``approve``.

        Args:
            reference: one version, by exact number or alias.
            dry_run: compute the change, and write nothing.
            uses: references in use, see the class.

        Raises:
            NotFoundError: the dataset, config, version or alias does not exist.
            UsageError: ``reference`` has a wrong type or does not name one version.
            VersionWithdrawnError: the version is yanked or dropped.
            CatalogPermissionError: the promotion needs two persons, and the caller's identity is not proven.
        """
        return self._catalog.lifecycle.promote(read_reference(reference), **_options(uses, dry_run=dry_run))

    def proposals(self, dataset: DatasetLike | None = None) -> tuple[Proposal, ...]:
        """The changes to protected names that wait for the approval of another person, oldest first.

        Args:
            dataset: only those of ``name[/config]``.

        Raises:
            UsageError: ``dataset`` has a wrong type, or names a version.
        """
        return self._catalog.lifecycle.proposals(None if dataset is None else read_dataset(dataset).dataset)

    def approve(self, proposal_id: int, *, dry_run: bool = False) -> Proposal:
        """Approve and make a change that another person proposed.

        Args:
            proposal_id: the id of the proposal, which ``proposals`` lists.
            dry_run: only check that the change may be made.

        Raises:
            NotFoundError: no pending proposal has this id.
            ConflictError: the subject of the proposal has changed since the proposal was made.
            CatalogPermissionError: you made the proposal, or your identity is not proven.
        """
        return self._catalog.lifecycle.approve(self._proposal(proposal_id), actor=log_actor(), dry_run=dry_run)

    def reject(self, proposal_id: int, *, reason: str = "", dry_run: bool = False) -> Proposal:
        """Reject a proposal, or withdraw your own.

        Args:
            proposal_id: the id of the proposal, which ``proposals`` lists.
            reason: why, for the log.
            dry_run: only look the proposal up.

        Raises:
            NotFoundError: no pending proposal has this id.
        """
        proposal = self._proposal(proposal_id)
        return self._catalog.lifecycle.reject(proposal, reason, actor=log_actor(), dry_run=dry_run)

    def _proposal(self, proposal_id: int) -> Proposal:
        for proposal in self._catalog.lifecycle.proposals():
            if proposal.id == proposal_id:
                return proposal
        raise NotFoundError(
            f"no pending proposal {proposal_id}: it was decided or replaced, has expired, or never existed",
            hint="To list the pending proposals: registry proposal list",
            details={"proposal": proposal_id},
        )

    def deprecate(self, reference: DatasetLike, *, reason: str, dry_run: bool = False, uses: Uses = ()) -> Change:
        """Advise readers to stop using a version. Look-ups still return it, with ``reason`` as a note.

        Args:
            reference: one version, by exact number or alias.
            reason: the note for its readers, in a sentence or two.
            dry_run: compute the change, and write nothing.
            uses: references in use, see the class.

        Raises:
            NotFoundError: the dataset, config, version or alias does not exist.
            UsageError: ``reference`` has a wrong type or does not name one version, or ``reason`` is empty or too long.
            VersionWithdrawnError: the version is yanked or dropped.
        """
        return self._catalog.lifecycle.deprecate(read_reference(reference), reason, **_options(uses, dry_run=dry_run))

    def yank(
        self,
        reference: DatasetLike,
        *,
        reason: str,
        superseded_by: str | Version | None = None,
        dry_run: bool = False,
        uses: Uses = (),
    ) -> Change:
        """Withdraw a version: only its exact number or an alias still resolves to it, with a warning.

        Args:
            reference: one version, by exact number or alias.
            reason: the note for its readers, in a sentence or two.
            superseded_by: the version of the same config to use instead.
            dry_run: compute the change, and write nothing.
            uses: references in use, see the class.

        Raises:
            NotFoundError: the dataset, config, version or alias does not exist, or ``superseded_by`` does not.
            UsageError: ``reference`` has a wrong type or does not name one version, ``reason`` is empty or too long, or
                the version would supersede itself.
            VersionWithdrawnError: the version is dropped, or ``superseded_by`` is yanked or dropped.
        """
        options = _options(uses, dry_run=dry_run)
        return self._catalog.lifecycle.yank(read_reference(reference), reason, read_version(superseded_by), **options)

    def drop(self, reference: DatasetLike, *, reason: str, dry_run: bool = False, uses: Uses = ()) -> Change:
        """Hide a version from every look-up. Its number stays used, and its files stay until ``Catalog.remove``.

        Args:
            reference: one version, by exact number or alias.
            reason: why, in a sentence or two.
            dry_run: compute the change, and write nothing.
            uses: references in use, see the class.

        Raises:
            NotFoundError: the dataset, config, version or alias does not exist.
            UsageError: ``reference`` has a wrong type or does not name one version, or ``reason`` is empty or too long.
        """
        return self._catalog.lifecycle.drop(read_reference(reference), reason, **_options(uses, dry_run=dry_run))

    def undo(
        self,
        action: Literal["deprecate", "yank", "drop"],
        reference: DatasetLike,
        *,
        dry_run: bool = False,
        uses: Uses = (),
    ) -> Change:
        """Undo ``deprecate``, ``yank`` or ``drop``: restore the earlier state of the version from the event log.

        Args:
            action: the action to undo: ``deprecate``, ``yank`` or ``drop``.
            reference: one version, by exact number or alias.
            dry_run: compute the change, and write nothing.
            uses: references in use, see the class.

        Raises:
            NotFoundError: the dataset, config, version or alias does not exist.
            UsageError: ``action`` is unknown, or ``reference`` has a wrong type or does not name one version.
            VersionWithdrawnError: a stronger action must be undone first.
            ShardMismatchError: files of a dropped version are missing or have another size; nothing is changed.
            StorageUnavailableError: the store of its files does not answer.
        """
        if action not in ("deprecate", "yank", "drop"):
            raise UsageError(f"{action!r:.40} cannot be undone", hint="Only deprecate, yank and drop can be undone.")
        wanted = read_reference(reference)
        if action == "drop":
            change = self._catalog.lifecycle.undo(action, wanted, actor=log_actor(), dry_run=True)
            if change.is_change:
                self._require_files(change.reference)
        return self._catalog.lifecycle.undo(action, wanted, **_options(uses, dry_run=dry_run))

    def _require_files(self, reference: Reference) -> None:
        """Refuse to restore a version whose files are gone: nobody could read it."""
        from registry.storage import open_store

        version = published_version(self._catalog, reference)
        store, mirrors = open_version(self._data_dir, version), mirrors_of(self._data_dir, version)
        missing = self._missing_files(version, store)
        if not missing or any(not self._missing_files(version, open_store(mirror)) for mirror in mirrors):
            return
        num_shards = sum(split.num_shards for split in version.splits)
        raise ShardMismatchError(
            f"{reference} cannot be restored: {len(missing):,} of its {num_shards:,} files are missing or changed: "
            + listed(missing, _SHOWN),
            hint=f"Restore its files in {store.url}, and try again. Nothing was changed.",
            details={"folder": store.url, "files": missing[:100], "num_files": len(missing)},
        )

    def _missing_files(self, version: DatasetVersion, store: Store) -> list[str]:
        """A line for each file that is missing in ``store``, or has another size."""
        missing = []
        for split in version.splits:
            shards = load_shards(self._catalog.shards, version, split.name)
            for name, shard in zip(split.filenames, shards, strict=True):
                if not store.exists(name):
                    missing.append(f"{name} is missing")
                elif (num_bytes := store.size(name)) != shard.num_bytes:
                    missing.append(f"{name} has {num_bytes:,} bytes, expected {shard.num_bytes:,}")
        return missing

    def configs(self, dataset: DatasetLike) -> tuple[ConfigSummary, ...]:
        """The configs of a dataset, sorted by name.

        Args:
            dataset: its name, or a value that names it.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: the dataset, or the config that it names, does not exist.
            UsageError: ``dataset`` has a wrong type, or names a version.
        """
        wanted = read_dataset(dataset)
        configs = self._catalog.configs.list(wanted.name)
        known = [config.config for config in configs]
        if wanted.config is not None and wanted.config not in known:
            raise ConfigNotFoundError.of(wanted.config, filter(None, known), where=wanted.name)
        return configs

    def protect(
        self, dataset: DatasetLike | None = None, *, two_persons: bool = False, dry_run: bool = False
    ) -> ProtectionChange:
        """Protect the canonical version: only ``promote`` can change it, and publications leave it unchanged.

        A protected dataset without versions has no canonical version until one is promoted.

        Args:
            dataset: ``name/config``, ``name``, or None for every dataset.
            two_persons: promotions and the removal of the protection need the approval of another person. An existing
                protection with this rule keeps it.
            dry_run: compute the change, and write nothing.

        Raises:
            NotFoundError: the dataset or config does not exist.
            UsageError: ``dataset`` has a wrong type, or names a version.
        """
        wanted, actor = None if dataset is None else read_dataset(dataset), log_actor()
        with to_publish(self._catalog, dry_run=dry_run):
            return self._catalog.configs.set_protection(
                wanted, protect=True, two_persons=two_persons, actor=actor, dry_run=dry_run
            )

    def unprotect(self, dataset: DatasetLike | None = None, *, dry_run: bool = False) -> ProtectionChange:
        """Undo ``protect``. A wider scope may still protect the name: see ``ProtectionChange.protected_by``.

        If it was protected with ``two_persons``, the removal is only proposed: see ``ProtectionChange.proposal``.

        Args:
            dataset: ``name/config``, ``name``, or None for every dataset.
            dry_run: compute the change, and write nothing.

        Raises:
            NotFoundError: the dataset or config does not exist.
            UsageError: ``dataset`` has a wrong type, or names a version.
        """
        wanted = None if dataset is None else read_dataset(dataset)
        return self._catalog.configs.set_protection(wanted, protect=False, actor=log_actor(), dry_run=dry_run)

    def set_default_config(self, dataset: DatasetLike, *, dry_run: bool = False, uses: Uses = ()) -> DefaultChange:
        """Choose the config that a reference without a config means.

        Args:
            dataset: ``name/config``, or a value that names it.
            dry_run: compute the change, and write nothing.
            uses: references in use, see the class.

        Raises:
            NotFoundError: the dataset or config does not exist.
            UsageError: ``dataset`` has a wrong type, names a version, or does not name a config.
        """
        wanted = read_dataset(dataset)
        if wanted.config is None:
            raise UsageError(f"{wanted} does not name a config", hint=f"Write {wanted.name}/CONFIG.")
        change = self._catalog.configs.set_default(
            wanted.name, wanted.config, actor=log_actor(), dry_run=dry_run, uses=make_uses(uses)
        )
        data, folders = open_data(self._data_dir), (*change.after.names, change.after.name)
        for name in () if dry_run else dict.fromkeys(folders):
            from registry.prepared import write_default_config

            # TFDS reads the default config from this file, without the catalog.
            write_default_config(data, name, wanted.config if data.exists(f"{name}/{wanted.config}") else None)
        return change


def _options(uses: Uses, *, dry_run: bool) -> ChangeOptions:
    return {"actor": log_actor(), "dry_run": dry_run, "uses": make_uses(uses)}


@typed_methods
class Aliases:
    """``catalog.aliases``: names for versions, which can be moved.

    An alias belongs to one config of a dataset and is looked up as ``name[/config]@alias``. Every move is one
    transaction with its event and an entry in the history of the alias. ``expect`` makes a move a compare-and-swap:
    if several callers move an alias at the same time, one of them succeeds and the others get an ``AliasMovedError``.

    >>> change = catalog.aliases.set("paper", "digits:1.0.0", reason="As submitted.", expect="none", dry_run=True)
    >>> change.before, change.after
    (None, Version(major=1, minor=0, patch=0))
    """

    def __init__(self, calls: AliasCalls) -> None:
        self._calls = calls

    def set(
        self,
        name: str,
        reference: DatasetLike,
        *,
        expect: str | Version | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> AliasChange:
        """Point the alias ``name`` to the version that ``reference`` resolves to now. Repeating it changes nothing.

        Args:
            name: the alias: a letter, then letters, digits, ``_``, ``.`` and ``-``.
            reference: a version of the dataset, in any form.
            expect: the version to which the alias must point now, or ``"none"`` if it must not exist. None skips the
                check.
            reason: why, for the history of the alias.
            dry_run: compute the change, and write nothing.

        Raises:
            ReferenceSyntaxError: ``name`` is not a valid alias.
            NotFoundError: no version matches the reference.
            VersionWithdrawnError: the version is yanked or dropped.
            AliasMovedError: the alias does not point to ``expect``; the error names who moved it, and when.
            UsageError: ``reference`` or ``expect`` has a wrong type.
        """
        wanted = read_reference(reference)
        return self._calls.set(
            name, wanted, expect=_expected(expect), message=reason, actor=log_actor(), dry_run=dry_run
        )

    def remove(
        self,
        reference: DatasetLike,
        *,
        expect: str | Version | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> AliasChange:
        """Remove an alias. Its history is kept.

        Args:
            reference: the alias, ``name[/config]@alias``.
            expect: the version to which the alias must point now. None skips the check.
            reason: why, for the history of the alias.
            dry_run: compute the change, and write nothing.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError, AliasNotFoundError: the alias does not exist.
            AliasMovedError: the alias does not point to ``expect``.
            UsageError: ``reference`` has a wrong type or does not name an alias.
        """
        wanted = read_reference(reference)
        return self._calls.remove(wanted, expect=_expected(expect), message=reason, actor=log_actor(), dry_run=dry_run)

    def list(self, dataset: DatasetLike | None = None) -> tuple[AliasSummary, ...]:
        """Every alias, sorted by dataset and name.

        Args:
            dataset: only those of ``name[/config]``; a name without a config means all its configs.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: the dataset does not exist.
            UsageError: ``dataset`` has a wrong type, or names a version.
        """
        return self._calls.list(None if dataset is None else read_dataset(dataset).dataset)

    def history(self, reference: DatasetLike) -> tuple[AliasMove, ...]:
        """Every move of an alias, oldest first. The alias may have been removed since.

        Args:
            reference: the alias, ``name[/config]@alias``.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError, AliasNotFoundError: the alias never existed.
            UsageError: ``reference`` has a wrong type or does not name an alias.
        """
        return self._calls.history(read_reference(reference))


def _expected(expect: str | Version | None) -> Expected:
    return "none" if expect == "none" else read_version(expect)


@typed_methods
class Experiments:
    """``catalog.experiments``: flags that versions may override.

    Every change is one transaction with one event, and repeating a change has no effect. With ``dry_run=True``, the
    result and the errors are the same, but nothing is written.
    """

    def __init__(self, catalog: CatalogBackend) -> None:
        self._catalog = catalog

    def add(self, name: str, description: str, default: bool = False, *, dry_run: bool = False) -> ExperimentChange:
        """Add a flag that versions may override.

        Args:
            name: lower-case letters, digits and ``_``.
            description: what the flag switches, for people.
            default: its value for versions that do not override it.
            dry_run: compute the change, and write nothing.

        Raises:
            UsageError: the name is invalid, the description is empty, or the default is not a bool.
            ConflictError: the flag exists with another description or default, or is retired.
        """
        with to_publish(self._catalog, dry_run=dry_run):
            return self._catalog.experiments.add(name, description, default=default, actor=log_actor(), dry_run=dry_run)

    def list(self) -> tuple[Experiment, ...]:
        """Every flag, sorted by name, with its default and the number of live versions that override it."""
        return self._catalog.experiments.list()

    def set_default(self, name: str, value: bool, *, dry_run: bool = False) -> ExperimentChange:
        """Change the default for versions that are built from now on. Published versions keep their value.

        Args:
            name: the flag.
            value: the new default.
            dry_run: compute the change, and write nothing.

        Raises:
            UsageError: ``value`` is not a bool.
            ExperimentNotFoundError: the flag does not exist.
            ConflictError: the flag is retired and therefore always on.
        """
        return self._catalog.experiments.set_default(name, value, actor=log_actor(), dry_run=dry_run)

    def retire(self, name: str, *, dry_run: bool = False) -> ExperimentChange:
        """Switch a flag on permanently: versions that are published from now on cannot override it.

        Args:
            name: the flag.
            dry_run: compute the change, and write nothing.

        Raises:
            ExperimentNotFoundError: the flag does not exist.
            ConflictError: the flag is off by default, or readable versions switch it off; the message names them.
        """
        return self._catalog.experiments.retire(name, actor=log_actor(), dry_run=dry_run)


@typed_methods
class Reservations:
    """``catalog.reservations``: the publishers that are writing to object stores.

    A publisher reserves the place of a version in an object store before it writes a file there. Publishing the version
    ends the reservation. A reservation that remains belongs to a publisher that was killed; its next run continues
    there.
    """

    def __init__(self, catalog: CatalogBackend, *, data_dir: str) -> None:
        self._catalog = catalog
        self._data_dir = data_dir

    def list(self, dataset: DatasetLike | None = None) -> tuple[Reservation, ...]:
        """Every reservation, sorted by dataset, version and location.

        Args:
            dataset: only those of ``name[/config]``.

        Raises:
            UsageError: ``dataset`` has a wrong type, or names a version.
        """
        return self._catalog.reservations.list(None if dataset is None else read_dataset(dataset).dataset)

    def release(self, reference: DatasetLike, *, force: bool = False, dry_run: bool = False) -> tuple[Reservation, ...]:
        """End the reservations of a version by publishers that were killed on other machines.

        Their files are kept; the next publisher completes or removes them.

        Args:
            reference: exactly one version.
            force: also end the reservations of publishers that are alive on this machine.
            dry_run: return the reservations, and change nothing.

        Returns:
            The reservations as they were.

        Raises:
            NotFoundError: the version has no reservation.
            ConflictError: a publisher is alive on this machine, and ``force`` is False.
            UsageError: ``reference`` has a wrong type, or does not name one version by its number.
        """
        exact_reference = read_exact_reference(reference)
        return self._catalog.reservations.release(
            exact_reference.dataset, str(exact_reference.request), force=force, dry_run=dry_run
        )

    def clear(self, reference: DatasetLike, *, force: bool = False, dry_run: bool = False) -> Cleared:
        """Move the files at the place of an unpublished version aside.

        Args:
            reference: exactly one version.
            force: also move a complete version, the files of another catalog's publisher, or those of a publisher that
                may be alive.
            dry_run: return what would be moved, and change nothing.

        Raises:
            ConflictError: the version is published, or moving its files needs ``force``.
            ReservedError: a publisher that may be alive is writing there, and ``force`` is False.
            UsageError: ``reference`` has a wrong type or does not name one version by its number, or the data directory
                is on this machine: move the folder yourself.
        """
        from registry.publishing import clear_place

        exact_reference = read_exact_reference(reference)
        data = open_data(self._data_dir, catalog=self._catalog)
        return clear_place(data, self._catalog, exact_reference, actor=log_actor(), force=force, dry_run=dry_run)
