"""Statistics of texts and of the classes of labels.

Texts are counted one by one while few of them are distinct. Beyond that only their hashes are used, in ``Registers``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.features.feature import LabelNames
from registry.statistics.distinct import ERROR, Registers, hash_texts
from registry.statistics.numbers import MOST_DISTINCT, MOST_FREQUENT, Numbers
from registry.statistics.values import Classes, Distinct, Frequent, number_fields

MOST_BYTES: Final = 2**24
"""Texts are counted one by one up to this size of all distinct ones, too."""

_EXTRA_BYTES: Final = 100
"""Bytes of memory that a text and its count take besides the text."""

_CONTINUATION: Final = bytes(range(0x80, 0xC0))
"""The bytes of UTF-8 that do not begin a character."""

_MOST_JOINED: Final = 2**20
"""Bytes of texts whose characters are counted together, which takes nine times their size in memory."""

_MOST_TEXT: Final = 80
"""Bytes of a frequent text that the document repeats."""

_MOST_COUNTS: Final = 1000
MOST_CLASSES: Final = 2**20
"""Most classes that are counted one by one."""


class Texts:
    """The state of the statistics of texts. It can be pickled.

    Args:
        buffer: see ``Numbers``.
        most_bytes: texts are counted one by one while all distinct ones take at most this much memory.
    """

    def __init__(self, *, buffer: int, most_bytes: int = MOST_BYTES) -> None:
        self.lengths = Numbers(np.int64, buffer=buffer)
        self._counts: Counter[bytes] = Counter()
        self._most_bytes = most_bytes
        self._registers: Registers | None = None

    def add(self, texts: Sequence[bytes]) -> None:
        """Add texts."""
        if not texts:
            return
        self.lengths.add(_count_characters(texts))
        if self._registers is not None:
            self._registers.add(hash_texts(texts))
            return
        before = len(self._counts)
        self._counts.update(texts)
        if len(self._counts) != before:
            self._check_size()

    def merge(self, later: Texts) -> None:
        """Add the texts of another state."""
        self.lengths.merge(later.lengths)
        if later._registers is not None:
            self._as_registers().merge(later._registers)
        elif self._registers is not None:
            self._registers.add(hash_texts(list(later._counts)))
        else:
            self._counts.update(later._counts)
            self._check_size()

    def end(self) -> dict[str, Any]:
        """The fields of ``FeatureStatistics``."""
        lengths = self.lengths.end()
        fields: dict[str, Any] = {"count": lengths.count, "text_lengths": lengths}
        if self._registers is not None:
            return {**fields, "distinct": Distinct(count=self._registers.estimate(), error=ERROR)}
        frequent = sorted(((-count, text) for text, count in self._counts.items() if count > 1))[:MOST_FREQUENT]
        return {
            **fields,
            "distinct": Distinct(count=len(self._counts)),
            "frequent": tuple(_frequent(text, -count) for count, text in frequent),
        }

    def _check_size(self) -> None:
        num_bytes = sum(map(len, self._counts)) + _EXTRA_BYTES * len(self._counts)
        if len(self._counts) > MOST_DISTINCT or num_bytes > self._most_bytes:
            self._as_registers()

    def _as_registers(self) -> Registers:
        if self._registers is None:
            self._registers = Registers()
            self._registers.add(hash_texts(list(self._counts)))
            self._counts.clear()
        return self._registers


def describe_classes(label: LabelNames, numbers: Numbers) -> dict[str, Any]:
    """The fields of ``FeatureStatistics`` for a label: those of its numbers, and the balance of its classes."""
    statistics = numbers.end()
    pairs, size = numbers.pairs(), label.num_classes or 0
    if pairs is None or size > MOST_CLASSES:
        return {**number_fields(statistics), "classes": Classes(num_classes=size)}
    values, counts = pairs
    is_class = (values >= 0) & (values < size)
    of_classes = np.zeros(size, np.int64)
    of_classes[values[is_class]] = counts[is_class]
    unused = np.flatnonzero(of_classes == 0)
    classes = Classes(
        num_classes=size,
        num_unlabeled=int(counts[values == -1].sum()),
        num_unused=unused.size,
        unused=tuple(_class_name(label, place) or str(place) for place in unused[:MOST_FREQUENT].tolist()),
        counts=tuple(of_classes.tolist()) if size <= _MOST_COUNTS else None,
    )
    frequent = tuple(
        Frequent(value=entry.value, count=entry.count, name=_class_name(label, int(entry.value)))
        for entry in statistics.frequent
    )
    return {**number_fields(statistics), "frequent": frequent, "classes": classes}


def _class_name(label: LabelNames, number: int) -> str | None:
    return str(label.names[number]) if label.names is not None and 0 <= number < len(label.names) else None


def _count_characters(texts: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """The number of characters of each text. Bytes that are not UTF-8 count if they could begin a character."""
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    if sizes.sum() > _MOST_JOINED:
        inner = (0 if text.isascii() else len(text) - len(text.translate(None, _CONTINUATION)) for text in texts)
        return sizes - np.fromiter(inner, np.int64, len(texts))
    joined = b"".join(texts)
    if not joined.isascii():
        used = sizes > 0  # the sum of no bytes would be the next byte
        is_inner = np.frombuffer(joined, np.int8) < -64
        sizes[used] -= np.add.reduceat(is_inner, (sizes.cumsum() - sizes)[used], dtype=np.int64)
    return sizes


def _frequent(text: bytes, count: int) -> Frequent:
    if len(text) <= _MOST_TEXT:
        return Frequent(value=text.decode("utf-8", "backslashreplace"), count=count)
    begin = text[:_MOST_TEXT]
    cut = next((place for place in range(1, 4) if begin[-place] & 0xC0 == 0xC0), 0)  # not within a character
    is_whole = not cut or len(begin[-cut:].decode("utf-8", "ignore")) == 1
    begin = begin if is_whole else begin[:-cut]
    return Frequent(value=begin.decode("utf-8", "backslashreplace"), count=count, num_bytes=len(text))
