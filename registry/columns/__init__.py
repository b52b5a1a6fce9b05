"""Keeps the decoded columns of splits in memory or in files of the cache, so that a second read needs no decoding.

    records -> Layout.append -> ColumnWriter, or arrays in memory -> KeptColumn -> block(rows) -> the values of a batch

``registry.reading`` reads from kept columns in place of shards.
"""

from registry.columns.folder import DOCUMENT, AttachedFolder, ColumnFolder, ColumnWriter, KeptColumn
from registry.columns.layout import Layout, Rows

__all__ = ["DOCUMENT", "AttachedFolder", "ColumnFolder", "ColumnWriter", "KeptColumn", "Layout", "Rows"]
