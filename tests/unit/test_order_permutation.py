"""Tests the global shuffle: the numbers that docs/order.md specifies, and their statistics."""

from __future__ import annotations

from collections import Counter
from math import factorial

import numpy as np
import pytest

from registry.order import KeyedPermutation
from registry.order.shuffles import philox_words

MASK = 2**64 - 1


def permuted(n: int, seed: int, epoch: int, place: int) -> int:
    """The algorithm of docs/order.md in whole numbers, simple and slow."""
    words = philox_words(seed, epoch, 0, 32).tolist()
    keys = [low | high << 32 for low, high in zip(words[0::2], words[1::2], strict=True)]
    width = 2
    while width * width < n:
        width += 2  # the smallest even number with a square of at least n
    sides = width, -(-n // width)
    while True:
        row, column = divmod(place, width)
        halves = [column, row]
        for turn, key in enumerate(keys):
            side = sides[turn % 2]
            number = halves[1 - turn % 2] + key & MASK
            number = (number ^ number >> 32) * 0xBF58476D1CE4E5B9 & MASK
            number = (number ^ number >> 27) * 0x94D049BB133111EB & MASK
            halves[turn % 2] = (halves[turn % 2] + number // -(-(2**64) // side)) % side
        place = halves[1] * width + halves[0]
        if place < n:
            return place


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 10, 16, 17, 101, 1000])
def test_every_place_follows_the_specification(n: int) -> None:
    for seed, epoch in ((0, 0), (1, 0), (2**64 - 1, 3), (42, 2**64 - 1)):
        found = KeyedPermutation(n, seed=seed, epoch=epoch).at(np.arange(n)).tolist()
        assert found == [permuted(n, seed, epoch, place) for place in range(n)]


@pytest.mark.parametrize(
    ("n", "seed", "epoch", "found"),
    [
        (10, 1, 0, [2, 9, 0, 4, 5, 8, 3, 6]),
        (10, 1, 1, [2, 7, 6, 9, 5, 3, 0, 8]),
        (1_281_167, 42, 0, [597758, 101599, 671276, 438142, 530309, 1128581, 1225525, 511373]),
        (10**9, 42, 0, [448499966, 358313343, 337918324, 99270433, 297617749, 307544642, 512337211, 211302831]),
        (10**9, 42, 1, [362144824, 521456701, 134721135, 886042278, 658725657, 324915470, 673945426, 918104787]),
        (
            2**62 - 1,
            2**64 - 1,
            2**40,
            [1814094803018458685, 2915282732752512662, 4425649221903779434, 2203369866092133002],
        ),
    ],
)
def test_the_permutation_never_changes(n: int, seed: int, epoch: int, found: list[int]) -> None:
    assert KeyedPermutation(n, seed=seed, epoch=epoch).at(np.arange(len(found))).tolist() == found


@pytest.mark.parametrize(("n", "seeds"), [(2, 400), (3, 1200), (4, 2400), (5, 6000)])
def test_every_permutation_of_few_items_is_equally_likely(n: int, seeds: int) -> None:
    counts = Counter(tuple(KeyedPermutation(n, seed=seed, epoch=0).at(np.arange(n)).tolist()) for seed in range(seeds))
    assert len(counts) == factorial(n)
    assert is_even(np.array(list(counts.values())))


@pytest.mark.parametrize("n", [6, 7, 10, 100, 1021])
def test_every_number_is_equally_likely_at_every_place_and_after_every_other(n: int) -> None:
    found = np.stack([KeyedPermutation(n, seed=7, epoch=epoch).at(np.arange(n)) for epoch in range(2000)])
    for place in (0, 1, n // 2, n - 1):
        assert is_even(np.bincount(found[:, place], minlength=n))
    assert is_even(np.bincount((found[:, 1] - found[:, 0]) % n, minlength=n)[1:])
    assert is_even(np.bincount((found[:, n - 1] - found[:, n // 2]) % n, minlength=n)[1:])
    # On average one place keeps its number, and half of the neighbours rise.
    assert abs(float((found == np.arange(n)).sum(axis=1).mean()) - 1) < 0.15
    assert abs(float((np.diff(found, axis=1) > 0).mean()) - 0.5) < 0.02


def is_even(counts: np.ndarray) -> bool:
    """Whether chi-square of the counts is within five standard deviations of the expected value."""
    expected = counts.sum() / len(counts)
    freedom = len(counts) - 1
    distance = float(((counts - expected) ** 2 / expected).sum())
    return abs(distance - freedom) < 5 * (2 * freedom) ** 0.5


def test_permutations_of_epochs_and_seeds_are_independent() -> None:
    places = np.arange(10_000)
    orders = [
        KeyedPermutation(10_000, seed=seed, epoch=epoch).at(places) for seed, epoch in ((0, 0), (0, 1), (1, 0), (1, 1))
    ]
    for first in range(4):
        for second in range(first):
            # About one place of all has the same number in two of them.
            assert (orders[first] == orders[second]).sum() < 10


def test_places_come_in_any_order_and_number() -> None:
    permutation = KeyedPermutation(50_000, seed=3, epoch=0)
    whole = permutation.at(np.arange(50_000))
    places = np.random.default_rng(1).integers(0, 50_000, 20_000)
    assert (permutation.at(places) == whole[places]).all()
    assert places.max() < 50_000
    assert permutation.at(np.empty(0, dtype=np.int64)).shape == (0,)


@pytest.mark.parametrize("n", [1, 2, 3, 17, 1000, 2**62 - 1])
def test_few_places_equal_the_same_places_among_many(n: int) -> None:
    permutation = KeyedPermutation(n, seed=2**64 - 1, epoch=3)
    places = np.arange(100) * (n - 1) // 99 if n < 2**50 else np.arange(n - 100, n)
    many = permutation.at(places)
    few = [permutation.at(places[start : start + 4]) for start in range(0, 100, 4)]
    assert np.concatenate(few).tolist() == many.tolist()
