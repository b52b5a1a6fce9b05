"""Measures how long a build takes and how much memory it needs, for a made-up dataset.

    python benchmarks/build.py                          200,000 examples of about 1 KB, in 1, 2 and chosen processes
    python benchmarks/build.py --kind images -n 20000   small PNG images, which are slow to encode
    python benchmarks/build.py --budget-mb 8            less memory for sorting

Every row is a fresh process. "peak" is the most resident memory that the build's own process had, "with workers" the
most that it and its workers had at one moment, sampled every 20 ms; pages that they share count several times.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from registry.building import DatasetBuilder, build_dataset
from registry.features import ClassLabel, FeaturesDict, Image, Scalar, Tensor, Text
from registry.storage import open_store

ROW_FLOATS = 240
TABLE = ("processes", "seconds", "examples/s", "MB/s", "peak MB", "with workers MB")


class Rows(DatasetBuilder):
    """Records of about 1 KB: a vector, a number, a label and a sentence."""

    VERSION = "1.0.0"
    num_examples = 0

    def features(self) -> FeaturesDict:
        """Four features of four kinds."""
        return FeaturesDict(
            {
                "vector": Tensor(shape=(ROW_FLOATS,), dtype=np.float32),
                "number": Scalar(np.int64),
                "label": ClassLabel(num_classes=10),
                "text": Text(),
            }
        )

    def splits(self) -> Mapping[str, Iterator[tuple[int, dict[str, Any]]]]:
        """One split, as many examples as asked for."""
        return {"train": self._examples()}

    def _examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        block = np.random.default_rng(0).random((1000, ROW_FLOATS), dtype=np.float32)
        for key in range(self.num_examples):
            yield key, {"vector": block[key % 1000], "number": key, "label": key % 10, "text": f"example number {key}"}


class Images(Rows):
    """Images of 28x28 pixels with strokes, as PNG."""

    def features(self) -> FeaturesDict:
        """An image and its label."""
        return FeaturesDict({"image": Image(shape=(28, 28, 1)), "label": ClassLabel(num_classes=10)})

    def _examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        rng = np.random.default_rng(0)
        block = (rng.random((1000, 28, 28, 1)) * (rng.random((1000, 28, 28, 1)) > 0.8) * 255).astype(np.uint8)
        for key in range(self.num_examples):
            yield key, {"image": block[key % 1000], "label": key % 10}


def build_once(
    kind: str, num_examples: int, processes: int | None, budget_bytes: int, *, profile: bool
) -> dict[str, Any]:
    builder_class = {"rows": Rows, "images": Images}[kind]
    builder_class.num_examples = num_examples
    profiler = cProfile.Profile()
    with tempfile.TemporaryDirectory(dir=".") as folder, MemoryWatch() as memory:
        started = time.perf_counter()
        if profile:
            profiler.enable()
        with build_dataset(
            builder_class(), open_store(folder), processes=processes, budget_bytes=budget_bytes
        ) as build:
            profiler.disable()
            seconds = time.perf_counter() - started
            num_bytes = sum(shard.num_bytes for shards in build.shards.values() for shard in shards)
            digests = [shard.sha256 for shards in build.shards.values() for shard in shards]
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    return {
        "seconds": seconds,
        "num_bytes": num_bytes,
        "digests": digests,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "sum_bytes": memory.most,
    }


class MemoryWatch:
    """The most resident memory that this process and its children had together; 0 where there is no /proc."""

    def __init__(self) -> None:
        self.most = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.02):
            children = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
            self.most = max(self.most, sum(map(resident, ["self", *(pid for pids in children for pid in pids)])))


def resident(pid: str) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--examples", type=int, default=200_000)
    parser.add_argument("--kind", choices=("rows", "images"), default="rows")
    parser.add_argument("-j", "--processes", nargs="+", default=["1", "2", "auto"], help="numbers, or 'auto'")
    parser.add_argument("--budget-mb", type=int, default=64, help="memory for sorting")
    parser.add_argument("--profile", action="store_true", help="build once in this process and print where time goes")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    budget_bytes = arguments.budget_mb * 2**20
    if arguments.one or arguments.profile:
        processes = None if arguments.processes[0] == "auto" else int(arguments.processes[0])
        print(
            json.dumps(
                build_once(arguments.kind, arguments.examples, processes, budget_bytes, profile=arguments.profile)
            )
        )
        return
    digests = set()
    print(f"{arguments.examples:,} examples ({arguments.kind}), {arguments.budget_mb} MB for sorting")
    print("  ".join(f"{title:>15}" for title in TABLE))
    for processes in arguments.processes:
        command = [sys.executable, __file__, "--one", "-n", str(arguments.examples), "--kind", arguments.kind]
        command += ["-j", processes, "--budget-mb", str(arguments.budget_mb)]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        digests.add(tuple(found["digests"]))
        cells = (
            processes,
            f"{found['seconds']:.2f}",
            f"{arguments.examples / found['seconds']:,.0f}",
            f"{found['num_bytes'] / 1e6 / found['seconds']:.1f}",
            f"{found['peak_bytes'] / 2**20:.0f}",
            f"{found['sum_bytes'] / 2**20:.0f}",
        )
        print("  ".join(f"{cell:>15}" for cell in cells))
    assert len(digests) == 1, "the bytes depend on the number of processes"


if __name__ == "__main__":
    main()
