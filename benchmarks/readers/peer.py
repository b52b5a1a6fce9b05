"""Defines the jobs of benchmarks/reading.py as the methods of a class that each reader implements.

``records`` (i), ``examples`` (ii) and ``batches`` (iii) give iterators over the whole set, ``one`` (iv) and ``many``
(iv b) look examples up by their positions, ``seek`` (v) opens ``train[50%:]`` and gives its first example. A method
that a class leaves out is a job that the reader has not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, Final, TypeVar

import numpy as np

from benchmarks.readers.sets import SampleSet

BATCH: Final = 256
JOBS: Final = {"i": "records", "ii": "examples", "iii": "batches", "iv": "one", "ivb": "many", "v": "seek"}

Example = dict[str, Any]
"""An example, or a batch of them as columns."""

T = TypeVar("T")


class Peer:
    """A reader of one set.

    Attributes:
        modules: what it needs; where one is not installed, the reader is left out.
        format: the files that it reads.
        reads_gzip: whether it reads them compressed.
        threads: the threads it may use.
    """

    modules: ClassVar[tuple[str, ...]] = ()
    format: ClassVar[str] = "tfrecord"
    reads_gzip: ClassVar[bool] = False
    threads: ClassVar[str] = "1"

    def __init__(self, sample: SampleSet) -> None:
        self.sample = sample
        self.middle = sample.num_examples // 2
        self.paths = [str(path) for path in sample.files(self.format)]
        self.open()

    def open(self) -> None:
        """Whatever comes before the first job and is not timed."""

    def records(self) -> Iterator[Any]:
        """Serialized examples."""
        raise NotImplementedError

    def examples(self) -> Iterator[Example]:
        """Examples as dicts of NumPy values."""
        raise NotImplementedError

    def batches(self) -> Iterator[Example]:
        """Columns of 256 examples."""
        raise NotImplementedError

    def one(self, index: int) -> Example:
        """The example at one position."""
        raise NotImplementedError

    def many(self, indices: list[int]) -> Any:
        """The examples at positions, as columns or as a list."""
        raise NotImplementedError

    def seek(self) -> Example:
        """The first example of the second half, read by a new reader."""
        raise NotImplementedError

    @classmethod
    def jobs(cls) -> list[str]:
        """The jobs that it has."""
        return [job for job, method in JOBS.items() if getattr(cls, method) is not getattr(Peer, method)]


def split_batch(columns: Example) -> Iterator[Example]:
    """The examples of a batch."""
    names = list(columns)
    return (dict(zip(names, row, strict=True)) for row in zip(*map(list, columns.values()), strict=True))


def stack(examples: Sequence[Example]) -> Example:
    """A batch of examples."""
    return {
        name: np.array([example[name] for example in examples], object if isinstance(value, bytes) else None)
        for name, value in examples[0].items()
    }


def in_batches(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of ``size`` values; the last one may be shorter."""
    rest = iter(values)
    while batch := list(islice(rest, size)):
        yield batch
