"""Behaviour of object stores only: names decided by the store, copies within it, tags of bytes, forks."""

from __future__ import annotations

import json
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support import warm_python
from support.clouds import on_clouds
from support.fault_proxy import FaultProxy, Request
from support.golden import check_errors
from support.s3_server import S3Server

from registry.errors import (
    AlreadyStoredError,
    NotStoredError,
    ReservationLostError,
    StorageError,
    StorageUnavailableError,
)
from registry.storage import FolderExistsError, Store, open_store
from registry.storage.names import Owner

GOLDEN = Path(__file__).with_name("golden")

SMALL, LARGE = 1000, 9 * 2**20
"""Written by one request, and by an upload in parts."""


@pytest.fixture
def objects(bucket: str) -> Store:
    """An empty object store."""
    return open_store(f"{bucket}/data")


def put(store: Store, name: str, content: bytes = b"content", *, overwrite: bool = False) -> None:
    with store.create(name, overwrite=overwrite) as file:
        file.write(content)


@on_clouds
@pytest.mark.parametrize("num_bytes", [SMALL, LARGE])
def test_only_one_of_many_concurrent_creators_of_a_name_succeeds(objects: Store, num_bytes: int) -> None:
    barrier = threading.Barrier(8)

    def create(writer: int) -> bool:
        try:
            with objects.create("name") as file:
                file.write(bytes([writer]) * num_bytes)
                barrier.wait(60)  # all have seen that it is free
        except AlreadyStoredError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))
    assert sum(won) == 1
    assert objects.read_bytes("name") == bytes([won.index(True)]) * num_bytes
    assert objects.folders() == []
    assert objects.list() == ["name"]


@on_clouds
def test_only_one_of_many_concurrent_copies_to_a_name_succeeds(objects: Store) -> None:
    for writer in range(8):
        put(objects, f"staged/{writer}", bytes([writer]) * SMALL)
    barrier = threading.Barrier(8)

    def copy(writer: int) -> bool:
        barrier.wait(60)
        try:
            objects.copy_to(f"staged/{writer}", "name")
        except AlreadyStoredError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(copy, range(8)))
    assert sum(won) == 1
    assert objects.read_bytes("name") == bytes([won.index(True)]) * SMALL


@on_clouds
@pytest.mark.parametrize("num_bytes", [0, SMALL, LARGE])
def test_a_copy_within_the_store_sends_no_bytes(bucket: str, fault_proxy: FaultProxy, num_bytes: int) -> None:
    store = open_store(f"{bucket}/data")
    put(store, "one", b"x" * num_bytes)
    fault_proxy.reset()
    store.copy_to("one", "folder/two")
    assert store.read_bytes("folder/two") == b"x" * num_bytes
    assert max(len(request.body) for request in fault_proxy.requests) < 1000


@on_clouds
@pytest.mark.parametrize("num_bytes", [SMALL, LARGE])
def test_an_object_is_replaced_on_request(objects: Store, num_bytes: int) -> None:
    put(objects, "name", b"old")
    put(objects, "name", b"x" * num_bytes, overwrite=True)
    assert objects.read_bytes("name") == b"x" * num_bytes
    assert objects.list() == ["name"]


@on_clouds
def test_the_tag_of_an_object_is_the_tag_of_its_bytes(objects: Store) -> None:
    put(objects, "name", b"old")
    before = objects.entity_tag("name"), objects.stamp("name")
    assert before == (objects.entity_tag("name"), objects.stamp("name"))
    assert before[0]
    put(objects, "name", b"new", overwrite=True)
    assert objects.entity_tag("name") != before[0]
    assert objects.stamp("name") != before[1]
    with pytest.raises(NotStoredError):
        objects.entity_tag("missing")


def test_local_files_and_those_of_fsspec_have_no_tags(tmp_path: Path) -> None:
    for store in (open_store(tmp_path), open_store(f"memory://{tmp_path.name}")):
        put(store, "name")
        assert store.entity_tag("name") is None


@on_clouds
def test_an_object_that_is_replaced_while_it_is_read_is_an_error_and_no_mixture(objects: Store) -> None:
    put(objects, "name", b"a" * LARGE)
    with objects.open("name") as file:
        assert file.read(10) == b"a" * 10
        put(objects, "name", b"b" * LARGE, overwrite=True)
        with pytest.raises(StorageError) as caught:
            file.read()
    assert str(caught.value) == f"cannot read {objects.locate('name')}: it was replaced while it was read"
    assert caught.value.hint == "Read it again. `registry verify` checks whether it is the published file."


