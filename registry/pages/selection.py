"""Filters, searches and sorts every record of a split expression, in bounded memory, by its columns.

    columns of a split (kept in the cache, or read if the split is small) -> a bool for each record, remembered
                                                                          -> the next records by value and position

A page is after or before a position: its value is looked up, so that a deep page costs as little as the first one.
"""

from __future__ import annotations

import math
import operator
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import chain, pairwise
from operator import itemgetter
from threading import Lock
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.api import Dataset
from registry.display import time_types
from registry.errors import ConflictError, StorageError, UsageError, suggest
from registry.features import ClassLabel, FeaturesDict, Tensor
from registry.features.block_columns import MaskedColumn, TextColumn
from registry.features.codec import ExampleBlock
from registry.features.containers import Column, columns_of
from registry.features.feature import TEXT, BlockColumn
from registry.pages.cells import address_names
from registry.pages.previews import Remembered
from registry.reading.column_blocks import BoundedBlock, KeptColumns
from registry.reading.conditions import Bounds, Condition, narrow, parse_condition, scalar
from registry.reading.keeping import Filling
from registry.reading.split_columns import SplitColumns, fill_memory
from registry.splits import Plan

SMALL_BYTES: Final = 2**26
"""Columns of splits of at most this size are read when they are needed; those of others are kept first."""

_STEP: Final = 2**20
_STEP_BYTES: Final = 2**25
_MAPPED_BYTES: Final = 2**23
"""What a kept column counts as: it takes no memory of its own, but nobody can evict it from the cache."""

_REMEMBERED_BYTES: Final = 2**28

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The query of a page: a condition, words in texts and class names, and a sort column; ``-`` means descending."""

    where: str = ""
    q: str = ""
    sort: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The records of one page.

    Attributes:
        positions: their positions in the plan in stored order.
        first: how many of the records that are asked for come before them.
        total: how many records are asked for.
        num_matches: the same if there is a condition, or words; otherwise None.
        missing: the columns that have to be kept before; then there are no positions.
    """

    positions: Sequence[int] = ()
    first: int = 0
    total: int = 0
    num_matches: int | None = None
    missing: Sequence[SplitColumns] = ()

    @property
    def follows(self) -> bool:
        """Whether there are more records after these."""
        return self.first + len(self.positions) < self.total


class Words:
    """Which examples have some words in a text or in the name of a class. Upper and lower case are equal.

    >>> from registry.features import Text
    >>> from registry.features.block_columns import ArrayColumn
    >>> words = Words("STRASSE", FeaturesDict({"place": Text()}))
    >>> words.matches([ArrayColumn(np.array(["Lange Straße".encode(), b"Hof"], object))], 2).tolist()
    [True, False]
    """

    def __init__(self, text: str, features: FeaturesDict) -> None:
        self.text = text
        self._columns = [column for column in sortable_columns(features) if _is_searched(column)]
        self.features = narrow(features, [column.names for column in self._columns])
        self._needle = text.casefold()

    def matches(self, leaves: Sequence[BlockColumn], size: int) -> Mask:
        """Which examples of a block match; ``leaves`` are the columns of ``features``."""
        result = np.zeros(size, np.bool_)
        for column, leaf in zip(self._columns, leaves, strict=True):
            present: Any = leaf.rows_present if isinstance(leaf, MaskedColumn) else slice(None)
            values = leaf.present if isinstance(leaf, MaskedColumn) else leaf
            if isinstance(column.leaf, ClassLabel):
                classes = _find_classes(column.leaf.names, self._needle)
                result[present] |= np.isin(values.array(result[present].size), classes)
            elif (matches := _search_letters(values, self._needle.encode())) is not None:
                result[present] |= matches
            else:
                result[present] |= _contain(values.array(result[present].size).tolist(), self._needle)
        return result

    def may_match(self, _bounds: Mapping[str, Bounds]) -> bool:
        """Bounds say nothing of words."""
        return True


def _is_searched(column: Column) -> bool:
    leaf = column.leaf
    return leaf.names is not None if isinstance(leaf, ClassLabel) else leaf.dtype == TEXT


@lru_cache(2)
def _find_classes(names: tuple[str, ...], needle: str) -> npt.NDArray[np.intp]:
    return np.flatnonzero([needle in name.casefold() for name in names])


