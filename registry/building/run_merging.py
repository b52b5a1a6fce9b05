"""Merges many runs of a cluster into few, so that the task of a shard reads large parts of few files.

    runs -> groups -> ranges of sort keys -> a task merges a range of a group -> the ranges of a group are a merged run

Every shard reads a part of every run. With R runs and S shards, that is R * S parts, which become small and many: 10 TB
in 15,000 runs and 10,240 shards have 150 million parts of 70 kB. Merging reads and writes all records once more, in
parts of a megabyte or more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from typing import Final, NamedTuple

import numpy as np

from registry.building.keys import SORT_KEY_BYTES
from registry.building.run_files import ChainedRunFile, NamedRunFile
from registry.building.run_folder import SplitRuns
from registry.building.run_format import BlockTable, KeyRange, Run
from registry.building.sorter import FAN_IN, ExternalSorter
from registry.building.task_progress import Outcome, StageTasks
from registry.engines import Engine, Piece
from registry.errors import BuildError, StorageError
from registry.model import ProgressCallback

MOST_RUNS: Final = FAN_IN - 1
"""A task merges this many runs without writing to the disk of its machine."""

LEAST_PART_BYTES: Final = 2**20
"""Reading a smaller part takes more time for requests, and for the rest of its blocks, than merging it before."""

_TASK_BYTES: Final = 512 * 2**20
_LEAST_READ_BYTES: Final = 2**20


class RangeInput(NamedTuple):
    """The input of a piece of work.

    Attributes:
        runs: the parts of the runs of a group that may contain sort keys of the range.
        keys: the range.
        file: receives the records.
    """

    runs: tuple[Run, ...]
    keys: KeyRange
    file: NamedRunFile

    @property
    def num_records(self) -> int:
        """The number of records, and some more of the first and last blocks."""
        return sum(run.num_records for run in self.runs)


def merge_range(split: str, budget_bytes: int, given: RangeInput) -> BlockTable:
    """Merge a range of sort keys of some runs, in ``budget_bytes`` of memory; returns the table of the file.

    Calling it again writes the same file.
    """
    with _sorter_of(given.runs, split, budget_bytes) as sorter:
        return sorter.write_to(given.file, given.keys)


def _sorter_of(runs: Sequence[Run], split: str, budget_bytes: int) -> ExternalSorter:
    """A sorter that has the records of ``runs``."""
    sorter = ExternalSorter(split=split, budget_bytes=budget_bytes)
    for run in runs:
        sorter.add_run(run, num_payload_bytes=0)
    return sorter


def merge_runs(
    engine: Engine,
    runs: Sequence[Run],
    place: SplitRuns,
    *,
    num_shards: int,
    budget_bytes: int,
    progress: ProgressCallback | None = None,
) -> Sequence[Run]:
    """Return runs with the same records, which are few enough for ``num_shards`` tasks that read a part of each.

    Args:
        engine: merges; all its processes can read the runs.
        runs: all records of the split.
        place: receives the merged runs. The original runs remain, so that another build can continue from them.
        num_shards: its number of shards.
        budget_bytes: memory of each process for merging.
        progress: called with a ``Progress``: records that were merged.

    Raises:
        DuplicateKeyError: a key is used twice.
        StorageError: the disk is full, or a run is damaged.
    """
    while are_too_many(runs, num_shards):
        groups = _group(runs, place, width=engine.width)
        pieces = _pieces(groups, partial(merge_range, place.split, budget_bytes), place)
        with StageTasks(
            progress,
            "merging",
            place.split,
            measure=_measure,
            unit="tasks",
            num_units=sum(len(group.ranges) for group in groups),
            num_examples=sum(run.num_records for run in runs),
        ) as stage:
            made = engine.run(pieces, doing="merged runs", failure=BuildError, watch=stage.watch)
            found = [[table for _, table in islice(made, len(group.ranges))] for group in groups]
        merged = [_chain(place, group, merged_group) for group, merged_group in zip(groups, found, strict=True)]
        if [run.num_records for run in merged] != [sum(run.num_records for run in group.runs) for group in groups]:
            raise StorageError(
                f"sorting: the merged runs of split {place.split!r} have lost records",
                hint="Another program changed the runs. Remove them: registry gc --older-than 0s",
                details={"split": place.split},
            )
        runs = merged
    return runs


def _measure(_: RangeInput, table: BlockTable) -> Outcome:
    """Return the counts of a range's task."""
    return Outcome(num_records=table.num_records, num_bytes=int(table.offsets[-1]))


