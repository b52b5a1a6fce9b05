"""``registry diff``, ``registry publish`` and its dry run: what people see of a proof, and what programs get."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.prepared_samples import ANIMALS, animals, prepare

import registry
from registry.features import ClassLabel, FeaturesDict, Text

Cli = Callable[..., Any]

TAMED = FeaturesDict({**ANIMALS, "tame": "bool"})


def tamed(count: int) -> list[dict[str, Any]]:
    return [{**example, "tame": True} for example in animals(count)]


@pytest.fixture(scope="module")
def published_animals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with animals:1.0.0 published: 3,000 and 5 examples in 8 shards each."""
    folder = tmp_path_factory.mktemp("animals")
    prepared = prepare(folder / "first", "1.0.0", {"train": animals(3000), "test": animals(5)}, shards=8)
    with registry.connect(folder / "catalog.db") as catalog:
        catalog.publish(prepared)
    return folder


@pytest.fixture
def published(cli: Cli, workspace: Path, published_animals: Path) -> Cli:
    """The command line, with these animals published."""
    shutil.copytree(published_animals, workspace, dirs_exist_ok=True)
    return cli


def fingerprint_of_files(folder: Path) -> dict[str, str]:
    """Every file below ``folder`` by its path, with its sha256 and the time it was written."""
    return {
        str(path.relative_to(folder)): f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_mtime_ns}"
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-wal", "-shm"))
    }


def test_an_added_feature_is_a_minor(published: Cli, workspace: Path) -> None:
    splits = {"train": tamed(3000), "test": tamed(5)}
    refused = published("publish", str(prepare(workspace / "patch", "1.0.1", splits, features=TAMED)))
    assert refused.code == 5
    assert refused.err == (
        "error: animals:1.0.1 is too small a number: since animals:1.0.0 more has changed than a PATCH version allows\n"
        "  feature tame is new (Tensor bool)\n"
        "hint: The smallest number that may follow 1.0.0 is 1.1.0.\n"
    )
    allowed = published("publish", str(prepare(workspace / "minor", "1.1.0", splits, features=TAMED)))
    assert allowed.out.splitlines()[1] == "proved: the same records, with more features, as animals:1.0.0"


def test_a_changed_record_is_named_and_refused(published: Cli, workspace: Path) -> None:
    splits = {"train": animals(3000, age=-3), "test": animals(5)}
    folder = prepare(workspace / "second", "1.1.0", splits, shards=3, compress=True)
    refused = published("publish", str(folder))
    assert refused.code == 5
    assert refused.err == (
        "error: animals:1.1.0 is too small a number: since animals:1.0.0 more has changed than a MINOR version allows\n"
        "  split train holds other values of age, the first of them in records 1,024..2,048\n"
        "  train record 1500: age is -3, was 1500\n"
        "hint: The smallest number that may follow 1.0.0 is 2.0.0.\n"
    )
    assert published("publish", str(folder), "--format", "json").error() == {
        "code": "version_too_small",
        "message": refused.err.removeprefix("error: ").partition("\nhint: ")[0],
        "hint": "The smallest number that may follow 1.0.0 is 2.0.0.",
        "details": {
            "base": "animals:1.0.0",
            "level": "major",
            "smallest": "2.0.0",
            "changes": [
                "split train holds other values of age, the first of them in records 1,024..2,048",
                "split train has 3 shards, had 8 shards",
                "split test has 3 shards, had 8 shards",
            ],
        },
    }
    assert [path.name for path in (workspace / "datasets/animals").iterdir()] == ["1.0.0"], "nothing was left behind"
    assert published("versions", "animals", "--format", "json").json()["data"][0]["version"] == "1.0.0"


def test_a_larger_number_than_needed_is_noted(published: Cli, workspace: Path) -> None:
    folder = prepare(workspace / "second", "3.0.0", {"train": animals(3000), "test": animals(5)}, shards=8)
    ran = published("publish", str(folder))
    assert ran.code == 0
    assert ran.out.splitlines()[1] == "proved: the same content as animals:1.0.0: 1.0.1 would do"
    other = prepare(workspace / "third", "3.0.5", {"train": animals(3000), "test": animals(5)}, shards=2)
    assert published("publish", str(other), "--format", "json").json()["data"]["proof"] == (
        "the same records and features as animals:3.0.0: 3.0.1 would do"
    )


