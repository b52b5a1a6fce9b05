"""Elements made ahead: in order, no more than there is room for, and errors in their place."""

from __future__ import annotations

import copy
import gc
import importlib
import itertools
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from support.golden import check_errors

from registry.errors import OutOfRangeError, UsageError, WrongTypeError
from registry.slim import prefetching, read_ahead
from registry.slim.prefetching import prefetch_queue

GOLDEN = Path(__file__).with_name("golden")


def test_the_queue_is_called_as_in_tf_slim() -> None:
    imported = importlib.import_module("registry.slim").prefetch_queue  # as "from tf_slim.data import prefetch_queue"
    assert list(imported.prefetch_queue(range(3))) == list(imported(range(3))) == [0, 1, 2]


def test_elements_come_in_order_and_then_the_end() -> None:
    for source in (range(50), iter(range(50)).__next__):
        with prefetch_queue(source, capacity=3) as queue:
            assert list(queue) == list(range(50))
            for _ in range(2):
                with pytest.raises(OutOfRangeError, match=r"^there are no more elements(?m:$)"):
                    queue.dequeue()


def test_several_threads_make_each_element_once() -> None:
    numbers, lock = itertools.count(), threading.Lock()

    def make() -> int:
        with lock:
            number = next(numbers)
        if number >= 500:
            raise StopIteration
        return number

    with prefetch_queue(make, capacity=5, num_threads=4) as queue:
        assert sorted(queue) == list(range(500))


def test_an_iterable_keeps_its_order_with_several_threads() -> None:
    with prefetch_queue((number for number in range(300)), capacity=5, num_threads=4) as queue:
        assert list(queue) == list(range(300))


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("capacity", [1, 2, 7])
def test_no_more_elements_are_made_than_there_is_room_for(capacity: int, num_threads: int) -> None:
    numbers = itertools.count()
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return next(numbers)

    with prefetch_queue(make, capacity=capacity, num_threads=num_threads) as queue:
        for taken in range(1, 100):
            queue.dequeue()
            for _ in range(20):
                assert len(made) <= taken + capacity
            assert queue.size() <= capacity


def test_an_error_comes_after_what_was_made_before_it_and_again() -> None:
    def make() -> Iterator[int]:
        yield from range(3)
        raise KeyError("mine")

    queue = prefetch_queue(make())
    assert [queue.dequeue() for _ in range(3)] == [0, 1, 2]
    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            queue.dequeue()


def test_names_of_a_dict_are_sorted() -> None:
    queue = prefetch_queue([{"b": 1, "a": 2}])
    assert list(queue.dequeue()) == ["a", "b"]


def test_elements_are_stacked() -> None:
    elements = [{"image": np.full((2, 1), number, np.uint8), "name": b"%d" % number} for number in range(5)]
    queue = prefetch_queue(elements)
    batch = queue.dequeue_many(2)
    assert batch["image"].tolist() == [[[0], [0]], [[1], [1]]]
    assert (batch["image"].dtype, batch["image"].shape) == (np.dtype(np.uint8), (2, 2, 1))
    assert batch["name"].tolist() == [b"0", b"1"]
    with pytest.raises(OutOfRangeError):
        queue.dequeue_many(4)
    assert queue.dequeue_up_to(4)["name"].tolist() == [b"2", b"3", b"4"]
    with pytest.raises(OutOfRangeError):
        queue.dequeue_up_to(1)


def test_lists_and_single_values_are_stacked_too() -> None:
    assert prefetch_queue(range(3)).dequeue_many(3).tolist() == [0, 1, 2]
    numbers, names = prefetch_queue([[1, "a"], [2, "b"]]).dequeue_many(2)
    assert (numbers.tolist(), names.tolist()) == ([1, 2], [b"a", b"b"])
    assert prefetch_queue(iter([np.zeros(2)] * 20), capacity=2).dequeue_many(20).shape == (20, 2)


def test_shorter_arrays_are_padded_on_request() -> None:
    texts = np.array([b"x", b"y"], object)
    elements = [[np.ones((1, 2)), texts[:1]], [np.ones((2, 1)), texts]]
    numbers, words = prefetch_queue(elements, dynamic_pad=True).dequeue_many(2)
    assert numbers.tolist() == [[[1, 1], [0, 0]], [[1, 0], [1, 0]]]
    assert words.tolist() == [[b"x", b""], [b"x", b"y"]]


