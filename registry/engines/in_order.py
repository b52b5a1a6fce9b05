"""How is one function called on many items by several processes, or threads, with the results in order?"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import lru_cache
from typing import Any, TypeVar

from registry.engines.workers import ItemFailedError, NotSendableError, WorkerPool, call_each
from registry.errors import RegistryError

T = TypeVar("T")


def call_in_order(
    function: Callable[[T], Any], items: Sequence[T], *, processes: int, doing: str, failure: type[RegistryError]
) -> Generator[tuple[T, Any]]:
    """Each of ``items`` and what ``function`` gives for it, in order; at most two for each process are under way.

    ``function`` must be one that pickles, and hold nothing but values: where it cannot travel, or one process is
    enough, it is called here. What it raises is raised here, at its item.

    Args:
        function: what is called.
        items: on what.
        processes: how many call it.
        doing: what is said of a worker that dies: "a worker process was ended by signal 9 while it <doing>".
        failure: the error for that, and for an error of ``function`` that is not one of the registry's.
    """
    with ExitStack() as stack:
        pool: WorkerPool | None = None
        if processes > 1 and len(items) > 1:
            try:
                pool = stack.enter_context(WorkerPool(function, processes=processes, doing=doing, failure=failure))
            except NotSendableError:
                pool = None
        if pool is None:
            for item in items:
                yield item, function(item)
            return
        waiting: deque[tuple[T, Future[list[Any]]]] = deque()
        for item in items:
            waiting.append((item, pool.submit([item])))
            if len(waiting) > 2 * pool.processes:
                yield _outcome(function, *waiting.popleft(), doing=doing, failure=failure)
        while waiting:
            yield _outcome(function, *waiting.popleft(), doing=doing, failure=failure)


def call_in_threads(function: Callable[[T], Any], items: Iterable[T], *, threads: int) -> Generator[tuple[T, Any]]:
    """The same by ``threads`` of this process, for a function that mostly runs outside of the interpreter's lock."""
    if threads < 2:
        for item in items:
            yield item, function(item)
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="registry")
    try:
        yield from call_ahead(pool, function, items, most=2 * threads + 1)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def call_ahead(
    pool: Executor, function: Callable[[T], Any], items: Iterable[T], *, most: int
) -> Generator[tuple[T, Any]]:
    """The same by a pool of threads that others use, too: ``most`` calls are under way, or wait to be handed out."""
    waiting: deque[tuple[T, Future[Any]]] = deque()
    try:
        for item in items:
            waiting.append((item, submit(pool, function, item)))
            if len(waiting) >= most:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    finally:
        for _, future in waiting:
            future.cancel()


def submit(pool: Executor, function: Callable[[T], Any], item: T) -> Future[Any]:
    """The call as a future; it is done here where the pool has no thread to give.

    A pool takes no more calls once the main thread has ended, while other threads go on; and the system may have no
    thread left. What it took before it found that out, it may call, too.
    """
    try:
        return pool.submit(function, item)
    except RuntimeError:
        future: Future[Any] = Future()
        try:
            future.set_result(function(item))
        except BaseException as error:  # noqa: BLE001 (raised again where its result is asked for)
            future.set_exception(error)
        return future


@lru_cache(maxsize=1)
def shared_threads(process: int) -> Executor:  # noqa: ARG001 (another process needs threads of its own)
    """The threads of a process, given by its id, for short calls that wait for nothing; as many as it has cores."""
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="registry")


def _outcome(
    function: Callable[[T], Any], item: T, future: Future[list[Any]], *, doing: str, failure: type[RegistryError]
) -> tuple[T, Any]:
    try:
        (result,) = future.result()
    except NotSendableError:
        (result,) = call_each(function, [item])
    except ItemFailedError as failed:
        if isinstance(failed.error, RegistryError):
            raise failed.error from failed
        kind, text = failed.error.args
        raise failure(f"a worker process met {kind} while it {doing}: {text}") from failed
    return item, result
