"""Folds the stored records of a version: their fingerprints, and the values that their features do not allow.

    split -> runs of records -> pieces of an engine -> folds (registry.features.fold) -> SplitFingerprint, ValuesOutside

``proof`` compares fingerprints, and ``record_diff`` reads runs of records in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from registry.building.publication_folds import AttachedFold, Documents, Folded, publication_kinds, write_documents
from registry.engines import Piece, choose_engine, watch_tasks
from registry.errors import CorruptExampleError, VerificationError
from registry.features import FeaturesDict, LimitReader, codec_of, features_from_json
from registry.features.codec import FlatRecords
from registry.features.content import ContentReader, content_bytes
from registry.features.fold import FingerprintFold, FoldKinds, SplitFold
from registry.model import LEAF_EXAMPLES, DatasetVersion, Split, SplitFingerprint
from registry.publishing.outside import ValuesOutside, locate_outside
from registry.shards import as_records, open_shard, read_flat_values, read_records, read_tables
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

_MISSING: Final = b"\0" * 32
"""Instead of the digest of a null: nulls equal nothing, so they need a mark that sha256 gives to no value."""

_ABSENT: Final = content_bytes([])
"""The content of an optional feature without a value, see ``ColumnReader.read_content``."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class StoredFold:
    """The function of a piece of work: folds the stored records of a run, which starts at a leaf."""

    stored: StoredSplits
    kinds: FoldKinds

    def __call__(self, run: RecordRun) -> list[Any] | None:
        """Return the state of each fold. An error names the file and the record."""
        fold = SplitFold(self.stored.features, self.kinds)
        for block in self.stored.flat_records(run):
            try:
                fold.add_block(block)
            except CorruptExampleError:
                self.stored.name_corrupt_record(RecordRun(run.place, block.start, block.start + block.num_records))
                raise
        return fold.states


class Fingerprints(NamedTuple):
    """What the folds computed of all splits, and the values that a feature does not allow."""

    folded: Folded
    outside: tuple[ValuesOutside, ...]

    @property
    def of_splits(self) -> Mapping[str, SplitFingerprint]:
        """The fingerprint of each split by name."""
        return self.folded.fingerprints


def fingerprint_splits(
    stored: StoredSplits,
    *,
    is_publication: bool = False,
    processes: int | None = None,
    advance: Advance | None = None,
) -> Fingerprints:
    """Compute the fingerprint of each split. The same records give the same fingerprint in any files.

    Args:
        stored: the splits, their files and their features.
        is_publication: also run the other folds of a publication, whose documents become attachments.
        processes: the number of processes that decode. None: one for each core if there is enough work.
        advance: called with the number of records done since the last call.

    Raises:
        CorruptRecordError, CorruptExampleError, ShardMismatchError: a record cannot be read; names file and record.
        StorageError: a file cannot be read.
        VerificationError: a worker process died.
    """
    kinds = (LimitReader, *(publication_kinds() if is_publication else [FingerprintFold]))
    results = _fold(stored, kinds, processes, advance)
    outside = {name: result.pop(0) for name, result in results.items()}
    folded = Folded.of(results) if is_publication else Folded({name: found for name, [found] in results.items()})
    return Fingerprints(folded, locate_outside(stored.splits, outside))


def fold_documents(
    stored: StoredSplits,
    attached: Sequence[AttachedFold],
    *,
    processes: int | None = None,
    advance: Advance | None = None,
) -> Documents:
    """Compute the documents of folds over stored records; see ``fingerprint_splits`` for arguments and errors."""
    return write_documents(attached, _fold(stored, [fold.fold for fold in attached], processes, advance))


