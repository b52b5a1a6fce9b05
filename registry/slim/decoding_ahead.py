"""Decodes the records that leave the buffer of a reader, many at once if the same items are requested repeatedly.

It starts no threads. Each call for the same items decodes twice as many records as the call before, up to a limit. If
other items are requested, the records that were not returned yet are decoded again, so that no record is repeated or
lost. ``DatasetDataProvider`` uses it between its reader and its decoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import OutOfRangeError, UsageError, WrongTypeError
from registry.slim.data_decoder import DataDecoder, as_block, fill_up, stack_items
from registry.slim.parallel_reader import ParallelReader
from registry.slim.readers import Record, place_of, raise_of_record
from registry.tfrecord import RecordBlock

_MOST_TOGETHER: Final = 512
_MOST_IN_BATCHES: Final = 4096
_MOST_INFLATED: Final = 32
_BYTES_TOGETHER: Final = 2**20
_DECODED_BYTES: Final = 2**24
"""Maximum size, in bytes, of batches that are decoded ahead, estimated from the batches before."""

_LOOKED_AT: Final = 64
_VALUE: Final = itemgetter(0)


class DecodingAhead:
    """The decoded records of a reader, one by one or in batches. Only one caller at a time may use it.

    Args:
        reader: the reader of the records.
        decoder: the decoder of the records.
    """

    def __init__(self, reader: ParallelReader, decoder: DataDecoder) -> None:
        self._reader = reader
        self._decoder = decoder
        # Records that left the buffer. Those before `_place` were returned; those from there to `_stop` are decoded, in
        # `_rows` or `_columns`.
        self._records: list[Record] = []
        self._place = self._stop = 0
        self._rows: Iterator[list[Any]] = iter(())
        self._columns: Sequence[npt.NDArray[Any]] = ()
        self._kept: list[list[Any]] = []
        self._asked: object = None
        self._together = 1
        self._is_busy = self._is_taking = False

    def next_row(self, items: Sequence[str]) -> tuple[Record, list[Any]]:
        """The next record, and the values of ``items`` in it.

        Raises:
            OutOfRangeError: there are no more records; it is a StopIteration.
            CorruptRecordError, ShardMismatchError, StorageError: a file is damaged or cannot be read.
            Exception: the decoder raised it; it names the record, and the next call continues after it.
        """
        self._begin(items, ())
        if self._place >= self._stop:
            self._decode_rows(items)
        record = self._records[self._place]
        self._is_busy = True  # remains set if an interrupt separates the row from its record
        try:
            row = next(self._rows)
        except Exception as error:
            self._place += 1
            self._forget()
            if isinstance(error, StopIteration):
                raise UsageError(
                    f"{type(self._decoder).__name__}.decode_rows must return a row for each record, and returned fewer",
                    hint="Return a row for each record of the block, or raise an error.",
                ) from error
            raise_of_record(error, record)
        self._place += 1
        self._is_busy = False
        check_row(self._decoder, row, items, record)
        return record, row

    def next_batch(
        self, items: Sequence[str], size: int, *, drop_remainder: bool, pad: bool
    ) -> tuple[list[Record], list[npt.NDArray[Any]]]:
        """The next ``size`` records, fewer at the end, and a column for each of ``items``.

        If ``decode_batch`` fails, records are decoded one by one.

        Raises:
            OutOfRangeError: there are no more records, or no more whole batches.
            WrongTypeError: values cannot be padded; raised with every call.
            CorruptRecordError, ShardMismatchError, StorageError: a file is damaged or cannot be read.
            Exception: the decoder raised it. Raised before the batch with this record; the next call continues.
        """
        self._begin(items, size)
        if self._place >= self._stop:
            self._decode_columns(items, size)
        start, stop = self._place, min(self._place + size, self._stop)
        if drop_remainder and stop - start < size:
            self._place = stop
            self._take_more(1)  # raises the error that ended the records, if there was one
            raise OutOfRangeError("there are no more whole batches", details={"num_records": stop - start})
        columns = [_rows_of(column, start, stop) for column in self._columns]
        if pad:
            columns = list(map(fill_up, columns))
        self._place = stop
        return self._records[start:stop], columns

    def clear(self) -> None:
        """Drop all records."""
        self._records = []
        self._begin((), None)

    def _begin(self, items: Sequence[str], kind: object) -> None:
        """Drop what was decoded ahead, if other items are requested or the last call was interrupted."""
        asked = (tuple(items), kind)
        if asked != self._asked or self._is_busy:
            self._asked = None
            self._forget()
            self._asked = asked  # set last, so that an interrupt before it leaves a consistent state

    def _forget(self) -> None:
        """Drop the decoded values, so that their records are decoded again, starting with a few."""
        self._stop, self._together = self._place, 1
        self._rows, self._columns, self._kept, self._is_busy = iter(()), (), [], False

    def _decode_rows(self, items: Sequence[str]) -> None:
        self._drop_given()
        self._take_more(self._together, most_bytes=_BYTES_TOGETHER)
        values = list(map(_VALUE, self._records[: self._together]))
        ends = np.cumsum(list(map(len, values)))
        count = max(1, int(np.searchsorted(ends, _BYTES_TOGETHER, side="right")))
        self._together = min(2 * self._together, _MOST_TOGETHER)
        if not items:
            self._rows = repeat([])
        elif count == 1:
            self._rows = (self._decoder.decode(value, items) for value in values[:1])
        else:
            self._rows = iter(self._decoder.decode_rows(as_block(values[:count]), items))
        self._stop = count  # set last, so that after an interrupt nothing counts as decoded

    def _decode_columns(self, items: Sequence[str], size: int) -> None:
        """Decode the next batch, and further batches of records that are already available."""
        self._drop_given()
        self._take_more(size)
        together = min(self._together, _MOST_INFLATED) if self._decoder.inflates(items) else self._together
        most = max(1, together // size) * size
        self._take_more(most, most_bytes=_BYTES_TOGETHER)
        values = list(map(_VALUE, self._records[:most]))
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        ends = lengths.cumsum()
        small = int(np.searchsorted(ends, _BYTES_TOGETHER, side="right"))
        count = max(small // size * size, min(size, len(values)))
        try:
            data = np.frombuffer(b"".join(values[:count]), np.uint8)
            block = RecordBlock(data, (ends - lengths)[:count], lengths[:count])
            columns = list(self._decoder.decode_batch(block, items)) if items and not self._kept else []
            is_right = [len(column) for column in columns if isinstance(column, np.ndarray)] == [count] * len(items)
        except Exception:  # noqa: BLE001 (decoding one by one, below, finds the record and raises its error)
            is_right = False
        if not is_right:
            count = min(size, len(values))
            columns = self._decode_each(items, count)
        num_bytes = max(1, sum(map(_num_bytes, columns)))
        self._together = min(2 * count, _MOST_IN_BATCHES, _DECODED_BYTES * count // num_bytes) if is_right else 1
        self._columns, self._stop = columns, count

    def _decode_each(self, items: Sequence[str], count: int) -> list[npt.NDArray[Any]]:
        """The columns of the next records, decoded one by one.

        A record that cannot be decoded is removed and its error raised; the rows before it are kept for the next call.
        """
        rows = self._kept.copy()
        for place, record in enumerate(self._records[len(rows) : count], len(rows)):
            try:
                rows.append(decode_record(self._decoder, record, items))
            except Exception:
                del self._records[place]
                self._kept = rows
                raise
        self._kept = []
        return [self._decoder.stack(item, [row[place] for row in rows]) for place, item in enumerate(items)]

    def _drop_given(self) -> None:
        left = self._records[self._place :]
        self._records, self._place, self._stop = left, 0, 0

    def _take_more(self, count: int, *, most_bytes: int | None = None) -> None:
        """Read until ``count`` records are available, or fewer at the end.

        With ``most_bytes``, it stops at this size and does not wait for more than one record.
        """
        if self._is_taking:
            self._reader.interrupt()
        num_bytes = 0 if most_bytes is None else _bytes_of(self._records[self._place :])
        while len(self._records) - self._place < count:
            is_some = len(self._records) > self._place
            if is_some and most_bytes is not None and (num_bytes >= most_bytes or not self._reader.has_ready()):
                return
            self._is_taking = True  # remains set after an interrupt, which may lose records
            try:
                more = self._reader.read_records(count - len(self._records) + self._place)
            except Exception:
                self._is_taking = False
                if is_some and not self._reader.is_closed:
                    return  # return the records before the error; the next call raises it again
                raise
            self._records = [*self._records, *more]
            self._is_taking = False
            num_bytes += 0 if most_bytes is None else _bytes_of(more)


def decode_record(decoder: DataDecoder, record: Record, items: Sequence[str]) -> list[Any]:
    """The values of ``items`` in a record. Errors of the decoder and of ``check_row`` name the record."""
    try:
        row = decoder.decode(record[0], items)
    except StopIteration as error:
        path, (_, where) = record[1].path, place_of(record)
        raise UsageError(
            f"{path}: record at {where}: the decoder {type(decoder).__name__} raised StopIteration",
            hint="StopIteration means the end of the records. Perhaps a next() without a default raised it.",
        ) from error
    except Exception as error:  # noqa: BLE001 (it is raised again, with the record's place)
        raise_of_record(error, record)
    check_row(decoder, row, items, record)
    return row


def check_row(decoder: DataDecoder, row: Any, items: Sequence[str], record: Record) -> None:
    """Check that ``row``, which a decoder returned for ``record``, is a list with a value for each item.

    Raises:
        WrongTypeError: ``row`` is not a list.
        UsageError: ``row`` has another number of values.
    """
    if isinstance(row, list | tuple) and len(row) == len(items):
        return
    path, (_, where) = record[1].path, place_of(record)
    hint = "Return a list from decode with a value for each requested item, in the order of items."
    start = f"{path}: record at {where}: the decoder {type(decoder).__name__} returned "
    if not isinstance(row, list | tuple):
        raise WrongTypeError(f"{start}a {type(row).__name__}, not a list, for the items {', '.join(items)}", hint=hint)
    values = f"{len(row)} value{'s' * (len(row) != 1)}"
    raise UsageError(f"{start}{values} for the items {', '.join(items)}", hint=hint)


def _bytes_of(records: list[Record]) -> int:
    return sum(map(len, map(_VALUE, records)))


def _num_bytes(column: npt.NDArray[Any]) -> int:
    """Approximate size of the arrays of a column, from a sample. Texts are ignored: they are no larger than records."""
    if column.dtype.kind != "O":
        return column.nbytes
    step = max(1, column.size // _LOOKED_AT)
    return step * sum(value.nbytes for value in column.flat[::step] if isinstance(value, np.ndarray))


def _rows_of(column: npt.NDArray[Any], start: int, stop: int) -> npt.NDArray[Any]:
    """Some rows of a column, in the form that they would have alone: one array if their shapes are equal."""
    is_whole = stop - start == len(column)
    if column.dtype.kind != "O" or column.ndim > 1 or is_whole or isinstance(column, np.ma.MaskedArray):
        return column[start:stop]
    return stack_items(list(column[start:stop]))
