"""Opens a TFRecord file to read any of its records, many at once.

plain local file               ->  MappedShard    any records, by an index that is made while they are read
gzip, or on another machine    ->  StreamedShard  forwards; any records, once their positions are known
"""

from __future__ import annotations

import os

from registry.storage import Store
from registry.storage.faults import storage_errors
from registry.storage.memory import FileState
from registry.tfrecord.block import Verify, check_verify
from registry.tfrecord.framing import HEADER_BYTES, is_gzip
from registry.tfrecord.index import IndexFolder
from registry.tfrecord.mapped import MappedShard
from registry.tfrecord.streamed import StreamedShard


def open_shard(
    store: Store,
    name: str,
    *,
    num_records: int | None = None,
    verify: Verify = "record",
    indexes: IndexFolder | None = None,
) -> MappedShard | StreamedShard:
    """Open a shard file to read any of its records.

    Args:
        store: the folder.
        name: the file's name in it.
        num_records: the number of records that it should have, or None if unknown.
        verify: ``record`` checks the checksum of each record separately; ``block`` checks many records of equal length
            in one pass over their bytes, which finds the same damage; ``off`` checks only the lengths.
        indexes: the folder in which the positions of records are kept for the next time; None keeps nothing.

    Raises:
        StorageError: the file is missing, or cannot be read.
        UsageError: ``verify`` has another value.
    """
    check_verify(verify)
    file, path = store.open(name), store.locate(name)
    mapped = file.mapping()
    if mapped is None or is_gzip(mapped[:HEADER_BYTES]):
        return StreamedShard(file, path, num_records=num_records, verify=verify, indexes=indexes)
    with file, storage_errors("read", path):
        state = FileState.of(os.fstat(file.fileno()))
    return MappedShard(mapped, path, state, num_records=num_records, verify=verify, indexes=indexes)