def are_too_many(runs: Sequence[Run], num_shards: int) -> bool:
    """Whether shards would read small parts of many runs."""
    if len(runs) <= MOST_RUNS:
        return False
    return sum(run.num_bytes for run in runs) < LEAST_PART_BYTES * len(runs) * num_shards


def _check_range(split: str, budget_bytes: int, given: tuple[tuple[Run, ...], KeyRange]) -> int:
    """Find keys that are used twice in a range of the sort keys of some runs; returns the number of keys in it."""
    runs, keys = given
    with _sorter_of(runs, split, budget_bytes) as sorter:
        return sorter.check(keys)


def check_keys(
    engine: Engine, runs: Sequence[Run], *, split: str, budget_bytes: int, progress: ProgressCallback | None = None
) -> None:
    """Require that no sort key occurs twice in runs that all processes of ``engine`` can read.

    ``progress`` is called with a ``Progress``: keys that were checked, one for each record.

    Raises:
        DuplicateKeyError: a key is used twice.
        StorageError: a run is damaged.
    """
    if not runs:
        return
    checker = partial(_check_range, split, budget_bytes)
    num_keys, ranges = sum(run.num_records for run in runs), _divide(runs, wanted=2 * engine.width)
    pieces = (Piece(checker, (_parts(runs, keys), keys), num_items=num_keys) for keys in ranges)
    with StageTasks(
        progress,
        "checking",
        split,
        measure=_measure_check,
        unit="tasks",
        num_units=len(ranges),
        num_examples=num_keys,
    ) as stage:
        for _ in engine.run(pieces, doing="checked keys", failure=BuildError, watch=stage.watch):
            pass


def _measure_check(_: object, num_keys: int) -> Outcome:
    """Return the counts of the task of a range of keys."""
    return Outcome(num_records=num_keys)


class _RunGroup(NamedTuple):
    """Runs that become one, the ranges of sort keys that tasks merge, and the name of the new run."""

    runs: Sequence[Run]
    ranges: list[KeyRange]
    name: str


def _group(runs: Sequence[Run], place: SplitRuns, *, width: int) -> list[_RunGroup]:
    """Divide the runs into groups of about equal size, in their order."""
    count = -(-len(runs) // MOST_RUNS)
    bounds = [len(runs) * index // count for index in range(count + 1)]
    groups = []
    for start, stop in pairwise(bounds):
        ranges = _divide(runs[start:stop], wanted=-(-2 * width // count))
        groups.append(_RunGroup(runs[start:stop], ranges, place.new_merged_name()))
    return groups


def _divide(runs: Sequence[Run], *, wanted: int) -> list[KeyRange]:
    """Divide the sort keys of a group into ``wanted`` ranges of about equal size, or fewer if they become small."""
    num_bytes = sum(run.num_bytes for run in runs)
    most = num_bytes // (_LEAST_READ_BYTES * len(runs))
    count = max(1, -(-num_bytes // _TASK_BYTES), min(wanted, most))
    keys = np.sort(np.concatenate([run.table.keys for run in runs]))
    bounds = np.unique(keys[np.arange(1, count) * len(keys) // count])
    inner = [key.ljust(SORT_KEY_BYTES, b"\0") for key in bounds[bounds > keys[0]].tolist()]  # NumPy drops zeros
    return [KeyRange(start, stop) for start, stop in zip([b"", *inner], [*inner, None], strict=True)]


def _pieces(
    groups: Sequence[_RunGroup], merger: Callable[[RangeInput], BlockTable], place: SplitRuns
) -> Iterator[Piece[RangeInput, BlockTable]]:
    for group in groups:
        for index, keys in enumerate(group.ranges):
            file = ChainedRunFile.part(place.store, group.name, index)
            given = RangeInput(_parts(group.runs, keys), keys, file)
            yield Piece(merger, given, num_items=given.num_records)


def _parts(runs: Sequence[Run], keys: KeyRange) -> tuple[Run, ...]:
    """The parts of runs that may contain sort keys of a range."""
    result = []
    for run in runs:
        begin, end = run.block_before(keys.start), run.num_blocks_before(keys.stop)
        if begin < end:
            result.append(replace(run, table=run.table.part(begin, end)))
    return tuple(result)


def _chain(place: SplitRuns, group: _RunGroup, tables: Sequence[BlockTable]) -> Run:
    """The run whose ranges have these tables."""
    file = ChainedRunFile(place.store, group.name, [int(table.offsets[-1]) for table in tables])
    return Run(file, group.runs[0].level + 1, BlockTable.chained(tables))