def _contain(texts: Sequence[bytes], needle: str) -> Mask:
    """Which texts in UTF-8 contain ``needle``, which is in the form of ``str.casefold``."""
    result = np.zeros(len(texts), np.bool_)
    whole = _fold(b"\0".join(texts))
    if whole.count("\0") != len(texts) - 1 or "\0" in needle:  # each on its own
        result[:] = [needle in _fold(text) for text in texts]
        return result
    folded = whole.encode()
    ends = np.append(np.flatnonzero(np.frombuffer(folded, np.uint8) == 0), len(folded))
    hits = re.finditer(re.escape(needle.encode()) + rb"[^\0]*", folded)  # the first one in each text
    result[np.searchsorted(ends, np.fromiter((hit.start() for hit in hits), np.int64))] = True
    return result


def _search_letters(column: BlockColumn, needle: bytes) -> Mask | None:
    """Which texts contain ``needle``, if all of them are ASCII and lie one behind the other; otherwise None.

    No text becomes an object: up to eight bytes of the needle are compared with those at each place at once.
    """
    if not isinstance(column, TextColumn) or not column.starts.size:
        return None
    ends = column.starts + column.sizes
    data = column.data[column.starts[0] : ends[-1]].tobytes()
    if not data.isascii() or (column.starts[1:] != ends[:-1]).any():
        return None
    ends -= column.starts[0]
    letters = np.frombuffer(data.lower(), np.uint8)
    width = next(it for it in (8, 4, 2, 1) if it <= len(needle))
    windows = np.ndarray(max(0, letters.size - len(needle) + 1), f"<u{width}", letters, strides=(1,))
    places = np.flatnonzero(windows == int.from_bytes(needle[:width], "little"))
    for place in range(width, len(needle)):
        places = places[letters[places + place] == needle[place]]
    rows = np.searchsorted(ends, places, "right")
    result = np.zeros(ends.size, np.bool_)
    result[rows[places + len(needle) <= ends[rows]]] = True
    return result


def _fold(text: bytes) -> str:
    return text.decode("utf-8", "replace").casefold()


_REMEMBERED: Final = Remembered(_REMEMBERED_BYTES, itemgetter(1))
"""Arrays and columns of this process, each with its size in bytes."""


def sort_paths(features: FeaturesDict) -> dict[str, str]:
    """The paths of the leaves to sort by, by how an address writes them."""
    return address_names([column.path for column in sortable_columns(features)])


def sortable_columns(features: FeaturesDict) -> list[Column]:
    """The leaves with one number, text, bool or class in each example."""
    return [
        column
        for column in columns_of(features)
        if not column.lengths and isinstance(column.leaf, Tensor) and not column.leaf.shape and column.leaf.parts
    ]


def select(
    dataset: Dataset,
    plan: Plan,
    question: Question,
    after: int,
    most: int,
    *,
    before: int | None = None,
    stop: int | None = None,
) -> Selection:
    """The next ``most`` records after position ``after`` (-1: from the first one) that match a query.

    Args:
        dataset: the version.
        plan: the records of the version.
        question: the condition, the words and the order.
        after: the position of the last record before these.
        most: number of records.
        before: instead of ``after``, the position of the record that follows them; after the last record, they are the
            records of the last page.
        stop: without a query, the position to end at.

    Raises:
        UsageError: a condition is malformed, or no column can be sorted by or searched.
        CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: while columns are read.
    """
    stop = plan.num_examples if stop is None else stop
    after = min(after, plan.num_examples)
    tests, column = _tests(dataset, question), _sorted_by(dataset.features, question.sort)
    if not tests and column is None:
        positions = _turn(min(after + 1, stop), None if before is None else min(before, stop), most, stop)
        return Selection(positions=positions, first=positions.start, total=stop)
    readable, splits = dataset.readable, dict.fromkeys(part.split for part in plan.ranges)
    schemas = [test.features for test in tests]
    schemas += [] if column is None else [narrow(dataset.features, [column.names])]
    needed = {split: [SplitColumns(readable, split, schema) for schema in schemas] for split in splits}
    opened: dict[str, list[KeptColumns]] = {}
    missing: list[SplitColumns] = []
    for split, each in needed.items():
        kept = [_open(columns) for columns in each]
        opened[split] = [columns for columns in kept if columns is not None]
        missing += [columns for columns, it in zip(each, kept, strict=True) if it is None]
    if missing:
        return Selection(missing=missing)
    masks = {
        split: [_mask(*triple) for triple in zip(needed[split], opened[split], tests, strict=False)] for split in splits
    }
    parts = list(_parts(plan, masks, min(map(_step, chain.from_iterable(opened.values())))))
    total = _rank(parts, plan.num_examples)
    num_matches = total if tests else None
    if column is None or (before is None and after >= plan.num_examples):  # no record follows, in any order
        ranks = _turn(_rank(parts, after + 1), None if before is None else _rank(parts, before), most, total)
        return Selection(positions=_ranked(parts, ranks), first=ranks.start, total=total, num_matches=num_matches)
    last = {split: each[-1] for split, each in opened.items()}
    is_down, is_back = question.sort.startswith("-"), before is not None
    place = after if before is None else before
    if is_back and place >= plan.num_examples:
        most = len(_turn(0, total, most, total)) or 1
    found, passed = _best(last, parts, column, place, most, is_down=is_down, is_back=is_back)
    first = total - passed - len(found) if is_back else passed
    return Selection(positions=found, first=first, total=total, num_matches=num_matches)


