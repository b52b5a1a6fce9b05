"""Decodes the row groups of a Parquet file when their records are needed, and caches them.

A row group, some hundred or thousand rows, is the smallest part of a Parquet file that is decoded. Decoded groups are
kept in a cache of bounded size that the open files of a reader share, so memory holds the cache and one more group.
Sequential reads get a thousand rows at a time and are not cached. The next row groups of a file on another machine are
requested while the present one is used.

A few hundred bytes of a file can repeat a value a billion times. A row group of more than 2 GiB is refused: before it
is decoded if the footer states its size, otherwise as soon as that many bytes are decoded. If the pages of a local file
without a proof may decompress to much more than the footer states, a worker process reads the row group first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, BinaryIO, Final

import numpy as np

from registry.errors import RegistryError
from registry.features import FeaturesDict
from registry.shards.arrow_values import import_pyarrow
from registry.shards.blocks import Block, BlockCache, join_blocks
from registry.shards.faults import bad_file, bad_rows, check_promise, huge_rows
from registry.shards.isolated import WorkerEndedError, call_isolated
from registry.shards.parquet_footer import Footer, measure_row_group, read_footer
from registry.storage import Store
from registry.storage.faults import Range, StoredFile, cannot, storage_error, storage_errors
from registry.storage.memory import FileState
from registry.storage.remote import RangeReader
from registry.tfrecord import Places, Verify
from registry.tfrecord.streams import MOST_INFLATION

_BATCH_ROWS: Final = 8192
_STREAM_ROWS: Final = 1024  # few, because a page may store one long value that all its rows repeat
_MOST_BYTES: Final = 2**31
"""Largest size of a row group, encoded or decoded."""
_VALUE_BYTES: Final = 8
_MOST_ROWS: Final = 2**62
"""Largest number of rows of a file, so that positions of records fit 64 bits."""
_INFLATION: Final = {"UNCOMPRESSED": 1, "SNAPPY": 32, "GZIP": MOST_INFLATION, "LZ4": 256, "ZSTD": 2**15}
"""Largest number of bytes to which one byte decompresses, by codec; unknown for others."""
_HOLE_BYTES: Final = 2**13
"""pyarrow reads columns that are closer together than this in one piece."""
_MOST_FETCHED: Final = 2**28
"""Most bytes of a remote row group that are fetched at once; a footer may claim the same bytes many times."""
_MOST_WANTED: Final = 2**26
"""Most bytes of row groups that the files of a reader request before they are needed."""
_WHOLE_VALUES: Final = 2**23
"""Most values of a row group that is decoded in one piece."""


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A shard file and how it is read: see ``registry.shards.open_shard``.

    A file whose sha256 was compared with the published one ``is_proved``, as one with a ``published_sha256`` is.
    """

    store: Store
    name: str
    features: FeaturesDict | None = None
    num_records: int | None = None
    verify: Verify = "record"
    cache: BlockCache | None = None
    is_proved: bool = False


