"""``CachedFile``: an open file of another machine that reads blocks from the cache, and fetches only the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from registry.storage.cache.blocks import BLOCK_BYTES, CachedBlocks
from registry.storage.faults import Range, StoredFile, check_ranges
from registry.storage.remote import Arrived, RangedFile, Request, batches


class CachedFile(RangedFile):
    """A published file: its blocks in the cache, and ``source`` for the others, which are then kept.

    ``source`` must return the published bytes, and send no request before it is read. If it has no ETag, it may be
    replaced at any time, so nothing from it is kept.
    """

    def __init__(self, blocks: CachedBlocks, source: StoredFile) -> None:
        super().__init__(path=source.path, num_bytes=blocks.num_bytes, entity_tag=source.entity_tag)
        self._reader = _BlockReader(blocks, source)

    def read_ranges(self, ranges: Sequence[Range], *, in_order: bool = False) -> Iterator[tuple[int, memoryview]]:
        """Yield the bytes of ``ranges``; concurrent requests fetch the blocks that the cache lacks."""
        self._require_open()
        return self._reader.read(check_ranges(ranges, self.num_bytes, self.path), in_order=in_order)


class _BlockReader:
    """Reads ranges by blocks. An iterator of the file uses it, also after the file is closed."""

    def __init__(self, blocks: CachedBlocks, source: StoredFile) -> None:
        self._blocks = blocks
        self._source = source

    def read(self, ranges: Sequence[Range], *, in_order: bool) -> Iterator[tuple[int, memoryview]]:
        """Begin to fetch the blocks that the cache lacks, and return an iterator over the bytes of ``ranges``."""
        needed = [one for batch in batches(ranges) for one in _plan_blocks(ranges, batch, self._blocks)]
        by_number: dict[int, Request] = {}
        for one in needed:
            by_number.setdefault(one.start // BLOCK_BYTES, one)
        missing = {
            number: self._to_fetch(one, ranges) for number, one in by_number.items() if not self._blocks.holds(number)
        }
        fetched = self._fetch(list(missing.values()))  # one call, so that several requests run ahead of the reader
        return self._arrive(ranges, needed, missing, fetched, in_order=in_order)

    def _arrive(
        self,
        ranges: Sequence[Range],
        needed: Sequence[Request],
        missing: dict[int, Request],
        fetched: Iterator[memoryview],
        *,
        in_order: bool,
    ) -> Iterator[tuple[int, memoryview]]:
        arrived = Arrived(ranges, in_order=in_order)
        if not in_order:
            yield from ((index, memoryview(b"")) for index, (start, stop) in enumerate(ranges) if start == stop)
        for one in needed:
            asked = missing.pop(one.start // BLOCK_BYTES, None)
            if asked is None:
                arrived.add(*self._load(one, ranges))
            else:
                arrived.add(asked, next(fetched))
            yield from arrived.take()
        yield from arrived.take()

    def _load(self, needed: Request, ranges: Sequence[Range]) -> tuple[Request, memoryview]:
        """The needed part of a block, from the cache; from the source if the block is damaged or gone by now."""
        part = _narrow(needed, ranges)
        found = self._blocks.load(needed.start // BLOCK_BYTES, part.start, part.stop)
        if found is not None:
            return part, found
        asked = self._to_fetch(needed, ranges)
        return asked, next(self._fetch([asked]))

    def _to_fetch(self, needed: Request, ranges: Sequence[Range]) -> Request:
        """The whole block; only what is needed of it if it cannot be kept."""
        return needed if self._blocks.can_be_kept else _narrow(needed, ranges)

    def _fetch(self, requests: Sequence[Request]) -> Iterator[memoryview]:
        """Begin to fetch ``requests``; the iterator returns their bytes in this order, and keeps whole blocks."""
        if not requests:
            return iter(())
        wanted = [(one.start, one.stop) for one in requests]
        return self._keep(wanted, self._source.read_ranges(wanted, in_order=True))

    def _keep(self, wanted: Sequence[Range], views: Iterator[tuple[int, memoryview]]) -> Iterator[memoryview]:
        for index, content in views:
            number = wanted[index][0] // BLOCK_BYTES
            if self._source.entity_tag is not None and wanted[index] == self._blocks.range_of(number):
                self._blocks.keep(number, content)
            yield content


def _narrow(request: Request, ranges: Sequence[Range]) -> Request:
    """The request for the part of a block from its first to its last byte that is wanted."""
    start = max(request.start, min(ranges[index][0] for index in request.wanted))
    stop = min(request.stop, max(ranges[index][1] for index in request.wanted))
    return Request(start, stop, request.wanted)


def _plan_blocks(ranges: Sequence[Range], batch: range, blocks: CachedBlocks) -> Iterator[Request]:
    """The blocks with bytes of the ranges of ``batch``, in the order in which they are needed."""
    wanted: dict[int, list[int]] = {}
    for index in batch:
        start, stop = ranges[index]
        for number in range(start // BLOCK_BYTES, -(-stop // BLOCK_BYTES) if start < stop else 0):
            wanted.setdefault(number, []).append(index)
    for number, indexes in wanted.items():
        yield Request(*blocks.range_of(number), tuple(indexes))
