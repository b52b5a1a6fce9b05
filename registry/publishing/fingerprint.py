"""Computes the fingerprints of a version: every record decoded and hashed, split by split, feature by feature.

    split -> runs of records -> pieces of an engine -> digests of leaves of 1,024 records -> SplitFingerprint

``registry.model`` defines the digests, and ``registry.features.content`` the bytes of a record that they cover.
``proof`` compares fingerprints, and ``record_diff`` reads runs of records in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from registry.engines import Piece, choose_engine, watch_tasks
from registry.errors import CorruptExampleError, VerificationError
from registry.features import FeaturesDict, LimitReader, Outside, features_from_json, merge_outside
from registry.features.content import ContentReader
from registry.model import LEAF_EXAMPLES, DatasetVersion, FeatureFingerprint, Split, SplitFingerprint
from registry.publishing.outside import ValuesOutside, locate_outside
from registry.shards import TableBlock, as_records, open_shard, read_flat_values, read_records
from registry.storage import Store
from registry.tfrecord import RecordBlock
from registry.wire import FlatValue

Advance = Callable[[int], None]
"""Called with the number of records processed since the last call."""

_COLUMNS: Final = "parquet_columns"
_FIRST_IN_BLOCK: Final = 16
_MOST_IN_BLOCK: Final = 8 * LEAF_EXAMPLES
_BLOCK_BYTES: Final = 16 * 2**20
_MOST_IN_TASK: Final = 512 * LEAF_EXAMPLES
"""Long, because starting in the middle of a shard means reading all headers before it, or decompressing all of it."""

R = TypeVar("R")
_DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class LeafHasher:
    """Hashes the records of a run: for each leaf of 1,024 records, for each feature, 32 bytes of sha256."""

    stored: StoredSplits

    def __call__(self, run: RecordRun) -> tuple[bytes, list[Outside]]:
        """Return the digests, leaf by leaf, and within a leaf in the order of the features' paths.

        Also return the values that a feature does not allow.
        """
        limits = LimitReader(self.stored.features)
        outside: list[Outside] = []
        if self.stored.has_columns(run):  # all at once: a row group that spans many leaves is decoded once
            digests = self._hash_each(run)
            if limits.is_needed:
                for position, rows in self.stored.rows(run, limits.features):
                    outside += limits.in_rows(rows.flat_blocks(), start=position)
            return b"".join(digests), merge_outside(outside)
        reader = ContentReader(self.stored.features)
        digests = []
        hashers, is_sound = [hashlib.sha256() for _ in reader.paths], True
        for position, block in self.stored.blocks(run):
            if limits.is_needed:
                outside += limits.in_records(*block, start=position)
            is_sound = is_sound and reader.hash_block(*block, [(block.num_records, hashers)])
            end = position + block.num_records
            if (end - run.start) % LEAF_EXAMPLES == 0 or end == run.stop:
                start = run.start + (end - run.start - 1) // LEAF_EXAMPLES * LEAF_EXAMPLES
                sound = [hasher.digest() for hasher in hashers] if is_sound else None
                digests += sound or self._hash_each(RecordRun(run.place, start, end))
                hashers, is_sound = [hashlib.sha256() for _ in reader.paths], True
        return b"".join(digests), merge_outside(outside)

    def _hash_each(self, run: RecordRun) -> list[bytes]:
        """Hash record by record, so that an error names the bad record."""
        reader = ContentReader(self.stored.features)
        digests: list[bytes] = []
        hashers = [hashlib.sha256() for _ in reader.paths]
        for position, contents in enumerate(self.stored.contents(run, reader), start=1):
            for hasher, content in zip(hashers, contents, strict=True):
                hasher.update(content)
            if position % LEAF_EXAMPLES == 0 or position == run.stop - run.start:
                digests += [hasher.digest() for hasher in hashers]
                hashers = [hashlib.sha256() for _ in reader.paths]
        return digests


class Fingerprints(NamedTuple):
    """The fingerprint of each split by name, and the values that a feature does not allow."""

    of_splits: dict[str, SplitFingerprint]
    outside: tuple[ValuesOutside, ...]


def fingerprint_splits(
    stored: StoredSplits, *, processes: int | None = None, advance: Advance | None = None
) -> Fingerprints:
    """Compute the fingerprint of each split. The same records give the same fingerprint in any files.

    Args:
        stored: the splits, their files and their features.
        processes: the number of processes that decode. None: one for each core if there is enough work.
        advance: called with the number of records done since the last call.

    Raises:
        CorruptRecordError, CorruptExampleError, ShardMismatchError: a record cannot be read; names file and record.
        StorageError: a file cannot be read.
        VerificationError: a worker process died.
    """
    paths = ContentReader(stored.features).paths
    leaves = {split.name: [bytearray() for _ in paths] for split in stored.splits}
    runs = [RecordRun(place, 0, split.num_examples) for place, split in enumerate(stored.splits)]
    outside: dict[str, list[Outside]] = {split.name: [] for split in stored.splits}
    results = call_on_runs(LeafHasher(stored), stored, runs, processes=processes, advance=advance)
    for run, (digests, found_outside) in results:
        of_features = leaves[stored.splits[run.place].name]
        outside[stored.splits[run.place].name] += found_outside
        for place in range(0, len(digests), _DIGEST_BYTES):
            of_features[place // _DIGEST_BYTES % len(paths)] += digests[place : place + _DIGEST_BYTES]
    of_splits = {
        split.name: SplitFingerprint(
            num_examples=split.num_examples,
            features={
                path: FeatureFingerprint.of_leaves(leaf, num_examples=split.num_examples)
                for path, leaf in zip(paths, leaves[split.name], strict=True)
            },
        )
        for split in stored.splits
    }
    return Fingerprints(of_splits, locate_outside(stored.splits, outside))


class RecordRun(NamedTuple):
    """Records ``start``..``stop`` (stop excluded) of the split with index ``place`` in its version."""

    place: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class StoredSplits:
    """The splits of a version, the store of their shards, and their features. Can be sent to another process."""

    store: Store
    splits: tuple[Split, ...]
    features: FeaturesDict

    @classmethod
    def of(cls, version: DatasetVersion, store: Store) -> StoredSplits:
        """The splits of a published ``version``, whose shards are in ``store``."""
        features = features_from_json(version.features_json).with_labels(version.labels)
        return cls(store, version.splits, features)

    def contents(self, run: RecordRun, reader: ContentReader) -> Iterator[list[bytes]]:
        """Yield the content of each record of ``run``: a list with one entry for each of ``reader.paths``.

        Raises:
            CorruptRecordError, CorruptExampleError, ShardMismatchError: a record cannot be read; names file and record.
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
        """Yield the stored records of ``run``. Raises the errors of ``contents``."""
        return (record for _, _, record in self._stored(run) if isinstance(record, bytes))

    def sources(self) -> tuple[Store, ...]:
        """The stores that have the bytes of the shards: a staged folder may take them from another store."""
        return self.store.sources_of(name for split in self.splits for name in split.filenames)

    def shards_of(self, run: RecordRun) -> Iterator[RecordRun]:
        """``run``, divided at the ends of shards."""
        lengths, position = self.splits[run.place].shard_lengths, run.start
        while position < run.stop:
            index = lengths.shard_of(position)
            stop = min(run.stop, lengths.start(index) + lengths[index])
            yield RecordRun(run.place, position, stop)
            position = stop

    def has_columns(self, run: RecordRun) -> bool:
        """Whether the records of ``run`` are rows of typed columns, which can be read without serializing them."""
        return self.splits[run.place].files.file_format == _COLUMNS

    def blocks(self, run: RecordRun) -> Iterator[tuple[int, RecordBlock]]:
        """Yield the stored records of ``run`` in blocks, in order, each with the position of its first record.

        A block never extends over two leaves of 1,024 records, counted from the start of the run. Raises the errors of
        ``contents``.
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

    def rows(self, run: RecordRun, features: FeaturesDict) -> Iterator[tuple[int, TableBlock]]:
        """Yield the typed columns ``features`` of ``run`` in blocks, each with the position of its first row.

        Other columns are not read. Raises the errors of ``contents``.
        """
        split = self.splits[run.place]
        for part in self.shards_of(run):
            index = split.shard_lengths.shard_of(part.start)
            before, length = split.shard_lengths.start(index), split.shard_lengths[index]
            shard = open_shard(
                self.store, split.filename(index), file_format=_COLUMNS, features=features, num_records=length
            )
            for position in range(part.start, part.stop, _MOST_IN_BLOCK):
                block = shard.read(position - before, min(_MOST_IN_BLOCK, part.stop - position))
                if isinstance(block, TableBlock):
                    yield position, block

    def _stored(
        self, run: RecordRun, *, as_flat_values: bool = False
    ) -> Iterator[tuple[str, int, bytes | Mapping[str, FlatValue]]]:
        """The records of a run with file and index. ``as_flat_values`` gives the stored values of typed columns."""
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
    """Ranges of ``count`` records, the first at ``position``, divided at the ends of leaves."""
    start = 0
    while start < count:
        end = min(count, start + LEAF_EXAMPLES - (position + start) % LEAF_EXAMPLES)
        yield start, end
        start = end


def divide_run(run: RecordRun, *, width: int) -> Iterator[RecordRun]:
    """Divide ``run`` into pieces for an engine: whole leaves (except the last), not too small and not too large."""
    share = -(-(run.stop - run.start) // (8 * width))
    length = min(_MOST_IN_TASK, max(4, -(-share // LEAF_EXAMPLES)) * LEAF_EXAMPLES)
    for start in range(run.start, run.stop, length):
        yield RecordRun(run.place, start, min(start + length, run.stop))


def call_on_runs(
    function: Callable[[RecordRun], R],
    stored: StoredSplits,
    runs: Iterable[RecordRun],
    *,
    processes: int | None,
    advance: Advance | None,
    by_shard: bool = False,
) -> Iterator[tuple[RecordRun, R]]:
    """Yield the pieces of ``runs`` in order, each with the result of ``function``, which must be picklable.

    ``processes=None`` decides by the size of all splits. ``by_shard`` makes a piece of each shard: for a function that
    takes so little time that reading the headers before a piece would take longer.

    Raises:
        VerificationError: a worker process died.
    """
    sources = stored.sources()
    engine = choose_engine(
        processes,
        num_bytes=sum(split.num_bytes for split in stored.splits),
        num_items=sum(split.num_examples for split in stored.splits),
        is_local=all(source.local_root is not None for source in sources),
        reads=[source.url for source in sources],
    )
    pieces = (
        Piece(function, part)
        for run in runs
        for part in (stored.shards_of(run) if by_shard else divide_run(run, width=engine.width))
    )
    with engine:
        watch = watch_tasks(advance)
        for run, result in engine.run(pieces, doing="read records", failure=VerificationError, watch=watch):
            if advance is not None:
                advance(run.stop - run.start)
            yield run, result
