"""Who encodes the examples of a build: this process, or several? The same records in the same order either way.

A build starts in its own process, so that a small dataset is done at once. Left to choose, it takes workers when a
dataset turns out to be big and its examples slow enough to encode that sending them elsewhere pays.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from registry.building.sorter import Entry
from registry.engines import ForeignError, ItemFailedError, NotSendableError, WorkerPool, call_each, num_cpus
from registry.errors import BuildError, FeatureError, RegistryError, UsageError

_log = logging.getLogger(__name__)

SMALL_EXAMPLES: Final = 10_000
SMALL_BYTES: Final = 16 * 2**20
_CHUNK_EXAMPLES: Final = 512
_CHUNK_BYTES: Final = 2**20
_SLOW_SECONDS: Final = 40e-6  # an example that takes longer to encode is worth its way to another process and back
_MOST_PROCESSES: Final = 16  # one generator cannot feed more


class RecordEncoder(Protocol):
    """What the engine needs of the codec of a dataset's features."""

    def encode(self, example: Any, /) -> bytes:
        """The record of ``example``; FeatureError where it does not fit."""
        ...


class KeyedExample(NamedTuple):
    """What an author yielded, with its key already turned into a place: see ``registry.building.generation``."""

    sort_key: bytes
    label: str
    example: Any


class Engine:
    """Encodes examples with the features of one dataset. A context manager: leaving it ends every process it started.

    ``processes`` 1 is this process alone, more is that many workers from the start, None is chosen while building.
    """

    def __init__(self, features: RecordEncoder, *, processes: int | None = None) -> None:
        if processes is not None and processes < 1:
            raise UsageError(
                f"a build takes 1 process or more, not {processes}", hint="Leave it out to choose by size."
            )
        self._features = features
        self._may_start = processes is None and num_cpus() > 1
        self._processes = min(num_cpus(), _MOST_PROCESSES) if processes is None else processes
        self._pool: WorkerPool | None = None
        self._num_examples = 0
        self._num_bytes = 0
        self._num_seconds = 0.0
        self._warned = False
        if processes is not None and processes > 1:
            self._start()

    def encode(self, split: str, examples: Iterator[KeyedExample]) -> Iterator[Entry]:
        """The entries of ``examples``, in order. No more than a few chunks of about 1 MB are held at a time.

        Raises:
            FeatureError: an example does not fit the features; names split and key.
            BuildError: features failed in another way, or a worker process died.
        """
        while self._pool is None:
            item = next(examples, None)
            if item is None:
                return
            yield self._encode_here(split, item)
            if self._may_start and (self._num_examples >= SMALL_EXAMPLES or self._num_bytes >= SMALL_BYTES):
                self._may_start = False
                if self._num_seconds / self._num_examples >= _SLOW_SECONDS:
                    self._start()
        yield from self._encode_in_workers(split, examples, self._pool)

    def close(self) -> None:
        """End the worker processes."""
        if self._pool is not None:
            self._pool.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        try:
            self._pool = WorkerPool(
                self._features.encode, processes=self._processes, doing="encoded examples", failure=BuildError
            )
        except NotSendableError as error:
            self._warn_once(error)

    def _warn_once(self, error: NotSendableError) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("encoding in this process, because examples or features cannot be sent to another: %s", error)

    def _encode_here(self, split: str, item: KeyedExample) -> Entry:
        started = time.perf_counter()
        try:
            record = self._features.encode(item.example)
        except Exception as error:
            raise _example_error(split, item.label, error) from error
        self._num_seconds += time.perf_counter() - started
        self._num_examples += 1
        self._num_bytes += len(record)
        return Entry(item.sort_key, item.label, record)

    def _encode_in_workers(self, split: str, examples: Iterator[KeyedExample], pool: WorkerPool) -> Iterator[Entry]:
        pending: deque[tuple[list[KeyedExample], Future[list[bytes]]]] = deque()
        failure: RegistryError | None = None
        chunks = self._chunks(examples)
        while True:
            try:
                chunk = next(chunks, None)
            except RegistryError as error:  # what was yielded before it comes first, whichever process encodes it
                failure, chunk = error, None
            if chunk is None:
                break
            pending.append((chunk, pool.submit([item.example for item in chunk])))
            if len(pending) > pool.processes + 1:
                yield from self._entries(split, *pending.popleft())
        while pending:
            yield from self._entries(split, *pending.popleft())
        if failure is not None:
            raise failure

    def _entries(self, split: str, chunk: list[KeyedExample], future: Future[list[bytes]]) -> Iterator[Entry]:
        try:
            try:
                records = future.result()
            except NotSendableError as error:
                self._warn_once(error)
                records = call_each(self._features.encode, [item.example for item in chunk])
        except ItemFailedError as failure:
            raise _example_error(split, chunk[failure.index].label, failure.error) from failure.error
        self._num_examples += len(records)
        for item, record in zip(chunk, records, strict=True):
            self._num_bytes += len(record)
            yield Entry(item.sort_key, item.label, record)

    def _chunks(self, examples: Iterator[KeyedExample]) -> Iterator[list[KeyedExample]]:
        """``examples`` in lists of about 1 MB, before or after encoding; never more than 512 in one."""
        chunk: list[KeyedExample] = []
        num_bytes = 0
        try:
            for item in examples:
                chunk.append(item)
                mean_record_bytes = self._num_bytes // self._num_examples if self._num_examples else 0
                num_bytes += max(_estimate_bytes(item.example), mean_record_bytes)
                if len(chunk) == _CHUNK_EXAMPLES or num_bytes >= _CHUNK_BYTES:
                    yield chunk
                    chunk, num_bytes = [], 0
        except RegistryError:
            if chunk:
                yield chunk
            raise
        if chunk:
            yield chunk


def _example_error(split: str, label: str, error: Exception) -> RegistryError:
    failure = _describe_failure(error)
    kind = FeatureError if isinstance(failure, FeatureError) else BuildError
    return kind(
        f"split {split!r}, example with key {label}: {failure.message}",
        hint=failure.hint,
        details={**failure.details, "split": split, "key": label},
    )


def _describe_failure(error: Exception) -> RegistryError:
    """What went wrong with an example, in our words where it is not ours; the same in every process."""
    if isinstance(error, RegistryError):
        return error
    kind, text = error.args if isinstance(error, ForeignError) else (type(error).__name__, error)
    return BuildError(f"its features failed with {kind}: {text}")


def _estimate_bytes(value: object) -> int:
    """About how much memory an example takes: enough to keep chunks of big examples short."""
    if isinstance(value, dict):  # a loop, because this runs for every example in the one process that feeds the others
        total = 0
        for inner in value.values():
            total += inner.nbytes if type(inner) is np.ndarray else _estimate_bytes(inner)
        return total
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, list | tuple):
        return len(value) * (_estimate_bytes(value[0]) if value else 0)
    return 32
