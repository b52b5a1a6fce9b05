"""Finds and describes the records that differ between two versions. Reads files only where fingerprints differ.

Records are compared by an 8-byte digest of the features that both versions have, and aligned in order (``alignment``).
If a feature is the key in both versions, changed records are paired by it. If the keys are computed from the content, a
changed record is one that was removed and one that was added: it has another key, so it has another place.
Only the records that are shown are decoded. The two texts of a difference are never equal: long texts show the part
around the difference, arrays the first value that differs, and images that differ only as files their sha256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, repeat
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.display import Convert, converter_of, time_types
from registry.envelope import fields_of
from registry.errors import CorruptExampleError, MissingExtraError
from registry.features import ClassLabel, Feature, FeaturesDict, Ragged, Scalar, Tensor, Text
from registry.features.containers import columns_of, content_path
from registry.features.content import ContentReader, content_bytes
from registry.model import LEAF_EXAMPLES, Advance, listed
from registry.publishing.alignment import Alignment, Digests, Indices, align, find_unpaired, pair_by_key, without_pairs
from registry.publishing.changes import Changes
from registry.publishing.fingerprint import RecordHasher, RecordRun, StoredSplits, call_on_runs
from registry.splits import counted

_MOST_SHOWN_FEATURES: Final = 20
_MOST_SEARCHED: Final = 64 * LEAF_EXAMPLES
_WIDTH: Final = 60
_MOST_LISTED: Final = 8  # values of an array

Kind: TypeAlias = Literal["changed", "removed", "added", "moved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChange:
    """One record that differs.

    Attributes:
        kind: ``changed``, ``removed``, ``added``, or ``moved`` (equal, but out of order).
        old, new: its index in the split, before and after; None if it does not exist there.
        features: for a changed record, the differences as (feature, value before, value after), the values as text.
        key: the name and the value of its key as text, such as ``("id", "42")``; None if no feature is the key.
        values: for a record that was removed or added, its features and their values as text, without the key.
        sentences: ``features`` in words.
    """

    kind: Kind
    old: int | None
    new: int | None
    features: tuple[tuple[str, str, str], ...] = ()
    key: tuple[str, str] | None = None
    values: tuple[tuple[str, str], ...] = ()
    sentences: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = "" if self.key is None else f" with {self.key[0]} {self.key[1]}"
        match self.kind:
            case "removed":
                return f"record {self.old}{named} was removed{self._listed_values()}"
            case "added":
                return f"record {self.new}{named} is new{self._listed_values()}"
            case "moved":
                return f"record {self.old}{named} is now record {self.new}"
            case _:
                was = "" if self.old == self.new else f" (was {self.old})"
                return f"record {self.new}{named}{was}: {'; '.join(self.sentences)}"

    def to_json(self) -> dict[str, Any]:
        """The record as plain values; the key is left out if there is none, and so are the values."""
        return {
            **fields_of(self, "kind", "old", "new"),
            **({} if self.key is None else {"key": dict([self.key])}),
            "features": {path: {"old": before, "new": after} for path, before, after in self.features},
            **({"values": dict(self.values)} if self.values else {}),
        }

    def _listed_values(self) -> str:
        values = [f"{path} {value}" for path, value in self.values]
        return f": {listed(values, _MOST_LISTED)}" if values else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDiff:
    """The numbers of records of one split that are equal or differ, and the first that differ.

    ``same`` counts equal records in the same order, ``changed`` pairs of corresponding records that differ.
    """

    split: str
    same: int
    changed: int
    moved: int
    removed: int
    added: int
    first: tuple[RecordChange, ...]

    @property
    def num_differing(self) -> int:
        """The number of records that changed, moved, were removed or added."""
        return self.changed + self.moved + self.removed + self.added

    @property
    def is_reordered(self) -> bool:
        """Whether the split has the same records in another order."""
        return self.num_differing == self.moved > 0

    @property
    def is_equal(self) -> bool:
        """Whether the split has the same records in the same order."""
        return not self.num_differing

    def to_json(self) -> dict[str, Any]:
        """The numbers, and the first records that differ, as plain values."""
        numbers = fields_of(self, "split", "same", "changed", "added", "removed", "moved")
        return {**numbers, "first": [record.to_json() for record in self.first]}

    def __str__(self) -> str:
        """The differences in few words: ``2 records added, 1 changed``."""
        counts = {"added": self.added, "removed": self.removed, "changed": self.changed, "moved": self.moved}
        words = [f"{number:,} {word}" for word, number in counts.items() if number]
        if not words:
            return "no record changed"
        number, word = words[0].split()
        return ", ".join([f"{number} record{'' if number == '1' else 's'} {word}", *words[1:]])


class TooManyRecordsError(Exception):
    """More records would have to be decoded than the caller allows. ``args`` has their number."""


@dataclass(frozen=True, slots=True)
class StoredHasher:
    """Computes digests of the stored bytes of the records of a run, without decoding them: 8 bytes of sha256 each."""

    stored: StoredSplits

    def __call__(self, run: RecordRun) -> bytes:
        """Return the digests, in order."""
        sha256, digests = hashlib.sha256, []
        for _, block in self.stored.blocks(run):
            data, stops = block.data.data, (block.offsets + block.lengths).tolist()
            pairs = zip(block.offsets.tolist(), stops, strict=True)
            digests += [sha256(data[start:stop]).digest()[:8] for start, stop in pairs]
        return b"".join(digests)


def diff_records(
    changes: Changes,
    old: StoredSplits,
    new: StoredSplits,
    *,
    show: int = 5,
    processes: int | None = None,
    advance: Advance | None = None,
    most_decoded: int | None = None,
) -> tuple[RecordDiff, ...]:
    """Return the differing records of each split that both versions have, in the order of ``old``.

    Args:
        changes: the result of ``compare_versions``: which records may differ, and the features to compare.
        old: the files of the old version.
        new: the files of the new version.
        show: at most this number of differing records of a split are described.
        processes: the number of processes that decode. None: one for each core if there is enough work.
        advance: called with the number of records done since the last call.
        most_decoded: do not decode more records than this number. None: decode all that may differ.

    Raises:
        TooManyRecordsError: more than ``most_decoded`` records would have to be decoded.
        CorruptRecordError, CorruptExampleError, ShardMismatchError: a record cannot be read; names folder, file and
            record.
        StorageError: a file cannot be read.
        VerificationError: a worker process died.
    """
    return tuple(
        _diff_split(
            replace(_SplitPair.of(split.name, old, new, changes.key, processes, advance), most_decoded=most_decoded),
            changes,
            show=show,
        )
        for split in old.splits
        if split.name in changes.differing
    )


def first_difference(changes: Changes, old: StoredSplits, new: StoredSplits) -> tuple[str, RecordChange] | None:
    """Return the first record that differs, and its split; None if no record does, or it is too far behind.

    Reads at most 65,536 records of each version, from the first block that differs. Raises the errors of
    ``diff_records``.
    """
    for name, ranges in changes.differing.items():
        pair = _SplitPair.of(name, old, new, changes.key, 1, None)
        for parts in ranges:
            windows = (parts[0][:_MOST_SEARCHED], parts[1][:_MOST_SEARCHED])
            sides = pair.hash([windows[0]], [windows[1]], changes.common)
            earliest = _earliest(_align(sides, changes), [windows[0]], [windows[1]], 1)
            change = min(earliest, key=_position, default=None)
            if change is not None:
                return name, pair.describe(change, changes.common)
    return None


def _with_optional(stored: StoredSplits, others: FeaturesDict) -> StoredSplits:
    """``stored``, with optional features where those of ``others`` are: equal values then have the same content."""

    def read_as(mine: Feature, other: Feature) -> Feature:
        if type(mine) is FeaturesDict and type(other) is FeaturesDict:
            return read_all(mine, other)
        if not isinstance(mine, Tensor) or type(mine) not in (Tensor, Scalar, Text) or mine.optional:
            return mine
        if (
            not isinstance(other, Tensor)
            or not other.optional
            or (mine.shape, mine.dtype) != (other.shape, other.dtype)
        ):  # an optional one has a known shape
            return mine
        about = mine.description  # says whether numbers are times
        return Tensor(shape=mine.shape, dtype=mine.dtype, encoding=mine.encoding, optional=True, description=about)

    def read_all(mine: FeaturesDict, others: FeaturesDict) -> FeaturesDict:
        return FeaturesDict({name: read_as(inner, others.get(name, inner)) for name, inner in mine.items()})

    features = read_all(stored.features, others)
    return stored if features == stored.features else replace(stored, features=features)


@dataclass(frozen=True, slots=True)
class _SplitPair:
    """A split of two versions: the files of both, its index in each, the decoders, and how records are read.

    ``key`` is the feature that is the key of the records in both, or None.
    """

    name: str
    sides: tuple[StoredSplits, StoredSplits]
    places: tuple[int, int]
    readers: tuple[ContentReader, ContentReader]
    key: str | None
    processes: int | None
    advance: Advance | None
    most_decoded: int | None = None

    @classmethod
    def of(
        cls,
        name: str,
        old: StoredSplits,
        new: StoredSplits,
        key: str | None,
        processes: int | None,
        advance: Advance | None,
    ) -> _SplitPair:
        first, second = ([split.name for split in side.splits].index(name) for side in (old, new))
        old, new = _with_optional(old, new.features), _with_optional(new, old.features)
        readers = ContentReader(old.features), ContentReader(new.features)
        return cls(name, (old, new), (first, second), readers, key, processes, advance)

    def hash(self, old: Sequence[range], new: Sequence[range], paths: tuple[str, ...]) -> tuple[_Hashed, _Hashed]:
        """The digests of the records ``old`` and ``new`` of the two versions, over the features ``paths``.

        Records of the same bytes are equal. Most are, and decoding takes much longer than hashing: so only the others
        are decoded, unless they are many.
        """
        parts = (old, new)
        if self._are_stored_alike(paths):
            stored = [self._run(which, parts[which], StoredHasher(self.sides[which])) for which in (0, 1)]
            rest = find_unpaired(stored[0], stored[1])
            self._require_few(rest[0].size + rest[1].size)
            if all(2 * rest[which].size <= stored[which].size for which in (0, 1)):
                first, second = map(self._hash_some, (0, 1), parts, (paths, paths), stored, rest)
                _hash_copies(stored, rest, (first.contents, second.contents))
                return first, second
        else:
            self._require_few(sum(map(len, (*old, *new))))
        return self._hash_all(0, old, paths), self._hash_all(1, new, paths)

    def _require_few(self, num_records: int) -> None:
        if self.most_decoded is not None and num_records > self.most_decoded:
            raise TooManyRecordsError(num_records)

    def _are_stored_alike(self, paths: tuple[str, ...]) -> bool:
        """Whether records of the same bytes have the same content: the features are the same, and all are compared."""
        first, second = self.sides
        has_columns = [side.has_columns(place) for side, place in zip(self.sides, self.places, strict=True)]
        return first.features == second.features and set(paths) == set(self.readers[0].paths) and not any(has_columns)

    def _hash_all(self, which: int, parts: Sequence[range], paths: tuple[str, ...]) -> _Hashed:
        result = self._run(which, parts, RecordHasher(self.sides[which], paths, self.key))
        return _Hashed(result, None) if self.key is None else _Hashed(result[::2], result[1::2])

    def _hash_some(
        self, which: int, parts: Sequence[range], paths: tuple[str, ...], stored: Digests, rest: Indices
    ) -> _Hashed:
        """``stored``, with the digests of the contents at ``rest``, which are places in the concatenated ``parts``."""
        positions = np.concatenate([np.arange(part.start, part.stop) for part in parts] or [np.empty(0, np.int64)])
        wanted, spans = positions[rest], []
        for part in parts:  # the records between the first and the last that are wanted
            inside = wanted[(wanted >= part.start) & (wanted < part.stop)]
            if inside.size:
                spans.append(range(int(inside[0]), int(inside[-1]) + 1))
        found = self._run(which, spans, RecordHasher(self.sides[which], paths, self.key, wanted=wanted))
        contents = stored.copy()
        if self.key is None:
            contents[rest] = found
            return _Hashed(contents, None)
        keys = np.zeros_like(stored)  # pairs of equal records need none
        contents[rest], keys[rest] = found[::2], found[1::2]
        return _Hashed(contents, keys)

    def _run(self, which: int, parts: Sequence[range], hasher: RecordHasher | StoredHasher) -> Digests:
        side, place = self.sides[which], self.places[which]
        runs = [RecordRun(place, part.start, part.stop) for part in parts]
        pieces = [np.empty(0, np.uint64)]
        try:
            by_shard = isinstance(hasher, StoredHasher) or hasher.wanted is not None
            for _, digests in call_on_runs(
                hasher, side, runs, processes=self.processes, advance=self.advance, by_shard=by_shard
            ):
                pieces.append(np.frombuffer(digests, np.uint64))
        except CorruptExampleError as error:  # name the folder, because files of both versions have the same names
            message = f"{side.store.url}: {error.message}"
            raise CorruptExampleError(message, hint=error.hint, details=error.details) from error
        return np.concatenate(pieces)

    def describe(self, change: RecordChange, paths: Collection[str]) -> RecordChange:
        """Return ``change`` with its key; if the record changed, with the differing features of ``paths``.

        Decodes two records.
        """
        change = self._with_key(change)
        if change.kind in ("removed", "added"):
            return replace(change, values=self._values(change))
        if change.kind != "changed" or change.old is None or change.new is None:
            return change
        records = [
            next(side.records(RecordRun(place, at, at + 1)))[2]
            for side, place, at in zip(self.sides, self.places, (change.old, change.new), strict=True)
        ]
        before, after = (
            dict(zip(reader.paths, reader.read(record), strict=True))
            for reader, record in zip(self.readers, records, strict=True)
        )
        differing = [path for path in before if path in paths and before[path] != after[path]][:_MOST_SHOWN_FEATURES]
        result, namers = [], [_namers(reader.features) for reader in self.readers]
        for path in differing:
            try:
                values = [
                    reader.values(record, [path])[path] for reader, record in zip(self.readers, records, strict=True)
                ]
                is_same = content_bytes(values[0]) == content_bytes(values[1])
            except (CorruptExampleError, MissingExtraError):  # e.g. a JPEG without a decoder: compare the files
                is_same = True
            if is_same:
                difference = Difference(*tell_files(before[path], after[path]))
            else:
                difference = _find_named(path, namers, values)
            result.append((path, difference))
        return replace(
            change,
            features=tuple((path, *difference.as_pair()) for path, difference in result),
            sentences=tuple(difference.describe(path) for path, difference in result),
        )

    def _values(self, change: RecordChange) -> tuple[tuple[str, str], ...]:
        """The values of a record that was removed or added, as text, without those of its key."""
        reader, record = self._read(change)
        paths = [path for path in reader.paths if path != self.key]
        try:
            values = reader.values(record, paths)
        except (CorruptExampleError, MissingExtraError):  # e.g. a JPEG without a decoder
            values = {}
            for path in paths:
                with suppress(CorruptExampleError, MissingExtraError):
                    values |= reader.values(record, [path])
        namers = _namers(reader.features)
        named = {path: _summarize(_name(namers, path, value)) for path, value in values.items()}
        return tuple((path, named.get(path, "(cannot be decoded)")) for path in paths)

    def _with_key(self, change: RecordChange) -> RecordChange:
        if self.key is None:
            return change
        reader, record = self._read(change)
        key = reader.values(record, [self.key])[self.key]
        return replace(change, key=(self.key, _tell_whole(_name(_namers(reader.features), self.key, key))))

    def _read(self, change: RecordChange) -> tuple[ContentReader, bytes]:
        """The record of a change, the new one if there are two, and what reads it."""
        which, at = (0, change.old) if change.new is None else (1, change.new)
        if at is None:
            raise AssertionError("a change has a place in one of the versions")
        return self.readers[which], next(self.sides[which].records(RecordRun(self.places[which], at, at + 1)))[2]


class _Hashed(NamedTuple):
    """The digests of the contents of records, and of their keys if they have some."""

    contents: Digests
    keys: Digests | None


def _hash_copies(stored: Sequence[Digests], rest: Sequence[Indices], contents: Sequence[Digests]) -> None:
    """Give the digest of the content also to records of the same bytes that have a partner: any copy may be the new."""
    hashed, first = np.unique(np.concatenate(list(map(np.take, stored, rest))), return_index=True)
    digests = np.concatenate(list(map(np.take, contents, rest)))[first]
    for side, own in zip(stored, contents, strict=True):
        is_copy = np.isin(side, hashed)
        own[is_copy] = digests[np.searchsorted(hashed, side[is_copy])]


def _align(sides: tuple[_Hashed, _Hashed], changes: Changes, fences: Sequence[tuple[int, int]] = ()) -> Alignment:
    old, new = sides
    result = align(old.contents, new.contents, fences)
    if old.keys is not None and new.keys is not None:
        return pair_by_key(result, old.keys, new.keys)
    return without_pairs(result) if changes.is_keyed_by_content else result


def _diff_split(pair: _SplitPair, changes: Changes, *, show: int) -> RecordDiff:
    ranges = changes.differing[pair.name]
    old_parts, new_parts = [parts[0] for parts in ranges], [parts[1] for parts in ranges]
    sides = pair.hash(old_parts, new_parts, changes.common)
    fences = zip(accumulate(map(len, old_parts)), accumulate(map(len, new_parts)), strict=True)
    alignment = _align(sides, changes, list(fences)[:-1])
    first = sorted(_earliest(alignment, old_parts, new_parts, show), key=_position)
    return RecordDiff(
        split=pair.name,
        same=pair.sides[0].splits[pair.places[0]].num_examples - len(sides[0].contents) + len(alignment.same),
        changed=len(alignment.changed),
        moved=len(alignment.moved),
        removed=len(alignment.removed),
        added=len(alignment.added),
        first=tuple(map(pair.describe, first[:show], repeat(frozenset(changes.common)))),
    )


def _earliest(alignment: Alignment, old: Sequence[range], new: Sequence[range], show: int) -> Iterator[RecordChange]:
    """The first records of each kind. The aligned lists are the concatenated ranges ``old`` and ``new``."""
    pairs: tuple[tuple[Kind, Indices], ...] = (("changed", alignment.changed), ("moved", alignment.moved))
    for kind, places in pairs:
        for before, after in places[:show].tolist():
            yield RecordChange(kind=kind, old=_pick(old, before), new=_pick(new, after))
    for place in alignment.removed[:show].tolist():
        yield RecordChange(kind="removed", old=_pick(old, place), new=None)
    for place in alignment.added[:show].tolist():
        yield RecordChange(kind="added", old=None, new=_pick(new, place))


def _pick(ranges: Sequence[range], place: int) -> int:
    for span in ranges:
        if place < len(span):
            return span[place]
        place -= len(span)
    raise AssertionError("every position is in a range")


def _position(change: RecordChange) -> tuple[int, str]:
    place = change.new if change.old is None else change.old
    return (0 if place is None else place), change.kind


def _namers(features: FeaturesDict) -> dict[str, Convert]:
    """For features that are classes with names, dates or times: what turns a number into text, by path.

    Names of classes are bytes, which are quoted like other texts of a dataset. Dates and times are str.
    """
    times = time_types(features)
    result: dict[str, Convert] = {}
    for column in columns_of(features):
        convert = converter_of(column.leaf, times, files=False, path=column.path)
        if convert is not None:
            result[content_path(column.names)] = partial(_encode, convert, isinstance(column.leaf, ClassLabel))
    return result


def _encode(convert: Convert, is_label: bool, number: Any) -> Any:
    text = convert(number)
    if not isinstance(text, str):
        return number
    return text.encode("utf-8", "surrogateescape") if is_label else text


def _name(namers: Mapping[str, Convert], path: str, value: Any) -> Any:
    """``value`` with the names of its numbers, in an array of objects if it is an array."""
    if value is None or path not in namers:
        return value
    if isinstance(value, Ragged):
        return Ragged(_name(namers, path, value.flat_values), value.row_lengths)
    if not isinstance(value, np.ndarray) or not value.ndim:
        return namers[path](value)
    result = np.empty(value.shape, object)
    result.reshape(-1)[:] = [namers[path](number) for number in value.reshape(-1)]
    return result


def _find_named(path: str, namers: Sequence[Mapping[str, Convert]], values: Sequence[Any]) -> Difference:
    """What differs between two values, by the names of their numbers if these differ."""
    before, after = (_name(names, path, value) for names, value in zip(namers, values, strict=True))
    if isinstance(before, np.ndarray | Ragged) or isinstance(after, np.ndarray | Ragged):
        is_named = content_bytes(before) != content_bytes(after)
        return find_difference(before, after) if is_named else find_difference(*values)
    texts = _tell_whole(before), _tell_whole(after)
    has_name = before is not values[0] or after is not values[1]
    return Difference(*texts) if has_name and texts[0] != texts[1] else find_difference(*values)


def _summarize(value: Any) -> str:
    """A value as text: bytes that are not text by their number, long arrays by their type and shape."""
    if isinstance(value, bytes):
        try:
            value.decode()
        except UnicodeDecodeError:
            return f"{len(value):,} bytes"
    if isinstance(value, np.ndarray) and value.size > _MOST_LISTED:
        return f"{_listed(value)} {value.shape}"
    if isinstance(value, Ragged):
        return counted(len(value), "item")
    return _tell_whole(value)


class Difference(NamedTuple):
    """Two values that differ, as text.

    Attributes:
        before, after: the values; of long arrays, the first ones that differ.
        place: the index of these in long arrays, such as ``[0, 3]``.
        num_differing: how many values of long arrays differ: ``1 of 9``.
        rows: the numbers of rows to the arrays, from the outside in.
    """

    before: str
    after: str
    place: str = ""
    num_differing: str = ""
    rows: tuple[int, ...] = ()

    def as_pair(self) -> tuple[str, str]:
        """The value before, and the value after with where it is."""
        where = f" at {self.place}" if self.place else ""
        where += f"; {self.num_differing} values differ" if self.num_differing else ""
        return self.before, self.after + where + "".join(f" (row {row:,})" for row in reversed(self.rows))

    def describe(self, path: str) -> str:
        """A sentence about the feature ``path``.

        >>> Difference("206", "163", "[0, 0]", "8 of 9").describe("image")
        'image differs in 8 of 9 values; the first, at [0, 0], is 163 and was 206'
        """
        subject = "".join(f"row {row:,} of " for row in reversed(self.rows)) + path
        if self.num_differing:
            first = (
                f"the one at {self.place}" if self.num_differing.startswith("1 of ") else f"the first, at {self.place},"
            )
            return f"{subject} differs in {self.num_differing} values; {first} is {self.after} and was {self.before}"
        return f"{subject}{f' at {self.place}' if self.place else ''} is {self.after}, was {self.before}"


def tell_apart(before: Any, after: Any) -> tuple[str, str]:
    """Return texts for two decoded values that differ.

    >>> tell_apart(b"the cat sat", b"the cat sits")
    ("'the cat sat'", "'the cat sits'")
    >>> tell_apart(np.zeros((3, 3), np.uint8), np.eye(3, dtype=np.uint8))
    ('0', '1 at [0, 0]; 3 of 9 values differ')
    >>> tell_apart(None, b"null")
    ('null', "'null'")
    >>> tell_apart(*(Ragged(np.arange(3), (np.array(lengths),)) for lengths in ([3], [1, 2])))
    ('1 row', '2 rows')
    """
    return find_difference(before, after).as_pair()


def find_difference(before: Any, after: Any) -> Difference:
    """Return what differs between two decoded values that are not equal."""
    if before is None or after is None:  # of an optional feature
        return Difference(_tell_whole(before), _tell_whole(after))
    if isinstance(before, bytes) and isinstance(after, bytes):
        return Difference(*_tell_texts(before, after))
    if isinstance(before, Ragged) and isinstance(after, Ragged):
        return _tell_ragged(before, after)
    if isinstance(before, np.ndarray) and isinstance(after, np.ndarray):
        return _tell_arrays(before, after)
    return Difference(*_or_digests((_short(before), _short(after)), content_bytes(before), content_bytes(after)))


def tell_files(before: bytes, after: bytes) -> tuple[str, str]:
    """Return texts for two images that differ only as files, or that cannot be decoded here."""
    digests = [hashlib.sha256(content).hexdigest()[:12] for content in (before, after)]
    return f"sha256 {digests[0]}", f"sha256 {digests[1]}"


def _tell_whole(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return _cut(value, 0, as_text=True)
    return _listed(value) if isinstance(value, np.ndarray) else _short(value)


def _tell_texts(before: bytes, after: bytes) -> tuple[str, str]:
    place = next((i for i, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
    first = min(len(before), len(after)) if place is None else place
    start = 0 if max(len(before), len(after)) <= _WIDTH else max(0, first - _WIDTH // 3)
    for _ in range(3):  # not inside a UTF-8 character, which has at most three more bytes
        start -= bool(start) and before[start] & 0xC0 == 0x80
    told = _cut(before, start, as_text=True), _cut(after, start, as_text=True)
    # An invalid byte and its escaped form of four characters can look alike.
    return told if told[0] != told[1] else (_cut(before, start, as_text=False), _cut(after, start, as_text=False))


def _cut(text: bytes, start: int, *, as_text: bool) -> str:
    piece = text[start : start + _WIDTH]
    shown = repr(piece.decode("utf-8", "backslashreplace") if as_text else piece)
    return ("…" if start else "") + shown + ("…" if start + _WIDTH < len(text) else "")


def _tell_ragged(before: Ragged, after: Ragged) -> Difference:
    if len(before) != len(after):
        return Difference(counted(len(before), "row"), counted(len(after), "row"))
    for index, pair in enumerate(zip(before, after, strict=True)):
        if content_bytes(pair[0]) != content_bytes(pair[1]):
            inner = find_difference(*pair)
            return inner._replace(rows=(index, *inner.rows))
    return Difference(_short(before.to_list()), _short(after.to_list()))


def _tell_arrays(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> Difference:
    if before.shape != after.shape:
        old, new = (f"{_listed(side)} of shape {side.shape}" for side in (before, after))
        return Difference(old, new)
    places = np.flatnonzero(_differs(before, after))
    if before.size <= _MOST_LISTED and before.dtype != object:
        contents = content_bytes(before), content_bytes(after)
        return Difference(*_or_digests((_short(before.tolist()), _short(after.tolist())), *contents))
    place = int(places[0])
    old, new = tell_apart(before.flat[place], after.flat[place])
    index = "[" + ", ".join(str(int(axis)) for axis in np.unravel_index(place, before.shape)) + "]"
    return Difference(old, new, index, f"{len(places):,} of {before.size:,}" if before.size > 1 else "")


def _differs(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which values, in C order, differ in their bits: NaN equals itself, and 0 differs from -0."""
    if before.dtype == object:
        pairs = zip(before.flat, after.flat, strict=True)
        return np.array([content_bytes(value) != content_bytes(other) for value, other in pairs], bool)
    bits = [np.ascontiguousarray(side).view(np.uint8).reshape(-1, side.itemsize) for side in (before, after)]
    result: npt.NDArray[np.bool_] = (bits[0] != bits[1]).any(axis=1)
    return result


def _listed(array: npt.NDArray[Any]) -> str:
    return _short(_plain(array.tolist())) if array.size <= _MOST_LISTED else str(array.dtype).replace("object", "text")


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _or_digests(told: tuple[str, str], before: bytes, after: bytes) -> tuple[str, str]:
    """``told``, with the bits added if both texts are equal: two NaN, or long lists that differ late."""
    if told[0] != told[1]:
        return told
    if len(before) <= _MOST_LISTED + 1:
        return f"{told[0]} (bits {before[:0:-1].hex()})", f"{told[1]} (bits {after[:0:-1].hex()})"
    files = tell_files(before, after)
    return f"{told[0]} ({files[0]})", f"{told[1]} ({files[1]})"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
