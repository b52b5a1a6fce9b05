"""``registry verify --all``, what ``log verify`` leaves to it, and files that are gone when a drop is undone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_verify_all_names_every_version_that_is_damaged_and_goes_on(digits: Cli, workspace: Path) -> None:
    whole = digits("verify", "--all")
    assert (whole.code, whole.err) == (0, "")
    assert "digits:1.0.0: 4 of 4 shards are as published (1,797 examples, 335.9 KiB)\n" in whole.out

    shard = next(workspace.glob("**/digits-train.tfrecord-00001-of-00004"))
    shard.unlink()
    log = digits("log", "verify")
    assert log.code == 0  # the rows are as they were
    assert log.out.splitlines()[-1] == "No file was opened: registry verify --all compares the files with these rows."
    ran = digits("verify", "--all")
    assert ran.code == 5
    assert "digits:1.0.0: 3 of 4 shards are as published" in ran.out
    assert "  cannot read " in ran.out
    as_json = digits("verify", "--all", "--format", "json")
    assert as_json.code == 5
    data = as_json.json()["data"]
    assert data["num_sound"] == data["num_versions"] - 1
    (digits_row,) = [one for one in data["versions"] if one["dataset"] == "digits"]
    assert (digits_row["version"], digits_row["state"], digits_row["is_sound"]) == ("1.0.0", "supported", False)
    assert [fault["filename"] for fault in digits_row["faults"]] == [shard.name]


def test_verify_takes_one_version_or_all(digits: Cli) -> None:
    for arguments in ([], ["digits", "--all"]):
        ran = digits("verify", *arguments)
        assert (ran.code, ran.err) == (
            2,
            "error: name one version, or --all alone\nhint: Try: registry verify digits, or: registry verify --all\n",
        )


def test_a_dropped_version_whose_files_are_gone_is_not_brought_back(digits: Cli, workspace: Path) -> None:
    assert digits("drop", "digits:1.0.0", "--reason", "licence").code == 0
    assert digits("verify", "--all").out == "0 of 0 versions are as published\n"
    shard = next(workspace.glob("**/digits-train.tfrecord-00001-of-00004"))
    kept = shard.read_bytes()
    shard.unlink()
    for options in (["--dry-run"], []):
        ran = digits("drop", "digits:1.0.0", "--undo", *options)
        assert ran.code == 5
        assert ran.err == (
            "error: digits:1.0.0 cannot be restored: 1 of its 4 files are missing or changed: "
            f"{shard.name} is missing\n"
            f"hint: Put its files back into {shard.parent.as_uri()}, and try again. Nothing was changed.\n"
        )
    shard.write_bytes(kept)
    assert digits("drop", "digits:1.0.0", "--undo").code == 0
    assert digits("verify", "digits").code == 0