class RowGroupShard:
    """A shard file in Parquet's format; ``make_block`` converts an Arrow table to a block of records."""

    def __init__(self, file: ShardFile, *, make_block: Callable[[Any], Block], columns: list[str] | None) -> None:
        self._name = file.name
        self._path = file.store.locate(file.name)
        self._promised = file.num_records
        self._make_block = make_block
        self._columns = columns
        self._cache = BlockCache() if file.cache is None else file.cache
        self._file, self.footer, self._source = open_parquet(file, self._cache)
        sizes = [group.num_rows for group in self.footer.row_groups]
        self.num_records: int = sum(sizes)
        if self.num_records >= _MOST_ROWS:
            raise bad_file(self._path, "parquet", f"it claims {self.num_records} rows")
        self._ends: Places = np.cumsum(sizes, dtype=np.int64)
        self._starts: Places = self._ends - np.array(sizes, np.int64)
        for group in range(len(sizes)):
            self._check_size(group)

    @property
    def schema(self) -> Any:
        """The file's Arrow schema."""
        return self._file.schema_arrow

    @property
    def num_column_bytes(self) -> int:
        """The uncompressed size of the columns in bytes."""
        return sum(group.num_bytes for group in self.footer.row_groups)

    def want(self, records: Places) -> int:
        """Begin to fetch the row groups of ``records``, which the caller will read next, from another machine.

        Returns:
            The number of bytes that were requested now.
        """
        if self._source is None:
            return 0
        groups = np.unique(np.searchsorted(self._ends, records, side="right"))
        return sum(self._want(group, self._columns) for group in groups[groups < self._ends.size].tolist())

    def forget_wanted(self) -> None:
        """Drop what ``want`` began to fetch."""
        if self._source is not None:
            self._source.forget_wanted()

    def _want(self, group: int, columns: list[str] | None) -> int:
        if self._source is None or self._cache.find(self._name, group) is not None:
            return 0
        return self._source.want(self._ranges(group, columns))

    def _ranges(self, group: int, columns: list[str] | None) -> list[Range]:
        """Where the column chunks of a row group are in the file. A column with dots may be a field of a struct."""
        names = None if columns is None else set(columns)
        paths = zip(self.footer.column_paths, self.footer.row_groups[group].columns, strict=True)
        return [
            (chunk.start, chunk.stop)
            for path, chunk in paths
            if names is None or not names.isdisjoint(accumulate(path.split("."), "{}.{}".format))
        ]

    def read(self, first: int, count: int) -> Block:
        """Read the records ``first`` to ``first + count`` (excluded)."""
        stop = first + count
        check_promise(self._path, stop, found=self.num_records, promised=self._promised)
        blocks: list[Block] = []
        while first < stop:
            group = self._group_of(first)
            start, end = int(self._starts[group]), min(int(self._ends[group]), stop)
            block = self._block(group, first)
            whole = end - first == block.num_records
            blocks.append(block if whole else block.take(np.arange(first - start, end - start)))
            first = end
        return join_blocks(blocks)

    def gather(self, records: Places) -> Block:
        """Read the records at these positions, in this order."""
        if not records.size:
            return join_blocks([])
        check_promise(self._path, int(records.max()) + 1, found=self.num_records, promised=None)
        groups = np.searchsorted(self._ends, records, side="right")
        by_group = np.argsort(groups, kind="stable")
        bounds = np.flatnonzero(np.diff(groups[by_group], prepend=-1, append=self._ends.size))
        blocks: list[Block] = []
        for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            wanted = records[by_group[start:stop]]
            group = int(groups[by_group[start]])
            blocks.append(self._block(group, int(wanted[0])).take(wanted - self._starts[group]))
        places = np.empty_like(by_group)
        places[by_group] = np.arange(by_group.size)
        return join_blocks(blocks).take(places)

    def stream(self, first: int, count: int) -> Iterator[Block]:
        """Yield the records ``first`` to ``first + count`` (excluded), a thousand at a time, without caching.

        It is meant for sequential reads: the rows before ``first`` in its row group are also decoded.
        """
        stop = first + count
        check_promise(self._path, stop, found=self.num_records, promised=self._promised)
        while first < stop:
            group = self._group_of(first)
            start = int(self._starts[group])
            if int(self._ends[group]) < stop:
                self._want(group, self._columns)
                self._want(self._group_of(int(self._ends[group])), self._columns)
            for table in self._read_tables(group, first, self._columns, _STREAM_ROWS):
                end = start + table.num_rows
                if end > first:
                    wanted = table.slice(first - start, min(end, stop) - first)
                    with _parquet_errors(self._path, self._fault(group, first)):
                        block = self._make_block(wanted)
                    yield block
                    first += block.num_records
                start = end
                if first >= stop:
                    return

    @property
    def filled_groups(self) -> list[int]:
        """The numbers of the row groups that have rows."""
        result: list[int] = np.flatnonzero(self._ends > self._starts).tolist()
        return result

    def read_tables(self, group: int, columns: list[str], *, most: int = _STREAM_ROWS) -> Iterator[Any]:
        """Yield a row group as ``pyarrow.Table``s of at most ``most`` rows, with these top-level columns only."""
        return self._read_tables(group, int(self._starts[group]), columns, most)

    def _group_of(self, record: int) -> int:
        return int(np.searchsorted(self._ends, record, side="right"))

    def _block(self, group: int, record: int) -> Block:
        result = self._cache.find(self._name, group)
        if result is None:
            result, num_bytes = self._decode(group, record)
            self._cache.keep(self._name, group, result, num_bytes)
        return result

    def _decode(self, group: int, record: int) -> tuple[Block, int]:
        tables, num_bytes = [], 0
        for table in self._read_tables(group, record, self._columns, _BATCH_ROWS):
            num_bytes += _num_bytes(table)
            if num_bytes > _MOST_BYTES:
                raise self._huge(group, f"takes more than {_MOST_BYTES} bytes once it is decoded")
            tables.append(table)
        with _parquet_errors(self._path, self._fault(group, record)):
            return self._make_block(_join_tables(tables)), num_bytes

    def _check_size(self, group: int) -> None:
        """Refuse a row group that is too large according to the footer. Raises ShardMismatchError."""
        about = self.footer.row_groups[group]
        num_bytes = max(about.num_bytes, sum(column.num_bytes for column in about.columns))
        if num_bytes > _MOST_BYTES:
            raise self._huge(group, f"takes {num_bytes} bytes, more than {_MOST_BYTES}")
        if about.num_rows * max(1, self.footer.num_columns) * _VALUE_BYTES > _MOST_BYTES:
            problem = f"holds {about.num_rows} rows of {self.footer.num_columns} columns"
            raise self._huge(group, f"{problem}, more than {_MOST_BYTES // _VALUE_BYTES} values")
        num_values = max((column.num_values for column in about.columns), default=0)
        if num_values > _MOST_BYTES:
            raise self._huge(group, f"holds {num_values} values of one column, more than {_MOST_BYTES}")

    def _rows(self, group: int) -> range:
        return range(int(self._starts[group]), int(self._ends[group]))

    def _huge(self, group: int, problem: str) -> RegistryError:
        return huge_rows(self._path, rows=self._rows(group), problem=problem)

    def _fault(self, group: int, record: int) -> Callable[[Exception], RegistryError]:
        return lambda reason: bad_rows(self._path, record, rows=self._rows(group), reason=reason)

    def _read_tables(self, group: int, record: int, columns: list[str] | None, most: int) -> Iterator[Any]:
        """Yield a row group, at most ``most`` rows at a time; ``record`` is the first that is needed, for errors."""
        start, stop = int(self._starts[group]), int(self._ends[group])
        tables = self._open_tables(group, stop - start, columns, most)
        while True:
            with _parquet_errors(self._path, self._fault(group, max(start, record))):
                table = next(tables, None)
                if table is not None:
                    # In a damaged file, a dictionary code may be outside the dictionary.
                    table.validate(full="dictionary<" in str(table.schema))
                    start += table.num_rows
                if start > stop or (table is None and start < stop):
                    raise ValueError(f"it has {start - int(self._starts[group])} rows")
            if table is None:
                return
            yield table

    def _check_pages(self, group: int) -> None:
        """Refuse a row group of an unproved local file whose pages take too much memory. Raises ShardMismatchError.

        The footer need not state these sizes. A worker process reads the row group, only if the codecs could inflate
        its pages that much, and only of files on this machine, because it would fetch a remote one again. One page of
        a column is in memory at a time, of 2 GiB at most.
        """
        footer = self.footer
        if footer.unproved is None or group in footer.sound_groups:
            return
        most = sum(
            min((chunk.stop - chunk.start) * _INFLATION.get(chunk.codec, _MOST_BYTES), _MOST_BYTES)
            for chunk in footer.row_groups[group].columns
        )
        if most > _MOST_BYTES:
            request = self._path, footer.unproved, footer.content, group, _STREAM_ROWS, _MOST_BYTES
            num_bytes = call_isolated(measure_row_group, request, path=self._path)
            if num_bytes is None:
                raise _replaced(self._path, "it was replaced while it was open")
            if num_bytes > _MOST_BYTES:
                raise self._huge(group, f"has pages that take more than {_MOST_BYTES} bytes of memory")
        footer.sound_groups.add(group)

    def _open_tables(self, group: int, num_rows: int, columns: list[str] | None, most: int) -> Iterator[Any]:
        self._check_pages(group)
        about = self.footer.row_groups[group]
        if self._source is not None:
            self._source.fetch(self._ranges(group, columns))
        # pyarrow allocates memory for all values that the footer claims if it reads a whole row group; for batches,
        # only for the values of their rows.
        num_values = sum(column.num_values for column in about.columns)
        if columns == [] or (
            num_rows <= most and num_values <= _WHOLE_VALUES
        ):  # without columns, one table has all rows
            yield self._file.read_row_group(group, columns=columns)
            return
        make_table = import_pyarrow().Table.from_batches
        for batch in self._file.iter_batches(most, row_groups=[group], columns=columns):
            yield make_table([batch])


