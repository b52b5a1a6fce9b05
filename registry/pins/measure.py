"""Computes the digests of a slice's records and of its files, in one pass that threads or processes share.

    runs of 1,024 records, and whole files  --workers-->  sha256 of each record, leaves of features, sha256 of files
                                            --here, in order-->  RecordDigests, FileFacts

Worker processes import this module, so it must not load pydantic or YAML.
"""

from __future__ import annotations

import hashlib
import heapq
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from registry.engines import Piece, choose_engine, watch_tasks
from registry.errors import CorruptExampleError, StorageError, VerificationError
from registry.features import FeaturesDict, codec_of
from registry.features.digest_pile import DigestPile
from registry.model import Advance
from registry.order import Order, ReadConfig
from registry.pins.record_digests import LEAF_RECORDS, KeyDigests, RecordSums, hash_leaf
from registry.reading.pieces import RecordSource
from registry.shards import as_records, name_record
from registry.splits import Plan
from registry.storage import Store
from registry.storage.memory import Watch
from registry.tfrecord import FileFacts, IndexFolder, RecordBlock, Verify
from registry.wire import BlockDecoder

_MANY_BYTES: Final = 512 * 2**20
"""From this size on, worker processes pay off; starting them takes a second of each core."""

_LARGE_RECORD: Final = 8 * 2**10
"""From this mean record size on, threads suffice, because hashing releases the interpreter's lock long enough."""

_TASK_BYTES: Final = 16 * 2**20
_MOST_LEAVES: Final = 64
_FIRST_WEIGHT: Final = 1
"""The weight of the first record. A record with weight 0 could not be located."""

NO_RECORDS: Final = "sha256:" + hashlib.sha256(b"").hexdigest()
"""``ordered`` and ``unordered`` of a slice without records."""

_RANGE_ORDER: Final = ReadConfig(interleave_cycle_length=1)
"""The order of a plan's ranges, in which records are counted and hashed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDigests:
    """The digests of the records of a slice, written as in a pin file.

    Attributes:
        num_examples: number of records.
        ordered: sha256 over the hashes of the records, in order.
        unordered: sha256 over the sorted hashes; empty unless ``whole``.
        finder: the sums that locate a changed record.
        features: a digest for each key. Empty without ``whole``, or if a record is not a tf.train.Example, which is
            accepted only with ``verify="off"``.
        spots: sha256 of the first, the middle and the last record; None for a slice without records.
    """

    num_examples: int
    ordered: str
    unordered: str
    finder: RecordSums
    features: dict[str, str]
    spots: tuple[str, str, str] | None

    def find_changed(self, pinned: RecordSums) -> int | None:
        """The position in the slice of the only record that differs from ``pinned``; None if none or several differ."""
        position = (pinned.find_weight(self.finder) or 0) - _FIRST_WEIGHT
        return position if 0 <= position < self.num_examples else None


def spot_places(num_examples: int) -> tuple[int, int, int]:
    """The positions of the records that are pinned one by one: the first, the middle and the last."""
    return 0, num_examples // 2, num_examples - 1


def locate_records(plan: Plan, positions: Sequence[int]) -> list[tuple[str, int]]:
    """The file of each record at these positions of a slice, and the record's index in it."""
    instructions, records = plan.order(_RANGE_ORDER).locate(list(positions))
    return [
        (plan[index].filename, record) for index, record in zip(instructions.tolist(), records.tolist(), strict=True)
    ]


def hash_records(
    plan: Plan,
    store: Store,
    positions: Sequence[int],
    *,
    file_format: str,
    features: FeaturesDict | None,
    verify: Verify,
    indexes: IndexFolder | None,
) -> list[bytes]:
    """The sha256 of each record at these positions of a slice; the arguments are those of ``measure_records``.

    Raises:
        CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: a record cannot be read.
    """
    source = RecordSource(plan, store, verify=verify, indexes=indexes, file_format=file_format, features=features)
    block = source.fetch(*plan.order(_RANGE_ORDER).locate(list(positions)))
    with _naming_record(plan, positions):
        return [hashlib.sha256(view).digest() for view in block.views()]


