"""The catalog protocol: every call that the rest of the registry makes to a catalog.

Calls take and return frozen values that can be pickled. Each call is one action: one transaction of a database, or one
request over a network. The protocol mentions no database and no path of a machine. The caller reads large data in
pieces: events by pages, shards and their lengths by ranges (``paging.py``). Every error is a ``RegistryError``.

``SqlCatalog`` implements it. The shard lengths of a returned version (``LoadedShardLengths``) keep a reference to the
implementation and load more through this protocol. ``advance`` callbacks report progress; an implementation need not
call them. With ``dry_run=True`` a call does everything except writing: it has the same result and the same errors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, Required, TypeAlias, TypedDict, Unpack

from registry.model import (
    AccessToken,
    Attachment,
    DatasetVersion,
    Description,
    Event,
    Experiment,
    ExperimentChange,
    NameUse,
    Producer,
    Reference,
    RefusedCall,
    Role,
    Shard,
    SplitFingerprint,
    Standing,
    Use,
    Version,
    Webhook,
)

if TYPE_CHECKING:
    from registry.catalog.outcomes import (
        AliasChange,
        AliasMove,
        AliasSummary,
        Change,
        ClockCorrection,
        ConfigSummary,
        DataDirectoryChange,
        DefaultChange,
        Holder,
        LocationChange,
        LogReport,
        MetadataChange,
        Promotion,
        Proposal,
        ProtectionChange,
        PublicationDetails,
        Removal,
        Renaming,
        Reservation,
    )
    from registry.catalog.values import (
        DataDirectory,
        DatasetFilter,
        DatasetSummary,
        PastLookUp,
        SearchHit,
        VersionSize,
        VersionSummary,
    )

Advance: TypeAlias = Callable[[int], None]
"""A callback that receives the number of rows processed since its last call."""

Expected: TypeAlias = Version | Literal["none"] | None
"""What an alias must point to before a change: this version, nothing ("none"), or anything (None)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Selects events; None means any.

    Attributes:
        since, until: the first and the last moment, both included.
        dataset: ``name`` or ``name/config``; a name without a config selects all its configs.
        actions: kinds of events, e.g. ``publish``.
        before: only events with a smaller id.
    """

    since: datetime | None = None
    until: datetime | None = None
    dataset: str | None = None
    actions: tuple[str, ...] | None = None
    before: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Events that followed another one.

    Attributes:
        events: the events, oldest first. They may be none although others follow, which the caller may not see.
        after: the id to continue from.
    """

    events: tuple[Event, ...]
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBlock:
    """The lengths of consecutive shards of a split.

    Attributes:
        first: index of the first shard.
        start: position in the split of the first record of shard ``first``; 0 if there is no such shard.
        lengths: number of records in each shard.
        following: position of the first record of the next shard, or None after the last shard.
    """

    first: int
    start: int
    lengths: Sequence[int]
    following: int | None


class ShardCalls(Protocol):
    """The stored files of published splits, by ranges. Published rows never change, so callers may cache them."""

    def between(self, version: DatasetVersion, split: str, first: int, stop: int) -> tuple[Shard, ...]:
        """The shards ``first``..``stop`` (stop excluded) of a split, in order; fewer if the split has fewer."""

    def find(self, name: str, config: str | None, digests: Collection[str]) -> dict[str, tuple[Version, str, int]]:
        """The version, split and index of published shards of one dataset, by their sha256."""

    def files_of(
        self, references: Collection[Reference], *, attachments: bool = False
    ) -> dict[Reference, list[tuple[str, int]]]:
        """The name and the size in bytes of each shard file of published versions, given exactly; a few queries.

        With ``attachments``, those of their attachments follow.
        """

    def lengths_between(self, split_id: int, first: int, stop: int) -> LengthBlock:
        """The lengths of the shards ``first``..``stop`` (stop excluded); ``split_id`` comes from the catalog."""

    def lengths_at(self, split_id: int, position: int, block: int) -> LengthBlock | None:
        """The block of ``block`` shards that contains the record at ``position``, or None."""

    def empty_between(self, split_id: int, first: int, stop: int) -> Sequence[int]:
        """The indices of the empty shards among ``first``..``stop`` (stop excluded), in order."""

    def version_of(self, split_id: int) -> Reference | None:
        """The exact reference of the version that has this split, or None."""


