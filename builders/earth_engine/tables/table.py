"""What does a stored table hold? Its columns, found out by a look at all rows, and its rows, each a dict of values."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from registry.errors import PreparedFormatError, UsageError, suggest
from registry.storage import Store, open_store
from registry.tfrecord import read_records
from registry.wire import FlatValue, decode_features

_MOST_COLUMNS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A property, over all rows that have it.

    Attributes:
        name: of the property.
        kind: ``float``, ``int64`` or ``bytes``; ``mixed`` where rows differ.
        shortest, longest: number of values in a row.
        missing: rows without it.
        shape: of an array, where it was told.
    """

    name: str
    kind: str
    shortest: int
    longest: int
    missing: int = 0
    shape: tuple[int, ...] | None = None

    @property
    def is_scalar(self) -> bool:
        """Whether each row has one value, which then is no array."""
        return self.shape is None and self.shortest == self.longest == 1

    @property
    def square(self) -> int | None:
        """The side of the square that an array may be, where its length is that of one; the file does not tell."""
        side = math.isqrt(self.longest)
        return side if self.shortest == self.longest == side * side and side > 1 else None


class Table:
    """The rows of one file, in order. Each iteration reads it anew; nothing is kept in memory but one row.

    Args:
        store: the folder.
        filename: of the table in it; gzip is known by its first bytes.
        columns: which properties, in this order; None for all, by name.
        shapes: of array columns, by name: the file does not tell them.

    Attributes:
        filename: as given.

    Raises:
        UsageError: a shape of a column that is not there, or that its rows do not fit.
    """

    def __init__(
        self,
        store: Store,
        filename: str,
        *,
        columns: Sequence[str] | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self._store = store
        self.filename = filename
        self._wanted = None if columns is None else tuple(columns)
        self._shapes = {name: tuple(shape) for name, shape in (shapes or {}).items()}
        self._described: tuple[tuple[Column, ...], int] | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """What the rows hold; the whole file is read to know it."""
        return self._describe()[0]

    def __len__(self) -> int:
        """Number of rows; the whole file is read to know it."""
        return self._describe()[1]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Rows: a float where a column has one number in each row, else float32 arrays; texts; None where missing.

        Raises:
            CorruptRecordError, CorruptExampleError: a record is damaged.
        """
        columns = self.columns
        for values in self._records():
            yield {column.name: _to_value(values.get(column.name), column) for column in columns}

    def _records(self) -> Iterator[dict[str, FlatValue | None]]:
        for record in read_records(self._store, self.filename):
            yield decode_features(record)

    def _describe(self) -> tuple[tuple[Column, ...], int]:
        if self._described is not None:
            return self._described
        found: dict[str, Column] = {}
        present: dict[str, int] = {}
        num_rows = 0
        for values in self._records():
            num_rows += 1
            for name, value in values.items():
                if value is not None:
                    _look_at(found, name, value)
                    present[name] = present.get(name, 0) + 1
            if len(found) > _MOST_COLUMNS:
                raise PreparedFormatError(
                    f"{self._store.locate(self.filename)}: its rows have more than {_MOST_COLUMNS} columns"
                )
        names = sorted(found) if self._wanted is None else self._wanted
        for name in [*names, *self._shapes]:
            if name not in found and num_rows:
                raise UsageError(
                    f"{self._store.locate(self.filename)} has no column {name!r:.80}",
                    hint=suggest(name, sorted(found)),
                    details={"column": name, "known": sorted(found)[:100]},
                )
        columns = tuple(
            self._shaped(replace(found[name], missing=num_rows - present[name])) for name in names if name in found
        )
        self._described = columns, num_rows
        return self._described

    def _shaped(self, column: Column) -> Column:
        shape = self._shapes.get(column.name)
        if shape is None:
            return column
        if any(type(side) is not int or side < 0 for side in shape) or not (
            column.shortest == column.longest == math.prod(shape)
        ):
            told = column.longest if column.shortest == column.longest else f"{column.shortest} to {column.longest}"
            raise UsageError(
                f"column {column.name!r} cannot have the shape {shape}: its rows have {told} values",
                hint=None if column.square is None else f"They may be {column.square} x {column.square}.",
                details={"column": column.name, "shape": list(shape)},
            )
        return replace(column, shape=shape)


def read_table(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Table:
    """The table in a file that Earth Engine exported, or ``write_table`` wrote.

        for row in read_table("Training_demo.tfrecord.gz", shapes={"patch": (3, 3)}):
            print(row["landcover"], row["patch"])

    Args:
        path: path or URL of the file.
        columns: which properties, in this order; None for all, by name.
        shapes: of array columns, by name: the file does not tell them.
    """
    folder, _, filename = os.fspath(path).replace(os.sep, "/").rpartition("/")
    store = open_store(folder or ("/" if os.fspath(path).startswith("/") else "."))
    return Table(store, filename, columns=columns, shapes=shapes)


def _look_at(found: dict[str, Column], name: str, value: FlatValue) -> None:
    """Note what one row has of a column."""
    kind = "bytes" if isinstance(value, list) else "int64" if value.dtype == np.int64 else "float"
    size, known = len(value), found.get(name)
    if known is None:
        found[name] = Column(name=name, kind=kind, shortest=size, longest=size)
    elif known.kind != kind or not known.shortest <= size <= known.longest:
        found[name] = replace(
            known,
            kind=known.kind if known.kind == kind else "mixed",
            shortest=min(known.shortest, size),
            longest=max(known.longest, size),
        )


def _to_value(value: FlatValue | None, column: Column) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        texts = [_to_text(one) for one in value]
        return texts[0] if column.is_scalar else texts
    if column.is_scalar:
        return value[0].item()
    return value if column.shape is None else value.reshape(column.shape)


def _to_text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
