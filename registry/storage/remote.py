"""Reads files of other machines by ranges; object stores, web servers and fsspec's stores use it.

    ranges  ->  requests: neighbours merged, long ranges split  ->  a few at a time  ->  bytes, as they arrive

Every request costs tens of milliseconds, and one connection has a limited bandwidth. So one request fetches ranges that
are close together, and several requests run at the same time.
"""

from __future__ import annotations

import errno
import io
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from registry.masking import mask
from registry.storage.faults import Range, StoredFile, cannot, check_ranges, storage_errors
from registry.storage.names import is_content
from registry.storage.network import TransientFault, cancel, result_of, unavailable
from registry.storage.store import Names, StagedFolder, Store, check_folder_name
from registry.storage.upload import StagedUpload

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

REQUEST_BYTES: Final = 4 * 2**20
"""The largest number of bytes of one request, and the size of each request of a sequential read."""

_NEAR_BYTES: Final = 2**18
"""Ranges with a smaller gap are fetched by one request: a second request would take longer than these bytes."""

_IN_FLIGHT: Final = 64
_AHEAD_BYTES: Final = 8 * REQUEST_BYTES
"""The maximum number of bytes of running requests, and of results that wait for an earlier result."""

_BATCH_BYTES: Final = 16 * 2**20
_BATCH_RANGES: Final = 2**14
"""Neighbours are merged within batches of at most this number of consecutive ranges."""

Begin: TypeAlias = Callable[[int, int], Future[Any]]
"""Starts one request for bytes start..stop; the future returns them, or raises a typed error after the retries."""


class RemoteStore(Store):
    """A store without real folders: names with a common prefix form a folder."""

    local_root = None

    def list(self, folder: str = "") -> Names:
        """Every object below ``folder``."""
        inside = len(check_folder_name(folder)) + 1 if folder else 0
        return [name for name in self._all_names(folder) if is_content(name[inside:])]

    def folders(self, parent: str = "") -> Names:
        """The folders directly in ``parent``: first parts of the names below it that have several parts."""
        inside = len(check_folder_name(parent)) + 1 if parent else 0
        return sorted({name[inside:].split("/")[0] for name in self._all_names(parent) if "/" in name[inside:]})

    def stage(self, final: str) -> StagedFolder:
        """Create a folder in TMPDIR. Its files are uploaded when they are complete."""
        return StagedUpload(self, final=final)

    def _all_names(self, folder: str) -> Names:
        """Every object below ``folder``, including unfinished ones, sorted; relative to the root of the store."""
        raise NotImplementedError


class PathStore(RemoteStore):
    """A store of fsspec: the names below one path of a file system."""

    def __init__(self, file_system: Any, root: str, *, url: str) -> None:
        self._files = file_system
        self._root = root.rstrip("/")
        self.url = url.rstrip("/") if not url.endswith("://") else url

    def locate(self, name: str) -> str:
        """The URL of ``name``, with its secrets masked."""
        return mask(self._url(name))

    def _url(self, name: str) -> str:
        return f"{self.url}{name}" if self.url.endswith("/") else f"{self.url}/{name}"

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


class RangedFile(StoredFile):
    """A file of which only ranges can be read: ``read`` and ``pieces`` are made of ``read_ranges``."""

    def __init__(
        self, *, path: str, num_bytes: int, entity_tag: str | None = None, raw: RangeReader | None = None
    ) -> None:
        """``raw`` reads the bytes in order; by default each request fetches 4 MiB."""
        raw = RangeReader(self._read_range, num_bytes=num_bytes) if raw is None else raw
        super().__init__(raw, path=path, entity_tag=entity_tag, buffer_bytes=REQUEST_BYTES)
        self._num_bytes = num_bytes

    @property
    def num_bytes(self) -> int:
        """Size of the file that was opened, in bytes."""
        return self._num_bytes

    def pieces(self) -> Iterator[memoryview]:
        """Yield all bytes from the start; the next pieces are fetched while one is used."""
        return (view for _, view in self.read_ranges(_cut(0, self._num_bytes), in_order=True))

    def read(self, size: int | None = -1, /) -> bytes:
        """Read the next ``size`` bytes; if it is negative or None, read the rest by concurrent requests."""
        if size is not None and size >= 0:
            return super().read(size)
        rest = _cut(self.tell(), self._num_bytes)
        content = b"".join(view for _, view in self.read_ranges(rest, in_order=True))
        self.seek(0, io.SEEK_END)
        return content

    def _read_range(self, start: int, stop: int) -> memoryview:
        ((_, view),) = self.read_ranges([(start, stop)])
        return view

    def _require_open(self) -> None:
        if self.closed:
            raise ValueError("read of closed file")  # the message of Python's own files


