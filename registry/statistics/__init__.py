"""Statistics of every feature of a version, over all of its records.

fold       the values of each leaf, from blocks of records
numbers  sums  distinct     numbers: buckets, exact sums, numbers of distinct values
texts  media                texts and classes; stored images and audio files
document                    the results as values, and as one canonical JSON document
differences                 what differs between splits
"""

from registry.statistics.differences import Difference, find_differences, measured
from registry.statistics.document import (
    DOCUMENT_NAME,
    Classes,
    Distinct,
    FeatureStatistics,
    Frequent,
    Histogram,
    Moment,
    NumberStatistics,
    SplitStatistics,
    Statistics,
    distribution,
    parse_statistics,
    statistics_documents,
)
from registry.statistics.fold import StatisticsFold

__all__ = [
    "DOCUMENT_NAME",
    "Classes",
    "Difference",
    "Distinct",
    "FeatureStatistics",
    "Frequent",
    "Histogram",
    "Moment",
    "NumberStatistics",
    "SplitStatistics",
    "Statistics",
    "StatisticsFold",
    "distribution",
    "find_differences",
    "measured",
    "parse_statistics",
    "statistics_documents",
]
