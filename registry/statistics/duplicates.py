"""Finds exact duplicates: a digest of 16 bytes for each record, and the number of its occurrences in a split.

    FlatRecords -> RecordDigester -> DigestPile of a split
    piles of all splits -> find_duplicates -> Duplicates of each

Two records are equal if all their stored values are equal: the bits of numbers, and the bytes of texts and files. The
serialization does not matter. Two different records have the same digest with a probability of 2**-128. Digests are not
cryptographic, so records with the same digest can be constructed.
"""

from __future__ import annotations

import math
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
from registry.features.feature import TEXT, Leaf, RawFeature
from registry.statistics.distinct import HASHES_PER_STEP, crowded_places, equal_places
from registry.statistics.values import Duplicates
from registry.wire import FlatBlock, FlatColumn, NumberColumn, decode_example
from registry.wire.gather import Octets, Places, as_rows, constant, cut_views, take, take_windows

Words: TypeAlias = npt.NDArray[np.uint64]
"""A word of each record."""

State: TypeAlias = tuple[Words, Words]
"""Two words of each record."""

Known: TypeAlias = State | npt.NDArray[Any]
"""What the digests have read of a leaf: the hashes of its texts, or all its numbers if records have equally many."""

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

_START: Final = np.array([0x9E3779B97F4A7C15], np.uint64), np.array([0x2545F4914F6CDD1D], np.uint64)
_FACTORS: Final = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)

_NONE: Final = np.empty(0, np.int64)
_NO_ROWS: Final = np.empty((0, 2), np.uint64)

