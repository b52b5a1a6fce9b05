"""Numbers of 64 bits are put in their stable order, whether they are hashes, counts, in order or equal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.wire.gather import order_words

_ENDS = st.sampled_from([0, 1, 2**48 - 1, 2**48, 2**63, 2**64 - 1])


@given(st.lists(st.one_of(_ENDS, st.integers(0, 2**64 - 1), st.integers(0, 3)), max_size=300))
def test_equal_words_stay_in_their_order(numbers: list[int]) -> None:
    words = np.array(numbers, np.uint64)
    assert order_words(words).tolist() == np.argsort(words, kind="stable").tolist()


@pytest.mark.parametrize("num_parts", [1, 4])
def test_many_hashes_and_sorted_parts_of_them_are_ordered(num_parts: int) -> None:
    words = np.random.default_rng(num_parts).integers(0, 2**64, 100_000, np.uint64)
    parts = words if num_parts == 1 else np.sort(words.reshape(num_parts, -1)).reshape(-1)
    assert (order_words(parts) == np.argsort(parts, kind="stable")).all()
