"""Reads many files in parallel, shuffled in memory, once or repeatedly, as keys and records.

    data sources -> files, permuted for each epoch -> slots that take turns -> shuffle buffer -> (key, record)

The same seed, sources and number of readers give the same order in every run, independent of the speed of threads.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Mapping
from functools import partial
from inspect import signature
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import OutOfRangeError, UsageError, WrongTypeError
from registry.model import whole_number
from registry.slim.data_files import find_data_files, get_data_files
from registry.slim.interleaving import Interleaving
from registry.slim.read_ahead import CLOSE_SECONDS, OfOneProcess, closed
from registry.slim.readers import READER_HINT, VALUE, Reader, Record, TFRecordReader, key_of, read_units

__all__ = ["ParallelReader", "get_data_files", "parallel_read", "single_pass_read"]

_TEXT_TYPES: Final = ("string", "str", "bytes", "object", "bytes_")


class ParallelReader(OfOneProcess):
    """The records of many files as (key, record), both bytes. ``parallel_read`` and ``single_pass_read`` create it.

    Iterate over it, or call ``read``; several threads may do so. The error of a file is raised after all records before
    it, and again with every later call, so that lost records are never skipped silently.

    Args:
        data_sources, reader, num_epochs, num_readers, reader_kwargs, shuffle, capacity: as in ``parallel_read``.
        seed, deterministic, mix_epochs: as in ``parallel_read``.
        least: the ``min_after_dequeue`` of ``parallel_read``.
        names: the caller's names of ``capacity`` and ``least``, for errors.

    Attributes:
        seed: the seed of the order; a random one if none was given.
        num_readers: number of files that are read at the same time.
        is_closed: whether ``close`` was called.
    """

    _refusal = (
        "a reader can only be used in the process that created it",
        "Create a reader in each process, from the data sources that it should read.",
    )

    def __init__(
        self,
        data_sources: Any,
        reader: Reader | None = None,
        *,
        num_epochs: int | None,
        num_readers: int = 1,
        reader_kwargs: Mapping[str, Any] | None = None,
        shuffle: bool = False,
        capacity: int = 256,
        least: int = 128,
        seed: int | None = None,
        deterministic: bool = True,
        mix_epochs: bool = False,
        names: tuple[str, str] = ("capacity", "min_after_dequeue"),
    ) -> None:
        super().__init__()
        self.num_readers = whole_number(num_readers, "num_readers", least=1, error=WrongTypeError)
        shuffle = flag("shuffle", shuffle)
        if num_epochs is not None:
            num_epochs = whole_number(num_epochs, "num_epochs", least=1, error=WrongTypeError)
        capacity = whole_number(capacity, names[0], least=1, error=WrongTypeError)
        least = whole_number(least, names[1], least=0, error=WrongTypeError)
        if shuffle and capacity <= least:
            raise UsageError(
                f"{names[0]}={capacity} must be more than {names[1]}={least}: no record would ever be drawn",
                hint=f"Pass e.g. {names[0]}={2 * least}. A larger buffer shuffles better.",
                details={names[0]: capacity, names[1]: least},
            )
        reader, options = _check_reader(reader, reader_kwargs)
        spare = (capacity - least) // 2 if shuffle else capacity
        unit_records = max(1, spare // (2 * self.num_readers))
        self.seed = secrets.randbits(63) if seed is None else whole_number(seed, "seed", error=WrongTypeError)
        self._files = Interleaving(
            files=find_data_files(data_sources),
            read_file=partial(read_units, reader, options=options, most=unit_records),
            num_epochs=num_epochs,
            num_slots=self.num_readers,
            buffer_size=max(least + 1, capacity - 2 * self.num_readers * unit_records) if shuffle else 0,
            seed=self.seed,
            deterministic=flag("deterministic", deterministic),
            mix_epochs=flag("mix_epochs", mix_epochs),
        )
        self._chunks = self._files.chunks()
        self._lock = threading.RLock()
        self._records: list[Record] = []  # those from `_position` on are next
        self._position = 0
        self._num_received = 0
        self.is_closed = self._is_inside = False
        self._failed: Exception | None = None
        self._interrupted = UsageError(
            "the read was interrupted, and some records may be lost", hint="Create a new reader to read again."
        )

    @property
    def num_records_produced(self) -> int:
        """The number of records returned so far."""
        return self._num_received - len(self._records) + self._position

    @property
    def num_work_units_completed(self) -> int:
        """The number of files read to their end; a file counts again in each epoch."""
        return self._files.num_files_read

    def read(self) -> tuple[bytes, bytes]:
        """The next key and record.

        Raises:
            OutOfRangeError: there are no more records; it is a StopIteration.
            CorruptRecordError, ShardMismatchError, StorageError: a file is damaged or cannot be read.
            UsageError: the reader was closed or created in another process, or it repeats files without records
                forever.
        """
        with self._lock:
            (record,) = self.peek()
            self.skip(1)
        return key_of(record), record[0]

    def read_up_to(self, num_records: int) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.object_]]:
        """The next keys and records, as two object arrays (n,) of bytes. ``n`` is ``num_records``, or less at the end.

        Raises:
            OutOfRangeError: there are no more records; it is a StopIteration.
            CorruptRecordError, ShardMismatchError, StorageError: a file is damaged or cannot be read.
            UsageError: the reader was closed or created in another process, or ``num_records`` is below 1.
        """
        num_records = whole_number(num_records, "num_records", least=1, error=WrongTypeError)
        with self._lock:
            records = self.peek(num_records)
            self.skip(len(records))
        keys = np.fromiter(map(key_of, records), object, len(records))
        return keys, np.fromiter((record[0] for record in records), object, len(records))

    def read_records(self) -> list[Record]:
        """All records that are available without waiting, but at least one. Raises the errors of ``read``."""
        with self._lock:
            self.peek()
            records, self._records, self._position = self._records[self._position :], [], 0
            return records

    def peek(self, count: int = 1, *, most_bytes: int | None = None) -> list[Record]:
        """The next records, which remain the next ones until ``skip`` is called.

        Args:
            count: number of records. Fewer are returned at the end and before an error.
            most_bytes: the size in bytes from which on fewer records suffice; then it waits for one record only.

        Raises:
            OutOfRangeError: there are no more records; it is a StopIteration.
            CorruptRecordError, ShardMismatchError, StorageError: a file is damaged or cannot be read.
            UsageError: the reader was closed or created in another process.
        """
        self._check_process()
        with self._lock:
            self._check_open()
            num_bytes = num_counted = 0
            while (num_records := len(self._records) - self._position) < count:
                records = self._records[self._position :]
                if records and most_bytes is not None:
                    num_bytes += sum(map(len, map(VALUE, records[num_counted:])))
                    num_counted = num_records
                    if num_bytes >= most_bytes or not self._files.is_ready():
                        break
                try:
                    self._receive(records)
                except Exception:
                    if records and not self.is_closed:
                        break  # the next call raises it again
                    raise
            return self._records[self._position : self._position + count]

    def skip(self, count: int) -> None:
        """Go on after the next ``count`` records."""
        self._position += count

    def drop(self, place: int) -> None:
        """Drop one of the next records, the one that ``peek`` returns at ``place``."""
        del self._records[self._position + place]

    def close(self) -> None:
        """Stop reading, and wake up threads that wait for a read. Waits up to a second for reads in progress."""
        self.is_closed = True
        if os.getpid() != self._process:
            return
        self._files.close()
        if self._lock.acquire(timeout=CLOSE_SECONDS):
            if not self._is_inside:  # otherwise a signal handler interrupted this thread inside a read
                self._num_received = self.num_records_produced
                self._records, self._position = [], 0
                self._chunks.close()  # type: ignore[attr-defined]  # a generator has close()
            self._lock.release()
        self._files.join()

    def __next__(self) -> tuple[bytes, bytes]:
        return self.read()

    def _receive(self, records: list[Record]) -> None:
        """Wait for more records, which follow ``records``."""
        if self._failed is not None:
            raise self._failed.with_traceback(None)
        self._failed = self._interrupted  # until this method ends: an interrupt in between may lose records
        self._is_inside = True
        try:
            chunk = next(self._chunks, None)
            self._records, self._position = [*records, *(chunk or ())], 0
            self._num_received += len(chunk or ())
        except Exception as error:
            self._failed = error
            raise
        finally:
            self._is_inside = False
        self._failed = None
        if chunk is None:
            raise OutOfRangeError("there are no more records", details={"num_records": self.num_records_produced})

    def _check_open(self) -> None:
        if self.is_closed:
            raise closed("reader")
        if self._is_inside:
            raise UsageError(
                "records were requested while the reader returns some to the same thread",
                hint="Do not read in a signal handler.",
            )


def parallel_read(  # noqa: PLR0917 (TF-Slim's order)
    data_sources: Any,
    reader_class: Reader | None = None,
    num_epochs: int | None = None,
    num_readers: int = 4,
    reader_kwargs: Mapping[str, Any] | None = None,
    shuffle: bool = True,
    dtypes: Any = None,
    capacity: int = 256,
    min_after_dequeue: int = 128,
    seed: int | None = None,
    scope: str | None = None,  # noqa: ARG001 (a name in TensorFlow's graph)
    *,
    deterministic: bool = True,
    mix_epochs: bool = False,
) -> ParallelReader:
    """Read many files in parallel. Follows ``tf_slim.data.parallel_reader.parallel_read``.

    Args:
        data_sources: a path, URL, pattern (``train-*``) or sharded name (``path@128``), or a list of them.
        reader_class: a callable that gets the path of a file and ``reader_kwargs``, in any thread, and returns an
            iterator of (key, record). None is ``TFRecordReader``.
        num_epochs: number of times that each file is read; None repeats forever.
        num_readers: number of files that are read at the same time.
        reader_kwargs: further keyword arguments for ``reader_class``.
        shuffle: permute the files in each epoch, and draw records from a shuffle buffer.
        dtypes: two string types, or None; as in TF-Slim, no others are possible.
        capacity: maximum number of records in memory, in the buffer and read ahead, but at least two for each reader.
            The readers of this package additionally hold 2 MiB of each open file, or two records if they are longer.
        min_after_dequeue: minimum number of records in the buffer from which each record is drawn, until the files end.
        seed: the seed of the order; None draws one, which ``ParallelReader.seed`` returns.
        scope: ignored.
        deterministic: let files take turns, record by record. Otherwise records come in the order in which they are
            read.
        mix_epochs: start the next epoch while records of the current one are in the buffer.

    Returns:
        An iterator of (key, record), both bytes.

    Raises:
        UsageError: a number is out of range, ``capacity`` does not exceed ``min_after_dequeue``, or there are no files.
        NotStoredError: files are missing.
        WrongTypeError: an argument has the wrong type, or the reader cannot be called with ``reader_kwargs``.
    """
    if dtypes is not None:
        names = [getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype) for dtype in dtypes]
        if len(names) != 2 or any(name not in _TEXT_TYPES for name in names):
            raise WrongTypeError(
                f"dtypes must be two strings, of key and record, not {dtypes!r:.80}",
                hint="Leave dtypes out: readers return bytes, and the decoder converts them.",
            )
    return ParallelReader(
        data_sources,
        reader_class,
        num_epochs=num_epochs,
        num_readers=num_readers,
        reader_kwargs=reader_kwargs,
        shuffle=shuffle,
        capacity=capacity,
        least=min_after_dequeue,
        seed=seed,
        deterministic=deterministic,
        mix_epochs=mix_epochs,
    )


def single_pass_read(
    data_sources: Any,
    reader_class: Reader | None = None,
    reader_kwargs: Mapping[str, Any] | None = None,
    scope: str | None = None,  # noqa: ARG001 (a name in TensorFlow's graph)
) -> ParallelReader:
    """Read the files once, one after another. Follows ``tf_slim.data.parallel_reader.single_pass_read``.

    Args:
        data_sources: a path, URL, pattern (``train-*``) or sharded name (``path@128``), or a list of them.
        reader_class: a callable that gets the path of a file and ``reader_kwargs``, and returns an iterator of
            (key, record). None is ``TFRecordReader``.
        reader_kwargs: further keyword arguments for ``reader_class``.
        scope: ignored.

    Returns:
        An iterator of (key, record), both bytes.

    Raises:
        UsageError: there are no data files.
        NotStoredError: files are missing.
        WrongTypeError: the reader cannot be called with ``reader_kwargs``.
    """
    return ParallelReader(data_sources, reader_class, num_epochs=1, reader_kwargs=reader_kwargs)


def flag(name: str, value: Any) -> bool:
    """``value`` of the option ``name`` as a bool. Raises WrongTypeError for other types, as the text ``"False"``."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise WrongTypeError(f"{name} must be True or False, not {value!r:.60}")


def _check_reader(reader: Reader | None, reader_kwargs: Any) -> tuple[Reader, dict[str, Any]]:
    """The reader and its keyword arguments, after checking now that it accepts them: another thread calls it later."""
    reader = TFRecordReader if reader is None else reader
    if not callable(reader):
        raise WrongTypeError(f"the reader {reader!r:.80} cannot be called", hint=READER_HINT)
    if not isinstance(reader_kwargs, Mapping | None):
        raise WrongTypeError(
            f"reader_kwargs={reader_kwargs!r:.60} is not a dict", hint="Pass names and values: {'options': 'GZIP'}."
        )
    options = dict(reader_kwargs or {})
    try:
        called_with = signature(reader)
    except (TypeError, ValueError):  # some callables have no signature
        return reader, options
    try:
        called_with.bind("path", **options)
    except TypeError as error:
        name = getattr(reader, "__name__", None) or type(reader).__name__
        raise WrongTypeError(
            f"the reader {name} cannot be called with a path and {options!r:.100}: {error}",
            hint=f"{READER_HINT} The signature is {name}{called_with!s:.200}.",
        ) from error
    return reader, options
