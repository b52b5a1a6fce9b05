"""How are elements made ready before they are asked for? A few ahead, by threads that end when there are enough.

TF-Slim puts such a queue between batches that are put together and the steps that take them. Here nothing waits for
room in it: a thread makes elements until ``capacity`` are ready, then ends, and is started again when half are taken.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import repeat
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import numpy as np

from registry.errors import OutOfRangeError, UsageError, WrongTypeError
from registry.slim.background import start, wait_for
from registry.slim.data_decoder import as_array, not_alike, stack_arrays
from registry.slim.option_checks import at_least

T = TypeVar("T")

_CLOSE_SECONDS: Final = 1.0
_VALUES: Final = (np.ndarray, np.generic, int, float, complex, str, bytes)
_A_FUNCTION: Final = "Give a function that makes the next element: lambda: provider.get(['image', 'label'])."


class PrefetchQueue(Generic[T]):
    """Elements made ahead. Made by ``prefetch_queue``, which has the arguments.

    Iterate, or call ``dequeue``; threads may do so at the same time. An error of the source comes after all elements
    that it gave before, and again whenever more is asked for.
    """

    def __init__(self, source: Callable[[], T], *, capacity: int, num_threads: int, dynamic_pad: bool) -> None:
        self._work = _Work(source, capacity=capacity, num_threads=num_threads)
        self._dynamic_pad = dynamic_pad
        self._process = os.getpid()

    def dequeue(self) -> T:
        """The next element.

        Raises:
            OutOfRangeError: there are no more; it is a StopIteration.
            UsageError: it was closed, or made in another process.
            Exception: what the source raised.
        """
        self._check_process()
        return self._work.take()

    def dequeue_many(self, n: int) -> Any:
        """The next ``n`` elements, stacked: each array has them as its first dimension.

        Raises:
            OutOfRangeError: fewer are left. They can still be taken by ``dequeue_up_to``.
            WrongTypeError: their shapes differ, and ``dynamic_pad`` is off; or they differ in more than their shapes.
        """
        return self._take_stacked(n, all_of_them=True)

    def dequeue_up_to(self, n: int) -> Any:
        """The same; fewer where fewer are left, and OutOfRangeError where none is."""
        return self._take_stacked(n, all_of_them=False)

    def size(self) -> int:
        """How many elements are ready; UsageError in another process, where a lock may be held for ever."""
        self._check_process()
        return self._work.num_ready()

    def close(self) -> None:
        """Make no more. Waits for what is being made, a second at most."""
        if os.getpid() == self._process:
            self._work.close()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self.dequeue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        work = getattr(self, "_work", None)
        if work is not None:
            work.abandon()

    def __reduce__(self) -> tuple[Any, ...]:
        raise _of_this_process()

    def _take_stacked(self, n: int, *, all_of_them: bool) -> Any:
        n = at_least("n", n, 1)
        self._check_process()
        elements = self._work.take_many(n, all_of_them=all_of_them)
        try:
            return self._stack(elements)
        except Exception:
            raise
        except BaseException:  # interrupted
            self._work.give_back(elements)
            raise

    def _stack(self, elements: Sequence[Any]) -> Any:
        first = elements[0]
        if isinstance(first, Mapping):
            names = list(first)
            if any(list(element) != names for element in elements):
                raise not_alike("names", [list(element) for element in elements])
            return {name: self._stack([element[name] for element in elements]) for name in names}
        if isinstance(first, tuple | list):
            if any(len(element) != len(first) for element in elements):
                raise not_alike("numbers of values", [len(element) for element in elements])
            return [self._stack(values) for values in zip(*elements, strict=True)]
        return stack_arrays([as_array(value) for value in elements], pad=self._dynamic_pad)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise _of_this_process()


class _Work(Generic[T]):
    """What the threads of a queue share; they do not hold the queue itself, so that it can be dropped half-way.

    Nobody waits by ``threading.Condition``: who is interrupted in its ``wait`` may come out of it without the lock.
    """

    def __init__(self, source: Callable[[], T], *, capacity: int, num_threads: int) -> None:
        self._source: Callable[[], T] | None = source
        self._capacity = capacity
        self._num_threads = num_threads
        self._turn = threading.RLock()  # of those who take, held while they wait
        self._lock = threading.RLock()  # of all that follows, never held while anybody waits
        self._waiting: list[threading.Lock] = []  # each is held until something changes
        self._ready: deque[T] = deque()
        self._making: set[object] = set()  # a token of each thread: one whose token was taken away makes nothing
        self._threads: list[Future[None]] = []
        self._end: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._closed = False

    def num_ready(self) -> int:
        with self._lock:
            return len(self._ready)

    def take(self) -> T:
        return self.take_many(1, all_of_them=True)[0]

    def take_many(self, n: int, *, all_of_them: bool) -> list[T]:
        """The next ``n`` elements together: others who take at the same time get those before or after them."""
        taken: list[T] = []
        try:
            with self._turn:
                while len(taken) < n and self._take_some(taken, n, all_of_them=all_of_them):
                    pass
            return taken
        except BaseException:
            self.give_back(taken)  # nothing is lost that was made
            raise

    def give_back(self, taken: list[T]) -> None:
        """Have these elements taken once more, before all others."""
        with self._lock:
            self._ready.extendleft(reversed(taken))
            self._wake()

    def close(self) -> None:
        self.abandon()
        if self._lock.acquire(timeout=_CLOSE_SECONDS):
            self._ready.clear()
            self._wake()
            self._lock.release()
        wait_for(self._threads, seconds=_CLOSE_SECONDS)
        self._threads = []

    def abandon(self) -> None:
        # Without the lock: a garbage collection may come here while this very thread holds it.
        self._closed = True
        self._source = None

    def _take_some(self, taken: list[T], n: int, *, all_of_them: bool) -> bool:
        """Move what is ready to ``taken``, so that it has ``n`` at most, or wait; False where no more come."""
        with self._lock:
            self._start_threads()
            if self._ready and not self._closed:
                # One call, in which no interrupt comes: what is neither here nor there would be lost.
                taken.extend(map(deque.popleft, repeat(self._ready, min(n - len(taken), len(self._ready)))))
                self._start_threads()
                return True
            if self._closed or not self._making:
                if taken and not all_of_them:
                    return False
                raise self._error()
            change = threading.Lock()
            change.acquire()
            self._waiting.append(change)
        change.acquire()
        return True

    def _wake(self) -> None:
        """Let all who wait look again: some of them may have been interrupted long ago. The lock is held."""
        for change in self._waiting:
            change.release()
        self._waiting.clear()

    def _error(self) -> BaseException:
        if self._closed:
            return UsageError("this queue was closed", hint="Make a new one.")
        if self._end is None or isinstance(self._end, StopIteration):
            return OutOfRangeError("there are no more elements")
        return self._end.with_traceback(self._traceback)

    def _start_threads(self) -> None:
        """Start what makes more, where half of what there may be is taken. The lock is held."""
        if 2 * len(self._ready) > self._capacity:
            return
        while len(self._making) < min(self._num_threads, self._capacity - len(self._ready)):
            if self._end is not None or self._closed:
                return
            token = object()
            try:
                self._making.add(token)
                self._threads = [thread for thread in self._threads if not thread.done()]
                self._threads.append(start(partial(self._make, token), name="prefetch"))
            except BaseException:  # interrupted, and nobody knows whether the thread runs
                self._making.discard(token)
                raise

    def _make(self, token: object) -> None:
        """Make elements as long as there is room: an element that is being made has its place already."""
        with self._lock:
            if token not in self._making:
                return
        while True:
            source = self._source
            element: T | None = None
            error: BaseException | None = None
            try:
                if source is not None:
                    element = source()
            except BaseException as raised:  # noqa: BLE001 (raised again where the element would have come)
                error = raised
            with self._lock:
                self._wake()
                if error is not None and (self._end is None or isinstance(self._end, StopIteration)):
                    self._end, self._traceback = error, error.__traceback__
                if error is None and source is not None:
                    self._ready.append(element)  # type: ignore[arg-type]  # it was made just now
                has_room = len(self._ready) + len(self._making) <= self._capacity
                if self._end is not None or self._closed or not has_room:
                    self._making.discard(token)
                    return


def prefetch_queue(
    tensors: Callable[[], T] | Iterable[T],
    capacity: int = 8,
    num_threads: int = 1,
    dynamic_pad: bool = False,
    shared_name: str | None = None,  # noqa: ARG001 (a name in a graph, and there is none)
    name: str | None = None,  # noqa: ARG001 (the same)
) -> PrefetchQueue[T]:
    """Make elements ready before they are asked for.

        queue = prefetch_queue(lambda: provider.get(["image", "label"]))
        image, label = queue.dequeue()

    Args:
        tensors: gives the elements: an iterable, which one thread goes on with, or a function without arguments, which
            all threads call, and which ends by StopIteration, as ``provider.get`` does. An element is an array, a list
            of them, or a dict of them, which is given with its names sorted.
        capacity: how many elements are ready at most, with those that are being made.
        num_threads: how many threads make them. Those that several make of a function come as they are ready.
        dynamic_pad: whether arrays of other sizes, that are stacked, are filled up with zeros or ``b""``.
        shared_name: without effect.
        name: without effect.

    Raises:
        UsageError: a number that cannot be.
        WrongTypeError: ``tensors`` gives no elements, or is the list of arrays that is one element in TF-Slim; or, as
            the error of the source, it gives generators.
    """
    capacity = at_least("capacity", capacity, 1)
    num_threads = at_least("num_threads", num_threads, 1)
    if isinstance(tensors, Mapping) or not (callable(tensors) or isinstance(tensors, Iterable)):
        raise WrongTypeError(f"a value of the type {type(tensors).__name__} gives no elements", hint=_A_FUNCTION)
    if isinstance(tensors, list | tuple) and tensors and all(isinstance(value, _VALUES) for value in tensors):
        raise WrongTypeError(
            f"a {'list' if isinstance(tensors, list) else 'tuple'} of values may be one element, or many",
            hint=f"{_A_FUNCTION} Where each value is an element: iter([...]).",
        )
    make: Callable[[], T] = partial(next, iter(tensors)) if isinstance(tensors, Iterable) else tensors
    if isinstance(tensors, Iterable):
        num_threads = 1  # an iterator gives one element at a time, and so they keep their order
    return PrefetchQueue(
        lambda: _as_element(make()), capacity=capacity, num_threads=num_threads, dynamic_pad=dynamic_pad
    )


# In TF-Slim the function is in a module of its name: slim.prefetch_queue.prefetch_queue is the function, too.
prefetch_queue.prefetch_queue = prefetch_queue  # type: ignore[attr-defined]  # of a function, which has no such field


def _of_this_process() -> UsageError:
    return UsageError(
        "a queue is of use only in the process that made it", hint="Make one in each process that takes of it."
    )


def _as_element(made: Any) -> Any:
    if isinstance(made, Generator):
        name = getattr(made, "__name__", "the function")
        raise WrongTypeError(
            f"{name} gave a generator, not an element",
            hint=f"Call the function once, to iterate over what it gives: prefetch_queue({name}()).",
        )
    return {name: made[name] for name in sorted(made)} if isinstance(made, Mapping) else made
