"""Sorts the digests of many records in bounded memory: four million there, and more in a temporary file.

    digests of a fixed size -> DigestPile -> sorted chunks
                               DigestPiles -> divide_piles -> parts with the equal digests of all piles

``registry.pins`` hashes the sorted digests of the records of a pin, and ``registry.statistics`` counts equal ones.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import IO, Final, Self

import numpy as np
import numpy.typing as npt

from registry.storage import storage_errors
from registry.wire.gather import order_words

_ROWS: Final = 2**16
"""The maximum number of equal digests that are returned at once."""

_MOST_IN_MEMORY: Final = 4 * 2**20
"""Digests sorted at once and kept in memory: 128 MiB of 32 bytes."""

_BUCKETS: Final = 2**12
"""Buckets of a sorted run, by 12 bits. 16 billion digests do not fill them if each may have four million."""


class DigestPile:
    """Collects digests of ``num_bytes`` bytes, and hashes or returns them in sorted order.

    More than ``most_in_memory`` go to a temporary file. It consists of sorted runs. Their parts with the same first
    bits are read and sorted together, so each digest is written once and read once. A pile can be pickled.

    >>> with DigestPile() as pile:
    ...     pile.add(b"b" * 32 + b"a" * 32)
    ...     pile.sorted_digest() == hashlib.sha256(b"a" * 32 + b"b" * 32).hexdigest()
    True
    """

    def __init__(
        self, *, num_bytes: int = 32, most_in_memory: int = _MOST_IN_MEMORY, first_byte: int = 0, content: bytes = b""
    ) -> None:
        """``num_bytes`` is a multiple of 8. The bytes of all digests before byte ``first_byte`` are the same."""
        self._num_bytes = num_bytes
        self._most = most_in_memory
        self._first_byte = first_byte
        self._waiting: bytearray | mmap.mmap = bytearray()
        self._file: IO[bytes] | None = None
        self._runs: list[tuple[int, npt.NDArray[np.uint32]]] = []  # where each begins, and its buckets in it, in rows
        self.add(content)

    def __reduce__(self) -> tuple[Callable[[], DigestPile], tuple[()]]:
        options = {"num_bytes": self._num_bytes, "most_in_memory": self._most, "first_byte": self._first_byte}
        return partial(DigestPile, **options, content=b"".join(self.parts())), ()

    def add(self, digests: bytes | bytearray | memoryview) -> None:
        """Add concatenated digests.

        Raises:
            StorageError: the temporary file cannot be written.
        """
        left = memoryview(digests)
        if not isinstance(self._waiting, bytearray):
            self._waiting = bytearray(self._waiting)
        while left:
            if len(self._waiting) == self._most * self._num_bytes:
                self._write_run()
            room = self._most * self._num_bytes - len(self._waiting)
            self._waiting += left[:room]
            left = left[room:]

    def parts(self) -> Iterator[bytes | memoryview]:
        """The digests in the order of their runs, in parts of at most ``most_in_memory``; the last may be a view."""
        starts = [begin for begin, _ in self._runs]
        for begin, stop in pairwise([*starts, self._num_in_file]):
            yield self._read(begin, stop - begin)
        if self._waiting:
            yield memoryview(self._waiting)

    def release(self, *, most: int) -> None:
        """Move the digests that are in memory to a file if there are more than ``most``.

        They are not sorted, because few digests need no division: sorting took most of the time of statistics.
        """
        if len(self._waiting) > most * self._num_bytes:
            with storage_errors("write a temporary file in", tempfile.gettempdir()), tempfile.TemporaryFile() as file:
                file.write(self._waiting)
                file.flush()
                self._waiting = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def sorted_digest(self) -> str:
        """The sha256 over all digests in sorted order, 64 hex digits."""
        hasher = hashlib.sha256()
        for chunk in self.sorted_chunks():
            hasher.update(chunk)
        return hasher.hexdigest()

    def sorted_chunks(self) -> Iterator[bytes]:
        """All digests in sorted order, in chunks of at most ``most_in_memory``."""
        if not self._runs:
            yield sort_digests(self._waiting, num_bytes=self._num_bytes)
            return
        for first, stop, count in _divide_buckets([self], self._most):
            if count > self._most:
                yield from self._sort_large_bucket(first, count)
            else:
                yield sort_digests(b"".join(self._parts_of(first, stop)), num_bytes=self._num_bytes)

    def _sort_large_bucket(self, bucket: int, count: int) -> Iterator[bytes]:
        """Sort a bucket that does not fit into memory: a digest occurs many times, or there are very many."""
        ends = {
            self._read(begin + int(place), 1)
            for begin, places in self._runs
            if places[bucket] < places[bucket + 1]
            for place in (places[bucket], places[bucket + 1] - 1)
        }
        if len(ends) == 1:  # the runs are sorted, so all digests are equal
            (digest,) = ends
            for start in range(0, count, _ROWS):
                yield digest * min(_ROWS, count - start)
            return
        inner = DigestPile(num_bytes=self._num_bytes, most_in_memory=self._most, first_byte=self._first_byte + 1)
        with inner as pile:
            for part in self._parts_of(bucket, bucket + 1):
                pile.add(part)
            yield from pile.sorted_chunks()

    def _write_run(self) -> None:
        """Sort the buffered digests, and append them to the file."""
        run = sort_digests(self._waiting, num_bytes=self._num_bytes)
        self._waiting = bytearray()
        rows = np.frombuffer(run, np.uint8).reshape(-1, self._num_bytes)
        buckets = rows[:, self._first_byte].astype(np.uint16) << 4
        if self._first_byte + 1 < self._num_bytes:
            buckets |= rows[:, self._first_byte + 1] >> 4
        begin = self._num_in_file
        with storage_errors("write a temporary file in", tempfile.gettempdir()):
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by ``close``)
            self._file.seek(0, os.SEEK_END)
            self._file.write(run)
        self._runs.append((begin, np.searchsorted(buckets, np.arange(_BUCKETS + 1)).astype(np.uint32)))

    @property
    def num_digests(self) -> int:
        """The number of digests that were added."""
        return self._num_in_file + len(self._waiting) // self._num_bytes

    @property
    def _num_in_file(self) -> int:
        return sum(int(places[-1]) for _, places in self._runs)

    def _parts_of(self, first: int, stop: int) -> Iterator[bytes]:
        """The digests of buckets ``first``..``stop`` (stop excluded) in each run."""
        for begin, places in self._runs:
            start, end = int(places[first]), int(places[stop])
            if start < end:
                yield self._read(begin + start, end - start)

    def _read(self, row: int, count: int) -> bytes:
        assert self._file is not None  # noqa: S101 (for the type checker)
        self._file.seek(row * self._num_bytes)
        return self._file.read(count * self._num_bytes)

    def close(self) -> None:
        """Drop the digests, and remove the file."""
        self._waiting = bytearray()  # not cleared, because there may be views
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def divide_piles(piles: Sequence[DigestPile], *, most: int) -> Iterator[list[Iterator[bytes | memoryview]]]:
    """Divide the digests of all piles by their first bits: equal ones are in the same part.

    A part has at most ``most`` digests, or those that have the same 12 bits. Yields the digests of each pile in pieces,
    which are sorted if there are more than ``most`` in all.
    """
    if sum(pile.num_digests for pile in piles) <= most:
        yield [pile.parts() for pile in piles]
        return
    for first, stop, _ in _divide_buckets(piles, most):
        yield [pile._parts_of(first, stop) for pile in piles]


def _divide_buckets(piles: Sequence[DigestPile], most: int) -> Iterator[tuple[int, int, int]]:
    """Write all digests to the files. Yield ranges of buckets with at most ``most`` digests, and how many they have.

    A bucket that has more is yielded alone, and empty ranges are not.
    """
    totals = np.zeros(_BUCKETS, np.int64)
    for pile in piles:
        if pile._waiting:
            pile._write_run()
        for _, places in pile._runs:
            totals += np.diff(places)
    sizes = totals.tolist()
    first = 0
    while first < _BUCKETS:
        stop, count = first + 1, sizes[first]
        while stop < _BUCKETS and count + sizes[stop] <= most:
            count += sizes[stop]
            stop += 1
        if count:
            yield first, stop, count
        first = stop


def sort_digests(digests: bytes | bytearray | mmap.mmap, *, num_bytes: int) -> bytes:
    """Concatenated digests of ``num_bytes`` bytes, a multiple of 8, in sorted order."""
    columns = np.frombuffer(digests, ">u8").reshape(-1, num_bytes // 8)
    firsts = columns[:, 0].astype(np.uint64)  # numbers in the byte order of this machine
    order = order_words(firsts)
    rows = columns.view(f"V{num_bytes}").reshape(-1)[order]
    is_same = np.diff(firsts[order]) == 0
    same = np.flatnonzero(is_same)
    texts = rows.view(f"S{num_bytes}")  # compared without the zeros at their end, which changes nothing
    # Different digests with the same first bytes, which may have been chosen to collide
    if (texts[same] > texts[same + 1]).any():
        places = np.flatnonzero(np.concatenate([is_same, [False]]) | np.concatenate([[False], is_same]))
        words = rows[places].view(">u8").reshape(-1, num_bytes // 8).astype(np.uint64)
        rows[places] = rows[places[np.lexsort(tuple(words.T[::-1]))]]
    return rows.tobytes()
