"""``TensorSource``: what a ``Reader`` and its view of tuples, ``SupervisedReader``, give to torch and TensorFlow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from registry.prepared.info import SupervisedKeys
from registry.reading.examples import ExampleReader
from registry.reading.frameworks import read_tensorflow, read_torch
from registry.reading.structure import pick

if TYPE_CHECKING:
    import tensorflow as tf

    from registry.reading.frameworks.torch import ReaderDataset, ReaderIterable


class TensorSource(ABC):
    """Examples, as dicts or as tuples, for training loops of torch and TensorFlow."""

    @abstractmethod
    def _decoded(self) -> tuple[ExampleReader, SupervisedKeys | None]:
        """The reader that decodes what is needed, and the structure of the tuples; None gives dicts."""

    @overload
    def to_torch(
        self,
        *,
        transform: Callable[[Any], Any] | None = None,
        pad: Mapping[str, float | None] | None = None,
    ) -> ReaderDataset: ...
    @overload
    def to_torch(
        self,
        *,
        iterable: Literal[True],
        batch_size: int | None = None,
        drop_remainder: bool = False,
        process: tuple[int, int] | None = None,
        transform: Callable[[Any], Any] | None = None,
        pad: Mapping[str, float | None] | None = None,
    ) -> ReaderIterable: ...
    def to_torch(
        self,
        *,
        iterable: bool = False,
        batch_size: int | None = None,
        drop_remainder: bool = False,
        process: tuple[int, int] | None = None,
        transform: Callable[[Any], Any] | None = None,
        pad: Mapping[str, float | None] | None = None,
    ) -> ReaderDataset | ReaderIterable:
        """Return a dataset for ``torch.utils.data.DataLoader``, with any number of workers, forked or spawned.

            dataset = reader.to_torch()
            loader = DataLoader(dataset, batch_size=32, shuffle=True, collate_fn=dataset.collate)

        An example is a dict of tensors with the dtypes of ``features``; text is ``bytes``, a missing value is None. Of
        a ``SupervisedReader`` it is a tuple, and only the features in its ``keys`` are decoded.

        By default it is a map-style dataset of the first epoch: ``dataset[i]`` is an example, ``dataset[[i, j]]`` a
        batch, and a loader fetches all examples of a batch at once.

        With ``iterable=True`` it is an ``IterableDataset`` in the order of the reader. All ranks and workers together
        read every example of an epoch once. Each iteration reads the next epoch, the same in all workers;
        ``set_epoch`` chooses one. ``state_dict`` and ``load_state_dict`` are those of torchdata's StatefulDataLoader.

        In a batch (``dataset.collate``, or ``batch_size=``), features of one shape are tensors; text is a list of
        ``bytes``. Features that may differ in shape or may be None are lists, unless ``pad`` names them. The type of
        each feature depends on the schema and on ``pad``, never on the examples in the batch.

        Args:
            iterable: return an iterable dataset.
            batch_size: with ``iterable``, give batches, for ``DataLoader(..., batch_size=None)``. They come in the
                reader's order with any number of workers. Without it, each worker gives the examples of its own run.
            drop_remainder: leave out the last batch of an epoch if it is smaller.
            process: index and number of the ranks; None uses the reader's ``process``, or torch.distributed's rank if
                it is initialised when an iteration starts.
            transform: a function of one example, called in the worker before examples become a batch. For spawned
                workers, define it at the top level of a module.
            pad: numbers to pad features of varying shape with, such as ``{"tokens": 0}``: in a batch these are
                ``registry.torch.Padded`` (values, lengths). None as the number keeps a list. Names are those of
                ``features``, joined by ``/``; with a ``transform``, paths in what it returns, such as ``"0"`` for the
                first entry of a tuple.

        Raises:
            UsageError: an invalid option; an option of iterables without ``iterable``; or ``pad`` names a feature that
                does not exist or cannot be padded.
            MissingExtraError: torch is not installed (extra ``torch``).
        """
        reader, keys = self._decoded()
        return read_torch(
            reader,
            keys,
            iterable=iterable,
            batch_size=batch_size,
            drop_remainder=drop_remainder,
            process=process,
            transform=transform,
            pad=pad,
        )

    def to_tf_dataset(self, *, batch_size: int | None = None, drop_remainder: bool = False) -> tf.data.Dataset:
        """Return a ``tf.data.Dataset`` in the order of the reader, prefetched, of known cardinality.

        Iterating it reads ``read_config.repeat`` epochs, and iterating it again the next ones. Text is ``tf.string``. A
        feature with unknown dimensions is a tensor with None in its shape, and a Sequence of Sequences a RaggedTensor.
        A Dataset becomes what a Sequence becomes. A feature of an unknown kind is left out. A ``SupervisedReader``
        gives tuples, for ``model.fit``.

        Args:
            batch_size: give batches, which is faster than ``batch()``. Every feature must have one shape.
            drop_remainder: leave out the last batch of an epoch if it is smaller.

        Raises:
            UsageError: an invalid option, or a feature that TensorFlow has no tensor for. One is an optional feature,
                whose value may be None; ``fill_missing`` chooses a value.
            MissingExtraError: tensorflow is not installed (extra ``tensorflow``).
            tf.errors.OpError: while iterating, with the message of this reader's error.
        """
        reader, keys = self._decoded()
        dataset = read_tensorflow(reader, batch_size=batch_size, drop_remainder=drop_remainder)
        return dataset if keys is None else dataset.map(partial(pick, keys))