def measure_records(
    plan: Plan,
    store: Store,
    *,
    file_format: str = "tfrecord",
    features: FeaturesDict | None = None,
    files: Mapping[str, int] = MappingProxyType({}),
    verify: Verify = "block",
    whole: bool = True,
    deep: bool = False,
    indexes: IndexFolder | None = None,
    processes: int | None = None,
    advance: Advance | None = None,
) -> tuple[RecordDigests, dict[str, FileFacts]]:
    """The digests of the records of ``plan``, in the order of its ranges, and of whole ``files``.

    Args:
        plan: the records.
        store: the folder of the files.
        file_format: the format of the files, see ``registry.shards``.
        features: the schema of an example. Rows of typed columns become records by it, and ``deep`` needs it.
        files: names of files to hash as a whole, with their recorded sizes in bytes, so that the store is not queried.
        verify: how the checksums of records are checked; ``off`` hashes damaged records as they are, if possible.
        whole: False skips ``unordered`` and the digests of features, which take as long as the rest.
        deep: also decode every record.
        indexes: where the offsets of records are cached.
        processes: number of workers; None uses one for each core if there is enough data.
        advance: called with the number of bytes hashed since the last call.

    Raises:
        CorruptRecordError, ShardMismatchError, StorageError: a record or a file cannot be read.
        CorruptExampleError: a record is not a tf.train.Example, or, if ``deep``, not one of ``features``; not with
            ``verify="off"``. Or a row of columns is not one of ``features``.
        UsageError: ``processes`` is less than 1.
    """
    mean = _mean_bytes(plan, store, files)
    num_bytes = sum(files.values()) + int(mean * plan.num_examples)
    is_few = processes is None and num_bytes < _MANY_BYTES
    engine = choose_engine(
        processes,
        num_bytes=num_bytes,
        is_local=store.local_root is not None,
        is_unlocked=mean >= _LARGE_RECORD or not plan.num_examples or is_few,
        reads=(store.url,),
    )
    # Each file is read twice: as a file and as records. Close together, the second read is served by the page cache.
    tasks = _interleave([*files], _plan_runs(plan.num_examples, mean, engine.width))
    worker = Measurer(plan, store, file_format, features, verify, indexes, whole, deep)
    pieces = (Piece(worker, task) for task in tasks)
    state = _Sums(plan, whole=whole)
    digests: dict[str, FileFacts] = {}
    with engine, state.pile:
        watch = watch_tasks(advance)
        for task, result in engine.run(pieces, doing="hashed records", failure=VerificationError, watch=watch):
            if isinstance(task, str):
                digests[task] = result
            else:
                state.add(task, result)
            if advance is not None:
                advance(result.num_bytes)
        return state.result(), digests


def measure_files(
    store: Store,
    files: Mapping[str, int],
    *,
    indexes: IndexFolder | None = None,
    processes: int | None = None,
    advance: Advance | None = None,
) -> dict[str, FileFacts]:
    """Size and sha256 of each of ``files``, hashed by threads; arguments as for ``measure_records``.

    Raises:
        StorageError: a file cannot be read.
    """
    digests = {}
    hasher = partial(_hash_and_stamp, store, indexes=indexes)
    pieces = (Piece(hasher, name) for name in files)
    with choose_engine(
        processes,
        num_bytes=sum(files.values()),
        is_local=store.local_root is not None,
        is_unlocked=True,
        reads=(store.url,),
    ) as engine:
        watch = watch_tasks(advance, "files", total=len(files))
        for name, found in engine.run(pieces, doing="hashed files", failure=StorageError, watch=watch):
            digests[name] = found
            if advance is not None:
                advance(found.num_bytes)
    return digests


class RunDigests(NamedTuple):
    """A worker's result for a run: the joined sha256 of its records, and its leaves if all records are Examples."""

    records: bytes
    leaves: list[dict[str, bytes]] | None
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Measurer:
    """Hashes a run of records, given as (start, stop), or a file, given by name. Picklable, for worker processes."""

    plan: Plan
    store: Store
    file_format: str
    features: FeaturesDict | None
    verify: Verify
    indexes: IndexFolder | None
    whole: bool
    deep: bool
    _local: threading.local = field(default_factory=threading.local, compare=False, repr=False)

    def __call__(self, task: str | tuple[int, int]) -> RunDigests | FileFacts:
        """The digests of a run, or the size and sha256 of a file."""
        return (
            _hash_and_stamp(self.store, task, indexes=self.indexes) if isinstance(task, str) else self._hash_run(*task)
        )

    def _hash_run(self, start: int, stop: int) -> RunDigests:
        source, order, decoder = self._opened()
        sha256 = hashlib.sha256
        records: list[bytes] = []
        leaves: list[dict[str, bytes]] | None = []
        num_bytes = 0
        for first in range(start, stop, LEAF_RECORDS):
            places = range(first, min(first + LEAF_RECORDS, stop))
            fetched = source.fetch(*order.locate((places.start, places.stop)))
            with _naming_record(self.plan, places):
                block = as_records(fetched)
            records += [sha256(view).digest() for view in block.views()]
            num_bytes += block.num_bytes
            leaf = {} if decoder is None else hash_leaf(block, decoder)
            if self.verify != "off" and (leaf is None or self.deep):
                with _naming_record(self.plan, places):
                    self._require_examples(block)
            if leaf is None or leaves is None:
                leaves = None
            else:
                leaves.append(leaf)
        return RunDigests(b"".join(records), leaves, num_bytes)

    def _opened(self) -> tuple[RecordSource, Order, BlockDecoder | None]:
        """The source and the decoder of this thread: threads must not share open files or the decoder's state."""
        result: tuple[RecordSource, Order, BlockDecoder | None] | None = getattr(self._local, "opened", None)
        if result is None:
            source = RecordSource(
                self.plan,
                self.store,
                verify=self.verify,
                indexes=self.indexes,
                file_format=self.file_format,
                features=self.features,
            )
            result = source, self.plan.order(_RANGE_ORDER), BlockDecoder() if self.whole else None
            self._local.opened = result
        return result

    def _require_examples(self, block: RecordBlock) -> None:
        """Raise CorruptExampleError for a record that is not an example, or, if ``deep``, not one of the features."""
        features = self.features if self.deep and self.features is not None else FeaturesDict({})
        fault = codec_of(features).decode_block(*block, copy=False).fault
        if fault is not None:
            raise fault

    def __reduce__(self) -> tuple[Any, ...]:
        kept = self.file_format, self.features, self.verify, self.indexes, self.whole, self.deep
        return Measurer, (self.plan, self.store, *kept)


