"""``registry read``: examples and ids in the order that is asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.terminals import drawn_on_terminal

import registry
from registry.order import ReadConfig

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


@pytest.fixture
def train() -> registry.Dataset:
    return registry.connect().dataset("digits")


def test_ids_are_printed_in_the_order_of_tfds_without_opening_a_file(digits: Cli, workspace: Path) -> None:
    for shard in (workspace / "datasets").rglob("*.tfrecord-*"):
        shard.unlink()
    ran = digits("read", "digits", "train", "--ids")
    lines = ran.out.splitlines()
    assert lines[:2] == ["digits-train.tfrecord-00000-of-00004__0", "digits-train.tfrecord-00000-of-00004__1"]
    assert lines[16] == "digits-train.tfrecord-00001-of-00004__0"
    assert (len(lines), len(set(lines)), ran.err) == (1797, 1797, "")
    ran = digits("read", "digits", "train[10:13]", "--ids", "--format", "json")
    assert ran.json() == {
        "schema": "registry.read/1",
        "data": {
            "dataset": "digits",
            "version": "1.0.0",
            "split": "train[10:13]",
            "slicing": "documented",
            "ids": [f"digits-train.tfrecord-00000-of-00004__{index}" for index in (10, 11, 12)],
        },
        "warnings": [],
    }


@pytest.mark.parametrize(
    ("options", "config"),
    [
        ((), ReadConfig()),
        (("--cycle-length", "1"), ReadConfig(interleave_cycle_length=1)),
        (
            ("--cycle-length", "3", "--block-length", "2"),
            ReadConfig(interleave_cycle_length=3, interleave_block_length=2),
        ),
        (("--shuffle-seed", "42"), ReadConfig(shuffle_files=True, shuffle_seed=42)),
        (("--shuffle", "files", "--shuffle-seed", "-1"), ReadConfig(shuffle_files=True, shuffle_seed=-1)),
        (("--shuffle", "global", "--shuffle-seed", "7"), ReadConfig(shuffle="global", seed=7)),
    ],
)
def test_the_order_is_that_of_the_same_read_config(
    digits: Cli, train: registry.Dataset, options: tuple[str, ...], config: ReadConfig
) -> None:
    reader = train.read("train", config)
    expected = [next(ids) for ids in [reader.ids()] for _ in range(60)]
    assert digits("read", "digits", "train", "--ids", "--take", "60", *options).out.splitlines() == expected
    labels = [
        json.loads(line)["label"]
        for line in digits("read", "digits", "train", "--take", "60", *options).out.splitlines()
    ]
    assert labels == [int(label) for label in train.read("train", config)[:60]["label"]]


def test_a_shuffle_without_a_seed_says_which_one_it_drew(digits: Cli) -> None:
    for kind in ("files", "global"):
        ran = digits("read", "digits", "train", "--ids", "--take", "5", "--shuffle", kind)
        assert ran.code == 0
        seed = ran.err.split("--shuffle-seed ")[1].split()[0]
        assert ran.err == f"note: shuffled with the seed {seed}; --shuffle-seed {seed} gives this order again\n"
        again = digits("read", "digits", "train", "--ids", "--take", "5", "--shuffle", kind, "--shuffle-seed", seed)
        assert (again.out, again.err) == (ran.out, "")


def test_a_progress_bar_is_drawn_on_a_terminal_and_never_among_the_examples(digits: Cli, workspace: Path) -> None:
    command = [sys.executable, "-m", "registry", "read", "digits", "train"]
    with (workspace / "out.jsonl").open("wb") as out:
        drawn = drawn_on_terminal(command, "stderr", stdout=out, env=os.environ | {"TERM": "xterm"})
    assert b"reading" in drawn
    assert b"1,797 records" in drawn
    lines = (workspace / "out.jsonl").read_text().splitlines()
    assert len(lines) == 1797
    assert all(line.startswith("{") for line in lines)


def test_a_pipe_that_is_closed_ends_the_read_quietly(digits: Cli) -> None:
    command = f"{sys.executable} -m registry read digits train | head -2"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)  # noqa: S602 - a pipe
    assert (len(done.stdout.splitlines()), done.stderr) == (2, "")


def test_verify_deep_walks_every_record_and_names_the_bad_one(digits: Cli, workspace: Path) -> None:
    shard = next((workspace / "datasets").rglob("*-00002-of-00004"))
    content = bytearray(shard.read_bytes())
    content[-5] ^= 1
    shard.write_bytes(bytes(content))
    ran = digits("verify", "digits", "--deep")
    assert ran.code == 5
    assert f"{shard}: record 449 at byte " in ran.out
