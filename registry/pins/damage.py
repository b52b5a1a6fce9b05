"""Which records of a file are damaged? Every one whose checksum is wrong, not only the first; and the framing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from registry.errors import CorruptRecordError, RegistryError
from registry.storage import Store
from registry.tfrecord import open_shard

_MOST_IN_BLOCK: Final = 1024


def check_framing(store: Store, name: str, *, num_records: int) -> None:
    """Walk a whole file from length to length, without a look at what its records hold.

    Raises:
        CorruptRecordError, ShardMismatchError, StorageError: it cannot be walked to its end, or holds another number
            of records: then every record in it may be another one for other readers.
    """
    shard = open_shard(store, name, num_records=num_records, verify="off")
    for first in range(0, num_records, _MOST_IN_BLOCK):
        shard.read(first, min(_MOST_IN_BLOCK, num_records - first))


def find_damaged(store: Store, name: str, *, num_records: int) -> Iterator[RegistryError]:
    """The faults of the first ``num_records`` of a file, one after the other, until one hides the rest.

    Those after them are nobody's: a gzip file of some kilobytes may hold millions.
    """
    try:
        shard = open_shard(store, name, verify="record")
    except RegistryError as error:
        yield error
        return
    first, count = 0, _MOST_IN_BLOCK
    while first < num_records:
        try:
            shard.read(first, min(count, num_records - first))
        except CorruptRecordError as error:
            yield error
            if error.details["record"] < first:
                return
            first, count = error.details["record"] + 1, _MOST_IN_BLOCK
            try:
                open_shard(store, name, verify="off").read(first - 1, 1)
            except RegistryError:  # its header is damaged: where the next one begins is not known
                return
        except RegistryError:  # fewer than that are left
            if count == 1:
                return
            count = max(count // 2, 1)
        else:
            first += min(count, num_records - first)
