"""Values that the calls that change, verify, measure or back up a catalog take and return.

Like those of ``values.py``, which look-ups need, they are frozen, can be pickled and hold no connection. They are apart
from them, because making a class takes time, and a look-up on the command line makes none of these.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from registry.catalog.values import DataDirectory, Neighbours
from registry.errors import DatasetRenamedError, LogTamperedError, ProtectedError, VersionExistsError, spell
from registry.model import (
    DESCRIBED_FIELDS,
    Attachment,
    DatasetMetadata,
    Effect,
    Event,
    NameUse,
    Producer,
    Reference,
    SplitFingerprint,
    Standing,
    Use,
    Version,
    VersionState,
    default_effects,
    natural_effects,
    use_effects,
)
from registry.storage.names import Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasSummary:
    """An alias: the version that it points to and its state, and who set it when."""

    name: str
    config: str | None
    alias: str
    version: Version
    state: VersionState
    set_at: datetime
    set_by: str

    @property
    def reference(self) -> Reference:
        """The reference that names it."""
        return Reference(name=self.name, config=self.config, alias=self.alias)


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasMove:
    """A change of an alias; ``before`` is None if it was new, ``after`` is None if it was removed."""

    at: datetime
    actor: str
    before: Version | None
    after: Version | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasChange:
    """The result of setting or removing an alias.

    Attributes:
        reference: the alias, with its config.
        before, after: its target before and after; None for no alias.
        is_dry_run: nothing was written.
    """

    reference: Reference
    before: Version | None
    after: Version | None
    is_dry_run: bool = False

    @property
    def is_change(self) -> bool:
        """Whether the call changed anything, or would have without ``dry_run``."""
        return self.before != self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataChange:
    """The result of describing a version.

    Attributes:
        reference: the exact version.
        before, after: its metadata before and after.
        is_dry_run: nothing was written.
    """

    reference: Reference
    before: DatasetMetadata
    after: DatasetMetadata
    is_dry_run: bool = False

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields that differ."""
        names = (*DESCRIBED_FIELDS.values(), "described")
        return tuple(name for name in names if getattr(self.before, name) != getattr(self.after, name))

    @property
    def is_change(self) -> bool:
        """Whether the call changed anything, or would have without ``dry_run``."""
        return any(name in self.fields for name in DESCRIBED_FIELDS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LocationChange:
    """The result of a change of the locations of a version.

    Attributes:
        reference: the exact version.
        before, after: its locations before and after, the one that is read first in front.
        is_dry_run: nothing was written.
    """

    reference: Reference
    before: tuple[str, ...]
    after: tuple[str, ...]
    is_dry_run: bool = False

    @property
    def is_change(self) -> bool:
        """Whether the call changed anything, or would have without ``dry_run``."""
        return self.before != self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDirectoryChange:
    """The result of recording the data directory of a catalog.

    Attributes:
        before, after: the data directory before and after; None if none was recorded.
        is_dry_run: nothing was written.
        is_checked: the new data directory was listed, to find the files of the versions.
    """

    before: DataDirectory | None
    after: DataDirectory
    is_dry_run: bool = False
    is_checked: bool = False

    @property
    def is_change(self) -> bool:
        """Whether the call changed anything, or would have without ``dry_run``."""
        return self.before is None or self.before.recorded != self.after.recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The catalog from which a version is copied, and what it says about the version.

    Attributes:
        catalog: its URL, without a password.
        published_at, published_by: when and by whom the version was published there.
        events: the events of the version there, oldest first.
        aliases: the aliases that point to it there.
    """

    catalog: str
    published_at: datetime
    published_by: str
    events: tuple[Event, ...] = ()
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationDetails:
    """What a publication records besides the version, and what must hold while it is written.

    Attributes:
        fingerprints: the fingerprint of each split, to prove later numbers against; empty if none is stored.
        attachments: the files that are kept with the version; they are there when the row is written.
        proved_between: the numbers right below and above, against which this number was proved.
        experiment_defaults: the flags that the build received, without the overrides of the version; the event records
            them. None means the current defaults.
        held: the reservation of its location and its holder; the publication ends it.
        unreserved: the location, in an object store, of files that existed before; refused while other content is
            uploaded there.
        origin: the catalog that the version is copied from. The row gets the time and the publisher of that catalog;
            its events are appended as ``imported`` ones, and its aliases are set unless they exist here.
        producer: what made the version; None if that is not known. The event records it.
        name_use: where the name comes from, if the version may only continue what ``check_continues`` allows.
        data_dir: the data directory that the location is relative to. The first publication records it.
    """

    fingerprints: Mapping[str, SplitFingerprint] = field(default_factory=dict)
    attachments: tuple[Attachment, ...] = ()
    proved_between: Neighbours | None = None
    experiment_defaults: Mapping[str, bool] | None = None
    held: tuple[Reservation, Holder] | None = None
    unreserved: str | None = None
    origin: Origin | None = None
    producer: Producer | None = None
    name_use: NameUse | None = None
    data_dir: DataDirectory | None = None


class RemovalStep(StrEnum):
    """How far the removal of the files of a version is. ``begun``: some of its files may be left."""

    PLANNED = "planned"
    BEGUN = "begun"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The removal of the files of a dropped version.

    Attributes:
        reference: the exact version.
        actor: who requested it first.
        step: how far it is.
        due: when the grace period has passed; None only in a request.
        force: whether the files are removed although others use them.
        reason: why the version was dropped.
        is_change: whether the call that returns it changed anything, or would have in a dry run.
    """

    reference: Reference
    actor: str
    step: RemovalStep = RemovalStep.PLANNED
    due: datetime | None = None
    force: bool = False
    reason: str = ""
    is_change: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """The result of renaming a dataset.

    Attributes:
        before, after: its names before and after the call; equal if nothing was changed.
        names: every name that it has had, oldest first; each of them goes on naming it.
        is_dry_run: nothing was written.
    """

    before: str
    after: str
    names: tuple[str, ...] = ()
    is_dry_run: bool = False

    @property
    def is_change(self) -> bool:
        """Whether the call changed the name, or would have without ``dry_run``."""
        return self.before != self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFault:
    """An event or a row that contradicts the log: ``where`` names it, ``problem`` says what is wrong."""

    where: str
    problem: str

    def __str__(self) -> str:
        return f"{self.where} {self.problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockCorrection:
    """Events that a wrong clock stamped, with the times at which they are read from now on.

    Attributes:
        events: those that are corrected, or would be in a dry run, oldest first. ``at`` is the corrected time,
            ``stamped_at`` the time that is sealed with the event. Empty if there is nothing to correct.
        clock: the time of the correction, by the clock that counts for the catalog.
        is_dry_run: True if nothing was written.
    """

    events: tuple[Event, ...]
    clock: datetime
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport:
    """The result of verifying the event log and comparing it with the tables.

    Attributes:
        num_events, num_versions, num_shards: number of each that was verified.
        head: hash of the last event, which seals the whole log. Keep it: a later log must contain it.
        faults: the first faults, events before rows.
        num_faults: number of all faults.
    """

    num_events: int
    num_versions: int
    num_shards: int
    head: str
    faults: tuple[LogFault, ...] = ()
    num_faults: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether the log is intact and all rows match it."""
        return self.num_faults == 0

    def require_sound(self) -> None:
        """Raise an error unless the log is sound.

        Raises:
            LogTamperedError: there is a fault; the message names the first one.
        """
        if not self.is_sound:
            more = f", and {self.num_faults - 1:,} more" if self.num_faults > 1 else ""
            is_index_only = all("registry db reindex" in fault.problem for fault in self.faults)
            raise LogTamperedError(
                f"the catalog does not match its event log: {self.faults[0]}{more}",
                hint="Another program changed the database. "
                + (
                    "Only its search index is damaged. Rebuild it: registry db reindex"
                    if is_index_only
                    else "Restore a copy that verifies, and compare: registry log."
                ),
                details={
                    "num_faults": self.num_faults,
                    "faults": [{"where": fault.where, "problem": fault.problem} for fault in self.faults],
                },
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSize:
    """The shard files of a published version in any state.

    Attributes:
        name, config, version: config is None if the dataset has no configs.
        names: as ``DatasetVersion.names``.
        state, message: the state of the version, and why it has it.
        locations: the places of its files now: relative to the data directory, absolute paths or URLs.
        former: the places that it had before, where files may still be.
        num_files: the number of its shard files.
        num_bytes: the sum of their sizes.
        num_attachments, attachment_bytes: the number and the sizes of its attachments, which are not counted above.
        num_statistics: how many of these are statistics.
    """

    name: str
    config: str | None
    version: Version
    state: VersionState
    locations: tuple[str, ...]
    num_files: int
    num_bytes: int
    former: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    num_attachments: int = 0
    attachment_bytes: int = 0
    num_statistics: int = 0
    message: str = ""

    @property
    def reference(self) -> Reference:
        """The exact version."""
        return Reference.exactly(self.name, self.config, self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultChange:
    """The result of changing the default config.

    Attributes:
        before: the standing of the previous default config, or None.
        after: the standing of the new default config.
        uses: the references in use without a config; ``use_effects`` lists how they change.
        is_dry_run: nothing was written.
    """

    before: Standing | None
    after: Standing
    uses: tuple[Use, ...] = ()
    is_dry_run: bool = False

    @property
    def is_change(self) -> bool:
        """Whether the call changed anything, or would have without ``dry_run``."""
        return self.before is None or self.before.config != self.after.config

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Every common reference without a config that now gives another version."""
        return default_effects(self.before, self.after) if self.is_change else ()

    @property
    def use_effects(self) -> tuple[Effect, ...]:
        """The references in use that now give another version."""
        return use_effects(self.before, self.after, self.uses)


class Unpromoted(StrEnum):
    """Why a publication did not change the canonical version."""

    PUBLISHED_BEFORE = "published_before"
    NOT_ASKED = "not_asked"
    EXPERIMENTAL = "experimental"
    LOWER = "lower"
    PROTECTED = "protected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """What a publication did to the canonical version of its config.

    Attributes:
        before, after: the canonical version, or None.
        reason: why it did not change, or None if the published version became canonical.
        protected: the protected scope, if that is the reason; ``""`` is the whole catalog.
    """

    before: Version | None
    after: Version | None
    reason: Unpromoted | None = None
    protected: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change of a protected name that waits until another person approves it.

    Attributes:
        id: the number of its event in the log; None in a dry run.
        action: ``promote`` or ``unprotect``.
        dataset: ``name`` or ``name/config``; ``""`` if it is about the protection of the whole catalog.
        version: the version that becomes the canonical one; None if the protection ends.
        before: the canonical version that it replaces, or None.
        proposed_by, proposed_at: who proposed it, and when.
        expires_at: until when it waits.
    """

    id: int | None
    action: str
    dataset: str
    version: Version | None
    before: Version | None
    proposed_by: str
    proposed_at: datetime
    expires_at: datetime

    def __str__(self) -> str:
        if self.version is None:
            return f"{self.action} {self.dataset or 'the whole catalog'}"
        return f"{self.action} {self.dataset}:{self.version}"

    @property
    def reference(self) -> Reference | None:
        """The version, or the dataset or config; None for the whole catalog."""
        name, _, config = self.dataset.partition("/")
        if self.version is not None:
            return Reference.exactly(name, config or None, self.version)
        return Reference(name=name, config=config or None) if name else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectionChange:
    """The result of protecting a scope, or of removing its protection.

    Attributes:
        scope: ``name/config``, ``name``, or ``""`` for the whole catalog.
        before, after: whether the scope itself was protected before and after.
        protected_by: the scope that protects it afterwards, which may be a wider one, or None.
        had_two_persons, two_persons: whether changes of what it protects needed two persons before, and do so after.
        proposal: what waits until another person approves it; nothing was changed.
        is_dry_run: nothing was written.
    """

    scope: str
    before: bool
    after: bool
    protected_by: str | None
    had_two_persons: bool = False
    two_persons: bool = False
    proposal: Proposal | None = None
    is_dry_run: bool = False

    @property
    def is_change(self) -> bool:
        """Whether the call changed anything, or would have without ``dry_run``."""
        is_same = (self.before, self.had_two_persons) == (self.after, self.two_persons)
        return not is_same and self.proposal is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the state of a version; with ``is_dry_run``, it was only computed.

    Attributes:
        action: ``promote``, ``deprecate``, ``yank``, ``drop``, or one of the last three with the prefix ``undo-``.
        reference: the exact version.
        before, after: the standing of its config.
        is_default: whether references without a config mean its config.
        uses: the references in use; ``use_effects`` lists how they change.
        proposal: what waits until another person approves it: nothing was changed, and ``after`` is what will be.
        is_dry_run: nothing was written.
    """

    action: str
    reference: Reference
    before: Standing
    after: Standing
    is_default: bool
    uses: tuple[Use, ...] = ()
    proposal: Proposal | None = None
    is_dry_run: bool = False

    @property
    def is_change(self) -> bool:
        """Whether the call changed anything, or would have without ``dry_run``."""
        return self.before != self.after and self.proposal is None

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Every common reference that now gives another version; with ``is_default``, also without the config."""
        return natural_effects(self.before, self.after)

    @property
    def use_effects(self) -> tuple[Effect, ...]:
        """The references in use that now give another version."""
        return use_effects(self.before, self.after, self.uses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One publisher that uploads files to a location.

    Attributes:
        name: unique, also among the publishers of one process.
        actor: the person or service.
        owner: the process.
        since: when it started.
    """

    name: str
    actor: str
    owner: Owner
    since: datetime

    @classmethod
    def of_this_process(cls, actor: str) -> Holder:
        """A new one."""
        from registry.storage.names import Owner

        return cls(
            name=uuid.uuid4().hex,
            actor=actor,
            owner=Owner.this_process(),
            since=datetime.now(UTC).replace(microsecond=0),
        )

    def as_json(self) -> dict[str, Any]:
        """The holder as values for JSON output."""
        return {
            "actor": self.actor,
            "host": self.owner.host,
            "pid": self.owner.pid,
            "since": self.since.isoformat(),
            "is_dead": self.owner.is_dead(),
        }

    def __str__(self) -> str:
        return f"{self.actor} (process {self.owner.pid} on {self.owner.host}, since {self.since:%Y-%m-%d %H:%M:%S} UTC)"


IDENTITY_DIGITS: Final = 16
"""Digits of the identity of a catalog in the token of a reservation."""


def is_of_catalog(token: str | None, identity: str | None) -> bool:
    """Whether a publisher of the catalog with this ``catalog_identity`` reserved a place with this token.

    >>> is_of_catalog("0a1b.5feceb66ffc86f38", "5feceb66ffc86f38d952786c6d696c79"), is_of_catalog("0a1b", "5feceb66")
    (True, False)
    """
    return token is not None and identity is not None and token.endswith(f".{identity[:IDENTITY_DIGITS]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A location in an object store, reserved for one content until its row is written.

    Attributes:
        location: its URL.
        dataset, version: what is published there.
        content_digest: the content that may be uploaded there.
        token: the text of the marker in the store.
        is_cleaning: its only holder is removing files that earlier publishers left.
        holders: the publishers that upload files; empty if they died or gave up.
        found: objects that existed before the reservation and must not be removed; None before they were listed.
        reserved_at: when its first publisher started.
    """

    location: str
    dataset: str
    version: str
    content_digest: str
    token: str
    is_cleaning: bool
    holders: tuple[Holder, ...]
    found: tuple[str, ...] | None
    reserved_at: datetime

    @property
    def reference(self) -> str:
        """``name[/config]:version``."""
        return f"{self.dataset}:{self.version}"

    @property
    def living(self) -> tuple[Holder, ...]:
        """The holders that may still be running."""
        return tuple(holder for holder in self.holders if not holder.owner.is_dead())


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupFacts:
    """What a backup says about itself.

    Attributes:
        schema: the revision of the schema.
        rows: the number of rows of each table.
        head: the hash of the last event, which seals the log; 64 zeros if there are no events.
        made_at: when the backup was made.
        made_by: the software and its version.
        sha256: of the lines, without the last one; 64 hex digits.
    """

    schema: str
    rows: Mapping[str, int]
    head: str
    made_at: datetime
    made_by: str
    sha256: str


def refuse_protected(version: Reference, scope: str) -> ProtectedError:
    """The error for a publication that must promote, in a protected scope."""
    subject = f"{scope} is" if scope else "the whole catalog is"
    return ProtectedError(
        f"{version} cannot be made canonical by publishing it: {subject} protected",
        hint=f"Publish it with {spell('promote', False)}, then: registry promote {version}",
        details={"version": str(version), "protected": scope},
    )


def former_name(name: str, present: str) -> DatasetRenamedError:
    """The error for a publication under the former ``name`` of a dataset that is called ``present`` now."""
    return DatasetRenamedError(
        f"the dataset {name} was renamed: it is {present} now",
        hint=f"Publish it as {present}. No other dataset can have the name {name}: references and pins use it.",
        details={"name": name, "renamed_to": present},
    )


def other_content(version: Reference, published: str, offered: str, *, is_deleted: bool = False) -> VersionExistsError:
    """The error for a number that was ``published`` with another content digest than the one ``offered``."""
    subject = f"is published with other content: expected sha256 {published[:12]}, found {offered[:12]}"
    return VersionExistsError(
        f"{version} {'was published and deleted' if is_deleted else subject}",
        hint="A number is never used twice. Raise the version: PATCH for the same records, "
        "MINOR for added features, MAJOR for anything else.",
        details={"published": published, "offered": offered},
    )


def removed_error(reference: Reference, message: str, *, hint: str | None = None) -> VersionExistsError:
    """The error for a version whose files are removed; ``message`` is that of its tombstone."""
    return VersionExistsError(
        f"{reference} is dropped: {message}",
        hint=hint or "A number is never used twice. Publish the content under a higher one.",
    )
