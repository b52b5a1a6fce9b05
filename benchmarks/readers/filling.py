"""Measures what filling kept columns costs: the first three epochs of a reader, with and without it.

Each reader is in a process of its own, with an empty cache. It reads batches of 256, or examples one by one, and does
nothing with them, which leaves filling no idle time.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

from benchmarks.readers.peer import BATCH
from benchmarks.readers.sets import SampleSet

EPOCHS: Final = 3
JOBS: Final = {"batches of 256": "batches", "examples": "__iter__"}


def read_epochs(sample: SampleSet, job: str, keep: Any) -> dict[str, float]:
    """Seconds of each epoch, by the clock (``wall 0``) and of all threads (``cpu 0``)."""
    import registry

    folder = sample.folder / "tfrecord"
    dataset = registry.connect(folder / "catalog.db", data_dir=folder).dataset(sample.dataset)
    for _ in dataset.read("train", keep=None).batches(BATCH):  # reads the files and their digests once
        pass
    reader: Any = dataset.read("train", keep=keep)
    seconds: dict[str, float] = {}
    for epoch in range(EPOCHS):
        busy, started = time.process_time(), time.perf_counter()
        for _ in reader if JOBS[job] == "__iter__" else reader.batches(BATCH):
            pass
        seconds[f"wall {epoch}"] = time.perf_counter() - started
        seconds[f"cpu {epoch}"] = time.process_time() - busy
    return seconds


def measure_filling(
    samples: list[SampleSet], run: Callable[[dict[str, Any], dict[str, str]], dict[str, Any]], *, rounds: int
) -> list[dict[str, Any]]:
    """The median seconds of each set, job and epoch: ``plain`` without filling, ``filled`` with it.

    ``run`` answers a task in a process of its own, with more variables in its environment.
    """
    rows: list[dict[str, Any]] = []
    for sample in samples:
        for job in JOBS:
            runs: dict[str, list[dict[str, float]]] = {"plain": [], "filled": []}
            for _ in range(rounds):
                for way, keep in (("plain", None), ("filled", "disk")):
                    with tempfile.TemporaryDirectory(dir=sample.root) as cache:
                        task = {"sample": vars(sample), "filling": job, "keep": keep}
                        runs[way].append(run(task, {"REGISTRY_CACHE_DIR": cache}))
            rows.append({"set": sample.name, "job": job, **{way: _medians(each) for way, each in runs.items()}})
    return rows


def print_filling(rows: list[dict[str, Any]]) -> None:
    """The seconds of processor time, and the ratios of both clocks."""
    print("\nepochs of a reader with keep='disk' and an empty cache: CPU seconds (against keep=None; by the clock)")
    for row in rows:
        plain, filled = row["plain"], row["filled"]
        epochs = [
            f"{filled[f'cpu {epoch}']:.2f} ({filled[f'cpu {epoch}'] / plain[f'cpu {epoch}']:.2f}x;"
            f" {filled[f'wall {epoch}'] / plain[f'wall {epoch}']:.2f}x)"
            for epoch in range(EPOCHS)
        ]
        print(f"  {row['set']}, {row['job']}: {', '.join(epochs)}")


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}
