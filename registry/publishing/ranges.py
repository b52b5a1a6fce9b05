"""How are all records of a split walked quickly? In ranges, by this process or by several, with results in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from registry.errors import CorruptExampleError, VerificationError
from registry.features import FeaturesDict, features_from_json
from registry.features.content import ContentReader
from registry.model import LEAF_EXAMPLES, DatasetVersion, Split
from registry.processes import call_in_order, num_cpus
from registry.shards import as_records, open_shard, read_flat_values, read_records
from registry.storage import Store
from registry.tfrecord import RecordBlock
from registry.wire import FlatValue

Advance = Callable[[int], None]
"""Called with the number of records walked since the last call."""

_SMALL_EXAMPLES: Final = 20_000
_SMALL_BYTES: Final = 16 * 2**20
_MOST_PROCESSES: Final = 16
_COLUMNS: Final = "parquet_columns"
_FIRST_IN_BLOCK: Final = 16
_MOST_IN_BLOCK: Final = 8 * LEAF_EXAMPLES
_BLOCK_BYTES: Final = 16 * 2**20
_MOST_IN_TASK: Final = 512 * LEAF_EXAMPLES
"""Long, because whoever starts in the middle of a shard walks over the headers before it, or inflates all of that."""


class RecordRun(NamedTuple):
    """Records ``start``..``stop`` (stop excluded) of the split at ``place`` in its version."""

    place: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class StoredSplits:
    """The splits of a version, where their shards lie, and what a record of them means. Can be sent to a process."""

    store: Store
    splits: tuple[Split, ...]
    features: FeaturesDict

    @classmethod
    def of(cls, version: DatasetVersion, store: Store) -> StoredSplits:
        """The splits of a published ``version``, whose shards lie in ``store``."""
        features = features_from_json(version.features_json).with_labels(version.labels)
        return cls(store, version.splits, features)

    def contents(self, run: RecordRun, reader: ContentReader) -> Iterator[list[bytes]]:
        """The content of each record of ``run``, a list of one entry for each of ``reader.paths``.

        Raises:
            CorruptRecordError, CorruptExampleError, ShardMismatchError: a record cannot be read; file and record are
                named.
            StorageError: a file cannot be read.
        """
        for filename, index, record in self._stored(run, as_flat_values=True):
            try:
                yield reader.read(record) if isinstance(record, bytes) else reader.read_flat(record)
            except CorruptExampleError as error:
                raise CorruptExampleError(
                    f"{filename}: record {index}: {error.message}",
                    hint=error.hint,
                    details={**error.details, "path": filename, "record": index},
                ) from error

    def records(self, run: RecordRun) -> Iterator[bytes]:
        """The stored records of ``run``. Errors as ``contents``."""
        return (record for _, _, record in self._stored(run) if isinstance(record, bytes))

    def has_columns(self, run: RecordRun) -> bool:
        """Whether the records of ``run`` are rows of typed columns, which are not serialized to be told."""
        return self.splits[run.place].files.file_format == _COLUMNS

    def blocks(self, run: RecordRun) -> Iterator[tuple[int, RecordBlock]]:
        """The stored records of ``run`` in blocks, in order, each with the place of its first record in the split.

        None reaches from one leaf of 1,024 records, counted from the start of the run, into the next.

        Raises:
            CorruptRecordError, ShardMismatchError, StorageError: as ``contents``.
        """
        split, position, mean_bytes = self.splits[run.place], run.start, 0
        while position < run.stop:
            index = split.shard_lengths.shard_of(position)
            before, length = split.shard_lengths.start(index), split.shard_lengths[index]
            shard = open_shard(
                self.store,
                split.filename(index),
                file_format=split.files.file_format,
                features=self.features,
                num_records=length,
                verify="block",
            )
            stop = min(before + length, run.stop)
            while position < stop:
                most = min(_MOST_IN_BLOCK, _BLOCK_BYTES // mean_bytes + 1) if mean_bytes else _FIRST_IN_BLOCK
                block = as_records(shard.read(position - before, min(most, stop - position)))
                mean_bytes = block.num_bytes // block.num_records + 1
                for start, end in _cut_at_leaves(position - run.start, block.num_records):
                    yield position + start, RecordBlock(block.data, block.offsets[start:end], block.lengths[start:end])
                position += block.num_records

    def _stored(
        self, run: RecordRun, *, as_flat_values: bool = False
    ) -> Iterator[tuple[str, int, bytes | Mapping[str, FlatValue]]]:
        """The records of a run with file and place; with ``as_flat_values``, of typed columns only what they store."""
        split = self.splits[run.place]
        lengths, position = split.shard_lengths, run.start
        while position < run.stop:
            index = lengths.shard_of(position)
            skip = position - lengths.start(index)
            take = min(lengths[index] - skip, run.stop - position)
            filename = split.filename(index)
            stored = self._read(split, filename, as_flat_values, skip=skip, take=take, num_records=lengths[index])
            for place, record in enumerate(stored, start=skip):
                yield filename, place, record
            position += take

    def _read(
        self, split: Split, filename: str, as_flat_values: bool, **part: int
    ) -> Iterator[bytes | Mapping[str, FlatValue]]:
        if as_flat_values and split.files.file_format == _COLUMNS:
            return read_flat_values(self.store, filename, features=self.features, **part)
        return read_records(self.store, filename, file_format=split.files.file_format, features=self.features, **part)


def _cut_at_leaves(position: int, count: int) -> Iterator[tuple[int, int]]:
    """``count`` records, the first at ``position``, cut where a leaf ends; counted from the first of them."""
    start = 0
    while start < count:
        end = min(count, start + LEAF_EXAMPLES - (position + start) % LEAF_EXAMPLES)
        yield start, end
        start = end


def plan_runs(splits: Sequence[Split], *, processes: int) -> list[RecordRun]:
    """Runs that cover every split: whole leaves of 1,024 records, worth a message each, short enough to be shared."""
    runs: list[RecordRun] = []
    for place, split in enumerate(splits):
        runs += divide_run(RecordRun(place, 0, split.num_examples), processes=processes)
    return runs


def divide_run(run: RecordRun, *, processes: int) -> list[RecordRun]:
    """``run`` in pieces for ``processes``: each but the last a whole number of leaves."""
    share = -(-(run.stop - run.start) // (8 * processes))
    length = min(_MOST_IN_TASK, max(4, -(-share // LEAF_EXAMPLES)) * LEAF_EXAMPLES)
    return [RecordRun(run.place, start, min(start + length, run.stop)) for start in range(run.start, run.stop, length)]


def choose_processes(stored: StoredSplits, wanted: int | None) -> int:
    """``wanted``, or as many as there are cores where there is enough to do; one where the files are elsewhere."""
    if wanted is not None:
        return wanted
    num_examples = sum(split.num_examples for split in stored.splits)
    num_bytes = sum(split.num_bytes for split in stored.splits)
    is_small = num_examples < _SMALL_EXAMPLES and num_bytes < _SMALL_BYTES
    return 1 if is_small or stored.store.local_root is None else min(num_cpus(), _MOST_PROCESSES)


def call_on_runs(
    function: Callable[[RecordRun], Any],
    runs: Sequence[RecordRun],
    *,
    processes: int,
    advance: Advance | None = None,
) -> Iterator[tuple[RecordRun, Any]]:
    """Each of ``runs`` and what ``function`` gives for it, in order.

    ``function`` must be one that pickles, and hold nothing but values. What it raises is raised here.

    Raises:
        VerificationError: a worker process died.
    """
    outcomes = call_in_order(function, runs, processes=processes, doing="read records", failure=VerificationError)
    for run, result in outcomes:
        if advance is not None:
            advance(run.stop - run.start)
        yield run, result