class RemoteFile(RangedFile):
    """An object of another machine. No connection is open between two requests, so a forked child may continue."""

    def __init__(
        self, begin: Begin, *, path: str, num_bytes: int, entity_tag: str | None = None, raw: RangeReader | None = None
    ) -> None:
        super().__init__(path=path, num_bytes=num_bytes, entity_tag=entity_tag, raw=raw)
        self._begin = begin

    def read_ranges(self, ranges: Sequence[Range], *, in_order: bool = False) -> Iterator[tuple[int, memoryview]]:
        """Yield the bytes of ``ranges``, fetched by concurrent requests; neighbours share one."""
        self._require_open()
        return _fetch(check_ranges(ranges, self._num_bytes, self.path), self._begin, self.path, in_order=in_order)


class RangeReader(io.RawIOBase):
    """An object as a raw file: each ``readinto`` sends one request. Each reader has its own position."""

    def __init__(self, fetch: Callable[[int, int], Any], *, num_bytes: int) -> None:
        """``fetch(start, stop)`` returns the bytes of one range, or only the first of them."""
        super().__init__()
        self._fetch = fetch
        self._num_bytes = num_bytes
        self._place = 0

    def readable(self) -> bool:
        """Always True."""
        return True

    def seekable(self) -> bool:
        """Always True."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read the next bytes, at most the length of ``buffer``, by one request."""
        view = memoryview(buffer)
        stop = min(self._place + len(view), self._num_bytes)
        if self._place >= stop:
            return 0
        content = self._fetch(self._place, stop)
        view[: len(content)] = content
        self._place += len(content)
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position; no request is sent."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._num_bytes}[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, "the position is before the start of the file")
        self._place = start + offset
        return self._place

    def tell(self) -> int:
        """The position of the next byte."""
        return self._place


@dataclass(frozen=True, slots=True)
class Request:
    """One request for bytes ``start`` to ``stop``, and the indexes of the ranges with bytes in it."""

    start: int
    stop: int
    wanted: tuple[int, ...]


def plan_requests(ranges: Sequence[Range]) -> Iterator[Request]:
    """Plan the requests that fetch ``ranges``, in the order in which they are needed; empty ranges need no request.

    >>> [(one.start, one.stop, one.wanted) for one in plan_requests([(500, 600), (0, 100), (9_000_000, 9_000_010)])]
    [(0, 600, (1, 0)), (9000000, 9000010, (2,))]
    """
    for batch in batches(ranges):
        yield from _plan_batch(ranges, batch)


def batches(ranges: Sequence[Range]) -> Iterator[range]:
    """Divide the indexes of ``ranges`` so that memory may hold the bytes of each part."""
    first = 0
    while first < len(ranges):
        stop, num_bytes = first, 0
        while stop < len(ranges) and stop - first < _BATCH_RANGES and num_bytes < _BATCH_BYTES:
            num_bytes += ranges[stop][1] - ranges[stop][0]
            stop += 1
        yield range(first, stop)
        first = stop


def _plan_batch(ranges: Sequence[Range], batch: range) -> Iterator[Request]:
    by_start = sorted((*ranges[index], index) for index in batch if ranges[index][0] < ranges[index][1])
    spans: list[list[int]] = []
    for start, stop, _ in by_start:
        if spans and start <= spans[-1][1] + _NEAR_BYTES:
            spans[-1][1] = max(spans[-1][1], stop)
        else:
            spans.append([start, stop])
    cuts = [cut for start, stop in spans for cut in _cut(start, stop)]
    starts = [start for start, _ in cuts]
    wanted: list[list[int]] = [[] for _ in cuts]
    for start, stop, index in by_start:
        place = bisect_right(starts, start) - 1
        while place < len(cuts) and cuts[place][0] < stop:
            wanted[place].append(index)
            place += 1
    found = [Request(*cut, tuple(indexes)) for cut, indexes in zip(cuts, wanted, strict=True) if indexes]
    yield from sorted(found, key=lambda request: min(request.wanted))


def _cut(start: int, stop: int) -> list[Range]:
    """Split bytes ``start`` to ``stop`` into pieces of one request each."""
    return [(place, min(place + REQUEST_BYTES, stop)) for place in range(start, stop, REQUEST_BYTES)]


