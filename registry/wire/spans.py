"""Where does each key's content stand, in all records of a block? What the ways of finding it add up.

One ``Span`` is the content of one entry; they are kept as arrays, in chunks, one for each time that many were found.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from registry.wire.entries import Entry, Form, Kind, Layout
from registry.wire.gather import constant

_Places = npt.NDArray[np.int64]
_Chunk = tuple[_Places, _Places, _Places]  # rows, starts, sizes


@dataclass(frozen=True, slots=True)
class Spans:
    """The contents of one key, of one kind and layout: ``data[start : start + size]`` in each record of ``rows``.

    ``rows`` are ascending places in the block; None for every one.
    """

    layout: Layout
    rows: _Places | None
    starts: _Places
    sizes: _Places


@dataclass(slots=True)
class SpanCollector:
    """Collects the entries of ``num_records`` records; ``odd`` are the records of another form.

    ``keys`` are those that are asked for; None for all.
    """

    num_records: int
    keys: Container[str] | None = None
    odd: list[_Places] = field(default_factory=list)
    _chunks: dict[str, list[tuple[Form, _Chunk]]] = field(default_factory=dict)
    _single: dict[str, dict[Form, list[tuple[int, int, int]]]] = field(default_factory=dict)

    def add(self, form: Form, rows: _Places, starts: _Places, sizes: _Places) -> None:
        """Adds an entry for each of ``rows``, which differ from each other."""
        self._chunks.setdefault(form.key, []).append((form, (rows, starts, sizes)))

    def add_record(self, row: int, entries: Iterable[Entry], base: int) -> None:
        """Adds the entries of one record, whose places count from ``base``.

        A record with a key that nobody asked for, and that no others have, becomes odd: to look at the content of each
        such key would take long.
        """
        if self.keys is not None:
            entries = list(entries)
            if any(form.key not in self.keys and form.key not in self._chunks for form, _, _ in entries):
                self.odd.append(np.array([row]))
                return
        for form, start, stop in entries:
            self._single.setdefault(form.key, {}).setdefault(form, []).append((row, base + start, stop - start))

    def joined(self) -> dict[tuple[str, Kind], Spans]:
        """The contents by key and kind.

        Records that have a key twice, or numbers in two layouts, become ``odd``; these contents are not all given then.
        """
        for key, forms in self._single.items():
            for form, entries in forms.items():
                rows, starts, sizes = np.array(sorted(entries), np.int64).T.copy()
                self._chunks.setdefault(key, []).append((form, (rows, starts, sizes)))
        found: dict[tuple[str, Kind], Spans] = {}
        for key, chunks in self._chunks.items():
            if (len(chunks) > 1 or key in self._single) and self._stands_twice([rows for _, (rows, _, _) in chunks]):
                continue
            kinds: dict[Kind, dict[Layout, list[_Chunk]]] = {}
            for form, (rows, starts, sizes) in chunks:
                layout, before = form.layout, 0
                if layout == "empty":
                    layout = "list" if form.kind == "bytes" else "packed"
                elif layout == "item" and any(other.kind == "bytes" and other.layout != "item" for other, _ in chunks):
                    layout, before = "list", form.num_item_bytes
                places = (rows, starts - before, sizes + before) if before else (rows, starts, sizes)
                kinds.setdefault(form.kind, {}).setdefault(layout, []).append(places)
            for kind, layouts in kinds.items():
                if len(layouts) > 1:  # packed and not
                    self.odd.extend(rows for rows, _, _ in layouts.pop("unpacked"))
                for layout, same in layouts.items():
                    found[key, kind] = self._join(layout, same)
        self._single.clear()
        return found

    def _join(self, layout: Layout, chunks: list[_Chunk]) -> Spans:
        rows, starts, sizes = chunks[0] if len(chunks) == 1 else map(np.concatenate, zip(*chunks, strict=True))
        if rows.size != self.num_records:
            order = np.argsort(rows, kind="stable")
            return Spans(layout, rows[order], starts[order], sizes[order])
        if len(chunks) == 1 and (rows[1:] > rows[:-1]).all():
            return Spans(layout, None, starts, sizes)
        same = constant(sizes)
        return Spans(layout, None, _in_order(rows, starts), _in_order(rows, sizes) if same is None else sizes)

    def _stands_twice(self, chunks: list[_Places]) -> bool:
        """Whether a record has the key of ``chunks`` twice; those that do become odd."""
        rows = np.concatenate(chunks)
        if rows.size * 8 >= self.num_records:
            seen = np.zeros(self.num_records, np.bool_)
            seen[rows] = True
            if np.count_nonzero(seen) == rows.size:
                return False
        different, counts = np.unique(rows, return_counts=True)
        if different.size == rows.size:
            return False
        self.odd.append(different[counts > 1])
        return True


def _in_order(rows: _Places, numbers: _Places) -> _Places:
    ordered = np.empty_like(numbers)
    ordered[rows] = numbers
    return ordered
