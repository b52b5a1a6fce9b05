"""Decodes the records that leave the buffer of a reader, many at once if the same items are requested repeatedly.

It starts no threads. Each call for the same items decodes twice as many records as the call before, up to a limit. If
other items are requested, the records that were not returned yet are decoded again, so that no record is repeated or
lost. ``DatasetDataProvider`` uses it between its reader and its decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import OutOfRangeError, UsageError, WrongTypeError
from registry.slim.data_decoder import DataDecoder, fill_up, stack_items
from registry.slim.parallel_reader import ParallelReader
from registry.slim.readers import VALUE, Record, place_of, raise_of_record
from registry.tfrecord import RecordBlock

_MOST_TOGETHER: Final = 512
_MOST_IN_BATCHES: Final = 4096
_BYTES_TOGETHER: Final = 2**20
_DECODED_BYTES: Final = 2**24
"""Maximum size, in bytes, of batches that are decoded ahead, estimated from the batches before."""

_LOOKED_AT: Final = 64


class DecodingAhead:
    """The decoded records of a reader, one by one or in batches. Only one caller at a time may use it.

    Records stay in the buffer of the reader until their values are returned, so no value has to be kept: if other items
    are requested, or a call is interrupted, decoding begins again with the first record that was not returned.

    Args:
        reader: the reader of the records.
        decoder: the decoder of the records.
    """

    def __init__(self, reader: ParallelReader, decoder: DataDecoder) -> None:
        self._reader = reader
        self._decoder = decoder
        self._request: object = None
        self._values: Iterator[Any] = iter(())
        self._single_rows: list[list[Any]] = []  # the values of the next records, if they were decoded one by one

    def next_row(self, items: Sequence[str]) -> tuple[Record, list[Any]]:
        """The next record, and the values of ``items`` in it.

        Raises:
            OutOfRangeError: there are no more records; it is a StopIteration.
            CorruptRecordError, ShardMismatchError, StorageError: a file is damaged or cannot be read.
            Exception: the decoder raised it; it names the record, and the next call continues after it.
        """
        row: tuple[Record, list[Any]] = self._next(_decode_rows, tuple(items))
        return row

    def next_batch(
        self, items: Sequence[str], size: int, *, drop_remainder: bool, pad: bool
    ) -> tuple[list[Record], list[npt.NDArray[Any]]]:
        """The next ``size`` records, fewer at the end, and a column for each of ``items``.

        If ``decode_batch`` fails, records are decoded one by one.

        Raises:
            OutOfRangeError: there are no more records, or with ``drop_remainder`` no more whole batches.
            WrongTypeError: values cannot be padded; raised with every call.
            CorruptRecordError, ShardMismatchError, StorageError: a file is damaged or cannot be read.
            Exception: the decoder raised it. Raised before the batch with this record; the next call continues.
        """
        batch: tuple[list[Record], list[npt.NDArray[Any]]] = self._next(
            _decode_batches, tuple(items), size, drop_remainder, pad
        )
        return batch

    def _next(self, decode: Callable[..., Iterator[Any]], *request: Any) -> Any:
        if self._request != (decode, request) or self._reader.is_closed:
            self._values, self._single_rows = iter(()), []
            self._request = decode, request
        # The iterator has ended if it raised or was interrupted, and at the end of the records, which peek() raises.
        while (result := next(self._values, None)) is None:
            self._reader.peek()
            self._values = decode(self._reader, self._decoder, self._single_rows, *request)
        return result


def _decode_rows(
    reader: ParallelReader, decoder: DataDecoder, _: list[list[Any]], items: Sequence[str]
) -> Iterator[tuple[Record, list[Any]]]:
    num_together = 1
    while records := _peek(reader, num_together):
        records = records[: max(1, _num_within(records))]
        rows: Iterator[list[Any]]
        if not items:
            rows = repeat([])
        elif len(records) == 1:
            rows = (decoder.decode(record[0], items) for record in records)
        else:
            rows = iter(decoder.decode_rows(_block_of(records), items))
        for record in records:
            try:
                row = next(rows)
            except Exception as error:
                reader.skip(1)
                if isinstance(error, StopIteration):
                    raise UsageError(
                        f"{type(decoder).__name__}.decode_rows must return a row for each record, and returned fewer",
                        hint="Return a row for each record of the block, or raise an error.",
                    ) from error
                raise_of_record(error, record)
            reader.skip(1)
            check_row(decoder, row, items, record)
            yield record, row
        num_together = min(2 * num_together, _MOST_TOGETHER)


def _decode_batches(
    reader: ParallelReader,
    decoder: DataDecoder,
    single_rows: list[list[Any]],
    items: Sequence[str],
    size: int,
    drop_remainder: bool,
    pad: bool,
) -> Iterator[tuple[list[Record], list[npt.NDArray[Any]]]]:
    """Decode the next batch, and further batches of records that are already available."""
    num_together = largest = 1
    while records := _peek(reader, size, most_bytes=None):
        if num_together >= 2 * size:
            records = _peek(reader, num_together // size * size)
            # The batches before do not tell how much memory far larger records need.
            num_alike = next((n for n, record in enumerate(records) if len(record[0]) > 4 * largest), len(records))
            records = records[: max(min(_num_within(records), num_alike) // size * size, size)]
        largest = max(len(record[0]) for record in records)
        columns = None if single_rows else _decode_together(decoder, records, items)
        if columns is None:
            records, num_together = records[:size], 1
            columns = _decode_each(reader, decoder, single_rows, records, items)
        else:
            num_bytes = max(1, sum(map(_num_bytes, columns)))
            num_together = min(2 * len(records), _MOST_IN_BATCHES, _DECODED_BYTES * len(records) // num_bytes)
        for start in range(0, len(records), size):
            batch = records[start : start + size]
            rows = [_rows_of(column, start, start + len(batch)) for column in columns]
            if pad:
                rows = list(map(fill_up, rows))
            reader.skip(len(batch))
            if len(batch) == size or not drop_remainder:
                yield batch, rows


def _decode_together(
    decoder: DataDecoder, records: list[Record], items: Sequence[str]
) -> list[npt.NDArray[Any]] | None:
    """The columns of some records; None if they have to be decoded one by one, which finds errors."""
    if not items:
        return []
    try:
        columns = list(decoder.decode_batch(_block_of(records), items))
    except Exception:  # noqa: BLE001 (decoding one by one finds the record and raises its error)
        return None
    is_right = [len(column) for column in columns if isinstance(column, np.ndarray)] == [len(records)] * len(items)
    return columns if is_right else None


def _decode_each(
    reader: ParallelReader,
    decoder: DataDecoder,
    single_rows: list[list[Any]],
    records: list[Record],
    items: Sequence[str],
) -> list[npt.NDArray[Any]]:
    """The columns of some records, decoded one by one.

    A record that cannot be decoded is dropped and its error raised; ``single_rows`` keeps the rows before it.
    """
    for record in records[len(single_rows) :]:
        try:
            single_rows.append(decode_record(decoder, record, items))
        except Exception:
            reader.drop(len(single_rows))
            raise
    rows = single_rows.copy()
    single_rows.clear()
    return [decoder.stack(item, [row[place] for row in rows]) for place, item in enumerate(items)]


def _peek(reader: ParallelReader, count: int, *, most_bytes: int | None = _BYTES_TOGETHER) -> list[Record]:
    """``ParallelReader.peek``; no records at the end, because a generator cannot raise the OutOfRangeError."""
    try:
        return reader.peek(count, most_bytes=most_bytes)
    except OutOfRangeError:
        return []


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


def _block_of(records: list[Record]) -> RecordBlock:
    values = list(map(VALUE, records))
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    return RecordBlock(np.frombuffer(b"".join(values), np.uint8), lengths.cumsum() - lengths, lengths)


def _num_within(records: list[Record]) -> int:
    """The number of records that have ``_BYTES_TOGETHER`` bytes at most."""
    ends = np.fromiter(map(len, map(VALUE, records)), np.int64, len(records)).cumsum()
    return int(np.searchsorted(ends, _BYTES_TOGETHER, side="right"))


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
