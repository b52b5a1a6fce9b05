"""The list of the folds of a publication, which are computed over all records of a published version.

    records -> folds of each split -> fingerprints, in the catalog
                                   -> documents -> attachments of the version

They run while shards are written, or over stored shards that come without results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from registry.features.containers import FeaturesDict
from registry.features.fold import FingerprintFold, Fold, FoldKinds
from registry.model import SplitFingerprint
from registry.statistics import StatisticsFold, statistics_documents, statistics_of

Documents: TypeAlias = Mapping[tuple[str, str], bytes]
"""The bytes of attachments, by kind and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedFold:
    """A fold whose results are attached to each version that is published.

    Attributes:
        kind: the kind of its attachments, such as ``statistics``.
        fold: makes the fold from a schema: a class, or a function of a module, because it is sent to other processes.
        documents: takes the result of each split by its name, in the order of the splits, and gives the bytes of each
            attachment by its name. The same results give the same bytes.
    """

    kind: str
    fold: Callable[[FeaturesDict], Fold[Any]]
    documents: Callable[[Mapping[str, Any]], Mapping[str, bytes]]


def _statistics_documents(results: Mapping[str, Any]) -> Mapping[str, bytes]:
    return statistics_documents(statistics_of(results))


STATISTICS: Final = AttachedFold(kind="statistics", fold=StatisticsFold, documents=_statistics_documents)
"""Statistics of every feature. ``Dataset.compute_statistics`` attaches them to versions that lack them."""

ATTACHED: Final[tuple[AttachedFold, ...]] = (STATISTICS,)
"""To attach another document to every version, add its fold here."""


def publication_kinds() -> FoldKinds:
    """The folds of a publication; ``Folded.of`` takes their results."""
    return (FingerprintFold, *(attached.fold for attached in ATTACHED))


@dataclass(frozen=True, slots=True)
class Folded:
    """The results of the folds of a publication; empty if the records have to be read again.

    Attributes:
        fingerprints: the fingerprint of each split, by its name.
        documents: the bytes of the attachments.
    """

    fingerprints: Mapping[str, SplitFingerprint] = field(default_factory=dict)
    documents: Documents = field(default_factory=dict)

    @classmethod
    def of(cls, results: Mapping[str, list[Any] | None]) -> Folded:
        """The results of ``publication_kinds``, of each split by its name; None for a split whose records failed."""
        of_splits = {name: result for name, result in results.items() if result is not None}
        if len(of_splits) < len(results):
            return NOT_FOLDED
        return cls(
            {name: fingerprint for name, (fingerprint, *_) in of_splits.items()},
            write_documents(ATTACHED, {name: result[1:] for name, result in of_splits.items()}),
        )


def write_documents(attached: Sequence[AttachedFold], results: Mapping[str, list[Any]]) -> Documents:
    """The documents of folds, from the results of each split by its name, in the order of the folds."""
    return {
        (fold.kind, name): content
        for place, fold in enumerate(attached)
        for name, content in fold.documents({split: result[place] for split, result in results.items()}).items()
    }


NOT_FOLDED: Final = Folded()
"""The records have to be read again."""
