"""A law for every store: many ranges at once return the same bytes as slices of the object. Also counts requests."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import warm_python
from support.fault_proxy import Fault, FaultProxy, Request
from support.s3_server import S3Server
from support.web_server import serve

from registry.errors import NotStoredError, StorageError, StorageUnavailableError
from registry.storage import Store, network, open_store
from registry.storage.network import begin, cancel, run

MIB = 2**20
CONTENT = os.urandom(5 * MIB)
SIZE = len(CONTENT)


def put(store: Store, name: str, content: bytes) -> None:
    with store.create(name, overwrite=True) as file:
        file.write(content)


@pytest.fixture(params=["local", "memory", "s3", "http"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind that holds ``file`` and ``empty``."""
    if request.param in ("local", "http"):
        (tmp_path / "file").write_bytes(CONTENT)
        (tmp_path / "empty").write_bytes(b"")
        if request.param == "local":
            yield open_store(tmp_path)
            return
        with serve(tmp_path, "ranges") as url:
            yield open_store(url)
        return
    url = f"{request.getfixturevalue('bucket')}/data" if request.param == "s3" else f"memory://{uuid.uuid4().hex}"
    store = open_store(url)
    put(store, "file", CONTENT)
    put(store, "empty", b"")
    yield store


@st.composite
def one_range(draw: st.DrawFn) -> tuple[int, int]:
    near = st.sampled_from([0, 1000, 300_000, MIB, 4 * MIB, SIZE - 1000, SIZE])
    start = draw(near) + draw(st.integers(-300, 300))
    start = min(max(0, start), SIZE)
    num_bytes = draw(st.one_of(st.just(0), st.integers(0, 500), st.sampled_from([MIB, 4 * MIB, SIZE])))
    return start, min(start + num_bytes, SIZE)


def test_ranges_are_slices(stored: Store) -> None:
    @given(st.lists(one_range(), max_size=12), st.booleans())
    def law(ranges: list[tuple[int, int]], in_order: bool) -> None:
        found = [(index, bytes(view)) for index, view in stored.read_ranges("file", ranges, in_order=in_order)]
        assert sorted(index for index, _ in found) == list(range(len(ranges)))
        if in_order:
            assert [index for index, _ in found] == list(range(len(ranges)))
        for index, content in found:
            assert content == CONTENT[slice(*ranges[index])]

    law()


def test_an_empty_file_has_one_range(stored: Store) -> None:
    assert [bytes(view) for _, view in stored.read_ranges("empty", [(0, 0), (0, 0)])] == [b"", b""]
    assert list(stored.read_ranges("empty", [])) == []
    with stored.open("empty") as file:
        assert (file.num_bytes, list(file.pieces()), file.mapping()) == (0, [], None)


@pytest.mark.parametrize("wrong", [(0, SIZE + 1), (SIZE + 1, SIZE + 1), (5, 4), (-1, 4)])
def test_a_range_that_leaves_the_file_is_refused_before_the_first_byte(stored: Store, wrong: tuple[int, int]) -> None:
    with pytest.raises(StorageError) as caught:
        stored.read_ranges("file", [(0, 10), wrong])
    path = stored.locate("file")
    assert (
        str(caught.value)
        == f"cannot read {path}: bytes {wrong[0]} to {wrong[1]} were requested, but the file has {SIZE} bytes"
    )
    assert caught.value.hint


def test_ranges_of_a_missing_file_are_refused(stored: Store) -> None:
    with pytest.raises(NotStoredError):
        stored.read_ranges("missing", [])


def test_ranges_leave_the_place_of_an_open_file(stored: Store) -> None:
    with stored.open("file") as file:
        assert file.read(10) == CONTENT[:10]
        assert [bytes(view) for _, view in file.read_ranges([(100, 110)])] == [CONTENT[100:110]]
        assert file.read(10) == CONTENT[10:20]
        assert file.num_bytes == SIZE


def test_a_closed_file_is_not_read(stored: Store) -> None:
    with stored.open("file") as file:
        begun = file.read_ranges([(100, 110)])
    assert [bytes(view) for _, view in begun] == [CONTENT[100:110]]
    for ask in (lambda: file.read_ranges([(0, 10)]), lambda: list(file.pieces()), lambda: file.read(10), file.read):
        with pytest.raises(ValueError, match="closed file"):
            ask()


def test_pieces_are_the_whole_file_in_order(stored: Store) -> None:
    with stored.open("file") as file:
        file.seek(100)
        assert b"".join(map(bytes, file.pieces())) == CONTENT


def test_a_local_file_answers_from_its_mapping(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    with open_store(tmp_path).open("file") as file:
        mapping, views = file.mapping(), dict(file.read_ranges([(8, 10), (2, 4)]))
    assert mapping is not None
    assert all(view.obj is mapping for view in views.values())
    assert [bytes(views[0]), bytes(views[1])] == [b"89", b"23"]  # though the file is closed


def test_a_local_file_that_was_cut_short_is_an_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(20_000))
    with open_store(tmp_path).open("file") as file:
        assert file.mapping()
        os.truncate(tmp_path / "file", 5)
        with pytest.raises(StorageError, match="bytes 10000 to 20000 were requested, but the file has 5 bytes"):
            file.read_ranges([(10_000, 20_000)])


