"""TF-Slim's prefetch queue: makes elements before they are asked for.

TF-Slim puts such a queue between the batching of elements and the training step. Here no thread waits for room in it,
see ``read_ahead``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

import numpy as np

from registry.errors import OutOfRangeError, UsageError, WrongTypeError
from registry.model.numbers import whole_number
from registry.slim.data_decoder import as_array, not_alike, stack_arrays
from registry.slim.read_ahead import OfOneProcess, ReadAhead, join

T = TypeVar("T")

_VALUES: Final = (np.ndarray, np.generic, int, float, complex, str, bytes)
_A_FUNCTION: Final = "Give a function that makes the next element: lambda: provider.get(['image', 'label'])."


class PrefetchQueue(OfOneProcess, Generic[T]):
    """Elements made ahead. Made by ``prefetch_queue``, which has the arguments.

    Iterate, or call ``dequeue``; threads may do so at the same time. An error of the source comes after all elements
    that it gave before, and again whenever more is asked for.
    """

    _refusal = ("a queue is of use only in the process that made it", "Make one in each process that takes of it.")

    def __init__(self, source: Callable[[], T], *, capacity: int, num_threads: int, dynamic_pad: bool) -> None:
        super().__init__()
        self._ahead = ReadAhead(
            source,
            capacity=capacity,
            num_threads=num_threads,
            name="prefetch",
            closed_error=lambda: UsageError("this queue was closed", hint="Make a new one."),
        )
        self._dynamic_pad = dynamic_pad

    def dequeue(self) -> T:
        """The next element.

        Raises:
            OutOfRangeError: there are no more; it is a StopIteration.
            UsageError: it was closed, or made in another process.
            Exception: what the source raised.
        """
        return self._take(1, all_of_them=True)[0]

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
        return self._ahead.num_ready()

    def close(self) -> None:
        """Make no more. Waits for what is being made, a second at most."""
        if os.getpid() == self._process:
            self._ahead.close()
            join(self._ahead.threads)

    def __next__(self) -> T:
        return self.dequeue()

    def __del__(self) -> None:
        ahead = getattr(self, "_ahead", None)
        if ahead is not None:
            ahead.abandon()

    def _take_stacked(self, n: int, *, all_of_them: bool) -> Any:
        elements = self._take(whole_number(n, "n", least=1, error=WrongTypeError), all_of_them=all_of_them)
        try:
            return self._stack(elements)
        except Exception:
            raise
        except BaseException:  # interrupted
            self._ahead.give_back(elements)
            raise

    def _take(self, n: int, *, all_of_them: bool) -> list[T]:
        self._check_process()
        try:
            return self._ahead.take_many(n, all_of_them=all_of_them)
        except StopIteration:
            raise OutOfRangeError("there are no more elements") from None

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


def prefetch_queue(
    tensors: Callable[[], T] | Iterable[T],
    capacity: int = 8,
    num_threads: int = 1,
    dynamic_pad: bool = False,
    shared_name: str | None = None,  # noqa: ARG001 (a name in TensorFlow's graph)
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
    capacity = whole_number(capacity, "capacity", least=1, error=WrongTypeError)
    num_threads = whole_number(num_threads, "num_threads", least=1, error=WrongTypeError)
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


def _as_element(made: Any) -> Any:
    if isinstance(made, Generator):
        name = getattr(made, "__name__", "the function")
        raise WrongTypeError(
            f"{name} gave a generator, not an element",
            hint=f"Call the function once, to iterate over what it gives: prefetch_queue({name}()).",
        )
    return {name: made[name] for name in sorted(made)} if isinstance(made, Mapping) else made
