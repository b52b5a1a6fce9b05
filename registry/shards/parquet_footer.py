"""Reads the footer of a Parquet file through pyarrow, and checks it.

pyarrow 26 ends the process if a column of a damaged footer is requested (``.column(...)``, ``.statistics``), by an
unexpected C++ exception. It also allocates memory for the numbers of values that a footer claims, and for the sizes
that pages claim. So pyarrow first reads the footer of a file without a proof in a worker process. Row groups must have
the columns of the schema with consistent sizes, and row groups that could decompress to too much are also first read
there.

    ... pages ... | footer, a Thrift struct | its length, u32 | PAR1
"""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock
from typing import Any, Final, NamedTuple, TypeAlias

from registry.shards.arrow_values import import_pyarrow
from registry.shards.isolated import WorkerEndedError, call_isolated
from registry.storage.faults import StoredFile
from registry.storage.memory import FileState

MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
_END_BYTES: Final = 8
_TAIL_BYTES: Final = 2**16
"""Number of bytes that are read at the end of a file first; most footers are smaller."""
_MOST_BYTES: Final = 2**25
"""Largest footer. It is read into memory as a whole."""
_MOST_PATH_BYTES: Final = 2**26
"""Largest total length of the paths of all columns and their groups, because pyarrow creates a str for each."""


class ColumnChunk(NamedTuple):
    """The pages of one column in a row group: bytes ``start`` to ``stop`` of the file."""

    start: int
    stop: int
    codec: str
    num_values: int
    num_bytes: int
    """Size of the pages when decompressed."""
    null_count: int | None
    """Number of nulls, or None if the statistics lack it."""


