"""Pin files made and shown on the command line: create, add, show, explain, cite, diff, read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

HEAD_LINE = "train: digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac (4 files, 335.9 KiB)\n"
TAIL_LINE = "validation: digits@1.0.0 train[80%:] #359 sha256:50e96981a67b7624 (1 file, 84.0 KiB)\n"


def digest_in(path: str | Path) -> str:
    """The digest that a pin file bears."""
    found = re.search("^digest: (sha256:[0-9a-f]{64})$", Path(path).read_text(), flags=re.MULTILINE)
    return found[1]


def test_create_writes_the_default_file_and_says_what_is_in_it(
    digits: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    ran = digits("pin", "create", "digits", "train=train[:80%]", "validation=train[80%:]")
    lock = workspace / "dataset.lock.yaml"
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"wrote dataset.lock.yaml (2 pins, {digest_in(lock)[:19]})\n{HEAD_LINE}{TAIL_LINE}"
    before = lock.read_bytes()
    again = digits("pin", "create", "digits", "train=train[:80%]", "validation=train[80%:]")
    assert (again.code, again.out, lock.read_bytes()) == (0, ran.out, before)
    assert digits("pin", "create", "digits", "train=train[:80%]", "validation=train[80%:]", "-o", "b.yaml").code == 0
    assert Path("b.yaml").read_bytes() == before


def test_read_prints_pinned_examples_in_the_pinned_order(pins: Cli) -> None:
    ids = pins("pin", "read", "dataset.lock.yaml", "validation", "--ids", "--take", "2")
    assert (ids.code, ids.err) == (0, "")
    assert ids.out == "digits-train.tfrecord-00003-of-00004__90\ndigits-train.tfrecord-00003-of-00004__91\n"
    lines = pins("pin", "read", "dataset.lock.yaml", "validation").out.splitlines()
    assert lines == pins("read", "digits", "train[80%:]").out.splitlines()
    for options in (["--pixels"], ["--columns", "label", "--names"]):
        lines_so = pins("pin", "read", "dataset.lock.yaml", "validation", *options).out
        assert lines_so == pins("read", "digits", "train[80%:]", *options).out
    by_split = pins("pin", "read", "dataset.lock.yaml", "train[80%:]", "--take", "1", "--format", "json").json()
    assert by_split["schema"] == "registry.pin.read/1"
    assert (by_split["data"]["name"], by_split["data"]["num_examples"]) == ("validation", 359)
    assert by_split["data"]["examples"] == [json.loads(lines[0])]
    assert pins("pin", "read", "dataset.lock.yaml", "train", "--take", "0").out == ""
    pins("pin", "create", "digits", "train", "--shuffle", "global", "--shuffle-seed", "7", "-o", "shuffled.yaml")
    shuffled = pins("pin", "read", "shuffled.yaml", "train", "--ids").out
    assert shuffled == pins("read", "digits", "train", "--shuffle", "global", "--shuffle-seed", "7", "--ids").out
    assert "read in a permutation of all records (" in pins("pin", "explain", "shuffled.yaml").out
