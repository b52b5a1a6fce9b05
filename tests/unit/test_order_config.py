"""Tests the checks of ReadConfig, and its defaults."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.golden import check_errors

import registry
from registry.errors import UsageError
from registry.order import ReadConfig, check_read_config
from registry.splits import resolve

GOLDEN = Path(__file__).with_name("golden")


def test_the_defaults_equal_those_of_tfds() -> None:
    config = registry.ReadConfig()
    assert (config.interleave_cycle_length, config.interleave_block_length) == (16, 16)
    assert (config.shuffle_files, config.shuffle_seed, config.add_tfds_id, config.repeat) == (False, None, False, 1)


def test_options_without_effect_are_refused() -> None:
    check_errors(
        GOLDEN / "order_config" / "options_without_effect_are_refused.txt",
        (
            partial(lambda options: ReadConfig(**options), row)
            for row in [
                {"interleave_cycle_length": None},
                {"interleave_cycle_length": 0},
                {"interleave_block_length": -3},
                {"interleave_block_length": 1.5},
                {"shuffle_seed": True, "shuffle_files": True},
                {"repeat": 0},
                {"seed": -1, "shuffle": "global"},
                {"seed": 2**64, "shuffle": "global"},
                {"shuffle_files": 1},
                {"shuffle_reshuffle_each_iteration": "no"},
                {"interleave_sort_fn": "reversed"},
                {"shuffle": "files"},
                {"shuffle": "global", "seed": 1, "shuffle_files": True},
                {"shuffle": "global", "global_seed": 0},
                {"shuffle": "global", "interleave_sort_fn": sorted},
                {"shuffle": "global", "shuffle_reshuffle_each_iteration": False},
                {"seed": 7},
                {"op_seed_index": 2, "shuffle_files": True, "shuffle_seed": 1},
            ]
        ),
    )


@pytest.mark.parametrize("name", ["shuffle_seed", "global_seed"])
def test_a_config_may_have_a_seed_alone_but_reading_needs_the_shuffle(name: str) -> None:
    config = ReadConfig(**{name: 0})  # type: ignore[arg-type]
    plan = resolve("train", {"train": [3, 4]})
    with pytest.raises(UsageError) as caught:
        plan.order(config)
    assert str(caught.value) == f"{name} has no effect without shuffle_files"
    assert caught.value.hint == f"Add shuffle_files=True, or leave {name} out."
    assert sum(run.count for run in plan.order(replace(config, shuffle_files=True))) == 7


def test_ordered_records_have_another_default_than_16_files_in_turns() -> None:
    for given in (
        None,
        ReadConfig(),
        replace(ReadConfig(), add_tfds_id=True),
        pickle.loads(pickle.dumps(ReadConfig())),  # noqa: S301 (our own bytes)
    ):
        assert check_read_config(given).interleave_cycle_length == 16
        assert check_read_config(given, is_ordered=True).interleave_cycle_length == 1
    asked = ReadConfig(interleave_cycle_length=16)
    assert check_read_config(asked, is_ordered=True) is asked
    assert asked == ReadConfig()
    assert repr(asked) == repr(ReadConfig())


def test_integers_of_numpy_are_accepted() -> None:
    config = ReadConfig(interleave_cycle_length=np.int32(3), shuffle_files=True, shuffle_seed=np.uint64(7))  # type: ignore[arg-type]
    assert config == ReadConfig(interleave_cycle_length=3, shuffle_files=True, shuffle_seed=7)
    assert (type(config.interleave_cycle_length), type(config.shuffle_seed)) == (int, int)


@pytest.mark.parametrize(
    ("config", "name"),
    [(ReadConfig(shuffle_files=True), "shuffle_seed"), (ReadConfig(shuffle="global"), "seed")],
)
def test_a_shuffle_without_a_seed_has_no_order_yet(config: ReadConfig, name: str) -> None:
    plan = resolve("train", {"train": [3, 4]})
    assert config.needs_seed
    with pytest.raises(UsageError) as caught:
        plan.order(config)
    assert str(caught.value) == (f"the shuffle has no {name}, without which every read has a different order")
    assert caught.value.hint == f"Write ReadConfig({name}=42, ...), or config.with_seed(42)."
    seeded = config.with_seed(5)
    assert not seeded.needs_seed
    assert getattr(seeded, name) == 5
    assert sum(run.count for run in plan.order(seeded)) == 7


def test_with_seed_keeps_an_existing_seed() -> None:
    for config in (
        ReadConfig(),
        ReadConfig(shuffle_files=True, shuffle_seed=1),
        ReadConfig(shuffle_files=True, global_seed=1),
        ReadConfig(shuffle="global", seed=1),
    ):
        assert config.with_seed(5) is config


def test_other_values_than_a_read_config_are_refused() -> None:
    for wrong in (3, {"shuffle": "global"}):
        with pytest.raises(UsageError) as caught:
            resolve("train", {"train": [3, 4]}).order(wrong)  # type: ignore[arg-type]
        assert str(caught.value) == f"read_config must be a registry.ReadConfig, not {wrong!r}"
        assert caught.value.hint == (
            "Write registry.ReadConfig(shuffle_files=True, shuffle_seed=42), or leave it out for TFDS's default."
        )
