"""Calls that run ahead of the consumer, in a shared pool or in a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from registry.engines import call_ahead, call_in_thread


def test_what_a_pool_without_threads_does_not_take_is_called_here() -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    assert list(call_ahead(pool, str, range(5), most=2)) == [(number, str(number)) for number in range(5)]


def test_an_error_of_a_call_here_comes_at_its_item() -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    calls = call_ahead(pool, lambda number: 1 / number, [1, 0, 2], most=2)
    assert next(calls) == (1, 1.0)
    with pytest.raises(ZeroDivisionError):
        next(calls)


def test_calls_in_a_thread_have_the_order_of_their_items_and_are_few() -> None:
    drawn: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            drawn.append(number)
            yield number

    names: set[str] = set()

    def call(number: int) -> int:
        names.add(threading.current_thread().name)
        return number * number

    for number, square in call_in_thread(call, items(), most=3):
        assert square == number * number
        assert len(drawn) <= number + 3
    assert drawn == list(range(100))
    assert len(names) == 1
    assert threading.current_thread().name not in names


def test_without_a_thread_each_call_is_made_when_its_result_is_requested() -> None:
    threads: list[threading.Thread] = []
    calls = call_in_thread(lambda _: threads.append(threading.current_thread()), range(3), most=3, is_used=False)
    assert threads == []
    assert next(calls) == (0, None)
    assert threads == [threading.current_thread()]


@pytest.mark.parametrize("is_used", [True, False])
def test_an_error_in_a_thread_is_raised_at_its_item_and_ends_the_thread(is_used: bool) -> None:
    before, called = set(threading.enumerate()), list[int]()

    def call(number: int) -> float:
        called.append(number)
        return 1 / number

    calls = call_in_thread(call, [1, 2, 0, 4, 5, 6, 7, 8], most=3, is_used=is_used)
    assert [next(calls), next(calls)] == [(1, 1.0), (2, 0.5)]
    with pytest.raises(ZeroDivisionError):
        next(calls)
    assert 8 not in called
    assert set(threading.enumerate()) <= before


def test_an_error_of_an_item_is_raised_after_the_results_before_it() -> None:
    def items() -> Iterator[int]:
        yield from (1, 2)
        raise KeyError("gone")

    calls = call_in_thread(str, items(), most=3)
    assert [next(calls), next(calls)] == [(1, "1"), (2, "2")]
    with pytest.raises(KeyError, match="gone"):
        next(calls)


def test_the_thread_ends_with_a_consumer_that_stops_early() -> None:
    before = set(threading.enumerate())
    calls = call_in_thread(str, iter(int, 1), most=3)
    next(calls)
    assert set(threading.enumerate()) > before
    calls.close()
    assert set(threading.enumerate()) <= before
