"""Reads ArrayRecord files through the package ``array_record``, in a worker process.

A file consists of chunks with checksums, and an index of all records at its end. The package reads local files only,
and reports damage as one text for all records of a call, so further calls search for the bad record.

Some files crash the process that reads them (a chunk with wrong sizes and a valid checksum). So a worker process
reads the file and sends the records. It is started when it is first needed, and later calls reuse it. If a call
crashes it, hangs, or uses too much memory, the caller gets an error, and the next call gets another worker.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import TimeoutError as WaitedTooLongError
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeAlias

import numpy as np

from registry.engines import ForeignError, NotSendableError, Piece, WorkerDiedError, WorkerProcesses, num_cpus
from registry.errors import CorruptRecordError, MissingExtraError, RegistryError
from registry.shards.faults import bad_file, bad_record, check_promise
from registry.shards.row_groups import ShardFile
from registry.storage.faults import cannot
from registry.tfrecord import Places, RecordBlock
from registry.tfrecord.stamps import FileState

_NO_READ_AHEAD: Final = "readahead_buffer_size:0,max_parallelism:0"
_BUFFER_BYTES: Final = 2**16
"""Size of the buffer of a file that is read sequentially; larger ones only cost memory for each open file."""
_STEP_RECORDS: Final = 1024
_STEP_BYTES: Final = 8 * 2**20
_MOST_OPEN: Final = 256
"""Number of files that a worker keeps open."""

_Wanted: TypeAlias = tuple[int, int] | list[int] | None
"""What a call reads: the records of a half-open range, the records at these positions, or the number of records."""


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


_MOST_SECONDS: Final = 600
"""Time limit of one call, which reads some megabytes."""
_MOST_MEMORY: Final = 8 * 2**30
"""Limit of the address space of a worker."""


class WorkerEndedError(Exception):
    """A call crashed its worker, or raised an error that is not a RegistryError; the text says which."""


def call_isolated(function: Callable[[Any], Any], request: Any, *, path: str) -> Any:
    """Call ``function`` with ``request`` in a worker process, and return its result.

    Args:
        function: a function of a module, so that the worker can import it.
        request: its argument, which must be picklable.
        path: the path of the file that it reads, for errors.

    Raises:
        WorkerEndedError: the worker crashed, or the function raised an error that is not a RegistryError.
        StorageError: the worker was killed (as a system without free memory does), did not answer for ten minutes, or
            could not be started.
        RegistryError: the function raised it.
    """
    return _workers().call(function, request, path)


class _Workers:
    """The workers of this process: one for each concurrent call, at most one for each core."""

    def __init__(self) -> None:
        self._turns = threading.BoundedSemaphore(num_cpus())
        self._idle: list[WorkerProcesses] = []
        atexit.register(self.close)

    def call(self, function: Callable[[Any], Any], request: Any, path: str) -> Any:
        with self._turns:
            try:
                worker = self._idle.pop()
            except IndexError:
                worker = WorkerProcesses(1)
            answered = False
            try:
                answer = worker.submit(Piece(_limited(function), request)).result(timeout=_MOST_SECONDS)
                answered = True
            except NotSendableError:  # Python is embedded in another program, so no worker can be started
                return function(request)
            except ForeignError as error:
                answered = True
                kind, text = error.args
                raise WorkerEndedError(text if kind == WorkerEndedError.__name__ else f"{kind}: {text}") from error
            except RegistryError:
                answered = True
                raise
            except WorkerDiedError as error:
                raise _ended(error, path) from error
            except WaitedTooLongError as error:
                reason = f"the process that reads it did not answer for {_MOST_SECONDS} seconds"
                hint = "Check the disk, and the file with: registry verify"
                raise cannot("read", path, reason, hint=hint) from error
            finally:
                if answered:
                    self._idle.append(worker)
                else:
                    worker.close()
            return answer

    def close(self) -> None:
        """End the workers that are idle."""
        while self._idle:
            self._idle.pop().close()


def _ended(error: WorkerDiedError, path: str) -> Exception:
    code = error.details["exit_code"]
    if code is None or code == -signal.SIGKILL:
        reason = error.message if code is None else "the process that reads it was killed"
        return cannot("read", path, reason, hint="The system may be out of memory. Close other programs and try again.")
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return WorkerEndedError(f"reading it ended the process that read it, with {how}")


_OF_PROCESS: Final[dict[int, _Workers]] = {}


def _workers() -> _Workers:
    """The workers of this process; a forked child starts its own instead of using those of its parent."""
    # setdefault gives all threads the first pool that is set. A fork could copy a lock while it is held.
    return _OF_PROCESS.get(os.getpid()) or _OF_PROCESS.setdefault(os.getpid(), _Workers())


def _call_limited(function: Callable[[Any], Any], request: Any) -> Any:
    """Call the function in a worker with a limited address space, which is enough for any undamaged file."""
    _limit_memory()
    return function(request)


@cache
def _limited(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One object for each function, so that a worker receives each function once."""
    return partial(_call_limited, function)


@cache
def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = _MOST_MEMORY if hard == resource.RLIM_INFINITY else min(_MOST_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
