"""The servers of object stores that tests run on, one of each kind; ``tests/conftest.py`` starts them.

@on_clouds
def test_something(bucket: str) -> None: ...
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, Protocol

import pytest

from support.azure_server import AzureServer
from support.gcs_server import GcsServer
from support.s3_server import S3Server


class Cloud(Protocol):
    """A server of an object store on this machine: ``S3Server``, ``GcsServer`` or ``AzureServer``."""

    @property
    def scheme(self) -> str:
        """The scheme of its URLs."""

    port: int

    def environment(self, port: int | None = None) -> dict[str, str]:
        """The variables of a client that reaches the server at ``port``, its own or a proxy's."""

    def create_bucket(self, name: str) -> None:
        """Create an empty bucket."""


@contextmanager
def serving(scheme: str) -> Iterator[Cloud]:
    """Start a server for ``s3``, ``gs`` or ``az``, for scripts."""
    with ExitStack() as stack:
        if scheme == "az":
            yield stack.enter_context(AzureServer())
            return
        server = stack.enter_context(S3Server())
        yield stack.enter_context(GcsServer(server)) if scheme == "gs" else server


SERVERS: Final = [
    pytest.param("s3_server", id="s3"),
    pytest.param("gcs_server", id="gs"),
    pytest.param("azure_server", id="az", marks=pytest.mark.azure),
]
"""The fixtures of the servers, as parameters."""

on_clouds: Final = pytest.mark.parametrize("cloud", SERVERS, indirect=True)
"""Runs a test that uses ``bucket`` on each server."""


def enter(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> str:
    """Create a bucket, put its endpoint and credentials into the environment, and return its URL."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
        monkeypatch.delenv(name)
    for name, value in cloud.environment().items():
        monkeypatch.setenv(name, value)
    bucket = f"test-{uuid.uuid4().hex}"
    cloud.create_bucket(bucket)
    return f"{cloud.scheme}://{bucket}"
