"""In which order does a seeded shuffle put the files? The permutations of tf.data's ``shuffle``, bit for bit.

A seed that stands in a paper keeps its meaning. The rules were found by comparison with TensorFlow 2.21; the vectors of
``tests/conformance/order`` hold them to it.
"""

from __future__ import annotations

import random
from array import array
from typing import Final

import numpy as np
from numpy.typing import NDArray

from registry.order.philox import philox_words

_LARGEST: Final = 2**31 - 1
_DEFAULT_GRAPH_SEED: Final = 87654321


def shuffle_permutation(
    n: int,
    *,
    seed: int | None,
    reshuffle_each_iteration: bool = True,
    epoch: int = 0,
    global_seed: int | None = None,
    op_seed_index: int = 0,
) -> NDArray[np.int64]:
    """``Dataset.range(n).shuffle(n, seed, reshuffle_each_iteration)`` in its iteration ``epoch``, int64 of shape (n,).

    Args:
        n: number of items; the buffer holds them all.
        seed: of the shuffle. None is for a global seed, which then gives the seed.
        reshuffle_each_iteration: whether every iteration has an order of its own.
        epoch: which iteration, from 0. Each one costs the same.
        global_seed: what was given to ``tf.random.set_seed``, or None where that was not called.
        op_seed_index: how many operations took a seed from the global one before; of use only without ``seed``.

    >>> shuffle_permutation(7, seed=42).tolist()
    [5, 6, 3, 2, 4, 0, 1]
    """
    graph_seed, op_seed = _seed_pair(seed, global_seed, op_seed_index)
    if reshuffle_each_iteration:
        # A generator of its own draws two words for every iteration.
        graph_seed, op_seed = philox_words(graph_seed, op_seed, 2 * epoch, 2).tolist()
    # The item at ``place`` is swapped with one of the ``n - place`` that are not placed yet.
    left = np.arange(n, 0, -1, dtype=np.int64)
    partners = philox_words(graph_seed, op_seed, 0, n) % left + np.arange(n)
    items = array("q", range(n))  # 8 bytes an item, where a list would have 36
    for place, partner in enumerate(array("q", partners.tobytes())):
        items[place], items[partner] = items[partner], items[place]
    return np.array(items, dtype=np.int64)


def _seed_pair(seed: int | None, global_seed: int | None, op_seed_index: int) -> tuple[int, int]:
    """The graph seed and the seed of the operation, as TensorFlow derives them from what it was given."""
    if global_seed is None:
        assert seed is not None, "whoever has no seed at all was refused before"  # noqa: S101 (checked by ReadConfig)
        return _DEFAULT_GRAPH_SEED, seed % _LARGEST
    if seed is None:
        drawn = random.Random(global_seed)  # noqa: S311 (TensorFlow draws them so)
        for _ in range(op_seed_index):
            drawn.randint(0, _LARGEST)
        seed = drawn.randint(0, _LARGEST)
    pair = global_seed % _LARGEST, seed % _LARGEST
    return pair if pair != (0, 0) else (0, _LARGEST)
