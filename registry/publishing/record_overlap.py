"""Finds records that several slices of one version have in common: equal records, or equal values of one feature.

    ranges of slices -> runs of records -> pieces of an engine -> 8 bytes of sha256 each -> all of it where these repeat

Different digests prove different values. The records whose 8 bytes repeat are read again, and their whole sha256 is
compared. So memory is bounded by some 40 bytes for each record, and no pair is reported by accident. Equal means what
``registry.features.content`` says: what a reader gets, whatever the file format, the shard or the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import FeatureNotFoundError
from registry.features import FeaturesDict
from registry.features.containers import columns_of, content_path
from registry.features.dtypes import is_bfloat16
from registry.model import Advance
from registry.publishing.alignment import Digests, Indices
from registry.publishing.fingerprint import RecordHasher, RecordRun, StoredSplits, call_on_runs
from registry.splits import RecordRange
from registry.tfrecord import RecordBlock
from registry.wire.gather import take

_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)  # odd, of many bits: 2**64 divided by the golden ratio

RecordPlace = tuple[str, int]
"""A split, and the number of a record in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceValues:
    """What one slice contains.

    Attributes:
        num_records: its records; one that an expression names twice counts once.
        num_repeated: the records that equal an earlier record of the same slice.
        num_missing: the records whose value is null or NaN. They equal nothing.
    """

    num_records: int
    num_repeated: int
    num_missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedValues:
    """What two slices have in common.

    Attributes:
        first, second: their places in the list of slices.
        num_values: the different values that both have.
        num_first, num_second: the records of each slice that have one of them.
        pairs: the first records of the first slice that have one, each with the first such record of the second.
    """

    first: int
    second: int
    num_values: int
    num_first: int
    num_second: int
    pairs: tuple[tuple[RecordPlace, RecordPlace], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOverlap:
    """The result of comparing slices by their records: what each contains, and what any two have in common."""

    slices: tuple[SliceValues, ...]
    shared: tuple[SharedValues, ...]

    @property
    def is_disjoint(self) -> bool:
        """Whether no two slices have a value in common."""
        return not self.shared


def compare_slices(
    stored: StoredSplits,
    slices: Sequence[Iterable[RecordRange]],
    *,
    column: str | None = None,
    path_column: str | None = None,
    is_one_encoding: bool = False,
    show: int = 5,
    processes: int | None = None,
    advance: Advance | None = None,
) -> RecordOverlap:
    """Compare the records of slices with each other.

    Args:
        stored: the files of the version.
        slices: the ranges of each slice.
        column: compare the values of this feature; names of nested features are joined by ``/``. None compares all.
        path_column: the feature that is not compared, because it says where a file was.
        is_one_encoding: equal records are equal bytes of TFRecord files, as this process wrote them, so that only
            records with the same ``record_marks`` are decoded. For whole records.
        show: name at most this many pairs of records of each two slices.
        processes: the number of processes that decode. None: one for each core if there is enough work.
        advance: called with the number of records done since the last call.

    Raises:
        FeatureNotFoundError: there is no such feature.
        CorruptRecordError, CorruptExampleError, ShardMismatchError: a record cannot be read; names file and record.
        StorageError: a file cannot be read.
        VerificationError: a worker process died.
    """
    hasher = _hasher_without(stored, path_column) if column is None else _hasher_of(stored, column)
    merged = [_merge(ranges) for ranges in slices]
    layout = _Layout.of(stored, [span for ranges in merged for span in ranges])
    first = MarkHasher(stored) if is_one_encoding else hasher
    values = _number_values(first, hasher, layout, processes=processes, advance=advance)
    result = [np.concatenate([values[:0], *(values[layout.places(span)] for span in ranges)]) for ranges in merged]
    count = int(values.max(initial=-1)) + 1
    present = [_present(numbers, count) for numbers in result]
    return RecordOverlap(
        slices=tuple(
            SliceValues(
                num_records=numbers.size,
                num_repeated=int((numbers >= 0).sum() - has.sum()),
                num_missing=int((numbers < 0).sum()),
            )
            for numbers, has in zip(result, present, strict=True)
        ),
        shared=tuple(
            _share(first, second, merged, result, both, show=show)
            for second in range(len(result))
            for first in range(second)
            if (both := present[first] & present[second]).any()
        ),
    )


@dataclass(frozen=True, slots=True)
class MarkHasher:
    """Computes ``record_marks`` of the records of a run, without decoding or hashing them."""

    stored: StoredSplits

    def __call__(self, run: RecordRun) -> bytes:
        """Return the marks, in order, 8 bytes each."""
        return b"".join(record_marks(block).tobytes() for _, block in self.stored.blocks(run))


def record_marks(block: RecordBlock) -> Digests:
    """A number for each record of TFRecord frames, shape (n,), which differs for most records that differ.

    It is made of the length, of the checksum that follows the record in its frame, and of the 8 bytes before it: a few
    calls for thousands of records.
    """
    ends = block.offsets + block.lengths
    # The last 8 bytes in front of the checksum are of the record; a shorter one has its header there.
    words = take(block.data, ends - 8, 12).view(np.dtype([("last", "<u8"), ("checksum", "<u4")])).reshape(-1)
    marks = words["checksum"].astype(np.uint64) << np.uint64(32) | block.lengths.astype(np.uint64)
    return marks * _MULTIPLIER ^ words["last"].astype(np.uint64)


def _hasher_without(stored: StoredSplits, path_column: str | None) -> RecordHasher:
    """The hasher of whole records, or of all features but one."""
    if path_column is None:
        return RecordHasher(stored, None)
    paths = [content_path(column.names) for column in columns_of(stored.features)]
    return RecordHasher(stored, tuple(path for path in paths if path != content_path([path_column])))


def _hasher_of(stored: StoredSplits, column: str) -> RecordHasher:
    """The hasher of one feature, which decodes no other features than those of the same top-level name."""
    columns = {content_path(leaf.names): leaf for leaf in columns_of(stored.features)}
    inner = {path: leaf for path, leaf in columns.items() if path == column or path.startswith(f"{column}/")}
    if not inner:
        raise FeatureNotFoundError.of(column, list(columns), where="the features of the dataset")
    tops = {leaf.names[0] for leaf in inner.values()}
    features = FeaturesDict({name: feature for name, feature in stored.features.items() if name in tops})
    (first, *more) = inner.values()
    dtype = first.leaf.dtype
    is_number = not more and not first.lengths and first.leaf.shape == () and isinstance(dtype, np.dtype)
    is_float = is_number and (np.issubdtype(dtype, np.floating) or is_bfloat16(dtype))
    return RecordHasher(
        replace(stored, features=features),
        tuple(sorted(inner)),
        is_optional=all(leaf.may_be_absent for leaf in inner.values()),
        scalar=dtype if is_float else None,
    )


@dataclass(frozen=True, slots=True)
class _Layout:
    """The records that are read, each once, one after the other: runs, and where each begins."""

    names: tuple[str, ...]
    runs: tuple[RecordRun, ...]
    starts: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, stored: StoredSplits, ranges: Iterable[RecordRange]) -> _Layout:
        names = tuple(split.name for split in stored.splits)
        runs = tuple(RecordRun(names.index(span.split), span.start, span.stop) for span in _merge(ranges))
        ends = np.cumsum([0, *(run.stop - run.start for run in runs)]).tolist()
        return cls(names, runs, tuple(ends[:-1]), ends[-1])

    def places(self, records: RecordRange) -> slice:
        """Where the records of a range are, which is inside of one run."""
        place = self.names.index(records.split)
        for run, start in zip(self.runs, self.starts, strict=True):
            if run.place == place and run.start <= records.start and records.stop <= run.stop:
                return slice(start + records.start - run.start, start + records.stop - run.start)
        raise AssertionError("the runs cover the ranges that they were made of")


