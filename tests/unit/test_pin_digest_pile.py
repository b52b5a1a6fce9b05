"""The digest of a set of digests is computed over the sorted digests, in memory or on disk."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.pins.record_digests import DigestPile

EDGES = st.sampled_from([0, 1, 127, 128, 255])
CRAFTED = st.builds(
    lambda first, second, rest: bytes([first] * 8 + [second] * 8) + rest,
    EDGES,
    EDGES,
    st.binary(min_size=16, max_size=16),
)
DIGESTS = st.lists(st.binary(min_size=32, max_size=32) | CRAFTED, max_size=40)


def sorted_digest(digests: list[bytes]) -> str:
    return hashlib.sha256(b"".join(sorted(digests))).hexdigest()


def piled(digests: list[bytes], *, most_in_memory: int, at_once: int = 3) -> str:
    with DigestPile(most_in_memory=most_in_memory) as pile:
        for start in range(0, len(digests), at_once):
            pile.add(b"".join(digests[start : start + at_once]))
        return pile.sorted_digest()


@given(digests=DIGESTS, most_in_memory=st.integers(1, 50), at_once=st.integers(1, 9))
def test_a_pile_has_the_digest_of_its_sorted_digests_in_memory_and_on_disk(
    digests: list[bytes], most_in_memory: int, at_once: int
) -> None:
    assert piled(digests, most_in_memory=most_in_memory, at_once=at_once) == sorted_digest(digests)


@given(digests=DIGESTS, data=st.data())
def test_the_order_of_added_digests_does_not_matter(digests: list[bytes], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(digests))
    assert piled(shuffled, most_in_memory=5) == piled(digests, most_in_memory=1000)


@given(digests=DIGESTS.filter(len), data=st.data())
def test_every_digest_counts_as_often_as_it_comes(digests: list[bytes], data: st.DataObject) -> None:
    more = [*digests, data.draw(st.sampled_from(digests))]
    assert piled(more, most_in_memory=4) == sorted_digest(more) != sorted_digest(digests)


@pytest.mark.parametrize("most_in_memory", [100, 1000, 100_000])
def test_digests_that_somebody_made_to_begin_alike_are_sorted_by_the_rest(most_in_memory: int) -> None:
    same = [b"\x80" * 24 + number.to_bytes(8, "big") for number in range(3000)]
    spread = [hashlib.sha256(str(number).encode()).digest() for number in range(3000)]
    digests = [*same[::-1], *spread, *same]
    assert piled(digests, most_in_memory=most_in_memory, at_once=700) == sorted_digest(digests)


def test_an_empty_pile_has_the_digest_of_nothing_and_a_pile_may_grow_after_it_was_read() -> None:
    with DigestPile(most_in_memory=2) as pile:
        assert pile.sorted_digest() == hashlib.sha256(b"").hexdigest()
        digests = [bytes(range(number, number + 32)) for number in (5, 3, 9, 1, 7)]
        for count, digest in enumerate(digests, 1):
            pile.add(digest)
            assert pile.sorted_digest() == sorted_digest(digests[:count])