class AccessCalls(Protocol):
    """Who may call a shared catalog. Whoever opens its database needs no token, and sees the digests."""

    def create_token(
        self,
        token_id: str,
        digest: str,
        name: str,
        role: Role,
        *,
        datasets: Sequence[str] = ("*",),
        expires_in: timedelta | None = None,
        actor: str,
        dry_run: bool = False,
    ) -> AccessToken:
        """Let the holder of a secret text call the catalog; ``model.new_secret`` gives its id and digest.

        Args:
            token_id: the public part of the secret text, which itself is never sent.
            digest: the sha256 of the text.
            name: who will hold it, e.g. ``ann`` or ``ci``.
            role: what the holder may do.
            datasets: patterns for the datasets that it covers; see ``AccessToken``.
            expires_in: how long it is valid, by the clock of the catalog; None without a limit.
            actor: who creates it.
            dry_run: only check the call.

        Raises:
            UsageError: an invalid name, pattern or digest, or a time that is not above zero.
            ConflictError: a token has this id or digest.
        """

    def tokens(self) -> tuple[AccessToken, ...]:
        """Every token, valid or not, oldest first."""

    def revoke_token(self, token_id: str, *, actor: str, dry_run: bool = False) -> AccessToken:
        """Make a token invalid for ever; revoking it again changes nothing. Raises TokenNotFoundError."""

    def authenticate(self, digest: str) -> AccessToken | None:
        """The token with this digest, or None; the caller decides whether it ``is_valid``.

        At most once a minute, ``last_used_at`` of a valid one is written, unless the catalog is read-only or busy.
        """

    def note_refusal(self, *, token: str | None, principal: str, call: str, dataset: str, reason: str) -> None:
        """Record a call that was refused; see ``RefusedCall``. Long texts are cut; the newest 100,000 are kept."""

    def refusals(self, *, before: int | None = None, limit: int = 100) -> tuple[RefusedCall, ...]:
        """Calls that were refused, newest first, at most ``limit``; with ``before``, those with a smaller id.

        Raises:
            UsageError: a limit that is not 1 to 1,000.
        """


class AliasCalls(Protocol):
    """Movable names for versions. The event log and the history of the alias record each move."""

    def set(
        self, name: str, reference: Reference, *, expect: Expected, message: str, actor: str, dry_run: bool = False
    ) -> AliasChange:
        """Point the alias ``name`` to the version that ``reference`` resolves to now; setting it again changes nothing.

        Raises:
            ReferenceSyntaxError: no alias can have that name, because it reads as a version.
            NotFoundError: the reference matches no version.
            VersionWithdrawnError: the version is yanked or dropped.
            AliasMovedError: it does not point to ``expect``; the error names who set it, and when.
        """

    def remove(
        self, reference: Reference, *, expect: Expected, message: str, actor: str, dry_run: bool = False
    ) -> AliasChange:
        """Remove the alias that ``reference`` names; its history stays.

        Raises:
            UsageError: the reference does not contain an alias.
            AliasNotFoundError: the alias does not exist.
            AliasMovedError: it does not point to ``expect``.
        """

    def list(self, dataset: str | None = None) -> tuple[AliasSummary, ...]:
        """Every alias by dataset and name, or those of ``name[/config]``; a name alone means all its configs.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError
            UsageError: a version or an alias follows the dataset.
        """

    def history(self, reference: Reference) -> tuple[AliasMove, ...]:
        """Every change of an alias, oldest first; also of an alias that was removed.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError, AliasNotFoundError: it never existed.
            UsageError: the reference does not contain an alias.
        """