def _turn(start: int, stop: int | None, most: int, total: int) -> range:
    """The numbers of the records of a page that begins at ``start``, or ends before ``stop``. The last page is short.

    >>> _turn(50, None, 50, 120), _turn(0, 100, 50, 120), _turn(0, 120, 50, 120)
    (range(50, 100), range(50, 100), range(100, 120))
    """
    if stop is None:
        return range(start, min(start + most, total))
    return range(max(0, total - 1) // most * most if stop == total else max(0, stop - most), stop)


def _tests(dataset: Dataset, question: Question) -> list[Condition | Words]:
    tests: list[Condition | Words] = []
    if question.where:
        tests.append(parse_condition(question.where, dataset.features, time_types(dataset.features, dataset.metadata)))
    if question.q:
        if not any(map(_is_searched, sortable_columns(dataset.features))):
            raise UsageError("no feature is a text or a class with names", hint="Filter by a condition: price > 10.")
        tests.append(Words(question.q, dataset.features))
    return tests


def _sorted_by(features: FeaturesDict, sort: str) -> Column | None:
    columns = dict(zip(sort_paths(features), sortable_columns(features), strict=True))
    path = sort.removeprefix("-")
    if sort and path not in columns:
        raise UsageError(f"records cannot be sorted by {path!r:.80}", hint=suggest(path, columns))
    return columns.get(path)


def _key(columns: SplitColumns) -> tuple[Any, ...]:
    facts, paths = columns.readable.facts, (column.path for column in columns_of(columns.features))
    return facts.reference, facts.content_digest, facts.location, columns.split, *paths


def _open(columns: SplitColumns) -> KeptColumns | None:
    """The columns of a split: kept ones, or those of a small split in memory; None if they must be kept first."""

    def make() -> tuple[KeptColumns, int] | None:
        opened, size = columns.open(), columns.num_records
        if opened is not None:
            return KeptColumns(columns.features, opened, np.zeros(0, np.int64), size, columns.mend), _MAPPED_BYTES
        if columns.readable.facts.split(columns.split).num_bytes > SMALL_BYTES:
            return None
        filled = fill_memory(columns.readable, columns.plan, columns.features, "block")
        if filled is None:
            raise UsageError("the values of this feature cannot be compared", hint="Use dataset.sql(...).")
        return filled, filled.row_bytes * size

    remembered = _REMEMBERED.get(("columns", *_key(columns)), make)
    return None if remembered is None else remembered[0]


def _decoded(columns: KeptColumns, rows: slice) -> ExampleBlock:
    if not columns.prove(rows):
        raise StorageError(
            "a kept column is damaged, and its shards cannot be read", hint="Find the damage: registry verify"
        )
    # Without copies, long texts are views of their file, which have no order.
    has_text = any(column.leaf.dtype == TEXT for column in columns_of(columns.features))
    return columns.decode(rows, copy=has_text)


def _step(columns: KeptColumns) -> int:
    """How many rows are decoded at once."""
    return max(1, min(_STEP, _STEP_BYTES // columns.row_bytes))


def _mask(columns: SplitColumns, opened: KeptColumns, test: Condition | Words) -> Mask:
    """Which records of a split match."""

    def make() -> tuple[Mask, int]:
        size = columns.num_records
        result = np.zeros(size, np.bool_)
        blocks: Iterable[BoundedBlock] = opened.blocks_between(0, size) or [(size, {})]
        for rows in _runs(((count, test.may_match(bounds)) for count, bounds in blocks), _step(opened)):
            block = _decoded(opened, rows)
            if isinstance(test, Words):
                result[rows] = test.matches(block.leaves, len(block))
            else:
                result[rows] = test.matches(block.columns())
        return result, result.nbytes

    return _REMEMBERED.get((type(test).__name__, test.text, *_key(columns)), make)[0]


def _runs(blocks: Iterable[tuple[int, bool]], step: int) -> Iterator[slice]:
    """Consecutive blocks that may match, joined and cut to at most ``step`` rows."""
    start = stop = 0
    for count, may_match in [*blocks, (0, False)]:
        if may_match:
            stop += count
            continue
        for first in range(start, stop, step):
            yield slice(first, min(first + step, stop))
        start = stop = stop + count


def _parts(plan: Plan, masks: Mapping[str, Sequence[Mask]], step: int) -> Iterator[tuple[int, str, slice, Mask]]:
    """The records of a plan in parts of at most ``step``: position, split, rows, and which of them match."""
    position = 0
    for part in plan.ranges:
        for first, stop in pairwise([*range(part.start, part.stop, step), part.stop]):
            rows = slice(first, stop)
            each = [mask[rows] for mask in masks[part.split]] or [np.ones(stop - first, np.bool_)]
            yield position, part.split, rows, reduce(operator.and_, each)
            position += stop - first


def _rank(parts: Sequence[tuple[int, str, slice, Mask]], stop: int) -> int:
    """How many records before the position ``stop`` match."""
    return sum(int(np.count_nonzero(mask[: max(0, stop - position)])) for position, _, _, mask in parts)


def _ranked(parts: Sequence[tuple[int, str, slice, Mask]], ranks: range) -> list[int]:
    """The positions of the records that match, from one to another of them."""
    found: list[int] = []
    for position, _, _, mask in parts:
        low, high = max(0, ranks.start), min(ranks.stop, int(np.count_nonzero(mask)))
        if low < high:
            found += (np.flatnonzero(mask)[low:high] + position).tolist()
        ranks = range(*(rank - int(np.count_nonzero(mask)) for rank in (ranks.start, ranks.stop)))
    return found


def _best(
    columns: Mapping[str, Any],
    parts: Sequence[tuple[int, str, slice, Mask]],
    column: Column,
    place: int,
    most: int,
    *,
    is_down: bool,
    is_back: bool,
) -> tuple[list[int], int]:
    """The next ``most`` positions by value, then by position; and how many are passed. Missing values come last.

    NaN is missing, too. They follow ``place``, or come before it with ``is_back``: then the search goes through the
    reversed order, in which rows have negative positions, and the number is that of the records not before ``place``.
    """
    sign = -1 if is_back else 1
    is_down ^= is_back

    def read(split: str, rows: slice) -> tuple[Any, Mask]:
        array: Any = reduce(operator.getitem, column.names, _decoded(columns[split], rows).columns())
        values, present = np.ma.getdata(array), ~np.ma.getmaskarray(array)
        if values.dtype.kind not in "iufO":  # bools, and floats of 16 bits of another package
            values = values.astype(np.float32)
        if values.dtype.kind == "f":
            present &= ~np.isnan(values)
        elif values.dtype == object and not present.all():
            values = np.where(present, values, b"")
        return values[::sign], present[::sign]

    last: Any = None
    is_start, is_absent = True, False
    for position, split, rows, _ in parts:
        if position <= place < position + rows.stop - rows.start:
            row = rows.start + place - position
            values, present = read(split, slice(row, row + 1))
            last, is_start, is_absent = scalar(values.dtype, values[0]), False, not present[0]
    beyond, at_least = (operator.lt, operator.le) if is_down else (operator.gt, operator.ge)
    best_values: Any = None
    best, absent, passed = np.empty(0, np.int64), list[int](), 0
    for position, split, rows, mask in parts[::sign]:
        values, present = read(split, rows)
        later, is_full = mask[::sign], bool(present.all())  # a full column takes a third of the passes over its values
        origin = position if not is_back else 1 - position - mask.size
        if not is_start:
            edge = max(0, sign * place - origin + 1)  # rows from here on are next
            if is_absent:
                later = later & np.where(present, is_back, np.arange(mask.size) >= edge)
            else:
                halves = beyond(values[:edge], last), at_least(values[edge:], last)
                is_later = np.concatenate(list(map(_as_bool, halves)))
                later = later & (is_later if is_full else np.where(present, is_later, not is_back))
            passed += int(np.count_nonzero(mask) - np.count_nonzero(later))
        if not is_full and len(absent) < most:
            absent += (np.flatnonzero(later & ~present)[: most - len(absent)] + origin).tolist()
        keep = later if is_full else later & present
        if best.size == most:  # only a value before the worst one can replace it
            keep = keep & _as_bool(beyond(scalar(values.dtype, best_values[-1]), values))
        indices = np.flatnonzero(keep)
        values, places = values[indices], indices + origin
        chosen = _lowest(values, most, is_down=is_down)
        values, places = values[chosen], places[chosen]
        if best.size:
            values, places = np.concatenate([best_values, values]), np.concatenate([best, places])
            order = np.argsort(places)
            chosen = order[_lowest(values[order], most, is_down=is_down)]
            values, places = values[chosen], places[chosen]
        best_values, best = values, places
    found = [*absent, *best.tolist()] if is_back else [*best.tolist(), *absent]
    return [sign * it for it in found[:most]][::sign], passed


def _as_bool(array: Any) -> Mask:
    return np.asarray(array, np.bool_)


def _lowest(values: Any, most: int, *, is_down: bool) -> npt.NDArray[np.intp]:
    """The places of the ``most`` lowest values (``is_down``: the greatest) in order; equal ones in their order."""

    def limit_of(some: Any) -> Any:
        place = some.size - most if is_down else most - 1
        return scalar(some.dtype, np.partition(some, place)[place])

    places = np.arange(values.size)
    if values.size > 2**13 > 2 * most:  # the limit of one of many is that of all, or further: it leaves few values
        limit = limit_of(values[:: values.size // 2**12])
        places = np.flatnonzero(_as_bool(values >= limit if is_down else values <= limit))
        values = values[places]
    if values.size > most:
        limit = limit_of(values)
        inside = np.flatnonzero(_as_bool(values > limit if is_down else values < limit))
        chosen = np.sort(np.append(inside, np.flatnonzero(_as_bool(values == limit))[: most - inside.size]))
        places, values = places[chosen], values[chosen]
    if is_down:  # stable downwards: equal values stay in their order
        return places[::-1][np.argsort(values[::-1], kind="stable")[::-1]]
    return places[np.argsort(values, kind="stable")]


_FILLINGS: Final = OrderedDict[Any, Filling]()
_FILLINGS_LOCK: Final = Lock()
_MOST_FILLINGS: Final = 2


def filling_values(selection: Selection) -> dict[str, Any] | None:
    """What a page says of missing columns, and of the thread that fills them; None if none is missing."""
    if not selection.missing:
        return None
    key = tuple(map(_key, selection.missing))
    with _FILLINGS_LOCK:
        filling = _FILLINGS.get(key)
        is_running = filling is not None and filling.error is None
        if filling is not None and not filling.is_running:  # it may have ended after the selection was made
            del _FILLINGS[key]
    total = sum(part.num_records for part in selection.missing)
    names = [column.path for part in selection.missing for column in columns_of(part.features)]
    return {
        "columns": list(dict.fromkeys(names)),
        "total": max(1, total),
        "done": 0 if filling is None else min(filling.num_filled, total),
        "is_running": is_running,
        "error": None if filling is None or filling.error is None else str(filling.error),
    }


def fill(selection: Selection) -> None:
    """Begin to fill the missing columns in a thread, if none does it.

    Raises:
        ConflictError: two other threads fill columns.
    """
    key = tuple(map(_key, selection.missing))
    with _FILLINGS_LOCK:
        running = [each for each, filling in _FILLINGS.items() if filling.is_running]
        if not key or key in running:
            return
        if len(running) >= _MOST_FILLINGS:
            raise ConflictError(
                "other columns are currently being read", hint="Wait until they are kept, and try again."
            )
        while len(_FILLINGS) > len(running) + 100:
            _FILLINGS.popitem(last=False)
        _FILLINGS[key] = filling = Filling(selection.missing)
        filling.allow(math.inf)
