"""Aligns two ordered lists of records by their digests, in NumPy: which records are the same, changed, moved or new.

A record is identified by its content. A changed record is identified by its unchanged neighbours, or by its key if one
of its features is the key (``pair_by_key``). Records whose keys are derived from their content are in the order of a
hash, so their neighbours carry no information (``without_pairs``). The algorithm follows patience diff: records that
occur once in both lists, in the same order, are anchors. The records between anchors are matched next, and the rest is
added, removed, changed or moved. Memory and time depend on the number of records, not on their size. ``record_diff``
calls ``align``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
Digests = npt.NDArray[np.uint64]

_EXACT: Final = 1_000_000
"""Up to this number of anchors, the longest rising subsequence is found; above it, one that takes a single pass."""

_SMALL: Final = 512
_DEEPEST: Final = 32
"""Real data does not nest gaps deeper; input made to slow us down may. Deeper records count as moved or changed."""
_WIDTHS: Final = (1, 4, 16, 64)
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)  # odd, of many bits: 2**64 divided by the golden ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """The alignment of two lists. Every position of both lists is in exactly one attribute.

    Attributes:
        same: pairs (position in old, position in new), shape (n, 2), both columns rising.
        changed: pairs of positions of corresponding records that differ, shape (n, 2).
        moved: pairs of positions of equal records that are out of order, shape (n, 2).
        removed: positions in old, shape (n,).
        added: positions in new, shape (n,).
    """

    same: Indices
    changed: Indices
    moved: Indices
    removed: Indices
    added: Indices


def align(old: Digests, new: Digests, fences: Sequence[tuple[int, int]] = ()) -> Alignment:
    """Align two lists of digests, shape (n,) and (m,).

    ``fences`` are rising pairs of positions at which equal records were left out. Same and changed records are on the
    same side of a fence in both lists. A record that is found beyond a fence has moved.

    >>> found = align(np.array([1, 2, 3], np.uint64), np.array([1, 9, 3, 4], np.uint64))
    >>> found.same.tolist(), found.changed.tolist(), found.added.tolist()
    ([[0, 0], [2, 2]], [[1, 1]], [3])
    """
    posts = [(0, 0), *fences, (len(old), len(new))]
    same = np.concatenate(
        [_match_in_order(old[first[0] : last[0]], new[first[1] : last[1]]) + first for first, last in pairwise(posts)]
    )
    rest_old, rest_new = _others(len(old), same[:, 0]), _others(len(new), same[:, 1])
    moved = _pair_equal(old, new, rest_old, rest_new)
    gone = np.setdiff1d(rest_old, moved[:, 0], assume_unique=True)
    fresh = np.setdiff1d(rest_new, moved[:, 1], assume_unique=True)
    changed = _pair_in_gaps(gone, fresh, same, np.array(posts[1:-1], np.int64).reshape(-1, 2))
    return Alignment(
        same=same,
        changed=changed,
        moved=moved[np.argsort(moved[:, 0])],
        removed=np.setdiff1d(gone, changed[:, 0], assume_unique=True),
        added=np.setdiff1d(fresh, changed[:, 1], assume_unique=True),
    )


def pair_by_key(alignment: Alignment, old: Digests, new: Digests) -> Alignment:
    """``alignment`` with the records that differ paired by their keys instead of their neighbours.

    Args:
        alignment: the alignment of the records by their content, which includes the key.
        old: a digest of the key of each record, shape (n,).
        new: the same of the other list, shape (m,).

    >>> content = align(np.array([1, 2], np.uint64), np.array([3, 4], np.uint64))
    >>> paired = pair_by_key(content, np.array([7, 8], np.uint64), np.array([9, 7], np.uint64))
    >>> paired.changed.tolist(), paired.removed.tolist(), paired.added.tolist()
    ([[0, 1]], [1], [0])
    """
    gone = np.sort(np.concatenate([alignment.changed[:, 0], alignment.removed]))
    fresh = np.sort(np.concatenate([alignment.changed[:, 1], alignment.added]))
    changed = _pair_equal(old, new, gone, fresh)
    return replace(
        alignment,
        changed=changed[np.argsort(changed[:, 0])],
        removed=np.setdiff1d(gone, changed[:, 0], assume_unique=True),
        added=np.setdiff1d(fresh, changed[:, 1], assume_unique=True),
    )


def without_pairs(alignment: Alignment) -> Alignment:
    """``alignment`` with changed records split into removed and added, because their neighbours do not identify them.

    >>> unpaired = without_pairs(align(np.array([1, 2], np.uint64), np.array([1, 3], np.uint64)))
    >>> unpaired.changed.tolist(), unpaired.removed.tolist(), unpaired.added.tolist()
    ([], [1], [1])
    """
    return replace(
        alignment,
        changed=alignment.changed[:0],
        removed=np.sort(np.concatenate([alignment.changed[:, 0], alignment.removed])),
        added=np.sort(np.concatenate([alignment.changed[:, 1], alignment.added])),
    )


def find_unpaired(old: Digests, new: Digests) -> tuple[Indices, Indices]:
    """The positions in each list of records without an equal partner in the other list.

    >>> [found.tolist() for found in find_unpaired(np.array([1, 1, 2], np.uint64), np.array([3, 1], np.uint64))]
    [[1, 2], [0]]
    """
    pairs = _pair_equal(old, new, np.arange(len(old)), np.arange(len(new)))
    return _others(len(old), pairs[:, 0]), _others(len(new), pairs[:, 1])


def _match_in_order(old: Digests, new: Digests) -> Indices:
    """Pairs of positions of equal records, rising in both columns."""
    head, tail = _equal_ends(old, new)
    inner = _between_anchors(old[head : len(old) - tail], new[head : len(new) - tail])
    return np.concatenate([_steps(0, 0, head), inner + head, _steps(len(old) - tail, len(new) - tail, tail)])


def _equal_ends(old: Digests, new: Digests) -> tuple[int, int]:
    """The number of equal records at the start of both lists, and at the end of the rest."""
    shorter = min(len(old), len(new))
    head = _count_equal(old[:shorter], new[:shorter])
    return head, _count_equal(old[::-1][: shorter - head], new[::-1][: shorter - head])


def _between_anchors(old: Digests, new: Digests, *, depth: int = 0) -> Indices:
    anchors = _find_anchors(old, new)
    fences = np.concatenate([[[-1, -1]], anchors, [[len(old), len(new)]]]).astype(np.int64)
    sizes = np.diff(fences, axis=0) - 1
    found = [anchors]
    # Only gaps with records in both lists can contain more matches: of records that occur more than once.
    for gap in np.flatnonzero((sizes > 0).all(axis=1)):
        start, stop = fences[gap] + 1, fences[gap + 1]
        inner = _match_gap(old[start[0] : stop[0]], new[start[1] : stop[1]], top=not len(anchors), depth=depth)
        if len(inner):
            found.append(inner + start)
    pairs = np.concatenate(found)
    return pairs[np.argsort(pairs[:, 0], kind="stable")]


def _match_gap(old: Digests, new: Digests, *, top: bool, depth: int) -> Indices:
    """Match records between two anchors: at both ends, then unique records, or with difflib if there are few."""
    if len(old) == len(new) == 1:
        return _steps(0, 0, int(old[0] == new[0]))
    head, tail = _equal_ends(old, new)
    inner_old, inner_new = old[head : len(old) - tail], new[head : len(new) - tail]
    inner = np.empty((0, 2), np.int64)
    if len(inner_old) and len(inner_new):
        if max(len(inner_old), len(inner_new)) <= _SMALL:
            matcher = SequenceMatcher(None, inner_old.tolist(), inner_new.tolist(), autojunk=False)
            inner = np.concatenate([_steps(*block) for block in matcher.get_matching_blocks()])
        elif depth < _DEEPEST and (not top or head or tail):
            inner = _between_anchors(inner_old, inner_new, depth=depth + 1)
    return np.concatenate([_steps(0, 0, head), inner + head, _steps(len(old) - tail, len(new) - tail, tail)])


def _find_anchors(old: Digests, new: Digests) -> Indices:
    """Anchors, rising in both columns: single records, or the first of a run if single records repeat."""
    for width in _WIDTHS:
        if min(len(old), len(new)) < width:
            break
        anchors = _anchors(_rows_of(old, width), _rows_of(new, width))
        anchors = anchors[old[anchors[:, 0]] == new[anchors[:, 1]]]
        if len(anchors):
            return _rising(anchors)
    return np.empty((0, 2), np.int64)


def _rows_of(digests: Digests, width: int) -> Digests:
    """A digest of every ``width`` consecutive records."""
    rows = np.zeros(len(digests) - width + 1, np.uint64)
    for place in range(width):
        rows = rows * _MULTIPLIER + digests[place : place + len(rows)]
    return rows


def _anchors(old: Digests, new: Digests) -> Indices:
    """Positions of the digests that occur once in both lists, ordered by position in ``old``."""
    values: list[Digests] = []
    places: list[Indices] = []
    for side in (old, new):
        value, place, count = np.unique(side, return_index=True, return_counts=True)
        values.append(value[count == 1])
        places.append(place[count == 1].astype(np.int64))
    _, in_old, in_new = np.intersect1d(values[0], values[1], assume_unique=True, return_indices=True)
    pairs = np.stack([places[0][in_old], places[1][in_new]], axis=1)
    ordered: Indices = pairs[np.argsort(pairs[:, 0])]
    return ordered


def _rising(pairs: Indices) -> Indices:
    """The longest subsequence of ``pairs`` that also rises in the second column; a long one if there are very many."""
    second = pairs[:, 1]
    if (np.diff(second) > 0).all():
        return pairs
    if len(pairs) > _EXACT:
        long: Indices = pairs[second == np.maximum.accumulate(second)]
        return long
    ends: list[int] = []
    last: list[int] = []
    before = np.full(len(pairs), -1, np.int64)
    for place, value in enumerate(second.tolist()):
        length = bisect_left(ends, value)
        if length == len(ends):
            ends.append(value)
            last.append(place)
        else:
            ends[length] = value
            last[length] = place
        before[place] = last[length - 1] if length else -1
    chosen = []
    place = last[-1]
    while place >= 0:
        chosen.append(place)
        place = int(before[place])
    return pairs[chosen[::-1]]


def _pair_equal(old: Digests, new: Digests, rest_old: Indices, rest_new: Indices) -> Indices:
    """Pairs of equal records among the unmatched positions: the first with the first, and so on."""
    keys_old, keys_new = _occurrences(old[rest_old]), _occurrences(new[rest_new])
    _, in_old, in_new = np.intersect1d(keys_old, keys_new, assume_unique=True, return_indices=True)
    return np.stack([rest_old[in_old], rest_new[in_new]], axis=1)


def _occurrences(digests: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
    """Each digest with its rank among equal ones, as one sortable value."""
    order = np.argsort(digests, kind="stable")
    inner = digests[order]
    starts = np.flatnonzero(np.concatenate([[True], inner[1:] != inner[:-1]])) if len(inner) else np.empty(0, int)
    ranks = np.empty(len(digests), np.uint64)
    ranks[order] = np.arange(len(digests)) - np.repeat(starts, np.diff([*starts, len(digests)]))
    keys = np.empty(len(digests), [("digest", np.uint64), ("rank", np.uint64)])
    keys["digest"], keys["rank"] = digests, ranks
    return keys


def _pair_in_gaps(gone: Indices, fresh: Indices, same: Indices, fences: Indices) -> Indices:
    """Pairs of removed and added records between the same neighbours, in order."""
    gaps = [
        np.searchsorted(same[:, side], places) + np.searchsorted(fences[:, side], places, side="right")
        for side, places in ((0, gone), (1, fresh))
    ]
    keys = []
    for gap in gaps:
        rank = np.arange(len(gap)) - np.searchsorted(gap, gap)
        key = np.empty(len(gap), [("gap", np.int64), ("rank", np.int64)])
        key["gap"], key["rank"] = gap, rank
        keys.append(key)
    _, in_gone, in_fresh = np.intersect1d(keys[0], keys[1], assume_unique=True, return_indices=True)
    return np.stack([gone[in_gone], fresh[in_fresh]], axis=1)


def _count_equal(old: Digests, new: Digests) -> int:
    """The number of equal digests at the start of two arrays of the same length."""
    differs = np.flatnonzero(old != new)
    return int(differs[0]) if len(differs) else len(old)


def _steps(old: int, new: int, number: int) -> Indices:
    """``number`` pairs, starting with (old, new) and rising by one."""
    steps = np.arange(number, dtype=np.int64)
    return np.stack([old + steps, new + steps], axis=1)


def _others(length: int, places: Indices) -> Indices:
    """The positions below ``length`` that are not in ``places``."""
    is_other = np.ones(length, bool)
    is_other[places] = False
    return np.flatnonzero(is_other).astype(np.int64)
