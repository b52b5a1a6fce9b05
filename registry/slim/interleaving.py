"""The order in which the records of several files are read: epochs, turns and the shuffle buffer.

    files, permuted for each epoch -> slots that take turns -> shuffle buffer -> records, some at a time

Each of a few slots reads a file, one unit of records ahead. The slots take turns, one record at a time, so the order
does not depend on the speed of threads. At the end of its file, a slot is replaced by one of the next file, whose first
turn comes after those of the others: this is the interleave of tf.data with a block length of 1. Random numbers come
from Philox, keyed by the seed and a counter, so a seed gives the same order in every release.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count, islice
from queue import SimpleQueue
from typing import Final, TypeVar

import numpy as np

from registry.errors import UsageError
from registry.order import philox_words
from registry.slim.data_files import DataFile
from registry.slim.read_ahead import ReadAhead, join
from registry.slim.readers import Record, Unit

T = TypeVar("T")
_WORDS: Final = 2048
_MASK: Final = 2**64 - 1


class Slot(ReadAhead[Unit]):
    """Reads one file, a unit of records ahead. ``records`` from ``position`` on are available."""

    def __init__(self, file: DataFile, units: Iterator[Unit], changed: SimpleQueue[None] | None) -> None:
        source, name = partial(next, units), f"read {file.filename}"
        super().__init__(source, capacity=1, name=name, of="reader", changed=changed)
        self.file = file
        self.records: Unit = []
        self.position = 0
        self.has_read = False
        self.start_threads()

    @property
    def num_available(self) -> int:
        """The number of available records."""
        return len(self.records) - self.position

    def take_records(self, count: int) -> Unit:
        """The next ``count`` available records."""
        first, self.position = self.position, self.position + count
        return self.records[first : self.position] if count < len(self.records) else self.records

    def receive(self) -> bool:
        """Wait for the next unit, and start to read the one after it; False at the end of the file."""
        try:
            (self.records,) = self.take()
        except StopIteration:
            return False
        self.position, self.has_read = 0, True
        return True


@dataclass(eq=False, kw_only=True)
class Interleaving:
    """The files of a read and their order.

    Attributes:
        files: the files.
        read_file: returns the records of a file in units.
        num_epochs: number of times that each file is read; None repeats forever.
        num_slots: number of files that are read at the same time.
        buffer_size: number of records in the shuffle buffer; 0 does not shuffle.
        seed: the seed of the order.
        deterministic: let slots take turns. Otherwise records come in the order in which they are read.
        mix_epochs: start the next epoch while records of the current one are in the buffer.
        num_files_read: number of files that were read to their end; a file counts again in each epoch.
    """

    files: list[DataFile]
    read_file: Callable[[DataFile], Iterator[Unit]]
    num_epochs: int | None
    num_slots: int
    buffer_size: int
    seed: int
    deterministic: bool
    mix_epochs: bool
    num_files_read: int = 0
    _empty_files: set[int] = field(default_factory=set, init=False)
    _slots: deque[Slot] = field(default_factory=deque, init=False)
    _changed: SimpleQueue[None] = field(default_factory=SimpleQueue, init=False)

    def chunks(self) -> Iterator[list[Record]]:
        """All records in order, in chunks. An error is raised in the place of its record."""
        epochs = map(self._files_of, count() if self.num_epochs is None else range(self.num_epochs))
        for epoch, files in enumerate([chain.from_iterable(epochs)] if self.mix_epochs else map(iter, epochs)):
            chunks = self._in_turn(files) if self.deterministic else self._as_ready(files)
            if self.buffer_size:
                chunks = shuffled(chunks, random_words(self.seed, 2 * epoch + 1), size=self.buffer_size)
            yield from chunks

    def is_ready(self) -> bool:
        """Whether the next records of every slot can be taken without waiting."""
        slots = list(self._slots)  # a copy, because another thread may change it while reading
        return bool(slots) and all(slot.is_ready() for slot in slots)

    def close(self) -> None:
        """Stop reading, and wake up a thread that waits for a read."""
        for slot in list(self._slots):
            slot.close()

    def join(self) -> None:
        """Wait up to a second for reads in progress."""
        join(chain.from_iterable(slot.threads for slot in list(self._slots)))

    def _files_of(self, epoch: int) -> list[DataFile]:
        if self.num_epochs is None and len(self._empty_files) == len({id(file) for file in self.files}):
            paths = [file.path for file in self.files]
            raise UsageError(
                f"no records to repeat forever in {', '.join(paths[:5]) or 'an empty slice'}"
                + (f" and {len(paths) - 5} more" if len(paths) > 5 else ""),
                hint="Check the data sources, or pass num_epochs=1.",
                details={"paths": paths[:100]},
            )
        return permuted(self.files, random_words(self.seed, 2 * epoch)) if self.buffer_size else self.files

    def _in_turn(self, files: Iterator[DataFile]) -> Iterator[list[Record]]:
        """The records of ``files``, with slots taking turns."""
        slots = self._open_files(files, self.num_slots)
        while slots:
            rounds = min(slot.num_available for slot in slots)
            if rounds and len(slots) == 1:
                yield slots[0].take_records(rounds)
            elif rounds:
                yield list(chain.from_iterable(zip(*[slot.take_records(rounds) for slot in slots], strict=True)))
            elif slots[0].num_available:
                records: list[Record] = []
                while slots[0].num_available:  # up to the first slot without available records, which is next
                    records += slots[0].take_records(1)
                    slots.rotate(-1)
                yield records
            elif not slots[0].receive():
                self._end_file(slots.popleft())
                self._open_files(files, 1)

    def _as_ready(self, files: Iterator[DataFile]) -> Iterator[list[Record]]:
        """The records of ``files`` in the order in which they are read; those of one file stay in order."""
        slots = self._open_files(files, self.num_slots)
        while slots:
            slot = next((slot for slot in slots if slot.is_ready()), None)
            if slot is None:
                self._changed.get()
            elif slot.receive():
                yield slot.records
            else:
                self._end_file(slot)
                slots.remove(slot)
                self._open_files(files, 1)

    def _open_files(self, files: Iterator[DataFile], count: int) -> deque[Slot]:
        """Open the next files in new slots, at most ``count``. Returns all slots."""
        changed = None if self.deterministic else self._changed  # a shared queue would wake the consumer too often
        self._slots.extend(Slot(file, self.read_file(file), changed) for file in islice(files, count))
        return self._slots

    def _end_file(self, slot: Slot) -> None:
        self.num_files_read += 1
        if not slot.has_read:
            self._empty_files.add(id(slot.file))


def random_words(seed: int, stream: int) -> Iterator[int]:
    """An endless sequence of 62-bit random numbers, determined by ``seed`` and ``stream`` (each modulo 2**64)."""
    return chain.from_iterable(_blocks(seed & _MASK, stream & _MASK))


def _blocks(seed: int, stream: int) -> Iterator[list[int]]:
    for first in count(0, 2 * _WORDS):
        words = philox_words(seed, stream, first, 2 * _WORDS).astype(np.int64)
        yield (words[0::2] | (words[1::2] >> 2) << 32).tolist()


def permuted(items: list[T], words: Iterator[int]) -> list[T]:
    """The items in a uniformly random order."""
    items = items.copy()
    for last in range(len(items) - 1, 0, -1):
        other = next(words) % (last + 1)
        items[last], items[other] = items[other], items[last]
    return items


def shuffled(chunks: Iterable[list[T]], words: Iterator[int], *, size: int) -> Iterator[list[T]]:
    """Shuffle the items of ``chunks`` with a buffer of ``size`` items, which is filled first and drained at the end.

    Each drawn item is replaced by the next one. If ``chunks`` raises, the buffer is drained before the error is raised,
    so that no item before the error is lost.
    """
    buffer: list[T] = []
    failed: Exception | None = None
    try:
        for chunk in chunks:
            start = size - len(buffer)
            if start > 0:
                buffer += chunk[:start]
            if start < len(chunk):
                drawn = []
                for item, word in zip(chunk[max(start, 0) :], words, strict=False):
                    place = word % size
                    drawn.append(buffer[place])
                    buffer[place] = item
                yield drawn
    except Exception as error:  # noqa: BLE001 (raised again below)
        failed = error
    while buffer:
        drawn = []
        for _ in range(min(len(buffer), _WORDS)):
            place = next(words) % len(buffer)
            last = buffer.pop()
            if place < len(buffer):
                last, buffer[place] = buffer[place], last
            drawn.append(last)
        yield drawn
    if failed is not None:
        raise failed