class ConfigCalls(Protocol):
    """The configs of datasets: which is the default one, and which are protected."""

    def list(self, name: str) -> tuple[ConfigSummary, ...]:
        """The configs of a dataset, by name; raises DatasetNotFoundError."""

    def set_default(
        self, name: str, config: str, *, actor: str, dry_run: bool = False, uses: Sequence[Use] = ()
    ) -> DefaultChange:
        """Make ``config`` the default: the one that a reference without a config means.

        Raises DatasetNotFoundError or ConfigNotFoundError.
        """

    def protection(self, name: str, config: str | None, *, at: datetime | None = None) -> str | None:
        """The protected scope that keeps publications from promoting a version of a config, or None.

        The scope is ``name/config``, ``name``, or ``""`` for the whole catalog; with ``at``, as it was at that moment.
        """

    def set_protection(
        self,
        dataset: Reference | None,
        *,
        protect: bool,
        two_persons: bool = False,
        actor: str,
        dry_run: bool = False,
    ) -> ProtectionChange:
        """Protect, or stop protecting, a dataset, a config or (None) the whole catalog.

        With ``two_persons``, promotions of what it protects, and the end of the protection, wait until another person
        approves them: see ``LifecycleCalls.approve``.

        Raises:
            NotFoundError: the dataset or config does not exist.
            UsageError: ``two_persons`` without ``protect``.
            CatalogPermissionError: it needs two persons, and nothing proves who proposes it.
        """


class ExperimentCalls(Protocol):
    """The flags that versions may override. Repeating a change has no effect."""

    def list(self) -> tuple[Experiment, ...]:
        """Every flag, by name, with its default and the number of live versions that override it."""

    def defaults_for(self, overrides: Mapping[str, bool]) -> dict[str, bool]:
        """Whether each flag is on for a build whose version does not override it; a retired flag is on.

        Raises:
            ExperimentNotFoundError: the version's ``overrides`` name a flag that was never added.
            ConflictError: they name one that is retired.
        """

    def of_version(self, version: DatasetVersion) -> dict[str, bool]:
        """Every flag for a published version: its own override, or the default that its build received."""

    def add(
        self, name: str, description: str, *, default: bool = False, actor: str, dry_run: bool = False
    ) -> ExperimentChange:
        """Add a flag. A flag without a description, added by an older registry, receives this one.

        Raises:
            UsageError: an invalid name, no description, or a default that is not a bool.
            ConflictError: it exists with another description or default, or it is retired.
        """

    def set_default(self, name: str, default: bool, *, actor: str, dry_run: bool = False) -> ExperimentChange:
        """Flip a flag's default, for versions that are built from now on.

        Raises:
            UsageError: a default that is not a bool.
            ExperimentNotFoundError
            ConflictError: it is retired and can no longer be switched off.
        """

    def retire(self, name: str, *, actor: str, dry_run: bool = False) -> ExperimentChange:
        """Switch a flag on permanently.

        Raises:
            ExperimentNotFoundError
            ConflictError: it is off by default, or versions that can be read switch it off; the message names them.
        """


class ChangeOptions(TypedDict, total=False):
    """What each change of a version takes: who makes it, whether it is only computed, and references in use."""

    actor: Required[str]
    dry_run: bool
    uses: Sequence[Use]


