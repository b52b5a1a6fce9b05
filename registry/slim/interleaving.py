"""In which order do the records of several files come, that are read at the same time? In turns, or as they are ready.

A few slots have a file each, and each slot has at most one read under way, of what it needs next. Whoever wants records
takes what was read and has the next read started, so the order depends on no thread's pace: the slots are visited in
turn, a record at a time, and a slot whose file has ended is passed over once and opens the next file. That is the
interleave of tf.data with a block length of 1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import chain
from typing import NamedTuple

from registry.slim.background import interrupt_in, start
from registry.slim.data_files import DataFile
from registry.slim.readers import Record, Unit

ReadFile = Callable[[DataFile], Iterator[Unit]]


class _Read(NamedTuple):
    """What one read gave: records, or none and an error; ``None`` is the end of the file."""

    records: Unit | None
    error: BaseException | None = None


class Slot:
    """One file after the other, read a unit ahead. ``records`` from ``position`` on are at hand."""

    __slots__ = ("_units", "file", "has_read", "pending", "position", "records")

    def __init__(self, file: DataFile, read_file: ReadFile) -> None:
        self.open(file, read_file)

    def open(self, file: DataFile, read_file: ReadFile) -> None:
        """Begin with a file."""
        self.file = file
        self.records: Unit = []
        self.position = 0
        self.has_read = False
        self._units = read_file(file)
        self.pending = self._read_on()

    @property
    def num_ready(self) -> int:
        """How many records are at hand."""
        return len(self.records) - self.position

    def take(self, count: int) -> Unit:
        """The next ``count`` of them."""
        start_at, self.position = self.position, self.position + count
        return self.records[start_at : self.position] if count < len(self.records) else self.records

    def receive(self) -> bool:
        """Wait for the next records, and have those after them read; False where the file has ended."""
        try:
            records, error = self.pending.result()
        except RuntimeError as raised:
            raise interrupt_in(raised) or raised from None
        if error is not None:
            raise error
        if records is None:
            return False
        self.records, self.position, self.has_read = records, 0, True
        self.pending = self._read_on()
        return True

    def _read_on(self) -> Future[_Read]:
        units = self._units

        def read() -> _Read:
            # An error is a result here: a future that nobody asks would keep its frames, and with them the file open.
            try:
                return _Read(next(units, None))
            except BaseException as error:  # noqa: BLE001 (raised again where the record would have come)
                return _Read(None, error)

        return start(read, name=f"read {self.file.filename}")


class Slots:
    """The slots of one pass over files.

    Args:
        files: in the order in which they are opened.
        read_file: gives the records of a file, some at a time.
        num_slots: how many files are read at the same time.
        on_end: is called with each file that has been read to its end, and whether it had a record.
    """

    def __init__(
        self,
        files: Iterator[DataFile],
        read_file: ReadFile,
        *,
        num_slots: int,
        on_end: Callable[[DataFile, bool], None],
    ) -> None:
        self._files = files
        self._read_file = read_file
        self._on_end = on_end
        self._slots: deque[Slot] = deque()
        self._num_slots = num_slots

    def pending(self) -> list[Future[_Read]]:
        """The reads that are under way."""
        return [slot.pending for slot in list(self._slots)]  # of a copy: another thread may close

    def in_turn(self) -> Iterator[list[Record]]:
        """The records in turns, some at a time. An error comes where its record would have come."""
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
        """The records as they are read, those of a file in order."""
        slots = self._fill()
        while slots:
            try:
                done, _ = wait(self.pending(), return_when=FIRST_COMPLETED)
            except RuntimeError as raised:
                raise interrupt_in(raised) or raised from None
            for slot in list(slots):
                if slot.pending in done:
                    if slot.receive():
                        yield slot.records
                    elif not self._reopen(slot):
                        slots.remove(slot)

    def _fill(self) -> deque[Slot]:
        for _ in range(self._num_slots):
            file = next(self._files, None)
            if file is None:
                break
            self._slots.append(Slot(file, self._read_file))
        return self._slots

    def _to_first_empty(self) -> list[Record]:
        """One record of each slot up to the first that has none at hand, whose turn it is then."""
        records: list[Record] = []
        while self._slots[0].num_ready:
            records += self._slots[0].take(1)
            self._slots.rotate(-1)
        return records

    def _reopen(self, slot: Slot) -> bool:
        """Give a slot whose file has ended the next one; False where there is none."""
        self._on_end(slot.file, slot.has_read)
        file = next(self._files, None)
        if file is not None:
            slot.open(file, self._read_file)
        return file is not None
