"""All workers of an iteration read the same epoch, and the next iteration reads the next one."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.framework_samples import keep_counter, take_epoch

from registry.reading.frameworks.sharing import EpochCounter, IterationKey


@given(workers=st.lists(st.integers(2, 5), min_size=1, max_size=6), data=st.data())
def test_iterations_that_begin_in_any_order_have_an_epoch_each(workers: list[int], data: st.DataObject) -> None:
    counter = EpochCounter(3)
    asking = [number for number, count in enumerate(workers) for _ in range(count)]
    given_out: dict[int, set[int]] = {}
    for number in data.draw(st.permutations(asking)):
        drawn = number % 2  # a loader may draw the same number twice, and then iterates one after the other
        epoch = counter.take(IterationKey(drawn, number // 2), workers=workers[number])
        given_out.setdefault(number, set()).add(epoch)
    assert all(len(epochs) == 1 for epochs in given_out.values())
    assert sorted(epoch for epochs in given_out.values() for epoch in epochs) == list(range(3, 3 + len(workers)))


def test_a_loader_that_draws_the_same_number_again_begins_the_next_epoch() -> None:
    counter = EpochCounter()
    assert [counter.take(IterationKey(5, 0), workers=3) for _ in range(9)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_iterations_whose_workers_died_do_not_fill_the_count() -> None:
    counter = EpochCounter()
    assert [counter.take(IterationKey(number, 0), workers=2) for number in range(1000)] == list(range(1000))
    assert counter.take(IterationKey(999, 0), workers=2) == 999


def test_a_chosen_epoch_is_followed_by_the_next() -> None:
    counter = EpochCounter()
    started = IterationKey(5, 0)
    assert [counter.take(started, workers=2, at=8), counter.take(started, workers=2, at=8), counter.take()] == [8, 8, 9]
    counter.set(2)
    assert (counter.next_epoch, counter.take(), counter.next_epoch) == (2, 2, 3)


def test_a_pickled_copy_counts_by_itself() -> None:
    counter = EpochCounter(4)
    copy = pickle.loads(pickle.dumps(counter))  # noqa: S301 (made here)
    assert (copy.take(), copy.take(), counter.take()) == (4, 5, 4)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_processes_share_the_count(start: str) -> None:
    counter = EpochCounter()
    context = get_context(start)
    workers = [
        ProcessPoolExecutor(1, mp_context=context, initializer=keep_counter, initargs=(counter,)) for _ in range(2)
    ]
    for epoch in range(2):
        answers = [worker.submit(take_epoch, 1, epoch) for worker in workers]
        assert [answer.result(timeout=600) for answer in answers] == [epoch, epoch]
    for worker in workers:
        worker.shutdown()
    assert counter.take() == 2