class LifecycleCalls(Protocol):
    """Changes of the state of published versions. ``uses`` are references in use: the result lists how they change.

    Each call raises NotFoundError if no version matches, UsageError if the reference does not name one version or the
    reason is empty, and VersionWithdrawnError if the state of the version forbids the change.
    """

    def promote(self, reference: Reference, **options: Unpack[ChangeOptions]) -> Change:
        """Make a version the canonical one, or propose it if that needs two persons: ``Change.proposal``.

        Raises:
            CatalogPermissionError: it needs two persons, and nothing proves who proposes it.
        """

    def approve(self, proposal: Proposal, *, actor: str, dry_run: bool = False) -> Proposal:
        """Make the change that another person has proposed.

        Raises:
            ConflictError: the proposal does not wait any more, or what it is about has changed since.
            CatalogPermissionError: the same person proposed it, or nothing proves that it is another one.
        """

    def reject(self, proposal: Proposal, message: str = "", *, actor: str, dry_run: bool = False) -> Proposal:
        """End a proposal without its effect; whoever proposed it may withdraw it so. Raises ConflictError."""

    def proposals(self, dataset: str | None = None) -> tuple[Proposal, ...]:
        """The changes that wait for approval, oldest first: all of them, or those of ``name[/config]``."""

    def deprecate(self, reference: Reference, message: str, **options: Unpack[ChangeOptions]) -> Change:
        """Mark a version as deprecated."""

    def yank(
        self,
        reference: Reference,
        reason: str,
        superseded_by: Version | None = None,
        **options: Unpack[ChangeOptions],
    ) -> Change:
        """Withdraw a version: only its exact number and its aliases still find it."""

    def drop(self, reference: Reference, reason: str, **options: Unpack[ChangeOptions]) -> Change:
        """Hide a version from every look-up."""

    def undo(
        self,
        action: Literal["deprecate", "yank", "drop"],
        reference: Reference,
        **options: Unpack[ChangeOptions],
    ) -> Change:
        """Undo ``action``: the event log says which state the version had before."""

    def describe(
        self, reference: Reference, description: Description, *, actor: str, dry_run: bool = False
    ) -> MetadataChange:
        """Change the metadata of a version. Its content and its number stay as they are."""

    def remove(
        self,
        reference: Reference,
        *,
        grace: timedelta | None = None,
        force: bool = False,
        is_done: bool = False,
        actor: str,
        dry_run: bool = False,
        uses: Sequence[Use] = (),
    ) -> Removal:
        """Plan the removal of the files of a dropped version, or begin it if it is due. Files are not touched.

        It is due ``grace`` after the drop, or now if that is zero; None means as planned before, or after seven days.
        A removal that has begun is returned as it is, and the caller removes the files; then ``is_done`` ends it.

        Raises:
            ConflictError: the version is not dropped; or, without ``force``, an alias or a use names it.
            ReservedError: a publisher is sending its files again.
        """

    def removals(self, dataset: str | None = None) -> tuple[Removal, ...]:
        """The removals of all versions, or of those of ``name[/config]``, by the events of the log."""


class LocationCalls(Protocol):
    """The locations of the files of published versions; ``DatasetVersion.locations`` are the present ones.

    The caller has proved that the files are there. Each call that changes something raises NotFoundError if no version
    matches, or it is dropped, and UsageError if a location contains a secret.
    """

    def add(self, exactly: Reference, location: str, *, actor: str, dry_run: bool = False) -> LocationChange:
        """Append a mirror; adding it again changes nothing."""

    def remove(self, exactly: Reference, location: str, *, actor: str, dry_run: bool = False) -> LocationChange:
        """Withdraw a location.

        Raises:
            NotFoundError: it is not a location of the version.
            ConflictError: it is the only one.
        """

    def relocate(
        self, exactly: Reference, before: str, after: str, *, actor: str, dry_run: bool = False
    ) -> LocationChange:
        """Replace the location ``before`` by ``after``: the first one by a first one, a mirror by a mirror.

        Raises:
            ConflictError: ``before`` is not a location of the version by now.
        """

    def outside(self) -> tuple[tuple[Reference, tuple[str, ...]], ...]:
        """Every version that is not dropped and has a location outside the data directory, with all its locations."""

    def data_dir(self) -> DataDirectory | None:
        """The data directory that the log records last; None before the first publication into one."""

    def set_data_dir(self, data_dir: DataDirectory, *, actor: str, dry_run: bool = False) -> DataDirectoryChange:
        """Record the data directory; raises UsageError if it contains a secret."""


