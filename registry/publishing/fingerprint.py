"""Folds the stored records of a version: their fingerprints, and the values that their features do not allow.

    split -> runs of records -> pieces of an engine -> folds (registry.features.fold) -> SplitFingerprint, ValuesOutside

``proof`` compares fingerprints, and ``record_diff`` reads runs of records in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, groupby
from threading import local
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
from registry.model import LEAF_EXAMPLES, Advance, DatasetVersion, Split
from registry.publishing.outside import ValuesOutside, locate_outside
from registry.shards import as_records, name_record, open_shard, read_records, read_tables
from registry.storage import Store
from registry.tfrecord import RecordBlock

_COLUMNS: Final = "parquet_columns"
_FIRST_IN_BLOCK: Final = 16
_MOST_IN_BLOCK: Final = 32 * LEAF_EXAMPLES
_BLOCK_BYTES: Final = 16 * 2**20
_MOST_IN_TASK: Final = 512 * LEAF_EXAMPLES
"""Long, because starting in the middle of a shard means reading all headers before it, or decompressing all of it."""

_QUICK_BYTES: Final = 2**31
_BYTES_OF_RECORD: Final = 512
"""Quick folds of up to this size, where a record takes as long as 512 bytes, end in threads before worker processes
would have started: they mostly run in numpy and sha256, which release the interpreter's lock."""

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
            with self.stored.naming(RecordRun(run.place, block.start, block.start + block.num_records)):
                fold.add_block(block)
        return fold.states