_MASKS: Final = np.array([2 ** (8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
"""Masks of the first bytes of a word."""


class RecordDigester:
    """Computes the digests of records of one schema, all records of a block together."""

    def __init__(self, features: FeaturesDict) -> None:
        self._readers = codec_of(features.missing_as_none()).columns

    def digests(self, block: FlatRecords) -> tuple[memoryview, list[Known | None]]:
        """Return the digest of each record, 16 bytes each, and what was read of each leaf, if its statistics need it.

        The records must contain the features, which other folds have checked.
        """
        state = _START
        of_leaves: list[Known | None] = []
        for reader, flat in zip(self._readers, block.flats, strict=True):
            known: list[Known] = []
            for words in _words_of(reader, flat, block, known):
                state = _mix(state, words)
            of_leaves.append(known[0] if known else None)
        return _as_rows(state, block.num_records).view(np.uint8).reshape(-1).data, of_leaves


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
        numbers, splits, counts = _count_repeated(parts)
        np.add.at(num_repeated, splits, counts - 1)
        num_groups += np.bincount(splits[counts > 1], minlength=len(names))
        for distance in range(1, int(np.bincount(numbers).max(initial=0))):
            first = np.flatnonzero(numbers[distance:] == numbers[:-distance])
            for here, there in ((first, first + distance), (first + distance, first)):
                pairs, places = np.unique(splits[here] * len(names) + splits[there], return_inverse=True)
                totals = np.zeros(pairs.size, np.int64)
                np.add.at(totals, places, counts[here])
                shared.update(dict(zip(pairs.tolist(), totals.tolist(), strict=True)))
    result = []
    for split, (repeated, groups) in enumerate(zip(num_repeated.tolist(), num_groups.tolist(), strict=True)):
        shares = {name: shared[split * len(names) + other] for other, name in enumerate(names)}
        most = set(sorted(filter(shares.get, shares), key=lambda name: -shares[name])[:_MOST_SHARED])
        others = {name: share for name, share in shares.items() if name in most}
        result.append(Duplicates(num_repeated=repeated, num_groups=groups, shared=others))
    return result


def _count_repeated(piles: Iterable[Iterable[bytes | memoryview]]) -> tuple[Places, Places, Places]:
    """Find the digests that occur several times: a number for each, the split, and the occurrences in this split.

    Results are in the order of the numbers, then of the splits.
    """
    pieces: list[tuple[int, Words, Places]] = []
    for split, parts in enumerate(piles):
        for part in parts:
            piece = np.frombuffer(part, np.uint64).reshape(-1, 2)
            weight: Places = np.broadcast_to(1, len(piece))
            step = 1 + len(piece) // HASHES_PER_STEP
            sample = piece[1::step, 0] != piece[:-1:step, 0]
            if 2 * np.count_nonzero(sample) < sample.size:
                # Of equal neighbours, keep only the first and the last: all records of a large version may be equal.
                differ = _differ(piece)
                kept = np.flatnonzero(differ[1:] | differ[:-1])
                piece, weight = piece[kept], np.diff(kept, append=len(piece))
            pieces.append((split, piece, weight))
    steps = [
        (split, rows[start : start + HASHES_PER_STEP], weight[start : start + HASHES_PER_STEP])
        for split, rows, weight in pieces
        for start in range(0, len(rows), HASHES_PER_STEP)
    ]
    # Two rounds leave about 1% of distinct digests, so the rest of this function takes little time and memory.
    for is_mixed in (False, True):
        crowds = crowded_places([rows[:, 0] for _, rows, _ in steps], is_mixed=is_mixed)
        if crowds is None:
            break
        pieces = steps = [
            (split, rows.take(crowd, axis=0), weight[crowd])
            for (split, rows, weight), crowd in zip(steps, crowds, strict=True)
        ]
    splits = [split for split, _, _ in pieces]
    rows = [rows for _, rows, _ in pieces]
    weights = [weight for _, _, weight in pieces]
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
        cells = np.flatnonzero(table.T)  # ``nonzero`` of several dimensions takes five times as long
        places = cells // num_splits
        of_splits = cells - places * num_splits
        return numbers[places], of_splits, table[of_splits, places]
    is_repeated = np.zeros(groups.size, np.bool_)
    is_repeated[others] = is_repeated[groups[others]] = True
    again = np.flatnonzero(is_repeated)
    pairs = groups[again].astype(np.int64) * num_splits + np.array(splits)[np.searchsorted(ends, again, "right")]
    pairs, places = np.unique(pairs, return_inverse=True)
    counts = np.bincount(places, np.concatenate(weights)[again])
    return pairs // num_splits, pairs % num_splits, counts.astype(np.int64)


def _differ(rows: Words) -> npt.NDArray[np.bool_]:
    """Return whether each row, and the end, differs from the row before."""
    differ = (rows[1:, 0] != rows[:-1, 0]) | (rows[1:, 1] != rows[:-1, 1])
    return np.concatenate([np.ones(min(1, len(rows)), np.bool_), differ, [True]])


def _words_of(reader: ColumnReader, flat: FlatBlock, block: FlatRecords, known: list[Known]) -> Iterator[Words]:
    """Yield words of each record, as many for every block, shape (number of records,); add to ``known``."""
    if isinstance(reader.leaf, RawFeature):
        contents = [content_bytes(reader.read_content(decode_example(record))) for record in block.records]
        sizes = np.fromiter(map(len, contents), np.int64, len(contents))
        yield from hash_items(np.frombuffer(b"".join(contents), np.uint8), sizes.cumsum() - sizes, sizes)
        return
    is_plain = not (reader.lengths or reader.may_be_absent or reader.may_be_missing)
    array = reader.leaf if reader.leaf.reads_views and reader.leaf.dtype != TEXT else None
    for part, (key, *level_keys) in reader.parts:
        column = flat.columns.get((key, part.kind))
        if reader.may_be_absent:
            is_there = np.zeros(flat.num_records, np.uint64)
            for stored in (flat.columns.get((key, kind)) for kind in ("int64", "float", "bytes")):
                if stored is not None:  # an empty value may have another kind
                    is_there[slice(None) if stored.rows is None else stored.rows] = 1
            yield is_there
        yield from _hash_column(column, flat, known, part.size or 0 if is_plain else 0, array)
        for level_key in level_keys:
            yield from _hash_column(flat.columns.get((level_key, "int64")), flat, known)


def _hash_column(
    column: FlatColumn | None, flat: FlatBlock, known: list[Known], size: int = 0, array: Leaf | None = None
) -> Iterable[Words]:
    """Return words of each record: its values, if they have the same few bytes in all records, or two words of a hash.

    Each record must have ``size`` values, or any number if it is 0. An item may be a stored ``array``.
    A record without the key has no values.
    """
    counts = np.zeros(flat.num_records, np.int64)
    if column is None:
        return hash_items(np.empty(0, np.uint8), counts, counts)
    stored_bytes = array.dtype.itemsize * math.prod(array.shape) if array else 0
    has_each = size > 0 and column.rows is None and column.counts == size
    if isinstance(column, NumberColumn):
        values = np.ascontiguousarray(column.values)
        data, item_bytes = values.view(np.uint8), values.itemsize
        if has_each and size * item_bytes <= _MOST_MIXED:
            known.append(values)
            return _cut_words(data.reshape(flat.num_records, -1))
    elif (
        has_each and size == 1 and array and 0 < stored_bytes <= _MOST_MIXED and constant(column.sizes) == stored_bytes
    ):
        pieces = np.ascontiguousarray(take(flat.data, column.starts, stored_bytes))
        known.append(pieces.view(array.dtype.newbyteorder("<")))
        return _cut_words(as_rows(pieces, np.uint8))
    else:
        hashes = hash_items(flat.data, column.starts, column.sizes)
        known.append(hashes)
        if has_each and size == 1:
            return hashes
        data, item_bytes = _as_rows(hashes, column.starts.size).reshape(-1).view(np.uint8), DIGEST_BYTES
    counts[slice(None) if column.rows is None else column.rows] = column.counts
    sizes = counts * item_bytes
    return hash_items(data, sizes.cumsum() - sizes, sizes)


def _cut_words(rows: npt.NDArray[np.uint8]) -> Iterator[Words]:
    """Yield the bytes of ``rows`` as numbers of 8 bytes, and what remains as smaller ones."""
    begin = 0
    for width in (8, 4, 2, 1):
        stop = begin + (rows.shape[1] - begin) // width * width
        if stop > begin:
            yield from rows[:, begin:stop].view(f"<u{width}").T
        begin = stop


def hash_items(data: Octets, starts: Places, sizes: Places) -> State:
    """Return two words for each ``data[start : start + size]``, each in an array of shape (number of items,)."""
    if (size := constant(sizes)) is not None and size <= _MOST_MIXED:
        total, chain = _hash_short(data, starts, sizes, sizes[:1])
        return np.broadcast_to(total, sizes.shape), np.broadcast_to(chain, sizes.shape)
    result = np.empty(sizes.size, np.uint64), np.empty(sizes.size, np.uint64)
    # The longest first, so that the items with a further word come first.
    order = np.argsort(np.minimum(sizes, _MOST_MIXED + 1).astype(np.uint16), kind="stable")[::-1]
    num_long = np.count_nonzero(sizes > _MOST_MIXED)
    for places, hash_some in ((order[:num_long], _hash_long), (order[num_long:], _hash_short)):
        if places.size:
            some = sizes[places]
            for words, hashed in zip(result, hash_some(data, starts[places], some, some), strict=True):
                words[places] = hashed
    return result


def _hash_long(data: Octets, starts: Places, sizes: Places, lengths: Places) -> State:
    """Return two words for each item of any size."""
    state = _mix(_START, lengths.view(np.uint64))
    items = list(map(bytes, cut_views(data.data, starts, sizes)))
    for checksum in (crc64.xz, crc64.go_iso):
        state = _mix(state, np.fromiter(map(checksum, items), np.uint64, len(items)))
    return state


def _hash_short(data: Octets, starts: Places, sizes: Places, lengths: Places) -> State:
    """Return two words for each item, of which the longest is the first. ``lengths`` are its sizes, or all in one."""
    total, chain = _mix(_START, lengths.view(np.uint64))
    longest, count = int(sizes[0]), sizes.size
    steps = np.arange(0, longest + _WORD, _WORD)
    counts = np.searchsorted(-sizes, -steps).tolist()  # of the items that are longer
    wholes = np.searchsorted(-sizes, -steps, side="right").tolist()  # of the items of at least this size
    ended: list[State] = []
    for begin in range(0, longest, _WINDOW):
        places = starts[: counts[begin // _WORD]] + begin
        width = min(_WINDOW, longest - begin + (begin - longest) % _WORD)
        is_inside = int(places.max()) <= data.size - width
        pieces = take(data, places, width) if is_inside else take_windows(data, places, width)
        for step, words in enumerate(as_rows(pieces, "<u8").T, begin // _WORD):
            if counts[step] < count:
                count = counts[step]
                ended.append((total[count:], chain[count:]))
                total, chain = total[:count], chain[:count]
            words, whole = words[:count], wholes[step + 1]  # noqa: PLW2901
            if whole < count:
                words = words.copy()  # noqa: PLW2901
                words[whole:] &= _MASKS[sizes[whole:count] - step * _WORD]
            total, chain = _mix((total, chain), words)
    totals, chains = zip((total, chain), *reversed(ended), strict=True)
    return np.concatenate(totals), np.concatenate(chains)


def _as_rows(state: State, count: int) -> npt.NDArray[Any]:
    """Return both words of ``count`` items side by side, little-endian."""
    rows = np.empty((count, 2), "<u8")
    rows[:, 0], rows[:, 1] = state  # several times as fast as a transposed array
    return rows


def _mix(state: State, words: npt.NDArray[Any]) -> State:
    """Return the state after a word of each record. A state of one item is that of all records.

    One half is a chain, and the other is the sum of all values of the chain; both are multiplied by odd numbers. A
    different word always changes both. Later words can make both equal again only by accident, and not at once.
    """
    total, chain = state
    chain = chain ^ words
    chain *= _FACTORS[0]
    chain.byteswap(inplace=True)  # the high bits of a product depend on all bits, so move them to the low bits
    total = total + chain
    total *= _FACTORS[1]
    return total, chain
