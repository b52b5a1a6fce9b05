"""Pin files made and shown on the command line: create, add, show, explain, cite, diff, read."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import registry

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

HEAD = "sha256:f9c5a485541c42ac28a4857c6030289f03a158612d2e37a39659fabda46e84d9"
HEAD_LINE = "train: digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac (4 files, 335.9 KiB)\n"
TAIL_LINE = "validation: digits@1.0.0 train[80%:] #359 sha256:50e96981a67b7624 (1 file, 84.0 KiB)\n"


@pytest.fixture
def pins(digits: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line in a folder with dataset.lock.yaml: train[:80%] and train[80%:] of digits."""
    monkeypatch.chdir(workspace)
    assert digits("pin", "create", "digits:1.*", "train=train[:80%]", "validation=train[80%:]").code == 0
    return digits


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


def test_create_for_programs(digits: Cli, workspace: Path) -> None:
    path = str(workspace / "pin.yaml")
    ran = digits("pin", "create", "digits", "train[:80%]", "-o", path, "--format", "json")
    assert ran.json() == {
        "schema": "registry.pin.create/1",
        "data": {
            "file": path,
            "digest": digest_in(path),
            "pins": [
                {
                    "name": "train",
                    "dataset": "digits",
                    "version": "1.0.0",
                    "split": "train[:80%]",
                    "slicing": "documented",
                    "num_examples": 1438,
                    "records": {
                        "ordered": HEAD,
                        "unordered": "sha256:a572c89446f1c5c432e6a46ff6b254ac6dfa1e00c7cdb312b209e095a8a60c23",
                    },
                }
            ],
        },
        "warnings": [],
    }


def test_another_file_is_replaced_with_force_only(pins: Cli) -> None:
    before = Path("dataset.lock.yaml").read_bytes()
    refused = pins("pin", "create", "digits", "train")
    assert (refused.code, refused.out, refused.err) == (
        1,
        "",
        "error: dataset.lock.yaml already exists and holds other pins\n"
        "hint: Name another file with -o, replace it with --force, or add to it: "
        "registry pin add digits:1.0.0 train -o dataset.lock.yaml\n",
    )
    assert Path("dataset.lock.yaml").read_bytes() == before
    assert pins("pin", "create", "digits", "train", "--force").code == 0
    assert Path("dataset.lock.yaml").read_bytes() != before


def test_a_name_given_to_two_slices_is_refused(digits: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace)
    refused = digits("pin", "create", "digits", "a=train", "a=train[:1]")
    assert (refused.code, refused.err) == (
        2,
        "error: two slices have the name 'a': train and train[:1]\n"
        "hint: Give each slice a name of its own, e.g. train='train[:80%]' test='train[80%:]'.\n",
    )
    assert digits("pin", "create", "digits", "a=train[:1]", "a=train[:1]").code == 0, "the same slice twice is one pin"


