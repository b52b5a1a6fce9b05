"""What do lists show of a dataset and of a version? Frozen values, smaller than a ``DatasetVersion``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from registry.model import Version, VersionState, VersionStatus, version_status


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
