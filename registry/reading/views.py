"""Views of a reader: pairs for supervised learning, and batches.

A view reads what its reader reads, in the same order, and its place is the reader's place. Views can be pickled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from registry.features import FeaturesDict
from registry.order import ReadConfig
from registry.prepared.info import SupervisedKeys
from registry.reading.reader import Reader, State
from registry.splits import Plan

if TYPE_CHECKING:
    import tensorflow as tf


class SupervisedReader:
    """The examples of a reader as what a model gets and what it is to say: tuples, nested as the keys are.

    Attributes:
        reader: what is read.
        keys: the names of features, in a tuple, dict or nest of these; names are of the outermost features.

    Raises:
        KeyError: a key is no feature.
    """

    def __init__(self, reader: Reader, keys: SupervisedKeys) -> None:
        self.reader = reader
        self.keys = keys
        select(keys, reader.features)

    def __len__(self) -> int:
        """Number of examples that are read of one epoch."""
        return len(self.reader)

    def __iter__(self) -> Iterator[Any]:
        """The next epoch. Errors as iterating the reader."""
        return self._each(iter(self.reader))

    def __getitem__(self, index: int | slice | Sequence[int] | npt.NDArray[np.integer[Any]]) -> Any:
        """As ``reader[index]``: one example, or a batch."""
        return select(self.keys, self.reader[index])

    def examples_at(self, indices: Sequence[int] | npt.NDArray[np.integer[Any]]) -> list[Any]:
        """The examples ``indices`` of the first epoch, fetched together."""
        return [select(self.keys, example) for example in self.reader.examples_at(indices)]

    def batches(self, size: int, *, drop_remainder: bool = False) -> Iterator[Any]:
        """As ``reader.batches``: tuples of arrays, the first dimension of which counts examples."""
        return self._each(self.reader.batches(size, drop_remainder=drop_remainder))

    def blocks(self) -> Iterator[Any]:
        """As ``reader.blocks``: batches of as many examples as are read at once."""
        return self._each(self.reader.blocks())

    def ids(self) -> Iterator[str]:
        """The TFDS id of each example, in this order."""
        return self.reader.ids()

    def to_numpy(self) -> Any:
        """All examples of the first epoch at once, as a tuple of arrays."""
        return select(self.keys, self.reader.to_numpy())

    def to_tf_dataset(self, *, batch_size: int | None = None, drop_remainder: bool = False) -> tf.data.Dataset:
        """The tuples as a ``tf.data.Dataset``, as ``model.fit`` takes them: see ``Reader.to_tf_dataset``."""
        dataset = self.reader.to_tf_dataset(batch_size=batch_size, drop_remainder=drop_remainder)
        return dataset.map(partial(select, self.keys))

    def state(self) -> dict[str, Any]:
        """The place of the reader's iteration: see ``Reader.state``."""
        return self.reader.state()

    def reopened(
        self, *, process: tuple[int, int] | None = None, state: State | Sequence[State] | None = None
    ) -> SupervisedReader:
        """Another view of another reader of the same examples: see ``Reader.reopened``."""
        return SupervisedReader(self.reader.reopened(process=process, state=state), self.keys)

    @property
    def plan(self) -> Plan:
        """Which records of which files."""
        return self.reader.plan

    @property
    def features(self) -> FeaturesDict:
        """The schema of the examples that the tuples are taken of."""
        return self.reader.features

    @property
    def config(self) -> ReadConfig:
        """The order."""
        return self.reader.config

    def __repr__(self) -> str:
        return f"<SupervisedReader {self.plan.expression}: {len(self)} examples as {self.keys!r}>"

    def _each(self, found: Iterator[dict[str, Any]]) -> Iterator[Any]:
        return map(partial(select, self.keys), found)


class Batches:
    """The examples of a reader, ``size`` at a time; the last batch of an epoch may be smaller.

    Attributes:
        source: what is read.
        size: examples in a batch.
    """

    def __init__(self, source: Reader | SupervisedReader, size: int) -> None:
        self.source = source
        self.size = size

    def __len__(self) -> int:
        """Number of batches of one epoch."""
        return (len(self.source) + self.size - 1) // self.size

    def __iter__(self) -> Iterator[Any]:
        """The batches of the next epoch. Errors as iterating the reader."""
        return self.source.batches(self.size)

    def state(self) -> dict[str, Any]:
        """The place of the reader's iteration: see ``Reader.state``."""
        return self.source.state()

    def __repr__(self) -> str:
        return f"<Batches of {self.size}: {len(self)} of {self.source!r}>"


def select(keys: SupervisedKeys, example: Mapping[str, Any]) -> Any:
    """The values of an example, in the structure of ``keys``.

    >>> select(({"x": "left", "y": "right"}, "label"), {"left": 1, "right": 2, "label": 3, "id": 4})
    ({'x': 1, 'y': 2}, 3)
    """
    if isinstance(keys, str):
        return example[keys]
    if isinstance(keys, tuple):
        return tuple(select(key, example) for key in keys)
    return {name: select(key, example) for name, key in keys.items()}


def names_in(keys: SupervisedKeys) -> list[str]:
    """The names of the features in a structure of keys, each once, in its order."""
    if isinstance(keys, str):
        return [keys]
    inner = keys if isinstance(keys, tuple) else keys.values()
    return list(dict.fromkeys(name for key in inner for name in names_in(key)))