class LogCalls(Protocol):
    """The event log: append-only, each event sealed with the hash of the one before it."""

    def page(
        self, event_filter: EventFilter, *, after: int = 0, limit: int = 1000, newest: int | None = None
    ) -> tuple[Event, ...]:
        """The events of ``event_filter`` with an id above ``after``, oldest first, at most ``limit``.

        With ``newest``, only the N newest events. ``stream_events`` reads page after page.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: no such dataset.
            UsageError: a time without a zone, ``since`` after ``until``, a version after the dataset's name, or a
                number of events below 1.
        """

    def verify(self, *, anchor: str | None = None, advance: Advance | None = None) -> LogReport:
        """Verify the chain of the event log, and replay it against every row; ``anchor`` is an earlier head.

        ``advance`` receives the number of rows compared since its last call; the total is ``num_rows``.
        """

    def num_rows(self) -> int:
        """The number of rows that ``verify`` compares."""

    def correct_clock(
        self,
        *,
        first: int | None = None,
        last: int | None = None,
        ahead: timedelta | None = None,
        actor: str,
        dry_run: bool = False,
    ) -> ClockCorrection:
        """Read events that a wrong clock stamped at other times (``corrections.py`` says at which), with an event.

        ``first`` is the first event that is dated after the clock, and ``last`` the newest event, if None. ``ahead`` is
        how far the clock was ahead.

        Raises:
            UsageError: the log has no such events.
        """


class ReservationCalls(Protocol):
    """Reservations of locations in object stores: at any time, one content may be uploaded to a location."""

    def reserve(
        self, location: str, exactly: Reference, content_digest: str, holder: Holder
    ) -> tuple[Reservation, Reservation | None]:
        """Reserve ``location`` for one content of a version; returns the reservation now and before the call.

        The reservation and its holders have the time of the catalog's clock.

        Raises:
            ClockError: the clock contradicts the event log.
            VersionExistsError: the number is published with other content.
            ReservedError: another content is being uploaded there, or files left by others are being removed.
        """

    def note_found(
        self, reservation: Reservation, holder: Holder, names: Collection[str], *, anew: bool = False
    ) -> Reservation:
        """Record which objects existed before the marker; a record that another publisher made first is kept.

        ``anew``: the marker had to be written again, so any object there may belong to somebody else.
        """

    def take_over(self, reservation: Reservation, holder: Holder, *, older_than: timedelta) -> Reservation | None:
        """Reserve the location for ``holder`` alone, to remove what its publishers left; None if one may still run.

        A publisher of another machine, whose end cannot be seen here, counts as ended if it started longer ago than
        ``older_than``, by the clock of the catalog.
        """

    def begin_cleaning(self, reservation: Reservation, holder: Holder) -> Reservation | None:
        """Hold the location exclusively, to remove objects there; None while others upload to it."""

    def end_cleaning(self, reservation: Reservation, holder: Holder) -> Reservation:
        """Let others join again."""

    def require(self, reservation: Reservation, holder: Holder) -> None:
        """Check that ``holder`` still holds the reservation.

        Raises:
            ReservationLostError: it was taken away, or another publisher of the same content has written the row.
        """

    def leave(self, reservation: Reservation, holder: Holder, *, forget: bool) -> None:
        """Remove ``holder``. With ``forget``, the last holder deletes the reservation, because no file is left.

        Without it, the reservation remains, and the next run finishes the upload.
        """

    def list(self, dataset: str | None = None) -> tuple[Reservation, ...]:
        """Every reservation, by dataset, version and location; or those of ``name[/config]``."""

    def release(
        self, dataset: str, version: str, *, force: bool = False, dry_run: bool = False
    ) -> tuple[Reservation, ...]:
        """Take the reservations of a version away from dead holders, so that the next publisher can continue.

        Returns the reservations as they were. The uploaded files remain; the next publisher reuses or removes them.

        Raises:
            NotFoundError: the version has no reservation.
            ConflictError: a holder is still running on this machine, and ``force`` is False.
        """


