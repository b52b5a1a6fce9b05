"""Pin files made and shown on the command line: create, add, show, explain, cite, diff, read."""

from __future__ import annotations

import json
from collections.abc import Callable

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


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
