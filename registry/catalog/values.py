"""Values that a catalog takes and returns, in addition to those of ``registry.model``.

They are frozen, can be pickled and hold no connection. Nothing here imports SQLAlchemy, because a client of a catalog
on the network needs these values too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from registry.errors import CatalogError, LogTamperedError, NotFoundError, UsageError
from registry.lazy import lazy_types
from registry.model import (
    Reference,
    Version,
    VersionState,
    VersionStatus,
    version_status,
)

if TYPE_CHECKING:
    from registry.model import Candidate, Choice, DatasetVersion
else:
    lazy_types(globals(), {"registry.model": "Candidate Choice DatasetVersion"})

Neighbours: TypeAlias = tuple[Version | None, Version | None]
"""The published version numbers right below and right above a number."""


_MOST_TAGS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFilter:
    """The datasets that a list shows: those that meet every condition. None, or nothing, meets all.

    Attributes:
        tags: the tags that the listed version has, all of them.
        like: a glob of names, ``name`` or ``name/config``, such as ``mnist*``.
        owner: who published the listed version.
        state: its state.
    """

    tags: Sequence[str] = ()
    like: str | None = None
    owner: str | None = None
    state: VersionState | None = None

    def __post_init__(self) -> None:
        if len(self.tags) > _MOST_TAGS:
            raise UsageError(f"a list is chosen by at most {_MOST_TAGS} tags, not {len(self.tags)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSummary:
    """A dataset and one of its configs, as a list shows it.

    Attributes:
        name, config: config is None if the dataset has no configs.
        is_default: whether a reference without a config means this one.
        canonical: the version that a look-up without a version gives, or None.
        withdrawn: the canonical version if it is yanked or dropped: look-ups without a version are refused. Or None.
        latest: the highest version that is not yanked or dropped; if all are, the highest.
        num_versions: number of published versions in any state.
        status, num_examples, num_bytes, splits, description, config_description, config_tags, license, content_digest,
            published_at, published_by: of the canonical version, or of the latest if there is none.
        kinds: which of ``image``, ``audio`` and ``text`` its features are; empty for numbers and labels.
        is_protected: whether only `registry promote` changes the canonical version.
    """

    name: str
    config: str | None
    is_default: bool
    canonical: Version | None
    latest: Version
    num_versions: int
    num_examples: int
    num_bytes: int
    splits: tuple[str, ...]
    description: str
    published_at: datetime
    published_by: str
    config_description: str = ""
    config_tags: tuple[str, ...] = ()
    license: str = ""
    kinds: tuple[str, ...] = ()
    content_digest: str = ""
    is_protected: bool = False
    withdrawn: Version | None = None
    status: VersionStatus = VersionStatus.CANONICAL

    @property
    def is_withdrawn(self) -> bool:
        """Whether all versions are yanked or dropped."""
        return self.status in (VersionStatus.YANKED, VersionStatus.DROPPED)

    @property
    def is_empty(self) -> bool:
        """Whether the listed version has no record."""
        return not self.num_examples

    @property
    def dataset(self) -> str:
        """``name`` or ``name/config``."""
        return self.name if self.config is None else f"{self.name}/{self.config}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSummary:
    """A config of a dataset, as a list shows it; ``config`` is None if the dataset has none.

    ``canonical`` and ``withdrawn`` are those of ``DatasetSummary``. ``is_protected``: whether only `registry promote`
    changes its canonical version. ``needs_two_persons``: whether such a change waits until another person approves it.
    """

    name: str
    config: str | None
    is_default: bool
    canonical: Version | None
    num_versions: int
    is_protected: bool = False
    needs_two_persons: bool = False
    withdrawn: Version | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSummary:
    """A published version, as a list shows it, with the names of its splits in order and its own release note."""

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
    def reference(self) -> Reference:
        """The exact reference."""
        return Reference.exactly(self.name, self.config, self.version)

    @property
    def status(self) -> VersionStatus:
        """Whether it is canonical, supported, experimental, deprecated, yanked or dropped."""
        return version_status(self.version, self.state, self.canonical)

    def __str__(self) -> str:
        return f"{self.reference} ({self.status}): {self.num_examples:,} examples in {', '.join(self.splits)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A hit of a search: a dataset, one of its configs, and the version that was searched.

    Attributes:
        name, config: config is None if the dataset has no configs.
        version: the canonical version, unless it is withdrawn; else the highest that is not yanked or dropped, else the
            highest. ``DatasetSummary`` has the same.
        status: the status of that version.
        matched: the fields that contain the words: ``name``, ``tags``, ``features``, ``description``, ``details``
            (licence, homepage, citation).
        snippet: a line of the description that contains a word, else its beginning.
        score: hits are sorted by it, highest first. Scores of different searches cannot be compared.
        is_withdrawn: whether all versions are yanked or dropped. Such hits come last.
    """

    name: str
    config: str | None
    version: Version
    status: VersionStatus
    description: str
    matched: tuple[str, ...]
    snippet: str
    score: int
    is_withdrawn: bool = False

    @property
    def dataset(self) -> str:
        """``name`` or ``name/config``."""
        return self.name if self.config is None else f"{self.name}/{self.config}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDirectory:
    """The folder that locations of versions are relative to.

    Attributes:
        recorded: as the catalog records it: a complete path or URL, or a path relative to the folder of the SQLite
            file, so that both can be moved together.
        place: the complete path or URL.
        is_new: the catalog records none yet, and a publication would record this one.
    """

    recorded: str
    place: str
    is_new: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastLookUp:
    """The result of a look-up at a past moment.

    Attributes:
        version: the version, with its state, successor and canonical version at that moment.
        choice: why this version was chosen.
        now: the version in its current state.
    """

    version: DatasetVersion
    choice: Choice
    now: Candidate


def damaged(subject: str) -> CatalogError:
    """The error for stored values that the registry cannot have written; ``subject`` describes them."""
    return CatalogError(
        f"the catalog is damaged: {subject}", hint="Restore it from a copy; registry db check looks at the rest."
    )


def unstorable() -> UsageError:
    """The error for a value that no database stores, or compares with its own."""
    return UsageError("a value cannot be stored in a database: NUL, lone surrogate, or a number above 2**63")


@contextmanager
def stored_values() -> Iterator[None]:
    """Raise errors of parsers and values as damage of the catalog, while stored values are read.

    Raises:
        CatalogError: a stored value cannot be parsed, so another program wrote it.
    """
    try:
        yield
    except (CatalogError, LogTamperedError, NotFoundError):
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        if isinstance(error, OverflowError) and "to SQLite" in str(error):  # it is an argument
            raise unstorable() from error
        raise damaged(f"a stored value cannot be read ({type(error).__name__}: {error!s:.200})") from error
