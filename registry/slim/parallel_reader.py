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
from types import TracebackType
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import OutOfRangeError, UsageError, WrongTypeError
from registry.model.numbers import whole_number
from registry.slim.data_files import find_data_files, get_data_files
from registry.slim.interleaving import Progress, Reading, closed_reader
from registry.slim.read_ahead import CLOSE_SECONDS, OfOneProcess
from registry.slim.readers import Reader, Record, TFRecordReader, key_of, read_units

__all__ = ["ParallelReader", "get_data_files", "parallel_read", "single_pass_read"]

_Failure: TypeAlias = tuple[BaseException, TracebackType | None]

_TEXT_TYPES: Final = ("string", "str", "bytes", "object", "bytes_")


class ParallelReader(OfOneProcess):
    """The records of many files as (key, record), both bytes. ``parallel_read`` and ``single_pass_read`` create it.

    Iterate over it, or call ``read``; several threads may do so. The error of a file is raised after all records before
    it, and again with every later call, so that lost records are never skipped silently.

    Attributes:
        seed: the seed of the order; a random one if none was given.
        num_readers: number of files that are read at the same time.
        is_closed: whether ``close`` was called.
    """

    _refusal = (
        "a reader can only be used in the process that created it",
        "Create a reader in each process, from the data sources that it should read.",
    )

    def __init__(self, reading: Reading) -> None:
        super().__init__()
        self.seed = reading.seed
        self.num_readers = reading.num_readers
        self._progress = Progress()
        self._chunks = reading.chunks(self._progress)
        self._lock = threading.RLock()
        self._records: list[Record] = []
        self._position = 0
        self.is_closed = False
        self._is_inside = False
        self._failed: _Failure | None = None
        self._interrupted: _Failure = (
            UsageError(
                "the read was interrupted, and some records may be lost", hint="Create a new reader to read again."
            ),
            None,
        )

    @property
    def num_records_produced(self) -> int:
        """The number of records returned so far."""
        return self._progress.num_records

    @property
    def num_work_units_completed(self) -> int:
        """The number of files read to their end; a file counts again in each epoch."""
        return self._progress.num_files

    def read(self) -> tuple[bytes, bytes]:
        """The next key and record.

        Raises:
            OutOfRangeError: there are no more records; it is a StopIteration.
            CorruptRecordError, ShardMismatchError, StorageError: a file is damaged or cannot be read.
            UsageError: the reader was closed or created in another process, or it repeats files without records
                forever.
        """
        (record,) = self.read_records(1)
        return key_of(record), record[0]

    def read_up_to(self, num_records: int) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.object_]]:
        """The next keys and records, as two object arrays (n,) of bytes. ``n`` is ``num_records``, or less at the end.

        Raises:
            OutOfRangeError: there are no more records; it is a StopIteration.
            CorruptRecordError, ShardMismatchError, StorageError: a file is damaged or cannot be read.
            UsageError: the reader was closed or created in another process, or ``num_records`` is below 1.
        """
        num_records = whole_number(num_records, "num_records", least=1, error=WrongTypeError)
        keys, values = np.empty(num_records, object), np.empty(num_records, object)
        have = 0
        with self._lock:
            while have < num_records:
                try:
                    records = self.read_records(num_records - have)
                except Exception:
                    if have:
                        break  # return the records before the error; the next call raises it again
                    raise
                keys[have : have + len(records)] = list(map(key_of, records))
                values[have : have + len(records)] = [record[0] for record in records]
                have += len(records)
        return keys[:have], values[:have]

    def read_records(self, most: int | None = None) -> list[Record]:
        """The next available records: at least one, at most ``most``. Raises the errors of ``read``."""
        self._check_process()
        with self._lock:
            self._check_open()
            self._is_inside = True
            try:
                return self._take(most)
            finally:
                self._is_inside = False

    def has_ready(self) -> bool:
        """Whether records were already read ahead, so that the next call will probably not wait."""
        with self._lock:
            slots = self._progress.slots
            return self._position < len(self._records) or (slots is not None and slots.is_ready())

    def interrupt(self) -> None:
        """Raise an error from now on, because an interrupted call may have lost records."""
        self._failed = self._failed or self._interrupted

    def close(self) -> None:
        """Stop reading, and wake up threads that wait for a read. Waits up to a second for reads in progress."""
        self.is_closed = True
        if os.getpid() != self._process:
            return
        slots = self._progress.slots
        if slots is not None:
            slots.close()
        if self._lock.acquire(timeout=CLOSE_SECONDS):
            if not self._is_inside:  # otherwise a signal handler interrupted this thread inside a read
                self._records, self._position = [], 0
                self._chunks.close()  # type: ignore[attr-defined]  # a generator has close()
            self._lock.release()
        if slots is not None:
            slots.join()

    def __next__(self) -> tuple[bytes, bytes]:
        return self.read()

    def _take(self, most: int | None) -> list[Record]:
        # Until this method ends, the state is "interrupted": an interrupt in between may lose records.
        self._failed = self._interrupted
        if self._position == len(self._records):
            try:
                chunk = next(self._chunks, None)
            except Exception as error:
                self._failed = error, error.__traceback__
                raise
            if chunk is None:
                self._failed = None
                raise OutOfRangeError("there are no more records", details={"num_records": self.num_records_produced})
            self._records, self._position = chunk, 0
        stop = len(self._records) if most is None else min(len(self._records), self._position + most)
        is_whole = stop - self._position == len(self._records)
        records = self._records if is_whole else self._records[self._position : stop]
        if stop == len(self._records):
            self._records, self._position = [], 0  # keep no reference to returned records
        else:
            self._position = stop
        self._progress.num_records += len(records)
        self._failed = None
        return records

    def _check_open(self) -> None:
        if self.is_closed:
            raise closed_reader()
        if self._is_inside:
            raise UsageError(
                "records were requested while the reader returns some to the same thread",
                hint="Do not read in a signal handler.",
            )
        if self._failed is not None:
            error, traceback = self._failed
            raise error.with_traceback(traceback)


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
    return open_reader(
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
    return open_reader(data_sources, reader_class, num_epochs=1, reader_kwargs=reader_kwargs, shuffle=False)


def open_reader(
    data_sources: Any,
    reader: Reader | None,
    *,
    num_epochs: int | None,
    num_readers: int = 1,
    reader_kwargs: Mapping[str, Any] | None = None,
    shuffle: bool,
    capacity: int = 256,
    least: int = 128,
    seed: int | None = None,
    deterministic: bool = True,
    mix_epochs: bool = False,
    names: tuple[str, str] = ("capacity", "min_after_dequeue"),
) -> ParallelReader:
    """``parallel_read`` for all callers; ``names`` are their names of ``capacity`` and ``least``, for errors."""
    num_readers = whole_number(num_readers, "num_readers", least=1, error=WrongTypeError)
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
    if reader is not None and not callable(reader):
        raise WrongTypeError(
            f"the reader {reader!r:.80} cannot be called",
            hint="A reader is called with a path and returns an iterator of (key, record), both bytes.",
        )
    reader = TFRecordReader if reader is None else reader
    reader_kwargs = _check_kwargs(reader, {} if reader_kwargs is None else reader_kwargs)
    spare = (capacity - least) // 2 if shuffle else capacity
    unit_records = max(1, spare // (2 * num_readers))
    buffer_size = max(least + 1, capacity - 2 * num_readers * unit_records) if shuffle else 0
    return ParallelReader(
        Reading(
            files=tuple(find_data_files(data_sources)),
            read_file=partial(read_units, reader, options=dict(reader_kwargs), most=unit_records),
            num_epochs=num_epochs,
            num_readers=num_readers,
            buffer_size=buffer_size,
            seed=secrets.randbits(63) if seed is None else whole_number(seed, "seed", error=WrongTypeError),
            deterministic=flag("deterministic", deterministic),
            mix_epochs=flag("mix_epochs", mix_epochs),
        )
    )


def flag(name: str, value: Any) -> bool:
    """``value`` of the option ``name`` as a bool. Raises WrongTypeError for other types, as the text ``"False"``."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise WrongTypeError(f"{name} must be True or False, not {value!r:.60}")


def _check_kwargs(reader: Reader, reader_kwargs: Any) -> Mapping[str, Any]:
    """``reader_kwargs``, after checking now that the reader accepts them, because another thread calls it later."""
    name = getattr(reader, "__name__", None) or type(reader).__name__
    if not isinstance(reader_kwargs, Mapping):
        raise WrongTypeError(
            f"reader_kwargs={reader_kwargs!r:.60} is not a dict", hint="Pass names and values: {'options': 'GZIP'}."
        )
    try:
        called_with = signature(reader)
    except (TypeError, ValueError):  # some callables have no signature
        return reader_kwargs
    try:
        called_with.bind("path", **reader_kwargs)
    except TypeError as error:
        raise WrongTypeError(
            f"the reader {name} cannot be called with a path and {dict(reader_kwargs)!r:.100}: {error}",
            hint=f"A reader is called with a path and returns an iterator of (key, record). The signature is "
            f"{name}{called_with!s:.200}.",
        ) from error
    return reader_kwargs
