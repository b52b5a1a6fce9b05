"""Lets worker processes write the shards of a split: each merges the records of its shard from all runs.

    runs -> the blocks that a shard may need -> a worker: its first sort key, its blocks -> file, sha256, folds

``writing`` calls it if an engine uses workers, for splits that do not fit into memory. The process that starts the
tasks sends each of them only the tables of the blocks that it may need (``block_order``), because all are too large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from registry.building.block_order import BlockOrder, find_starts
from registry.building.run_format import Run, Start
from registry.building.sorter import ExternalSorter
from registry.errors import StorageError
from registry.features.fold import RecordsFold
from registry.model import LEAF_EXAMPLES, Shard, Split
from registry.storage import Store
from registry.tfrecord import Frames, RecordWriter
from registry.tfrecord.frames import regroup

_GROUP_BYTES: Final = 2 * 2**20
"""Merging many runs gives small blocks. Folding a small block takes nearly as long as folding a large one."""


class MadeShard(NamedTuple):
    """A written shard, and the states of the folds over the leaves that start in it.

    They are None if they cannot be computed here.
    """

    shard: Shard
    states: list[Any] | None

    @property
    def num_records(self) -> int:
        """Number of records."""
        return self.shard.num_examples


@dataclass(frozen=True, slots=True)
class ShardInput:
    """The input of a piece of work.

    Attributes:
        index: the number of the shard.
        num_before: the number of records of the split that come before all of ``runs``.
        runs: the parts of runs that contain the records of the shard.
    """

    index: int
    num_before: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class ShardMaker:
    """The function of a piece of work: merges the records of one shard from all runs, and writes the shard.

    Attributes:
        split: the split.
        store: receives the file.
        budget_bytes: memory for merging.
        fold: folds the records, or None.
    """

    split: Split
    store: Store
    budget_bytes: int
    fold: RecordsFold | None

    def inputs(self, runs: Sequence[Run]) -> Iterator[ShardInput]:
        """The input for each shard; ``runs`` contain all records of the split. Other processes open their files."""
        order = BlockOrder(runs)
        for index in range(self.split.num_shards):
            num_before, parts = order.parts(self.split.shard_lengths.start(index), self._stop(index))
            yield ShardInput(index, num_before, parts)

    def __call__(self, shard_input: ShardInput) -> MadeShard:
        """Write one shard, and fold the leaves that start in it."""
        index = shard_input.index
        first = self.split.shard_lengths.start(index)
        with (
            ExternalSorter(split=self.split.name, budget_bytes=self.budget_bytes) as sorter,
            self.store.create(self.split.filename(index), overwrite=True) as file,
        ):
            start = _add_runs(
                sorter, shard_input.runs, first - shard_input.num_before, self._stop(index) - shard_input.num_before
            )
            writer = RecordWriter(file)
            states = self._fold(self._write(writer, sorter.sorted_frames(start), index))
        if writer.num_records != self.split.shard_lengths[index]:
            raise StorageError(
                f"sorting: expected {self.split.shard_lengths[index]} records for "
                f"{self.split.filename(index)}, found {writer.num_records}",
                hint="Another program changed the runs. Remove them: registry gc --older-than 0s",
                details={"filename": self.split.filename(index), "num_records": writer.num_records},
            )
        return MadeShard(self.split.shard(index, num_bytes=writer.num_bytes, sha256=writer.sha256()), states)

    def _stop(self, index: int) -> int:
        """The position after the last record that the shard needs: its last leaf may end in the next shard."""
        first = self.split.shard_lengths.start(index)
        end = first + self.split.shard_lengths[index]
        if self.fold is None or _next_leaf(first) >= end:
            return end
        return min(_next_leaf(end), self.split.num_examples)

    def _write(self, writer: RecordWriter, frames: Iterator[Frames], index: int) -> Iterator[Frames]:
        """Write the records of the shard. Yields those of the leaves that start in it; the last leaf may end later.

        A leaf that starts in an earlier shard is folded with that shard.
        """
        position, stop = self.split.shard_lengths.start(index), self._stop(index)
        first_leaf, end = _next_leaf(position), position + self.split.shard_lengths[index]
        for block in frames:
            to_write = block.part(0, min(block.num_records, max(0, end - position)))
            if to_write.num_records:
                writer.write_frames(to_write.data, num_records=to_write.num_records)
            start = max(0, first_leaf - position)
            if start < min(block.num_records, stop - position):
                yield block.part(start, min(block.num_records, stop - position))
            position += block.num_records
            if position >= stop:
                break

    def _fold(self, frames: Iterator[Frames]) -> list[Any] | None:
        """Draw all of ``frames``, which start at a leaf, and return the states of the folds."""
        if self.fold is None:
            for _ in frames:
                pass
            return None
        groups = regroup(frames, multiple=1, least_bytes=_GROUP_BYTES)
        return self.fold(group.payloads() for group in groups)


def _add_runs(sorter: ExternalSorter, parts: Sequence[Run], first: int, stop: int) -> Start:
    """Add the blocks with records ``first``..``stop`` (stop excluded); returns the first of these records."""
    runs = [replace(run, file=copy(run.file)) for run in parts]  # the process that made the runs also reads them
    start, last = find_starts(runs, [first, stop - 1])
    for run in runs:
        begin, end = run.block_before(start.key), run.num_blocks_until(last.key)
        if begin < end:
            sorter.add_run(replace(run, table=run.table.part(begin, end)), num_payload_bytes=0)
        else:
            run.close()
    return start


def _next_leaf(position: int) -> int:
    """The first leaf that starts at ``position`` or later."""
    return -(-position // LEAF_EXAMPLES) * LEAF_EXAMPLES
