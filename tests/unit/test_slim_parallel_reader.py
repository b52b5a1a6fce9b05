"""Reading files at the same time: order, bounds, errors in their place, and ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.golden import check_errors

from registry.errors import CorruptRecordError, OutOfRangeError, UsageError, WrongTypeError
from registry.slim import read_ahead
from registry.slim.parallel_reader import parallel_read, single_pass_read
from registry.slim.readers import TextLineReader
from registry.tfrecord import frame_record

GOLDEN = Path(__file__).with_name("golden")

SIZES = [3, 0, 5, 1, 4]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for file, size in enumerate(SIZES):
        records = [b"%d.%d" % (file, record) for record in range(size)]
        Path(f"f-{file}").write_bytes(b"".join(map(frame_record, records)))
    return tmp_path


def values(**options: Any) -> list[str]:
    with parallel_read("f-*", **options) as reader:
        return [value.decode() for _, value in reader]


def test_files_take_turns_record_by_record() -> None:
    # The slot of an ended file is skipped once; this includes the empty file.
    one_by_one = ["0.0", "0.1", "0.2", "2.0", "2.1", "2.2", "2.3", "2.4", "3.0", "4.0", "4.1", "4.2", "4.3"]
    assert values(shuffle=False, num_epochs=1, num_readers=1) == one_by_one
    in_turn = ["0.0", "0.1", "2.0", "0.2", "2.1", "2.2", "3.0", "2.3", "2.4", "4.0", "4.1", "4.2", "4.3"]
    assert values(shuffle=False, num_epochs=1, num_readers=2) == in_turn


def test_a_seed_gives_an_order_that_stays() -> None:
    # Written down once: an order that somebody published has to come again in every later release.
    found = values(num_epochs=1, num_readers=2, seed=7, capacity=9, min_after_dequeue=4)
    assert found == ["3.0", "0.2", "0.0", "4.1", "0.1", "4.3", "2.0", "2.3", "4.0", "2.4", "2.1", "2.2", "4.2"]


def test_epochs_have_their_own_orders_and_do_not_mix() -> None:
    found = values(num_epochs=3, seed=3)
    epochs = [found[start : start + 13] for start in (0, 13, 26)]
    assert len(found) == 39
    assert all(sorted(epoch) == sorted(epochs[0]) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_epochs_mix_on_request() -> None:
    found = values(num_epochs=3, seed=3, mix_epochs=True)
    assert sorted(found) == sorted(values(num_epochs=3, seed=3))
    assert len(set(found[:13])) < 13


def test_without_a_seed_one_is_drawn_and_can_be_given_again() -> None:
    first, second = parallel_read("f-*", num_epochs=1), parallel_read("f-*", num_epochs=1)
    assert first.seed != second.seed
    again = parallel_read("f-*", num_epochs=1, seed=first.seed)
    assert list(first) == list(again)


def test_records_as_they_are_read_are_the_same_records() -> None:
    found = values(shuffle=False, num_epochs=2, num_readers=3, deterministic=False)
    assert sorted(found) == sorted(2 * values(shuffle=False, num_epochs=1))


def test_reading_counts_records_and_files() -> None:
    reader = parallel_read("f-*", num_epochs=2, seed=1, num_readers=2)
    assert (reader.num_records_produced, reader.num_work_units_completed, reader.num_readers) == (0, 0, 2)
    reader.read()
    assert reader.num_records_produced == 1
    assert len(list(reader)) == 25
    assert (reader.num_records_produced, reader.num_work_units_completed) == (26, 10)


def test_many_records_are_read_at_once() -> None:
    reader = single_pass_read("f-*")
    keys, records = reader.read_up_to(4)
    assert keys.tolist() == [b"f-0:0", b"f-0:19", b"f-0:38", b"f-2:0"]
    assert records.tolist() == [b"0.0", b"0.1", b"0.2", b"2.0"]
    assert [array.size for array in reader.read_up_to(100)] == [9, 9]
    with pytest.raises(OutOfRangeError):
        reader.read_up_to(1)


def test_the_end_is_out_of_range_each_time_and_a_stop_of_iteration() -> None:
    reader = single_pass_read("f-1")
    for _ in range(2):
        with pytest.raises(StopIteration) as caught:
            reader.read()
        assert str(caught.value) == "there are no more records"
        assert isinstance(caught.value, OutOfRangeError)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("mix_epochs", [True, False])
def test_files_without_records_are_not_read_for_ever(deterministic: bool, mix_epochs: bool) -> None:
    Path("e-0").touch()
    Path("e-1").touch()
    reader = parallel_read(["e-0", "e-1", "e-0"], deterministic=deterministic, mix_epochs=mix_epochs)
    with pytest.raises(UsageError) as caught:
        reader.read()
    assert str(caught.value) == "no records to repeat forever in e-0, e-1, e-0"
    assert caught.value.hint == "Check the data sources, or pass num_epochs=1."


def test_what_cannot_be_is_refused() -> None:
    check_errors(
        GOLDEN / "slim_parallel_reader" / "what_cannot_be_is_refused.txt",
        (
            partial(lambda options: parallel_read("f-*", **options), row)
            for row in [
                {"num_readers": 0},
                {"num_epochs": 0},
                {"num_epochs": 1.5},
                {"capacity": 0},
                {"min_after_dequeue": -1},
                {"seed": "7"},
                {"capacity": 128},
                {"dtypes": ["string", "int64"]},
                {"reader_class": "TFRecordReader"},
            ]
        ),
    )


def test_a_reader_that_cannot_be_called_so_is_refused_at_once() -> None:
    with pytest.raises(WrongTypeError) as caught:
        single_pass_read("f-*", TextLineReader, {"skip_headers": 1})
    assert str(caught.value) == (
        "the reader TextLineReader cannot be called with a path and {'skip_headers': 1}: "
        "got an unexpected keyword argument 'skip_headers'"
    )
    assert "skip_header_lines" in caught.value.hint
    with pytest.raises(WrongTypeError, match=r"^reader_kwargs='GZIP' is not a dict(?m:$)"):
        single_pass_read("f-*", None, "GZIP")  # type: ignore[arg-type]


def test_two_strings_are_the_dtypes_there_are() -> None:
    for dtypes in (["string", "string"], (bytes, bytes), [str, object]):
        parallel_read("f-*", dtypes=dtypes).close()


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("num_readers", [1, 2, 4])
def test_a_damaged_record_is_an_error_after_the_records_before_it_and_again(shuffle: bool, num_readers: int) -> None:
    content = bytearray(Path("f-2").read_bytes())
    content[2 * 19 + 13] ^= 1
    Path("f-2").write_bytes(content)
    reader = parallel_read("f-*", num_epochs=1, num_readers=num_readers, shuffle=shuffle, seed=1)
    found = []
    for _ in range(2):
        with pytest.raises(CorruptRecordError) as caught:
            found += list(reader)
        assert str(caught.value) == (
            "f-2: record 2 at byte 38: its 3 bytes and their checksum disagree: one of them is damaged"
        )
        assert (caught.value.details["path"], caught.value.details["offset"]) == ("f-2", 38)
    if not shuffle:
        before = values_of_sound_files(num_readers)
        assert found == []  # list() returns nothing if it ends by an error, but the records were read
        assert reader.num_records_produced == before


def values_of_sound_files(num_readers: int) -> int:
    """How many records come before record 2.2 in turns: 0.0 0.1 0.2 2.0 2.1, or those that 1, 2 and 4 readers give."""
    return {1: 5, 2: 5, 4: 8}[num_readers]


def test_a_file_that_disappears_is_an_error_in_its_place() -> None:
    reader = parallel_read("f-*", num_epochs=1, num_readers=1, shuffle=False)
    Path("f-4").unlink()
    found = []
    with pytest.raises(FileNotFoundError, match="f-4"):
        found.extend(reader)
    assert [value for _, value in found][-1] == b"3.0"


def counting_reader(held: list[int]) -> Any:
    def read(path: str) -> Iterator[tuple[bytes, bytes]]:
        for number in range(150):
            held.append(1)
            yield b"%s:%d" % (path.encode(), number), b"v"

    return read


@pytest.mark.parametrize("num_readers", [1, 2, 3])
@pytest.mark.parametrize(("capacity", "least"), [(256, 128), (20, 3), (13, 12), (8, 0)])
@pytest.mark.parametrize("shuffle", [True, False])
def test_no_more_records_are_held_than_the_capacity(capacity: int, least: int, num_readers: int, shuffle: bool) -> None:
    read: list[int] = []
    reader = parallel_read(
        ["f-0", "f-1", "f-2"],
        counting_reader(read),
        num_epochs=1,
        num_readers=num_readers,
        capacity=capacity,
        min_after_dequeue=least,
        shuffle=shuffle,
    )
    num_given = 0
    while True:
        chunk = reader.read_records()
        # The chunk itself is held too; in addition to the buffer, two for each reader are the minimum.
        most = max(capacity, 2 * num_readers + (least + 1 if shuffle else 0))
        deadline = time.monotonic() + 0.002
        while time.monotonic() < deadline:  # let the readers read ahead
            assert len(read) - num_given <= most
        num_given += len(chunk)
        if num_given > 120:
            break
    reader.close()


def test_a_closed_reader_reads_no_more_and_leaves_no_thread() -> None:
    before = threading.active_count()
    reader = parallel_read("f-*", num_readers=4)
    reader.read()
    reader.close()
    reader.close()
    assert threading.active_count() <= before
    with pytest.raises(UsageError, match=r"^this reader was closed(?m:$)"):
        reader.read()


def test_a_hanging_reader_does_not_block_close() -> None:
    go_on = threading.Event()

    def hang(_: str) -> Iterator[tuple[bytes, bytes]]:
        yield b"k", b"v"
        go_on.wait()

    reader = parallel_read("f-0", hang, capacity=2, shuffle=False)
    assert reader.read() == (b"k", b"v")
    reader.close()
    go_on.set()


def test_records_of_a_slow_reader_do_not_wait_for_one_another() -> None:
    go_on = threading.Event()

    def read_slowly(_: str) -> Iterator[tuple[bytes, bytes]]:
        for number in range(3):
            time.sleep(0.05)
            yield b"%d" % number, b"v"
        assert go_on.wait(60)
        yield b"last", b"v"

    reader = parallel_read("f-0", read_slowly, num_epochs=1, shuffle=False)
    assert [reader.read()[0] for _ in range(3)] == [b"0", b"1", b"2"]
    go_on.set()
    assert reader.read()[0] == b"last"


def test_threads_may_share_a_reader() -> None:
    reader = parallel_read("f-*", num_epochs=20, seed=1)
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.extend(value for _, value in reader)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(value.encode() for value in values(num_epochs=20))


def test_a_reader_of_another_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = parallel_read("f-*")
    reader.read()
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as it is in a process that was forked
    with pytest.raises(UsageError, match=r"^a reader can only be used in the process that created it(?m:$)"):
        reader.read()
    monkeypatch.undo()
    reader.close()


def test_a_thread_that_was_not_started_yet_does_not_disturb_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "enumerate", lambda: [read_ahead._Thread()])
    read_ahead._wait_at_exit()


def test_a_reader_can_be_closed_in_the_middle_of_a_read_by_the_thread_that_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def read(_: str) -> Iterator[tuple[bytes, bytes]]:
        for number in range(10):
            if number == 3:
                reader.close()  # as a handler of a signal does
                closed.append(number)
            yield b"key", b"%d" % number

    closed: list[int] = []
    monkeypatch.setattr(threading.Thread, "start", refuse)
    reader = parallel_read("f-0", read, shuffle=False, num_readers=1, capacity=2, num_epochs=1)
    with pytest.raises(UsageError, match=r"^this reader was closed(?m:$)"):
        list(reader)
    assert closed == [3]


def test_two_interruptions_one_after_the_other_do_not_end_a_reading_in_silence() -> None:
    reader = parallel_read("f-*", shuffle=False, num_epochs=1)
    before = sys.gettrace()
    for name in ("_in_turn", "_receive"):

        def interrupt(frame: Any, event: str, _: Any, name: str = name) -> None:
            if event == "call" and frame.f_code.co_name == name:
                raise KeyboardInterrupt

        sys.settrace(interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                reader.read()
        finally:
            sys.settrace(before)
    for _ in range(2):
        with pytest.raises(UsageError, match=r"^the read was interrupted, and some records may be lost(?m:$)"):
            reader.read()


def test_a_reader_cannot_be_read_by_code_that_interrupts_its_reading() -> None:
    reader = parallel_read("f-*", shuffle=False, num_epochs=1)
    chunks = reader._chunks

    def read_inside() -> Iterator[Any]:
        for chunk in chunks:
            with pytest.raises(UsageError, match=r"^records were requested while the reader returns some to the same"):
                reader.read()
            yield chunk

    reader._chunks = read_inside()
    assert len(list(reader)) == reader.num_records_produced > 0


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers that interrupt")
@pytest.mark.parametrize("deterministic", [False, True])
def test_an_interrupt_while_waiting_raises_the_interrupting_exception(deterministic: bool) -> None:
    going_on = threading.Event()

    def hang(_: str) -> Iterator[tuple[bytes, bytes]]:
        going_on.wait(30)
        yield b"k", b"v"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    reader = parallel_read("f-*", hang, shuffle=False, num_epochs=1, deterministic=deterministic)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            reader.read()
    finally:
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(UsageError, match=r"^the read was interrupted, and some records may be lost(?m:$)"):
        reader.read()
    going_on.set()