class WebhookCalls(Protocol):
    """Who gets the events of a shared catalog by HTTP. Its service sends them, each at least once and in order."""

    def create(
        self,
        webhook_id: str,
        url: str,
        *,
        datasets: Sequence[str] = ("*",),
        actions: Sequence[str] = (),
        after: int | None = None,
        actor: str,
        dry_run: bool = False,
    ) -> Webhook:
        """Send events to ``url``.

        Args:
            webhook_id: 12 random hex digits.
            url: where they are sent.
            datasets: patterns for the datasets whose events it gets; see ``Webhook``.
            actions: the kinds of events that it gets; none for all.
            after: the id of the event to begin after; None for those that happen from now on.
            actor: who creates it.
            dry_run: only check the call.

        Raises:
            UsageError: an invalid id, URL, pattern or action, or the service has no key for signatures.
            ConflictError: a webhook has this id.
        """

    def list(self) -> tuple[Webhook, ...]:
        """Every webhook, oldest first."""

    def secret(self, webhook_id: str) -> str:
        """The secret with which its receiver verifies messages. Raises WebhookNotFoundError, and as ``create``."""

    def remove(self, webhook_id: str, *, actor: str, dry_run: bool = False) -> Webhook:
        """Send it no more events. Raises WebhookNotFoundError."""

    def resume(self, webhook_id: str, *, after: int | None = None, actor: str, dry_run: bool = False) -> Webhook:
        """Try again at once, also if it was disabled. With ``after``, continue after that event, e.g. an earlier one.

        Raises:
            WebhookNotFoundError: no webhook has this id.
            UsageError: there is no such event.
        """


