"""Turns the rows of a source into records with keys, in this process or in workers.

    Rows -> converted to the schema -> records (tf.train.Example) and keys -> Encoded

``staging`` sends every ``Rows`` of every part here, and sorts what comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from registry.building import SortKeys, hash_contents, hash_keys
from registry.errors import CorruptExampleError, SourceError
from registry.features import ClassLabel, FeaturesDict
from registry.intake.conversion import places_of
from registry.intake.keys import Hashes, Holdout, KeyRule, content_keys, first_words
from registry.intake.schema import Schema
from registry.intake.source import BadRow, Rows
from registry.shards.blocks import TableBlock
from registry.tfrecord import Frames, frame_records

if TYPE_CHECKING:
    import pyarrow as pa


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
        sort_keys: the sort key of each; for content keys, that of a record which did not occur before.
        keys: the key of each for errors; None for content keys, which are never used twice.
        lines: the line of each in its file.
        contents: if only some columns are hashed for the key, the first 8 bytes of the md5 of the columns in each of
            ``KeyRule.ties``, then of the whole record, shape (ties + 1, n); else None.
        marks: a number for each record, which is that of equal records of other splits; None to take ``record_marks``.
    """

    frames: Frames
    sort_keys: SortKeys
    keys: Sequence[str] | None
    lines: Sequence[int]
    contents: Hashes | None = None
    marks: Hashes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """The records of a chunk by split, and the rows that could not be used."""

    by_split: Mapping[str, Keyed]
    bad: tuple[BadRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkEncoder:
    """The function of a piece of work: encodes a chunk.

    Attributes:
        schema: the types of the columns.
        rule: where keys come from.
        split_by: the column that decides the split, which is not stored; or None.
        holdout: the split that is cut from another, or None.
        held_from: that other split.
        renamed: other names for splits that a column names.
        path_column: the column of paths, in which equal records of two splits may differ; or empty.
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
            nulls = places_of(rows.table.column(column).is_null())
            rows = rows.without(chunk.part, dict.fromkeys(nulls, (column, reason)))
        features = stored_features(self.schema, self.split_by)
        while True:
            try:
                records: Sequence[bytes] = TableBlock(rows.table.select(list(features)), features).records()
                break
            except CorruptExampleError as error:
                place = error.details.get("record")
                if not isinstance(place, int):
                    raise
                rows = rows.without(chunk.part, {place: (None, error.message)})
        keys, contents = self._keys(rows, records, features)
        marks = self._marks(rows, features)
        by_split = {
            name: replace(
                self._keyed(name, places, records, keys, contents, rows.lines),
                marks=marks if marks is None or places is None else marks[places],
            )
            for name, places in self._destinations(rows, chunk.split, keys).items()
        }
        return Encoded(by_split=by_split, bad=tuple(sorted(rows.bad, key=lambda row: row.line or 0)))

    def _must_have(self) -> dict[str, str]:
        """The columns that must not be null, and why."""
        needed = {self.rule.columns[0]: "the key is null"} if self.rule.kind == "column" else {}
        return needed if self.split_by is None else {**needed, self.split_by: "the split is null"}

    def _keys(
        self, rows: Rows, records: Sequence[bytes], features: FeaturesDict
    ) -> tuple[Sequence[str] | SortKeys, Hashes | None]:
        """Keys as text, or the md5 of the hashed columns; and the hashes that order records of the same key."""
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
        """The marks of records without their paths."""
        others = FeaturesDict({name: feature for name, feature in features.items() if name != self.path_column})
        if len(others) == len(features) or not others:
            return None
        return first_words(hash_contents(TableBlock(rows.table.select(list(others)), others).records()))

    def _destinations(self, rows: Rows, split: str, keys: Sequence[str] | SortKeys) -> dict[str, Sequence[int] | None]:
        """The places of the rows of each split; None for all."""
        if not rows.table.num_rows:
            return {}
        holdout = self.holdout
        if self.split_by is None and (holdout is None or split != self.held_from):
            return {split: None}
        names = [split] * len(keys) if self.split_by is None else self._split_names(rows, self.split_by)
        if self.split_by is not None and holdout is not None and holdout.split in names:
            raise SourceError(
                f"column {self.split_by!r} names the split {holdout.split!r}, which the holdout would add to",
                hint="Choose another name, or leave out --holdout.",
                details={"split": holdout.split},
            )
        result: dict[str, list[int]] = {}
        # Content keys without their number: identical records stay together.
        stable = content_keys(keys) if isinstance(keys, np.ndarray) else keys
        for place, name in enumerate(names):
            is_held = holdout is not None and name == self.held_from and holdout.takes(stable[place])
            result.setdefault(holdout.split if holdout is not None and is_held else name, []).append(place)
        return dict(result)

    def _split_names(self, rows: Rows, column: str) -> list[str]:
        """The values of the column that decides the split; the names of classes, not their numbers."""
        feature = self.schema.features()[column]
        names = _texts(rows.table.column(column))
        names = [feature.int2str(int(name)) for name in names] if isinstance(feature, ClassLabel) else names
        return [self.renamed.get(name, name) for name in names]

    def _keyed(
        self,
        split: str,
        places: Sequence[int] | None,
        records: Sequence[bytes],
        keys: Sequence[str] | SortKeys,
        contents: Hashes | None,
        lines: Sequence[int],
    ) -> Keyed:
        frames, lines = frame_records(_chosen(records, places)), _chosen(lines, places)
        if not isinstance(keys, np.ndarray):
            chosen = _chosen(keys, places)
            return Keyed(frames=frames, sort_keys=hash_keys(split, chosen), keys=chosen, lines=lines)
        if places is not None:
            keys, contents = keys[places], None if contents is None else contents[:, places]
        return Keyed(frames=frames, sort_keys=keys, keys=None, lines=lines, contents=contents)


def _chosen(values: Sequence[Any], places: Sequence[int] | None) -> Sequence[Any]:
    return values if places is None else [values[place] for place in places]


def stored_features(schema: Schema, split_by: str | None) -> FeaturesDict:
    """The features of the records: all columns but the one that decides the split."""
    features = schema.features()
    return FeaturesDict({name: feature for name, feature in features.items() if name != split_by})


def _texts(column: pa.ChunkedArray) -> list[str]:
    """The values of a column as text: keys and names of splits."""
    values: list[Any] = column.to_pylist()
    return [value if isinstance(value, str) else _text(value) for value in values]


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
