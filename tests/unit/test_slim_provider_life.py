"""The life cycle of a provider: threads, interruptions, closing, and nested calls."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.slim_provider_samples import NUM_RECORDS, RECORD_BYTES, Numbers, provider_of, write

from registry.errors import UsageError
from registry.tfrecord import RecordBlock


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("f", range(NUM_RECORDS))


def test_threads_share_the_records() -> None:
    provider = provider_of(num_epochs=25, shuffle=True, num_readers=2)
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.extend(number for (number,) in provider.iter(["number"])))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(25 * list(range(NUM_RECORDS)))


def test_a_closed_provider_provides_no_more_and_leaves_no_thread() -> None:
    before = threading.active_count()
    with provider_of(num_epochs=None, num_readers=3, shuffle=True) as provider:
        provider.get(["number"])
    assert threading.active_count() <= before
    with pytest.raises(UsageError, match=r"^this reader was closed(?m:$)"):
        provider.get(["number"])


def test_a_provider_that_is_dropped_half_way_leaves_no_threads() -> None:
    provider = provider_of(num_epochs=None, num_readers=3, shuffle=True)
    provider.get(["number"])
    gone = weakref.ref(provider)
    del provider
    gc.collect()
    assert gone() is None
    for thread in threading.enumerate():
        if thread.name.startswith("read "):
            thread.join(10)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("read ")]


def test_a_provider_of_another_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = provider_of()
    provider.get(["number"])
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(UsageError, match=r"^a reader can only be used in the process that created it(?m:$)"):
        provider.get(["number"])


def test_records_lost_by_an_interrupt_are_reported() -> None:
    def interrupt(chunks: Iterator[Any]) -> Iterator[Any]:
        next(chunks)
        raise KeyboardInterrupt
        yield

    with provider_of() as provider:
        provider._reader._chunks = interrupt(provider._reader._chunks)
        with pytest.raises(KeyboardInterrupt):
            provider.get(["number"])
        for _ in range(2):
            with pytest.raises(UsageError, match=r"^the read was interrupted, and some records may be lost(?m:$)"):
                list(provider)


@pytest.mark.parametrize("travel", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_provider_does_not_travel(travel: Any) -> None:
    for made in (provider_of(), provider_of()._reader):
        with pytest.raises(UsageError, match=r"^a reader can only be used in the process that created it(?m:$)"):
            travel(made)


def test_an_interrupt_while_a_record_is_decoded_keeps_row_and_record_in_step() -> None:
    class Stopped(Numbers):
        stopped = False

        def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[Any]:
            if int(data) == 9 and not self.stopped:
                self.stopped = True
                raise KeyboardInterrupt
            return super().decode(data, items)

    provider, found, notes = provider_of(decoder=Stopped()), [], ["none came"]
    while len(found) < NUM_RECORDS:
        try:
            found.append(provider.get(["number", "record_key"]))
        except KeyboardInterrupt as interrupted:
            notes = getattr(interrupted, "__notes__", [])
    assert notes == []
    assert found == [[number, b"f:%d" % (number * RECORD_BYTES)] for number in range(NUM_RECORDS)]


def interrupt_at(name: str) -> Any:
    """Has the next call of a function of this name interrupted as it begins, as a signal may."""

    def trace(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == name:
            sys.settrace(None)
            raise KeyboardInterrupt

    return trace


def test_a_row_decoded_for_an_interrupted_caller_is_decoded_again() -> None:
    provider, found = provider_of(), []
    before = sys.gettrace()
    for _ in range(4):
        found += [provider.get(["number", "record_key"]) for _ in range(5)]
        sys.settrace(interrupt_at("skip"))  # it is called right after a row was decoded
        try:
            with pytest.raises(KeyboardInterrupt):
                provider.get(["number", "record_key"])
        finally:
            sys.settrace(before)
    found += provider.iter(["number", "record_key"])
    assert found == [[number, b"f:%d" % (number * RECORD_BYTES)] for number in range(NUM_RECORDS)]


@pytest.mark.parametrize("name", ["next_row", "_next", "_peek", "_block_of", "skip"])
def test_an_interrupted_caller_never_gets_values_of_other_items(name: str) -> None:
    provider = provider_of()
    for _ in range(5):
        provider.get(["number"])
    before = sys.gettrace()
    sys.settrace(interrupt_at(name))
    try:
        with pytest.raises(KeyboardInterrupt):
            list(provider.iter(["double", "number"]))
    finally:
        sys.settrace(before)
    first = 6 if name == "_block_of" else 5  # the first record is decoded alone, and was returned
    assert list(provider.iter(["double"])) == [[2 * number] for number in range(first, NUM_RECORDS)]


def test_a_decoder_that_calls_its_own_provider_is_refused_and_no_record_is_lost() -> None:
    class Mixing(Numbers):
        provider: Any = None

        def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[Any]:
            if int(data) == 3 and self.provider is not None:
                provider, self.provider = self.provider, None
                provider.get(["number"])
            return super().decode(data, items)

    decoder = Mixing()
    decoder.provider = provider = provider_of(decoder=decoder)
    assert [provider.get(["number"])[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(UsageError) as caught:
        provider.get(["number"])
    assert caught.value.message == "records were requested while the provider decodes one for the same thread"
    assert caught.value.hint == "In a decoder or handler, read other records with another provider."
    assert [number for (number,) in provider.iter(["number"])] == list(range(4, NUM_RECORDS))


@pytest.mark.parametrize("last", [2, 4])
@pytest.mark.parametrize("eager", [False, True])
def test_a_provider_that_is_closed_while_it_decodes_gives_that_record_and_no_other(last: int, eager: bool) -> None:
    class Closing(Numbers):
        provider: Any = None

        def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[Any]:
            if int(data) == last:
                self.provider.close()
            return super().decode(data, items)

        def decode_rows(self, block: RecordBlock, items: Sequence[str]) -> Iterator[list[Any]]:
            rows = super().decode_rows(block, items)
            return iter(list(rows)) if eager else rows

    decoder = Closing()
    decoder.provider = provider = provider_of(decoder=decoder)
    # Records 1 and 2 are decoded together, and 3 to 6; of an eager decoder, before the first of them is given.
    stop = {(2, False): 3, (4, False): 5, (2, True): 2, (4, True): 4}[last, eager]
    assert [provider.get(["number"]) for _ in range(stop)] == [[number] for number in range(stop)]
    with pytest.raises(UsageError, match=r"^this reader was closed(?m:$)"):
        provider.get(["number"])


@pytest.mark.parametrize("close", ["provider.close", "provider._reader.close"])
def test_a_caller_that_waits_for_a_hanging_reader_gets_an_error_when_it_is_closed(close: str) -> None:
    hanging, waiting = threading.Event(), threading.Event()

    def read(_: str) -> Iterator[tuple[bytes, bytes]]:
        yield b"k", b"1"
        waiting.set()
        hanging.wait(30)

    provider = provider_of(reader=read, common_queue_capacity=2, common_queue_min=1)
    assert provider.get(["number"]) == [1]
    reported: list[BaseException] = []

    def get() -> None:
        try:
            provider.get(["number"])
        except UsageError as error:
            reported.append(error)

    thread = threading.Thread(target=get)
    thread.start()
    assert waiting.wait(10)
    {"provider.close": provider.close, "provider._reader.close": provider._reader.close}[close]()
    thread.join(10)
    hanging.set()
    assert [str(error) for error in reported] == ["this reader was closed"]


def test_a_provider_closed_while_a_batch_is_read_returns_no_shorter_batch() -> None:
    going_on, waiting = threading.Event(), threading.Event()

    def read(_: str) -> Iterator[tuple[bytes, bytes]]:
        for number in range(20):
            if number == 4:
                waiting.set()
                going_on.wait(30)
            yield b"k", b"%d" % number

    provider = provider_of(reader=read, common_queue_capacity=2, common_queue_min=1)
    reported: list[BaseException] = []

    def take() -> None:
        try:
            next(provider.batches(["number"], 10))
        except UsageError as error:
            reported.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    assert waiting.wait(10)
    provider._reader.close()
    thread.join(10)
    going_on.set()
    assert [str(error) for error in reported] == ["this reader was closed"]
