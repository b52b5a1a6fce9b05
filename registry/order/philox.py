"""Which random numbers follow from a seed? Philox 4x32-10, the counter-based generator of tf.data, at any place.

J. K. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011): ten rounds of two multiplications turn a
counter of four words into four random ones. So word ``n`` costs the same for every ``n``, and nothing has a state.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

_MULTIPLIERS: Final = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS: Final = (0x9E3779B9, 0xBB67AE85)
_ROUNDS: Final = 10
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


def philox_words(seed1: int, seed2: int, first: int, count: int) -> NDArray[np.uint32]:
    """Words ``first``..``first + count`` of the stream that two seeds begin, uint32 of shape (count,).

    As in TensorFlow, ``seed1`` is the key and ``seed2`` the upper half of the counter, both modulo 2**64; the lower
    half counts blocks of four words from 0.

    >>> [f"{word:08x}" for word in philox_words(0, 0, 0, 4)]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    skipped = first % 4
    blocks = np.arange(first // 4, -(-(first + count) // 4), dtype=np.uint64)
    key = [seed1 & 0xFFFFFFFF, seed1 >> 32 & 0xFFFFFFFF]
    a, b = blocks & _LOW, blocks >> _HALF
    c, d = (np.full_like(blocks, seed2 >> shift & 0xFFFFFFFF) for shift in (0, 32))
    for _ in range(_ROUNDS):
        left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b = right >> _HALF ^ b ^ np.uint64(key[0]), right & _LOW
        c, d = left >> _HALF ^ d ^ np.uint64(key[1]), left & _LOW
        key = [(word + step) & 0xFFFFFFFF for word, step in zip(key, _KEY_STEPS, strict=True)]
    words: NDArray[np.uint32] = np.stack((a, b, c, d), axis=1).astype(np.uint32).reshape(-1)
    return words[skipped : skipped + count]