@on_clouds
def test_a_committed_folder_takes_nobody_elses_names(objects: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with objects.stage("mnist/1.0.0") as staged:
        put(staged.store, "a")
        put(staged.store, "b")
        create_from = type(objects).create_from

        def create_late(store: Store, name: str, *arguments: Any, **options: Any) -> str | None:
            if name.endswith("/b"):
                put(objects, "mnist/1.0.0/b", b"somebody else's")
            return create_from(store, name, *arguments, **options)

        monkeypatch.setattr(type(objects), "create_from", create_late)
        with pytest.raises(FolderExistsError):
            staged.commit()
    assert objects.list() == ["mnist/1.0.0/b"]
    assert objects.read_bytes("mnist/1.0.0/b") == b"somebody else's"


@on_clouds
@pytest.mark.parametrize("is_reserved", [False, True])
@pytest.mark.parametrize("num_bytes", [0, SMALL, LARGE])
def test_a_file_of_this_machine_is_uploaded_to_a_free_name(
    objects: Store, tmp_path: Path, num_bytes: int, is_reserved: bool
) -> None:
    here = open_store(tmp_path)
    here.write_bytes("one", b"x" * num_bytes)
    require_reserved = (lambda: None) if is_reserved else None
    tag = objects.create_from("folder/two", here, "one", writer="me", require_reserved=require_reserved)
    assert (tag, objects.entity_tag("folder/two")) == (tag, tag)
    assert objects.read_bytes("folder/two") == b"x" * num_bytes
    assert objects.writer_of("folder/two") == ("me" if is_reserved or num_bytes < LARGE else None)
    with pytest.raises(AlreadyStoredError):
        objects.create_from("folder/two", here, "one", require_reserved=require_reserved)
    assert objects.list() == ["folder/two"]


def test_a_large_file_whose_reservation_is_lost_does_not_appear_and_leaves_no_parts(
    bucket: str, s3_server: S3Server, tmp_path: Path
) -> None:
    here, store = open_store(tmp_path), open_store(f"{bucket}/data")
    here.write_bytes("one", b"x" * LARGE)

    def lost() -> None:
        raise ReservationLostError("it was taken away")

    with pytest.raises(ReservationLostError, match=r"^it was taken away$"):
        store.create_from("two", here, "one", require_reserved=lost)
    with pytest.raises(AlreadyStoredError):
        store.create_from("two", here, "one", require_reserved=lambda: put(store, "two", b"a rival's"))
    with pytest.raises(StorageError, match="it changed during the copy: expected sha256 0, found "):
        store.create_from("three", here, "one", sha256="0", require_reserved=lambda: None)
    assert (store.list(), store.read_bytes("two")) == (["two"], b"a rival's")
    uploads = s3_server.request("GET", f"/{bucket.removeprefix('s3://')}?uploads")[1]
    assert b"ListMultipartUploadsResult" in uploads
    assert b"UploadId>" not in uploads.replace(b"UploadIdMarker", b"")


def test_a_large_file_of_others_is_not_taken_for_an_upload_whose_end_was_lost(
    bucket: str, s3_server: S3Server, fault_proxy: FaultProxy, tmp_path: Path
) -> None:
    here, store = open_store(tmp_path), open_store(f"{bucket}/data")
    here.write_bytes("one", b"x" * LARGE)

    def is_end(request: Request) -> bool:
        if request.method != "POST" or "uploadId" not in request.query:
            return False
        path = f"/{bucket.removeprefix('s3://')}/data/two"
        assert s3_server.request("PUT", path, b"y" * LARGE)[0] == 200  # a rival's, of the same size
        return True

    fault_proxy.inject("drop", when=is_end)
    with pytest.raises(StorageUnavailableError):
        store.create_from("two", here, "one", writer="me", require_reserved=lambda: None)
    fault_proxy.reset()
    assert store.read_bytes("two") == b"y" * LARGE


@on_clouds
def test_a_store_says_whether_it_may_be_written_without_being_written(bucket: str, fault_proxy: FaultProxy) -> None:
    store = open_store(f"{bucket}/data")
    store.require_writable("mnist/1.0.0")
    assert [request.method for request in fault_proxy.requests] == ["PUT"]
    assert store.folders() == []
    fault_proxy.inject("forbidden", when=lambda request: request.method == "PUT")
    with pytest.raises(StorageError) as caught:
        store.require_writable("mnist/1.0.0")
    assert str(caught.value) == (
        f"cannot write {store.locate('mnist/1.0.0')}: Permission denied (the server answered 403 Forbidden)"
    )
    fault_proxy.reset()
    with pytest.raises(NotStoredError, match="does not exist"):
        open_store(f"{bucket}-other").require_writable("mnist/1.0.0")


def test_a_server_without_conditions_keeps_nothing_of_the_question(bucket: str, fault_proxy: FaultProxy) -> None:
    store = open_store(f"{bucket}/data")
    fault_proxy.inject("unconditional", when=lambda request: request.method == "PUT")
    store.require_writable("mnist/1.0.0")
    assert store.folders() == []


@on_clouds
def test_a_small_file_is_read_by_one_request(bucket: str, fault_proxy: FaultProxy) -> None:
    store = open_store(f"{bucket}/data")
    store.write_bytes("one", b"x" * 1000)
    store.write_bytes("empty", b"")
    fault_proxy.reset()
    assert (store.read_bytes("one"), store.read_bytes("empty")) == (b"x" * 1000, b"")
    assert [request.method for request in fault_proxy.requests] == ["GET", "GET"]
    with pytest.raises(StorageError, match="it is longer than 999 bytes"):
        store.read_bytes("one", limit=999)


def test_the_owner_file_is_removed_by_the_last_request(bucket: str, fault_proxy: FaultProxy) -> None:
    store = open_store(f"{bucket}/data")
    put(store, "incomplete.0a1b2c3d_1/shard")
    put(store, "incomplete.0a1b2c3d_1/.owner.json", json.dumps(asdict(Owner.this_process())).encode())
    fault_proxy.reset()
    store.remove_tree("incomplete.0a1b2c3d_1")
    bodies = [request.body for request in fault_proxy.requests if request.method == "POST"]
    assert [(b"shard" in body, b".owner.json" in body) for body in bodies] == [(True, False), (False, True)]


def test_keys_that_others_made_are_listed_as_far_as_they_are_files(objects: Store, s3_server: S3Server) -> None:
    bucket = objects.url.removeprefix("s3://").partition("/")[0]
    for key in ("data/", "data/folder/", "data/folder/file", "database"):
        assert s3_server.request("PUT", f"/{bucket}/{key}", b"x" if key.endswith("e") else b"")[0] == 200
    assert objects.list() == ["folder/file"]
    assert objects.folders() == ["folder"]


@on_clouds
def test_a_store_travels_to_another_process(objects: Store) -> None:
    put(objects, "name", b"travels")
    again = pickle.loads(pickle.dumps(objects))  # noqa: S301 (as worker processes are sent it)
    assert (again.url, again.read_bytes("name")) == (objects.url, b"travels")


@on_clouds
def test_a_forked_child_reads_and_writes_though_its_parent_has_too(objects: Store) -> None:
    # In a process of its own: pytest's has other threads, which a fork would carry along half.
    put(objects, "name", b"parent's")
    script = f"""
import os, signal
from registry.storage import open_store
store = open_store({objects.url!r})
assert store.read_bytes("name") == b"parent's"
file = store.open("name")
assert file.read(1) == b"p"

def work(generation):
    signal.alarm(60)
    assert store.read_bytes("name") == b"parent's"
    assert file.read() == (b"arent's" if generation == 1 else b"")
    with store.create(f"child{{generation}}") as new:
        new.write(b"child's")
    if generation < 2:
        fork(generation + 1)

def fork(generation):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(generation)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0

fork(1)
assert store.list() == ["child1", "child2", "name"]
"""
    done = warm_python.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_url_that_names_no_prefix_of_a_bucket_is_refused() -> None:
    check_errors(
        GOLDEN / "object_store" / "a_url_that_names_no_prefix_of_a_bucket_is_refused.txt",
        (partial(open_store, url) for url in ["s3://KEY:PW@bucket/data", "gs://", "s3://bucket/a/../b"]),
    )


@on_clouds
def test_a_name_that_no_object_can_have_is_refused(objects: Store) -> None:
    with pytest.raises(StorageError) as caught, objects.create("a\nb"):
        pytest.fail("the block must not run")
    assert str(caught.value) == f"cannot read {objects.locate('a')}\nb: the name is invalid in an object store"
    assert caught.value.hint == "Object names must not contain empty parts or control characters."


@pytest.mark.parametrize("scheme", ["s3", "s3a", "gs", "az"])
def test_every_kind_of_object_store_is_opened(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"{scheme}://bucket/data")
    assert store.url == f"{scheme}://bucket/data"
    assert store.child("mnist").locate("file") == f"{scheme}://bucket/data/mnist/file"