def test_what_is_not_alike_is_not_stacked() -> None:
    check_errors(
        GOLDEN / "slim_prefetching" / "what_is_not_alike_is_not_stacked.txt",
        (
            partial(
                lambda elements, dynamic_pad: prefetch_queue(iter(elements), dynamic_pad=dynamic_pad).dequeue_many(2),
                *row,
            )
            for row in [
                ([np.zeros(2), np.zeros(3)], False),
                ([np.zeros(2), np.zeros((2, 1))], True),
                ([np.zeros(2), np.zeros(2, np.int64)], False),
                ([{"a": 1}, {"b": 1}], False),
                ([[1], [1, 2]], False),
            ]
        ),
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 0}, "capacity must be 1 or more, not 0"),
        ({"num_threads": 0}, "num_threads must be 1 or more, not 0"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        prefetch_queue(range(1), **options)
    assert str(caught.value) == message
    with pytest.raises(UsageError, match=r"^n must be 1 or more, not 0(?m:$)"):
        prefetch_queue(range(1)).dequeue_many(0)


def test_what_gives_no_elements_is_refused() -> None:
    sources: list[Any] = [7, {"image": np.zeros((20, 20))}, [np.zeros((20, 20)), np.int64(1)], (np.zeros(2),), [1, 2.5]]
    calls = (partial(prefetch_queue, source) for source in [*sources, ["a", b"b"]])
    check_errors(GOLDEN / "slim_prefetching" / "no_elements.txt", calls)


def test_lists_of_whole_elements_and_iterators_of_values_are_taken() -> None:
    assert [value.tolist() for value in prefetch_queue(iter([np.zeros(2), np.ones(2)]))] == [[0, 0], [1, 1]]
    assert list(prefetch_queue([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]
    assert list(prefetch_queue(np.arange(3))) == [0, 1, 2]
    assert list(prefetch_queue([])) == []


def test_a_generator_function_that_was_not_called_is_an_error() -> None:
    def pairs() -> Iterator[int]:
        yield 1

    for source in (pairs, [pairs()]):
        with prefetch_queue(source) as queue:
            for _ in range(2):
                with pytest.raises(WrongTypeError) as caught:
                    queue.dequeue()
                assert str(caught.value) == "pairs returned a generator, not an element"
                assert caught.value.hint == ("Call the function, and pass the generator: prefetch_queue(pairs()).")


def test_a_closed_queue_returns_nothing_and_leaves_no_thread() -> None:
    before = threading.active_count()
    queue = prefetch_queue(itertools.count(), num_threads=2)
    assert queue.dequeue() == 0
    queue.close()
    queue.close()
    assert threading.active_count() <= before
    with pytest.raises(UsageError, match=r"^this queue was closed(?m:$)"):
        queue.dequeue()


def test_a_queue_that_is_dropped_half_way_releases_its_source() -> None:
    class Source:
        def __call__(self) -> int:
            return 1

    source = Source()
    gone = weakref.ref(source)
    queue = prefetch_queue(source)
    assert queue.dequeue() == 1
    before = [thread for thread in threading.enumerate() if thread.name == "prefetch"]
    del queue, source
    for thread in before:
        thread.join(10)
    gc.collect()
    assert gone() is None
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch"]


def test_a_waiting_consumer_gets_an_error_when_the_queue_is_closed() -> None:
    go_on = threading.Event()

    def make() -> int:
        go_on.wait()
        return 1

    queue = prefetch_queue(make)
    failed: list[Exception] = []

    def consume() -> None:
        try:
            queue.dequeue()
        except UsageError as error:
            failed.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    while not [thread for thread in threading.enumerate() if thread.name == "prefetch"]:
        pass
    queue.close()
    consumer.join(10)
    assert [str(error) for error in failed] == ["this queue was closed"]
    go_on.set()


def test_a_queue_of_another_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = prefetch_queue(range(2))
    monkeypatch.setattr(os, "getpid", lambda: 1)
    for take in (queue.dequeue, lambda: queue.dequeue_many(1), queue.size):
        with pytest.raises(UsageError, match=r"^a queue can only be used in the process that created it(?m:$)"):
            take()


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_queue_cannot_be_pickled_or_copied(duplicate: Callable[[Any], Any]) -> None:
    with prefetch_queue(range(3)) as queue:
        with pytest.raises(UsageError) as caught:
            duplicate(queue)
        assert str(caught.value) == "a queue can only be used in the process that created it"
        assert caught.value.hint == "Create a queue in each process."
        assert list(queue) == [0, 1, 2]


@pytest.mark.parametrize("is_started", [False, True])
def test_a_consumer_interrupted_while_starting_a_thread_can_continue(
    monkeypatch: pytest.MonkeyPatch, is_started: bool
) -> None:
    start, late = read_ahead.start, []

    def interrupt(work: Any, *, name: str) -> Any:
        late.append(lambda: start(work, name=name))
        raise KeyboardInterrupt

    with prefetch_queue(range(50), capacity=3) as queue:
        monkeypatch.setattr(read_ahead, "start", interrupt)
        with pytest.raises(KeyboardInterrupt):
            queue.dequeue()
        monkeypatch.setattr(read_ahead, "start", start)
        if is_started:
            late[0]()  # it makes nothing, as another one takes its place
        assert list(queue) == list(range(50))


class InterruptAt:
    """Interrupts this thread where a signal could: when the queue enters a function, or a C function returns to it.

    Or to ``threading``; elsewhere, in what runs when an object is freed, an interrupt may be ignored.
    """

    files = (prefetching.__file__, read_ahead.__file__, threading.__file__)

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: FrameType, event: str, _value: Any) -> None:
        is_freeing = frame.f_code.co_name in ("__del__", "abandon")
        if event in ("call", "c_return") and frame.f_code.co_filename in self.files and not is_freeing:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt

    def run(self, function: Callable[[], Any]) -> Any:
        sys.setprofile(self)
        try:
            return function()
        finally:
            sys.setprofile(None)


@pytest.mark.parametrize("take", [lambda queue: [queue.dequeue()], lambda queue: queue.dequeue_many(3).tolist()])
def test_a_consumer_interrupted_anywhere_can_continue_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, take: Callable[[Any], list[int]]
) -> None:
    start_thread = read_ahead.start

    def start(work: Any, *, name: str) -> Any:  # which has its own test
        interrupt = sys.getprofile()
        sys.setprofile(None)
        started = start_thread(work, name=name)
        sys.setprofile(interrupt)
        return started

    monkeypatch.setattr(read_ahead, "start", start)
    for number in itertools.count(1):
        queue = prefetch_queue(iter(range(10)), capacity=2)
        try:
            taken = InterruptAt(number).run(lambda: take(queue))  # noqa: B023 (it is called at once)
        except KeyboardInterrupt:
            assert list(queue) == list(range(10)), number
        else:
            assert taken + list(queue) == list(range(10))
            break
    assert number > 20


def test_elements_taken_together_are_consecutive_with_several_consumers() -> None:
    go_on = [threading.Event() for _ in range(6)]

    def make() -> Iterator[int]:
        for number, event in enumerate(go_on):
            event.wait(10)
            yield number

    taken: list[list[int]] = []
    with prefetch_queue(make(), capacity=1) as queue:
        consumers = [threading.Thread(target=lambda: taken.append(queue.dequeue_many(3).tolist())) for _ in range(2)]
        for consumer in consumers:
            consumer.start()
        for event in go_on:
            event.set()
        for consumer in consumers:
            consumer.join(10)
    assert taken in ([[0, 1, 2], [3, 4, 5]], [[3, 4, 5], [0, 1, 2]])


def test_an_interrupt_while_a_thread_starts_is_not_taken_for_a_lack_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[threading.Thread] = []
    worked: list[threading.Thread] = []
    start = threading.Thread.start

    def interrupted(self: threading.Thread) -> None:
        start(self)
        started.append(self)
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise RuntimeError("release unlocked lock")  # noqa: B904 (as threading.Condition.wait may do)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read_ahead.start(lambda: worked.append(threading.current_thread()), name="work")
    for thread in started:
        thread.join(10)
    assert worked == started
    assert len(started) == 1


@pytest.mark.parametrize("message", ["can't start new thread", "can't create new thread at interpreter shutdown"])
def test_without_threads_the_work_is_done_at_once(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    def fail(_self: threading.Thread) -> None:
        raise RuntimeError(message)

    monkeypatch.setattr(threading.Thread, "start", fail)
    worked: list[threading.Thread] = []
    assert read_ahead.start(lambda: worked.append(threading.current_thread()), name="work") == []
    assert worked == [threading.current_thread()]
    assert list(prefetch_queue(range(20), capacity=3)) == list(range(20))


def test_a_thread_that_fails_to_start_for_another_reason_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_self: threading.Thread) -> None:
        raise RuntimeError("thread.__init__() not called")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(RuntimeError, match=r"^thread.__init__\(\) not called(?m:$)"):
        read_ahead.start(int, name="work")
