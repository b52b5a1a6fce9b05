"""Pin files checked on the command line: verify, audit, from-citation, signatures, locks and uses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from registry.storage import open_store
from registry.tfrecord import RecordWriter, read_records

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

SHARD = Path("datasets/digits/1.0.0/digits-train.tfrecord-00001-of-00004")


def change_value(shard: Path, place: int, *, right_checksum: bool) -> None:
    """Change one byte in the middle of one record, which is in its image; its checksum is made right, or left."""
    records = list(read_records(open_store(shard.parent), shard.name))
    start = sum(len(record) + 16 for record in records[:place]) + 12
    changed = bytearray(shard.read_bytes())
    changed[start + len(records[place]) // 2] ^= 1
    if not right_checksum:
        shard.write_bytes(changed)
        return
    records[place] = bytes(changed[start : start + len(records[place])])
    with shard.open("wb") as file:
        writer = RecordWriter(file)
        for record in records:
            writer.write(record)


@pytest.mark.parametrize("right_checksum", [False, True])
def test_verify_names_file_record_feature_and_both_digests(pins: Cli, workspace: Path, right_checksum: bool) -> None:
    change_value(SHARD, 7, right_checksum=right_checksum)
    ran = pins("pin", "verify", "dataset.lock.yaml", "--format", "json")
    assert ran.code == 5
    train, validation = ran.json()["data"]["pins"]
    assert validation["is_sound"], "no record of its files was touched"
    assert (train["is_sound"], train["proved_by"]) == (False, None)
    file, record = train["faults"]
    assert (file["filename"], file["record"]) == (SHARD.name, None)
    assert file["problem"] == f"{SHARD.name}: sha256 mismatch: expected {file['pinned'][7:]}, found {file['found'][7:]}"
    assert (record["filename"], record["record"], record["position"]) == (SHARD.name, 7, 456)
    assert record["code"] == ("records_mismatch" if right_checksum else "corrupt_record")
    assert list(record["features"]) == ["image"]
    assert record["pinned"] == "sha256:9ebb4d20a0109c8b02db79cd8192a09dc6413368a7684e52988c47cb2f6cb36f"
    problem = (
        f"{SHARD.name}: record 7 (number 456 of train[:80%]) differs in feature image: "
        f"sha256 mismatch: expected {record['pinned'][7:]}, found {record['found'][7:]}"
    )
    assert record["problem"] == problem + ("" if right_checksum else "; its checksum is wrong too")
    image = record["features"]["image"]
    assert image["pinned"] != image["found"]
    human = pins("pin", "verify", "dataset.lock.yaml", "train")
    assert (human.code, human.err) == (5, "")
    assert human.out == (
        f"train: digits:1.0.0 train[:80%] in {workspace / SHARD.parent} differs from the pin\n"
        f"  {file['problem']}\n"
        f"  {record['problem']}\n"
        f"    image: pinned {image['pinned']}, found {image['found']}\n"
    )
    read = pins("pin", "read", "dataset.lock.yaml", "train", "--ids")
    assert read.code == 0, "ids come from the pin alone"


def test_a_damaged_record_is_not_read_and_not_pinned(pins: Cli, workspace: Path) -> None:
    change_value(SHARD, 7, right_checksum=False)
    message = (
        f"error: {workspace / SHARD}: record 7 at byte 1344: its 177 bytes and their checksum disagree: "
        "one of them is damaged\n"
        "hint: The file is damaged or truncated. Fetch or build it again; `registry verify` names every bad shard.\n"
    )
    for arguments in (["read", "dataset.lock.yaml", "train"], ["create", "digits", "train", "-o", "new.yaml"]):
        ran = pins("pin", *arguments)
        assert (ran.code, ran.err) == (5, message)
    assert not Path("new.yaml").exists()


def test_what_the_catalog_does_not_promise_is_not_pinned(pins: Cli) -> None:
    change_value(SHARD, 7, right_checksum=True)
    ran = pins("pin", "create", "digits", "train", "-o", "new.yaml")
    assert ran.code == 5
    assert re.fullmatch(
        f"error: {SHARD.name}: sha256 mismatch: the catalog has [0-9a-f]{{64}}, found [0-9a-f]{{64}}\n"
        "hint: Damaged files cannot be pinned. To list all damaged shards: registry verify digits:1.0.0\n",
        ran.err,
    )
    assert not Path("new.yaml").exists()
