"""The catalog protocol: every call that the rest of the registry makes to a catalog.

Calls take and return frozen, picklable values. Each call is one action: one transaction of a database, or one request
over a network. The protocol does not depend on a database or on local paths. Callers read large data in pieces: events
by pages, shards and their lengths by ranges (``paging.py``). Every error is a ``RegistryError``.

``SqlCatalog`` implements the protocol. The shard lengths of a returned version (``LoadedShardLengths``) keep a
reference to the implementation and load more through this protocol. ``advance`` callbacks report progress;
implementations need not call them. With ``dry_run=True``, a call writes nothing, but has the same result and raises the
same errors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, Required, TypeAlias, TypedDict, Unpack

from registry import model
from registry.catalog.pages import in_pages
from registry.lazy import lazy_module
from registry.model import Version

if TYPE_CHECKING:
    from registry.catalog import outcomes, values
else:  # loaded when an annotation is resolved: a look-up needs few of these values
    outcomes, values = lazy_module("registry.catalog.outcomes"), lazy_module("registry.catalog.values")

Expected: TypeAlias = Version | Literal["none"] | None
"""The expected target of an alias before a change: a version, "none" if it must not exist, or None for no check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Conditions that select events; None means any.

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
    """A page of events after a given event.

    Attributes:
        events: the events, oldest first. The page may be empty even if later events exist that the caller may not see.
        after: the id from which to continue.
    """

    events: tuple[model.Event, ...]
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBlock:
    """The lengths of consecutive shards of a split.

    Attributes:
        first: index of the first shard.
        start: position in the split of the first record of shard ``first``; 0 if that shard does not exist.
        lengths: number of records in each shard.
        following: position of the first record of the next shard, or None after the last shard.
    """

    first: int
    start: int
    lengths: Sequence[int]
    following: int | None


class ShardCalls(Protocol):
    """The stored files of published splits, by ranges. Published rows never change, so callers may cache them."""

    def between(self, version: model.DatasetVersion, split: str, first: int, stop: int) -> tuple[model.Shard, ...]:
        """The shards ``first``..``stop`` (stop excluded) of a split, in order; fewer if the split has fewer."""

    def find(self, name: str, config: str | None, digests: Collection[str]) -> dict[str, tuple[Version, str, int]]:
        """The version, split and index of published shards of one dataset, by their sha256."""

    def files_of(
        self, references: Collection[model.Reference], *, attachments: bool = False
    ) -> dict[model.Reference, list[tuple[str, int]]]:
        """The name and size in bytes of each shard file of published versions, given exactly. Takes only a few queries.

        With ``attachments``, the files of their attachments follow.
        """

    def lengths_between(self, split_id: int, first: int, stop: int) -> LengthBlock:
        """The lengths of the shards ``first``..``stop`` (stop excluded); ``split_id`` comes from the catalog."""

    def lengths_at(self, split_id: int, position: int, block: int) -> LengthBlock | None:
        """The block of ``block`` shards that contains the record at ``position``, or None."""

    def empty_between(self, split_id: int, first: int, stop: int) -> Sequence[int]:
        """The indices of the empty shards among ``first``..``stop`` (stop excluded), in order."""

    def version_of(self, split_id: int) -> model.Reference | None:
        """The exact reference of the version that has this split, or None."""