def _merge(ranges: Iterable[RecordRange]) -> list[RecordRange]:
    """The records of the ranges, each once: split by split, in order."""
    merged: list[RecordRange] = []
    for span in sorted(ranges, key=lambda records: (records.split, records.start)):
        last = merged[-1] if merged else None
        if last is not None and last.split == span.split and span.start <= last.stop:
            merged[-1] = RecordRange(split=span.split, start=last.start, stop=max(last.stop, span.stop))
        elif span.start < span.stop:
            merged.append(span)
    return merged


def _number_values(
    first: RecordHasher | MarkHasher,
    hasher: RecordHasher,
    layout: _Layout,
    *,
    processes: int | None,
    advance: Advance | None,
) -> Indices:
    """A number for each record, shape (n,): the same for equal values, and -1 for a missing one.

    ``first`` gives equal values the same 8 bytes; ``hasher`` decides where they agree.
    """
    digests = _digests(first, layout.runs, 1, processes=processes, advance=advance)[:, 0]
    _, values, counts = np.unique(digests, return_inverse=True, return_counts=True)
    numbers: Indices = values.astype(np.int64)
    is_missing = (digests == 0) if hasher.paths is not None else np.zeros(digests.size, np.bool_)
    repeated = np.flatnonzero((counts[numbers] > 1) & ~is_missing)
    if repeated.size:
        again = _hash_again(hasher, layout, repeated, processes=processes)
        _, exact = np.unique(again, axis=0, return_inverse=True)
        numbers[repeated] = counts.size + exact.reshape(-1)
    numbers[is_missing] = -1
    return numbers


