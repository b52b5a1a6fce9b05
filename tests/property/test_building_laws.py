"""Laws of keys, shard boundaries and the sorter."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from registry.building.build import plan_num_shards, plan_shards
from registry.building.generation import SORT_KEY_BYTES, hash_key, number_key
from registry.building.sorter import Entry, ExternalSorter

plans = st.integers(1, 10**12).flatmap(lambda count: st.tuples(st.just(count), st.integers(1, min(count, 300))))


@given(plans)
def test_shards_cover_every_example_once_and_differ_by_one_at_most(plan: tuple[int, int]) -> None:
    num_examples, num_shards = plan
    lengths = plan_shards(num_examples=num_examples, num_shards=num_shards)
    assert len(lengths) == num_shards
    assert lengths.num_examples == num_examples
    assert max(lengths) - min(lengths) <= 1
    assert min(lengths) >= 1


@given(plans)
def test_a_shard_starts_at_the_nearest_whole_record_and_at_the_even_one_of_two(plan: tuple[int, int]) -> None:
    num_examples, num_shards = plan
    lengths = plan_shards(num_examples=num_examples, num_shards=num_shards)
    for index in range(num_shards + 1):
        assert lengths.start(index) == round(Fraction(num_examples * index, num_shards))


@given(num_examples=st.integers(1, 10**9), num_bytes=st.integers(0, 2**39))
def test_the_number_of_shards_can_always_be_written(num_examples: int, num_bytes: int) -> None:
    num_shards = plan_num_shards(num_examples=num_examples, num_payload_bytes=num_bytes)
    assert plan_shards(num_examples=num_examples, num_shards=num_shards).num_examples == num_examples


@given(st.lists(st.integers(-(2**127), 2**127 - 1)))
def test_number_keys_sort_as_the_numbers_do(numbers: list[int]) -> None:
    keys = sorted(map(number_key, numbers))
    assert keys == [number_key(number) for number in sorted(numbers)]
    assert all(len(key) == SORT_KEY_BYTES for key in keys)


@given(st.text(alphabet=st.characters(codec="utf-8")), st.text(alphabet=st.characters(codec="utf-8"), max_size=20))
def test_text_and_its_utf8_bytes_are_one_key_unless_it_holds_a_backslash(text: str, salt: str) -> None:
    text = text.replace("\\", "/")
    assert hash_key(salt, text) == hash_key(salt, text.encode())


@given(st.integers(), st.sampled_from(["train", "test"]))
def test_a_number_and_its_decimal_text_are_one_key(number: int, salt: str) -> None:
    assert hash_key(salt, number) == hash_key(salt, str(number))


@given(
    records=st.dictionaries(st.binary(min_size=16, max_size=16), st.binary(max_size=300), max_size=60),
    budget_bytes=st.integers(1, 5000),
    fan_in=st.integers(2, 6),
)
def test_the_sorter_returns_all_entries_in_order(records: dict[bytes, bytes], budget_bytes: int, fan_in: int) -> None:
    with ExternalSorter(split="train", budget_bytes=budget_bytes, fan_in=fan_in) as sorter:
        for key, record in records.items():
            sorter.add(Entry(key, repr(key), record))
        found = list(sorter.sorted_entries())
    assert [(entry.sort_key, entry.record) for entry in found] == sorted(records.items())
    assert all(first.sort_key < second.sort_key for first, second in pairwise(found))