class RowGroup(NamedTuple):
    """The facts in the footer about a row group."""

    num_rows: int
    num_bytes: int
    """Uncompressed size of its columns."""
    columns: tuple[ColumnChunk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """The checked footer of a file.

    Attributes:
        content: the bytes of a Parquet file that has only this footer; pyarrow reads it instead of the file.
        column_paths: the path of each column in the schema, such as ``image.bytes``.
        row_groups: the row groups in order.
        unproved: the state of a local file whose sha256 is not proved; None for any other.
        sound_groups: the row groups of an unproved file whose pages were measured.
    """

    content: bytes
    column_paths: tuple[str, ...]
    row_groups: tuple[RowGroup, ...]
    unproved: FileState | None
    sound_groups: set[int]

    @property
    def num_columns(self) -> int:
        """Number of columns as Parquet counts them: each field of a struct is a column."""
        return len(self.column_paths)


def read_footer(file: StoredFile, *, is_local: bool, is_proved: bool) -> Footer:
    """Read and check the footer of an open Parquet file, in a worker process unless its sha256 is proved.

    Raises:
        ValueError, WorkerEndedError: the footer is missing or invalid. The text says why.
        StorageError: the worker did not answer, or could not be started.
        OSError: the file cannot be read.
    """
    content, start = _read_content(file)
    if is_proved:
        paths, row_groups = describe_footer((content, start))
        state, sound_groups = None, set[int]()
    else:
        state = FileState.of(os.fstat(file.fileno())) if is_local else None
        (paths, row_groups), sound_groups = _CHECKED.find(content, start, state, file.path)
    return Footer(content=content, column_paths=paths, row_groups=row_groups, unproved=state, sound_groups=sound_groups)


def _read_content(file: StoredFile) -> tuple[bytes, int]:
    """The footer between the magic bytes, and where it begins in the file."""
    size = file.seek(0, io.SEEK_END)
    tail = _read_end(file, size, min(size, _TAIL_BYTES))
    if tail[-4:] == _ENCRYPTED:
        raise ValueError("it is encrypted")
    if size < 4 + _END_BYTES or tail[-4:] != MAGIC:
        raise ValueError(f"it does not end with {MAGIC.decode()}")
    length = int.from_bytes(tail[-8:-4], "little")
    start = size - _END_BYTES - length
    if start < 4:
        raise ValueError(f"its footer claims {length} bytes, but the file has {size}")
    if length > _MOST_BYTES:
        raise ValueError(f"its footer has {length} bytes, more than {_MOST_BYTES}")
    if length + _END_BYTES > len(tail):
        tail = _read_end(file, size, length + _END_BYTES)
    return MAGIC + tail[-(length + _END_BYTES) :], start


def _read_end(file: StoredFile, size: int, count: int) -> bytes:
    file.seek(size - count)
    tail = file.read(count)
    if len(tail) != count:
        raise ValueError(f"it was truncated while it was read: {count - len(tail)} bytes are missing")
    return tail


_Checked: TypeAlias = tuple[tuple[str, ...], tuple[RowGroup, ...]]


class _CheckedFooters:
    """Cached results of the footers that were checked last, so that a file is not checked again when it is reopened."""

    _MOST_CHUNKS: Final = 2**18

    def __init__(self) -> None:
        self._results: OrderedDict[bytes, tuple[_Checked, set[int]]] = OrderedDict()
        self._num_chunks = 0
        self._lock = Lock()

    def find(self, content: bytes, start: int, state: FileState | None, path: str) -> tuple[_Checked, set[int]]:
        """The result of ``describe_footer`` in a worker process, and the row groups whose pages were measured.

        A local file has a result of its own for each state, because only its footer is compared.
        """
        state_bytes = b"" if state is None else state.content()
        key = blake2b(content, digest_size=32, salt=start.to_bytes(8, "little"), key=state_bytes).digest()
        with self._lock:
            result = self._results.get(key)
            if result is not None:
                self._results.move_to_end(key)
                return result
        result = call_isolated(describe_footer, (content, start), path=path), set[int]()
        with self._lock:
            if key not in self._results:
                self._results[key] = result
                self._num_chunks += _num_chunks(result[0])
            while self._num_chunks > self._MOST_CHUNKS and len(self._results) > 1:
                self._num_chunks -= _num_chunks(self._results.popitem(last=False)[1][0])
        return result


def _num_chunks(checked: _Checked) -> int:
    return 1 + max(1, len(checked[0])) * len(checked[1])


_CHECKED: Final = _CheckedFooters()


def describe_footer(request: tuple[bytes, int]) -> _Checked:
    """The paths of the columns and the row groups of a footer that begins at the byte ``start`` of its file.

    Called in a worker process unless the file is proved.

    Raises:
        WorkerEndedError: the footer is invalid. Some invalid footers end the process.
    """
    arrow = import_pyarrow()
    try:
        return _describe(arrow.BufferReader(request[0]), request[1])
    except (arrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise WorkerEndedError(str(error)) from error


def _describe(source: Any, start: int) -> _Checked:
    from pyarrow import parquet

    metadata = parquet.read_metadata(source)
    leaves = [metadata.schema.column(place) for place in range(metadata.num_columns)]
    paths = tuple(_read_paths(leaves))
    groups = tuple(
        _read_row_group(metadata.row_group(place), leaves, start) for place in range(metadata.num_row_groups)
    )
    num_rows = sum(group.num_rows for group in groups)
    if num_rows != metadata.num_rows:
        raise ValueError(f"expected {metadata.num_rows} rows, its row groups have {num_rows}")
    return paths, groups


def _read_paths(leaves: Iterable[Any]) -> Iterator[str]:
    num_bytes = 0
    for leaf in leaves:
        path = leaf.path
        num_bytes += len(path.encode()) * (path.count(".") + 1)
        if num_bytes > _MOST_PATH_BYTES:
            raise ValueError(f"the paths of its columns take more than {_MOST_PATH_BYTES} bytes")
        yield path


def _read_row_group(group: Any, leaves: list[Any], end: int) -> RowGroup:
    """Read a row group, whose pages must end before the byte ``end`` of the file."""
    if group.num_columns != len(leaves):
        raise ValueError(f"a row group has {group.num_columns} columns, the schema {len(leaves)}")
    num_rows = _count(group.num_rows, "num_rows")
    columns = tuple(_read_chunk(group.column(place), leaf, num_rows, end) for place, leaf in enumerate(leaves))
    return RowGroup(num_rows, _count(group.total_byte_size, "total_byte_size"), columns)


def _read_chunk(chunk: Any, leaf: Any, num_rows: int, end: int) -> ColumnChunk:
    name = leaf.name[:100]
    if chunk.physical_type != leaf.physical_type:
        raise ValueError(f"column {name!r}: expected type {leaf.physical_type}, found {chunk.physical_type}")
    num_values = _count(chunk.num_values, "num_values")
    if num_values != num_rows and not leaf.max_repetition_level:
        raise ValueError(f"column {name!r}: {num_values} values in {num_rows} rows")
    start = _count(chunk.data_page_offset, "data_page_offset")
    if 0 < (chunk.dictionary_page_offset or 0) < start:  # some writers write 0 if there is no dictionary page
        start = chunk.dictionary_page_offset
    stop = start + _count(chunk.total_compressed_size, "total_compressed_size")
    if stop > end:
        raise ValueError(f"column {name!r}: its pages end at byte {stop}, the footer is at {end}")
    statistics = chunk.statistics if chunk.is_stats_set else None
    nulls = statistics.null_count if statistics is not None and statistics.has_null_count else None
    return ColumnChunk(
        start=start,
        stop=stop,
        codec=chunk.compression,
        num_values=num_values,
        num_bytes=_count(chunk.total_uncompressed_size, "total_uncompressed_size"),
        null_count=nulls if nulls is not None and 0 <= nulls <= num_values else None,
    )


def _count(value: int, name: str) -> int:
    if value < 0:
        raise ValueError(f"{name} is {value}")
    return value


def measure_row_group(request: tuple[str, FileState, bytes, int, int, int]) -> int | None:
    """Read a row group of a local file in a worker process, to see what memory it takes.

    Args:
        request: the path, the state and the footer of the file, the row group, the number of rows of a batch, and the
            number of bytes that are allowed.

    Returns:
        The most memory that pyarrow took at a time, or more than allowed if the worker has no more; None if the file is
        no longer in this state. The caller meets other faults of the pages when it reads them.
    """
    from pyarrow import parquet

    path, state, content, group, most_rows, most = request
    arrow = import_pyarrow()
    before = arrow.default_memory_pool()
    if not _POOLS or _POOLS[-1].max_memory() > most:
        _POOLS.append(arrow.proxy_memory_pool(before))
    peak = _POOLS[-1].max_memory
    source = arrow.OSFile(path)
    if FileState.of(os.stat(path)) != state:  # noqa: PTH116 (the store has the path as a str)
        return None
    arrow.set_memory_pool(_POOLS[-1])
    try:
        file = parquet.ParquetFile(source, metadata=parquet.read_metadata(arrow.BufferReader(content)))
        for _ in file.iter_batches(most_rows, row_groups=[group]):
            if peak() > most:
                break
    except MemoryError:
        return most + 1
    except (arrow.ArrowException, OSError, ValueError, OverflowError):
        pass
    finally:
        arrow.set_memory_pool(before)
    return int(peak())


_POOLS: Final[list[Any]] = []
"""Counts the memory of this worker. It stays until a file has taken too much, because Arrow's objects refer to it."""
