"""What do lists show of a dataset and of a version? Frozen values, smaller than a ``DatasetVersion``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from registry.errors import LogTamperedError
from registry.model import Reference, Version, VersionState, VersionStatus, version_status


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
        """How it stands to the canonical version."""
        return version_status(self.version, self.state, self.canonical)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A dataset and one of its configs that a search found, by the version that stands for it.

    Attributes:
        name, config: config None where the dataset has no configs.
        version: the canonical version; where none is, the highest that is neither yanked nor dropped, else the highest.
        status: how that version stands to the canonical one.
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
    """An alias: which version it stands for, in which state that is, and who set it when."""

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
        before, after: where it stood, and stands; None for no alias.
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
        head: hash of the last event, which stands for the whole log; note it down, and a later log has to hold it.
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