def test_a_number_between_two_others_is_held_against_both(published: Cli, workspace: Path) -> None:
    splits = {"train": animals(3000), "test": animals(5)}
    assert published("publish", str(prepare(workspace / "above", "1.2.0", splits))).code == 0
    more = {"train": tamed(3000), "test": tamed(5)}
    refused = published("publish", str(prepare(workspace / "between", "1.1.0", more, features=TAMED)))
    assert refused.code == 5
    assert refused.err == (
        "error: animals:1.1.0 is too small a number: "
        "in animals:1.2.0 more would have changed than a MINOR version allows\n"
        "  feature tame is gone (Tensor bool)\n"
        "hint: Use a number above 1.2.0, or another MAJOR number.\n"
    )
    preview = published("publish", "--dry-run", str(workspace / "between"), "--format", "json")
    assert preview.code == 5
    data = preview.json()["data"]
    assert (data["allowed"], data["diff"]["old"], data["diff"]["new"]) == (False, "animals:1.1.0", "animals:1.2.0")
    assert published("publish", str(prepare(workspace / "same", "1.1.0", splits, shards=5))).code == 0


def test_the_dry_run_shows_everything_and_writes_nothing(published: Cli, workspace: Path) -> None:
    examples = animals(3000, name="somebody else")
    del examples[10]
    folder = prepare(workspace / "second", "1.0.1", {"train": examples, "more": animals(7)}, description="New words.")
    before = fingerprint_of_files(workspace)
    ran = published("publish", "--dry-run", str(folder))
    assert ran.code == 5
    assert ran.out == (
        "animals:1.0.0 -> animals:1.0.1: MAJOR\n"
        "  MAJOR  split test is gone, with 5 records\n"
        "  MAJOR  split more is new, with 7 records\n"
        "  MAJOR  split train has 2,999 records, had 3,000\n"
        '  PATCH  description is "New words.", was "Animals."\n'
        "  train: 1 changed, 1 removed, 2,998 unchanged\n"
        "    record 10 is gone: age 10, kind 'cat', name 'animal 10'\n"
        "    record 1499 (was 1500): name is 'somebody else', was 'animal 1500'\n"
        "smallest number after animals:1.0.0: 2.0.0\n"
        "refused: animals:1.0.1 is too small a number: "
        "since animals:1.0.0 more has changed than a PATCH version allows\n"
        "The smallest number that may follow 1.0.0 is 2.0.0.\n"
    )
    data = published("publish", "--dry-run", str(folder), "--show", "1", "--format", "json").json()["data"]
    assert {key: data[key] for key in ("dataset", "version", "published", "allowed", "smallest", "problem")} == {
        "dataset": "animals",
        "version": "1.0.1",
        "published": False,
        "allowed": False,
        "smallest": "2.0.0",
        "problem": "animals:1.0.1 is too small a number: "
        "since animals:1.0.0 more has changed than a PATCH version allows",
    }
    assert data["diff"]["records"] == [
        {
            "split": "train",
            "same": 2998,
            "changed": 1,
            "added": 0,
            "removed": 1,
            "moved": 0,
            "first": [
                {
                    "kind": "removed",
                    "old": 10,
                    "new": None,
                    "features": {},
                    "values": {"age": "10", "kind": "'cat'", "name": "'animal 10'"},
                }
            ],
        }
    ]
    assert fingerprint_of_files(workspace) == before


def test_the_dry_run_of_an_allowed_number_says_what_would_do(published: Cli, workspace: Path) -> None:
    folder = prepare(workspace / "second", "1.1.0", {"train": animals(3000), "test": animals(5)}, shards=2)
    ran = published("publish", "--dry-run", str(folder))
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == (
        "animals:1.1.0 may be published: the same records and features as animals:1.0.0: 1.0.1 would do"
    )


def test_the_dry_run_of_a_first_version_has_nothing_to_compare(cli: Cli, workspace: Path) -> None:
    ran = cli("publish", "--dry-run", str(prepare(workspace / "first")))
    assert (ran.code, ran.out) == (0, "animals:1.0.0 may be published\n")
    assert cli("publish", "--dry-run", str(workspace / "first"), "--format", "json").json()["data"]["diff"] is None
    assert not (workspace / "datasets").exists()


def test_the_dry_run_of_what_is_published_would_do_nothing(published: Cli, workspace: Path) -> None:
    ran = published("publish", "--dry-run", str(workspace / "first"))
    assert (ran.code, ran.out) == (0, "animals:1.0.0 is published already: nothing would be done\n")
    other = prepare(workspace / "other", "1.0.0", {"train": animals(3000)})
    assert published("publish", "--dry-run", str(other)).code == 4


