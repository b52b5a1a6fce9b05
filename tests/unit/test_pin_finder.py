"""Two sums find the one changed item and its old digest; if two items changed, they find nothing."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import UsageError
from registry.pins import record_digests
from registry.pins.record_digests import PRIME, RecordSums

DIGEST = st.binary(min_size=32, max_size=32) | st.sampled_from([b"\0" * 32, b"\0" * 31 + b"\1", b"\xff" * 30 + b"\0\0"])
DIGESTS = st.lists(DIGEST.filter(lambda digest: int.from_bytes(digest, "big") < PRIME), min_size=1, max_size=30)


def item(weight: int, digest: bytes) -> RecordSums:
    value = int.from_bytes(digest, "big")
    return RecordSums(value % PRIME, weight * value % PRIME)


def one_by_one(digests: list[bytes], first: int) -> RecordSums:
    found = RecordSums()
    for weight, digest in enumerate(digests, first):
        found += item(weight, digest)
    return found


@given(digests=DIGESTS, first=st.integers(0, 2**70), cut=st.integers(0, 30), data=st.data())
def test_the_sums_of_a_list_do_not_depend_on_how_it_is_cut(
    digests: list[bytes], first: int, cut: int, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_digests, "_ROWS", data.draw(st.sampled_from([1, 2, 7, 2**16])))
        whole = RecordSums.of_list(b"".join(digests), first=first)
        start = min(cut, len(digests))
        parts = RecordSums.of_list(b"".join(digests[:start]), first=first)
        parts += RecordSums.of_list(b"".join(digests[start:]), first=first + start)
    assert whole == parts == one_by_one(digests, first)
    assert RecordSums.parse(str(whole)) == whole
    assert RecordSums() + whole == whole + RecordSums() == whole


@given(digests=DIGESTS, new=DIGEST, data=st.data())
def test_one_change_is_found_with_the_digest_before(digests: list[bytes], new: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(digests) - 1))
    kept = RecordSums.of_list(b"".join(digests), first=1)
    found = RecordSums.of_list(b"".join([*digests[:place], new, *digests[place + 1 :]]), first=1)
    if new == digests[place]:
        assert kept.find_weight(found) is None
    else:
        assert kept.find_weight(found) == place + 1
    assert kept.hash_before(found, now=new) == digests[place]


@given(digests=DIGESTS, more=DIGEST, weight=st.integers(1, 2**128))
def test_what_was_added_or_removed_is_found(digests: list[bytes], more: bytes, weight: int) -> None:
    kept = RecordSums.of_list(b"".join(digests), first=1)
    found = kept + item(weight, more)
    if any(more):
        assert kept.find_weight(found) == found.find_weight(kept) == weight


def test_two_changes_are_found_nowhere() -> None:
    digests = [hashlib.sha256(bytes([number])).digest() for number in range(200)]
    kept = RecordSums.of_list(b"".join(digests), first=1)
    for place in range(199):
        changed = [*digests[:place], b"a" * 32, b"b" * 32, *digests[place + 2 :]]
        weight = kept.find_weight(RecordSums.of_list(b"".join(changed), first=1))
        assert weight is not None
        assert weight > 2**64
        swapped = [*digests[:place], digests[place + 1], digests[place], *digests[place + 2 :]]
        assert kept.find_weight(RecordSums.of_list(b"".join(swapped), first=1)) is None


def test_sums_of_many_large_digests_do_not_overflow() -> None:
    digests = [b"\xff" * 32] * (2**16 + 3)
    first = 2**40
    value = 2**256 - 1
    wanted = sum(range(first, first + len(digests))) * value % PRIME
    assert RecordSums.of_list(b"".join(digests), first=first) == RecordSums(len(digests) * value % PRIME, wanted)


@pytest.mark.parametrize(
    "text", ["", "0-0", "g" * 64 + "-" + "0" * 64, "A" * 64 + "-" + "0" * 64, "0" * 64 + "-" + "0" * 64 + "\n"]
)
def test_a_text_that_is_not_a_pair_of_sums_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        RecordSums.parse(text)
    assert caught.value.message == f"invalid pair of sums: {text[:80]!r}; expected 64 hex digits, '-', 64 hex digits"
