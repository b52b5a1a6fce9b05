"""Which records of an ArrayRecord file are wanted? Any of them, through the package ``array_record``, which reads it.

The file holds chunks with checksums, and at its end an index of all records, so that each is found at once. The package
reads files of this machine only, and says what is wrong with a file only as text, and only for all that it was asked
for: the bad record is found by asking again.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from registry.errors import CorruptRecordError, MissingExtraError, StorageError
from registry.shards.by_path import opened_by_path
from registry.shards.faults import bad_file, bad_record, check_promise
from registry.storage import Store
from registry.tfrecord import Places, RecordBlock

_NO_READ_AHEAD: Final = "readahead_buffer_size:0,max_parallelism:0"
_BUFFER_BYTES: Final = 2**16
"""Of a file that is read in runs; larger ones only cost memory for each open file."""


class ArrayRecordShard:
    """A shard file in ArrayRecord's format. The records are copied out of it."""

    def __init__(self, store: Store, name: str, *, num_records: int | None) -> None:
        self._path = _local_path(store, name)
        self._store, self._name = store, name
        self._promised = num_records
        self._reader = self._open()
        self.num_records: int = self._reader.num_records()

    def read(self, first: int, count: int) -> RecordBlock:
        """Records ``first`` to ``first + count``, checked."""
        stop = first + count
        check_promise(self._path, stop, found=self.num_records, promised=self._promised)
        if not count:
            return _block([])
        try:
            return _block(self._reader.read(first, stop))
        except RuntimeError as error:
            raise self._find_fault(range(first, stop), error) from error

    def gather(self, records: Places) -> RecordBlock:
        """These records, checked, in this order."""
        if not records.size:
            return _block([])
        check_promise(self._path, int(records.max()) + 1, found=self.num_records, promised=None)
        try:
            return _block(self._reader.read(records.tolist()))
        except RuntimeError as error:
            raise self._find_fault(records.tolist(), error) from error

    def _find_fault(self, records: Any, reason: RuntimeError) -> CorruptRecordError:
        """The error for the first of ``records`` that cannot be read alone."""
        self._reader = self._open()  # one that failed is of no use any more
        for record in records:
            try:
                self._reader.read([record])
            except RuntimeError as error:
                self._reader = self._open()
                return bad_record(self._path, record, error)
        return bad_record(self._path, next(iter(records)), reason)

    def _open(self) -> Any:
        module = _import_module()
        with self._store.open(self._name) as file, opened_by_path(file, self._path):  # it says what cannot be opened
            reader = module.ArrayRecordReader(self._path, _NO_READ_AHEAD, file_reader_buffer_size=_BUFFER_BYTES)
        if not reader.ok():  # it has no way to say why but to fail
            reason: object = ""
            try:
                reader.read([0])
            except (RuntimeError, IndexError) as error:
                reason = error
            raise bad_file(self._path, "array_record", reason)
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


def _block(records: list[bytes]) -> RecordBlock:
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    return RecordBlock(np.frombuffer(b"".join(records), np.uint8), lengths.cumsum() - lengths, lengths)


def _import_module() -> Any:
    try:
        from array_record.python import array_record_module
    except ImportError as error:
        raise MissingExtraError(
            package="array_record", extra="array-record", needed_for="reading array_record shards"
        ) from error
    return array_record_module