class AccessCalls(Protocol):
    """The access tokens of a shared catalog. Clients of its database need no token, and can see the digests."""

    def create_token(
        self,
        token_id: str,
        digest: str,
        name: str,
        role: model.Role,
        *,
        datasets: Sequence[str] = ("*",),
        expires_in: timedelta | None = None,
        actor: str,
        dry_run: bool = False,
    ) -> model.AccessToken:
        """Create a token for the holder of a secret text; ``model.new_secret`` returns its id and digest.

        Args:
            token_id: the public part of the secret text. The text itself is never sent.
            digest: the sha256 of the text.
            name: the holder of the token, e.g. ``ann`` or ``ci``.
            role: the rights of the holder.
            datasets: patterns for the datasets that the token covers; see ``AccessToken``.
            expires_in: how long the token is valid, by the clock of the catalog. None sets no limit.
            actor: the creator of the token.
            dry_run: only check the arguments.

        Raises:
            UsageError: a name, pattern or digest is invalid, or the duration is not positive.
            ConflictError: a token with this id or digest exists.
        """

    @in_pages("after", attrgetter("id"))
    def tokens(self, *, after: str | None = None, limit: int | None = None) -> tuple[model.AccessToken, ...]:
        """Every token, valid or not, oldest first; with ``after``, those after the token with this id.

        Raises:
            TokenNotFoundError: there is no token ``after``: it was removed meanwhile.
        """

    def revoke_token(self, token_id: str, *, actor: str, dry_run: bool = False) -> model.AccessToken:
        """Make a token permanently invalid. Revoking it again changes nothing. Raises TokenNotFoundError."""

    def authenticate(self, digest: str) -> model.AccessToken | None:
        """The token with this digest, or None; the caller decides whether it ``is_valid``.

        At most once a minute, ``last_used_at`` of a valid token is updated, unless the catalog is read-only or busy.
        """

    def note_refusal(self, *, token: str | None, principal: str, call: str, dataset: str, reason: str) -> None:
        """Record a call that was refused; see ``RefusedCall``. Long texts are cut; the newest 100,000 are kept."""

    def refusals(self, *, before: int | None = None, limit: int = 100) -> tuple[model.RefusedCall, ...]:
        """At most ``limit`` refused calls, newest first; with ``before``, only those with a smaller id.

        Raises:
            UsageError: ``limit`` is not between 1 and 1,000.
        """


class AliasCalls(Protocol):
    """Movable names for versions. The event log and the alias history record each move."""

    def set(
        self,
        name: str,
        reference: model.Reference,
        *,
        expect: Expected,
        message: str,
        actor: str,
        dry_run: bool = False,
    ) -> outcomes.AliasChange:
        """Point the alias ``name`` to the version that ``reference`` resolves to now; setting it again changes nothing.

        Raises:
            ReferenceSyntaxError: the name is not a valid alias, because it looks like a version.
            NotFoundError: the reference matches no version.
            VersionWithdrawnError: the version is yanked or dropped.
            AliasMovedError: the alias does not point to ``expect``; the error names who moved it, and when.
        """

    def remove(
        self, reference: model.Reference, *, expect: Expected, message: str, actor: str, dry_run: bool = False
    ) -> outcomes.AliasChange:
        """Remove the alias that ``reference`` names. Its history is kept.

        Raises:
            UsageError: the reference does not contain an alias.
            AliasNotFoundError: the alias does not exist.
            AliasMovedError: it does not point to ``expect``.
        """

    @in_pages("after", attrgetter("reference"))
    def list(
        self, dataset: str | None = None, *, after: model.Reference | None = None, limit: int | None = None
    ) -> tuple[outcomes.AliasSummary, ...]:
        """Every alias by dataset and name, or those of ``name[/config]``; without a config, of all its configs.

        With ``after``: those after this alias, which need not exist. With ``limit``: at most ``limit``, the first.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError
            UsageError: a version or an alias follows the dataset.
        """

    def history(self, reference: model.Reference) -> tuple[outcomes.AliasMove, ...]:
        """Every change of an alias, oldest first. The alias may have been removed since.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError, AliasNotFoundError: the alias never existed.
            UsageError: the reference does not contain an alias.
        """


class ConfigCalls(Protocol):
    """The configs of datasets: the default configs, and protections."""

    def list(self, name: str) -> tuple[values.ConfigSummary, ...]:
        """The configs of a dataset, by name; raises DatasetNotFoundError."""

    def set_default(
        self, name: str, config: str, *, actor: str, dry_run: bool = False, uses: Sequence[model.Use] = ()
    ) -> outcomes.DefaultChange:
        """Make ``config`` the default config: a reference without a config means it.

        Raises DatasetNotFoundError or ConfigNotFoundError.
        """

    def protection(self, name: str, config: str | None, *, at: datetime | None = None) -> str | None:
        """The scope whose protection keeps publications from promoting a version of a config, or None.

        The scope is ``name/config``, ``name``, or ``""`` for the whole catalog. With ``at``, the protection at that
        moment.
        """

    def set_protection(
        self,
        dataset: model.Reference | None,
        *,
        protect: bool,
        two_persons: bool = False,
        actor: str,
        dry_run: bool = False,
    ) -> outcomes.ProtectionChange:
        """Protect, or stop protecting, a dataset, a config or (None) the whole catalog.

        With ``two_persons``, promotions in this scope, and the removal of the protection, need the approval of another
        person: see ``LifecycleCalls.approve``.

        Raises:
            NotFoundError: the dataset or config does not exist.
            UsageError: ``two_persons`` is given without ``protect``.
            CatalogPermissionError: two persons are required, and the caller's identity is not proven.
        """


