"""The data directory of a catalog on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.catalog_server import PostgresServer

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


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
    assert "records no data directory, and other clients cannot read a folder of this machine" in refused.err
    postgres_server.give_back(url)


def test_a_server_records_a_data_directory_loudly(cli: Cli, postgres_server: PostgresServer, tmp_path: Path) -> None:
    url = postgres_server.take_catalog()
    done = cli("config", "data-dir", "s3://bucket/x", "--catalog", url)
    assert (done.code, done.out) == (0, "s3://bucket/x is the data directory\n")
    assert done.err == "note: s3://bucket/x was not opened, so it was not checked that it exists and can be read\n"
    postgres_server.give_back(url)
    url = postgres_server.take_catalog()
    built = cli("build", "digits", "--catalog", url, "--data-dir", str(tmp_path / "data"))
    assert built.code == 0
    assert f"note: the catalog now records {tmp_path}/data as the data directory for all clients\n" in built.err
    postgres_server.give_back(url)
    url = postgres_server.take_catalog()
    built = cli("build", "digits", "--catalog", url, "--data-dir", str(tmp_path / "data"), "--format", "json")
    assert built.json()["data"]["recorded_data_dir"] == f"{tmp_path}/data"
    postgres_server.give_back(url)


def test_a_project_that_is_restored_to_a_server_has_no_data_directory(
    digits: Cli, cli: Cli, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url = postgres_server.create_database()
    assert digits("backup", str(tmp_path / "backup.gz")).code == 0
    done = cli("restore", str(tmp_path / "backup.gz"), "--catalog", url)
    assert done.err.endswith(
        "note: the catalog records no data directory; to record the place of the files:\n"
        f"  registry config data-dir URL --catalog '{url}'\n"
    )
