"""Law: earlier occurrences are counted as one dictionary of all hashes would count them, for any cut into blocks."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from registry.intake.records import Occurrences

HASHES = st.one_of(st.integers(0, 12), st.sampled_from([2**63, 2**64 - 1]), st.integers(0, 2**64 - 1))


@given(blocks=st.lists(st.lists(HASHES, max_size=12), max_size=12))
def test_occurrences_are_counted_for_any_cut_into_blocks(blocks: list[list[int]]) -> None:
    seen: Counter[int] = Counter()
    occurrences = Occurrences()
    for block in blocks:
        expected = []
        for one in block:
            expected.append(seen[one])
            seen[one] += 1
        assert occurrences.count(np.array(block, np.uint64)).tolist() == expected
