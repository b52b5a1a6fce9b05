"""The order in which the records of several files are read: epochs, turns and the shuffle buffer.

    files, permuted for each epoch -> slots that take turns -> shuffle buffer -> records, some at a time

Each of a few slots has a file, and reads one unit of records ahead. The slots take turns, one record at a time, so the
order does not depend on the speed of threads. At the end of its file, a slot skips one turn and opens the next file:
this is the interleave of tf.data with a block length of 1. Random numbers come from Philox, keyed by the seed and a
counter, so a seed gives the same order in every release.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count, islice
from queue import SimpleQueue
from typing import Final, TypeAlias, TypeVar

import numpy as np

from registry.errors import UsageError
from registry.order.shuffles import philox_words
from registry.slim.data_files import DataFile
from registry.slim.read_ahead import ReadAhead, join
from registry.slim.readers import Record, Unit

T = TypeVar("T")
_WORDS: Final = 2048
_MASK: Final = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The files to read, and the options of their order.

    ``num_epochs`` None repeats forever, and a ``buffer_size`` of 0 does not shuffle.
    """

    files: tuple[DataFile, ...]
    read_file: ReadFile
    num_epochs: int | None
    num_readers: int
    buffer_size: int
    seed: int
    deterministic: bool
    mix_epochs: bool

    def chunks(self, progress: Progress) -> Iterator[list[Record]]:
        """All records in order, in chunks."""
        epochs = count() if self.num_epochs is None else iter(range(self.num_epochs))
        if self.mix_epochs:
            yield from self._pass(chain.from_iterable(self._files_of(epoch, progress) for epoch in epochs), 0, progress)
        else:
            for epoch in epochs:
                yield from self._pass(iter(self._files_of(epoch, progress)), epoch, progress)

    def _pass(self, files: Iterator[DataFile], epoch: int, progress: Progress) -> Iterator[list[Record]]:
        progress.slots = slots = Slots(
            files=files, read_file=self.read_file, num_slots=self.num_readers, on_end=progress.end_file
        )
        chunks = slots.in_turn() if self.deterministic else slots.as_ready()
        if self.buffer_size:
            chunks = shuffled(chunks, random_words(self.seed, 2 * epoch + 1), size=self.buffer_size)
        return chunks

    def _files_of(self, epoch: int, progress: Progress) -> list[DataFile]:
        files = list(self.files)
        if self.num_epochs is None and len(progress.empty_files) == len({id(file) for file in files}):
            named = ", ".join(file.path for file in files[:5]) or "an empty slice"
            raise UsageError(
                f"no records to repeat forever in {named}" + (f" and {len(files) - 5} more" if len(files) > 5 else ""),
                hint="Check the data sources, or pass num_epochs=1.",
                details={"paths": [file.path for file in files[:100]]},
            )
        return permuted(files, random_words(self.seed, 2 * epoch)) if self.buffer_size else files


class Progress:
    """The progress of a read."""

    def __init__(self) -> None:
        self.num_records = 0
        self.num_files = 0
        self.empty_files: set[int] = set()
        self.slots: Slots | None = None

    def end_file(self, file: DataFile, has_read: bool) -> None:
        """Count a file that was read to its end, and remember it if it has no records."""
        self.num_files += 1
        if not has_read:
            self.empty_files.add(id(file))


ReadFile: TypeAlias = Callable[[DataFile], Iterator[Unit]]


