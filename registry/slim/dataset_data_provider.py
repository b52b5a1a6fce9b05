"""Provides the items of a dataset's records: reads and shuffles records, and decodes them as items are asked for.

    dataset.data_sources -> parallel_read with dataset.reader -> dataset.decoder -> the items of one record

Serialized records are read ahead. They are decoded when they leave the buffer, only for the items that were asked for,
and many at once where the same items are asked for again.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import numpy.typing as npt

from registry.errors import TwoRecordsWarning, UsageError, WrongTypeError
from registry.model.numbers import whole_number
from registry.reading import SplitSource
from registry.slim.data_decoder import DataDecoder, stack_items
from registry.slim.data_provider import DataProvider
from registry.slim.dataset import Dataset
from registry.slim.decoding_ahead import DecodingAhead
from registry.slim.parallel_reader import ParallelReader, flag, open_reader
from registry.slim.read_ahead import OfOneProcess
from registry.slim.readers import key_of

T = TypeVar("T")


class DatasetDataProvider(OfOneProcess, DataProvider):
    """The items of a dataset's records, one record after the other.

    ``get`` gives some items of the next record, as TF-Slim's does of the next step of its graph; ``iter`` gives
    the same items of all records, ``batches`` those of many at a time; and to iterate over the provider gives a dict of
    every item for each record. Threads may do so at the same time, and each record goes to one of them.

    A record that cannot be decoded is an error once: the next call goes on with the next record. A file that cannot be
    read is the same error again with each call, because what was in it is unknown.

    Args:
        dataset: has ``data_sources``, ``reader``, ``decoder`` and ``num_samples``.
        common_queue_capacity, common_queue_min: ``capacity`` and ``min_after_dequeue`` of ``parallel_read``, which has
            all other arguments, too.
        record_key: the item that is a record's key, ``path:offset``.

    Raises:
        UsageError: as ``parallel_read``; or ``record_key`` is an item of the dataset.
        NotStoredError: files are missing.
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
        scope: str | None = None,  # noqa: ARG002 (a name in TensorFlow's graph)
        *,
        deterministic: bool = True,
        mix_epochs: bool = False,
    ) -> None:
        super().__init__()
        self._decoder = _decoder_of(dataset)
        items = list(self._decoder.list_items())
        if record_key in items:
            raise UsageError(
                f"record_key={record_key!r} is an item of the dataset already",
                hint="Give the key of a record another name, e.g. record_key='key_of_record'.",
                details={"record_key": record_key},
            )
        self._num_samples = dataset.num_samples
        self._record_key = record_key
        self._items = [*items, record_key]
        self._asked: tuple[str, ...] | None = None
        self._has_warned = self._is_inside = self._is_closed = False
        self._reader = open_reader(
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
        """The seed of the order, drawn where none was given."""
        return self._reader.seed

    def get(self, items: Sequence[str]) -> list[Any]:
        """The values of ``items``, in that order, of the next record.

        Warns where it gives none of the items that the call before gave: they are of two records.

        Raises:
            OutOfRangeError: there are no more; it is a StopIteration.
            WrongTypeError, ItemNotFoundError: ``items`` is not a list or tuple of listed names.
            CorruptExampleError: the record does not hold them; names path and offset. The next call goes on after it.
            CorruptRecordError, ShardMismatchError, StorageError: a file is damaged or cannot be read, after all records
                before; again with each call.
            UsageError: it was closed, or made in another process.
        """
        asked = tuple(items) if isinstance(items, list | tuple) else None
        if asked is None or asked != self._asked:  # what was asked for last was checked then
            before, asked = self._asked, self.check_items(items)
            self._asked = asked
            if before and asked and not self._has_warned and set(before).isdisjoint(asked):
                self._has_warned = True
                warnings.warn(
                    f"{', '.join(before)} and {', '.join(asked)} are of two records, as they were asked for one after "
                    f"the other: ask for both in one get({[*before, *asked]})",
                    TwoRecordsWarning,
                    stacklevel=2,
                )
        return self._next(asked)

    def iter(self, items: Sequence[str]) -> Iterator[list[Any]]:
        """The values of ``items`` for each record that is left, as ``get`` gives them.

            for image, label in provider.iter(["image", "label"]): ...

        Errors as ``get``, and like it this goes on after a record that cannot be decoded.
        """
        return _Each(partial(self._next, self.check_items(items)))

    def batches(
        self, items: Sequence[str], size: int, *, drop_remainder: bool = False, dynamic_pad: bool = False
    ) -> Iterator[list[npt.NDArray[Any]]]:
        """The values of ``items`` for ``size`` records at a time, decoded together: an array for each item.

            for images, labels in provider.batches(["image", "label"], 32): ...

        An array's first dimension is the records. Where their values differ in shape, or are sparse, it is an object
        array (records,) of them. As with ``tf.train.batch`` a batch may reach over the end of an epoch.

        Args:
            items: as ``get``.
            size: of a batch; the last one may be smaller, and so is one before a file that cannot be read.
            drop_remainder: whether a smaller one is left out.
            dynamic_pad: whether values of different sizes are filled up to the largest, with zeros or ``b""``.

        Raises:
            UsageError: a size that cannot be.
            WrongTypeError: values that are to be filled up differ in dimensions or dtype: with each call, as no record
                is left out.
            As ``get``. A record that cannot be decoded is an error once: the next batch begins with those before it.
        """
        asked, size = self.check_items(items), whole_number(size, "size", least=1, error=WrongTypeError)
        drop, pad = flag("drop_remainder", drop_remainder), flag("dynamic_pad", dynamic_pad)
        return _Each(partial(self._next_batch, asked, size, drop_remainder=drop, pad=pad))

    def __next__(self) -> dict[str, Any]:
        return dict(zip(self._items, self._next(tuple(self._items)), strict=True))

    def list_items(self) -> list[str]:
        """The items of the dataset's decoder, and last the record's key."""
        return self._items.copy()

    def num_samples(self) -> int | None:
        """What the dataset says; it is not counted."""
        return self._num_samples

    def close(self) -> None:
        """Read no more. Waits for reads that are under way, a second at most."""
        self._reader.close()
        self._is_closed = True
        if os.getpid() == self._process and self._lock.acquire(timeout=1):
            if not self._is_inside:  # else a handler of a signal closes what this very thread is in
                self._ahead.clear()
            self._lock.release()

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
                "the provider was asked for records while it decodes one for the same thread",
                hint="A decoder or handler that needs other records takes them from a provider of its own.",
            )
        if self._is_closed:
            self._ahead.clear()
        self._is_inside = True


def _decoder_of(dataset: Any) -> DataDecoder:
    """The decoder of a dataset of TF-Slim; WrongTypeError for anything else, and for one that lists no items."""
    decoder = getattr(dataset, "decoder", None)
    if not isinstance(decoder, DataDecoder):
        raise WrongTypeError(
            f"{dataset!r:.100} is no dataset of TF-Slim",
            hint="Make one of a version: slim.Dataset.from_version(version, 'train')."
            if isinstance(dataset, SplitSource)
            else "Give a slim.Dataset: slim.Dataset(files, ...), or slim.Dataset.from_version(version, split).",
        )
    items: Any = decoder.list_items()
    if isinstance(items, str) or not all(isinstance(item, str) for item in items):
        raise WrongTypeError(
            f"{type(decoder).__name__}.list_items gave {items!r:.80}", hint="It gives the items' names in a list."
        )
    return decoder


class _Each(Generic[T]):
    """What a function gives, again and again: an iterator that goes on after an error."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self._make()