class ExperimentCalls(Protocol):
    """The flags that versions may override. Repeating a change has no effect."""

    def list(self) -> tuple[model.Experiment, ...]:
        """Every flag, by name, with its default and the number of live versions that override it."""

    def defaults_for(self, overrides: Mapping[str, bool]) -> dict[str, bool]:
        """Whether each flag is on for a build whose version does not override it. Retired flags are on.

        Raises:
            ExperimentNotFoundError: the version's ``overrides`` name a flag that was never added.
            ConflictError: the overrides name a retired flag.
        """

    def of_version(self, version: model.DatasetVersion) -> dict[str, bool]:
        """Every flag for a published version: its own override, or the default that its build received."""

    def add(
        self, name: str, description: str, *, default: bool = False, actor: str, dry_run: bool = False
    ) -> model.ExperimentChange:
        """Add a flag. If an older release added the flag without a description, it receives this one.

        Raises:
            UsageError: the name is invalid, the description is missing, or the default is not a bool.
            ConflictError: the flag exists with another description or default, or is retired.
        """

    def set_default(self, name: str, default: bool, *, actor: str, dry_run: bool = False) -> model.ExperimentChange:
        """Change a flag's default for versions that are built from now on.

        Raises:
            UsageError: the default is not a bool.
                ExperimentNotFoundError
            ConflictError: the flag is retired and can no longer be switched off.
        """

    def retire(self, name: str, *, actor: str, dry_run: bool = False) -> model.ExperimentChange:
        """Switch a flag on permanently.

        Raises:
            ExperimentNotFoundError
            ConflictError: the flag is off by default, or readable versions switch it off; the message names them.
        """


class ChangeOptions(TypedDict, total=False):
    """Options of each change of a version: the actor, whether it is a dry run, and references in use."""

    actor: Required[str]
    dry_run: bool
    uses: Sequence[model.Use]


class LifecycleCalls(Protocol):
    """Changes to the state of published versions. ``uses`` are references in use; the result lists how they change.

    Each call raises NotFoundError if no version matches, UsageError if the reference does not name one version or the
    reason is empty, and VersionWithdrawnError if the state of the version forbids the change.
    """

    def promote(self, reference: model.Reference, **options: Unpack[ChangeOptions]) -> outcomes.Change:
        """Make a version canonical, or propose this if two persons are required: ``Change.proposal``.

        Raises:
            CatalogPermissionError: two persons are required, and the caller's identity is not proven.
        """

    def approve(self, proposal: outcomes.Proposal, *, actor: str, dry_run: bool = False) -> outcomes.Proposal:
        """Make the change that another person proposed.

        Raises:
            ConflictError: the proposal is no longer pending, or its subject has changed since.
            CatalogPermissionError: the caller made the proposal, or the caller's identity is not proven.
        """

    def reject(
        self, proposal: outcomes.Proposal, message: str = "", *, actor: str, dry_run: bool = False
    ) -> outcomes.Proposal:
        """Reject a proposal, or withdraw the caller's own. Raises ConflictError."""

    def proposals(self, dataset: str | None = None) -> tuple[outcomes.Proposal, ...]:
        """The changes that wait for approval, oldest first: all of them, or those of ``name[/config]``."""

    def deprecate(self, reference: model.Reference, message: str, **options: Unpack[ChangeOptions]) -> outcomes.Change:
        """Mark a version as deprecated."""

    def yank(
        self,
        reference: model.Reference,
        reason: str,
        superseded_by: Version | None = None,
        **options: Unpack[ChangeOptions],
    ) -> outcomes.Change:
        """Withdraw a version: only its exact number and its aliases still resolve to it."""

    def drop(self, reference: model.Reference, reason: str, **options: Unpack[ChangeOptions]) -> outcomes.Change:
        """Hide a version from every look-up."""

    def undo(
        self,
        action: Literal["deprecate", "yank", "drop"],
        reference: model.Reference,
        **options: Unpack[ChangeOptions],
    ) -> outcomes.Change:
        """Undo ``action``: restore the state that the version had before, according to the event log."""

    def describe(
        self, reference: model.Reference, description: model.Description, *, actor: str, dry_run: bool = False
    ) -> outcomes.MetadataChange:
        """Change the metadata of a version. Its content and its number do not change."""

    def remove(
        self,
        reference: model.Reference,
        *,
        grace: timedelta | None = None,
        force: bool = False,
        is_done: bool = False,
        actor: str,
        dry_run: bool = False,
        uses: Sequence[model.Use] = (),
    ) -> outcomes.Removal:
        """Plan the removal of the files of a dropped version, or begin it if it is due. Files are not touched.

        The removal is due ``grace`` after the drop, or now if that is zero. None means as planned before, or seven
        days.

        A removal that has already begun is returned unchanged. The caller removes the files, and then calls this with
        ``is_done`` to end the removal.

        Raises:
            ConflictError: the version is not dropped; or, without ``force``, an alias or a use names it.
            ReservedError: a publisher is uploading the files again.
        """

    @in_pages("after", attrgetter("reference"))
    def removals(
        self, dataset: str | None = None, *, after: model.Reference | None = None, limit: int | None = None
    ) -> tuple[outcomes.Removal, ...]:
        """The removals of all versions, or of those of ``name[/config]``, by dataset and version.

        With ``after``: those after this version. With ``limit``: at most ``limit`` of them, the first.
        """