def test_diff_as_json_holds_changes_and_records(published: Cli, workspace: Path) -> None:
    relabelled = FeaturesDict({"name": Text(), "kind": ClassLabel(names=["cat", "fox"]), "tail": "float32"})
    examples = [{"name": f"animal {number}", "kind": number % 2, "tail": 1.5} for number in range(3000)]
    examples[7]["name"] = "x"
    folder = prepare(workspace / "second", "2.0.0", {"train": examples}, features=relabelled)
    assert published("publish", str(folder)).code == 0
    assert published("diff", "animals:1.0.0", "animals:2.0.0", "--format", "json").json() == {
        "schema": "registry.diff/1",
        "data": {
            "old": "animals:1.0.0",
            "new": "animals:2.0.0",
            "level": "major",
            "smallest": "2.0.0",
            "changes": [
                {
                    "level": "major",
                    "kind": "splits",
                    "where": "test",
                    "text": "split test is gone, with 5 records",
                },
                {
                    "level": "major",
                    "kind": "features",
                    "where": "age",
                    "text": "feature age is gone (Tensor int32)",
                },
                {
                    "level": "major",
                    "kind": "features",
                    "where": "kind",
                    "text": "feature kind is ClassLabel of 2 classes, was ClassLabel of 2 classes; "
                    "new: 'fox'; gone: 'dog'",
                },
                {
                    "level": "major",
                    "kind": "records",
                    "where": "train",
                    "text": "split train holds other values of name, the first of them in records 0..1,024",
                },
                {
                    "level": "minor",
                    "kind": "features",
                    "where": "tail",
                    "text": "feature tail is new (Tensor float32)",
                },
                {
                    "level": "patch",
                    "kind": "storage",
                    "where": "",
                    "text": "split train has 1 shard, had 8 shards",
                },
            ],
            "records": [
                {
                    "split": "train",
                    "same": 2999,
                    "changed": 1,
                    "added": 0,
                    "removed": 0,
                    "moved": 0,
                    "first": [
                        {
                            "kind": "changed",
                            "old": 7,
                            "new": 7,
                            "features": {"name": {"old": "'animal 7'", "new": "'x'"}},
                        }
                    ],
                }
            ],
            "unread": "",
        },
        "warnings": [],
    }


def test_diff_of_one_version_says_so(published: Cli) -> None:
    assert published("diff", "animals", "animals:1.*").out == (
        "animals:1.0.0 and animals:1.0.0 have the very same content\n"
    )


def test_diff_of_a_version_that_there_is_not(published: Cli) -> None:
    assert published("diff", "animals:1.0.0", "animals:7.0.0").code == 3


def test_without_its_files_a_diff_shows_the_blocks(published: Cli, workspace: Path) -> None:
    changed = {"train": animals(3000, age=-3), "test": animals(5)}
    assert published("publish", str(prepare(workspace / "second", "2.0.0", changed))).code == 0
    shard = workspace / "datasets/animals/1.0.0/animals-train.tfrecord-00004-of-00008"
    shard.unlink()
    ran = published("diff", "animals:1.0.0", "animals:2.0.0")
    assert ran.code == 0
    assert ran.out == (
        "animals:1.0.0 -> animals:2.0.0: MAJOR\n"
        "  MAJOR  split train holds other values of age, the first of them in records 1,024..2,048\n"
        "  PATCH  split train has 1 shard, had 8 shards\n"
        "  PATCH  split test has 1 shard, had 8 shards\n"
        "smallest number after animals:1.0.0: 2.0.0\n"
    )
    assert ran.err.startswith("records were not compared one by one: ")
    assert str(shard) in ran.err
    data = published("diff", "animals:1.0.0", "animals:2.0.0", "--format", "json").json()
    assert str(shard) in data["data"]["unread"]
    refused = published("publish", str(prepare(workspace / "third", "1.0.1", changed)))
    assert refused.err == (
        "error: animals:1.0.1 is too small a number: since animals:1.0.0 more has changed than a PATCH version allows\n"
        "  split train holds other values of age, the first of them in records 1,024..2,048\n"
        "hint: The smallest number that may follow 1.0.0 is 2.0.0. It is used already: raise the highest version.\n"
    )


def test_records_that_no_longer_decode_do_not_end_a_diff(published: Cli, workspace: Path) -> None:
    changed = {"train": animals(3000, age=-3), "test": animals(5)}
    assert published("publish", str(prepare(workspace / "second", "2.0.0", changed))).code == 0
    shard = workspace / "datasets/animals/1.0.0/animals-train.tfrecord-00004-of-00008"
    data = bytearray(shard.read_bytes())
    data[40] ^= 1
    shard.write_bytes(bytes(data))
    ran = published("diff", "animals:1.0.0", "animals:2.0.0")
    assert ran.code == 0
    assert ran.err.startswith(f"records were not compared one by one: {shard}: ")
