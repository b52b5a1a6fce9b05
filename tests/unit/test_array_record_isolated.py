"""An ArrayRecord file that kills its reader ends only a worker process, and the error names the file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from array_record.python import array_record_module
from support.riegeli_chunks import Chunk, find_chunks, write_chunk

from registry.errors import CorruptRecordError, ShardMismatchError, StorageError
from registry.shards import isolated, open_shard, read_records, walk_file
from registry.shards.isolated import WorkerEndedError, call_isolated
from registry.storage import Store, open_store

RECORDS = [b"record %d " % number * 20 for number in range(12)]
FORMAT = "array_record"


def write(path: Path, *, forged: bool = False) -> None:
    """A file of four chunks; with ``forged`` the second claims sizes that end the process, under a right checksum."""
    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:3,uncompressed,transpose")
    for record in RECORDS:
        writer.write(record)
    writer.close()
    if forged:
        content = path.read_bytes()
        chunk = transposed(content)[1]
        data = content[chunk.place + 40 : chunk.stop]
        path.write_bytes(write_chunk(content, chunk, data[:2] + b"\xff\xff\xff\x46" + data[6:]))


def transposed(content: bytes) -> list[Chunk]:
    return [chunk for chunk in find_chunks(content) if content[chunk.place + 24 : chunk.place + 25] == b"t"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    write(tmp_path / "sound")
    write(tmp_path / "forged", forged=True)
    return open_store(tmp_path)


def test_a_record_that_kills_its_reader_is_named(store: Store) -> None:
    shard = open_shard(store, "forged", file_format=FORMAT, num_records=12)
    assert shard.read(0, 3).records() == RECORDS[:3]
    with pytest.raises(CorruptRecordError) as caught:
        shard.read(0, 12)
    path = store.locate("forged")
    assert str(caught.value) == f"{path}: record 3: it cannot be read, or does not match its checksum"
    assert caught.value.details["reason"] in (
        "std::bad_alloc",
        "reading it ended the process that read it, with signal 6",
    )
    assert shard.read(6, 6).records() == RECORDS[6:]
    assert open_shard(store, "sound", file_format=FORMAT).read(0, 12).records() == RECORDS
    found = []
    with pytest.raises(CorruptRecordError):
        found += read_records(store, "forged", file_format=FORMAT)
    with pytest.raises(CorruptRecordError):
        walk_file(store, "forged", file_format=FORMAT)


def test_threads_that_read_sound_files_do_not_notice(store: Store) -> None:
    names = ["sound", "forged"] * 2

    def read(name: str) -> list[bytes] | str:
        try:
            return open_shard(store, name, file_format=FORMAT).read(0, 12).records()
        except CorruptRecordError as error:
            return error.code

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, names)) == [RECORDS, "corrupt_record"] * 2


def test_a_file_that_is_replaced_while_it_is_open_is_refused(store: Store) -> None:
    shard = open_shard(store, "sound", file_format=FORMAT)
    other = Path(store.locate("other"))
    write(other)
    other.replace(store.locate("sound"))
    isolated._workers().close()  # so that no worker has the old one open
    with pytest.raises(StorageError) as caught:
        shard.read(0, 1)
    assert str(caught.value) == f"cannot read {store.locate('sound')}: it was replaced while it was open"
    assert caught.value.hint == "Published files never change. Find out what writes to it, then try again."
    assert open_shard(store, "sound", file_format=FORMAT).read(0, 1).records() == RECORDS[:1]


def test_a_file_whose_mode_changes_while_it_is_open_is_read_on(store: Store) -> None:
    shard = open_shard(store, "sound", file_format=FORMAT)
    Path(store.locate("sound")).chmod(0o444)
    isolated._workers().close()
    assert shard.read(0, 12).records() == RECORDS


def test_a_worker_is_used_again(store: Store) -> None:
    first = call_isolated(eval, "__import__('os').getpid()", path="")
    assert call_isolated(eval, "__import__('os').getpid()", path="") == first != os.getpid()


def test_a_worker_is_not_used_again_after_an_error_of_memory() -> None:
    first = call_isolated(eval, "__import__('os').getpid()", path="")
    with pytest.raises(WorkerEndedError, match="MemoryError"):  # its threads may end the process later
        call_isolated(bytearray, 2**40, path="")
    assert call_isolated(eval, "__import__('os').getpid()", path="") != first


def test_the_end_of_a_worker_is_described() -> None:
    with pytest.raises(WorkerEndedError, match=r"^reading it ended the process that read it, with signal 6(?m:$)"):
        call_isolated(signal.raise_signal, signal.SIGABRT, path="")
    with pytest.raises(WorkerEndedError, match=r"^reading it ended the process that read it, with exit code 3(?m:$)"):
        call_isolated(os._exit, 3, path="")
    with pytest.raises(WorkerEndedError, match=r"^ValueError: "):
        call_isolated(int, "x", path="")
    with pytest.raises(StorageError) as killed:
        call_isolated(signal.raise_signal, signal.SIGKILL, path="/data/shard")
    assert str(killed.value) == "cannot read /data/shard: the process that reads it was killed"
    assert killed.value.hint == "The system may be out of memory. Close other programs and try again."


def test_a_worker_gets_no_more_memory_than_a_sound_file_needs() -> None:
    with pytest.raises(WorkerEndedError, match="MemoryError"):
        call_isolated(bytearray, 2**40, path="")


def test_a_call_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "_MOST_SECONDS", 0.2)
    with pytest.raises(StorageError) as caught:
        call_isolated(time.sleep, 1000, path="/data/shard")
    assert str(caught.value) == "cannot read /data/shard: the process that reads it did not answer for 0.2 seconds"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_process_that_was_forked_starts_a_worker_of_its_own(store: Store) -> None:
    script = """
import os, sys
from registry.shards import open_shard
from registry.storage import open_store
store = open_store(sys.argv[1])
shard = open_shard(store, "sound", file_format="array_record")
before = shard.read(0, 12).records()
child = os.fork()
after = shard.read(0, 12).records()
if not child:
    os._exit(0 if after == before else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert shard.read(0, 12).records() == before
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, str(store.local_root)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_negative_number_of_records_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("registry.shards.array_record.call_isolated", lambda *_, **__: -5)
    with pytest.raises(ShardMismatchError) as caught:
        open_shard(store, "sound", file_format=FORMAT)
    assert caught.value.details["reason"] == "it claims -5 records"