def _hash_again(hasher: RecordHasher, layout: _Layout, repeated: Indices, *, processes: int | None) -> npt.NDArray[Any]:
    """The whole digests of the records at ``repeated``, shape (n, 4)."""
    result = [np.empty((0, 4), np.uint64)]
    for run, start in zip(layout.runs, layout.starts, strict=True):
        first, last = np.searchsorted(repeated, [start, start + run.stop - run.start])
        if first < last:
            wanted = repeated[first:last] - start + run.start
            part = RecordRun(run.place, int(wanted[0]), int(wanted[-1]) + 1)
            whole = replace(hasher, wanted=wanted, num_bytes=32)
            result.append(_digests(whole, [part], 4, processes=processes, advance=None))
    return np.concatenate(result)


def _digests(
    hasher: RecordHasher | MarkHasher,
    runs: Sequence[RecordRun],
    width: int,
    *,
    processes: int | None,
    advance: Advance | None,
) -> npt.NDArray[Any]:
    """The digests of the records of ``runs`` as rows of ``width`` numbers of 8 bytes."""
    pieces = [np.empty((0, width), np.uint64)]
    for _, found in call_on_runs(hasher, hasher.stored, runs, processes=processes, advance=advance):
        pieces.append(np.frombuffer(found, np.uint64).reshape(-1, width))
    return np.concatenate(pieces)


def _present(numbers: Indices, count: int) -> npt.NDArray[np.bool_]:
    present = np.zeros(count, np.bool_)
    present[numbers[numbers >= 0]] = True
    return present


def _share(
    first: int,
    second: int,
    merged: Sequence[list[RecordRange]],
    found: Sequence[Indices],
    both: npt.NDArray[np.bool_],
    *,
    show: int,
) -> SharedValues:
    masks = [both[found[place]] & (found[place] >= 0) for place in (first, second)]
    pairs = []
    for place in np.flatnonzero(masks[0])[:show].tolist():
        other = int(np.argmax(found[second] == found[first][place]))
        pairs.append((_place_of(merged[first], place), _place_of(merged[second], other)))
    return SharedValues(
        first=first,
        second=second,
        num_values=int(both.sum()),
        num_first=int(masks[0].sum()),
        num_second=int(masks[1].sum()),
        pairs=tuple(pairs),
    )


def _place_of(ranges: Sequence[RecordRange], place: int) -> RecordPlace:
    for span in ranges:
        if place < span.stop - span.start:
            return span.split, span.start + place
        place -= span.stop - span.start
    raise AssertionError("the place is inside of the ranges")
