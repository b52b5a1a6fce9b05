"""Reads a plan: ``ReadableVersion``, ``Reader``, its views, and conversions for other frameworks.

plan + ReadConfig --order--> positions --source--> checked records --features--> examples, batches
|
state: the positions that are left, to save and to resume from
"""

from registry.reading.attached import AttachedColumns
from registry.reading.keeping import Keep
from registry.reading.pieces import TFDS_ID
from registry.reading.readable import FileProof, ReadableVersion, make_readable, readable_folder
from registry.reading.reader import Batches, Reader
from registry.reading.source import Slice, SplitSource
from registry.reading.state import State
from registry.reading.views import SupervisedReader

__all__ = [
    "TFDS_ID",
    "AttachedColumns",
    "Batches",
    "FileProof",
    "Keep",
    "ReadableVersion",
    "Reader",
    "Slice",
    "SplitSource",
    "State",
    "SupervisedReader",
    "make_readable",
    "readable_folder",
]
