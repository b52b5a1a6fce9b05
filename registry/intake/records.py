"""Turns the rows of a source into records with keys, in this process or in workers.

    Rows -> converted to the schema -> records (tf.train.Example) and keys -> Encoded

``staging`` passes every ``Rows`` of every part to this module, and sorts the resulting records.

A key is the value of a column, the path of a file, or a hash of the content. As in a build, it determines the place of
a record: records are sorted by ``md5(split || key)``. It also determines whether a record belongs to a holdout. Keys
are stable, so that rows that are added later do not move the other records.

A content key is the md5 of the record. Since it is already a hash, it is also the sort key. The keys of identical
records end with ``-1``, ``-2`` ..., and these records are sorted by the md5 of that key. The hashed columns are
recorded with the version: a later version that adds a column hashes the same columns, and keeps the order.

Without a key column, a record with a corrected cell counts as a different record. The key should be chosen for the
first version, because changing the key changes the order of the records. ``KeyCandidates`` therefore finds a column
that could be the key: its name is like that of a key, and its values are unique and never null. It observes the rows
while they are read for another purpose, and suggests a column only if all of its values were compared.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.building import SORT_KEY_BYTES, SortKeys, hash_contents, hash_key, hash_keys
from registry.errors import CorruptExampleError, SourceError, UsageError, spell
from registry.features import ClassLabel, FeaturesDict
from registry.intake.conversion import places_of
from registry.intake.schema import Schema
from registry.intake.source import BadRow, Rows
from registry.intake.value_types import column_array, python_value, python_values
from registry.model import check_split_name, fold_name
from registry.shards.arrow_values import as_numbers, import_pyarrow
from registry.shards.blocks import TableBlock, copy_records
from registry.statistics.duplicates import hash_items
from registry.tfrecord import Frames, frame_records
from registry.wire import BytesColumn
from registry.wire.gather import order_words

if TYPE_CHECKING:
    import pyarrow as pa

Hashes: TypeAlias = npt.NDArray[np.uint64]

KeyKind: TypeAlias = Literal["column", "path", "content"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRule:
    """The origin of the keys of the records.

    Attributes:
        kind: ``column``, ``path`` or ``content``.
        columns: the key column, or the columns whose content is hashed; for ``path``, the column of paths, or empty.
        ties: for content keys, the columns of each earlier version that had more columns than ``columns``, oldest
            first. Records with equal ``columns`` are ordered by these columns before the others, as in those versions.
    """

    kind: KeyKind
    columns: tuple[str, ...] = ()
    ties: tuple[tuple[str, ...], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the rule in the form that is stored with the version."""
        ties = {"ties": [list(tie) for tie in self.ties]} if self.ties else {}
        return {"kind": self.kind, "columns": list(self.columns), **ties}

    @classmethod
    def from_json(cls, stored: object) -> KeyRule | None:
        """Read a rule that an earlier version stored. Returns None if it is missing or malformed."""
        if not isinstance(stored, Mapping):
            return None
        kind, columns = stored.get("kind"), stored.get("columns")
        if kind not in ("column", "path", "content") or not isinstance(columns, list):
            return None
        ties = stored.get("ties", [])
        if not isinstance(ties, list) or not all(isinstance(tie, list) for tie in ties):
            return None
        if not all(isinstance(name, str) for names in (columns, *ties) for name in names):
            return None
        return cls(kind=kind, columns=tuple(columns), ties=tuple(map(tuple, ties)))

    def with_more_columns(self, before: Sequence[str], stored: Sequence[str]) -> KeyRule:
        """Return the rule of a version with the columns ``stored``, if the previous version had the columns ``before``.

        >>> rule = KeyRule(kind="content", columns=("a",)).with_more_columns(["a"], ["a", "b"])
        >>> rule.ties, rule.with_more_columns(["a", "b"], ["a", "b", "c"]).ties
        ((), (('a', 'b'),))
        """
        known = [*self.ties, tuple(sorted(before))]
        ties = [tie for tie in dict.fromkeys(known) if set(self.columns) < set(tie) < set(stored)]
        return KeyRule(kind=self.kind, columns=self.columns, ties=tuple(ties))

    def __str__(self) -> str:
        match self.kind:
            case "column":
                return f"the column {self.columns[0]!r}"
            case "path":
                return "the name of each record in the source"
            case _:
                return "the content of the record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdout:
    """A split that is taken out of another by the hash of the key, so that later versions do not move records.

    Attributes:
        split: the name of the new split.
        fraction: its share of the records, above 0 and below 1.
        seed: a different seed selects different records.

    >>> Holdout.parse("test=10%", seed=7)
    Holdout(split='test', fraction=0.1, seed=7)
    """

    split: str
    fraction: float
    seed: int = 0

    @classmethod
    def parse(cls, text: str, *, seed: int = 0) -> Holdout:
        """Read ``NAME=PERCENT%``.

        Raises:
            UsageError: the text has another form, or the percentage is not above 0 and below 100.
        """
        match = re.fullmatch(r"([^=]+)=([0-9]+(?:\.[0-9]+)?)%", text.strip())
        if match is None or not 0 < float(match[2]) < 100:
            raise UsageError(
                f"invalid holdout {text!r}: expected NAME=PERCENT%, with a percentage above 0 and below 100",
                hint="For example: test=10%",
                details={"holdout": text},
            )
        check_split_name(match[1])
        return cls(split=match[1], fraction=float(match[2]) / 100, seed=seed)

    def takes(self, key: str) -> bool:
        """Whether the record with this key belongs to the new split. This depends only on the key and the seed."""
        digest = hash_key(f"holdout-{self.seed}/", key)
        return int.from_bytes(digest[:8], "big") / 2**64 < self.fraction


