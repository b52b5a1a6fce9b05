"""``SupervisedReader``: the examples of a reader as tuples. ``registry.load`` returns it.

It reads what its reader reads, in the same order, and shares its place. It can be pickled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from registry.errors import UsageError, suggest
from registry.features import FeaturesDict, ImageDecoding
from registry.model import ProgressCallback
from registry.order import ReadConfig
from registry.prepared.info import SupervisedKeys
from registry.reading.examples import ExampleReader
from registry.reading.state import State
from registry.reading.structure import names_in, pick
from registry.reading.tensors import TensorSource
from registry.splits import Plan


class SupervisedReader(TensorSource):
    """The examples of a reader as tuples, such as (input, target). ``Reader.as_supervised`` creates it.

    Attributes:
        reader: the reader. The view shares its place.
        keys: names of features, in a tuple, a dict or a nest of these. Names are of the outermost features.

    Raises:
        UsageError: no key, or a key that is not the name of a feature.
    """

    def __init__(self, reader: ExampleReader, keys: SupervisedKeys) -> None:
        self.reader = reader
        self.keys = keys
        names = names_in(keys)
        if not names:
            raise UsageError(
                "supervised examples need at least one feature",
                hint=f"The features are: {', '.join(reader.features)}.",
            )
        for name in names:
            if name not in reader.features:
                raise UsageError(f"no feature {name!r:.80}", hint=suggest(name, list(reader.features)))

    def __len__(self) -> int:
        """Number of examples that are read of one epoch."""
        return len(self.reader)

    def __iter__(self) -> Iterator[Any]:
        """Read the next epoch. Errors as iterating the reader.

        Yields:
            The values of an example, nested as ``keys``; types as iterating the reader.
        """
        return self._each(iter(self.reader))

    def __getitem__(self, index: int | slice | Sequence[int] | npt.NDArray[np.integer[Any]]) -> Any:
        """One example, or a batch; arguments and errors as ``reader[index]``."""
        return pick(self.keys, self.reader[index])

    def examples_at(self, indices: Sequence[int] | npt.NDArray[np.integer[Any]]) -> list[Any]:
        """Read the examples ``indices`` of the first epoch together: see ``Reader.examples_at``, also for errors."""
        return [pick(self.keys, example) for example in self.reader.examples_at(indices)]

    def batches(self, batch_size: int, *, drop_remainder: bool = False) -> Iterator[Any]:
        """Read the next epoch in batches, nested as ``keys``.

        Args:
            batch_size: number of examples in a batch, at least 1.
            drop_remainder: leave out the last batch of an epoch if it is smaller.

        Yields:
            Arrays whose first dimension is ``batch_size``, in tuples and dicts as ``keys`` nests them.

        Raises:
            UsageError: ``batch_size`` is not a whole number, or is below 1. Raised at once, not while iterating.
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: a file is damaged or unreadable.
        """
        return self._each(self.reader.batches(batch_size, drop_remainder=drop_remainder))

    def blocks(self) -> Iterator[Any]:
        """Read the next epoch in batches of the size that is read at once, as ``Reader.blocks``."""
        return self._each(self.reader.blocks())

    def ids(self) -> Iterator[str]:
        """The TFDS id of each example of the next epoch. No file is opened."""
        return self.reader.ids()

    def to_numpy(self) -> Any:
        """Read all examples of the first epoch into arrays, nested as ``keys``: see ``Reader.to_numpy``."""
        from registry.reading.frameworks.arrays import read_arrays

        return pick(self.keys, read_arrays(self._selected()))

    def state(self) -> dict[str, Any]:
        """The place of the reader's iteration: see ``Reader.state``."""
        return self.reader.state()

    def reopened(
        self, *, process: tuple[int, int] | None = None, state: State | Sequence[State] | None = None
    ) -> SupervisedReader:
        """Return a view of another reader of the same examples in the same order.

        Args:
            process: index and count of its share; None keeps this reader's.
            state: where to begin, as ``state()`` returned it; None is the beginning.

        Raises:
            StateMismatchError: the state belongs to another version, plan or order.
            UsageError: an invalid ``process``.
        """
        return SupervisedReader(self.reader.reopened(process=process, state=state), self.keys)

    def fill_missing(self, values: Mapping[str, Any]) -> SupervisedReader:
        """A view with ``values`` for missing values of optional features: see ``Reader.fill_missing``."""
        return SupervisedReader(self.reader.fill_missing(values), self.keys)

    def decode_images(self, decodings: Mapping[str, ImageDecoding]) -> SupervisedReader:
        """A view whose images are scaled or cropped: see ``Reader.decode_images``."""
        return SupervisedReader(self.reader.decode_images(decodings), self.keys)

    def missing_as_none(self) -> SupervisedReader:
        """A view with None for missing values: see ``Reader.missing_as_none``."""
        return SupervisedReader(self.reader.missing_as_none(), self.keys)

    def missing_as_tfds(self) -> SupervisedReader:
        """A view with TFDS's values for missing ones: see ``Reader.missing_as_tfds``."""
        return SupervisedReader(self.reader.missing_as_tfds(), self.keys)

    def where(
        self,
        condition: str,
        *,
        state: State | Sequence[State] | None = None,
        progress: ProgressCallback | None = None,
    ) -> SupervisedReader:
        """A view of the examples that match a condition on any features, also those that are not in ``keys``.

        Args:
            condition: see ``Reader.where``, also for errors.
            state: see ``Reader.where``.
            progress: called with a ``Progress``, in records, while columns are read.
        """
        return SupervisedReader(self.reader.where(condition, state=state, progress=progress), self.keys)

    @property
    def plan(self) -> Plan:
        """Which records of which files are read."""
        return self.reader.plan

    @property
    def features(self) -> FeaturesDict:
        """The schema of the examples from which the tuples are taken."""
        return self.reader.features

    @property
    def read_config(self) -> ReadConfig:
        """The order."""
        return self.reader.read_config

    def __repr__(self) -> str:
        return f"<SupervisedReader {self.reader.title} as {self.keys!r}>"

    def _each(self, found: Iterator[dict[str, Any]]) -> Iterator[Any]:
        return map(partial(pick, self.keys), found)

    def _decoded(self) -> tuple[ExampleReader, SupervisedKeys | None]:
        return self._selected(), self.keys

    def _selected(self) -> ExampleReader:
        """A reader that decodes the features in ``keys`` only."""
        return self.reader.select(names_in(self.keys))
