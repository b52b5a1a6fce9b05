"""Proofs about split expressions: what holds, what does not, the records that show it, and the exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import warm_python

import registry

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_the_error_comes_after_the_answer_where_both_go_to_one_pipe(digits: Cli) -> None:
    program = str(Path(sys.executable).parent / "registry")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [program, "split", "check", "digits", "train[:5]", "train[4:]"]
    done = warm_python.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 5
    lines = done.stdout.splitlines()
    assert (lines[0], lines[-2]) == ("digits:1.0.0 (documented slicing)", "error: the expressions are not disjoint")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("form", ["human", "json"])
def test_a_reader_who_leaves_does_not_make_a_proof_hold(digits: Cli, form: str, unbuffered: str) -> None:
    program = str(Path(sys.executable).parent / "registry")
    command = [program, "split", "check", "digits", *[f"train[{place}:]" for place in range(60)], "--format", form]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    running = warm_python.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    running.stdout.close()
    _, said = running.communicate()
    assert running.returncode == 5
    assert "are not disjoint" in said
    assert "Traceback" not in said


def test_the_python_api_takes_the_rule_and_gives_the_shape_back(digits: Cli) -> None:
    with registry.connect() as catalog:
        dataset = catalog.dataset("digits")
        assert dataset.relation("train[:0shard]", "train").kind == "subset"
        assert dataset.relation("train[:0shard]", "train", slicing="tfds-4").kind == "equal"
        readers = registry.load("digits", ("train[:0shard]", "train[:10%]"), slicing="tfds-4", catalog=catalog)
        assert isinstance(readers, tuple)
        assert [len(reader) for reader in readers] == [1797, 180]
        (reader,) = registry.load("digits", ["train[:10%]"], rounding="pct1_dropremainder", catalog=catalog)
        assert len(reader) == 170
        assert list(registry.load("digits", {"a": "train[:3]"}, catalog=catalog)) == ["a"]
