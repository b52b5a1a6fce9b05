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
    from registry.statistics.differences import Difference as Difference
    from registry.statistics.differences import find_differences as find_differences
    from registry.statistics.differences import measured as measured
    from registry.statistics.document import DOCUMENT_NAME as DOCUMENT_NAME
    from registry.statistics.document import Statistics as Statistics
    from registry.statistics.document import duplicate_sentences as duplicate_sentences
    from registry.statistics.document import parse_statistics as parse_statistics
    from registry.statistics.document import statistics_documents as statistics_documents
    from registry.statistics.fold import StatisticsFold as StatisticsFold
    from registry.statistics.fold import statistics_of as statistics_of
    from registry.statistics.values import Classes as Classes
    from registry.statistics.values import Distinct as Distinct
    from registry.statistics.values import Duplicates as Duplicates
    from registry.statistics.values import FeatureStatistics as FeatureStatistics
    from registry.statistics.values import Frequent as Frequent
    from registry.statistics.values import Histogram as Histogram
    from registry.statistics.values import Moment as Moment
    from registry.statistics.values import NumberStatistics as NumberStatistics
    from registry.statistics.values import SplitStatistics as SplitStatistics
    from registry.statistics.values import distribution as distribution


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