class Occurrences:
    """Counts how often each 64-bit hash has occurred: 0 the first time, 1 the second, and so on.

    Takes 16 to 32 bytes for each distinct hash, and half as much more while it grows.

    >>> seen = Occurrences()
    >>> seen.count(np.array([7, 8, 7], np.uint64)).tolist(), seen.count(np.array([7, 9], np.uint64)).tolist()
    ([0, 0, 1], [2, 0])
    """

    def __init__(self, num_hashes: int = 0) -> None:
        """``num_hashes`` is the expected number of distinct hashes, for which the table need not grow."""
        # A hash table with open addressing: a slot holds 0, or a mixed hash and how often it was repeated. It is at
        # most half full. The system provides memory for the repetitions only where there are any.
        num_slots = max(_LEAST_SLOTS, 1 << (2 * num_hashes).bit_length())
        self._slots, self._repeated = np.zeros(num_slots, np.uint64), np.zeros(num_slots, np.uint32)
        self._num_hashes = 0

    def count(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        """Return the number of earlier occurrences of each hash, shape (n,), and count these."""
        mixed = np.where(hashes, hashes, MULTIPLIER) * MULTIPLIER
        order = order_words(mixed)  # a processor reads ascending slots of a large table in a third of the time
        ordered, counts = mixed[order], np.empty(len(hashes), np.int64)
        if not _has_equal(ordered):  # almost always
            counts[order] = self._count(ordered, 0)
            return counts
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        sizes = np.diff(starts, append=len(hashes))
        counts[order] = np.arange(len(hashes)) + np.repeat(self._count(ordered[starts], sizes - 1) - starts, sizes)
        return counts

    def _count(self, hashes: Hashes, repeated: int | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the number of earlier occurrences of distinct hashes, and count them and their repetitions."""
        if 2 * (self._num_hashes + len(hashes)) > len(self._slots):
            self._grow(1 << (2 * (self._num_hashes + len(hashes))).bit_length())
        places, is_known = self._find_or_add(hashes)
        self._num_hashes += len(hashes) - int(np.count_nonzero(is_known))
        before = is_known.astype(np.int64)
        if is_known.any():
            before[is_known] += self._repeated[places[is_known]]
        more = is_known + repeated
        if more.any():
            self._repeated[places] += more.astype(np.uint32)
        return before

    def _grow(self, num_slots: int) -> None:
        slots, repeated = self._slots, self._repeated
        self._slots, self._repeated = np.zeros(num_slots, np.uint64), np.zeros(num_slots, np.uint32)
        for start in range(0, len(slots), _LEAST_SLOTS):  # in parts, which take little memory
            full = start + np.flatnonzero(slots[start : start + _LEAST_SLOTS])
            places, _ = self._find_or_add(slots[full])
            if repeated[full].any():
                self._repeated[places] = repeated[full]

    def _find_or_add(self, hashes: Hashes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return the slot of each of ``hashes``, which are distinct, and whether it was there before."""
        slots, last = self._slots, len(self._slots) - 1
        places = (hashes >> np.uint64(64 - last.bit_length())).astype(np.int64)
        is_known = slots[places] == hashes
        left = np.flatnonzero(~is_known)
        while left.size:
            here = places[left]
            free = slots[here] == 0
            slots[here[free]] = hashes[left[free]]  # of several hashes, one gets the slot
            left = left[slots[here] != hashes[left]]
            places[left] = (places[left] + 1) & last
            is_known[left] = is_there = slots[places[left]] == hashes[left]
            left = left[~is_there]
        return places, is_known


_LEAST_SLOTS: Final = 2**14
MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)  # An odd number with many bits: 2**64 divided by the golden ratio.


def _has_equal(hashes: Hashes) -> bool:
    if (hashes[1:] > hashes[:-1]).all():  # as numbers of rows
        return False
    ordered = np.sort(hashes)
    return bool((ordered[1:] == ordered[:-1]).any())


def first_words(hashes: SortKeys) -> Hashes:
    """Return the first 8 bytes of each hash as a number, shape (n,)."""
    return hashes.view(">u8")[:, 0].astype(np.uint64)


def content_keys(hashes: SortKeys) -> list[str]:
    """Return the key of each record that occurs for the first time: its md5 in hexadecimal digits.

    >>> content_keys(np.array([[10] * 16], np.uint8))
    ['0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a']
    """
    digits = hashes.tobytes().hex()
    return [digits[start : start + 2 * SORT_KEY_BYTES] for start in range(0, len(digits), 2 * SORT_KEY_BYTES)]


def sort_keys_of_repeated(hashes: SortKeys, occurrences: Sequence[int]) -> SortKeys:
    """Return the sort keys of records that occurred before: the md5 of their keys, such as ``0a…0a-1``.

    A record that occurs for the first time has its own md5 as sort key.
    """
    keys = zip(content_keys(hashes), occurrences, strict=True)
    return hash_contents([f"{key}-{number}".encode() for key, number in keys])


MOST_ROWS: Final = 1_000_000
"""No key is suggested for a source with more rows. Each column takes 8 bytes per row, and briefly 24."""

_MOST_COLUMNS: Final = 4
_WORDS: Final = (
    *("id", "key", "uuid", "guid", "uid", "identifier", "pk", "accession", "isbn", "doi", "sku", "barcode", "slug"),
)
_PAIRS: Final = (("file", "name"), ("file", "path"))
_JOINED: Final = ("filename", "filepath")


class KeyCandidates:
    """Finds a column that could be the key, from the rows of a source.

    Args:
        is_excluded: the columns whose types the caller requested. Different values of the source, such as ``7`` and
            ``07``, may be stored as equal values there.

    >>> import pyarrow as pa
    >>> seen = KeyCandidates()
    >>> seen.update(pa.table({"sale_id": [7, 8], "user_id": [1, 1], "price": [1.5, 2.5]}))
    >>> seen.update(pa.table({"sale_id": [9], "user_id": [2], "price": [3.5]}))
    >>> seen.find(["price", "sale_id", "user_id"])
    'sale_id'
    """

    def __init__(self, is_excluded: Collection[str] = ()) -> None:
        self._excluded = frozenset(is_excluded)
        self._columns: dict[str, list[Hashes]] | None = None  # None until the first rows name the columns
        self._num_rows = 0

    def update(self, table: Any) -> None:
        """Take the rows of an Arrow table into account."""
        if not table.num_rows:  # its columns may have no type
            return
        self._num_rows += table.num_rows
        if self._num_rows > MOST_ROWS:
            self._columns = {}
        if self._columns is None:
            names = [name for name in table.schema.names if _rank(name) is not None and name not in self._excluded]
            self._columns = {name: [] for name in sorted(names, key=_sort_key)[:_MOST_COLUMNS]}
        for name, blocks in list((self._columns or {}).items()):
            if (hashes := _hashes(table, name)) is None:
                del self._columns[name]
            else:
                blocks.append(hashes)

    def find(self, stored: Collection[str]) -> str | None:
        """Return the unique column among ``stored`` whose name is most like that of a key, or None."""
        if self._num_rows < 2:
            return None
        columns = self._columns or {}
        names = sorted(columns.keys() & set(stored), key=_sort_key)
        return next((name for name in names if not _has_equal(np.concatenate(columns[name]))), None)


def describe_candidate(name: str, *, is_first: bool) -> str:
    """Suggest the column ``name`` as the key. ``is_first`` means that no version is published yet.

    >>> describe_candidate("sale_id", is_first=False)
    "`sale_id` is unique: with `key='sale_id'` a diff shows corrected cells as changes. It moves every record once."
    """
    when = "Decide now: changing the key later moves every record." if is_first else "It moves every record once."
    return f"`{name}` is unique: with `{spell('key', name)}` a diff shows corrected cells as changes. {when}"


def _rank(name: str) -> int | None:
    """Rank a name by its similarity to the name of a key: 0 is the most similar, None is not similar."""
    words = [word for word in re.split(r"[^a-z0-9]+", fold_name(name)) if word]
    if not words:
        return None
    if len(words) == 1 and words[0] in _WORDS:
        return 0
    if words[-1] in _WORDS:
        return 1
    is_file = words[-1] in _JOINED or tuple(words[-2:]) in _PAIRS
    return 2 if is_file else 3 if words[0] in _WORDS else None


def _sort_key(name: str) -> tuple[int, int, str]:
    rank = _rank(name)
    return (9 if rank is None else rank), len(name), name


def _hashes(table: Any, name: str) -> Hashes | None:
    """Hash each value of a column, in order. Returns None if a value is null, equal, or neither an integer nor text."""
    pa = import_pyarrow()
    if table.schema.get_field_index(name) < 0:  # the column is missing, or its name occurs several times
        return None
    column = table.column(name)
    if column.null_count:
        return None
    hashes: Hashes | None = None
    if pa.types.is_integer(column.type):
        kind = np.uint64 if pa.types.is_unsigned_integer(column.type) else np.int64
        hashes = as_numbers(column_array(table, name)).astype(kind).view(np.uint64)
    elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        (flat,) = TableBlock(pa.table({"text": column}), FeaturesDict({"text": "str"})).flat_blocks()
        (texts,) = flat.columns.values()
        # An empty text may be a null in a table of text, and is useless as a key.
        if isinstance(texts, BytesColumn) and texts.sizes.all():
            hashes = hash_items(flat.data, texts.starts, texts.sizes)[0]
    return None if hashes is None or _has_equal(hashes) else hashes


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The input of a piece of work: rows of the part ``part``, whose split is ``split``."""

    part: str
    split: str
    rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed:
    """The records of a chunk that belong to one split.

    Attributes:
        frames: the serialized examples, framed as a shard stores them.
        sort_keys: the sort key of each record; for content keys, the sort key of its first occurrence.
        keys: the key of each record for errors; None for content keys, which are never repeated.
        lines: the line of each record in its file.
        contents: if only some columns are hashed for the key, the first 8 bytes of the md5 of the columns in each of
            ``KeyRule.ties``, then of the whole record, shape (ties + 1, n); else None.
        marks: a number for each record, the same for equal records of other splits; None for that of ``record_marks``.
    """

    frames: Frames
    sort_keys: SortKeys
    keys: Sequence[str] | None
    lines: Sequence[int]
    contents: Hashes | None = None
    marks: Hashes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """The records of a chunk by split, and its unusable rows."""

    by_split: Mapping[str, Keyed]
    bad: tuple[BadRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkEncoder:
    """The function of a piece of work: encodes a chunk.

    Attributes:
        schema: the types of the columns.
        rule: where keys come from.
        split_by: the column with the names of splits, which is not stored, or None.
        holdout: the split that is cut from another, or None.
        held_from: that other split.
        renamed: other names for splits that a column names.
        path_column: the column of paths, in which equal records of two splits may differ, or empty.
    """

    schema: Schema
    rule: KeyRule
    split_by: str | None = None
    holdout: Holdout | None = None
    held_from: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
    path_column: str = ""

    def __call__(self, chunk: Chunk) -> Encoded:
        """Return the records of ``chunk``, in order."""
        rows = self.schema.convert(chunk.part, chunk.rows)
        for column, reason in self._must_have().items():
            nulls = places_of(column_array(rows.table, column).is_null())
            rows = rows.without(chunk.part, {row: [(column, reason)] for row in nulls})
        features = stored_features(self.schema, self.split_by)
        while True:
            try:
                block = TableBlock(rows.table.select(list(features)), features).record_block()
                break
            except CorruptExampleError as error:
                place = error.details.get("record")
                if not isinstance(place, int):
                    raise
                rows = rows.without(chunk.part, {place: [(None, error.message)]})
        records = copy_records(block)
        keys, contents = self._keys(rows, records, features)
        marks = self._marks(rows, features)
        by_split = {
            name: replace(
                self._keyed(name, places, records, block.lengths, keys, contents, rows.lines),
                marks=marks if marks is None or places is None else marks[places],
            )
            for name, places in self._destinations(rows, chunk.split, keys).items()
        }
        return Encoded(by_split=by_split, bad=tuple(sorted(rows.bad, key=lambda row: row.line or 0)))

    def _must_have(self) -> dict[str, str]:
        """The columns that must not be null, and the fault if they are."""
        needed = {self.rule.columns[0]: "the key is null"} if self.rule.kind == "column" else {}
        return needed if self.split_by is None else {**needed, self.split_by: "the split is null"}

    def _keys(
        self, rows: Rows, records: Sequence[bytes], features: FeaturesDict
    ) -> tuple[Sequence[str] | SortKeys, Hashes | None]:
        """Return keys as text, or the md5 of the hashed columns, and the hashes that order records of the same key."""
        if self.rule.kind == "column":
            return _texts(rows.table.column(self.rule.columns[0])), None
        if self.rule.kind == "path":
            if rows.keys is None:
                raise AssertionError("the source has no paths")
            return rows.keys, None
        if set(self.rule.columns) == set(features):
            return hash_contents(records), None
        result = []
        for columns in (self.rule.columns, *self.rule.ties):
            hashed = FeaturesDict({name: features[name] for name in columns})
            result.append(hash_contents(TableBlock(rows.table.select(list(hashed)), hashed).records()))
        return result[0], np.stack([first_words(hashes) for hashes in (*result[1:], hash_contents(records))])

    def _marks(self, rows: Rows, features: FeaturesDict) -> Hashes | None:
        """Return the marks of records without their paths."""
        others = FeaturesDict({name: feature for name, feature in features.items() if name != self.path_column})
        if len(others) == len(features) or not others:
            return None
        return first_words(hash_contents(TableBlock(rows.table.select(list(others)), others).records()))

    def _destinations(self, rows: Rows, split: str, keys: Sequence[str] | SortKeys) -> dict[str, Sequence[int] | None]:
        """Return the places of the rows of each split; None for all rows."""
        if not rows.table.num_rows:
            return {}
        holdout = self.holdout
        if self.split_by is None and (holdout is None or split != self.held_from):
            return {split: None}
        names = [split] * len(keys) if self.split_by is None else self._split_names(rows, self.split_by)
        if self.split_by is not None and holdout is not None and holdout.split in names:
            raise SourceError(
                f"the column {self.split_by!r} already has a split {holdout.split!r}, like the holdout",
                hint=f"Choose another name, or leave out {spell('holdout')}.",
                details={"split": holdout.split},
            )
        result: dict[str, list[int]] = {}
        # Content keys have no number here, so that identical records stay together.
        stable = content_keys(keys) if isinstance(keys, np.ndarray) else keys
        for place, name in enumerate(names):
            is_held = holdout is not None and name == self.held_from and holdout.takes(stable[place])
            result.setdefault(holdout.split if holdout is not None and is_held else name, []).append(place)
        return dict(result)

    def _split_names(self, rows: Rows, column: str) -> list[str]:
        """Return the values of the column of splits; for a ClassLabel, the names of classes."""
        feature = self.schema.features()[column]
        names = _texts(rows.table.column(column))
        names = [feature.int2str(int(name)) for name in names] if isinstance(feature, ClassLabel) else names
        return [self.renamed.get(name, name) for name in names]

    def _keyed(
        self,
        split: str,
        places: Sequence[int] | None,
        records: Sequence[bytes],
        lengths: npt.NDArray[np.int64],
        keys: Sequence[str] | SortKeys,
        contents: Hashes | None,
        lines: Sequence[int],
    ) -> Keyed:
        frames = frame_records(_chosen(records, places), lengths if places is None else lengths[places])
        lines = _chosen(lines, places)
        if not isinstance(keys, np.ndarray):
            chosen = _chosen(keys, places)
            return Keyed(frames=frames, sort_keys=hash_keys(split, chosen), keys=chosen, lines=lines)
        if places is not None:
            keys, contents = keys[places], None if contents is None else contents[:, places]
        return Keyed(frames=frames, sort_keys=keys, keys=None, lines=lines, contents=contents)


def _chosen(values: Sequence[Any], places: Sequence[int] | None) -> Sequence[Any]:
    return values if places is None else [values[place] for place in places]


def stored_features(schema: Schema, split_by: str | None) -> FeaturesDict:
    """Return the features of the records: all columns except for the column of splits."""
    features = schema.features()
    return FeaturesDict({name: feature for name, feature in features.items() if name != split_by})


def _texts(column: pa.ChunkedArray) -> list[str]:
    """Convert the values of a column, which are keys or names of splits, to text."""
    try:
        values = [value for chunk in column.chunks for value in python_values(chunk)]
    except OverflowError:  # a time after the year 9999
        values = [python_value(chunk, index) for chunk in column.chunks for index in range(len(chunk))]
    return [value if isinstance(value, str) else _text(value) for value in values]


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