class CatalogBackend(Protocol):
    """An open catalog. Threads may share it, and a forked process may use it."""

    @property
    def url(self) -> str:
        """The URL of the catalog, without its password."""

    @property
    def file(self) -> Path | None:
        """The file of the catalog on this machine; None for a catalog on a server."""

    def now(self) -> datetime:
        """Now, by the clock that stamps events and reservations, in UTC: that of the database, not that of a client."""

    # The class of each group describes its calls.
    @property
    def access(self) -> AccessCalls: ...
    @property
    def aliases(self) -> AliasCalls: ...
    @property
    def configs(self) -> ConfigCalls: ...
    @property
    def experiments(self) -> ExperimentCalls: ...
    @property
    def lifecycle(self) -> LifecycleCalls: ...
    @property
    def locations(self) -> LocationCalls: ...
    @property
    def log(self) -> LogCalls: ...
    @property
    def reservations(self) -> ReservationCalls: ...
    @property
    def shards(self) -> ShardCalls: ...
    @property
    def webhooks(self) -> WebhookCalls: ...

    def find(self, reference: str | Reference) -> DatasetVersion:
        """Resolve ``reference`` to one published version with its splits (``model.choose`` is the rule).

        A reference without a request gives the canonical version. A wildcard or range gives the highest match that is
        not yanked or dropped. An exact number or an alias gives that version, unless it is dropped. The shard lengths
        of splits with thousands of shards are loaded when they are used.

        Raises:
            ReferenceSyntaxError: the text is not a reference.
            DatasetNotFoundError, ConfigNotFoundError, VersionNotFoundError, AliasNotFoundError: no match; the hint
                names the nearest name, or the published versions and their states.
            VersionWithdrawnError: the version is yanked or dropped; the hint names a version that can be read.
        """

    def find_at(self, reference: Reference, moment: datetime) -> PastLookUp:
        """What ``reference`` resolved to at ``moment``, derived from the event log.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError, VersionNotFoundError, AliasNotFoundError: no match at
                that moment.
            VersionWithdrawnError: the version was withdrawn at that moment, or was dropped later.
        """

    def published(self, name: str, config: str | None, version: Version) -> DatasetVersion | None:
        """The version with exactly this number in any state, including dropped, or None."""

    def published_at(self, location: str) -> tuple[Reference, ...]:
        """The versions in any state that have this location now, because they were published there or moved there."""

    def published_digest(self, name: str, config: str | None, version: Version) -> str | None:
        """The content digest ever published under this number, or None if the number is free."""

    def neighbours(
        self, name: str, config: str | None, version: Version
    ) -> tuple[DatasetVersion | None, DatasetVersion | None]:
        """The versions published right below and right above ``version``, in any state, including dropped."""

    def standing(self, name: str, config: str | None = None, *, at: datetime | None = None) -> Standing:
        """The states, canonical version and aliases of a config now, or ``at`` a moment; None is the default config.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: the config does not exist, or did not exist yet.
        """

    def versions(
        self,
        name: str,
        config: str | None = None,
        *,
        at: datetime | None = None,
        below: Version | None = None,
        limit: int | None = None,
    ) -> tuple[VersionSummary, ...]:
        """Every published version of a config in any state, highest first; None is the default config.

        With ``at``: the versions published at that moment, in their state at that moment. With ``below``: those with
        a lower number. With ``limit``: at most ``limit`` versions, the highest.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError
        """

    def sizes(self) -> tuple[VersionSize, ...]:
        """The number and the size of the shard files of every version in any state, by dataset and version."""

    def datasets(
        self, wanted: DatasetFilter | None = None, *, after: str | None = None, limit: int | None = None
    ) -> tuple[DatasetSummary, ...]:
        """Every dataset and config that ``wanted`` lists, by name.

        With ``after``: those after this ``name[/config]``. With ``limit``: at most ``limit`` of them, the first.
        """

    def search(self, text: str, *, limit: int = 20) -> tuple[SearchHit, ...]:
        """Search for datasets that match every word of ``text``: at most ``limit`` hits, best first.

        A word matches every word that begins with it, in names, tags, features and their labels, descriptions, licence,
        homepage and citation. Case and accents are ignored. ``text`` has no syntax.

        Raises:
            UsageError: ``text`` has no letter or digit, or is too long; a limit below 1.
        """

    def explain_no_hits(self, text: str) -> str:
        """Why ``search(text)`` found nothing: the words that no dataset contains, and similar words."""

    def fingerprints(self, version: DatasetVersion) -> dict[str, SplitFingerprint]:
        """The fingerprint of each split of a published version; empty if none was computed."""

    def add_fingerprints(
        self, version: DatasetVersion, fingerprints: Mapping[str, SplitFingerprint], *, actor: str
    ) -> bool:
        """Store the fingerprints of a version published without them; False if it has fingerprints already."""

    def attachments(self, version: DatasetVersion) -> tuple[Attachment, ...]:
        """The files that are kept with a published version and are not its shards, by kind and name; one query."""

    def attach(self, version: DatasetVersion, *attachments: Attachment, actor: str) -> bool:
        """Record files of a published version, which are there already; False if it has the same attachments.

        All are recorded in one transaction, each with an event of its own.

        Raises:
            VersionNotFoundError: the version is not published.
            ConflictError: it has another attachment of this kind and name.
        """

    def add_producer(self, exactly: Reference, producer: Producer, name_use: NameUse, *, actor: str) -> None:
        """Record that ``producer`` offered the content of a published version again, so that it may continue it.

        Nothing is recorded if it is the producer already. Raises OtherSourceError, as ``publish``.
        """

    def require_publisher(self) -> None:
        """Check that this process may publish, before hours of work are spent. Nothing is written.

        Raises:
            CatalogPermissionError: the database user lacks a right, or the catalog is read-only.
        """

    def producers(self, name: str, config: str | None) -> tuple[tuple[Reference, Producer], ...]:
        """The newest versions of a config, at most 100, and what made them, newest first.

        For a config without versions: the newest version of each other config of the dataset. Empty for a new dataset.
        """

    def publish(
        self,
        version: DatasetVersion,
        shards: Mapping[str, tuple[Shard, ...]],
        *,
        promote: bool | None,
        default_config: bool = False,
        actor: str,
        details: PublicationDetails | None = None,
    ) -> Promotion | None:
        """Publish ``version`` atomically: all of its rows are written, or none.

        Args:
            version: the version to publish; the catalog sets ``canonical``, ``published_at`` and ``published_by``.
            shards: the stored files of each split, in order; they must fit the split's shard lengths.
            promote: make it the canonical version, which look-ups without a version give; None promotes it if it is not
                lower than the canonical one and nothing protects that one.
            default_config: make its config the default one.
            actor: who publishes, for the event log.
            details: what else the publication records, and what must hold while it is written.

        Returns:
            The effect on the canonical version, or None if the same content is published already (no change). If the
            answer to a COMMIT was lost, the same call again returns the effect of that one.

        Raises:
            VersionExistsError: the number was used for other content, or for a deleted version.
            NeighboursChangedError: ``details.proved_between`` are no longer the neighbours: prove again.
            ReservedError: ``details.held`` was taken away, or others upload to ``details.unreserved``.
            OtherDataDirectoryError: the catalog records another data directory than ``details.data_dir``.
            ProtectedError: ``promote`` is True, and its dataset, config or catalog is protected.
            OtherSourceError: ``details.name_use`` does not allow the producer to continue the dataset.
            ConflictError: a config for a dataset without configs, or the other way round; or it overrides a flag that
                is retired.
            ExperimentNotFoundError: it overrides a flag that was never added.
            UsageError: the shards do not fit the version, or look-ups would fold the name to another.
        """

    def rename(self, name: str, after: str, *, actor: str, dry_run: bool = False) -> Renaming:
        """Give a dataset another name. References by its former names go on naming it, and its events keep them.

        Raises:
            DatasetNotFoundError: there is no dataset of that name.
            ReferenceSyntaxError, UsageError: no dataset can have the new name.
            DatasetRenamedError: the new name is, or was, that of another dataset.
            ReservedError: a publisher is sending files of a version of it.
        """

    def events(
        self,
        *,
        after: int = 0,
        limit: int = 1000,
        wait: float = 0,
        dataset: str | None = None,
        actions: tuple[str, ...] | None = None,
    ) -> EventPage:
        """The events after the one with the id ``after``, oldest first, for those who follow the log.

        Ids are in the order in which transactions are committed, so no later event has a smaller id than a visible one.

        Args:
            after: the id to continue from; 0 is the beginning.
            limit: at most this many events, 1 to 1,000.
            wait: how many seconds to wait for an event if there is none, 0 to 30.
            dataset: only events of ``name`` or ``name/config``, as ``EventFilter.dataset``.
            actions: only events of these kinds, e.g. ``publish``.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: no such dataset.
            UsageError: a number is out of range, or the log ends before ``after``: it is another log, or was restored.
        """

    def backup(self, *, advance: Advance | None = None) -> Iterator[bytes]:
        """The lines of a backup: every row at one moment, in pieces of at most some megabytes.

        ``registry.catalog.backup_file`` describes the lines; the first piece is the first line, the last piece the last
        one. Others may publish meanwhile.
        """

    def snapshot(
        self,
        *,
        datasets: Collection[str] | None = None,
        with_actors: bool = False,
        advance: Advance | None = None,
    ) -> Iterator[bytes]:
        """The lines of a backup of a catalog for others, with only these datasets and nothing private.

        ``registry.catalog.snapshot`` describes it, and makes an SQLite file of the lines.

        Raises:
            DatasetNotFoundError: one of the datasets does not exist.
            UsageError: the text of one names a config or a version.
        """

    def close(self) -> None:
        """Close every connection; the catalog must not be used afterwards.

        Versions that it returned remain usable: they load missing parts over a new connection.
        """

    def __enter__(self) -> CatalogBackend: ...

    def __exit__(self, *error: object) -> None: ...
