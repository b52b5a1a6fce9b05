"""Pin files made and shown on the command line: create, add, show, explain, cite, diff, read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import registry

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

HEAD_LINE = "train: digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac (4 files, 335.9 KiB)\n"
TAIL_LINE = "validation: digits@1.0.0 train[80%:] #359 sha256:50e96981a67b7624 (1 file, 84.0 KiB)\n"


def digest_in(path: str | Path) -> str:
    """The digest that a pin file bears."""
    found = re.search("^digest: (sha256:[0-9a-f]{64})$", Path(path).read_text(), flags=re.MULTILINE)
    assert found is not None
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


def test_show(pins: Cli) -> None:
    ran = pins("pin", "show", "dataset.lock.yaml")
    assert ran.out == (
        f"dataset.lock.yaml: {digest_in('dataset.lock.yaml')}, by shardbook {registry.__version__}\n"
        "NAME        VERSION       SPLIT        RECORDS                     NUMBER  FILES      DIGEST\n"
        "train       digits:1.0.0  train[:80%]  records train 0..1,438       1,438  335.9 KiB  sha256:f9c5a485541c\n"
        "validation  digits:1.0.0  train[80%:]  records train 1,438..1,797     359  84.0 KiB   sha256:50e96981a67b\n"
    )
    told = pins("pin", "show", "dataset.lock.yaml", "--format", "json").json()
    assert told["schema"] == "registry.pin.show/1"
    assert list(told["data"]) == ["lock_version", "created_by", "digest", "finder", "pins"]
    assert [pin["request"] for pin in told["data"]["pins"]] == ["digits:1.*.*", "digits:1.*.*"]


def test_explain(pins: Cli) -> None:
    ran = pins("pin", "explain", "dataset.lock.yaml", "validation")
    assert ran.out == (
        "validation:\n"
        "  The request digits:1.*.* gave digits:1.0.0, which was canonical when it was pinned.\n"
        "  digits:1.*.* allows only 1.0.0, of 1 published versions.\n"
        "  Under the slicing rule documented, train[80%:] is records train 1,438..1,797.\n"
        "  The slice has 359 records; train has 1,797.\n"
        "  They are stored in 1 file of 85,967 bytes; the pin holds the sha256 of each file.\n"
        "  The first is digits-train.tfrecord-00003-of-00004__90, the last digits-train.tfrecord-00003-of-00004__448.\n"
        "  The sha256 over the sha256 of every record, in order, is "
        "50e96981a67b762467d8af06b86749720525cb5e1729e61d364993458ac1bb4f.\n"
        "  The same over the sorted digests, which does not depend on shards or order, is "
        "3cc55473300d7cedf88f405df3d4d803212b9c9a9aec2a80645b2fb6138f1dde.\n"
        "  They are read in the order of TFDS: 16 files in turns, 16 records of each at a time.\n"
        f"  It can be built with registry.builders.digits:Digits of shardbook {registry.__version__}.\n"
        "  Licence: CC BY 4.0\n"
    )
    told = pins("pin", "explain", "dataset.lock.yaml", "--format", "json").json()
    assert told["schema"] == "registry.pin.explain/1"
    assert list(told["data"]) == ["train", "validation"]
    assert "The slice has 1,438 records; train has 1,797." in told["data"]["train"]


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
