"""An object store whose server fails raises typed errors after few requests, and never returns half an object."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import warm_python
from support.fault_proxy import Fault, FaultProxy, Request
from support.levels import cases
from support.s3_server import S3Server

from registry.errors import (
    AlreadyStoredError,
    NotStoredError,
    RegistryError,
    StorageError,
    StorageUnavailableError,
    UsageError,
)
from registry.storage import Store, open_store

LARGE = 9 * 2**20
"""Bytes of an object that is uploaded in two parts, and read by three requests."""

HINT = (
    "It was tried 3 times. Try again later. REGISTRY_CONNECT_TIMEOUT, REGISTRY_READ_TIMEOUT, REGISTRY_RETRY_TIMEOUT "
    "and REGISTRY_TRIES set how long to wait."
)
REASONS: dict[Fault, tuple[str, int]] = {
    "drop": ("the connection broke off", errno.ECONNRESET),
    "cut": ("the connection broke off", errno.ECONNRESET),
    "truncate": ("the connection broke off", errno.ECONNRESET),
    "error": ("the server answered 500 Internal Server Error", errno.EIO),
    "slow down": ("the server answered 503 Service Unavailable", errno.EIO),
    "too many": ("the server answered 429 Too Many Requests", errno.EIO),
    "silence": ("the server did not answer in time", errno.ETIMEDOUT),
}


@dataclass(frozen=True)
class Operation:
    """A call of a store, and the request that it sends."""

    do: Callable[[Store], object]
    result: object
    verb: str
    name: str
    is_request: Callable[[Request], bool]


def put(store: Store, name: str, content: bytes, *, overwrite: bool = False) -> None:
    with store.create(name, overwrite=overwrite) as file:
        file.write(content)


def create_and_read(store: Store, content: bytes) -> bytes:
    put(store, "new", content)
    return store.read_bytes("new")


def copy_and_read(store: Store) -> bytes:
    store.copy_to("folder/file", "copy")
    return store.read_bytes("copy")


def remove_and_list(store: Store) -> list[str]:
    store.remove_tree("folder")
    return store.list()


def is_get(request: Request) -> bool:
    return request.method == "GET" and "list-type" not in request.query


OPERATIONS = {
    "open and read": Operation(
        lambda store: store.open("folder/file").read(), b"content", "read", "folder/file", is_get
    ),
    "size": Operation(
        lambda store: store.size("folder/file"), 7, "read", "folder/file", lambda request: request.method == "HEAD"
    ),
    "exists": Operation(
        lambda store: store.exists("folder/file"), True, "read", "folder/file", lambda request: request.method == "HEAD"
    ),
    "list": Operation(
        lambda store: store.list("folder"),
        ["folder/file"],
        "list",
        "folder",
        lambda request: "list-type" in request.query,
    ),
    "create": Operation(
        lambda store: create_and_read(store, b"new"), b"new", "write", "new", lambda request: request.method == "PUT"
    ),
    "copy": Operation(
        copy_and_read,
        b"content",
        "write",
        "copy",
        lambda request: request.method == "POST" and "uploadId" in request.query,
    ),
    "remove": Operation(
        remove_and_list, [], "remove", "folder", lambda request: request.method == "POST" and "delete" in request.query
    ),
}


@pytest.fixture
def store(bucket: str, fault_proxy: FaultProxy) -> Store:
    """A store behind the proxy that holds one object, ``folder/file``."""
    store = open_store(f"{bucket}/data")
    put(store, "folder/file", b"content")
    fault_proxy.reset()
    return store


@pytest.fixture(params=OPERATIONS)
def operation(request: pytest.FixtureRequest) -> Operation:
    return OPERATIONS[request.param]


def faulty(proxy: FaultProxy) -> int:
    return sum(request.fault is not None for request in proxy.requests)


@pytest.mark.parametrize("fault", cases(REASONS, everyday=2))
def test_a_fault_that_stays_is_a_typed_error_after_three_requests(
    store: Store, fault_proxy: FaultProxy, operation: Operation, fault: Fault
) -> None:
    fault_proxy.inject(fault, when=operation.is_request)
    with pytest.raises(StorageUnavailableError) as caught:
        operation.do(store)
    error, (reason, number), place = caught.value, REASONS[fault], store.locate(operation.name)
    assert str(error) == f"cannot {operation.verb} {place}: {reason}"
    assert (error.code, error.exit_code, error.hint, error.errno) == ("storage_unavailable", 75, HINT, number)
    assert error.details == {"path": place, "errno": number, "doing": operation.verb, "tries": 3}
    assert faulty(fault_proxy) == 3
    fault_proxy.reset()
    try:
        assert operation.do(store) == operation.result
    except AlreadyStoredError:  # the server did it, and could not say so
        assert fault in ("cut", "truncate")
        assert store.read_bytes(operation.name) == operation.result


@pytest.mark.parametrize("fault", cases(REASONS, everyday=3))
def test_a_fault_that_passes_is_not_noticed(
    store: Store, fault_proxy: FaultProxy, operation: Operation, fault: Fault
) -> None:
    fault_proxy.inject(fault, when=operation.is_request, times=1)
    assert operation.do(store) == operation.result
    assert faulty(fault_proxy) == 1


def test_a_forbidden_request_is_not_retried(store: Store, fault_proxy: FaultProxy, operation: Operation) -> None:
    fault_proxy.inject("forbidden", when=operation.is_request)
    with pytest.raises(StorageError) as caught:
        operation.do(store)
    error, place = caught.value, store.locate(operation.name)
    assert type(error) is StorageError
    assert str(error) == f"cannot {operation.verb} {place}: Permission denied (the server answered 403 Forbidden)"
    assert error.hint == "The store refuses these credentials. Check them, and their permissions for this bucket."
    assert (error.code, error.exit_code, error.errno) == ("storage", 1, errno.EACCES)
    assert faulty(fault_proxy) == 1


def test_bytes_damaged_in_transit_are_requested_again(store: Store, fault_proxy: FaultProxy) -> None:
    fault_proxy.inject("corrupt", when=is_get, times=1)
    assert store.read_bytes("folder/file") == b"content"
    fault_proxy.reset()
    fault_proxy.inject("corrupt", when=is_get)
    with pytest.raises(StorageUnavailableError) as caught:
        store.read_bytes("folder/file")
    assert str(caught.value) == (
        f"cannot read {store.locate('folder/file')}: the server sent bytes that do not match their ETag"
    )
    assert faulty(fault_proxy) == 2 * 3


def test_bytes_that_are_copied_have_a_tag_that_is_looked_at_too(store: Store, fault_proxy: FaultProxy) -> None:
    store.copy_to("folder/file", "copy")
    fault_proxy.inject("corrupt", when=is_get, times=1)
    assert store.read_bytes("copy") == b"content"
    assert faulty(fault_proxy) == 1


@pytest.mark.parametrize("tries", ["1", "3"])
def test_a_tag_that_is_not_a_digest_is_trusted_after_the_same_bytes_arrived_twice(
    store: Store, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, tries: str
) -> None:
    monkeypatch.setenv("REGISTRY_TRIES", tries)
    store = open_store(store.url)
    fault_proxy.inject("retag")
    assert store.read_bytes("folder/file") == b"content"
    assert sum(map(is_get, fault_proxy.requests)) == 2
    assert store.read_bytes("folder/file") == b"content"
    assert sum(map(is_get, fault_proxy.requests)) == 3


def test_a_weak_etag_proves_nothing_and_does_not_stop_readers(store: Store, fault_proxy: FaultProxy) -> None:
    content = os.urandom(LARGE)
    put(store, "large", content)
    fault_proxy.inject("weaken")
    assert store.entity_tag("large") is None
    assert store.stamp("large") == str(LARGE)
    assert store.read_bytes("large", limit=LARGE) == content


@pytest.mark.parametrize("fault", ["truncate", "drop"])
def test_a_large_object_is_never_returned_truncated(store: Store, fault_proxy: FaultProxy, fault: Fault) -> None:
    content = os.urandom(LARGE)
    put(store, "large", content)
    fault_proxy.reset()
    fault_proxy.inject(fault, when=is_get, times=2)
    assert store.open("large").read() == content
    fault_proxy.reset()
    with store.open("large") as file:
        assert file.read(100) == content[:100]
        fault_proxy.inject(fault, when=is_get)
        with pytest.raises(StorageUnavailableError):
            file.read()


@pytest.mark.parametrize("fault", cases(["drop", "cut", "truncate"], everyday=1))
def test_one_fault_at_any_request_of_a_large_upload_is_not_noticed(
    store: Store, fault_proxy: FaultProxy, fault: Fault
) -> None:
    content, overwrite = os.urandom(LARGE), fault == "drop"
    put(store, "large", content, overwrite=overwrite)
    num_requests = fault_proxy.count()
    for index in range(num_requests):
        if not overwrite:
            store.remove_tree("large")
        fault_proxy.reset()
        fault_proxy.inject(fault, at=index)
        put(store, "large", content, overwrite=overwrite)
        assert faulty(fault_proxy) == 1
        fault_proxy.reset()
        assert store.read_bytes("large") == content
        assert store.folders() == ["folder"]
        assert [name for name in store.list() if name != "folder/file"] == ["large"]


def test_an_upload_that_fails_leaves_no_object(store: Store, fault_proxy: FaultProxy) -> None:
    fault_proxy.inject("error", when=lambda request: "partNumber=2" in request.query)
    with pytest.raises(StorageUnavailableError) as caught:
        put(store, "large", bytes(LARGE))
    assert str(caught.value) == (f"cannot write {store.locate('large')}: the server answered 500 Internal Server Error")
    assert faulty(fault_proxy) == 3
    assert store.list() == ["folder/file"]


def test_an_upload_that_fails_is_not_taken_for_the_object_that_it_should_replace(
    store: Store, fault_proxy: FaultProxy
) -> None:
    put(store, "large", bytes(LARGE))
    fault_proxy.inject("error", when=lambda request: "partNumber=2" in request.query)
    with pytest.raises(StorageUnavailableError):
        put(store, "large", b"1" * LARGE, overwrite=True)
    fault_proxy.reset()
    assert store.read_bytes("large") == bytes(LARGE)
    fault_proxy.inject("cut", when=lambda request: request.method == "POST" and "uploadId" in request.query, times=1)
    put(store, "large", b"2" * LARGE, overwrite=True)
    assert store.read_bytes("large") == b"2" * LARGE


def test_a_name_that_somebody_else_took_while_our_answer_was_lost_is_taken(
    store: Store, fault_proxy: FaultProxy
) -> None:
    fault_proxy.inject("drop", when=lambda request: request.method == "PUT", times=1)
    fault_proxy.inject(
        "hook",
        when=lambda request: request.method == "PUT",
        times=1,
        hook=lambda: put(open_store(store.url), "new", b"the same bytes"),
    )
    with pytest.raises(AlreadyStoredError):
        put(store, "new", b"the same bytes")
    assert [request.fault for request in fault_proxy.requests if request.method == "PUT"] == ["drop", "hook", None]


def test_an_unavailable_server_gets_one_try_until_it_responds(store: Store, fault_proxy: FaultProxy) -> None:
    fault_proxy.inject("drop", times=4)
    for num_requests in (3, 4):
        with pytest.raises(StorageUnavailableError):
            store.size("folder/file")
        assert fault_proxy.count() == num_requests
    assert store.size("folder/file") == 7
    fault_proxy.reset()
    fault_proxy.inject("drop", times=2)
    assert store.size("folder/file") == 7


def test_a_server_that_is_not_there_is_a_typed_error(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageUnavailableError) as caught:
        open_store(bucket).size("file")
    assert str(caught.value) == f"cannot read {bucket}/file: the server cannot be reached"
    assert caught.value.errno == errno.ECONNREFUSED


def test_a_bucket_that_is_not_there_is_named(bucket: str) -> None:
    store = open_store(f"{bucket}-other")
    for ask in (store.list, lambda: put(store, "name", b"x"), lambda: store.remove_tree("name")):
        with pytest.raises(NotStoredError) as caught:
            ask()
        assert str(caught.value).endswith(f": the bucket '{bucket.removeprefix('s3://')}-other' does not exist")
        assert caught.value.hint == "Check its name, and AWS_ENDPOINT_URL if the store is not Amazon's."


def test_without_credentials_the_variables_are_named(
    bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StorageError) as caught:
        open_store(bucket).size("file")
    assert str(caught.value) == f"cannot read {bucket}/file: no credentials were found"
    assert caught.value.hint == (
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE. "
        "For a public bucket set AWS_SKIP_SIGNATURE=true."
    )


def test_a_profile_gives_credentials_region_and_endpoint(
    bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text("[lab]\naws_access_key_id = tester\naws_secret_access_key = secret\n")
    (folder / "config").write_text(
        f"[profile lab]\nregion = eu-west-1\nendpoint_url = {os.environ['AWS_ENDPOINT_URL']}\n"
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    store = open_store(bucket)
    put(store, "name", b"x")
    assert store.read_bytes("name") == b"x"


def test_a_public_bucket_is_read_without_credentials(
    bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = {"x-amz-acl": "public-read"}
    assert s3_server.request("PUT", f"/{bucket.removeprefix('s3://')}/name", b"x", **public)[0] == 200
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert open_store(bucket).read_bytes("name") == b"x"


@pytest.mark.parametrize("name", ["REGISTRY_READ_TIMEOUT", "REGISTRY_RETRY_TIMEOUT", "REGISTRY_TRIES"])
@pytest.mark.parametrize("value", ["soon", "-1", "0", "nan"])
def test_a_limit_that_is_not_a_number_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError) as caught:
        open_store("s3://bucket")
    assert str(caught.value) == f"{name} is {value!r}: expected a positive number"
    assert (caught.value.hint or "").startswith(f"Set it to a number, e.g. {name}=")


def test_no_error_of_the_client_is_passed_on_untyped(store: Store, fault_proxy: FaultProxy) -> None:
    """Damage of any kind, at any request of all that is done here: registry errors, or right results."""
    codes: set[int] = set()
    for index in range(12):
        fault_proxy.reset()
        fault_proxy.inject("corrupt", at=index)
        try:
            store.list()
            put(store, f"new{index}", b"x" * 1000)
            store.copy_to("folder/file", f"copy{index}")
            store.remove_tree(f"copy{index}")
            assert store.read_bytes("folder/file") == b"content"
        except RegistryError as error:
            codes.add(error.exit_code)
    assert codes <= {1, 75}


def test_ctrl_c_ends_a_request_to_a_silent_server(store: Store, fault_proxy: FaultProxy) -> None:
    fault_proxy.inject("silence")
    script = f"""
import time
from registry.storage import open_store
store = open_store({store.url!r})
print("asking", flush=True)
begun = time.monotonic()
try:
    store.size("folder/file")
except KeyboardInterrupt:
    print("interrupted")
"""
    environment = os.environ | {"REGISTRY_READ_TIMEOUT": "300", "REGISTRY_RETRY_TIMEOUT": "300"}
    with warm_python.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout.readline() == "asking\n"
        wait_for_request(fault_proxy)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=60)  # far less than the server would be waited for
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert (out, err, process.returncode) == ("interrupted\n", "", 0)


def wait_for_request(proxy: FaultProxy) -> None:
    """Wait, for a minute at most, until the proxy has seen a request."""
    for _ in range(1200):
        if proxy.count():
            return
        proxy.closed.wait(0.05)
    pytest.fail("no request came")
