"""Compares orders and shuffles with those of TFDS 4.9.10 and tf.data; all are equal.

The end of the test run's output counts them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from registry.order import ReadConfig, Run, shuffle_permutation
from registry.splits import Plan, resolve

VECTORS: dict[str, Any] = json.loads(gzip.decompress((Path(__file__).parent / "order.json.gz").read_bytes()))


def config_of(case: dict[str, Any]) -> ReadConfig:
    cycle_length = {} if case["cycle_length"] == "missing" else {"interleave_cycle_length": case["cycle_length"]}
    return ReadConfig(
        interleave_block_length=case["block_length"],
        shuffle_files=case["shuffle_files"],
        shuffle_seed=case["shuffle_seed"],
        shuffle_reshuffle_each_iteration=case["reshuffle_each_iteration"],
        **cycle_length,
    )


def rows(plan: Plan, runs: Iterable[Run]) -> list[list[Any]]:
    """Runs as in the vectors, which also join the parts of one shard that two slices of a union read."""
    found: list[list[Any]] = []
    for run in runs:
        file = plan[run.instruction]
        if found and found[-1][:2] == [file.split, file.shard] and found[-1][2] + found[-1][3] == run.first:
            found[-1][3] += run.count
        else:
            found.append([file.split, file.shard, run.first, run.count])
    return found


def test_every_read_has_the_order_that_tfds_gave_it(record_property: Callable[[str, object], None]) -> None:
    equal = 0
    for case in VECTORS["cases"]:
        plan = resolve(case["split"], case["layout"], slicing="tfds-4")
        assert [[file.split, file.shard, file.skip, file.take] for file in plan] == case["files"]
        for epoch, expected in enumerate(case["epochs"]):
            order = plan.order(config_of(case), epoch)
            assert rows(plan, order) == expected, case
            equal += 1
    record_property("TFDS 4.9.10, epochs of 487 reads that are equal", equal)
    assert equal == 768


def test_every_position_of_a_read_is_the_one_where_tfds_read_it() -> None:
    for case in VECTORS["cases"][::5]:
        plan = resolve(case["split"], case["layout"], slicing="tfds-4")
        order = plan.order(config_of(case), epoch=len(case["epochs"]) - 1)
        expected = [
            (split, shard, first + place) for split, shard, first, count in case["epochs"][-1] for place in range(count)
        ]
        places, records = order.locate(range(order.num_examples))
        found = [
            (plan[place].split, plan[place].shard, record)
            for place, record in zip(places.tolist(), records.tolist(), strict=True)
        ]
        assert found == expected, case


def test_every_shuffle_of_tf_data_is_equal(record_property: Callable[[str, object], None]) -> None:
    for case in VECTORS["permutations"]:
        found = shuffle_permutation(
            case["n"], seed=case["seed"], reshuffle_each_iteration=case["reshuffle"], epoch=case["epoch"]
        )
        assert found.tolist() == case["perm"], case
    record_property("tf.data 2.21, shuffles that are equal", len(VECTORS["permutations"]))
    assert len(VECTORS["permutations"]) == 254


@pytest.mark.parametrize(
    "case", VECTORS["global_seed"], ids=lambda c: f"{c['global_seed']}-{c['seed']}-{c['op_seed_index']}"
)
def test_every_shuffle_after_set_seed_is_equal(case: dict[str, Any]) -> None:
    seeds = {name: case[name] for name in ("seed", "global_seed", "op_seed_index")}
    assert shuffle_permutation(20, **seeds).tolist() == case["perm"]
    # A plan of 20 files of one record each, read one after the other, is such a shuffle.
    config = ReadConfig(
        interleave_cycle_length=1,
        shuffle_files=True,
        shuffle_seed=case["seed"],
        global_seed=case["global_seed"],
        op_seed_index=case["op_seed_index"],
    )
    order = resolve("train", {"train": [1] * 20}).order(config)
    assert [run.instruction for run in order] == case["perm"]