def _num_bytes(table: Any) -> int:
    """The memory of a table in bytes, without dictionaries, which it may share with other tables."""
    types = import_pyarrow().types
    return sum(
        4 * table.num_rows if types.is_dictionary(column.type) else column.nbytes for column in table.itercolumns()
    )


def _join_tables(tables: list[Any]) -> Any:
    """The rows of all ``tables`` in chunks as long as possible, because taking rows from many chunks is slow."""
    if len(tables) == 1:
        return tables[0]
    joined = import_pyarrow().concat_tables(tables)
    return joined if "dictionary<" in str(joined.schema) else joined.combine_chunks()


class _FetchedFile(RangeReader):
    """A remote file for pyarrow: reads from the ranges that were fetched, and requests anything else separately."""

    def __init__(self, file: StoredFile, cache: BlockCache) -> None:
        """``cache`` counts what is requested before it is needed."""
        super().__init__(self._find, num_bytes=file.num_bytes)
        self._file = file
        self._cache = cache
        self._fetched: dict[Range, memoryview] = {}
        self._wanted: dict[tuple[Range, ...], Iterator[tuple[int, memoryview]]] = {}

    def want(self, ranges: list[Range]) -> int:
        """Begin to fetch ``ranges``, which ``fetch`` will be called for; returns the number of bytes.

        If too much is wanted already, ``fetch`` requests them.
        """
        spans = _spans(ranges)
        num_bytes = _length(spans)
        if spans in self._wanted or self._cache.num_wanted_bytes + num_bytes > _MOST_WANTED:
            return 0
        self._wanted[spans] = self._file.read_ranges(list(spans))
        self._cache.num_wanted_bytes += num_bytes
        return num_bytes

    def fetch(self, ranges: list[Range]) -> None:
        """Fetch ``ranges`` and drop the earlier ones. If they are too large, they are read one by one later."""
        self._fetched.clear()
        spans = _spans(ranges)
        arriving = self._wanted.pop(spans, None)
        if arriving is not None:
            self._cache.num_wanted_bytes -= _length(spans)
        elif _length(spans) <= _MOST_FETCHED:
            arriving = self._file.read_ranges(list(spans))
        self._fetched.update((spans[index], view) for index, view in arriving or ())

    def forget_wanted(self) -> None:
        """Cancel the requests that ``want`` began, and drop their bytes."""
        self._cache.num_wanted_bytes -= sum(map(_length, self._wanted))
        self._wanted.clear()

    def close(self) -> None:
        self.forget_wanted()
        super().close()

    def read(self, size: int = -1, /) -> bytes:
        place = self.tell()
        stop = self._file.num_bytes if size < 0 else min(place + size, self._file.num_bytes)
        content = self._find(place, max(place, stop))
        self.seek(place + len(content))
        return content

    def _find(self, start: int, stop: int) -> bytes:
        for (first, last), view in self._fetched.items():
            if first <= start and stop <= last:
                return bytes(view[start - first : stop - first])
        self._file.seek(start)
        return self._file.read(stop - start)


