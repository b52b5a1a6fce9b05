from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import registry
from registry.catalog import schema
from registry.cli.main import run


def test_a_catalog_is_saved_and_restored(digits: Callable[..., Any], workspace: Path) -> None:
    saved = digits("backup", str(workspace / "catalog.gz"))
    head = registry.connect().verify_log().head
    lines = saved.out.splitlines()
    size = (workspace / "catalog.gz").stat().st_size / 1024
    assert lines[0] == f"saved 1 version, 4 shards, 2 events to {workspace / 'catalog.gz'} ({size:.1f} KiB)"
    assert lines[1:3] == [f"schema  {schema.HEAD}", f"head    {head}"]
    assert "copy the data directory after it" in saved.err

    url = f"sqlite:///{workspace / 'restored.db'}"
    restored = digits("restore", str(workspace / "catalog.gz"), "--catalog", url, "--anchor", head)
    assert restored.code == 0
    assert restored.out.splitlines() == [
        f"restored 1 version, 4 shards, 2 events to {url}",
        f"the log and the rows match: 2 events, head {head}",
    ]
    assert digits("verify", "digits", "--catalog", url).code == 0
    assert digits("db", "check", "--catalog", url).code == 0


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
        assert restored.log.head == catalog.verify_log().head == made.facts.head
    assert (seen[-1].stage, seen[-1].done) == ("restoring", sum(made.facts.rows.values()))