class Arrived:
    """Collects the bytes of ``ranges`` as requests arrive, and hands out the ranges that are complete."""

    def __init__(self, ranges: Sequence[Range], *, in_order: bool) -> None:
        self.num_bytes = 0  # bytes that are held here
        self._ranges = ranges
        self._in_order = in_order
        self._next = 0
        self._ready: dict[int, memoryview] = {}
        self._parts: dict[int, tuple[memoryview, int]] = {}  # ranges of several requests, and the bytes still missing

    def add(self, request: Request, content: memoryview) -> None:
        """Take the bytes that a request returned."""
        num_wanted = sum(self._ranges[index][1] - self._ranges[index][0] for index in request.wanted)
        for index in request.wanted:
            start, stop = self._ranges[index]
            part = content[max(start, request.start) - request.start : min(stop, request.stop) - request.start]
            self.num_bytes += len(part)
            if len(part) == stop - start:
                # While it waits for its turn, a view of a few bytes would keep the whole response in memory.
                is_small = self._in_order and 2 * num_wanted < len(content)
                self._ready[index] = memoryview(bytes(part)) if is_small else part.toreadonly()
                continue
            if index not in self._parts:
                self._parts[index] = memoryview(bytearray(stop - start)), stop - start
            whole, missing = self._parts.pop(index)
            place = max(start, request.start) - start
            whole[place : place + len(part)] = part
            if missing == len(part):
                self._ready[index] = whole.toreadonly()
            else:
                self._parts[index] = whole, missing - len(part)

    def take(self) -> Iterator[tuple[int, memoryview]]:
        """Yield the ranges that can be handed out now."""
        if not self._in_order:
            for index in list(self._ready):
                yield self._hand_on(index)
            return
        while self._next < len(self._ranges):
            start, stop = self._ranges[self._next]
            if start < stop and self._next not in self._ready:
                return
            self._next += 1
            yield self._hand_on(self._next - 1)

    def _hand_on(self, index: int) -> tuple[int, memoryview]:
        view = self._ready.pop(index, memoryview(b""))
        self.num_bytes -= len(view)
        return index, view


def _fetch(ranges: Sequence[Range], begin: Begin, path: str, *, in_order: bool) -> Iterator[tuple[int, memoryview]]:
    """Start the first requests, and return an iterator over the bytes of ``ranges``."""
    fetched = _fetch_after_start(ranges, begin, path, in_order=in_order)
    next(fetched)
    return fetched


def _fetch_after_start(
    ranges: Sequence[Range], begin: Begin, path: str, *, in_order: bool
) -> Iterator[tuple[int, memoryview]]:
    """Yield the bytes of ``ranges``, after a first item without meaning: once it is taken, the first requests run."""
    arrived, waiting = Arrived(ranges, in_order=in_order), plan_requests(ranges)
    under_way: dict[Future[Any], Request] = {}
    process, num_bytes, is_started = os.getpid(), 0, False
    try:
        while True:
            if process != os.getpid():  # a forked child: the running requests belong to its parent
                under_way = {begin(upload.start, upload.stop): upload for upload in under_way.values()}
                process = os.getpid()
            while len(under_way) < _IN_FLIGHT and (not under_way or num_bytes + arrived.num_bytes < _AHEAD_BYTES):
                request = next(waiting, None)
                if request is None:
                    break
                num_bytes += request.stop - request.start
                under_way[begin(request.start, request.stop)] = request
            if not is_started:
                is_started = True
                yield -1, memoryview(b"")
                if not in_order:
                    yield from ((index, memoryview(b"")) for index, (start, stop) in enumerate(ranges) if start == stop)
                continue  # this may be a forked child now
            if not under_way:
                break
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                request = under_way.pop(future)
                num_bytes -= request.stop - request.start
                arrived.add(request, _content_of(future, request.start, request.stop, path))
            yield from arrived.take()
        yield from arrived.take()
    finally:
        if process == os.getpid():
            for future in under_way:
                cancel(future)


def _content_of(future: Future[Any], start: int, stop: int, path: str) -> memoryview:
    """Wait for a request, and check that it returned bytes ``start`` to ``stop``."""
    with storage_errors("read", path):
        try:
            content = memoryview(result_of(future))
        except TransientFault as fault:  # only after an interrupt, which leaves no time to retry
            raise unavailable(fault, doing="read", path=path, tries=1) from fault.__cause__
    if len(content) != stop - start:
        reason = f"expected {stop - start} bytes, received {len(content)}"
        hint = "It was replaced or truncated while it was read. Read it again; `registry verify` checks it."
        raise cannot("read", path, reason, number=errno.EIO, hint=hint)
    return content
