"""Reads ArrayRecord files through the package ``array_record``, in a worker process.

A file consists of chunks with checksums, and an index of all records at its end. The package reads local files only,
and reports damage as one text for all records of a call, so further calls search for the bad record.

Some files crash the process that reads them (a chunk with wrong sizes and a valid checksum). So a worker process
(``isolated.py``) reads the file and sends the records.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeAlias

import numpy as np

from registry.errors import CorruptRecordError, MissingExtraError
from registry.shards.faults import bad_file, bad_record, check_promise
from registry.shards.isolated import WorkerEndedError, call_isolated
from registry.shards.row_groups import ShardFile
from registry.storage.faults import cannot
from registry.storage.memory import FileState
from registry.tfrecord import Places, RecordBlock

_NO_READ_AHEAD: Final = "readahead_buffer_size:0,max_parallelism:0"
_BUFFER_BYTES: Final = 2**16
"""Size of the buffer of a file that is read sequentially; larger ones only cost memory for each open file."""
_STEP_RECORDS: Final = 1024
_STEP_BYTES: Final = 8 * 2**20
_MOST_OPEN: Final = 256
"""Number of files that a worker keeps open."""

_Wanted: TypeAlias = tuple[int, int] | list[int] | None
"""The request of a call: the records of a half-open range, the records at these positions, or the number of records."""


class ArrayRecordShard:
    """A shard file in ArrayRecord's format. Records are copied from it."""

    def __init__(self, file: ShardFile) -> None:
        _require_package()
        self._store, self._name, self._promised = file.store, file.name, file.num_records
        self._path = self._store.locate(self._name)
        if self._store.local_root is None:
            hint = "Copy the dataset's folder to this machine, and import or read it there."
            raise cannot("read", self._path, "ArrayRecord files can be read on this machine only", hint=hint)
        self._state = self._look()
        try:
            self.num_records: int = self._ask(None)
        except WorkerEndedError as error:
            raise bad_file(self._path, "array_record", error) from error
        if self.num_records < 0:
            raise bad_file(self._path, "array_record", f"it claims {self.num_records} records")

    def read(self, first: int, count: int) -> RecordBlock:
        """Read and check the records ``first`` to ``first + count`` (excluded)."""
        stop = first + count
        check_promise(self._path, stop, found=self.num_records, promised=self._promised)
        if not count:
            return _block(b"", b"")
        try:
            return _block(*self._ask((first, stop)))
        except WorkerEndedError as error:
            raise self._find_fault(range(first, stop), error) from error

    def stream(self, first: int, count: int) -> Iterator[RecordBlock]:
        """Yield the records ``first`` to ``first + count`` (excluded), more of them at a time if they are short."""
        stop, step = first + count, 1
        while first < stop:
            block = self.read(first, min(step, stop - first))
            yield block
            first += block.num_records
            mean = block.num_bytes // block.num_records
            step = min(2 * step, _STEP_RECORDS, max(1, _STEP_BYTES // max(1, mean)))

    def gather(self, records: Places) -> RecordBlock:
        """Read and check the records at these positions, in this order."""
        if not records.size:
            return _block(b"", b"")
        check_promise(self._path, int(records.max()) + 1, found=self.num_records, promised=None)
        wanted: list[int] = records.tolist()
        try:
            return _block(*self._ask(wanted))
        except WorkerEndedError as error:
            raise self._find_fault(wanted, error) from error

    def _look(self) -> FileState:
        """The state of the file that the store opens; the store may have verified its content."""
        with self._store.open(self._name) as file:  # a file that cannot be opened raises StorageError here
            return FileState.of(os.fstat(file.fileno()))

    def _ask(self, file: _Wanted) -> Any:
        for _ in range(2):
            answer = call_isolated(read_from_file, (self._path, self._state, file), path=self._path)
            if answer is not None:
                return answer
            state = self._look()  # look again: perhaps only its permissions changed
            if state._replace(ctime_ns=self._state.ctime_ns) != self._state:
                break
            self._state = state
        hint = "Published files never change. Find out what writes to it, then try again."
        raise cannot("read", self._path, "it was replaced while it was open", hint=hint)

    def _find_fault(self, records: Iterable[int], reason: WorkerEndedError) -> CorruptRecordError:
        """Make the error for the first of ``records`` that cannot be read separately."""
        for record in records:
            try:
                self._ask([record])
            except WorkerEndedError as error:
                return bad_record(self._path, record, error)
        return bad_record(self._path, next(iter(records)), reason)


_OPEN: Final[OrderedDict[str, tuple[FileState, Any]]] = OrderedDict()
"""The open files of this worker, by path."""


def read_from_file(request: tuple[str, FileState, _Wanted]) -> Any:
    """Read in a worker: returns the number of records of a file, or the joined bytes of records and their lengths.

    Returns None if the file at the path is no longer in the given state.

    Raises:
        WorkerEndedError: the file, or a record of it, is damaged.
    """
    path, state, wanted = request
    try:
        reader = _reader(path, state)
        if reader is None:
            return None
        if wanted is None:
            return reader.num_records()
        records: list[bytes] = reader.read(*wanted) if isinstance(wanted, tuple) else reader.read(wanted)
    except (RuntimeError, IndexError, ValueError, OSError, MemoryError) as error:
        _OPEN.pop(path, None)  # a reader that has failed must not be used again
        raise WorkerEndedError(str(error)) from error
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    return b"".join(records), lengths.tobytes()


def _reader(path: str, state: FileState) -> Any:
    known, reader = _OPEN.pop(path, (None, None))
    if known != state:
        from array_record.python import array_record_module

        reader = array_record_module.ArrayRecordReader(path, _NO_READ_AHEAD, file_reader_buffer_size=_BUFFER_BYTES)
        if not reader.ok():  # the package does not report the reason
            reader.read([0])
            raise RuntimeError("it cannot be opened")
        # Detects also a file that was replaced for a moment and put back, because its times have changed.
        if FileState.of(os.stat(path)) != state:  # noqa: PTH116 (the store has the path as a str)
            return None
    _OPEN[path] = state, reader
    while len(_OPEN) > _MOST_OPEN:
        _OPEN.popitem(last=False)
    return reader


def _block(data: bytes, lengths: bytes) -> RecordBlock:
    sizes = np.frombuffer(lengths, np.int64)
    return RecordBlock(np.frombuffer(data, np.uint8), sizes.cumsum() - sizes, sizes)


def _require_package() -> None:
    """Raise MissingExtraError if the package is not installed; only the worker imports the library itself."""
    try:
        found = find_spec("array_record.python.array_record_module") and import_module("array_record.python")
    except ImportError:
        found = None
    if found is None:
        raise MissingExtraError(package="array_record", extra="array-record", needed_for="reading array_record shards")
