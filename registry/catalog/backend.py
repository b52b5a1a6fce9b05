"""The catalog protocol: what the rest of the registry asks of a catalog, whatever keeps it.

Every call takes and gives frozen values that can be pickled, and is one action: one transaction of a database, one
request over a network. Nothing of a database appears here, and no path of a machine. What may be large is read in
pieces by the caller: events by pages, shards and their lengths by ranges (``paging.py``). Every error is a
``RegistryError``.

``SqlCatalog`` implements it. An implementation binds the shard lengths of the versions that it gives to itself
(``LoadedShardLengths``), so that they load more by calls of this protocol. ``advance`` callbacks tell of progress; an
implementation may never call them. Where a call takes ``dry_run``, True does everything but write: same result, same
errors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

from registry.catalog.values import (
    AliasChange,
    AliasMove,
    AliasSummary,
    Change,
    ConfigSummary,
    DatasetSummary,
    DefaultChange,
    Holder,
    LogReport,
    PastLookUp,
    Promotion,
    ProtectionChange,
    Reservation,
    SearchHit,
    VersionSummary,
)
from registry.model import (
    DatasetVersion,
    Event,
    Experiment,
    ExperimentChange,
    Reference,
    Shard,
    SplitFingerprint,
    Standing,
    Use,
    Version,
)

Advance: TypeAlias = Callable[[int], None]
"""Called with the number of rows done since the last call."""

Expected: TypeAlias = Version | Literal["none"] | None
"""Where an alias has to point: to this version, nowhere, or, for None, anywhere."""

Neighbours: TypeAlias = tuple[Version | None, Version | None]
"""The published numbers right below and right above another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events are asked for; None leaves a condition out.

    Attributes:
        since, until: not before, and not after this moment.
        dataset: of this dataset; a name without a config means all its configs.
        actions: of these kinds, e.g. ``publish``.
    """

    since: datetime | None = None
    until: datetime | None = None
    dataset: str | None = None
    actions: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBlock:
    """The lengths of some shards of a split that follow each other.

    Attributes:
        first: the index of the first of them.
        start: the position in the split of the first record of shard ``first``.
        lengths: the number of records in each.
        following: the position of the first record of the shard after them; None where there is no such shard.
    """

    first: int
    start: int
    lengths: Sequence[int]
    following: int | None


class ShardCalls(Protocol):
    """The stored files of published splits, by ranges. A published row never changes, so answers may be kept."""

    def between(self, version: DatasetVersion, split: str, first: int, stop: int) -> tuple[Shard, ...]:
        """The shards ``first``..``stop`` (stop excluded) of a split, in order, as far as the catalog has them."""

    def find(self, name: str, config: str | None, digests: Collection[str]) -> dict[str, tuple[Version, str, int]]:
        """The version, split and index of published shards of one dataset, by their sha256."""

    def lengths_between(self, split_id: int, first: int, stop: int) -> LengthBlock:
        """The lengths of the shards ``first``..``stop`` (stop excluded); ``split_id`` is what the catalog gave."""

    def lengths_at(self, split_id: int, position: int, block: int) -> LengthBlock | None:
        """Of the blocks of ``block`` shards each, the one with the shard that holds record ``position``, or None."""

    def empty_between(self, split_id: int, first: int, stop: int) -> Sequence[int]:
        """The indices of those of the shards ``first``..``stop`` (stop excluded) that hold no record, in order."""


class AliasCalls(Protocol):
    """Names for versions, which may be moved. Each move is told in an event and in the history of the alias."""

    def set(
        self, name: str, wanted: Reference, *, expect: Expected, message: str, actor: str, dry_run: bool = False
    ) -> AliasChange:
        """Let the alias ``name`` point to the version that ``wanted`` names today; setting it again is no change.

        Raises:
            ReferenceSyntaxError: no alias can have that name, because it reads as a version.
            NotFoundError: no version answers the reference.
            VersionWithdrawnError: the version is yanked or dropped.
            AliasMovedError: it points elsewhere than ``expect``; the error names who set it, and when.
        """

    def remove(
        self, wanted: Reference, *, expect: Expected, message: str, actor: str, dry_run: bool = False
    ) -> AliasChange:
        """Remove the alias that ``wanted`` names; its history stays.

        Raises:
            UsageError: the reference names no alias.
            AliasNotFoundError: there is no such alias.
            AliasMovedError: it points elsewhere than ``expect``.
        """

    def list(self, dataset: str | None = None) -> tuple[AliasSummary, ...]:
        """Every alias by dataset and name, or those of ``name[/config]``; a name alone means all its configs.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError
            UsageError: a version or an alias follows the dataset.
        """

    def history(self, wanted: Reference) -> tuple[AliasMove, ...]:
        """Everything that was done to an alias, the oldest first; it may be removed by now.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError, AliasNotFoundError: there never was one.
            UsageError: the reference names no alias.
        """


class ConfigCalls(Protocol):
    """The configs of datasets: which is the default one, and which are protected."""

    def list(self, name: str) -> tuple[ConfigSummary, ...]:
        """The configs of a dataset, by name; raises DatasetNotFoundError."""

    def set_default(
        self, name: str, config: str, *, actor: str, dry_run: bool = False, uses: Sequence[Use] = ()
    ) -> DefaultChange:
        """Make ``config`` the one that a reference without a config means.

        Raises DatasetNotFoundError or ConfigNotFoundError.
        """

    def protection(self, name: str, config: str | None, *, at: datetime | None = None) -> str | None:
        """What keeps publications from promoting a version of a config: itself, its dataset, or ``""``, the catalog.

        None where nothing does; ``at``: what did at that moment.
        """

    def set_protection(
        self, dataset: Reference | None, *, protect: bool, actor: str, dry_run: bool = False
    ) -> ProtectionChange:
        """Protect a dataset, a config, or with None the whole catalog, or take that back; raises NotFoundError."""


class ExperimentCalls(Protocol):
    """The flags that versions may override. Making a change again changes nothing."""

    def list(self) -> tuple[Experiment, ...]:
        """Every flag, by name, with its default and the number of live versions that override it."""

    def defaults_for(self, overrides: Mapping[str, bool]) -> dict[str, bool]:
        """What a build is given: whether each flag is on for a version that does not say; a retired one is on.

        Raises:
            ExperimentNotFoundError: the version's ``overrides`` name a flag that was never added.
            ConflictError: they name one that is retired.
        """

    def of_version(self, version: DatasetVersion) -> dict[str, bool]:
        """Every flag for a published version: its own override, else the default that its build was given."""

    def add(
        self, name: str, description: str, *, default: bool = False, actor: str, dry_run: bool = False
    ) -> ExperimentChange:
        """Add a flag. One without a description, of an older registry, is given it.

        Raises:
            UsageError: a name that no flag can have, no description, or a default that is neither True nor False.
            ConflictError: it exists with another description or default, or it is retired.
        """

    def set_default(self, name: str, default: bool, *, actor: str, dry_run: bool = False) -> ExperimentChange:
        """Flip a flag's default, for versions that are built from now on.

        Raises:
            UsageError: a default that is neither True nor False.
            ExperimentNotFoundError
            ConflictError: it is retired, and is never off again.
        """

    def retire(self, name: str, *, actor: str, dry_run: bool = False) -> ExperimentChange:
        """Switch a flag on for good.

        Raises:
            ExperimentNotFoundError
            ConflictError: it is off by default, or versions that can be read switch it off; the message names them.
        """


class LifecycleCalls(Protocol):
    """What may be done to published versions. ``uses`` are references in use, whose answers the change is told of.

    Each call raises NotFoundError where no version answers, UsageError where the reference does not name one version or
    no reason is given, and VersionWithdrawnError where the state of the version forbids it.
    """

    def promote(self, wanted: Reference, *, actor: str, dry_run: bool = False, uses: Sequence[Use] = ()) -> Change:
        """Make a version the canonical one."""

    def deprecate(
        self, wanted: Reference, message: str, *, actor: str, dry_run: bool = False, uses: Sequence[Use] = ()
    ) -> Change:
        """Mark a version as deprecated."""

    def yank(
        self,
        wanted: Reference,
        reason: str,
        superseded_by: Version | None = None,
        *,
        actor: str,
        dry_run: bool = False,
        uses: Sequence[Use] = (),
    ) -> Change:
        """Withdraw a version from everybody who does not name it."""

    def drop(
        self, wanted: Reference, reason: str, *, actor: str, dry_run: bool = False, uses: Sequence[Use] = ()
    ) -> Change:
        """Hide a version from every look-up."""

    def undo(
        self,
        action: Literal["deprecate", "yank", "drop"],
        wanted: Reference,
        *,
        actor: str,
        dry_run: bool = False,
        uses: Sequence[Use] = (),
    ) -> Change:
        """Take ``action`` back: the version has the state that it had before, by the event log."""


class LogCalls(Protocol):
    """The event log: append-only, each event sealed with the hash of the one before it."""

    def page(
        self, wanted: EventFilter, *, after: int = 0, limit: int = 1000, newest: int | None = None
    ) -> tuple[Event, ...]:
        """The events of ``wanted`` with an id above ``after``, the oldest first, at most ``limit`` of them.

        ``newest`` leaves out all but that many of the newest events. ``stream_events`` asks for page after page.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: no such dataset.
            UsageError: a time without a zone, ``since`` after ``until``, a version after the dataset's name, or a
                number of events below 1.
        """

    def verify(self, *, anchor: str | None = None, advance: Advance | None = None) -> LogReport:
        """Compare the event log with itself, and replay it against every row; ``anchor`` is a head noted down before.

        ``advance`` is called with the number of rows compared since the last call, of ``num_rows``.
        """

    def num_rows(self) -> int:
        """The number of rows that ``verify`` compares."""


class ReservationCalls(Protocol):
    """Who is putting files into object stores: one content at a time for each location."""

    def reserve(
        self, location: str, exactly: Reference, content_digest: str, holder: Holder
    ) -> tuple[Reservation, Reservation | None]:
        """Reserve ``location`` for one content of a version: the reservation now, and as it was before.

        Raises:
            VersionExistsError: the number is published with other content.
            ReservedError: another content is being put there, or files that others left there are being removed.
        """

    def note_found(
        self, held: Reservation, holder: Holder, names: Collection[str], *, anew: bool = False
    ) -> Reservation:
        """Write down which objects were there before the marker; where others did so already, theirs are kept.

        ``anew``: the marker had to be made once more, so everything there may be others'.
        """

    def begin_cleaning(self, held: Reservation, holder: Holder) -> Reservation | None:
        """Have the location alone, so that objects may be removed there; None while others put files there."""

    def end_cleaning(self, held: Reservation, holder: Holder) -> Reservation:
        """Let others join again."""

    def leave(self, held: Reservation, holder: Holder, *, forget: bool) -> None:
        """End the part of ``holder``. With ``forget`` the last one deletes the reservation: nothing is left there.

        Without it the reservation stays for the next run, which finishes what was begun.
        """

    def list(self, dataset: str | None = None) -> tuple[Reservation, ...]:
        """Every reservation, by dataset, version and location; or those of ``name[/config]``."""

    def release(
        self, dataset: str, version: str, *, force: bool = False, dry_run: bool = False
    ) -> tuple[Reservation, ...]:
        """Take the reservations of a version away from dead holders, so that the next publisher may go on.

        Gives them as they were. The files of their holders stay, for the next publisher to finish or remove.

        Raises:
            NotFoundError: there is no reservation of that version.
            ConflictError: a holder is alive on this machine, and ``force`` is False.
        """


class CatalogBackend(Protocol):
    """An open catalog. Threads may share it; a fork may inherit it."""

    @property
    def url(self) -> str:
        """Where the catalog is, without a password."""

    # Each group of calls is described by its class.
    @property
    def aliases(self) -> AliasCalls: ...
    @property
    def configs(self) -> ConfigCalls: ...
    @property
    def experiments(self) -> ExperimentCalls: ...
    @property
    def lifecycle(self) -> LifecycleCalls: ...
    @property
    def log(self) -> LogCalls: ...
    @property
    def reservations(self) -> ReservationCalls: ...
    @property
    def shards(self) -> ShardCalls: ...

    def find(self, reference: str | Reference) -> DatasetVersion:
        """The one published version that ``reference`` names, with its splits (``model.choose`` is the rule).

        No request gives the canonical version; a wildcard or range the highest that matches and is neither yanked nor
        dropped; an exact number or an alias that very version, unless it is dropped. Of a split with thousands of
        shards, the lengths are loaded when they are asked for.

        Raises:
            ReferenceSyntaxError: the text is not a reference.
            DatasetNotFoundError, ConfigNotFoundError, VersionNotFoundError, AliasNotFoundError: nothing answers; the
                hint names the nearest, or what is published and in which state.
            VersionWithdrawnError: the version is yanked or dropped; the hint names what can be read.
        """

    def find_at(self, wanted: Reference, moment: datetime) -> PastLookUp:
        """What ``wanted`` gave at ``moment``, worked out from the event log.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError, VersionNotFoundError, AliasNotFoundError: nothing answered then.
            VersionWithdrawnError: the version was withdrawn then, or is dropped since.
        """

    def published(self, name: str, config: str | None, version: Version) -> DatasetVersion | None:
        """The version of exactly this number in any state, dropped ones too, or None."""

    def published_at(self, location: str) -> tuple[Reference, ...]:
        """The versions whose files are at an absolute ``location``, in any state: those that were imported in place."""

    def published_digest(self, name: str, config: str | None, version: Version) -> str | None:
        """The content digest that was ever published under this number, or None where the number is free."""

    def neighbours(
        self, name: str, config: str | None, version: Version
    ) -> tuple[DatasetVersion | None, DatasetVersion | None]:
        """The versions published right below and right above ``version``, in any state, dropped ones too."""

    def standing(self, name: str, config: str | None = None, *, at: datetime | None = None) -> Standing:
        """The states, canonical version and aliases of a config now, or ``at`` a moment; None is the default config.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: there is no such config, or it did not exist yet.
        """

    def versions(
        self, name: str, config: str | None = None, *, at: datetime | None = None
    ) -> tuple[VersionSummary, ...]:
        """Every published version of a config in any state, the highest first; None is the default config.

        ``at``: those that were published at that moment, in the state that they had then.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError
        """

    def datasets(self) -> tuple[DatasetSummary, ...]:
        """Every dataset and config, by name."""

    def search(self, text: str, *, limit: int = 20) -> tuple[SearchHit, ...]:
        """The datasets that ``text`` is about: the best ``limit`` in which every word matches, the best first.

        A word matches what begins with it, in names, tags, features and their labels, descriptions, licence, homepage
        or citation, whatever its case and accents. ``text`` has no syntax.

        Raises:
            UsageError: no letter or digit in ``text``, or more than a person types; a limit below 1.
        """

    def explain_no_hits(self, text: str) -> str:
        """Why ``search(text)`` found nothing: the words that no dataset has, and what may have been meant."""

    def fingerprints(self, version: DatasetVersion) -> dict[str, SplitFingerprint]:
        """The fingerprint of each split of a published version; empty where none were computed."""

    def add_fingerprints(self, version: DatasetVersion, found: Mapping[str, SplitFingerprint], *, actor: str) -> bool:
        """Store the fingerprints of a version that was published without; False where they are there already."""

    def publish(
        self,
        version: DatasetVersion,
        shards: Mapping[str, tuple[Shard, ...]],
        *,
        promote: bool | None,
        default_config: bool = False,
        actor: str,
        found: Mapping[str, SplitFingerprint] | None = None,
        proved_between: Neighbours | None = None,
        experiment_defaults: Mapping[str, bool] | None = None,
        held: tuple[Reservation, Holder] | None = None,
        unreserved: str | None = None,
    ) -> Promotion | None:
        """Publish ``version``: after the call everything is there, or nothing.

        Args:
            version: what is published; ``canonical``, ``published_at`` and ``published_by`` are set by the catalog.
            shards: the stored files of each split, in order; they must fit the split's shard lengths.
            promote: make it the version that an unversioned look-up gives; None does so where it is at least as high as
                that one and nothing protects it.
            default_config: make its config the one that a reference without a config means.
            actor: who publishes.
            found: the fingerprint of each split, to prove later numbers against; None stores none.
            proved_between: the numbers right below and above, against which this number was proved.
            experiment_defaults: the flags that the build was given beside those that the version overrides, kept with
                its event; None are those of this moment.
            held: the reservation of its location and who holds it; it ends with this call.
            unreserved: the location of files that were in place before, in an object store: refused where other content
                is being put there.

        Returns:
            The effect on the canonical version; None if the same content digest is published already: no change.

        Raises:
            VersionExistsError: the number was used for other content, or for a version that was deleted.
            NeighboursChangedError: ``proved_between`` are no longer the neighbours: prove again.
            ReservedError: ``held`` was taken away, or others put files at ``unreserved``.
            ProtectedError: it is to be promoted, and its dataset, config or catalog is protected.
            ConflictError: a config for a dataset without configs, or the other way round; or it overrides a flag that
                is retired.
            ExperimentNotFoundError: it overrides a flag that was never added.
            UsageError: the shards do not fit the version, or look-ups would fold the name to another.
        """

    def close(self) -> None:
        """Close every connection; the catalog must not be used afterwards.

        Versions that it gave may be: what is still to be loaded of them is loaded over a new connection.
        """

    def __enter__(self) -> CatalogBackend: ...

    def __exit__(self, *error: object) -> None: ...
