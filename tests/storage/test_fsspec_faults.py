"""Whatever a file system of fsspec raises, and whichever protocol is named, a caller sees an error of the registry."""

from __future__ import annotations

import socket
import sys

import pytest
from fsspec.registry import known_implementations
from property.test_catalog_url_laws import everything_of

from registry.errors import RegistryError, StorageError
from registry.storage import open_store

# Web servers and buckets have stores of their own, a file is a file of this machine; the others need a server.
_OWN = {"http", "https", "s3", "s3a", "gs", "az", "file", "local"}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a network."""

    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)


@pytest.mark.parametrize("protocol", sorted(set(known_implementations) - _OWN))
def test_each_protocol_of_fsspec_fails_with_an_error_of_the_registry(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    for rest in ("", "x", "a/b", "datasets/../x", "ann:hunter2@h/x"):
        for call in (
            lambda url: open_store(url).list(),
            lambda url: open_store(url).open("x"),
            lambda url: open_store(url).exists("x"),
            lambda url: open_store(url).size("x"),
        ):
            said = ""
            try:
                call(f"{protocol}://{rest}")
            except RegistryError as error:
                said = everything_of(error)
            assert "hunter2" not in said
    assert unraisable == []


@pytest.mark.parametrize(
    "url",
    [
        *("http://[::1/x.csv", "https://h:99999/x", "https://h:abc/x", "hf://x", "hf://datasets/../x", "github://a/b"),
        *("reference://x", "jupyter://x", "dbfs://x", "data://x", "ftp://", f"http://{'a' * 300}/x.csv"),
    ],
)
def test_a_url_that_cannot_be_opened_is_a_typed_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_TRIES", "1")
    monkeypatch.setenv("REGISTRY_RETRY_TIMEOUT", "0.2")
    for call in (lambda: open_store(url).list(), lambda: open_store(url).open("x")):
        with pytest.raises(StorageError):
            call()
