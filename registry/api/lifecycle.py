"""What may be done to a published version: promote, deprecate, yank, drop; and the default config.

Published records never change. What changes is which version a reference gives, and what its reader is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from registry.api.arguments import log_actor, make_uses, parse_reference, parse_version
from registry.catalog import CatalogBackend, Change, ConfigSummary, DefaultChange, ProtectionChange, load_shards
from registry.errors import ShardMismatchError, UsageError
from registry.model import DatasetVersion, Reference, Use, Version

if TYPE_CHECKING:  # fsspec is loaded when a folder is opened
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
        exact = None if exactly.request is None else exactly.request.exact
        version = None if exact is None else self._catalog.published(exactly.name, exactly.config, exact)
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
        return self._set_protection(dataset, protect=True, dry_run=dry_run)

    def unprotect(self, dataset: str | None = None, *, dry_run: bool = False) -> ProtectionChange:
        """Take ``protect`` back; what a wider scope protects stays protected (``ProtectionChange.protected_by``)."""
        return self._set_protection(dataset, protect=False, dry_run=dry_run)

    def _set_protection(self, dataset: str | None, *, protect: bool, dry_run: bool) -> ProtectionChange:
        wanted = None if dataset is None else _dataset(dataset)
        return self._catalog.configs.set_protection(wanted, protect=protect, actor=log_actor(), dry_run=dry_run)

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