def _spans(ranges: list[Range]) -> tuple[Range, ...]:
    """``ranges`` in the order of the file; those that are close together become one."""
    spans: list[Range] = []
    for start, stop in sorted(ranges):
        if spans and start <= spans[-1][1] + _HOLE_BYTES:
            spans[-1] = spans[-1][0], max(spans[-1][1], stop)
        else:
            spans.append((start, stop))
    return tuple(spans)


def _length(spans: Iterable[Range]) -> int:
    return sum(stop - start for start, stop in spans)


def open_parquet(shard: ShardFile, cache: BlockCache) -> tuple[Any, Footer, _FetchedFile | None]:
    """Open a ``pyarrow.parquet.ParquetFile``; returns it, its footer, and the fetched ranges of a remote file or None.

    Do not request the column of a row group from the file: if that part of the footer is damaged, pyarrow 26 crashes
    the process. The footer has them, checked. ``cache`` counts what is requested before it is needed.

    Raises:
        ShardMismatchError: it is not a Parquet file, or its footer is damaged.
        StorageError: it is missing, or cannot be read.
        MissingExtraError: pyarrow is not installed.
    """
    arrow = import_pyarrow()
    from pyarrow import parquet

    store, path = shard.store, shard.store.locate(shard.name)
    with ExitStack() as stack, _parquet_errors(path, lambda reason: bad_file(path, "parquet", reason)):
        file = stack.enter_context(store.open(shard.name))
        is_proved = shard.is_proved or file.published_sha256 is not None
        footer = read_footer(file, is_local=store.local_root is not None, is_proved=is_proved)
        fetched = _FetchedFile(file, cache) if store.local_root is None else None
        source: Any = fetched
        if fetched is None:  # read by Arrow itself, without the interpreter's lock
            with opened_by_path(file, path), storage_errors("read", path):
                source = arrow.OSFile(path)
        # pyarrow gets the footer that was checked, and does not read the one in the file again.
        metadata = parquet.read_metadata(arrow.BufferReader(footer.content))
        opened = parquet.ParquetFile(source, metadata=metadata, page_checksum_verification=shard.verify != "off")
        if fetched is not None:
            stack.pop_all()
        return opened, footer, fetched