@contextmanager
def _naming_record(plan: Plan, positions: Sequence[int]) -> Iterator[None]:
    """Name the file and the record in an error about one of the records at these positions of a slice."""
    try:
        yield
    except CorruptExampleError as error:
        ((name, record),) = locate_records(plan, [positions[error.details["record"]]])
        raise name_record(error, name, record) from error


def _hash_and_stamp(store: Store, name: str, *, indexes: IndexFolder | None = None) -> FileFacts:
    """Size and sha256 of a stored file; ``indexes`` remembers the hash until the file changes."""
    watch = None if indexes is None else Watch(store, name)
    with store.open(name) as file:
        facts = FileFacts(num_records=0, num_payload_bytes=0, num_bytes=file.num_bytes, sha256=file.sha256())
    if watch is not None and indexes is not None:
        indexes.stamps.keep_watched(watch, facts.sha256)
    return facts


class _Sums:
    """Combines the digests of runs, which are added in order."""

    def __init__(self, plan: Plan, *, whole: bool) -> None:
        self.pile = DigestPile()
        self._whole = whole
        self._plan = plan
        self._finder = RecordSums()
        self._ordered = hashlib.sha256()
        self._keys: KeyDigests | None = KeyDigests()  # None: a record is not an Example
        self._spots: dict[int, str] = {}

    def add(self, run: tuple[int, int], digests: RunDigests) -> None:
        start, stop = run
        self._ordered.update(digests.records)
        if self._whole:
            self.pile.add(digests.records)
        self._finder += RecordSums.of_list(digests.records, first=start + _FIRST_WEIGHT)
        for place in spot_places(self._plan.num_examples):
            if start <= place < stop:
                self._spots[place] = "sha256:" + digests.records[32 * (place - start) :][:32].hex()
        if digests.leaves is None:
            self._keys = None
        elif self._keys is not None:
            for leaf in digests.leaves:
                self._keys.add(leaf)

    def result(self) -> RecordDigests:
        num_examples = self._plan.num_examples
        first, middle, last = (self._spots.get(place) for place in spot_places(num_examples))
        return RecordDigests(
            num_examples=num_examples,
            ordered="sha256:" + self._ordered.hexdigest(),
            unordered="sha256:" + self.pile.sorted_digest() if self._whole else "",
            finder=self._finder,
            features={} if self._keys is None else self._keys.result(),
            spots=(first, middle, last) if first and middle and last else None,
        )


def _mean_bytes(plan: Plan, store: Store, sizes: Mapping[str, int]) -> float:
    """The approximate length of a record."""
    examples = {file.filename: file.examples_in_shard for file in plan[:1]}
    num_bytes = sum(sizes.get(name) or store.size(name) for name in examples)
    return num_bytes / max(sum(examples.values()), 1)


def _plan_runs(num_examples: int, mean: float, processes: int) -> range:
    """The first positions of the runs of records that are hashed together."""
    leaves = int(_TASK_BYTES / max(mean * LEAF_RECORDS, 1))
    leaves = min(max(leaves, 1), _MOST_LEAVES, max(num_examples // (4 * processes * LEAF_RECORDS), 1))
    return range(0, num_examples, leaves * LEAF_RECORDS)


def _interleave(files: list[str], starts: range) -> Iterator[str | tuple[int, int]]:
    """Interleave files and runs evenly, each kind in order. Lazy, because a pin may claim 2**60 records."""
    runs = ((start, min(start + starts.step, starts.stop)) for start in starts)
    tasks: Iterable[tuple[float, str | tuple[int, int]]] = heapq.merge(
        (((place + 0.5) / len(files), name) for place, name in enumerate(files)),
        (((place + 0.5) / len(starts), run) for place, run in enumerate(runs)),
        key=itemgetter(0),
    )
    return (task for _, task in tasks)
