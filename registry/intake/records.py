"""Turns the rows of a source into records with keys, in this process or in workers.

    Rows -> converted to the schema -> records (tf.train.Example) and keys -> Encoded

``staging`` sends every ``Rows`` of every part here, and sorts what comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from registry.errors import CorruptExampleError
from registry.features import FeaturesDict
from registry.intake.keys import KeyRule, content_hashes
from registry.intake.schema import Schema
from registry.intake.source import BadRow, Rows
from registry.shards.blocks import TableBlock

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The input of a piece of work: rows of the part ``part``, whose split is ``split``."""

    part: str
    split: str
    rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """The records of a chunk.

    Attributes:
        records: the serialized examples.
        keys: the key of each: text, or for content keys the md5 of the hashed columns.
        contents: the md5 of each whole record, if only some columns are hashed for the key; else None.
        lines: the line of each in its file.
        splits: the split of each, if a column decides; else None.
        bad: the rows that could not be used.
    """

    records: Sequence[bytes]
    keys: Sequence[str] | Sequence[bytes]
    contents: Sequence[bytes] | None
    lines: Sequence[int]
    splits: Sequence[str] | None
    bad: tuple[BadRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkEncoder:
    """The function of a piece of work: encodes a chunk.

    Attributes:
        schema: the types of the columns.
        rule: where keys come from.
        split_by: the column that decides the split, which is not stored; or None.
    """

    schema: Schema
    rule: KeyRule
    split_by: str | None = None

    def __call__(self, chunk: Chunk) -> Encoded:
        """Return the records of ``chunk``, in order."""
        rows, bad = _usable(self.schema.convert(chunk.part, chunk.rows), chunk.part, self._must_have())
        features = stored_features(self.schema, self.split_by)
        while True:
            try:
                records = TableBlock(rows.table.select(list(features)), features).records()
                break
            except CorruptExampleError as error:
                place = error.details.get("record")
                if not isinstance(place, int):
                    raise
                reason = error.message
                bad.append(BadRow(file=chunk.part, line=rows.lines[place], reason=reason))
                rows = _without(rows, [place])
        keys, contents = self._keys(rows, records, features)
        return Encoded(
            records=records,
            keys=keys,
            contents=contents,
            lines=rows.lines,
            splits=None if self.split_by is None else _texts(rows.table.column(self.split_by)),
            bad=tuple(sorted(bad, key=lambda one: one.line or 0)),
        )

    def _must_have(self) -> dict[str, str]:
        """The columns that must not be null, and why."""
        needed = {self.rule.columns[0]: "the key is null"} if self.rule.kind == "column" else {}
        return needed if self.split_by is None else {**needed, self.split_by: "the split is null"}

    def _keys(
        self, rows: Rows, records: Sequence[bytes], features: FeaturesDict
    ) -> tuple[Sequence[str] | Sequence[bytes], Sequence[bytes] | None]:
        if self.rule.kind == "column":
            return _texts(rows.table.column(self.rule.columns[0])), None
        if self.rule.kind == "path":
            if rows.keys is None:
                raise AssertionError("the source has no paths")
            return rows.keys, None
        if set(self.rule.columns) == set(features):
            return content_hashes(records), None
        hashed = FeaturesDict({name: features[name] for name in self.rule.columns})
        parts = TableBlock(rows.table.select(list(hashed)), hashed).records()
        return content_hashes(parts), content_hashes(records)


def stored_features(schema: Schema, split_by: str | None) -> FeaturesDict:
    """The features of the records: all columns but the one that decides the split."""
    features = schema.features()
    return FeaturesDict({name: feature for name, feature in features.items() if name != split_by})


def _usable(rows: Rows, part: str, needed: dict[str, str]) -> tuple[Rows, list[BadRow]]:
    """``rows`` without those that are null in a column that is needed, and all bad rows."""
    bad = list(rows.bad)
    for column, reason in needed.items():
        nulls = rows.table.column(column).is_null()
        places = [place for place, is_null in enumerate(nulls.to_pylist()) if is_null] if rows.table.num_rows else []
        if places:
            bad += [BadRow(file=part, line=rows.lines[place], column=column, reason=reason) for place in places]
            rows = _without(rows, places)
    return rows, bad


def _without(rows: Rows, places: Sequence[int]) -> Rows:
    dropped = set(places)
    kept = [place for place in range(rows.table.num_rows) if place not in dropped]
    return replace(
        rows,
        table=rows.table.take(kept),
        lines=[rows.lines[place] for place in kept],
        keys=None if rows.keys is None else [rows.keys[place] for place in kept],
    )


def _texts(column: pa.ChunkedArray) -> list[str]:
    """The values of a column as text: keys and names of splits."""
    values: list[Any] = column.to_pylist()
    return [value if isinstance(value, str) else _text(value) for value in values]


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
