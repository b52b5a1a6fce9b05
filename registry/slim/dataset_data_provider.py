"""How does a dataset reach whoever trains on it? Its records are read, shuffled, and decoded as items are asked for.

    dataset.data_sources -> parallel_read with dataset.reader -> dataset.decoder -> the items of one record

What is read ahead is serialized records. They are decoded when they leave the buffer, only the items that were asked
for, and many at a time where somebody goes on asking for the same.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from types import TracebackType
from typing import Any, Final, Protocol, Self

import numpy as np

from registry.errors import UsageError
from registry.slim.data_decoder import DataDecoder
from registry.slim.data_provider import DataProvider
from registry.slim.parallel_reader import open_reader
from registry.slim.readers import Reader, Record, error_of_record, key_of, place_of
from registry.tfrecord import RecordBlock

_MOST_TOGETHER: Final = 512
_BYTES_TOGETHER: Final = 2**20


class ProvidedDataset(Protocol):
    """What a provider needs of a dataset; ``registry.slim.Dataset`` has it."""

    @property
    def data_sources(self) -> Any:
        """See ``get_data_files``."""

    @property
    def reader(self) -> Reader | None:
        """See ``parallel_read``."""

    @property
    def decoder(self) -> DataDecoder:
        """What makes items of a record."""

    @property
    def num_samples(self) -> int | None:
        """How many records there are."""


class DatasetDataProvider(DataProvider):
    """The items of a dataset's records, one record after the other.

    ``get`` gives some items of the next record, as TF-Slim's does of the next step of its graph; ``iter`` gives
    the same items of all records; and to iterate over the provider gives a dict of every item for each record. Threads
    may do so at the same time, and each record goes to one of them.

    A record that cannot be decoded is an error once: the next call goes on with the next record. A file that cannot be
    read is the same error again with each call, because what was in it is unknown.

    Args:
        dataset: has ``data_sources``, ``reader``, ``decoder`` and ``num_samples``.
        num_readers: how many files are read at the same time.
        reader_kwargs: for the dataset's reader.
        shuffle: whether files are permuted, and records go through a shuffle buffer.
        num_epochs: how often each record is provided; None for ever.
        common_queue_capacity: how many serialized records are held at most, see ``parallel_read``.
        common_queue_min: from so many of them at least each one is drawn, where they are shuffled.
        record_key: the item that is a record's key, ``path:offset``.
        seed: of the order; None draws one, which is then the attribute ``seed``.
        scope: without effect.
        deterministic: whether files take turns, record by record; otherwise records come as they are read.
        mix_epochs: whether the next epoch begins while records of the last one are in the buffer, as in TF-Slim.

    Raises:
        UsageError: as ``parallel_read``; or ``record_key`` is an item of the dataset.
        NotStoredError: files are missing.
    """

    def __init__(
        self,
        dataset: ProvidedDataset,
        num_readers: int = 1,
        reader_kwargs: Mapping[str, Any] | None = None,
        shuffle: bool = True,
        num_epochs: int | None = None,
        common_queue_capacity: int = 256,
        common_queue_min: int = 128,
        record_key: str = "record_key",
        seed: int | None = None,
        scope: str | None = None,  # noqa: ARG002 (a name in a graph, and there is none)
        *,
        deterministic: bool = True,
        mix_epochs: bool = False,
    ) -> None:
        self._decoder = dataset.decoder
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
        self._process = os.getpid()
        # Records that left the buffer: those before `_stop` are being decoded by `_rows`, the next one is at `_place`.
        self._records: list[Record] = []
        self._place = self._stop = 0
        self._rows: Iterator[list[Any]] = iter(())
        self._asked: tuple[str, ...] | None = None
        self._together = 1

    @property
    def seed(self) -> int:
        """The seed of the order, drawn where none was given."""
        return self._reader.seed

    def get(self, items: Sequence[str]) -> list[Any]:
        """The values of ``items``, in that order, of the next record.

        Raises:
            OutOfRangeError: there are no more; it is a StopIteration.
            WrongTypeError, ItemNotFoundError: ``items`` is no list or tuple of names that are listed.
            CorruptExampleError: the record does not hold them; names path and offset. The next call goes on after it.
            CorruptRecordError, ShardMismatchError, StorageError: a file is damaged or cannot be read, after all records
                before; again with each call.
            UsageError: it was closed, or made in another process.
        """
        asked = tuple(items) if isinstance(items, list | tuple) else None
        if asked is None or asked != self._asked:  # what was asked for last was checked then
            asked = self.check_items(items)
        return self._next(asked)

    def iter(self, items: Sequence[str]) -> Iterator[list[Any]]:
        """The values of ``items`` for each record that is left, as ``get`` gives them.

            for image, label in provider.iter(["image", "label"]): ...

        Errors as ``get``, and like it this goes on after a record that cannot be decoded.
        """
        return _Rows(self, self.check_items(items))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

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
        if os.getpid() == self._process and self._lock.acquire(timeout=1):
            self._records, self._rows = [], iter(())
            self._place = self._stop = 0
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _next(self, items: tuple[str, ...]) -> list[Any]:
        if os.getpid() != self._process:
            self._reader.read_records(1)  # which refuses: the lock may be held for ever in a process that was forked
        with self._lock:
            if items != self._asked:
                self._asked, self._stop, self._together = items, self._place, 1
            if self._place >= self._stop:  # more, where it was closed while a record was decoded
                self._decode_more(items)
            record = self._records[self._place]
            try:
                row = next(self._rows)
            except BaseException as error:
                # The rows end here, and what they decoded ahead is decoded again: a few at first.
                self._place += isinstance(error, Exception)  # who was interrupted has not seen this record
                self._stop, self._together = self._place, 1
                named = self._named(error, record)
                if named is error:
                    raise
                raise named from error
            self._place += 1
        num_keys = items.count(self._record_key)
        if len(row) != len(items) - num_keys:
            raise self._other_values(record, len(row), items)
        if not num_keys:
            return row
        rest = iter(row)
        return [key_of(record) if item == self._record_key else next(rest) for item in items]

    def _other_values(self, record: Record, num_values: int, items: tuple[str, ...]) -> UsageError:
        """Values that are not those of the items: whoever unpacks them would learn nothing of it, or too late."""
        path, (_, where) = record[1].path, place_of(record)
        named = ", ".join(item for item in items if item != self._record_key)
        return UsageError(
            f"{path}: record at {where}: the decoder {type(self._decoder).__name__} gave {num_values} "
            f"value{'s' * (num_values != 1)} for the items {named}",
            hint="decode gives a value for each item that it is asked for, in their order.",
        )

    def _decode_more(self, items: tuple[str, ...]) -> None:
        """Have the next records decoded together: twice as many each time, up to a limit."""
        self._records = self._records[self._place :]
        self._place = self._stop = 0
        self._take_more()
        values = [record[0] for record in self._records[: self._together]]
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        ends = lengths.cumsum()
        count = max(1, int(np.searchsorted(ends, _BYTES_TOGETHER, side="right")))
        self._stop = min(count, len(values))
        self._together = min(2 * self._together, _MOST_TOGETHER)
        decoded = [item for item in items if item != self._record_key]
        if not decoded:
            self._rows = repeat([])
        elif self._stop == 1:
            self._rows = (self._decoder.decode(value, decoded) for value in values[:1])
        else:
            data = np.frombuffer(b"".join(values[:count]), np.uint8)
            block = RecordBlock(data, (ends - lengths)[:count], lengths[:count])
            self._rows = self._decoder.decode_rows(block, decoded)

    def _take_more(self) -> None:
        """Have as many records at hand as are decoded together, if they were read already; one at least."""
        num_bytes = sum(len(record[0]) for record in self._records)
        while not self._records or (
            len(self._records) < self._together and num_bytes < _BYTES_TOGETHER and self._reader.has_ready()
        ):
            try:
                more = self._reader.read_records(self._together - len(self._records))
                self._records = [*self._records, *more]
            except Exception:
                if self._records:
                    return  # it comes again, in its place
                raise
            except BaseException:
                self._reader.interrupt()
                raise
            num_bytes += sum(len(record[0]) for record in more)

    def _named(self, error: BaseException, record: Record) -> BaseException:
        """``error`` of a record, saying which record it was."""
        if isinstance(error, StopIteration):
            return UsageError(
                f"the decoder {type(self._decoder).__name__} gave fewer rows than it was given records",
                hint="decode_rows gives a row for each record of the block, or raises.",
            )
        return error_of_record(error, record)


class _Rows:
    """The same items of one record after the other."""

    def __init__(self, provider: DatasetDataProvider, items: tuple[str, ...]) -> None:
        self._provider = provider
        self._items = items

    def __iter__(self) -> Iterator[list[Any]]:
        return self

    def __next__(self) -> list[Any]:
        return self._provider._next(self._items)
