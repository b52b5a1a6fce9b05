"""A provider in a process of its own, when something goes wrong: the error that it should be, and the process ends.

Each process has a time limit, which only a hang comes near to.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from support import warm_python

from registry.tfrecord import frame_record

LIMIT_SECONDS = 600
RECORDS = [b"%04d" % number for number in range(2000)]
FRAME_BYTES = 4 + 16

START = """
import json, os, signal, sys, threading, time
from registry import slim
from registry.errors import RegistryError

class Numbers(slim.DataDecoder):
    def decode(self, data, items=None):
        return [int(data)] * len(self.check_items(items))
    def list_items(self):
        return ["number"]

def provider_of(sources, reader=None, **options):
    dataset = slim.Dataset(sources, reader, Numbers(), 2000, None)
    return slim.DatasetDataProvider(dataset, **{"num_readers": READERS, "num_epochs": 1, "shuffle": SHUFFLE, **options})

def drain(provider):
    numbers = []
    try:
        while True:
            numbers.append(provider.get(["number"])[0])
    except StopIteration:
        fault = {}
    except RegistryError as error:
        fault = {"kind": type(error).__name__, "message": str(error), "path": error.details.get("path"),
                 "offset": error.details.get("offset"), "key": error.details.get("key")}
    provider.close()
    threads = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    print(json.dumps({"numbers": numbers, "threads": threads, **fault}))
