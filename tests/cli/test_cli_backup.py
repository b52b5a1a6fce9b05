from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import registry
from registry.catalog import schema
from registry.cli.main import run
from registry.errors import BackupFormatError, NotStoredError


def test_a_catalog_is_saved_and_restored(digits: Callable[..., Any], workspace: Path) -> None:
    saved = digits("backup", str(workspace / "catalog.gz"))
    head = registry.connect().verify_log().head
    lines = saved.out.splitlines()
    size = (workspace / "catalog.gz").stat().st_size / 1024
    assert lines[0] == f"saved 1 version, 4 shards, 2 events to {workspace / 'catalog.gz'} ({size:.1f} KiB)"
    assert lines[1:3] == [f"schema  {schema.HEAD}", f"head    {head}"]
    assert "copy the data directory after the backup" in saved.err

    url = f"sqlite:///{workspace / 'restored.db'}"
    restored = digits("restore", str(workspace / "catalog.gz"), "--catalog", url, "--anchor", head)
    assert restored.code == 0
    assert restored.out.splitlines() == [
        f"restored 1 version, 4 shards, 2 events to {url}",
        f"the log and the rows match: 2 events, head {head}",
    ]
    assert digits("verify", "digits", "--catalog", url).code == 0
    assert digits("db", "check", "--catalog", url).code == 0


def test_a_catalog_with_rows_and_a_damaged_file_are_refused(digits: Callable[..., Any], workspace: Path) -> None:
    path = workspace / "catalog.gz"
    digits("backup", str(path))
    full = digits("restore", str(path))
    assert (full.code, full.err.splitlines()[0]) == (
        4,
        f"error: sqlite:///{workspace / 'catalog.db'} is not empty: it has rows in the table attachment",
    )
    path.write_bytes(path.read_bytes()[:-100])
    damaged = digits("restore", str(path), "--catalog", str(workspace / "new" / "catalog.db"))
    assert damaged.code == BackupFormatError.exit_code
    assert "the file ends too early: it was cut off" in damaged.err
    missing = digits(
        "restore", str(workspace / "no.gz"), "--catalog", str(workspace / "other" / "catalog.db"), "--format", "json"
    )
    assert missing.error()["code"] == NotStoredError.code
    assert not (workspace / "other").exists()
    assert not (workspace / "new" / "catalog.db").exists()


def test_a_wrong_anchor_is_refused_with_what_was_expected_and_found(
    digits: Callable[..., Any], workspace: Path
) -> None:
    path, head = workspace / "catalog.gz", registry.connect().verify_log().head
    digits("backup", str(path))
    wrong = digits("restore", str(path), "--catalog", str(workspace / "new.db"), "--anchor", "ab" * 32)
    assert (wrong.code, wrong.out) == (5, "")
    assert wrong.err == (
        f"error: {path} does not contain the anchor: expected an event with the hash {'ab' * 32}, found another "
        f"log, whose head is {head}\n"
        "hint: Nothing was restored. Compare the anchor with the head that `registry backup` printed for this file. "
        "The file may be older than the anchor, of another catalog, or forged: use another, or omit --anchor.\n"
    )
    assert not (workspace / "new.db").exists()


def test_dry_runs_say_what_would_be_done_and_change_nothing(digits: Callable[..., Any], workspace: Path) -> None:
    path, new = workspace / "catalog.gz", workspace / "folder/new.db"
    planned = digits("backup", str(path), "--dry-run")
    assert (planned.code, path.exists()) == (0, False)
    saved = digits("backup", str(path))
    assert planned.out.splitlines()[0].split(" (")[0] == f"would save 1 version, 4 shards, 2 events to {path}"
    assert saved.out.splitlines()[2] == planned.out.splitlines()[2]
    assert digits("backup", str(path), "--dry-run").err.startswith(f"error: {path} already exists\n")

    planned = digits("restore", str(path), "--catalog", str(new), "--dry-run")
    assert planned.out.splitlines()[0] == f"would restore 1 version, 4 shards, 2 events to sqlite:///{new}"
    assert not new.parent.exists()
    assert digits("restore", str(path), "--dry-run").code == 4
    assert digits("restore", str(path), "--catalog", str(new), "--dry-run", "--anchor", "ab" * 32).code == 5
    path.write_bytes(path.read_bytes()[:-100])
    assert digits("restore", str(path), "--catalog", str(new), "--dry-run").code == BackupFormatError.exit_code


def test_a_backup_goes_to_a_bucket_and_comes_back(digits: Callable[..., Any], workspace: Path, bucket: str) -> None:
    assert digits("backup", f"{bucket}/backups/catalog.gz").code == 0
    assert digits("backup", f"{bucket}/backups/catalog.gz").code == 1
    assert digits("restore", f"{bucket}/backups/catalog.gz", "--catalog", str(workspace / "new.db")).code == 0
    assert run(["show", "digits", "--catalog", str(workspace / "new.db")]) == 0


def test_an_open_catalog_is_saved_by_the_python_call(digits: Callable[..., Any], workspace: Path) -> None:
    seen: list[registry.Progress] = []
    with registry.connect() as catalog:
        made = catalog.backup(workspace / "catalog.gz", progress=seen.append)
        assert made.num_bytes == (workspace / "catalog.gz").stat().st_size
        assert seen[-1].done == sum(made.facts.rows.values())
        restored = registry.restore(workspace / "catalog.gz", workspace / "new.db", progress=seen.append)
        assert restored.facts == made.facts
        assert restored.log is not None
        assert restored.log.head == catalog.verify_log().head == made.facts.head
    assert (seen[-1].stage, seen[-1].done) == ("restoring", sum(made.facts.rows.values()))