class LocationCalls(Protocol):
    """The locations of the files of published versions; ``DatasetVersion.locations`` are the current ones.

    The caller has verified that the files are there. Each call that changes something raises NotFoundError if no
    version matches or the version is dropped, and UsageError if a location contains a secret.
    """

    def add(
        self, exactly: model.Reference, location: str, *, actor: str, dry_run: bool = False
    ) -> outcomes.LocationChange:
        """Append a mirror; adding it again changes nothing."""

    def remove(
        self, exactly: model.Reference, location: str, *, actor: str, dry_run: bool = False
    ) -> outcomes.LocationChange:
        """Withdraw a location.

        Raises:
            NotFoundError: it is not a location of the version.
            ConflictError: it is the only location.
        """

    def relocate(
        self, exactly: model.Reference, before: str, after: str, *, actor: str, dry_run: bool = False
    ) -> outcomes.LocationChange:
        """Replace the location ``before`` with ``after``, at the same position in the order of locations.

        Raises:
            ConflictError: ``before`` is no longer a location of the version.
        """

    @in_pages("after", itemgetter(0))
    def outside(
        self, *, after: model.Reference | None = None, limit: int | None = None
    ) -> tuple[tuple[model.Reference, tuple[str, ...]], ...]:
        """Every version that is not dropped and has a location outside the data directory, with all its locations.

        They come by dataset and version. ``after`` and ``limit`` are those of ``CatalogBackend.sizes``.
        """

    def data_dir(self) -> values.DataDirectory | None:
        """The last data directory that the log records, or None before the first publication into one."""

    def set_data_dir(
        self, data_dir: values.DataDirectory, *, actor: str, dry_run: bool = False
    ) -> outcomes.DataDirectoryChange:
        """Record the data directory; raises UsageError if it contains a secret."""


class LogCalls(Protocol):
    """The event log: append-only, with each event sealed by the hash of the event before it."""

    def page(
        self, event_filter: EventFilter, *, after: int = 0, limit: int = 1000, newest: int | None = None
    ) -> tuple[model.Event, ...]:
        """At most ``limit`` events of ``event_filter`` with an id above ``after``, oldest first.

        With ``newest``, only the N newest events. ``stream_events`` reads page after page.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: the dataset does not exist.
            UsageError: a time has no time zone, ``since`` is after ``until``, a version follows the dataset's name, or
                a number of events is below 1.
        """

    def verify(self, *, anchor: str | None = None, advance: model.Advance | None = None) -> outcomes.LogReport:
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
    ) -> outcomes.ClockCorrection:
        """Correct the times of events that a wrong clock dated, by adding an event; see ``corrections.py``.

        ``first`` defaults to the first event that is dated in the future, and ``last`` to the newest event. ``ahead``
        is how far the clock was ahead.

        Raises:
            UsageError: the log has no such events.
        """


