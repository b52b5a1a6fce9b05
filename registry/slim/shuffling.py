"""How are records shuffled as they come? By a buffer of fixed size, from which each draw takes any with equal chance.

The random numbers are those of Philox, keyed by the seed and counted, so that an order is the same for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, count
from typing import Final, TypeVar

import numpy as np

from registry.order.philox import philox_words

T = TypeVar("T")

_WORDS: Final = 2048
_MASK: Final = 2**64 - 1


def random_words(seed: int, stream: int) -> Iterator[int]:
    """Endless random numbers of 62 bits: the same for the same ``seed`` and ``stream``, modulo 2**64 each."""
    return chain.from_iterable(_blocks(seed & _MASK, stream & _MASK))


def _blocks(seed: int, stream: int) -> Iterator[list[int]]:
    for first in count(0, 2 * _WORDS):
        words = philox_words(seed, stream, first, 2 * _WORDS).astype(np.int64)
        yield (words[0::2] | (words[1::2] >> 2) << 32).tolist()


def permuted(items: list[T], words: Iterator[int]) -> list[T]:
    """The items in an order that is any with equal chance."""
    items = items.copy()
    for last in range(len(items) - 1, 0, -1):
        other = next(words) % (last + 1)
        items[last], items[other] = items[other], items[last]
    return items


def shuffled(chunks: Iterable[list[T]], words: Iterator[int], *, size: int) -> Iterator[list[T]]:
    """The items of ``chunks`` through a buffer of ``size``: filled, each draw's place taken by the next, then drained.

    Where ``chunks`` raises, the buffer is drained first: what came before the error is handed out before it.
    """
    buffer: list[T] = []
    failed: Exception | None = None
    try:
        for chunk in chunks:
            start = size - len(buffer)
            if start > 0:
                buffer += chunk[:start]
            if start < len(chunk):
                drawn = []
                for item, word in zip(chunk[max(start, 0) :], words, strict=False):
                    place = word % size
                    drawn.append(buffer[place])
                    buffer[place] = item
                yield drawn
    except Exception as error:  # noqa: BLE001 (raised again below)
        failed = error
    while buffer:
        drawn = []
        for _ in range(min(len(buffer), _WORDS)):
            place = next(words) % len(buffer)
            last = buffer.pop()
            if place < len(buffer):
                last, buffer[place] = buffer[place], last
            drawn.append(last)
        yield drawn
    if failed is not None:
        raise failed
