"""Which records does a file hold that nobody counted? Read forwards, many at a time, with the place of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from registry.storage import Store
from registry.tfrecord.block import Places, RecordBlock
from registry.tfrecord.checking import Verify, check_verify
from registry.tfrecord.faults import HEADER_BYTES, no_such_record, not_so_many
from registry.tfrecord.framing import ByteStream
from registry.tfrecord.streams import is_gzip, stream_pieces
from registry.tfrecord.window import WINDOW_BYTES, Window


def read_blocks(
    store: Store,
    name: str,
    *,
    path: str | None = None,
    skip: int = 0,
    take: int | None = None,
    num_records: int | None = None,
    most: int = 1024,
    verify: Verify = "record",
    check_start: Callable[[bytes], None] | None = None,
) -> Iterator[tuple[RecordBlock, Places]]:
    """The records ``skip`` to ``skip + take`` of a shard file, in blocks, with the byte at which each frame begins.

    Memory holds a window of the file: 1 MiB, or one record where that is longer. A block is a view of it. The places
    count bytes of the content, which in a gzip file is what it inflates to.

    Args:
        store: the folder.
        name: of the file in it.
        path: what the file is called in errors about its records; where the store has it by default.
        skip: records to pass over, of which only the lengths are checked.
        take: how many to read then; None for all.
        num_records: how many records the file should hold; None where nobody knows.
        most: records of a block, at most.
        verify: how checksums are checked, see ``open_shard``.
        check_start: is called with the first 12 bytes of the file, or fewer where it is shorter, to refuse them.

    Raises:
        CorruptRecordError: a record is damaged, or the file is cut off; all before it were yielded.
        ShardMismatchError: the file holds fewer records than asked for, or not ``num_records``.
        StorageError: the file cannot be read.
        UsageError: another ``verify``.
    """
    check_verify(verify)
    path = store.locate(name) if path is None else path
    stop = num_records if take is None else skip + take
    with store.open(name) as file:
        start = file.read(HEADER_BYTES)
        if check_start is not None:
            check_start(start)
        size = store.size(name)
        if is_gzip(start):
            stream = stream_pieces(file.read, start, size=size, path=path)
        else:
            more = partial(file.read, WINDOW_BYTES)
            stream = ByteStream(path=path, start=start, more=more, limit=size, compressed=False)
        window = Window(stream, file.close, record=0, base=0)
        try:
            while window.record < skip:
                window.take(skip - window.record, "off")
            while stop is None or window.record < stop:
                block = window.take(most if stop is None else min(most, stop - window.record), verify)
                yield block, window.places_of(block)
        except EOFError:
            if num_records is not None:
                raise not_so_many(path, num_records, found=window.record) from None
            least = skip + (take or 0)
            if window.record < least:
                raise no_such_record(path, least - 1, found=window.record) from None
            return
        if stop == num_records:
            window.check_end()