class ReservationCalls(Protocol):
    """Reservations of locations in object stores: only one content at a time may be uploaded to a location."""

    def reserve(
        self, location: str, exactly: model.Reference, content_digest: str, holder: outcomes.Holder
    ) -> tuple[outcomes.Reservation, outcomes.Reservation | None]:
        """Reserve ``location`` for one content of a version; returns the reservation now and before the call.

        The reservation and its holders are dated by the catalog's clock.

        Raises:
            ClockError: the clock contradicts the event log.
            VersionExistsError: the number is published with other content.
            ReservedError: other content is being uploaded there, or leftover files are being removed.
        """

    def note_found(
        self, reservation: outcomes.Reservation, holder: outcomes.Holder, names: Collection[str], *, anew: bool = False
    ) -> outcomes.Reservation:
        """Record which objects existed before the marker. An earlier record by another publisher is kept.

        ``anew`` means that the marker had to be written again, so any object there may belong to another process.
        """

    def take_over(
        self, reservation: outcomes.Reservation, holder: outcomes.Holder, *, older_than: timedelta
    ) -> outcomes.Reservation | None:
        """Reserve the location exclusively for ``holder``, to remove leftovers; None if a publisher may still run.

        A publisher on another machine, whose end cannot be observed, counts as ended if it started longer ago than
        ``older_than``, by the clock of the catalog.
        """

    def begin_cleaning(self, reservation: outcomes.Reservation, holder: outcomes.Holder) -> outcomes.Reservation | None:
        """Lock the location exclusively, to remove objects there. None while other publishers upload to it."""

    def end_cleaning(self, reservation: outcomes.Reservation, holder: outcomes.Holder) -> outcomes.Reservation:
        """Allow other publishers to join again."""

    def require(self, reservation: outcomes.Reservation, holder: outcomes.Holder) -> None:
        """Check that ``holder`` still holds the reservation.

        Raises:
            ReservationLostError: the reservation was released, or another publisher of the same content wrote the row.
        """

    def leave(self, reservation: outcomes.Reservation, holder: outcomes.Holder, *, forget: bool) -> None:
        """Remove ``holder``. With ``forget``, the last holder deletes the reservation, because no files remain.

        Without ``forget``, the reservation remains, and the next run finishes the upload.
        """

    def list(self, dataset: str | None = None) -> tuple[outcomes.Reservation, ...]:
        """Every reservation, or those of ``name[/config]``, by dataset, version and location."""

    def release(
        self, dataset: str, version: str, *, force: bool = False, dry_run: bool = False
    ) -> tuple[outcomes.Reservation, ...]:
        """Release the reservations of a version that dead publishers hold, so that another can continue.

        Returns the reservations as they were. The uploaded files remain; the next publisher reuses or removes them.

        Raises:
            NotFoundError: the version has no reservation.
            ConflictError: a holder is still running on this machine, and ``force`` is False.
        """


class WebhookCalls(Protocol):
    """Receivers of a shared catalog's events by HTTP. Its service sends each event at least once, in order."""

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
    ) -> model.Webhook:
        """Create a webhook that sends events to ``url``.

        Args:
            webhook_id: 12 random hex digits.
            url: the URL of the receiver.
            datasets: patterns for the datasets whose events are sent; see ``Webhook``.
            actions: the kinds of events that are sent. Empty means all.
            after: the id of the event to begin after. None sends only events from now on.
            actor: the creator of the webhook.
            dry_run: only check the arguments.

        Raises:
            UsageError: the id, URL, a pattern or an action is invalid, or the service has no key for signatures.
            ConflictError: a webhook with this id exists.
        """

    def list(self) -> tuple[model.Webhook, ...]:
        """Every webhook, oldest first."""

    def secret(self, webhook_id: str) -> str:
        """The secret with which its receiver verifies messages. Raises WebhookNotFoundError, or as ``create``."""

    def remove(self, webhook_id: str, *, actor: str, dry_run: bool = False) -> model.Webhook:
        """Remove a webhook: no more events are sent to it. Raises WebhookNotFoundError."""

    def resume(self, webhook_id: str, *, after: int | None = None, actor: str, dry_run: bool = False) -> model.Webhook:
        """Retry at once, even if the webhook was disabled. With ``after``, continue after that event.

        Raises:
            WebhookNotFoundError: no webhook has this id.
            UsageError: the event does not exist.
        """


