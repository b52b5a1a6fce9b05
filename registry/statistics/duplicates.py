"""Finds exact duplicates: a digest of 16 bytes for each record, and the number of its occurrences in a split.

    FlatRecords -> RecordDigester -> DigestPile of a split
    piles of all splits -> find_duplicates -> Duplicates of each

Two records are equal if all their stored values are equal: the bits of numbers, and the bytes of texts and files. The
serialization does not matter. Two different records have the same digest with a probability of 2**-128. Digests are not
cryptographic, so records with the same digest can be constructed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from fastcrc import crc64

from registry.features.codec import FlatRecords, codec_of
from registry.features.column_reader import ColumnReader
from registry.features.containers import FeaturesDict
from registry.features.content import content_bytes
from registry.features.digest_pile import DigestPile, divide_piles
from registry.features.feature import RawFeature
from registry.statistics.distinct import equal_places
from registry.statistics.values import Duplicates
from registry.wire import BytesColumn, FlatBlock, NumberColumn, decode_example
from registry.wire.gather import Octets, Places, as_rows, constant, cut_views, take, take_windows

Words: TypeAlias = npt.NDArray[np.uint64]
"""Rows of words, shape (number of rows, number of records)."""

DIGEST_BYTES: Final = 16

_MOST_IN_MEMORY: Final = 2**20
"""The maximum number of digests in memory while the records of a split are folded: 16 MiB."""

MOST_WAITING: Final = 2**18
"""The maximum number of digests of a split that stay in memory until the other splits are folded: 4 MiB."""

_MOST_SORTED: Final = 2**20
"""The maximum number of digests that are compared at once: 16 MiB, and four times as much for sorting."""

_MOST_CELLS: Final = 2**22
"""The maximum size of a table with a count of 64 bits for each place of a digest and each split: 32 MiB."""

_FEW: Final = 8
"""A table has at most this many cells for each digest that occurred before; it takes less time than sorting those."""

_MOST_SHARED: Final = 100
"""The maximum number of other splits in the result of a split."""

_WORD: Final = 8
_WINDOW: Final = 64
"""The number of bytes of each value that are read at once."""

_MOST_MIXED: Final = 512
"""Values of at most this many bytes are mixed word by word, all records together. CRCs are faster for longer ones."""

_START: Final = np.array([[0x9E3779B97F4A7C15], [0x2545F4914F6CDD1D]], np.uint64)
_FACTORS: Final = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)

_NONE: Final = np.empty(0, np.int64)
_NO_ROWS: Final = np.empty((0, 2), np.uint64)

_MASKS: Final = np.array([2 ** (8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
"""Masks of the first bytes of a word."""


class RecordDigester:
    """Computes the digests of records of one schema, all records of a block together."""

    def __init__(self, features: FeaturesDict) -> None:
        self._readers = codec_of(features.missing_as_none()).columns

    def digests(self, block: FlatRecords) -> tuple[bytes, list[Words | None]]:
        """Return the digest of each record, 16 bytes each, and the hashes of the texts of each leaf of texts.

        The records must contain the features, which other folds have checked.
        """
        state = np.broadcast_to(_START, (2, block.num_records)).copy()
        texts: list[Words | None] = []
        for reader, flat in zip(self._readers, block.flats, strict=True):
            hashes: list[Words] = []
            for words in _words_of(reader, flat, block, hashes):
                _mix(state, words)
            texts.append(hashes[0] if hashes else None)
        return np.ascontiguousarray(state.T, "<u8").tobytes(), texts


def pile_of_split(content: bytes = b"") -> DigestPile:
    """Create a pile for the digests of a split."""
    return DigestPile(num_bytes=DIGEST_BYTES, most_in_memory=_MOST_IN_MEMORY, content=content)


def find_duplicates(names: Sequence[str], piles: Sequence[DigestPile]) -> list[Duplicates]:
    """Find the duplicates of each split, from its name and the digests of its records.

    The order of digests does not matter. More than a million are divided by means of the piles' temporary files.

    >>> train, test = pile_of_split(b"a" * 32 + b"b" * 16), pile_of_split(b"b" * 32)
    >>> find_duplicates(["train", "test"], [train, test])[0]
    Duplicates(num_repeated=1, num_groups=1, shared={'test': 1})
    """
    num_repeated, num_groups = np.zeros((2, len(names)), np.int64)
    shared: Counter[int] = Counter()
    for parts in divide_piles(piles, most=_MOST_SORTED) if names else ():
        groups, splits, counts = _count_repeated(parts)
        np.add.at(num_repeated, splits, counts - 1)
        num_groups += np.bincount(splits[counts > 1], minlength=len(names))
        for distance in range(1, int(np.bincount(groups).max(initial=0))):
            first = np.flatnonzero(groups[distance:] == groups[:-distance])
            for here, there in ((first, first + distance), (first + distance, first)):
                pairs, places = np.unique(splits[here] * len(names) + splits[there], return_inverse=True)
                totals = np.zeros(pairs.size, np.int64)
                np.add.at(totals, places, counts[here])
                shared.update(dict(zip(pairs.tolist(), totals.tolist(), strict=True)))
    return [
        Duplicates(
            num_repeated=int(num_repeated[split]),
            num_groups=int(num_groups[split]),
            shared=_most_shared(
                {
                    name: shared[pair]
                    for other, name in enumerate(names)
                    if (pair := split * len(names) + other) in shared
                }
            ),
        )
        for split in range(len(names))
    ]


def _most_shared(shared: dict[str, int]) -> dict[str, int]:
    most = set(sorted(shared, key=lambda name: -shared[name])[:_MOST_SHARED])
    return {name: count for name, count in shared.items() if name in most}


def _count_repeated(piles: Iterable[Iterable[bytes | memoryview]]) -> tuple[Places, Places, Places]:
    """Find the digests that occur several times: a number for each, the split, and the occurrences in this split.

    Results are in the order of the numbers, then of the splits.
    """
    rows: list[Words] = []
    weights: list[Places] = []
    splits: list[int] = []
    is_weighted = False
    for split, parts in enumerate(piles):
        for part in parts:
            piece = np.frombuffer(part, np.uint64).reshape(-1, 2)
            weight: Places = np.broadcast_to(1, len(piece))
            differ = _differ(piece)
            if 2 * np.count_nonzero(differ) < len(piece):
                # Of equal neighbours, keep only the first and the last: all records of a large version may be equal.
                kept = np.flatnonzero(differ[1:] | differ[:-1])
                piece, weight, is_weighted = piece[kept], np.diff(kept, append=len(piece)), True
            rows.append(piece)
            weights.append(weight)
            splits.append(split)
    groups = equal_places(*(rows[0] if len(rows) == 1 else np.concatenate([_NO_ROWS, *rows])).T)
    others = np.flatnonzero(groups != np.arange(groups.size, dtype=np.int32))
    if not others.size:
        return _NONE, _NONE, _NONE
    ends, num_splits = np.cumsum([*map(len, rows)]), splits[-1] + 1
    if groups.size * num_splits <= min(_MOST_CELLS, _FEW * others.size):
        table = np.zeros((num_splits, groups.size), np.int64)
        for split, some, weight in zip(splits, np.split(groups, ends[:-1]), weights, strict=True):
            np.add.at(table[split], some, weight)
        numbers = np.flatnonzero(table.sum(axis=0) > 1)
        table = table[:, numbers]
        places, of_splits = np.nonzero(table.T)
        return numbers[places], of_splits, table[of_splits, places]
    is_repeated = np.zeros(groups.size, np.bool_)
    is_repeated[others] = is_repeated[groups[others]] = True
    again = np.flatnonzero(is_repeated)
    pairs = groups[again].astype(np.int64) * num_splits + np.array(splits)[np.searchsorted(ends, again, "right")]
    pairs, places = np.unique(pairs, return_inverse=True)
    counts = np.bincount(places, np.concatenate(weights)[again] if is_weighted else None)
    return pairs // num_splits, pairs % num_splits, counts.astype(np.int64)


def _differ(rows: Words) -> npt.NDArray[np.bool_]:
    """Return whether each row, and the end, differs from the row before."""
    differ = (rows[1:, 0] != rows[:-1, 0]) | (rows[1:, 1] != rows[:-1, 1])
    return np.concatenate([np.ones(min(1, len(rows)), np.bool_), differ, [True]])


def _words_of(reader: ColumnReader, flat: FlatBlock, block: FlatRecords, hashes: list[Words]) -> Iterator[Words]:
    """Yield words of each record, as many for every block, shape (number of records,). Texts are kept in ``hashes``."""
    if isinstance(reader.leaf, RawFeature):
        contents = [content_bytes(reader.read_content(decode_example(record))) for record in block.records]
        sizes = np.fromiter(map(len, contents), np.int64, len(contents))
        yield from hash_items(np.frombuffer(b"".join(contents), np.uint8), sizes.cumsum() - sizes, sizes)
        return
    is_single = not (reader.lengths or reader.may_be_absent or reader.may_be_missing)
    for part, (key, *level_keys) in reader.parts:
        column = flat.columns.get((key, part.kind))
        if reader.may_be_absent:
            is_there = np.zeros(flat.num_records, np.uint64)
            for stored in (flat.columns.get((key, kind)) for kind in ("int64", "float", "bytes")):
                if stored is not None:  # an empty value may have another kind
                    is_there[slice(None) if stored.rows is None else stored.rows] = 1
            yield is_there
        yield from _hash_column(column, flat, hashes, is_single=is_single and part.size == 1)
        for level_key in level_keys:
            yield from _hash_column(flat.columns.get((level_key, "int64")), flat, hashes)


def _hash_column(
    column: NumberColumn | BytesColumn | None, flat: FlatBlock, hashes: list[Words], *, is_single: bool = False
) -> Iterable[npt.NDArray[Any]]:
    """Return a word for the only number of each record, or two words of a hash for other values.

    A record without the key has no values.
    """
    counts = np.zeros(flat.num_records, np.int64)
    if column is None:
        return hash_items(np.empty(0, np.uint8), counts, counts)
    if isinstance(column, NumberColumn):
        values = np.ascontiguousarray(column.values)
        if is_single and values.size == flat.num_records:
            return [values.view(f"u{values.itemsize}")]
        data, item_bytes = values.view(np.uint8), values.itemsize
    else:
        hashes.append(hash_items(flat.data, column.starts, column.sizes))
        if is_single and column.starts.size == flat.num_records:
            return hashes[-1]
        data, item_bytes = np.ascontiguousarray(hashes[-1].T).reshape(-1).view(np.uint8), DIGEST_BYTES
    counts[slice(None) if column.rows is None else column.rows] = column.counts
    sizes = counts * item_bytes
    return hash_items(data, sizes.cumsum() - sizes, sizes)


def hash_items(data: Octets, starts: Places, sizes: Places) -> Words:
    """Return two words for each ``data[start : start + size]``, shape (2, number of items)."""
    state = np.broadcast_to(_START, (2, sizes.size)).copy()
    _mix(state, sizes.view(np.uint64))
    long = np.flatnonzero(sizes > _MOST_MIXED)
    if long.size:
        items = list(map(bytes, cut_views(data.data, starts[long], sizes[long])))
        mixed = state[:, long]
        for checksum in (crc64.xz, crc64.go_iso):
            _mix(mixed, np.fromiter(map(checksum, items), np.uint64, long.size))
        state[:, long] = mixed
    if constant(sizes) is not None and not long.size:
        _mix_items(state, data, starts, sizes)
    elif long.size < sizes.size:
        # The longest first, so that the items with a further word come first.
        order = np.argsort(np.minimum(sizes, _MOST_MIXED + 1).astype(np.uint16), kind="stable")[::-1][long.size :]
        mixed = state[:, order]
        _mix_items(mixed, data, starts[order], sizes[order])
        state[:, order] = mixed
    return state


def _mix_items(state: Words, data: Octets, starts: Places, sizes: Places) -> None:
    """Mix items, of which the longest is the first, into their ``state``."""
    longest, shortest, descending = int(sizes[0]), int(sizes[-1]), -sizes
    for begin in range(0, longest, _WINDOW):
        count = int(np.searchsorted(descending, -begin)) if shortest <= begin else sizes.size
        places, width = starts[:count] + begin, min(_WINDOW, longest - begin + (begin - longest) % _WORD)
        is_inside = int(places.max()) <= data.size - width
        pieces = take(data, places, width) if is_inside else take_windows(data, places, width)
        for done, words in zip(range(begin, longest, _WORD), as_rows(pieces, "<u8").T, strict=False):
            if shortest < done + _WORD:
                count = int(np.searchsorted(descending, -done)) if shortest <= done else sizes.size
                words = words[:count] & _MASKS[np.minimum(sizes[:count] - done, _WORD)]  # noqa: PLW2901
            _mix(state[:, :count], words)


def _mix(state: Words, words: npt.NDArray[Any]) -> None:
    """Mix a word of each record into its ``state``.

    One half is a chain, and the other is the sum of all values of the chain; both are multiplied by odd numbers. A
    different word always changes both. Later words can make both equal again only by accident, and not at once.
    """
    total, chain = state
    chain ^= words
    chain *= _FACTORS[0]
    chain.byteswap(inplace=True)  # the high bits of a product depend on all bits, so move them to the low bits
    total += chain
    total *= _FACTORS[1]
