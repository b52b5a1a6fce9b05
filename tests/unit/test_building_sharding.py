"""The refused numbers of shards, and their errors."""

from __future__ import annotations

import pytest

from registry.building.writing import plan_num_shards, plan_shards
from registry.errors import BuildError


def test_more_than_a_tebibyte_takes_multiples_of_1024_shards() -> None:
    assert plan_num_shards(num_examples=10_000_000, num_payload_bytes=1025 * 2**30) == 2048
    assert plan_num_shards(num_examples=10_000_000, num_payload_bytes=5000 * 2**30) == 5 * 1024


def test_huge_examples_that_cannot_be_spread_are_an_error_although_tfds_never_ends() -> None:
    with pytest.raises(BuildError) as caught:
        plan_num_shards(num_examples=1000, num_payload_bytes=1100 * 2**30)
    assert str(caught.value) == "1181116022400 bytes require 2048 shards, but there are only 1000 examples".replace(
        "1181116022400", str(1100 * 2**30 + 16 * 1000)
    )


@pytest.mark.parametrize(("num_examples", "num_shards"), [(3, 4), (0, 1), (5, 0), (5, -1)])
def test_every_shard_holds_an_example(num_examples: int, num_shards: int) -> None:
    with pytest.raises(BuildError, match=f"^{num_examples} examples cannot be written as {num_shards} shards(?m:$)"):
        plan_shards(num_examples=num_examples, num_shards=num_shards)


def test_the_last_shard_of_imagenet_starts_where_the_determinism_document_says() -> None:
    lengths = plan_shards(num_examples=1_281_167, num_shards=1024)
    assert (lengths.start(450), lengths.start(1023), lengths.num_examples) == (563_013, 1_279_916, 1_281_167)