class CatalogBackend(Protocol):
    """An open catalog. Threads may share it, and a forked process may use it."""

    @property
    def url(self) -> str:
        """The URL of the catalog, without its password."""

    @property
    def file(self) -> Path | None:
        """The file of the catalog on this machine, or None for a catalog on a server."""

    def now(self) -> datetime:
        """The current time in UTC, by the clock that dates events and reservations, not by the client's."""

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

    def find(self, reference: str | model.Reference) -> model.DatasetVersion:
        """Resolve ``reference`` to one published version with its splits (``model.choose`` is the rule).

        A reference without a request resolves to the canonical version. A wildcard or range resolves to the highest
        match that is not yanked or dropped. An exact number or an alias resolves to that version, unless it is dropped.
        The shard lengths of splits with thousands of shards are loaded on first use.

        Raises:
            ReferenceSyntaxError: the text is not a reference.
            DatasetNotFoundError, ConfigNotFoundError, VersionNotFoundError, AliasNotFoundError: no match; the hint
                names the nearest name, or the published versions and their states.
            VersionWithdrawnError: the version is yanked or dropped; the hint names a version that can be read.
        """

    def find_at(self, reference: model.Reference, moment: datetime) -> values.PastLookUp:
        """What ``reference`` resolved to at ``moment``, derived from the event log.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError, VersionNotFoundError, AliasNotFoundError: no match at
                that moment.
            VersionWithdrawnError: the version was withdrawn at that moment, or was dropped later.
        """

    def published(self, name: str, config: str | None, version: Version) -> model.DatasetVersion | None:
        """The version with exactly this number in any state, including dropped, or None."""

    def published_at(self, location: str) -> tuple[model.Reference, ...]:
        """The versions in any state that currently have this location, because they were published or moved there."""

    def published_digest(self, name: str, config: str | None, version: Version) -> str | None:
        """The content digest ever published under this number, or None if the number is free."""

    def neighbours(
        self, name: str, config: str | None, version: Version
    ) -> tuple[model.DatasetVersion | None, model.DatasetVersion | None]:
        """The next lower and next higher published version of ``version``, in any state, including dropped."""

    def standing(self, name: str, config: str | None = None, *, at: datetime | None = None) -> model.Standing:
        """The states, canonical version and aliases of a config now or ``at`` a moment. None means the default config.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: the config does not exist, or did not exist yet.
        """

    @in_pages("below", attrgetter("version"))
    def versions(
        self,
        name: str,
        config: str | None = None,
        *,
        at: datetime | None = None,
        below: Version | None = None,
        limit: int | None = None,
    ) -> tuple[values.VersionSummary, ...]:
        """Every published version of a config in any state, highest first. None means the default config.

        With ``at``: the versions published at that moment, in their state at that moment. With ``below``: those with
        a lower number. With ``limit``: at most ``limit`` versions, the highest.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError
        """

    @in_pages("after", attrgetter("reference"))
    def sizes(
        self, *, after: model.Reference | None = None, limit: int | None = None
    ) -> tuple[outcomes.VersionSize, ...]:
        """The number and the size of the shard files of every version in any state, by dataset and version.

        With ``after``: those after this version. With ``limit``: at most ``limit`` of them, the first.
        """

    @in_pages("after", attrgetter("dataset"))
    def datasets(
        self, wanted: values.DatasetFilter | None = None, *, after: str | None = None, limit: int | None = None
    ) -> tuple[values.DatasetSummary, ...]:
        """Every dataset and config that ``wanted`` lists, by name.

        With ``after``: only those after this ``name[/config]``. With ``limit``: only the first ``limit`` of them.
        """

    def search(self, text: str, *, limit: int = 20) -> tuple[values.SearchHit, ...]:
        """Search for datasets that match every word of ``text``: at most ``limit`` hits, best first.

        A word matches every word that begins with it, in names, tags, features and their labels, descriptions, licence,
        homepage and citation. Case and accents are ignored. ``text`` has no syntax.

        Raises:
            UsageError: ``text`` has no letter or digit or is too long, or ``limit`` is below 1.
        """

    def explain_no_hits(self, text: str) -> str:
        """Why ``search(text)`` found nothing: the words that no dataset contains, and similar words."""

    def fingerprints(self, version: model.DatasetVersion) -> dict[str, model.SplitFingerprint]:
        """The fingerprint of each split of a published version; empty if none was computed."""

    def add_fingerprints(
        self, version: model.DatasetVersion, fingerprints: Mapping[str, model.SplitFingerprint], *, actor: str
    ) -> bool:
        """Store the fingerprints of a version published without them. False if it already has fingerprints."""

    def attachments(self, version: model.DatasetVersion) -> tuple[model.Attachment, ...]:
        """The files, other than shards, that are stored with a published version, by kind and name. Takes one query."""

    def attach(self, version: model.DatasetVersion, *attachments: model.Attachment, actor: str) -> bool:
        """Record attachments whose files are stored with a published version. False if all are recorded already.

        They are recorded in one transaction, each with its own event.

        Raises:
            VersionNotFoundError: the version is not published.
            ConflictError: the version has another attachment of this kind and name.
        """

    def add_producer(
        self, exactly: model.Reference, producer: model.Producer, name_use: model.NameUse, *, actor: str
    ) -> None:
        """Record that ``producer`` also produced the content of a published version, so it may continue the dataset.

        Nothing is recorded if it is already the producer. Raises OtherSourceError, as ``publish`` does.
        """

    def require_publisher(self) -> None:
        """Check that this process may publish, before hours of work. Nothing is written.

        Raises:
            CatalogPermissionError: the database user lacks a right, or the catalog is read-only.
        """

    def producers(self, name: str, config: str | None) -> tuple[tuple[model.Reference, model.Producer], ...]:
        """At most 100 of the newest versions of a config and their producers, newest first.

        For a config without versions: the newest version of each other config of the dataset. Empty for a new dataset.
        """

    def publish(
        self,
        version: model.DatasetVersion,
        shards: Mapping[str, tuple[model.Shard, ...]],
        *,
        promote: bool | None,
        default_config: bool = False,
        actor: str,
        details: outcomes.PublicationDetails | None = None,
    ) -> outcomes.Promotion | None:
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
            The effect on the canonical version, or None if the same content is already published (no change). If the
            answer to a COMMIT was lost, the same call again returns the effect of that one.

        Raises:
            VersionExistsError: the number was used for other content, or for a deleted version.
            NeighboursChangedError: ``details.proved_between`` are no longer the neighbours: prove the number again.
            ReservedError: ``details.held`` was released, or another publisher uploads to ``details.unreserved``.
            OtherDataDirectoryError: the catalog records another data directory than ``details.data_dir``.
            ProtectedError: ``promote`` is True, and its dataset, config or catalog is protected.
            OtherSourceError: ``details.name_use`` does not allow the producer to continue the dataset.
            ConflictError: the version has a config but the dataset has none, or the other way round; or the version
                overrides a retired flag.
            ExperimentNotFoundError: the version overrides a flag that was never added.
            UsageError: the shards do not fit the version, or the name is not in its folded form.
        """

    def rename(self, name: str, after: str, *, actor: str, dry_run: bool = False) -> outcomes.Renaming:
        """Rename a dataset. References by former names continue to work, and its events keep the names.

        Raises:
            DatasetNotFoundError: the dataset does not exist.
            ReferenceSyntaxError, UsageError: the new name is not a valid dataset name.
            DatasetRenamedError: another dataset has or had the new name.
            ReservedError: a publisher is uploading files of one of its versions.
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
        """The events after the id ``after``, oldest first, for clients that follow the log.

        Ids are in the order of commits, so a later event never has a smaller id than a visible one.

        Args:
            after: the id after which to continue; 0 is the beginning.
            limit: at most this number of events, 1 to 1,000.
            wait: how many seconds to wait if there is no event yet, 0 to 30.
            dataset: only events of ``name`` or ``name/config``, see ``EventFilter.dataset``.
            actions: only events of these kinds, e.g. ``publish``.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: the dataset does not exist.
            UsageError: a number is out of range, or the log ends before ``after``, so it is another log or was
                restored.
        """

    def backup(self, *, advance: model.Advance | None = None) -> Iterator[bytes]:
        """The lines of a backup: every row as of one moment, in pieces of at most a few megabytes.

        ``registry.catalog.backup_file`` describes the lines. The first piece is the first line, and the last piece the
        last line. Publications may continue in the meantime.
        """

    def snapshot(
        self,
        *,
        datasets: Collection[str] | None = None,
        with_actors: bool = False,
        advance: model.Advance | None = None,
    ) -> Iterator[bytes]:
        """The lines of a backup for publication: with only these datasets, and without private data.

        ``registry.catalog.snapshot`` describes it, and makes an SQLite file from the lines.

        Raises:
            DatasetNotFoundError: one of the datasets does not exist.
            UsageError: one of the datasets is given with a config or a version.
        """

    def close(self) -> None:
        """Close every connection; the catalog must not be used afterwards.

        Versions that it returned remain usable: they load missing parts through a new connection.
        """

    def __enter__(self) -> CatalogBackend: ...

    def __exit__(self, *error: object) -> None: ...
