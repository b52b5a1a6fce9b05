"""Provides the items of a dataset's records: reads and shuffles records, and decodes the requested items.

    dataset.data_sources -> parallel_read with dataset.reader -> dataset.decoder -> the items of one record

Serialized records are read ahead. They are decoded when they leave the buffer: only the requested items, and many
records at once if the same items are requested repeatedly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import numpy.typing as npt

from registry.errors import TwoRecordsWarning, UsageError, WrongTypeError, warn
from registry.model import whole_number
from registry.reading import SplitSource
from registry.slim.data_decoder import DataDecoder, stack_items
from registry.slim.data_provider import DataProvider
from registry.slim.dataset import Dataset
from registry.slim.decoding_ahead import DecodingAhead
from registry.slim.parallel_reader import ParallelReader, flag
from registry.slim.read_ahead import OfOneProcess
from registry.slim.readers import key_of

T = TypeVar("T")


class DatasetDataProvider(OfOneProcess, DataProvider):
    """Provides the items of a dataset's records, one record after another.

    Follows ``tf_slim.data.dataset_data_provider.DatasetDataProvider``. ``get`` returns some items of the next record,
    ``iter`` yields the same items of every record, and ``batches`` yields them for many records at a time. Iterating
    over the provider yields a dict of all items for each record. Several threads may use it; each record goes to one of
    them.

        dataset = slim.Dataset.from_version(catalog.dataset("digits"), "train")
        provider = slim.DatasetDataProvider(dataset, num_epochs=1, seed=1)
        for images, labels in provider.batches(["image", "label"], 32): ...

    A record that cannot be decoded raises once, and the next call continues with the next record. A file that cannot
    be read raises with every call, because its remaining records are unknown.

    Args:
        dataset: a ``slim.Dataset``.
        num_readers: number of files that are read at the same time.
        reader_kwargs: further keyword arguments for the reader.
        shuffle: permute the files in each epoch, and draw records from a shuffle buffer.
        num_epochs: number of times that each file is read; None repeats forever.
        common_queue_capacity: maximum number of records in memory, in the buffer and read ahead.
        common_queue_min: minimum number of records in the buffer from which each record is drawn.
        record_key: the name of the item that is the key of a record, ``path:offset``.
        seed: the seed of the order; None draws one, which the attribute ``seed`` returns.
        scope: ignored; it is a name in TensorFlow's graph.
        deterministic: let files take turns, record by record. Otherwise records come in the order in which they are
            read.
        mix_epochs: start the next epoch while records of the current one are in the buffer.

    Raises:
        UsageError: a number is out of range, the capacity does not exceed the minimum, there are no data files, or
            ``record_key`` is an item of the dataset.
        NotStoredError: files are missing.
        WrongTypeError: an argument has the wrong type.
    """

    _refusal = ParallelReader._refusal

    def __init__(
        self,
        dataset: Dataset,
        num_readers: int = 1,
        reader_kwargs: Mapping[str, Any] | None = None,
        shuffle: bool = True,
        num_epochs: int | None = None,
        common_queue_capacity: int = 256,
        common_queue_min: int = 128,
        record_key: str = "record_key",
        seed: int | None = None,
        scope: str | None = None,  # noqa: ARG002 (part of TF-Slim's signature)
        *,
        deterministic: bool = True,
        mix_epochs: bool = False,
    ) -> None:
        super().__init__()
        self._decoder = _decoder_of(dataset)
        items = list(self._decoder.list_items())
        if record_key in items:
            raise UsageError(
                f"record_key={record_key!r} is already an item of the dataset",
                hint="Choose another name for the key of a record, e.g. record_key='key_of_record'.",
                details={"record_key": record_key},
            )
        self._num_samples = dataset.num_samples
        self._record_key = record_key
        self._items = [*items, record_key]
        self._asked: tuple[str, ...] | None = None
        self._has_warned = self._is_inside = False
        self._reader = ParallelReader(
            dataset.data_sources,
            dataset.reader,
            num_epochs=num_epochs,
            num_readers=num_readers,
            reader_kwargs=reader_kwargs,
            shuffle=shuffle,
            capacity=common_queue_capacity,
            least=common_queue_min,
            seed=seed,
            deterministic=deterministic,
            mix_epochs=mix_epochs,
            names=("common_queue_capacity", "common_queue_min"),
        )
        self._lock = threading.RLock()
        self._ahead = DecodingAhead(self._reader, self._decoder)

    @property
    def seed(self) -> int:
        """The seed of the order; a random one if none was given."""
        return self._reader.seed

    def get(self, items: Sequence[str]) -> list[Any]:
        """The values of ``items`` in the next record, in the order of ``items``.

        Each call reads another record. A TwoRecordsWarning is issued if two calls in a row request disjoint items,
        because their values do not belong together.

        Raises:
            OutOfRangeError: there are no more records; it is a StopIteration.
            WrongTypeError: ``items`` is not a list or tuple.
            ItemNotFoundError: ``items`` has a name that ``list_items`` does not.
            CorruptExampleError: the record does not hold the items; the error names its path and offset. The next call
                continues with the next record.
            CorruptRecordError, ShardMismatchError, StorageError: a file is damaged or cannot be read. Raised after all
                records before the fault, and again with each call.
            UsageError: the provider was closed, or created in another process.
        """
        asked = tuple(items) if isinstance(items, list | tuple) else None
        if asked is None or asked != self._asked:  # the same items as in the last call are already checked
            before, asked = self._asked, self.check_items(items)
            self._asked = asked
            if before and asked and not self._has_warned and set(before).isdisjoint(asked):
                self._has_warned = True
                warn(
                    f"{', '.join(before)} and {', '.join(asked)} come from two different records, because two calls "
                    f"requested them; request both at once: get({[*before, *asked]})",
                    TwoRecordsWarning,
                )
        return self._next(asked)

    def iter(self, items: Sequence[str]) -> Iterator[list[Any]]:
        """Iterate over the remaining records: the values of ``items`` in each, as ``get`` returns them.

            for image, label in provider.iter(["image", "label"]): ...

        The iterator raises the errors of ``get``. After a record that cannot be decoded, it can be continued.

        Raises:
            WrongTypeError: ``items`` is not a list or tuple.
            ItemNotFoundError: ``items`` has a name that ``list_items`` does not.
        """
        return _Each(partial(self._next, self.check_items(items)))

    def batches(
        self, items: Sequence[str], batch_size: int, *, drop_remainder: bool = False, dynamic_pad: bool = False
    ) -> Iterator[list[npt.NDArray[Any]]]:
        """Iterate over batches of ``batch_size`` records, decoded together: one array for each item.

            for images, labels in provider.batches(["image", "label"], 32): ...

        The first dimension of an array counts records. If the values differ in shape, or are sparse, it is an object
        array (records,). As with ``tf.train.batch``, a batch may contain records of two epochs.

        The iterator raises the errors of ``get``. A record that cannot be decoded raises once; the next batch then
        begins with the records before it.

        Args:
            items: the names of items, a list or tuple.
            batch_size: number of records in a batch. The last batch, and a batch before a file that cannot be read, may
                be smaller.
            drop_remainder: leave out smaller batches.
            dynamic_pad: pad arrays of different sizes to the largest in the batch, with zeros or ``b""``. The iterator
                raises WrongTypeError if they differ in their number of dimensions or dtype.

        Raises:
            UsageError: ``batch_size`` is below 1.
            WrongTypeError: an argument has the wrong type.
            ItemNotFoundError: ``items`` has a name that ``list_items`` does not.
        """
        asked = self.check_items(items)
        size = whole_number(batch_size, "batch_size", least=1, error=WrongTypeError)
        drop, pad = flag("drop_remainder", drop_remainder), flag("dynamic_pad", dynamic_pad)
        return _Each(partial(self._next_batch, asked, size, drop_remainder=drop, pad=pad))

    def __next__(self) -> dict[str, Any]:
        return dict(zip(self._items, self._next(tuple(self._items)), strict=True))

    def list_items(self) -> list[str]:
        """The items of the dataset's decoder, followed by the record key."""
        return self._items.copy()

    def num_samples(self) -> int | None:
        """The number of records that the dataset declares; None if it declares none. They are not counted."""
        return self._num_samples

    def close(self) -> None:
        """Stop reading. Waits up to a second for reads in progress."""
        self._reader.close()

    def __repr__(self) -> str:
        return f"<DatasetDataProvider: {', '.join(self._items)}; seed {self.seed}>"

    def _next(self, items: tuple[str, ...]) -> list[Any]:
        self._check_process()
        num_keys = items.count(self._record_key)
        decoded = items if not num_keys else [item for item in items if item != self._record_key]
        with self._lock:
            self._enter()
            try:
                record, row = self._ahead.next_row(decoded)
            finally:
                self._is_inside = False
        if not num_keys:
            return row
        rest = iter(row)
        return [key_of(record) if item == self._record_key else next(rest) for item in items]

    def _next_batch(
        self, items: tuple[str, ...], size: int, *, drop_remainder: bool, pad: bool
    ) -> list[npt.NDArray[Any]]:
        self._check_process()
        decoded = [item for item in dict.fromkeys(items) if item != self._record_key]
        with self._lock:
            self._enter()
            try:
                records, found = self._ahead.next_batch(decoded, size, drop_remainder=drop_remainder, pad=pad)
            finally:
                self._is_inside = False
        columns = dict(zip(decoded, found, strict=True))
        if self._record_key in items:
            columns[self._record_key] = stack_items([key_of(record) for record in records])
        return [columns[item] for item in items]

    def _enter(self) -> None:
        if self._is_inside:
            raise UsageError(
                "records were requested while the provider decodes one for the same thread",
                hint="In a decoder or handler, read other records with another provider.",
            )
        self._is_inside = True


def _decoder_of(dataset: Any) -> DataDecoder:
    """The decoder of a TF-Slim dataset. Raises WrongTypeError for anything else, or if it does not list items."""
    decoder = getattr(dataset, "decoder", None)
    if not isinstance(decoder, DataDecoder):
        raise WrongTypeError(
            f"{dataset!r:.100} is not a TF-Slim dataset",
            hint="Create one from the version: slim.Dataset.from_version(version, 'train')."
            if isinstance(dataset, SplitSource)
            else "Pass a slim.Dataset: slim.Dataset(files, ...), or slim.Dataset.from_version(version, split).",
        )
    items: Any = decoder.list_items()
    if isinstance(items, str) or not all(isinstance(item, str) for item in items):
        raise WrongTypeError(
            f"{type(decoder).__name__}.list_items returned {items!r:.80}",
            hint="It must return the names of the items as a list.",
        )
    return decoder


class _Each(Generic[T]):
    """An iterator that calls a function for each value and can be continued after an error."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self._make()
