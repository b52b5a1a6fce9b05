"""Decodes the records that leave the buffer of a reader, many at once where the same items are asked for again.

It starts no thread. Each call for the same items decodes twice as many records as the one before, up to a limit. Where
other items are asked for, the records that were not given yet are decoded again: no record is given twice or left out.
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
"""So much batches may take that nobody asked for yet, as far as can be told from those before."""

_LOOKED_AT: Final = 64
_VALUE: Final = itemgetter(0)


class DecodingAhead:
    """The decoded records of a reader, one by one or some at a time; for one caller at a time.

    Args:
        reader: gives the records.
        decoder: makes values of them.
    """

    def __init__(self, reader: ParallelReader, decoder: DataDecoder) -> None:
        self._reader = reader
        self._decoder = decoder
        # Records that left the buffer. Those before `_place` were given; those from there to `_stop` are what `_rows`
        # goes on with, or what `_columns` hold.
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
            OutOfRangeError: there are no more.
            Exception: what the decoder raised, with the record's place; the next call goes on after it.
            As ``ParallelReader.read_records``.
        """
        self._begin(items, ())
        if self._place >= self._stop:
            self._decode_rows(items)
        record = self._records[self._place]
        self._is_busy = True  # as long as row and record may be of different places: who is interrupted leaves it so
        try:
            row = next(self._rows)
        except Exception as error:
            self._place += 1
            self._forget()
            if isinstance(error, StopIteration):
                raise UsageError(
                    f"the decoder {type(self._decoder).__name__} gave fewer rows than it was given records",
                    hint="decode_rows gives a row for each record of the block, or raises.",
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

        Errors as ``next_row``: that of a record comes before the batch that it would be in. Values that are to be
        filled up and cannot be are a WrongTypeError with every call. Where ``decode_batch`` fails, records are decoded
        alone.
        """
        self._begin(items, size)
        if self._place >= self._stop:
            self._decode_columns(items, size)
        start, stop = self._place, min(self._place + size, self._stop)
        if drop_remainder and stop - start < size:
            self._place = stop
            self._take_more(1)  # which raises what ended the records
            raise OutOfRangeError("there are no more whole batches", details={"num_records": stop - start})
        columns = [_rows_of(column, start, stop) for column in self._columns]
        if pad:
            columns = list(map(fill_up, columns))
        self._place = stop
        return self._records[start:stop], columns

    def clear(self) -> None:
        """Let go of all records."""
        self._records = []
        self._begin((), None)

    def _begin(self, items: Sequence[str], kind: object) -> None:
        """Forget what was decoded ahead for somebody who asked for something else, or was interrupted."""
        asked = (tuple(items), kind)
        if asked != self._asked or self._is_busy:
            self._asked = None
            self._forget()
            self._asked = asked  # last: whoever is interrupted before finds nothing of what was asked for then

    def _forget(self) -> None:
        """Have what was decoded ahead decoded again: a few records at first."""
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
        self._stop = count  # last: whoever is interrupted before finds nothing decoded

    def _decode_columns(self, items: Sequence[str], size: int) -> None:
        """Decode the next batch, and as many after it as are at hand."""
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
        except Exception:  # noqa: BLE001 (which record is at fault, and of what, is found out below)
            is_right = False
        if not is_right:
            count = min(size, len(values))
            columns = self._decode_each(items, count)
        num_bytes = max(1, sum(map(_num_bytes, columns)))
        self._together = min(2 * count, _MOST_IN_BATCHES, _DECODED_BYTES * count // num_bytes) if is_right else 1
        self._columns, self._stop = columns, count

    def _decode_each(self, items: Sequence[str], count: int) -> list[npt.NDArray[Any]]:
        """The columns of the next records, decoded one by one; one that cannot be is left out, and its error raised.

        The rows before it are kept for the next call.
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
        """Have ``count`` records at hand, fewer at the end; with ``most_bytes`` as many as are ready, one at least."""
        if self._is_taking:
            self._reader.interrupt()
        num_bytes = 0 if most_bytes is None else _bytes_of(self._records[self._place :])
        while len(self._records) - self._place < count:
            is_some = len(self._records) > self._place
            if is_some and most_bytes is not None and (num_bytes >= most_bytes or not self._reader.has_ready()):
                return
            self._is_taking = True  # whoever is interrupted leaves it so, and records may be lost
            try:
                more = self._reader.read_records(count - len(self._records) + self._place)
            except Exception:
                self._is_taking = False
                if is_some and not self._reader.is_closed:
                    return  # it comes again, in its place
                raise
            self._records = [*self._records, *more]
            self._is_taking = False
            num_bytes += 0 if most_bytes is None else _bytes_of(more)


def decode_record(decoder: DataDecoder, record: Record, items: Sequence[str]) -> list[Any]:
    """The values of ``items`` in a record. An error names the record; errors of ``check_row``."""
    try:
        row = decoder.decode(record[0], items)
    except StopIteration as error:
        path, (_, where) = record[1].path, place_of(record)
        raise UsageError(
            f"{path}: record at {where}: the decoder {type(decoder).__name__} raised StopIteration",
            hint="It stands for the end of the records. A next() without a default may have raised it.",
        ) from error
    except Exception as error:  # noqa: BLE001 (it is raised again, with the record's place)
        raise_of_record(error, record)
    check_row(decoder, row, items, record)
    return row


def check_row(decoder: DataDecoder, row: Any, items: Sequence[str], record: Record) -> None:
    """Refuse what a decoder gave for ``record`` unless it is a list with a value for each item.

    Raises:
        WrongTypeError: it is not a list.
        UsageError: it has another number of values.
    """
    if isinstance(row, list | tuple) and len(row) == len(items):
        return
    path, (_, where) = record[1].path, place_of(record)
    hint = "decode gives a value for each item that it is asked for, in their order."
    start = f"{path}: record at {where}: the decoder {type(decoder).__name__} gave "
    if not isinstance(row, list | tuple):
        raise WrongTypeError(f"{start}a {type(row).__name__} for the items {', '.join(items)}, and no list", hint=hint)
    values = f"{len(row)} value{'s' * (len(row) != 1)}"
    raise UsageError(f"{start}{values} for the items {', '.join(items)}", hint=hint)


def _bytes_of(records: list[Record]) -> int:
    return sum(map(len, map(_VALUE, records)))


def _num_bytes(column: npt.NDArray[Any]) -> int:
    """About what the arrays of a column take, by some of them; texts are no more than the records that they are of."""
    if column.dtype.kind != "O":
        return column.nbytes
    step = max(1, column.size // _LOOKED_AT)
    return step * sum(value.nbytes for value in column.flat[::step] if isinstance(value, np.ndarray))


def _rows_of(column: npt.NDArray[Any], start: int, stop: int) -> npt.NDArray[Any]:
    """Some rows of a column, as they would be without the others: an array where they are alike."""
    is_whole = stop - start == len(column)
    if column.dtype.kind != "O" or column.ndim > 1 or is_whole or isinstance(column, np.ma.MaskedArray):
        return column[start:stop]
    return stack_items(list(column[start:stop]))
