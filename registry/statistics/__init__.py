"""Statistics of every feature of a version, over all of its records.

fold       the values of each leaf, from blocks of records
numbers  sums  distinct     numbers: buckets, exact sums, numbers of distinct values
texts  media                texts and classes; stored images and audio files
duplicates                  records that occur several times, in one split or in several
values  document            the results as values, and as one canonical JSON document
differences  rows           differences between splits; the table that is displayed
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.statistics.differences import Difference, find_differences, measured
    from registry.statistics.document import (
        DOCUMENT_NAME,
        Statistics,
        duplicate_sentences,
        parse_statistics,
        statistics_documents,
    )
    from registry.statistics.fold import StatisticsFold, statistics_of
    from registry.statistics.values import (
        Classes,
        Distinct,
        Duplicates,
        FeatureStatistics,
        Frequent,
        Histogram,
        Moment,
        NumberStatistics,
        SplitStatistics,
        distribution,
    )

__all__ = [
    "DOCUMENT_NAME",
    "Classes",
    "Difference",
    "Distinct",
    "Duplicates",
    "FeatureStatistics",
    "Frequent",
    "Histogram",
    "Moment",
    "NumberStatistics",
    "SplitStatistics",
    "Statistics",
    "StatisticsFold",
    "distribution",
    "duplicate_sentences",
    "find_differences",
    "measured",
    "parse_statistics",
    "statistics_documents",
    "statistics_of",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "differences": "Difference find_differences measured",
        "document": "DOCUMENT_NAME Statistics duplicate_sentences parse_statistics statistics_documents",
        "fold": "StatisticsFold statistics_of",
        "values": (
            "Classes Distinct Duplicates FeatureStatistics Frequent Histogram Moment NumberStatistics SplitStatistics "
            "distribution"
        ),
    },
)
