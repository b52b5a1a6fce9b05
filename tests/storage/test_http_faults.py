"""A store on a web server handles failures of the server as an object store does, and resumes downloads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from support import http_servers
from support.fault_proxy import Fault, FaultProxy
from support.golden import check_errors
from support.http_servers import running
from support.web_server import serve

from registry.errors import NotStoredError, StorageError, StorageUnavailableError
from registry.storage import Store, open_store

GOLDEN = Path(__file__).with_name("golden")


CONTENT = os.urandom(3_000_000)
REASONS: dict[Fault, str] = {
    "drop": "the server cannot be reached: Server disconnected",
    "cut": "the server cannot be reached: Server disconnected",
    "error": "the server answered 500 Internal Server Error",
    "slow down": "the server answered 503 Service Unavailable",
    "too many": "the server answered 429 Too Many Requests",
    "silence": "the server sent nothing for 0.5 seconds",
}


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A proxy before a web server that holds ``file`` and knows ranges."""
    monkeypatch.setenv("REGISTRY_READ_TIMEOUT", "0.5")
    monkeypatch.setattr("registry.storage.network._FIRST_PAUSE_SECONDS", 0.01)
    (tmp_path / "file").write_bytes(CONTENT)
    with serve(tmp_path, "ranges") as url, FaultProxy(int(url.rpartition(":")[2])) as proxy:
        yield proxy


@pytest.fixture
def store(proxy: FaultProxy) -> Store:
    return open_store(proxy.url)


@pytest.mark.parametrize("fault", REASONS)
@pytest.mark.parametrize("asked", ["size", "exists", "open and read"])
def test_a_fault_that_stays_is_a_typed_error_after_three_requests(
    store: Store, proxy: FaultProxy, asked: str, fault: Fault
) -> None:
    method = "GET" if asked == "open and read" else None
    proxy.inject(fault, when=lambda request: method in (None, request.method))
    do = {"size": store.size, "exists": store.exists, "open and read": store.read_bytes}[asked]
    with pytest.raises(StorageUnavailableError) as caught:
        do("file")
    assert str(caught.value) == f"cannot read {store.url}/file: {REASONS[fault]}"
    assert (caught.value.code, caught.value.exit_code) == ("storage_unavailable", 75)
    assert (caught.value.hint or "").startswith("It was tried 3 times. Try again later. ")
    # if a HEAD request returns an error, a GET request decides
    twice = asked != "open and read" and fault in ("error", "slow down", "too many")
    assert sum(request.fault is not None for request in proxy.requests) == (6 if twice else 3)


@pytest.mark.parametrize("fault", [*REASONS, "truncate"])
def test_a_fault_that_passes_is_not_noticed(store: Store, proxy: FaultProxy, fault: Fault) -> None:
    proxy.inject(fault, when=lambda request: request.method == "GET", times=1)
    with store.open("file") as file:
        assert file.read() == CONTENT


def test_a_response_that_ends_early_is_continued_and_never_the_whole(store: Store, proxy: FaultProxy) -> None:
    proxy.inject("truncate", when=lambda request: request.method == "GET", times=1)
    with store.open("file") as file:
        assert file.read() == CONTENT
    assert proxy.count("GET") == 2
    proxy.inject("truncate", when=lambda request: request.method == "GET")
    with store.open("file") as file, pytest.raises(StorageUnavailableError) as caught:
        file.read()  # each response brings half of the rest, until nothing is left to halve
    assert str(caught.value) == f"cannot read {store.url}/file: the server ended the response too early"


def test_a_forbidden_request_is_not_retried(store: Store, proxy: FaultProxy) -> None:
    proxy.inject("forbidden")
    with pytest.raises(StorageError) as caught:
        store.size("file")
    assert type(caught.value) is StorageError
    assert str(caught.value) == f"cannot read {store.url}/file: the server answered 403 Forbidden"
    assert [request.method for request in proxy.requests] == ["HEAD", "GET"]


def test_a_missing_file_is_missing(store: Store, proxy: FaultProxy) -> None:
    with pytest.raises(NotStoredError):
        store.size("missing")
    assert not store.exists("missing")
    assert store.exists("file")


def test_a_redirect_to_something_else_than_a_web_server_is_not_followed() -> None:
    class Redirecting(http_servers.Handler):
        target: str | None

        def do_GET(self) -> None:
            self.answer(302, {"Location": self.target} if self.target is not None else {})

        do_HEAD = do_GET

    with running(Redirecting) as port:
        store = open_store(f"http://127.0.0.1:{port}")

        def ask(function: Callable[[str], object], target: str | None) -> None:
            Redirecting.target = target
            function("x.csv")

        targets = ["file:///etc/passwd", "ftp://example.org/x", "data:text/csv,a", "/x.csv", None]
        for function in (store.size, store.read_bytes):
            calls = (partial(ask, function, target) for target in targets)
            check_errors(GOLDEN / "http_redirects.txt", calls, folder=store.url)
