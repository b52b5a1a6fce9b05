"""Which records of an ArrayRecord file are wanted? Any of them, through the package ``array_record``, which reads it.

The file holds chunks with checksums, and at its end an index of all records, so that each is found at once. The package
reads files of this machine only, and says what is wrong with a file only as text, and only for all that it was asked
for: the bad record is found by asking again.

Some files end the process that reads them (a chunk whose sizes are lies under a right checksum), so a worker process
does it, and hands the records out.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeAlias

import numpy as np

from registry.errors import CorruptRecordError, MissingExtraError, StorageError
from registry.shards.faults import bad_file, bad_record, check_promise
from registry.shards.isolated import WorkerEndedError, call_isolated
from registry.storage import Store
from registry.tfrecord import Places, RecordBlock
from registry.tfrecord.stamps import FileState

_NO_READ_AHEAD: Final = "readahead_buffer_size:0,max_parallelism:0"
_BUFFER_BYTES: Final = 2**16
"""Of a file that is read in runs; larger ones only cost memory for each open file."""
_MOST_OPEN: Final = 256
"""Files that a worker keeps open."""

_Wanted: TypeAlias = tuple[int, int] | list[int] | None
"""Records from the first to the last, which is not included; or these; or the number of all."""


class ArrayRecordShard:
    """A shard file in ArrayRecord's format. The records are copied out of it."""

    def __init__(self, store: Store, name: str, *, num_records: int | None) -> None:
        _require_package()
        self._path = _local_path(store, name)
        self._store, self._name = store, name
        self._promised = num_records
        self._state = self._look()
        try:
            self.num_records: int = self._ask(None)
        except WorkerEndedError as error:
            raise bad_file(self._path, "array_record", error) from error
        if self.num_records < 0:
            raise bad_file(self._path, "array_record", f"it claims {self.num_records} records")

    def read(self, first: int, count: int) -> RecordBlock:
        """Records ``first`` to ``first + count``, checked."""
        stop = first + count
        check_promise(self._path, stop, found=self.num_records, promised=self._promised)
        if not count:
            return _block(b"", b"")
        try:
            return _block(*self._ask((first, stop)))
        except WorkerEndedError as error:
            raise self._find_fault(range(first, stop), error) from error

    def gather(self, records: Places) -> RecordBlock:
        """These records, checked, in this order."""
        if not records.size:
            return _block(b"", b"")
        check_promise(self._path, int(records.max()) + 1, found=self.num_records, promised=None)
        wanted: list[int] = records.tolist()
        try:
            return _block(*self._ask(wanted))
        except WorkerEndedError as error:
            raise self._find_fault(wanted, error) from error

    def _look(self) -> FileState:
        """The state of the file that the store opens, which may have proved it."""
        with self._store.open(self._name) as file:  # it says what cannot be opened
            return FileState.of(os.fstat(file.fileno()))

    def _ask(self, wanted: _Wanted) -> Any:
        for _ in range(2):
            answer = call_isolated(read_from_file, (self._path, self._state, wanted), path=self._path)
            if answer is not None:
                return answer
            state = self._look()  # perhaps only its mode was changed
            if state._replace(ctime_ns=self._state.ctime_ns) != self._state:
                break
            self._state = state
        raise StorageError(
            f"cannot read {self._path}: it was replaced while it was open",
            hint="Published files never change. Find out what writes to it, then try again.",
            details={"path": self._path, "errno": None, "doing": "read"},
        )

    def _find_fault(self, records: Iterable[int], reason: WorkerEndedError) -> CorruptRecordError:
        """The error for the first of ``records`` that cannot be read alone."""
        for record in records:
            try:
                self._ask([record])
            except WorkerEndedError as error:
                return bad_record(self._path, record, error)
        return bad_record(self._path, next(iter(records)), reason)


_OPEN: Final[OrderedDict[str, tuple[FileState, Any]]] = OrderedDict()
"""The files that this worker has open, by path."""


def read_from_file(request: tuple[str, FileState, _Wanted]) -> Any:
    """What a worker does: the number of records of a file, or records, one after the other, and their lengths.

    None where the path does not lead to the file of that state any more.

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
        _OPEN.pop(path, None)  # one that failed is of no use any more
        raise WorkerEndedError(str(error)) from error
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    return b"".join(records), lengths.tobytes()


def _reader(path: str, state: FileState) -> Any:
    known, reader = _OPEN.pop(path, (None, None))
    if known != state:
        reader = _open(path)
        # A file that was put in its place for a moment, and the right one back, would have changed its times.
        if FileState.of(os.stat(path)) != state:  # noqa: PTH116 - a path of a store, as text
            return None
    _OPEN[path] = state, reader
    while len(_OPEN) > _MOST_OPEN:
        _OPEN.popitem(last=False)
    return reader


def _open(path: str) -> Any:
    from array_record.python import array_record_module

    reader = array_record_module.ArrayRecordReader(path, _NO_READ_AHEAD, file_reader_buffer_size=_BUFFER_BYTES)
    if not reader.ok():  # it has no way to say why but to fail
        reader.read([0])
        raise RuntimeError("it cannot be opened")
    return reader


def _local_path(store: Store, name: str) -> str:
    path = store.locate(name)
    if store.local_root is None:
        raise StorageError(
            f"cannot read {path}: ArrayRecord files can be read on this machine only",
            hint="Copy the dataset's folder to this machine, and import or read it there.",
            details={"path": path, "errno": None, "doing": "read"},
        )
    return path


def _block(data: bytes, lengths: bytes) -> RecordBlock:
    sizes = np.frombuffer(lengths, np.int64)
    return RecordBlock(np.frombuffer(data, np.uint8), sizes.cumsum() - sizes, sizes)


def _require_package() -> None:
    """Raise MissingExtraError where the package is not installed; the library itself is imported by the worker only."""
    try:
        found = find_spec("array_record.python.array_record_module") and import_module("array_record.python")
    except ImportError:
        found = None
    if found is None:
        raise MissingExtraError(package="array_record", extra="array-record", needed_for="reading array_record shards")
