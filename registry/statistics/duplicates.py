"""Finds exact duplicates: 16 bytes for each record, the same for equal records, and how often each occurs in a split.

    FlatRecords -> RecordDigester -> DigestPile of a split
    piles of all splits -> find_duplicates -> Duplicates of each

Two records are equal if all their stored values are: the bits of numbers, and the bytes of texts and files. The
serialization does not matter. Digests of different records differ, except with a probability of 2**-128; they are not
cryptographic, so somebody can make records that have the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from fastcrc import crc64

from registry.features.codec import FlatRecords, codec_of
from registry.features.column_reader import ColumnReader
from registry.features.containers import FeaturesDict
from registry.features.content import content_bytes
from registry.features.digest_pile import DigestPile, sort_digests
from registry.features.feature import RawFeature
from registry.statistics.distinct import hash_numbers
from registry.statistics.values import Duplicates
from registry.wire import BytesColumn, FlatBlock, NumberColumn, decode_example
from registry.wire.gather import Octets, Places, constant, cut_views, take, take_windows

Words: TypeAlias = npt.NDArray[np.uint64]
"""Rows of words, shape (number of rows, number of records)."""

DIGEST_BYTES: Final = 16

_MOST_IN_MEMORY: Final = 2**20
"""Most digests of a split that are in memory while its records are folded: 16 MiB."""

MOST_WAITING: Final = 2**18
"""Most digests of a split that stay in memory until those of the other splits are there: 4 MiB."""

_MOST_SORTED: Final = 2**20
"""Most different digests of all splits that are sorted at once: 24 MiB, and four times as much for sorting."""

_MOST_SHARED: Final = 100
"""Most other splits that a split names."""

_WORD: Final = 8
_MOST_MIXED: Final = 128
"""Values of at most this many bytes are mixed word by word, all records together. CRCs are faster for longer ones."""

_LANES: Final = np.array([[0], [0x2545F4914F6CDD1D]], np.uint64)
"""Where the two halves of a digest start, so that they differ in everything that follows."""

_MASKS: Final = np.array([2 ** (8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
"""The bits of the first bytes of a word."""

_TAG_BITS: Final = 40
_COUNT: Final = np.uint64(2**_TAG_BITS - 1)


class RecordDigester:
    """Computes the digests of records of one schema, all records of a block together."""

    def __init__(self, features: FeaturesDict) -> None:
        self._readers = codec_of(features.missing_as_none()).columns

    def digests(self, block: FlatRecords) -> bytes:
        """The digest of each record, 16 bytes each. The records hold the features: other folds have read them."""
        state = np.repeat(_LANES, block.num_records, axis=1)
        for reader, flat in zip(self._readers, block.flats, strict=True):
            for words in _words_of(reader, flat, block):
                state = hash_numbers(state ^ words)
        return state.T.astype(">u8").tobytes()


def pile_of_split(content: bytes = b"") -> DigestPile:
    """A pile for the digests of a split."""
    return DigestPile(num_bytes=DIGEST_BYTES, most_in_memory=_MOST_IN_MEMORY, content=content)


def find_duplicates(names: Sequence[str], piles: Iterable[DigestPile]) -> list[Duplicates]:
    """The duplicates of each split, by its name and the digests of its records.

    The order of digests does not matter. More than a million different ones are sorted in a temporary file.

    >>> train, test = pile_of_split(b"a" * 32 + b"b" * 16), pile_of_split(b"b" * 32)
    >>> find_duplicates(["train", "test"], [train, test])[0]
    Duplicates(num_repeated=1, num_groups=1, shared={'test': 1})
    """
    num_repeated, num_groups = np.zeros((2, len(names)), np.int64)
    shared: dict[int, int] = {}
    with DigestPile(num_bytes=DIGEST_BYTES + _WORD, most_in_memory=_MOST_SORTED) as joined:
        for split, pile in enumerate(piles):
            for part in pile.parts():
                joined.add(_count(part, split))
        for groups, splits, counts in _whole_groups(joined.sorted_chunks()):
            np.add.at(num_repeated, splits[counts > 1], counts[counts > 1] - 1)
            num_groups += np.bincount(splits[counts > 1], minlength=len(names))
            for distance in range(1, int(np.bincount(groups).max())):
                first = np.flatnonzero(groups[distance:] == groups[:-distance])
                for here, there in ((first, first + distance), (first + distance, first)):
                    pairs, places = np.unique(splits[here] * len(names) + splits[there], return_inverse=True)
                    totals = np.zeros(pairs.size, np.int64)
                    np.add.at(totals, places, counts[here])
                    for pair, total in zip(pairs.tolist(), totals.tolist(), strict=True):
                        shared[pair] = shared.get(pair, 0) + total
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


def _count(digests: bytes, split: int) -> bytes:
    """The different digests, sorted, each followed by a word of the split and of how often it occurs."""
    rows = np.frombuffer(sort_digests(digests, num_bytes=DIGEST_BYTES), ">u8").reshape(-1, 2)
    starts = np.flatnonzero(_are_new(rows))
    counted = np.empty((starts.size, 3), ">u8")
    counted[:, :2] = rows[starts]
    counted[:, 2] = (split << _TAG_BITS) + np.diff(starts, append=len(rows))
    return counted.tobytes()


def _are_new(rows: Words) -> npt.NDArray[np.bool_]:
    """Whether the first two words of each row differ from those of the row before."""
    differ = (rows[1:, 0] != rows[:-1, 0]) | (rows[1:, 1] != rows[:-1, 1])
    return np.concatenate([np.ones(min(1, len(rows)), np.bool_), differ])


def _whole_groups(chunks: Iterable[bytes]) -> Iterator[tuple[Places, Places, Places]]:
    """For each split and digest, a number of the digest, the split, and how often it occurs there; in parts.

    All rows of a digest are in one part.
    """
    held = np.empty((0, 3), np.uint64)
    for chunk in chain(chunks, [b""]):
        rows = np.concatenate([held, np.frombuffer(chunk, ">u8").reshape(-1, 3).astype(np.uint64)])
        if not len(rows):
            continue
        is_new = _are_new(rows)
        splits, counts = (rows[:, 2] >> np.uint64(_TAG_BITS)).astype(np.int64), (rows[:, 2] & _COUNT).astype(np.int64)
        starts = np.flatnonzero(is_new | np.concatenate([[True], splits[1:] != splits[:-1]]))
        groups, splits, counts = is_new.cumsum()[starts] - 1, splits[starts], np.add.reduceat(counts, starts)
        # The next chunk may go on with the last digest.
        end = int(np.searchsorted(groups, groups[-1])) if chunk else groups.size
        held = rows[starts[end:]]
        held[:, 2] = (splits[end:] << _TAG_BITS) + counts[end:]
        if end:
            yield groups[:end], splits[:end], counts[:end]


def _words_of(reader: ColumnReader, flat: FlatBlock, block: FlatRecords) -> Iterator[npt.NDArray[np.uint64]]:
    """Yield words of each record, shape (number of records,): as many for every block."""
    if isinstance(reader.leaf, RawFeature):
        contents = [content_bytes(reader.read_content(decode_example(record))) for record in block.records]
        sizes = np.fromiter(map(len, contents), np.int64, len(contents))
        yield from _hash_items(np.frombuffer(b"".join(contents), np.uint8), sizes.cumsum() - sizes, sizes)
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
        yield from _hash_column(column, flat, is_single=is_single and part.size == 1)
        for level_key in level_keys:
            yield from _hash_column(flat.columns.get((level_key, "int64")), flat)


def _hash_column(column: NumberColumn | BytesColumn | None, flat: FlatBlock, *, is_single: bool = False) -> Words:
    """The values of each record: a number if it is single; otherwise two words of a hash.

    A record that lacks the key has no values.
    """
    counts = np.zeros(flat.num_records, np.int64)
    if column is None:
        return _hash_items(np.empty(0, np.uint8), counts, counts)
    counts[slice(None) if column.rows is None else column.rows] = column.counts
    is_single = is_single and constant(counts) == 1
    if isinstance(column, NumberColumn):
        values = np.ascontiguousarray(column.values)
        if is_single:
            return values.view(f"u{values.itemsize}").astype(np.uint64)[np.newaxis]
        data, item_bytes = values.view(np.uint8), values.itemsize
    else:
        hashes = _hash_items(flat.data, column.starts, column.sizes)
        if is_single:
            return hashes
        data, item_bytes = np.ascontiguousarray(hashes.T).reshape(-1).view(np.uint8), DIGEST_BYTES
    sizes = counts * item_bytes
    return _hash_items(data, sizes.cumsum() - sizes, sizes)


def _hash_items(data: Octets, starts: Places, sizes: Places) -> Words:
    """Two words for each ``data[start : start + size]``, shape (2, number of items)."""
    state = hash_numbers(_LANES ^ sizes.astype(np.uint64))
    long = np.flatnonzero(sizes > _MOST_MIXED)
    if long.size:
        items = list(map(bytes, cut_views(data.data, starts[long], sizes[long])))
        for checksum in (crc64.xz, crc64.go_iso):
            state[:, long] = hash_numbers(state[:, long] ^ np.fromiter(map(checksum, items), np.uint64, long.size))
    if constant(sizes) is not None and not long.size:
        _mix(state, data, starts, sizes)
    elif long.size < sizes.size:
        # The longest first, so that those that have another word are the first ones.
        order = np.argsort(np.minimum(sizes, _MOST_MIXED + 1).astype(np.uint8), kind="stable")[::-1][long.size :]
        mixed = state[:, order]
        _mix(mixed, data, starts[order], sizes[order])
        state[:, order] = mixed
    return state


def _mix(state: Words, data: Octets, starts: Places, sizes: Places) -> None:
    """Mix items, of which the longest is the first, into their ``state``."""
    for done in range(0, int(sizes[0]), _WORD):
        count = int(np.searchsorted(-sizes, -done)) if sizes[-1] <= done else sizes.size
        places = starts[:count] + done
        is_inside = int(places.max()) <= data.size - _WORD
        pieces = take(data, places, _WORD) if is_inside else take_windows(data, places, _WORD)
        words = pieces.view("<u8").astype(np.uint64)
        if sizes[count - 1] < done + _WORD:
            words &= _MASKS[np.minimum(sizes[:count] - done, _WORD)]
        state[:, :count] = hash_numbers(state[:, :count] ^ words)