@pytest.fixture
def objects(bucket: str, fault_proxy: FaultProxy) -> Store:
    """An object store behind the proxy that holds ``file``."""
    store = open_store(f"{bucket}/data")
    put(store, "file", CONTENT)
    fault_proxy.reset()
    return store


def is_get(request: Request) -> bool:
    return request.method == "GET"


@pytest.mark.parametrize(
    ("ranges", "gets"),
    [
        ([], 0),
        ([(5, 5)], 0),
        ([(place, place + 100) for place in range(0, 100_000, 100)], 1),  # neighbours
        (
            [(place, place + 100) for place in reversed(range(0, 1_000_000, 10_000))],
            1,
        ),  # and those close by
        ([(place * MIB, place * MIB + 10) for place in range(5)], 5),  # far apart
        ([(0, 4 * MIB)] * 4, 1),  # the same again
        ([(0, SIZE)], 2),  # cut
    ],
)
def test_neighbours_share_a_request(
    objects: Store, fault_proxy: FaultProxy, ranges: list[tuple[int, int]], gets: int
) -> None:
    for index, view in objects.read_ranges("file", ranges):
        assert bytes(view) == CONTENT[slice(*ranges[index])]
    assert (fault_proxy.count("HEAD"), fault_proxy.count("GET")) == (1, gets)


def test_requests_run_concurrently_up_to_a_limit(
    objects: Store, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network._LOOP, "slots", asyncio.Semaphore(8))
    together, lock, now, peak = threading.Barrier(4), threading.Lock(), 0, 0

    def hook() -> None:
        nonlocal now, peak
        with lock:
            now, peak = now + 1, max(peak, now + 1)
        time.sleep(0.01)
        with lock:
            now -= 1

    fault_proxy.inject("hook", when=is_get, times=4, hook=lambda: together.wait(30) and None)
    fault_proxy.inject("hook", when=is_get, hook=hook)
    ranges = [(place, place + 10) for place in range(0, SIZE - 10, 2**18 + 20)]
    assert len(list(objects.read_ranges("file", ranges))) == len(ranges) == fault_proxy.count("GET")
    assert 1 <= peak <= 8


def test_no_more_is_fetched_than_may_be_held(
    bucket: str, s3_server: S3Server, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_READ_TIMEOUT", "60")  # a request that is sent twice would be counted twice
    store = open_store(f"{bucket}/data")
    assert s3_server.request("PUT", f"/{bucket.removeprefix('s3://')}/data/large", bytes(44 * MIB))[0] == 200
    with store.open("large") as file:
        pieces = file.pieces()
        assert len(next(pieces)) == 4 * MIB
        assert fault_proxy.count("GET") <= 9  # of 11
        pieces.close()  # type: ignore[attr-defined]  # a generator


@pytest.mark.parametrize("fault", ["drop", "cut", "truncate", "slow down", "silence"])
def test_a_fault_that_passes_is_not_noticed(objects: Store, fault_proxy: FaultProxy, fault: Fault) -> None:
    fault_proxy.inject(fault, when=is_get, times=2)
    ranges = [(place * MIB, place * MIB + 10) for place in range(5)]
    for index, view in objects.read_ranges("file", ranges):
        assert bytes(view) == CONTENT[slice(*ranges[index])]


def test_a_fault_that_stays_is_a_typed_error(objects: Store, fault_proxy: FaultProxy) -> None:
    fault_proxy.inject("slow down", when=is_get)
    with pytest.raises(StorageUnavailableError) as caught:
        list(objects.read_ranges("file", [(place * MIB, place * MIB + 10) for place in range(5)]))
    path = objects.locate("file")
    assert str(caught.value) == f"cannot read {path}: the server answered 503 Service Unavailable"
    assert fault_proxy.count("GET") <= 5 * 3


def test_an_object_that_is_replaced_between_two_requests_is_an_error(objects: Store) -> None:
    with objects.open("file") as file:
        assert bytes(next(file.read_ranges([(0, 10)]))[1]) == CONTENT[:10]
        put(objects, "file", bytes(SIZE))
        with pytest.raises(StorageError, match="it was replaced while it was read"):
            list(file.read_ranges([(0, 10)]))


def test_a_forked_child_continues_ranges_that_its_parent_started(objects: Store) -> None:
    script = """
import os, signal, sys
from registry.storage import open_store
views = open_store(sys.argv[1]).read_ranges("file", [(place, place + 4) for place in range(0, 5 * 2**20, 2**19)])
begun = [bytes(view) for _, view in (next(views),)]
child = os.fork()
if not child:
    signal.alarm(20)
number = len(begun) + sum(1 for _ in views)
if not child:
    os._exit(number)
print(number, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    for _ in range(3):
        done = warm_python.run([sys.executable, "-c", script, objects.url], capture_output=True, text=True, check=True)
        # Once in thousands of forks, a thread of obstore holds a lock at that moment, which the child waits for.
        if done.stdout != f"10 {-signal.SIGALRM}\n":
            break
    assert done.stdout == "10 10\n"


def test_a_request_that_fails_while_it_is_cancelled_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    has_begun = threading.Event()

    async def fail() -> None:
        has_begun.set()
        try:
            await asyncio.sleep(10)
        finally:
            raise StorageError("it was replaced")

    future = begin(fail())
    has_begun.wait()
    run(asyncio.sleep(0.05), seconds=10)
    cancel(future)
    run(asyncio.sleep(0.05), seconds=10)
    del future
    gc.collect()
    assert caplog.messages == []
