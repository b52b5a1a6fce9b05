"""Finds the column that could be the key of the records: one that is named like a key, is unique and has no null.

Without a key column, a corrected cell makes another record. The key is chosen with the first version, because another
one stores the records in another order; so the summary of the source names the column. The rows are watched while they
are read for another purpose. A column is named only if all of its values were compared.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from typing import Any, Final

import numpy as np

from registry.intake.keys import Hashes, Occurrences
from registry.model import fold_name
from registry.shards.arrow_values import import_pyarrow

MOST_ROWS: Final = 1_000_000
"""Of a source with more rows, nothing is claimed. Each column takes 8 bytes for a row, twice as much for a moment."""

_MOST_COLUMNS: Final = 4
_WORDS: Final = (
    "id",
    "key",
    "uuid",
    "guid",
    "uid",
    "identifier",
    "pk",
    "accession",
    "isbn",
    "doi",
    "sku",
    "barcode",
    "slug",
)
_PAIRS: Final = (("file", "name"), ("file", "path"))
_JOINED: Final = ("filename", "filepath")


class KeyCandidates:
    """Watches the rows of a source.

    Args:
        is_excluded: the columns that the caller chose a type for. Their stored values may be equal where those of the
            source differ: ``7`` and ``07``.

    >>> import pyarrow as pa
    >>> seen = KeyCandidates()
    >>> seen.update(pa.table({"sale_id": [7, 8], "user_id": [1, 1], "price": [1.5, 2.5]}))
    >>> seen.update(pa.table({"sale_id": [9], "user_id": [2], "price": [3.5]}))
    >>> seen.find(["price", "sale_id", "user_id"])
    'sale_id'
    """

    def __init__(self, is_excluded: Collection[str] = ()) -> None:
        self._excluded = frozenset(is_excluded)
        self._columns: dict[str, Occurrences] | None = None  # None until the first rows name the columns
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
            self._columns = {name: Occurrences() for name in sorted(names, key=_sort_key)[:_MOST_COLUMNS]}
        for name, seen in list((self._columns or {}).items()):
            hashes = _hashes(table, name)
            if hashes is None or seen.count(hashes).any():
                del self._columns[name]

    def find(self, stored: Collection[str]) -> str | None:
        """The unique column that reads most like a key, of those that are ``stored``; None if there is none."""
        if self._num_rows < 2:
            return None
        return min((name for name in self._columns or () if name in stored), key=_sort_key, default=None)


def describe_candidate(name: str, *, is_first: bool) -> str:
    """The advice to use the column ``name`` as the key; ``is_first`` if no version is published yet.

    >>> describe_candidate("sale_id", is_first=False)
    '`sale_id` is unique: with `--key sale_id` a diff shows corrected cells as changes. It moves every record once.'
    """
    when = "Decide now; later it moves every record." if is_first else "It moves every record once."
    return f"`{name}` is unique: with `--key {shlex.quote(name)}` a diff shows corrected cells as changes. {when}"


def _rank(name: str) -> int | None:
    """How much a name reads like that of a key, 0 the most; None if it does not."""
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
    """A hash of each value of a column; None if it has a null or is neither of integers nor of text."""
    pa = import_pyarrow()
    if table.schema.get_field_index(name) < 0:  # missing, or there are several of this name
        return None
    column = table.column(name)
    if column.null_count:
        return None
    if pa.types.is_integer(column.type):
        kind = np.uint64 if pa.types.is_unsigned_integer(column.type) else np.int64
        hashes: Hashes = column.to_numpy().astype(kind).view(np.uint64)
        return hashes
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        values = column.to_pylist()
        # An empty text is a null of a table in text; as a key it names nothing.
        return None if "" in values else np.fromiter(map(hash, values), np.int64, len(values)).view(np.uint64)
    return None
