"""The digest of a set of digests is computed over the sorted digests, in memory or on disk."""

from __future__ import annotations

import hashlib
import io
import pickle
import tempfile
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.features.digest_pile import DigestPile, divide_piles, sort_digests
from registry.pins.record_digests import KeyDigests

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


@pytest.mark.parametrize(("num_digests", "num_runs"), [(900, 9), (7900, 79)])
def test_each_digest_is_written_once_and_read_once(
    num_digests: int, num_runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []

    class Counting(io.BytesIO):
        num_read = num_written = 0

        def read(self, size: int | None = -1) -> bytes:
            found = super().read(size)
            self.num_read += len(found)
            return found

        def write(self, data: Any) -> int:
            self.num_written += len(data)
            return super().write(data)

    def opened(**_: Any) -> Counting:
        files.append(Counting())
        return files[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", opened)
    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", opened)
    digests = [hashlib.sha256(str(number).encode()).digest() for number in range(num_digests)]
    assert piled(digests, most_in_memory=100, at_once=70) == sorted_digest(digests)
    assert [(file.num_written, file.num_read) for file in files] == [(32 * num_digests, 32 * num_digests)]


def test_released_digests_are_sorted_only_when_they_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    num_sorted = []

    def counting(digests: Any, *, num_bytes: int) -> bytes:
        num_sorted.append(len(digests) // num_bytes)
        return sort_digests(digests, num_bytes=num_bytes)

    monkeypatch.setattr("registry.features.digest_pile.sort_digests", counting)
    digests = [hashlib.sha256(str(number).encode()).digest() for number in range(100)]
    with DigestPile() as pile:
        pile.add(b"".join(digests[:90]))
        pile.release(most=90)
        tracemalloc.start()
        try:
            pile.release(most=89)
            assert b"".join(pile.parts()) == b"".join(digests[:90])
            assert tracemalloc.get_traced_memory()[0] < 90 * 32
        finally:
            tracemalloc.stop()
        assert pile.num_digests == 90
        assert b"".join(pickle.loads(pickle.dumps(pile)).parts()) == b"".join(digests[:90])  # noqa: S301 (its own)
        pile.add(b"".join(digests[90:]))
        assert pile.num_digests == 100
        pile.release(most=0)
        assert [[b"".join(part) for part in parts] for parts in divide_piles([pile], most=100)] == [[b"".join(digests)]]
        assert not num_sorted
        parts = [b"".join(part) for (part,) in divide_piles([pile], most=30)]
        assert (num_sorted, b"".join(parts)) == ([100], b"".join(sorted(digests)))
        assert len(parts) > 3


def test_a_digest_that_is_added_very_often_needs_no_memory_for_each_time() -> None:
    same, others = b"\x33" * 32, [hashlib.sha256(str(number).encode()).digest() for number in range(1000)]
    with DigestPile(most_in_memory=5000) as pile:
        tracemalloc.start()
        try:
            for number in range(500):
                pile.add(same * 1000 + b"".join(others[2 * number : 2 * number + 2]))
            found = pile.sorted_digest()
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < 8 * 2**20, "the digests have 16 million bytes, and sorting all of them takes more"
    assert found == sorted_digest([same] * 500_000 + others)


def test_the_digests_of_keys_are_those_of_all_leaves_and_none_of_these_is_kept() -> None:
    empty = hashlib.sha256(b"").digest()
    leaves = [dict.fromkeys(("a", "b") if number % 7 else ("b",), bytes([number]) * 32) for number in range(50)]
    leaves[31]["late"] = b"l" * 32
    digests = KeyDigests()
    for leaf in leaves:
        digests.add(leaf)
    expected = {
        key: "sha256:" + hashlib.sha256(b"".join(leaf.get(key, empty) for leaf in leaves)).hexdigest()
        for key in ("a", "b", "late")
    }
    assert digests.result() == expected
    tracemalloc.start()
    try:
        for number in range(10_000):
            digests.add({"a": number.to_bytes(32, "big"), "b": number.to_bytes(32, "little")})
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 10_000
