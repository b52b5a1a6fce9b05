"""The data directory of a catalog on the command line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from catalog_server import PostgresServer

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_the_data_directory_is_shown_recorded_and_refused(digits: Cli, workspace: Path) -> None:
    mine = str(workspace / "datasets")
    assert digits("config", "data-dir").out == f"{mine}\n"
    assert digits("db", "status", "--format", "json").json()["data"]["data_dir"] == mine
    assert digits("db", "status").out.splitlines()[-1] == f"data directory  {mine}"
    new = str(workspace / "new place")
    refused = digits("config", "data-dir", new)
    assert (refused.code, refused.out) == (4, "")
    assert refused.err == (
        f"error: {new} has no files of digits:1.0.0\n"
        "hint: Copy the files there first, then run the same command again. If they are lost, add --force.\n"
    )
    shutil.copytree(mine, new)
    assert digits("config", "data-dir", new, "--dry-run").out == (
        f"{new} would be the data directory, instead of {mine}\n"
    )
    assert digits("config", "data-dir", new).out == f"{new} is the data directory, instead of {mine}\n"
    assert digits("config", "data-dir", new).out == f"{new} is the data directory already\n"
    told = digits("config", "data-dir", "--format", "json").json()
    assert told["schema"] == "registry.config.data-dir/1"
    assert told["data"] == {"data_dir": new, "before": None, "is_change": False, "dry_run": False}
    (workspace / "rows.csv").write_text("a\n1\n")
    other = digits("add", str(workspace / "rows.csv"), "--as", "table", "--data-dir", mine)
    assert (other.code, other.out) == (4, "")
    assert other.err.startswith(
        f"error: the data directory that was named is {mine}, but the catalog's data directory is {new}\n"
        "hint: Leave it out to publish to the catalog's own data directory.\n"
    )
    assert digits("verify", "digits", "--data-dir", mine).code == 0
    assert digits("log", "--action", "data-dir").out.splitlines()[-1].endswith(f"datasets -> {new}")


def test_before_a_publication_no_data_directory_is_recorded(cli: Cli, empty: Cli, workspace: Path) -> None:
    assert empty("config", "data-dir").out == "none recorded yet; the first publication will record one\n"
    assert empty("db", "status").out.splitlines()[-1] == "data directory  none recorded"
    assert cli("config", "data-dir", "s3://bucket/x", "--catalog", str(workspace / "no/c.db"), "--dry-run").code == 0
    assert not (workspace / "no").exists()
    assert cli("config", "data-dir", "s3://bucket/x", "--catalog", str(workspace / "new.db")).code == 0
    shown = cli("config", "data-dir", "--catalog", str(workspace / "new.db"))
    assert shown.out == "s3://bucket/x\n"


def test_an_empty_catalog_on_a_server_does_not_suggest_the_example(cli: Cli, postgres_server: PostgresServer) -> None:
    url = postgres_server.take_catalog()
    step = "Publish a first dataset: registry add SOURCE --as NAME"
    for command, what in (("list", "catalog"), ("log", "log")):
        assert cli(command, "--catalog", url).err == f"The {what} is empty. {step}\n"
    assert cli("search", "digits", "--catalog", url).err == f"The catalog is empty. {step}\n"
    assert cli("show", "digits", "--catalog", url).err == (
        "error: no dataset 'digits' in the catalog\nhint: Build it with: registry build digits\n"
    )
    refused = cli("quickstart", "--catalog", url)
    assert (refused.code, refused.out) == (2, "")
    assert "has no data directory: others could not read files in a folder of this machine" in refused.err
    postgres_server.give_back(url)
