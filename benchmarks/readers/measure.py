"""Times one job of one reader: checks its first answer, then measures passes of limited length."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.readers.ours import Limit
from benchmarks.readers.peer import BATCH, JOBS, Example, Peer
from registry.features import codec_of

MIN_PASSES: Final = 3
CHUNK: Final = 256


@dataclass(frozen=True)
class Pass:
    """The number of examples read, the elapsed seconds, and the CPU seconds of all threads together."""

    count: int
    wall: float
    busy: float


def measure_job(peer: Peer, job: str, seconds: float) -> dict[str, float]:
    """The job's examples in a second, or for ``seek`` the seconds it takes: by the clock, and by processor time."""
    warm_cache(peer.paths)
    if not isinstance(peer, Limit):
        check_answer(peer, job)
    measure: Callable[[Peer, str, float], list[Pass]] = {
        "iv": _measure_lookups,
        "ivb": _measure_lookups,
        "v": _measure_seeks,
    }.get(job, _measure_passes)
    measure(peer, job, seconds / 4)
    gc.collect()
    passes = measure(peer, job, seconds)
    walls, busy = [one.wall / one.count for one in passes], [one.busy / one.count for one in passes]
    power = 1 if job == "v" else -1
    return {
        "wall": statistics.median(walls) ** power,
        "cpu": statistics.median(busy) ** power,
        "cores": sum(one.busy for one in passes) / sum(one.wall for one in passes),
    }


def probe_checks(peer: Peer) -> dict[str, Any]:
    """Whether reading a set with one flipped bit ends in an error."""
    count = 0
    try:
        for _ in peer.examples():
            count += 1
    except Exception as error:  # noqa: BLE001 - whatever it says, it noticed
        return {"checks": True, "how": type(error).__name__}
    return {"checks": False, "how": f"{count:,} examples, no error"}


def warm_cache(paths: list[str]) -> None:
    """Read files once."""
    buffer = bytearray(1 << 20)
    for path in paths:
        with Path(path).open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def check_answer(peer: Peer, job: str) -> None:
    """The job's first answer is what was written."""
    sample = peer.sample
    if job == "i":
        assert bytes(next(peer.records())) == codec_of(sample.features).encode(sample.example(0)), "another record"
        return
    index = {"iv": 7, "ivb": 7, "v": peer.middle}.get(job, 0)
    found = {
        "ii": lambda: next(peer.examples()),
        "iii": lambda: next(peer.batches()),
        "iv": lambda: peer.one(index),
        "ivb": lambda: peer.many([index, 0, 5]),
        "v": peer.seek,
    }[job]()
    if isinstance(found, list):
        found = found[0]
    elif job in ("iii", "ivb"):
        found = {name: column[0] for name, column in found.items()}
    _compare(found, sample.example(index))


def _compare(found: Example, expected: Example) -> None:
    assert found.keys() == expected.keys(), f"{sorted(found)}, not {sorted(expected)}"
    for name, value in expected.items():
        if isinstance(value, bytes):
            assert bytes(found[name]) == value, f"another {name}"
        else:
            assert np.array_equal(np.ravel(found[name]), np.ravel(value)), f"another {name}"
            assert np.shape(found[name]) in (np.shape(value), (1,)), f"{name} of shape {np.shape(found[name])}"


def _clock(action: Callable[[], int]) -> Pass:
    busy, started = time.process_time(), time.perf_counter()
    count = action()
    return Pass(count, time.perf_counter() - started, time.process_time() - busy)


def _measure_passes(peer: Peer, job: str, seconds: float) -> list[Pass]:
    """Passes over the set, each cut off after ``seconds``."""
    make: Callable[[], Iterator[Any]] = getattr(peer, JOBS[job])
    consume = _consume_batches if job == "iii" else _consume_items
    if isinstance(peer, Limit):
        consume = _consume_all
    passes: list[Pass] = []
    while len(passes) < MIN_PASSES or sum(one.wall for one in passes) < seconds:
        until = time.perf_counter() + seconds
        passes.append(_clock(lambda: consume(make(), peer.sample.num_examples, until)))  # noqa: B023 - called at once
        if sum(one.wall for one in passes) > seconds * MIN_PASSES:
            break
    return passes


def _consume_items(stream: Iterator[Any], total: int, until: float) -> int:
    """Take items one by one: all, or until the time is over."""
    for start in range(0, total - 1, CHUNK):
        size = min(CHUNK, total - 1 - start)
        for _ in islice(stream, size):
            pass
        if time.perf_counter() > until:
            return start + size
    next(stream)  # the last one: StopIteration if any was missing
    assert next(stream, None) is None, "more records than were written"
    return total


def _consume_batches(stream: Iterator[Example], total: int, until: float) -> int:
    count = 0
    for batch in stream:
        count += len(batch["label"])
        if time.perf_counter() > until:
            return count
    assert count == total, f"{count} examples, not {total}"
    return count


def _consume_all(stream: Iterator[Any], total: int, until: float) -> int:  # noqa: ARG001 - as the others
    for _ in stream:
        pass
    return total


def _measure_lookups(peer: Peer, job: str, seconds: float) -> list[Pass]:
    """Five stretches of look-ups at random."""
    rng = np.random.default_rng(3)

    def look_up() -> int:
        count, until = 0, time.perf_counter() + seconds / 5
        while count == 0 or time.perf_counter() < until:
            indices = rng.integers(0, peer.sample.num_examples, BATCH if job == "ivb" else 16).tolist()
            if job == "ivb":
                peer.many(indices)
            else:
                for index in indices:
                    peer.one(index)
            count += len(indices)
        return count

    return [_clock(look_up) for _ in range(5)]


def _measure_seeks(peer: Peer, job: str, seconds: float) -> list[Pass]:  # noqa: ARG001 - as the others
    """As many new readers as fit into the time, 100 at most."""
    passes: list[Pass] = []
    while len(passes) < MIN_PASSES or (sum(one.wall for one in passes) < seconds and len(passes) < 100):
        passes.append(_clock(lambda: len([peer.seek()])))
    return passes
