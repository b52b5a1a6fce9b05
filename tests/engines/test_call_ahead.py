"""Calls that run ahead of the consumer in a shared pool that its owner closes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from registry.engines import call_ahead


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