def _fold(
    stored: StoredSplits, kinds: FoldKinds, processes: int | None, advance: Advance | None
) -> dict[str, list[Any]]:
    """The results of each fold for each split, by the name of the split."""
    results = {split.name: SplitFold(stored.features, kinds).results() or [] for split in stored.splits}
    runs = [RecordRun(place, 0, split.num_examples) for place, split in enumerate(stored.splits)]
    parts = call_on_runs(StoredFold(stored, kinds), stored, runs, processes=processes, advance=advance)
    for place, of_split in groupby(parts, key=lambda part: part[0].place):
        fold = SplitFold(stored.features, kinds)  # one at a time: its states take memory
        for _, states in of_split:
            fold.merge(states)
        results[stored.splits[place].name] = fold.results() or []
    return results


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

        Raises the errors of ``contents``.
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
                yield position, block
                position += block.num_records

    def flat_records(self, run: RecordRun) -> Iterator[FlatRecords]:
        """Yield the records of ``run`` in blocks, flattened for folds. Raises the errors of ``contents``."""
        codec = codec_of(self.features)
        if not self.has_columns(run) or codec.has_unknown:
            for position, records in self.blocks(run):
                try:
                    yield codec.flat_records(*records, start=position)
                except CorruptExampleError:
                    self.name_corrupt_record(RecordRun(run.place, position, position + records.num_records))
                    raise
            return
        split = self.splits[run.place]
        for part in self.shards_of(run):
            index = split.shard_lengths.shard_of(part.start)
            before = split.shard_lengths.start(index)
            tables = read_tables(
                self.store,
                split.filename(index),
                features=self.features,
                skip=part.start - before,
                take=part.stop - part.start,
                num_records=split.shard_lengths[index],
            )
            for table, first in tables:
                try:
                    yield FlatRecords(before + first, table.num_records, table.flat_blocks())
                except CorruptExampleError:
                    self.name_corrupt_record(RecordRun(run.place, before + first, before + first + table.num_records))
                    raise

    def name_corrupt_record(self, run: RecordRun) -> None:
        """Read the records of ``run``, one of which is corrupt, one by one. Raises the error of ``contents``."""
        for _ in self.contents(run, ContentReader(self.features)):
            pass

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


@dataclass(frozen=True, slots=True)
class RecordHasher:
    """Computes the digests of the records of a run, concatenated: of whole records, or of some features.

    Can be sent to another process.

    Attributes:
        stored: the files; ``stored.features`` has at least the features that are compared.
        paths: the paths of the features; None hashes whole records.
        key: the feature that is the key of the records: a digest of it alone follows that of each record.
        is_optional: whether each of ``paths`` may be null: a record without any of them has the digest ``_MISSING``.
        scalar: the dtype of the feature if it is one floating-point number, to recognize NaN; else None.
        wanted: if not None, only the records at these positions of the split have digests; they are sorted.
        num_bytes: the length of a digest.
    """

    stored: StoredSplits
    paths: tuple[str, ...] | None
    key: str | None = None
    is_optional: bool = False
    scalar: np.dtype[Any] | None = None
    wanted: npt.NDArray[np.int64] | None = None
    num_bytes: int = 8

    def __call__(self, run: RecordRun) -> bytes:
        """Return the digests, in order."""
        reader = ContentReader(self.stored.features)
        places = None if self.paths is None else list(map(reader.paths.index, self.paths))
        digest = partial(self._digest, places, None if self.key is None else reader.paths.index(self.key))
        if self.wanted is None and (self.paths is not None or self.stored.has_columns(run)):
            return b"".join(map(digest, self.stored.contents(run, reader)))
        return b"".join(self._hash_blocks(run, reader, digest))

    def _hash_blocks(
        self, run: RecordRun, reader: ContentReader, digest: Callable[[list[bytes]], bytes]
    ) -> Iterator[bytes]:
        codec = codec_of(self.stored.features)
        for position, block in self.stored.blocks(run):
            at = np.arange(position, position + block.num_records)
            if self.wanted is not None:
                at = self.wanted[slice(*np.searchsorted(self.wanted, [position, position + block.num_records]))]
            offsets, lengths = block.offsets[at - position], block.lengths[at - position]
            hashers = [hashlib.sha256() for _ in range(at.size)] if self.paths is None else []
            leaves = [(1, [hasher] * len(reader.paths)) for hasher in hashers]
            if leaves:
                with suppress(CorruptExampleError):  # raised again below, with the names of file and record
                    reader.hash_block(codec.flat_records(block.data, offsets, lengths), leaves)
                    yield from (hasher.digest()[: self.num_bytes] for hasher in hashers)
                    continue
            for place, start, length in zip(at.tolist(), offsets.tolist(), lengths.tolist(), strict=True):
                try:
                    contents = reader.read(bytes(block.data[start : start + length]))
                except CorruptExampleError:  # raised again with the names of file and record
                    (contents,) = self.stored.contents(RecordRun(run.place, place, place + 1), reader)
                yield digest(contents)

    def _digest(self, places: list[int] | None, key: int | None, contents: list[bytes]) -> bytes:
        chosen = contents if places is None else [contents[place] for place in places]
        is_missing = (self.is_optional and all(content == _ABSENT for content in chosen)) or self._is_nan(chosen)
        digest = _MISSING if is_missing else hashlib.sha256(b"".join(chosen)).digest()
        result = digest[: self.num_bytes]
        return result if key is None else result + hashlib.sha256(contents[key]).digest()[: self.num_bytes]

    def _is_nan(self, contents: list[bytes]) -> bool:
        if self.scalar is None:
            return False
        return bool(np.isnan(np.frombuffer(contents[0][-self.scalar.itemsize :], self.scalar.newbyteorder("<"))).any())


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
