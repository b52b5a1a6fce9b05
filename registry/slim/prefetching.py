"""TF-Slim's prefetch queue: computes elements before they are requested.

TF-Slim places such a queue between batching and the training step. Its threads never wait for room in the queue; see
``read_ahead``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

import numpy as np

from registry.errors import OutOfRangeError, WrongTypeError
from registry.model import whole_number
from registry.slim.data_decoder import as_array, not_alike, stack_arrays
from registry.slim.read_ahead import OfOneProcess, ReadAhead, join

T = TypeVar("T")

_VALUES: Final = (np.ndarray, np.generic, int, float, complex, str, bytes)
_A_FUNCTION: Final = "Pass a function that returns the next element: lambda: provider.get(['image', 'label'])."


class PrefetchQueue(OfOneProcess, Generic[T]):
    """Elements that are computed ahead. ``prefetch_queue`` creates it.

    Iterate over it, or call ``dequeue``; several threads may do so. An error of the source is raised after all elements
    before it, and again with every later call.
    """

    _refusal = ("a queue can only be used in the process that created it", "Create a queue in each process.")

    def __init__(self, source: Callable[[], T], *, capacity: int, num_threads: int, dynamic_pad: bool) -> None:
        super().__init__()
        self._ahead = ReadAhead(
            source,
            capacity=capacity,
            num_threads=num_threads,
            name="prefetch",
            of="queue",
        )
        self._dynamic_pad = dynamic_pad

    def dequeue(self) -> T:
        """The next element.

        Raises:
            OutOfRangeError: there are no more elements; it is a StopIteration.
            UsageError: the queue was closed, or created in another process.
            Exception: the source raised it.
        """
        return self._take(1, all_of_them=True)[0]

    def dequeue_many(self, n: int) -> Any:
        """The next ``n`` elements, stacked along a new first dimension.

        Raises:
            OutOfRangeError: fewer than ``n`` elements are left; ``dequeue_up_to`` still returns them.
            WrongTypeError: the elements differ in shape and ``dynamic_pad`` is off, or in more than their shape.
            UsageError: the queue was closed, or created in another process.
            Exception: the source raised it.
        """
        return self._take_stacked(n, all_of_them=True)

    def dequeue_up_to(self, n: int) -> Any:
        """The next ``n`` elements, or all that are left, stacked along a new first dimension.

        Raises:
            OutOfRangeError: there are no more elements; it is a StopIteration.
            WrongTypeError: the elements differ in shape and ``dynamic_pad`` is off, or in more than their shape.
            UsageError: the queue was closed, or created in another process.
            Exception: the source raised it.
        """
        return self._take_stacked(n, all_of_them=False)

    def size(self) -> int:
        """The number of elements that are ready.

        Raises:
            UsageError: the queue was created in another process. (Its lock may be held there forever.)
        """
        self._check_process()
        return self._ahead.num_ready()

    def close(self) -> None:
        """Stop computing elements. Waits up to a second for those in progress."""
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
            return self._ahead.take(n, all_of_them=all_of_them)
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
    """Compute elements before they are requested. Follows ``tf_slim.data.prefetch_queue.prefetch_queue``.

        queue = prefetch_queue(lambda: provider.get(["image", "label"]))
        image, label = queue.dequeue()

    Args:
        tensors: the source of elements: an iterable, which one thread iterates over, or a function without arguments,
            which all threads call. The function raises StopIteration at the end, as ``provider.get`` does. An element
            is an array, or a list or dict of arrays; a dict is returned with its names sorted.
        capacity: maximum number of elements that are ready or in progress.
        num_threads: number of threads. Elements from several threads come in the order in which they are ready.
        dynamic_pad: when stacking, pad smaller arrays with zeros or ``b""``.
        shared_name: ignored.
        name: ignored.

    >>> [int(value) for value in prefetch_queue(iter([1, 2, 3]))]
    [1, 2, 3]

    Raises:
        UsageError: a number is below 1.
        WrongTypeError: ``tensors`` is neither a function nor an iterable of elements, or is a list of arrays, which
            TF-Slim reads as one element. If the function returns a generator, ``dequeue`` raises it.
    """
    capacity = whole_number(capacity, "capacity", least=1, error=WrongTypeError)
    num_threads = whole_number(num_threads, "num_threads", least=1, error=WrongTypeError)
    if isinstance(tensors, Mapping) or not (callable(tensors) or isinstance(tensors, Iterable)):
        raise WrongTypeError(f"a {type(tensors).__name__} is not a source of elements", hint=_A_FUNCTION)
    if isinstance(tensors, list | tuple) and tensors and all(isinstance(value, _VALUES) for value in tensors):
        raise WrongTypeError(
            f"a {'list' if isinstance(tensors, list) else 'tuple'} of values is ambiguous: one element, or several",
            hint=f"{_A_FUNCTION} If each value is an element: iter([...]).",
        )
    make: Callable[[], T] = partial(next, iter(tensors)) if isinstance(tensors, Iterable) else tensors
    if isinstance(tensors, Iterable):
        num_threads = 1  # an iterator cannot be used by several threads, and one thread keeps the order
    return PrefetchQueue(
        lambda: _as_element(make()), capacity=capacity, num_threads=num_threads, dynamic_pad=dynamic_pad
    )


# In TF-Slim the function is in a module of the same name, so slim.prefetch_queue.prefetch_queue must be the function.
prefetch_queue.prefetch_queue = prefetch_queue  # type: ignore[attr-defined]  # an attribute added to a function


def _as_element(made: Any) -> Any:
    if isinstance(made, Generator):
        name = getattr(made, "__name__", "the function")
        raise WrongTypeError(
            f"{name} returned a generator, not an element",
            hint=f"Call the function, and pass the generator: prefetch_queue({name}()).",
        )
    return {name: made[name] for name in sorted(made)} if isinstance(made, Mapping) else made