class Fingerprints(NamedTuple):
    """What the folds computed of all splits, and the values that a feature does not allow."""

    folded: Folded
    outside: tuple[ValuesOutside, ...]


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
    cost = sum(split.num_bytes + _BYTES_OF_RECORD * split.num_examples for split in stored.splits)
    is_quick = cost <= _QUICK_BYTES and SplitFold(stored.features, kinds).is_quick
    function = StoredFold(stored, kinds)
    parts = call_on_runs(function, stored, runs, processes=processes, advance=advance, is_quick=is_quick)
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
    """The splits of a version, the store of their shards, and their features. Can be sent to another process.

    Each thread keeps the shard in which it stopped reading: a new one would read all headers before the next records,
    or decompress them, again.
    """

    store: Store
    splits: tuple[Split, ...]
    features: FeaturesDict
    _begun: local = field(default_factory=local, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[type[StoredSplits], tuple[Any, ...]]:
        return StoredSplits, (self.store, self.splits, self.features)

    @classmethod
    def of(cls, version: DatasetVersion, store: Store) -> StoredSplits:
        """The splits of a published ``version``, whose shards are in ``store``."""
        features = features_from_json(version.features_json).with_labels(version.labels)
        return cls(store, version.splits, features)

    def records(self, run: RecordRun) -> Iterator[tuple[str, int, bytes]]:
        """Yield the stored records of ``run``, each with its file and its index in the file.

        Raises:
            CorruptRecordError, CorruptExampleError, ShardMismatchError: a record cannot be read; names file and record.
            StorageError: a file cannot be read.
        """
        split = self.splits[run.place]
        for part, filename, before, length in self._files(run):
            records = read_records(
                self.store,
                filename,
                file_format=split.files.file_format,
                features=self.features,
                skip=part.start - before,
                take=part.stop - part.start,
                num_records=length,
            )
            for index, record in enumerate(records, start=part.start - before):
                yield filename, index, record

    def shards_of(self, run: RecordRun) -> Iterator[RecordRun]:
        """``run``, divided at the ends of shards."""
        return (part for part, *_ in self._files(run))

    def _files(self, run: RecordRun) -> Iterator[tuple[RecordRun, str, int, int]]:
        """The parts of ``run`` in each shard, with its file, the records before it in the split, and its length."""
        split, position = self.splits[run.place], run.start
        while position < run.stop:
            index = split.shard_lengths.shard_of(position)
            before, length = split.shard_lengths.start(index), split.shard_lengths[index]
            part = RecordRun(run.place, position, min(run.stop, before + length))
            yield part, split.filename(index), before, length
            position = part.stop

    def has_columns(self, place: int) -> bool:
        """Whether the records of a split are rows of typed columns, which can be read without serializing them."""
        return self.splits[place].files.file_format == _COLUMNS

    def blocks(self, run: RecordRun) -> Iterator[tuple[int, RecordBlock]]:
        """Yield the stored records of ``run`` in blocks, in order, each with the position of its first record.

        Raises the errors of ``records``.
        """
        split, mean_bytes = self.splits[run.place], 0
        for part, filename, before, length in self._files(run):
            shard = getattr(self._begun, "shards", {}).pop(filename, None) or open_shard(
                self.store,
                filename,
                file_format=split.files.file_format,
                features=self.features,
                num_records=length,
                verify="block",
            )
            position = part.start
            while position < part.stop:
                most = min(_MOST_IN_BLOCK, _BLOCK_BYTES // mean_bytes + 1) if mean_bytes else _FIRST_IN_BLOCK
                block = as_records(shard.read(position - before, min(most, part.stop - position)))
                mean_bytes = block.num_bytes // block.num_records + 1
                yield position, block
                position += block.num_records
            self._begun.shards = {filename: shard} if position < before + length else {}

    def flat_records(self, run: RecordRun) -> Iterator[FlatRecords]:
        """Yield the records of ``run`` in blocks, flattened for folds. Raises the errors of ``records``."""
        codec = codec_of(self.features)
        if not self.has_columns(run.place) or codec.has_unknown:
            for position, records in self.blocks(run):
                with self.naming(RecordRun(run.place, position, position + records.num_records)):
                    flat = codec.flat_records(*records, start=position)
                yield flat
            return
        for part, filename, before, length in self._files(run):
            tables = read_tables(
                self.store,
                filename,
                features=self.features,
                skip=part.start - before,
                take=part.stop - part.start,
                num_records=length,
            )
            for table, first in tables:
                with self.naming(RecordRun(run.place, before + first, before + first + table.num_records)):
                    blocks = table.flat_blocks()
                yield FlatRecords(before + first, table.num_records, blocks)

    @contextmanager
    def naming(self, run: RecordRun) -> Iterator[None]:
        """Name file and record in the error of a corrupt record, which is one of ``run``: read them one by one."""
        try:
            yield
        except CorruptExampleError:
            reader = ContentReader(self.features)
            for filename, index, record in self.records(run):
                try:
                    reader.read(record)
                except CorruptExampleError as error:
                    raise name_record(error, filename, index) from error
            raise


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
        paths = reader.paths if self.paths is None else self.paths
        read = paths if self.key is None or self.key in paths else (*paths, self.key)
        digests: list[bytes] = []
        for part, records in self._records(run):
            with self.stored.naming(part):
                columns = reader.read_block(records, range(records.num_records + 1))
                chosen = [columns[reader.paths.index(path)] for path in read]
                # Records of a schema without features are equal.
                for buffers in zip(*chosen, strict=True) if chosen else [()] * records.num_records:
                    if self.key is None and not self.is_optional and self.scalar is None:  # large values are not copied
                        digests.append(self._hash(chain.from_iterable(buffers)))
                        continue
                    contents = list(map(b"".join, buffers))
                    digests.append(self._digest(contents[: len(paths)]))
                    if self.key is not None:
                        digests.append(self._hash([contents[read.index(self.key)]]))
        return b"".join(digests)

    def _records(self, run: RecordRun) -> Iterator[tuple[RecordRun, FlatRecords]]:
        """The records that have digests, in blocks, each with the records among which they are."""
        if self.wanted is None:
            for records in self.stored.flat_records(run):
                yield RecordRun(run.place, records.start, records.start + records.num_records), records
            return
        codec = codec_of(self.stored.features)
        for position, block in self.stored.blocks(run):
            part = RecordRun(run.place, position, position + block.num_records)
            at = self.wanted[slice(*np.searchsorted(self.wanted, part[1:]))] - position
            if at.size:
                with self.stored.naming(part):
                    records = codec.flat_records(*block.take(at), start=position)
                yield part, records

    def _digest(self, contents: list[bytes]) -> bytes:
        is_missing = (self.is_optional and all(content == _ABSENT for content in contents)) or self._is_nan(contents)
        return _MISSING[: self.num_bytes] if is_missing else self._hash(contents)

    def _hash(self, buffers: Iterable[Any]) -> bytes:
        hasher = hashlib.sha256()
        for buffer in buffers:
            hasher.update(buffer)
        return hasher.digest()[: self.num_bytes]

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
    is_quick: bool = False,
) -> Iterator[tuple[RecordRun, R]]:
    """Yield the pieces of ``runs`` in order, each with the result of ``function``, which must be picklable.

    ``processes=None`` decides by the size of all splits. ``by_shard`` makes a piece of each shard: for a function that
    takes so little time that reading the headers before a piece would take longer. If it ``is_quick``, the threads of
    this process call it.

    Raises:
        VerificationError: a worker process died.
    """
    # A staged folder may take shards from another store.
    sources = stored.store.sources_of(name for split in stored.splits for name in split.filenames)
    is_local = all(source.local_root is not None for source in sources)
    engine = choose_engine(
        processes,
        num_bytes=sum(split.num_bytes for split in stored.splits),
        num_items=sum(split.num_examples for split in stored.splits),
        is_local=is_local,
        is_unlocked=is_quick and is_local and processes is None,
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
