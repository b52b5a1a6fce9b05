"""What a catalog takes and gives beside the values of ``registry.model``: frozen values that hold no connection.

Every value can be pickled. Nothing here imports SQLAlchemy: a client of a catalog on the network needs them too.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from registry.errors import CatalogError, LogTamperedError, NotFoundError, ProtectedError
from registry.model import (
    Candidate,
    Choice,
    DatasetVersion,
    Effect,
    Reference,
    Standing,
    Use,
    Version,
    VersionState,
    VersionStatus,
    default_effects,
    natural_effects,
    use_effects,
    version_status,
)

if TYPE_CHECKING:  # urllib is loaded with it, which no look-up needs
    from registry.storage.names import Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSummary:
    """A dataset and one of its configs, as a list shows it.

    Attributes:
        name, config: config None where the dataset has no configs.
        is_default: whether a reference without a config means this one.
        canonical: the version an unversioned look-up gives, or None.
        latest: the highest version that is neither yanked nor dropped; where all are, the highest.
        num_versions: how many are published, in any state.
        num_examples, splits, description, config_description, config_tags: those of the canonical version, or of the
            latest where there is none.
        is_protected: whether only a promotion moves the canonical version.
    """

    name: str
    config: str | None
    is_default: bool
    canonical: Version | None
    latest: Version
    num_versions: int
    num_examples: int
    splits: tuple[str, ...]
    description: str
    config_description: str = ""
    config_tags: tuple[str, ...] = ()
    is_protected: bool = False

    @property
    def dataset(self) -> str:
        """``name`` or ``name/config``."""
        return self.name if self.config is None else f"{self.name}/{self.config}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSummary:
    """A published version, as a list shows it; the splits' names in order, the release note of this very version."""

    name: str
    config: str | None
    version: Version
    canonical: Version | None
    state: VersionState
    state_message: str
    superseded_by: Version | None
    num_examples: int
    num_bytes: int
    splits: tuple[str, ...]
    release_note: str
    content_digest: str
    published_at: datetime
    published_by: str

    @property
    def status(self) -> VersionStatus:
        """Whether it is canonical, supported, experimental, deprecated, yanked or dropped."""
        return version_status(self.version, self.state, self.canonical)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A dataset and one of its configs that a search found, and the version of it that was searched.

    Attributes:
        name, config: config None where the dataset has no configs.
        version: the canonical version; where none is, the highest that is neither yanked nor dropped, else the highest.
        status: the status of that version.
        matched: the fields in which words were found: ``name``, ``tags``, ``features``, ``description``, ``details``
            (licence, homepage, citation).
        snippet: a line of the description, where a word was found, else its beginning.
        score: the higher the better; hits come in its order. It means nothing beside that of another search.
    """

    name: str
    config: str | None
    version: Version
    status: VersionStatus
    description: str
    matched: tuple[str, ...]
    snippet: str
    score: int

    @property
    def dataset(self) -> str:
        """``name`` or ``name/config``."""
        return self.name if self.config is None else f"{self.name}/{self.config}"


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
    """What was done to an alias; ``before`` is None where there was none, ``after`` where it was removed."""

    at: datetime
    actor: str
    before: Version | None
    after: Version | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasChange:
    """What setting or removing an alias comes to.

    Attributes:
        reference: the alias, with the config that it is of.
        before, after: its target before and after; None for no alias.
        is_dry_run: nothing was written.
    """

    reference: Reference
    before: Version | None
    after: Version | None
    is_dry_run: bool = False

    @property
    def is_change(self) -> bool:
        """Whether there was anything to do."""
        return self.before != self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFault:
    """An event or a row that is not what the log says: ``where`` names it, ``problem`` says what is wrong."""

    where: str
    problem: str

    def __str__(self) -> str:
        return f"{self.where} {self.problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport:
    """What came of comparing the event log with itself and with the tables.

    Attributes:
        num_events, num_versions, num_shards: how many were looked at.
        head: hash of the last event, which seals the whole log; note it down, and a later log has to hold it.
        faults: the first of them, events before rows.
        num_faults: how many there are in all.
    """

    num_events: int
    num_versions: int
    num_shards: int
    head: str
    faults: tuple[LogFault, ...] = ()
    num_faults: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether nothing was changed behind the log."""
        return self.num_faults == 0

    def require_sound(self) -> None:
        """Refuse a log that does not hold.

        Raises:
            LogTamperedError: it names the first fault.
        """
        if not self.is_sound:
            more = f", and {self.num_faults - 1:,} more" if self.num_faults > 1 else ""
            raise LogTamperedError(
                f"the catalog is not what its event log says: {self.faults[0]}{more}",
                hint="Somebody wrote past the registry. Restore a copy that verifies, and compare: registry log.",
                details={
                    "num_faults": self.num_faults,
                    "faults": [{"where": one.where, "problem": one.problem} for one in self.faults],
                },
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSummary:
    """A config of a dataset, as a list shows it; ``config`` None where the dataset has none.

    ``is_protected``: only a promotion moves its canonical version.
    """

    name: str
    config: str | None
    is_default: bool
    canonical: Version | None
    num_versions: int
    is_protected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultChange:
    """Another default config, done or only worked out.

    Attributes:
        before: the standing of the config that was the default one, or None.
        after: the standing of the one that is the default one now.
        uses: the references in use, without a config, of which ``use_effects`` speaks.
        is_dry_run: nothing was written.
    """

    before: Standing | None
    after: Standing
    uses: tuple[Use, ...] = ()
    is_dry_run: bool = False

    @property
    def is_change(self) -> bool:
        """Whether there was anything to do."""
        return self.before is None or self.before.config != self.after.config

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Every natural reference without a config whose answer it alters."""
        return default_effects(self.before, self.after) if self.is_change else ()

    @property
    def use_effects(self) -> tuple[Effect, ...]:
        """The references in use whose answer it alters."""
        return use_effects(self.before, self.after, self.uses)


class Unpromoted(StrEnum):
    """Why a publication left the canonical version as it was."""

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
        reason: why it is the same as before; None where the published version became canonical.
        protected: the scope that protects it, where that is the reason: ``""`` is the whole catalog.
    """

    before: Version | None
    after: Version | None
    reason: Unpromoted | None = None
    protected: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectionChange:
    """What protecting a scope, or the opposite, comes to.

    Attributes:
        scope: ``name/config``, ``name``, or ``""`` for the whole catalog.
        before, after: whether the scope itself was protected, and is.
        protected_by: the scope that protects it afterwards, a wider one too; None where nothing does.
        is_dry_run: nothing was written.
    """

    scope: str
    before: bool
    after: bool
    protected_by: str | None
    is_dry_run: bool = False

    @property
    def is_change(self) -> bool:
        """Whether there was anything to do."""
        return self.before != self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What was done to a version, or what would be done to it.

    Attributes:
        action: ``promote``, ``deprecate``, ``yank``, ``drop``, or one of the last three after ``undo-``.
        reference: the version, exactly.
        before, after: the standing of its config.
        is_default: whether references without a config mean this one, too.
        uses: the references in use of which ``use_effects`` speaks.
        is_dry_run: nothing was written.
    """

    action: str
    reference: Reference
    before: Standing
    after: Standing
    is_default: bool
    uses: tuple[Use, ...] = ()
    is_dry_run: bool = False

    @property
    def is_change(self) -> bool:
        """Whether there was anything to do."""
        return self.before != self.after

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Every natural reference whose answer it alters; without a config they are altered alike (``is_default``)."""
        return natural_effects(self.before, self.after)

    @property
    def use_effects(self) -> tuple[Effect, ...]:
        """The references in use whose answer it alters."""
        return use_effects(self.before, self.after, self.uses)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastLookUp:
    """What a reference gave at a moment.

    Attributes:
        version: what it gave, with its state, successor and canonical version as they were then.
        choice: why.
        now: the version as it is today.
    """

    version: DatasetVersion
    choice: Choice
    now: Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One publisher who puts files into a location.

    Attributes:
        name: unique, also among the publishers of one process.
        actor: the person or service.
        owner: the process.
        since: when it began.
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
        """The holder as programs see it."""
        return {
            "actor": self.actor,
            "host": self.owner.host,
            "pid": self.owner.pid,
            "since": self.since.isoformat(),
            "is_dead": self.owner.is_dead(),
        }

    def __str__(self) -> str:
        return f"{self.actor} (process {self.owner.pid} on {self.owner.host}, since {self.since:%Y-%m-%d %H:%M:%S} UTC)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A location in an object store that belongs to one content until its row is written.

    Attributes:
        location: its URL.
        dataset, version: what is published there.
        content_digest: the content that may be put there.
        token: what the marker in the store says.
        is_cleaning: what earlier publishers left is being removed; the one holder is alone.
        holders: the publishers who put files there; none where they died, or gave up half-way.
        found: objects that were there before the reservation, which nobody may remove; None before they were listed.
        reserved_at: when the first of its publishers began.
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
        """The holders that are not known to be dead."""
        return tuple(holder for holder in self.holders if not holder.owner.is_dead())


def refuse_protected(version: Reference, scope: str) -> ProtectedError:
    """The error for a publication that is told to promote what is protected."""
    what = f"{scope} is" if scope else "the whole catalog is"
    return ProtectedError(
        f"{version} cannot become canonical by being published: {what} protected",
        hint=f"Publish it with --no-promote, then: registry promote {version}",
        details={"version": str(version), "protected": scope},
    )


def damaged(what: str) -> CatalogError:
    """The error for stored values that no publisher wrote; ``what`` says how that shows."""
    return CatalogError(
        f"the catalog is damaged: {what}", hint="Restore it from a copy; registry db check looks at the rest."
    )


@contextmanager
def stored_values() -> Iterator[None]:
    """Report a stored value that cannot be read as damage: another program wrote it.

    Raises:
        CatalogError: in the place of what a parser or a value says of text and numbers that no caller gave.
    """
    try:
        yield
    except (CatalogError, NotFoundError):
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise damaged(f"a stored value does not read ({type(error).__name__}: {error!s:.200})") from error
