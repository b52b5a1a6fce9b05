"""Tests the checks of ReadConfig, and its defaults."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import registry
from registry.errors import UsageError
from registry.order import ReadConfig, check_read_config
from registry.splits import resolve

CHOOSE = 'Choose one: shuffle="global" with seed, or shuffle_files=True with shuffle_seed.'


def test_the_defaults_equal_those_of_tfds() -> None:
    config = registry.ReadConfig()
    assert (config.interleave_cycle_length, config.interleave_block_length) == (16, 16)
    assert (config.shuffle_files, config.shuffle_seed, config.add_tfds_id, config.repeat) == (False, None, False, 1)


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (
            {"interleave_cycle_length": None},
            "interleave_cycle_length is None: tf.data would then choose a number that depends on the machine",
            "Give a number, e.g. 16 (the default), or 1 for one file after the other.",
        ),
        ({"interleave_cycle_length": 0}, "interleave_cycle_length must be 1 or more, not 0", None),
        ({"interleave_block_length": -3}, "interleave_block_length must be 1 or more, not -3", None),
        ({"interleave_block_length": 1.5}, "interleave_block_length must be a whole number, not 1.5", None),
        ({"shuffle_seed": True, "shuffle_files": True}, "shuffle_seed must be a whole number, not True", None),
        ({"repeat": 0}, "repeat must be 1 or more, not 0", "None repeats for ever."),
        ({"seed": -1, "shuffle": "global"}, "seed must be 0 or more, not -1", None),
        ({"seed": 2**64, "shuffle": "global"}, "seed must be less than 2**64, not 18446744073709551616", None),
        ({"shuffle_files": 1}, "shuffle_files must be True or False, not 1", None),
        (
            {"shuffle_reshuffle_each_iteration": "no"},
            "shuffle_reshuffle_each_iteration must be True or False, not 'no'",
            None,
        ),
        ({"interleave_sort_fn": "reversed"}, "interleave_sort_fn must be a function, not 'reversed'", None),
        (
            {"shuffle": "files"},
            "there is no shuffle 'files'",
            'Write shuffle="global" for all records, or shuffle_files=True for the files.',
        ),
        (
            {"shuffle": "global", "seed": 1, "shuffle_files": True},
            'shuffle_files orders files, but shuffle="global" permutes all records',
            CHOOSE,
        ),
        (
            {"shuffle": "global", "global_seed": 0},
            'global_seed orders files, but shuffle="global" permutes all records',
            CHOOSE,
        ),
        (
            {"shuffle": "global", "interleave_sort_fn": sorted},
            'interleave_sort_fn orders files, but shuffle="global" permutes all records',
            CHOOSE,
        ),
        (
            {"shuffle": "global", "shuffle_reshuffle_each_iteration": False},
            'shuffle="global" gives each epoch an order of its own',
            "Leave it out. To read the same order again, create a new reader for each epoch.",
        ),
        (
            {"seed": 7},
            'seed needs shuffle="global"',
            'Add shuffle="global", or write shuffle_seed for the shuffle of files.',
        ),
        (
            {"op_seed_index": 2, "shuffle_files": True, "shuffle_seed": 1},
            "op_seed_index needs a global_seed: it counts the seeds drawn from it",
            "Add global_seed, or leave it out.",
        ),
    ],
)
def test_options_without_effect_are_refused(options: dict[str, Any], message: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        ReadConfig(**options)
    assert (str(caught.value), caught.value.hint) == (message, hint)


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
    assert str(caught.value) == (f"the shuffle has no {name}, and without it every read has an order of its own")
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