class Slot:
    """Reads one file after another, one unit ahead. ``records`` from ``position`` on are available."""

    __slots__ = ("ahead", "file", "has_read", "position", "records")

    def open(self, file: DataFile, read_file: ReadFile, on_outcome: Callable[[], None] | None) -> None:
        """Start reading a file."""
        self.file = file
        self.records: Unit = []
        self.position = 0
        self.has_read = False
        self.ahead = ReadAhead(
            partial(next, read_file(file)),
            capacity=1,
            name=f"read {file.filename}",
            closed_error=closed_reader,
            on_outcome=on_outcome,
        )
        self.ahead.start_threads()

    @property
    def num_ready(self) -> int:
        """The number of available records."""
        return len(self.records) - self.position

    def take(self, count: int) -> Unit:
        """The next ``count`` available records."""
        start_at, self.position = self.position, self.position + count
        return self.records[start_at : self.position] if count < len(self.records) else self.records

    def receive(self) -> bool:
        """Wait for the next unit, and start to read the one after it; False at the end of the file."""
        try:
            self.records = self.ahead.take()
        except StopIteration:
            return False
        self.position, self.has_read = 0, True
        return True


@dataclass(eq=False, kw_only=True)
class Slots:
    """The slots of one pass over files.

    Attributes:
        files: the files in the order in which they are opened.
        read_file: returns the records of a file in units.
        num_slots: number of files that are read at the same time.
        on_end: called with each file that was read to its end, and whether it had a record.
    """

    files: Iterator[DataFile]
    read_file: ReadFile
    num_slots: int
    on_end: Callable[[DataFile, bool], None]
    _slots: deque[Slot] = field(default_factory=deque, init=False)
    _on_outcome: Callable[[], None] | None = field(default=None, init=False)

    def is_ready(self) -> bool:
        """Whether the next records of every slot can be taken without waiting."""
        slots = list(self._slots)
        return bool(slots) and all(slot.ahead.is_ready() for slot in slots)

    def close(self) -> None:
        """Stop reading, and wake up threads that wait for a read."""
        for slot in list(self._slots):  # a copy, because another thread may change it while reading
            slot.ahead.close()

    def join(self) -> None:
        """Wait up to a second for reads in progress."""
        join(chain.from_iterable(slot.ahead.threads for slot in list(self._slots)))

    def in_turn(self) -> Iterator[list[Record]]:
        """The records in chunks, with slots taking turns. An error is raised in the place of its record."""
        slots = self._fill()
        while slots:
            rounds = min(slot.num_ready for slot in slots)
            if rounds and len(slots) == 1:
                yield slots[0].take(rounds)
            elif rounds:
                yield list(chain.from_iterable(zip(*[slot.take(rounds) for slot in slots], strict=True)))
            elif slots[0].num_ready:
                yield self._to_first_empty()
            elif not slots[0].receive():
                slot = slots.popleft()
                if self._reopen(slot):
                    slots.append(slot)

    def as_ready(self) -> Iterator[list[Record]]:
        """The records in the order in which they are read; those of one file stay in order."""
        outcomes: SimpleQueue[None] = SimpleQueue()  # an entry for each finished read
        self._on_outcome = partial(outcomes.put, None)
        slots = self._fill()
        while slots:
            outcomes.get()
            slot = next(slot for slot in slots if slot.ahead.is_ready())
            if slot.receive():
                yield slot.records
            elif not self._reopen(slot):
                slots.remove(slot)

    def _fill(self) -> deque[Slot]:
        for file in islice(self.files, self.num_slots):
            slot = Slot()
            slot.open(file, self.read_file, self._on_outcome)
            self._slots.append(slot)
        return self._slots

    def _to_first_empty(self) -> list[Record]:
        """One record of each slot up to the first slot without available records, which is next."""
        records: list[Record] = []
        while self._slots[0].num_ready:
            records += self._slots[0].take(1)
            self._slots.rotate(-1)
        return records

    def _reopen(self, slot: Slot) -> bool:
        """Open the next file in a slot whose file has ended; False if no file is left."""
        self.on_end(slot.file, slot.has_read)
        file = next(self.files, None)
        if file is not None:
            slot.open(file, self.read_file, self._on_outcome)
        return file is not None


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


def closed_reader() -> UsageError:
    """The error for reading after ``close``."""
    return UsageError("this reader was closed", hint="Create a new one to read again.")
