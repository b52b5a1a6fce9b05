"""What is read in which epoch? All files, permuted anew each time, through the slots and the shuffle buffer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count

from registry.errors import UsageError
from registry.slim.data_files import DataFile
from registry.slim.interleaving import ReadFile, Slots
from registry.slim.readers import Record
from registry.slim.shuffling import permuted, random_words, shuffled


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is read, and in which order. ``num_epochs`` is None for ever; ``buffer_size`` 0 does not shuffle."""

    files: tuple[DataFile, ...]
    read_file: ReadFile
    num_epochs: int | None
    num_readers: int
    buffer_size: int
    seed: int
    deterministic: bool
    mix_epochs: bool

    def chunks(self, progress: Progress) -> Iterator[list[Record]]:
        """All records in order, some at a time."""
        epochs = count() if self.num_epochs is None else iter(range(self.num_epochs))
        if self.mix_epochs:
            yield from self._pass(chain.from_iterable(self._files_of(epoch, progress) for epoch in epochs), 0, progress)
        else:
            for epoch in epochs:
                yield from self._pass(iter(self._files_of(epoch, progress)), epoch, progress)

    def _pass(self, files: Iterator[DataFile], epoch: int, progress: Progress) -> Iterator[list[Record]]:
        progress.slots = slots = Slots(files, self.read_file, num_slots=self.num_readers, on_end=progress.end_file)
        chunks = slots.in_turn() if self.deterministic else slots.as_ready()
        if self.buffer_size:
            chunks = shuffled(chunks, random_words(self.seed, 2 * epoch + 1), size=self.buffer_size)
        return chunks

    def _files_of(self, epoch: int, progress: Progress) -> list[DataFile]:
        files = list(self.files)
        if self.num_epochs is None and len(progress.empty_files) == len({id(file) for file in files}):
            named = ", ".join(file.path for file in files[:5]) or "an empty slice"
            raise UsageError(
                f"there is no record in {named}" + (f" and {len(files) - 5} more" if len(files) > 5 else ""),
                hint="To read them for ever gives nothing, for ever. Check the data sources, or give num_epochs=1.",
                details={"paths": [file.path for file in files[:100]]},
            )
        return permuted(files, random_words(self.seed, 2 * epoch)) if self.buffer_size else files


class Progress:
    """How far a reading has come."""

    def __init__(self) -> None:
        self.num_records = 0
        self.num_files = 0
        self.empty_files: set[int] = set()
        self.slots: Slots | None = None

    def end_file(self, file: DataFile, has_read: bool) -> None:
        """Count a file that was read to its end, and know those that hold nothing."""
        self.num_files += 1
        if not has_read:
            self.empty_files.add(id(file))