"""


def run(script: str, folder: Path, *, num_readers: int = 1, shuffle: bool = False) -> dict[str, Any]:
    """The last line of a script's output; the script must end by itself with exit code 0."""
    source = START.replace("READERS", str(num_readers)).replace("SHUFFLE", str(shuffle)) + textwrap.dedent(script)
    ended = warm_python.run(
        [sys.executable, "-c", source], cwd=folder, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for file in range(4):
        (tmp_path / f"f-{file}").write_bytes(b"".join(map(frame_record, RECORDS[file * 500 : (file + 1) * 500])))
    return tmp_path


@pytest.fixture(params=[(1, False), (1, True), (3, False), (3, True)], ids=lambda param: f"{param[0]}-{param[1]}")
def how(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"num_readers": request.param[0], "shuffle": request.param[1]}


def test_sound_files_are_read_to_their_end(folder: Path, how: dict[str, Any]) -> None:
    found = run("drain(provider_of('f-*'))", folder, **how)
    assert sorted(found["numbers"]) == list(range(2000))
    assert found["threads"] == []


def test_a_corrupt_record_in_the_middle_is_named(folder: Path, how: dict[str, Any]) -> None:
    content = bytearray((folder / "f-2").read_bytes())
    content[300 * FRAME_BYTES + 13] ^= 0xFF
    (folder / "f-2").write_bytes(content)
    found = run("drain(provider_of('f-*'))", folder, **how)
    assert (found["kind"], found["path"], found["offset"]) == ("CorruptRecordError", "f-2", 300 * FRAME_BYTES)
    assert found["message"] == (
        "f-2: record 300 at byte 6000: its 4 bytes and their checksum disagree: one of them is damaged"
    )
    assert sorted(number for number in found["numbers"] if 1000 <= number < 1500) == list(range(1000, 1300))
    assert found["threads"] == []


def test_a_truncated_gzip_file_is_named(folder: Path, how: dict[str, Any]) -> None:
    content = gzip.compress((folder / "f-1").read_bytes())
    (folder / "f-1").write_bytes(content[:-20])
    found = run("drain(provider_of('f-*'))", folder, **how)
    assert (found["kind"], found["path"]) == ("CorruptRecordError", "f-1")
    assert found["message"].endswith(
        "the gzip stream ends too early, here or after (the offset counts decompressed bytes)"
    )
    assert sum(500 <= number < 1000 for number in found["numbers"]) == found["offset"] // FRAME_BYTES
    assert found["threads"] == []


def test_another_compression_is_named(folder: Path, how: dict[str, Any]) -> None:
    (folder / "f-0").write_bytes(b"BZh9" + bytes(100))
    found = run("drain(provider_of('f-0'))", folder, **how)
    assert (found["kind"], found["path"], found["offset"]) == ("CorruptRecordError", "f-0", 0)
    assert found["message"] == "f-0: record 0 at byte 0: the file is bzip2, which is not supported"
    (folder / "f-0").write_bytes(gzip.compress(frame_record(b"1")))
    found = run("drain(provider_of('f-0', reader_kwargs={'options': ''}))", folder, **how)
    assert found["message"] == "f-0: record 0 at byte 0: the file is GZIP, and options say no compression"
    assert found["threads"] == []


def test_a_missing_file_is_an_error_at_once(folder: Path) -> None:
    found = run(
        """
        try:
            provider_of(["f-0", "gone"])
        except FileNotFoundError as error:
            print(json.dumps({"message": str(error), "kind": type(error).__name__}))
        """,
        folder,
    )
    assert found == {"message": "no such data file: gone", "kind": "NotStoredError"}


def test_a_reader_that_raises_in_the_middle_of_a_file(folder: Path, how: dict[str, Any]) -> None:
    found = run(
        """
        def read(path):
            for number in range(400):
                yield b"%s:%d" % (path.encode(), number), b"%d" % number
            raise ValueError("the disk is on fire")

        drain(provider_of("f-0", read))
        """,
        folder,
        **how,
    )
    assert (found["kind"], found["path"], found["key"]) == ("ReaderFailedError", "f-0", "f-0:399")
    assert found["message"] == (
        "f-0: the reader read failed after 400 records (the last one is 'f-0:399'): ValueError: the disk is on fire"
    )
    assert sorted(found["numbers"]) == list(range(400))
    assert found["threads"] == []


HANGING = """
        def read(path):
            for number in range(40):
                yield b"key", b"%d" % number
            time.sleep(3600)

        provider = provider_of("f-0", read, common_queue_capacity=20, common_queue_min=5)
"""


def test_a_hanging_reader_does_not_keep_the_process_alive(folder: Path, how: dict[str, Any]) -> None:
    # Earlier records are returned; then the queue may be closed, dropped or left: the process ends.
    for end in ("provider.close()", "del provider", "pass"):
        script = f"{HANGING}\n        numbers = provider.get(['number'])\n        {end}\n        print('{{}}')"
        assert run(script, folder, **how) == {}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send")
def test_control_c_while_waiting_ends_the_process(folder: Path, how: dict[str, Any]) -> None:
    found = run(
        f"""{HANGING}
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        count = 0
        try:
            while True:
                provider.get(["number"])
                count += 1
        except KeyboardInterrupt:
            try:
                provider.get(["number"])
            except RegistryError as error:
                print(json.dumps({{"count": count, "message": str(error)}}))
        """,
        folder,
        **how,
    )
    assert found["message"] == "the read was interrupted, and some records may be lost"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no timer that sends a signal")
def test_closing_in_a_signal_handler_wakes_callers_that_wait_for_a_hanging_reader(folder: Path) -> None:
    found = run(
        f"""{HANGING}
        signal.signal(signal.SIGALRM, lambda *_: provider.close())
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        try:
            while True:
                provider.get(["number"])
        except RegistryError as error:
            print(json.dumps({{"message": str(error)}}))
        """,
        folder,
    )
    assert found == {"message": "this reader was closed"}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send")
def test_control_c_in_the_middle_ends_the_process_as_it_should(folder: Path) -> None:
    script = """
for _ in provider_of('f-*', num_epochs=None, num_readers=3, shuffle=True):
    print("x", flush=True)
"""
    source = START.replace("READERS", "1").replace("SHUFFLE", "False") + script
    process = warm_python.Popen(
        [sys.executable, "-c", source], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == -signal.SIGINT
    assert errors.endswith("KeyboardInterrupt\n")


def test_a_provider_that_is_dropped_half_way_leaves_no_thread_and_no_file(folder: Path) -> None:
    found = run(
        """
        provider = provider_of("f-*", num_epochs=None, num_readers=4, shuffle=True)
        for _ in range(10):
            provider.get(["number"])
        del provider
        for thread in threading.enumerate():
            if thread is not threading.main_thread():
                thread.join(30)
        folder = os.path.realpath(".")
        descriptors = "/proc/self/fd"
        left = os.listdir(descriptors) if os.path.isdir(descriptors) else []
        paths = [os.path.realpath(os.path.join(descriptors, name)) for name in left]
        print(json.dumps({"threads": threading.active_count(), "files": [p for p in paths if p.startswith(folder)]}))
        """,
        folder,
    )
    assert found == {"threads": 1, "files": []}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks on this system")
def test_a_provider_is_refused_in_a_process_that_was_forked(folder: Path) -> None:
    found = run(
        """
        provider = provider_of("f-*", num_readers=2)
        provider.get(["number"])
        read_end, write_end = os.pipe()
        child = os.fork()
        if not child:
            try:
                provider.get(["number"])
            except RegistryError as error:
                os.write(write_end, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        print(json.dumps({"message": os.read(read_end, 1000).decode(), "number": provider.get(["number"])}))
        """,
        folder,
    )
    assert found["message"] == "a reader can only be used in the process that created it"
    assert found["number"] == [500]


def test_a_prefetch_queue_over_a_provider_that_fails_and_one_that_hangs(folder: Path) -> None:
    (folder / "f-3").write_bytes((folder / "f-3").read_bytes()[:-3])
    found = run(
        """
        provider = provider_of("f-*")
        with slim.prefetch_queue(lambda: provider.get(["number"]), num_threads=2) as queue:
            numbers = []
            try:
                while True:
                    numbers.append(queue.dequeue()[0])
            except RegistryError as error:
                print(json.dumps({"count": len(set(numbers)), "path": error.details["path"]}))
        """,
        folder,
    )
    assert found == {"count": 1999, "path": "f-3"}
    assert run("queue = slim.prefetch_queue(lambda: time.sleep(3600))\nprint(queue.size() or '{}')", folder) == {}
