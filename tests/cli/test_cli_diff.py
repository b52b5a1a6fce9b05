"""``registry diff``, ``registry publish`` and its dry run: what people see of a proof, and what programs get."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.golden import check_texts
from support.prepared_samples import ANIMALS, animals, prepare

import registry
from registry.features import ClassLabel, FeaturesDict, Text

Cli = Callable[..., Any]
GOLDEN = Path(__file__).parent / "golden" / "cli_diff"

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
        "error: animals:1.0.1 is too small a number: since animals:1.0.0 the changes exceed a PATCH version\n"
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
    error = published("publish", str(folder), "--format", "json").error()
    check_texts(GOLDEN / "a_changed_record_is_named_and_refused.txt", [refused.err, json.dumps(error, indent=1)])
    assert [path.name for path in (workspace / "datasets/animals").iterdir()] == ["1.0.0"], "nothing was left behind"
    assert published("versions", "animals", "--format", "json").json()["data"][0]["version"] == "1.0.0"


def test_a_larger_number_than_needed_is_noted(published: Cli, workspace: Path) -> None:
    folder = prepare(workspace / "second", "3.0.0", {"train": animals(3000), "test": animals(5)}, shards=8)
    ran = published("publish", str(folder))
    assert ran.code == 0
    assert ran.out.splitlines()[1] == "proved: the same content as animals:1.0.0: 1.0.1 would be enough"
    other = prepare(workspace / "third", "3.0.5", {"train": animals(3000), "test": animals(5)}, shards=2)
    assert published("publish", str(other), "--format", "json").json()["data"]["proof"] == (
        "the same records and features as animals:3.0.0: 3.0.1 would be enough"
    )


def test_a_number_between_two_others_is_held_against_both(published: Cli, workspace: Path) -> None:
    splits = {"train": animals(3000), "test": animals(5)}
    assert published("publish", str(prepare(workspace / "above", "1.2.0", splits))).code == 0
    more = {"train": tamed(3000), "test": tamed(5)}
    refused = published("publish", str(prepare(workspace / "between", "1.1.0", more, features=TAMED)))
    assert refused.code == 5
    assert refused.err == (
        "error: animals:1.1.0 is too small a number: "
        "in animals:1.2.0 the changes would exceed a MINOR version\n"
        "  feature tame was removed (Tensor bool)\n"
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
    data = published("publish", "--dry-run", str(folder), "--show", "1", "--format", "json").json()["data"]
    check_texts(GOLDEN / "the_dry_run_shows_everything_and_writes_nothing.txt", [ran.out, json.dumps(data, indent=1)])
    assert fingerprint_of_files(workspace) == before


def test_the_dry_run_of_an_allowed_number_says_what_would_do(published: Cli, workspace: Path) -> None:
    folder = prepare(workspace / "second", "1.1.0", {"train": animals(3000), "test": animals(5)}, shards=2)
    ran = published("publish", "--dry-run", str(folder))
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == (
        "animals:1.1.0 may be published: the same records and features as animals:1.0.0: 1.0.1 would be enough"
    )


def test_the_dry_run_of_a_first_version_has_nothing_to_compare(cli: Cli, workspace: Path) -> None:
    ran = cli("publish", "--dry-run", str(prepare(workspace / "first")))
    assert (ran.code, ran.out) == (0, "animals:1.0.0 may be published\n")
    assert cli("publish", "--dry-run", str(workspace / "first"), "--format", "json").json()["data"]["diff"] is None
    assert not (workspace / "datasets").exists()


def test_the_dry_run_of_what_is_published_would_do_nothing(published: Cli, workspace: Path) -> None:
    ran = published("publish", "--dry-run", str(workspace / "first"))
    assert (ran.code, ran.out) == (0, "animals:1.0.0 is already published: nothing would be done\n")
    other = prepare(workspace / "other", "1.0.0", {"train": animals(3000)})
    assert published("publish", "--dry-run", str(other)).code == 4


def test_diff_as_json_holds_changes_and_records(published: Cli, workspace: Path) -> None:
    relabelled = FeaturesDict({"name": Text(), "kind": ClassLabel(names=["cat", "fox"]), "tail": "float32"})
    examples = [{"name": f"animal {number}", "kind": number % 2, "tail": 1.5} for number in range(3000)]
    examples[7]["name"] = "x"
    folder = prepare(workspace / "second", "2.0.0", {"train": examples}, features=relabelled)
    assert published("publish", str(folder)).code == 0
    document = published("diff", "animals:1.0.0", "animals:2.0.0", "--format", "json").json()
    check_texts(GOLDEN / "diff_as_json_holds_changes_and_records.txt", [json.dumps(document, indent=1)])


def test_diff_of_one_version_says_so(published: Cli) -> None:
    assert published("diff", "animals", "animals:1.*").out == (
        "animals:1.0.0 and animals:1.0.0 have the same content\n"
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
        "  MAJOR  split train has other values of age, the first of them in records 1024..2048\n"
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
        "error: animals:1.0.1 is too small a number: since animals:1.0.0 the changes exceed a PATCH version\n"
        "  split train has other values of age, the first of them in records 1024..2048\n"
        "hint: The smallest number that may follow 1.0.0 is 2.0.0. It is already used: raise the highest version.\n"
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
