"""Statistics of texts.

Texts are counted individually, by their hashes, while few of them are distinct. If there are more, their number is
estimated by ``Registers``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from registry.statistics.distinct import ERROR, Hashes, Registers, equal_places, hash_numbers
from registry.statistics.duplicates import State, hash_items
from registry.statistics.numbers import MOST_DISTINCT, MOST_FREQUENT, Numbers, add_counts
from registry.statistics.values import Distinct, Frequent
from registry.wire.gather import Octets, Places, chunks_of, take_ragged, take_texts

MOST_BYTES: Final = 2**24
"""The maximum total size of distinct texts that are counted individually, in bytes."""

_EXTRA_BYTES: Final = 100
"""The bytes of memory for a text and its count, in addition to the text itself."""

_NOT_ASCII: Final = 0x80
_FIRST: Final = -64
_MOST_JOINED: Final = 2**18
"""The bytes of texts whose characters are counted at once, which takes ten times as much memory."""

_MOST_TEXT: Final = 80
"""The maximum bytes of a frequent text in the document."""


class Texts:
    """The state of the statistics of texts. It can be pickled.

    Args:
        buffer: see ``Numbers``.
        most_bytes: the maximum memory for distinct texts that are counted individually.
    """

    def __init__(self, *, buffer: int, most_bytes: int = MOST_BYTES) -> None:
        self.lengths = Numbers(np.int64, buffer=buffer)
        self._texts: dict[int, bytes] = {}  # by hash
        self._num_bytes = 0
        self._hashes: Hashes = np.empty(0, np.uint64)  # ascending
        self._counts: Places = np.empty(0, np.int64)
        self._most_bytes = most_bytes
        self._registers: Registers | None = None

    def add(self, texts: Sequence[bytes]) -> None:
        """Add texts."""
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        self.add_pieces(np.frombuffer(b"".join(texts), np.uint8), sizes.cumsum() - sizes, sizes)

    def add_pieces(self, data: Octets, starts: Places, sizes: Places, words: State | None = None) -> None:
        """Add the texts ``data[start : start + size]``. ``words`` are their ``hash_items``, if they are known."""
        if not sizes.size:
            return
        self.lengths.add(_count_characters(data, starts, sizes))
        hashes = hash_numbers((hash_items(data, starts, sizes) if words is None else words)[0])
        if self._registers is not None:
            self._registers.add(hashes)
            return
        counts = np.bincount(equal_places(hashes))
        places = np.flatnonzero(counts)
        places = places[np.argsort(hashes[places])]
        distinct = hashes[places]
        is_new = ~np.isin(distinct, self._hashes, assume_unique=True)
        new = places[is_new]
        self._count(distinct, counts[places], int(sizes[new].sum()) + _EXTRA_BYTES * new.size)
        if self._registers is None:
            texts = take_texts(data, starts[new], sizes[new]).tolist()
            self._texts.update(zip(distinct[is_new].tolist(), texts, strict=True))

    def merge(self, later: Texts) -> None:
        """Add the texts of another state."""
        self.lengths.merge(later.lengths)
        if later._registers is not None:
            self._as_registers().merge(later._registers)
        elif self._registers is not None:
            self._registers.add(later._hashes)
        else:
            new = {key: text for key, text in later._texts.items() if key not in self._texts}
            self._count(later._hashes, later._counts, sum(map(len, new.values())) + _EXTRA_BYTES * len(new))
            if self._registers is None:
                self._texts |= new

    def end(self) -> dict[str, Any]:
        """The fields of ``FeatureStatistics``."""
        lengths = self.lengths.end()
        fields: dict[str, Any] = {"count": lengths.count, "text_lengths": lengths}
        if self._registers is not None:
            return {**fields, "distinct": Distinct(count=self._registers.estimate(), error=ERROR)}
        pairs = zip(self._hashes.tolist(), (-self._counts).tolist(), strict=True)
        frequent = sorted((count, self._texts[key]) for key, count in pairs if count < -1)[:MOST_FREQUENT]
        return {
            **fields,
            "distinct": Distinct(count=len(self._texts)),
            "frequent": tuple(_frequent(text, -count) for count, text in frequent),
        }

    def _count(self, hashes: Hashes, counts: Places, num_bytes: int) -> None:
        """Count distinct texts, of which the new ones take ``num_bytes``. If there are too many, use registers."""
        self._num_bytes += num_bytes
        self._hashes, self._counts = add_counts(self._hashes, self._counts, hashes, counts)
        if self._hashes.size > MOST_DISTINCT or self._num_bytes > self._most_bytes:
            self._as_registers()

    def _as_registers(self) -> Registers:
        if self._registers is None:
            self._registers = Registers()
            self._registers.add(self._hashes)
            self._texts, self._hashes, self._counts = {}, self._hashes[:0], self._counts[:0]
        return self._registers


def _count_characters(data: Octets, starts: Places, sizes: Places) -> Places:
    """Count the characters of each text. Bytes that are not UTF-8 count if they could begin a character."""
    result = sizes.copy()
    for first, last in chunks_of(sizes.cumsum(), _MOST_JOINED):
        some = sizes[first:last]
        joined = take_ragged(data, starts[first:last], some)
        if joined.max(initial=0) < _NOT_ASCII:
            continue
        used = some > 0  # the sum of no bytes would be the next byte
        is_inner = joined.view(np.int8) < _FIRST  # the bytes of UTF-8 that do not begin a character
        cuts = (some.cumsum() - some)[used]
        if joined.size > 2 * _MOST_JOINED:
            result[first:last][used] -= [np.count_nonzero(part) for part in np.split(is_inner, cuts[1:])]
        else:
            result[first:last][used] -= np.add.reduceat(is_inner, cuts, dtype=np.int64)
    return result


def _frequent(text: bytes, count: int) -> Frequent:
    if len(text) <= _MOST_TEXT:
        return Frequent(value=text.decode("utf-8", "backslashreplace"), count=count)
    begin = text[:_MOST_TEXT]
    cut = next((place for place in range(1, 4) if begin[-place] & 0xC0 == 0xC0), 0)  # not within a character
    is_whole = not cut or len(begin[-cut:].decode("utf-8", "ignore")) == 1
    begin = begin if is_whole else begin[:-cut]
    return Frequent(value=begin.decode("utf-8", "backslashreplace"), count=count, num_bytes=len(text))
