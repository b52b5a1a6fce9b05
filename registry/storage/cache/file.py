"""``CachedFile``: an open file of another machine that reads blocks from the cache, and fetches only missing blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final
from weakref import WeakValueDictionary

from registry.storage.cache.blocks import BLOCK_BYTES, CachedBlocks
from registry.storage.faults import Range, StoredFile, check_ranges
from registry.storage.remote import Arrived, RangedFile, Request, batches

_MOST_HELD: Final = 16
"""The maximum number of blocks in memory while an iterator waits for a block after them."""


class CachedFile(RangedFile):
    """A published file: its cached blocks, and ``source`` for the others, which are then cached.

    ``source`` must return the published bytes, and send no request before it is read. If it has no ETag, it may be
    replaced at any time, so its bytes are not cached.
    """

    def __init__(self, blocks: CachedBlocks, source: StoredFile) -> None:
        super().__init__(path=source.path, num_bytes=blocks.num_bytes, entity_tag=source.entity_tag)
        self._blocks = blocks
        self._source = source
        self._under_way: WeakValueDictionary[int, _Fetch] = WeakValueDictionary()

    def read_ranges(self, ranges: Sequence[Range], *, in_order: bool = False) -> Iterator[tuple[int, memoryview]]:
        """Yield the bytes of ``ranges``; concurrent requests begin to fetch the blocks that the cache lacks."""
        self._require_open()
        ranges = check_ranges(ranges, self.num_bytes, self.path)
        needed = [block for batch in batches(ranges) for block in _plan_blocks(ranges, batch, self._blocks)]
        by_number: dict[int, Request] = {}
        for block in needed:
            by_number.setdefault(block.start // BLOCK_BYTES, block)
        begun = {number: fetch for number in by_number if (fetch := self._begun(number)) is not None}
        missing = [
            self._to_fetch(block, ranges)
            for number, block in by_number.items()
            if number not in begun and not self._blocks.holds(number)
        ]
        if missing:  # a single fetch, so that several requests run ahead of the reader
            fetch = _Fetch(self._blocks, self._source, missing)
            begun |= dict.fromkeys(fetch.numbers, fetch)
            self._under_way.update((number, fetch) for number in fetch.numbers if fetch.is_whole(number))
        return self._arrive(ranges, needed, begun, in_order=in_order)

    def _begun(self, number: int) -> _Fetch | None:
        """Return the fetch of another iterator that will soon have this block."""
        fetch = self._under_way.get(number)
        return fetch if fetch is not None and fetch.will_have(number) else None

    def _arrive(
        self, ranges: Sequence[Range], needed: Sequence[Request], begun: dict[int, _Fetch], *, in_order: bool
    ) -> Iterator[tuple[int, memoryview]]:
        arrived = Arrived(ranges, in_order=in_order)
        if not in_order:
            yield from ((index, memoryview(b"")) for index, (start, stop) in enumerate(ranges) if start == stop)
        for block in needed:
            number = block.start // BLOCK_BYTES
            fetch = begun.pop(number, None)
            found = None if fetch is None else fetch.take(number)
            if found is None:
                arrived.add(*self._load(block, ranges))
            else:
                request, content = found
                arrived.add(replace(request, wanted=block.wanted), content)
            yield from arrived.take()
        yield from arrived.take()

    def _load(self, needed: Request, ranges: Sequence[Range]) -> tuple[Request, memoryview]:
        """Return the needed part of a block from the cache, or from the source if it is damaged or evicted."""
        part = _narrow(needed, ranges)
        result = self._blocks.load(needed.start // BLOCK_BYTES, part.start, part.stop)
        if result is not None:
            return part, result
        fetched = _Fetch(self._blocks, self._source, [self._to_fetch(needed, ranges)])
        found_now = fetched.take(needed.start // BLOCK_BYTES)
        assert found_now is not None  # noqa: S101 (narrows for the type checker: nobody else has this fetch)
        return found_now

    def _to_fetch(self, needed: Request, ranges: Sequence[Range]) -> Request:
        """Return the range of the whole block, or of its needed part if it cannot be cached."""
        return needed if self._blocks.can_be_kept else _narrow(needed, ranges)


class _Fetch:
    """Blocks that are being fetched in order, for the iterator that needed them first, and for later ones."""

    def __init__(self, blocks: CachedBlocks, source: StoredFile, requests: Sequence[Request]) -> None:
        """Begin to fetch ``requests``, at most one for each block."""
        self._blocks = blocks
        self._source = source
        self._requests = {request.start // BLOCK_BYTES: request for request in requests}
        self._numbers = list(self._requests)
        self._order = {number: place for place, number in enumerate(self._numbers)}
        self._arrived: dict[int, memoryview] = {}
        self._num_arrived = 0
        self._has_failed = False
        self._views = source.read_ranges([(request.start, request.stop) for request in requests], in_order=True)

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the blocks, in order."""
        return self._numbers

    def is_whole(self, number: int) -> bool:
        """Whether all bytes of a block are fetched."""
        request = self._requests[number]
        return (request.start, request.stop) == self._blocks.range_of(number)

    def will_have(self, number: int) -> bool:
        """Whether another iterator may wait for a block, because it would have to hold only few blocks before it."""
        is_near = 0 <= self._order[number] - self._num_arrived < _MOST_HELD
        return number in self._arrived or (is_near and not self._has_failed)

    def take(self, number: int) -> tuple[Request, memoryview] | None:
        """Wait for a block, and return it once.

        Returns None if another iterator took it, or if the fetch has already failed.
        """
        while number not in self._arrived and self._num_arrived <= self._order[number]:
            found = self._next()
            if found is None:
                return None
            index, content = found
            arrived = self._numbers[index]
            self._num_arrived += 1
            if self._source.entity_tag is not None and self.is_whole(arrived):
                self._blocks.keep(arrived, content)
            self._arrived[arrived] = content
        content_now = self._arrived.pop(number, None)
        return None if content_now is None else (self._requests[number], content_now)

    def _next(self) -> tuple[int, memoryview] | None:
        """Wait for the next block.

        The iterator that waits during a fault gets its error; others get None afterwards.
        """
        if self._has_failed:
            return None
        self._has_failed = True  # until it arrives
        result = next(self._views)
        self._has_failed = False
        return result


def _narrow(request: Request, ranges: Sequence[Range]) -> Request:
    """Return the request for a block from its first to its last needed byte."""
    start = max(request.start, min(ranges[index][0] for index in request.wanted))
    stop = min(request.stop, max(ranges[index][1] for index in request.wanted))
    return Request(start, stop, request.wanted)


def _plan_blocks(ranges: Sequence[Range], batch: range, blocks: CachedBlocks) -> Iterator[Request]:
    """Yield the blocks with bytes of the ranges of ``batch``, in the order in which they are needed."""
    wanted: dict[int, list[int]] = {}
    for index in batch:
        start, stop = ranges[index]
        for number in range(start // BLOCK_BYTES, -(-stop // BLOCK_BYTES) if start < stop else 0):
            wanted.setdefault(number, []).append(index)
    for number, indexes in wanted.items():
        yield Request(*blocks.range_of(number), tuple(indexes))