def test_a_dry_run_reads_no_shard_and_writes_nothing(
    digits: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    shutil.rmtree(workspace / "datasets")
    ran = digits("pin", "create", "digits", "train[20%:30%]", "--dry-run")
    assert (ran.code, ran.out) == (
        0,
        "would pin digits:1.0.0 train[20%:30%]: 180 records, records train 359..539, in 2 files\n",
    )
    assert digits("pin", "create", "digits", "x=train[:1]", "--dry-run", "--format", "json").json()["data"] == {
        "dry_run": True,
        "pins": [
            {
                "dataset": "digits",
                "version": "1.0.0",
                "split": "train[:1]",
                "num_examples": 1,
                "ranges": [{"split": "train", "start": 0, "stop": 1}],
                "num_files": 1,
            }
        ],
    }
    assert sorted(path.name for path in workspace.iterdir()) == ["catalog.db"]
    missing = digits("pin", "create", "digits", "train[:1]")
    assert missing.code == 1
    assert missing.err.startswith("error: ")
    assert not Path("dataset.lock.yaml").exists()


REFUSALS = {
    "no split": (["train="], 2, "'train=' lacks a name or a split\nhint: Write NAME=SPLIT, e.g. train='train[:80%]'."),
    "no name": (["=train"], 2, "'=train' lacks a name or a split\nhint: Write NAME=SPLIT, e.g. train='train[:80%]'."),
    "a letter": (
        ["train[:8O%]"],
        2,
        "expected a digit, '%', 'shard' or ']' here\n    train[:8O%]\n            ^\n"
        "hint: Write a slice as name[from:to], e.g. train[:10%].",
    ),
    "no such split": (["tarin"], 3, "no split 'tarin'\nhint: Did you mean 'train'? There are: train."),
    "no such folder": (
        ["train", "-o", "missing/pin.yaml"],
        2,
        "the folder missing of pin.yaml does not exist\nhint: Create it, or name another file.",
    ),
    "a shuffle without a seed": (
        ["train", "--shuffle", "global"],
        2,
        "a pinned shuffle needs a seed\n"
        "hint: Add --shuffle-seed 42; in Python shuffle_seed=42, or seed=42 for a global shuffle.",
    ),
    "files shuffled without a seed": (
        ["train", "--shuffle", "files", "--dry-run"],
        2,
        "a pinned shuffle needs a seed\n"
        "hint: Add --shuffle-seed 42; in Python shuffle_seed=42, or seed=42 for a global shuffle.",
    ),
    "a path upwards": (
        ["train", "--location", "../elsewhere", "--dry-run"],
        2,
        "invalid location of a pin: '../elsewhere': '../elsewhere' does not name a file inside its store",
    ),
    "a password": (
        ["train", "--location", "https://ann:secret@example.org/digits", "--dry-run"],
        2,
        "invalid location of a pin: 'https://***@example.org/digits': it contains a user name or password",
    ),
    "a name of two lines": (
        ["a\nb=train", "--dry-run"],
        2,
        "invalid name of a pin: 'a\\nb'; expected one line of text\n"
        'hint: Use e.g. train; in Python pin({"train": "train[:80%]"})',
    ),
    "a location of two lines": (
        ["train", "--location", "https://x/\ny"],
        2,
        "invalid location of a pin: 'https://x/\\ny'; expected one line of at most 1000 characters",
    ),
    "an expression twice": (
        ["train", "train"],
        2,
        "a split expression is given twice\nhint: Give one of them a name: NAME=SPLIT",
    ),
    "a folder as file": (
        ["train", "-o", "datasets"],
        2,
        "Invalid value for '-o' / '--output': File 'datasets' is a directory.\nhint: See registry pin create --help.",
    ),
}


@pytest.mark.parametrize(("arguments", "code", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_create_refuses(
    digits: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(workspace)
    ran = digits("pin", "create", "digits", *arguments)
    assert (ran.code, ran.out, ran.err) == (code, "", f"error: {message}\n")
    assert sorted(path.name for path in workspace.iterdir()) == ["catalog.db", "datasets"]


MISSING = "hint: Make one with: registry pin create REF SPLIT -o FILE"
NO_FILES = {
    "no such file": ("none.yaml", f"there is no pin file none.yaml\n{MISSING}"),
    "this folder": (".", "there is no pin file '.': that is a folder\nhint: Name a file in it."),
    "a folder": ("datasets/", "there is no pin file 'datasets/': that is a folder\nhint: Name a file in it."),
    "no name": ("", "there is no pin file '': that is a folder\nhint: Name a file in it."),
    "no text": (
        "catalog.db",
        "catalog.db: not UTF-8: invalid start byte at byte 99\n"
        "hint: Get the file again from where it was published, or create a new one: registry pin create",
    ),
}


@pytest.mark.parametrize(("file", "message"), NO_FILES.values(), ids=NO_FILES)
@pytest.mark.parametrize(
    "verb", [["show"], ["verify"], ["explain"], ["audit"], ["cite"], ["update"], ["read", "train"]], ids=" ".join
)
def test_a_file_that_is_no_pin_file(
    digits: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str], file: str, message: str
) -> None:
    monkeypatch.chdir(workspace)
    ran = digits("pin", verb[0], file, *verb[1:])
    assert (ran.code, ran.out) == (5 if file == "catalog.db" else 1, "")
    assert re.sub("invalid .* at byte [0-9]+", "invalid start byte at byte 99", ran.err) == f"error: {message}\n"


def test_a_folder_of_the_machine_is_no_pin_file(pins: Cli, workspace: Path) -> None:
    ran = pins("pin", "show", "datasets")
    hint = "hint: A file is expected at this path. Check the path.\n"
    told = f"error: cannot read {workspace / 'datasets'}: Not a file\n{hint}"
    assert (ran.code, ran.err) == (1, told)


@pytest.mark.parametrize("verb", ["verify", "explain", "read"])
def test_a_pin_that_is_not_there_is_answered_with_the_nearest(pins: Cli, verb: str) -> None:
    ran = pins("pin", verb, "dataset.lock.yaml", "tarin")
    assert (ran.code, ran.out, ran.err) == (
        3,
        "",
        "error: no pin 'tarin' in the pin file\nhint: Did you mean 'train'? There are: train, validation.\n",
    )


def test_add_keeps_what_is_there(pins: Cli) -> None:
    ran = pins("pin", "add", "digits", "small=train[:5]")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        f"wrote dataset.lock.yaml (3 pins, {digest_in('dataset.lock.yaml')[:19]})\n{HEAD_LINE}{TAIL_LINE}"
        "small: digits@1.0.0 train[:5] #5 sha256:7f9f3a6b5c0428a8 (1 file, 83.9 KiB)\n"
    )
    before = Path("dataset.lock.yaml").read_bytes()
    again = pins("pin", "add", "digits", "small=train[:5]", "--format", "json")
    assert Path("dataset.lock.yaml").read_bytes() == before
    data = again.json()
    assert data["schema"] == "registry.pin.add/1"
    assert [pin["name"] for pin in data["data"]["pins"]] == ["train", "validation", "small"]
    taken = pins("pin", "add", "digits", "small=train[:6]")
    assert (taken.code, taken.err) == (
        4,
        "error: the file already has another pin 'small': digits:1.0.0 train[:5]\n"
        "hint: Choose another name: NAME=train[:6]\n",
    )
    unnamed = pins("pin", "add", "digits", "train[:6]", "--dry-run")
    assert unnamed.out == "would pin digits:1.0.0 train[:6]: 6 records, records train 0..6, in 1 file\n"
    assert Path("dataset.lock.yaml").read_bytes() == before
    assert "train[:6]: digits@1.0.0 train[:6] #6 " in pins("pin", "add", "digits", "train[:6]").out
    nowhere = pins("pin", "add", "digits", "train[:6]", "-o", "none.yaml")
    assert (nowhere.code, nowhere.err) == (1, f"error: there is no pin file none.yaml\n{MISSING}\n")


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


def test_cite(pins: Cli) -> None:
    digest = digest_in("dataset.lock.yaml")
    assert pins("pin", "cite", "dataset.lock.yaml").out == (
        "We used 1438 records of digits, version 1.0.0, slice train[:80%] "
        "(digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac).\n"
        "We used 359 records of digits, version 1.0.0, slice train[80%:] "
        "(digits@1.0.0 train[80%:] #359 sha256:50e96981a67b7624).\n"
        "digits, version 1.0.0 (licence: CC BY 4.0): "
        "https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits\n"
        f"The exact records are listed in dataset.lock.yaml ({digest}), which shardbook verifies.\n"
    )
    latex = pins("pin", "cite", "dataset.lock.yaml", "--latex").out.splitlines()
    assert latex[1] == (
        "We used 359 records of digits, version 1.0.0, slice train[80\\%:] "
        "(\\texttt{digits@1.0.0 train[80\\%:] \\#359 sha256:50e96981a67b7624})."
    )
    bibtex = pins("pin", "cite", "dataset.lock.yaml", "--bibtex", "--format", "json").json()
    assert bibtex["schema"] == "registry.pin.cite/1"
    assert bibtex["data"]["form"] == "bibtex"
    assert bibtex["data"]["citations"]["train"] == "digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac"
    assert "@misc{alpaydin1998digits,\n" in bibtex["data"]["text"]
    assert "@misc{digits-1.0.0-50e96981,\n" in bibtex["data"]["text"]


def test_diff(pins: Cli) -> None:
    pins("pin", "create", "digits:1.*", "train=train[:50%]", "more=train[:1]", "-o", "new.yaml")
    same = pins("pin", "diff", "new.yaml", "new.yaml", "--exit-code")
    assert (same.code, same.out) == (0, "train: the same\nmore: the same\n")
    ran = pins("pin", "diff", "dataset.lock.yaml", "new.yaml")
    now = pins("pin", "show", "new.yaml", "--format", "json").json()["data"]["pins"][0]["records"]["ordered"]
    assert (ran.code, ran.out) == (
        0,
        "train: changed, other records\n"
        "  expression: train[:80%] -> train[:50%]\n"
        "  number of records: 1,438 -> 899\n"
        "  ranges: records train 0..1,438 -> records train 0..899\n"
        "  899 records are in both, 539 were removed, 0 were added\n"
        f"  records: {HEAD} -> {now}\n"
        "  values of image, label\n"
        "  files: 4 -> 3; 3 are in both\n"
        "validation: removed\n"
        "  digits:1.0.0 train[80%:], 359 records\n"
        "more: added\n"
        "  digits:1.0.0 train[:1], 1 record\n",
    )
    told = pins("pin", "diff", "dataset.lock.yaml", "new.yaml", "--exit-code", "--format", "json")
    assert (told.code, told.json()["schema"]) == (1, "registry.pin.diff/1")
    assert [(one["name"], one["kind"], one["records"]) for one in told.json()["data"]] == [
        ("train", "changed", "other"),
        ("validation", "removed", None),
        ("more", "added", None),
    ]


def test_diff_of_words_alone_ends_with_0(pins: Cli) -> None:
    shutil.copy("dataset.lock.yaml", "new.yaml")
    pins("pin", "update", "new.yaml", "train", "--location", "https://example.org/digits")
    ran = pins("pin", "diff", "dataset.lock.yaml", "new.yaml", "--exit-code")
    assert (ran.code, ran.out) == (0, "train: changed, the same records\n  locations\nvalidation: the same\n")


def test_read_prints_pinned_examples_in_the_pinned_order(pins: Cli) -> None:
    ids = pins("pin", "read", "dataset.lock.yaml", "validation", "--ids", "--take", "2")
    assert (ids.code, ids.err) == (0, "")
    assert ids.out == "digits-train.tfrecord-00003-of-00004__90\ndigits-train.tfrecord-00003-of-00004__91\n"
    lines = pins("pin", "read", "dataset.lock.yaml", "validation").out.splitlines()
    assert lines == pins("read", "digits", "train[80%:]").out.splitlines()
    by_split = pins("pin", "read", "dataset.lock.yaml", "train[80%:]", "--take", "1", "--format", "json").json()
    assert by_split["schema"] == "registry.pin.read/1"
    assert (by_split["data"]["name"], by_split["data"]["num_examples"]) == ("validation", 359)
    assert by_split["data"]["examples"] == [json.loads(lines[0])]
    assert pins("pin", "read", "dataset.lock.yaml", "train", "--take", "0").out == ""
    pins("pin", "create", "digits", "train", "--shuffle", "global", "--shuffle-seed", "7", "-o", "shuffled.yaml")
    shuffled = pins("pin", "read", "shuffled.yaml", "train", "--ids").out
    assert shuffled == pins("read", "digits", "train", "--shuffle", "global", "--shuffle-seed", "7", "--ids").out
    assert "read in a permutation of all records (" in pins("pin", "explain", "shuffled.yaml").out