@contextmanager
def _parquet_errors(path: str, fault: Callable[[Exception], RegistryError]) -> Iterator[None]:
    """Raise faults of the file as ``fault`` makes them, and faults of the disk or the network as StorageError."""
    arrow = import_pyarrow()
    try:
        yield
    except RegistryError:
        raise
    except OSError as error:
        if error.errno is not None:
            raise storage_error(error, doing="read", path=path) from error
        raise fault(error) from error
    except (arrow.ArrowException, ValueError, OverflowError, WorkerEndedError) as error:
        raise fault(error) from error


@contextmanager
def opened_by_path(file: BinaryIO, path: str) -> Iterator[None]:
    """Check that a library that opens ``path`` in the block opens the same local file as ``file``.

    After the block, ``path`` must lead to the same file in the same state. This also detects a file that was replaced
    for a moment and put back, because its times have changed.

    Raises:
        StorageError: its metadata cannot be read, or it was replaced during the block.
    """
    with storage_errors("read", path):
        before = FileState.of(os.fstat(file.fileno()))
    yield
    with storage_errors("read", path):
        after = FileState.of(os.stat(path))  # noqa: PTH116 (the store has the path as a str)
    if after != before:
        raise _replaced(path, "it was replaced while it was opened")


def _replaced(path: str, reason: str) -> RegistryError:
    hint = "Published files never change. Find out what writes to it, then try again."
    return cannot("read", path, reason, hint=hint)
