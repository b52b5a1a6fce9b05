"""docs/service.md: its commands print what they say, the last of them with PostgreSQL, a bucket and three people."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from end_to_end.test_deployment import AS_SUPERUSER, run_grants, statements
from end_to_end.test_documents import blocks, check_console, run, variables
from support.catalog_server import PostgresServer
from support.s3_server import S3Server

from registry.catalog import schema
from registry.storage import open_store

DOCUMENT = "docs/service.md"
PUBLIC_URL = "https://catalog.example.org/"
ADMIN = "postgresql://registry_admin@db.example.org/datasets"
DATABASE = "postgresql://registry_service@db.example.org/datasets"


@pytest.fixture
def team(
    postgres_server: PostgresServer, s3_server: S3Server, bucket: str, tmp_path: Path
) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """The environment of a newcomer, and what stands for the names of the page: its service is at a free port."""
    for statement in (*statements(AS_SUPERUSER), *blocks("sql", DOCUMENT)):
        postgres_server.execute(statement.rstrip(";\n"))
    schema.upgrade(postgres_server.url("datasets", "registry_admin"))
    run_grants(postgres_server.url("datasets", "registry_admin"))
    s3_server.create_bucket("team-datasets")
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ports.append(str(listener.getsockname()[1]))
    names = {
        DATABASE: postgres_server.url("datasets", "registry_service"),
        ADMIN: postgres_server.url("datasets", "registry_admin"),
        PUBLIC_URL: f"http://127.0.0.1:{ports[1]}/",
        "18766": ports[1],
        "18765": ports[0],
    }
    yield variables(tmp_path) | {"XDG_DATA_HOME": str(tmp_path / "home")}, names
    for file in tmp_path.glob("*.pid"):
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)
    for name in open_store("s3://team-datasets").list():
        open_store("s3://team-datasets").remove(name)
    s3_server.request("DELETE", "/team-datasets")
    postgres_server.execute("DROP DATABASE datasets WITH (FORCE)")
    postgres_server.execute(
        "DROP ROLE registry_service, registry_admin, registry_curator, registry_publisher, registry_reader"
    )


def test_the_commands_print_what_they_say(team: tuple[dict[str, str], dict[str, str]], tmp_path: Path) -> None:
    environment, names = team
    (settings,) = (text for text in blocks("yaml", DOCUMENT) if "team-datasets" in text)
    for name, stand_in in names.items():
        settings = settings.replace(name, stand_in)
    (tmp_path / "service.yaml").write_text(settings)
    check_console(DOCUMENT, 21, environment, tmp_path, names)
    assert run(f"registry log verify --catalog '{names[DATABASE]}' --format json", environment, tmp_path)
