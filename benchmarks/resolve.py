"""Measures resolving `train[67%:84%]` at 1,024 to 1,000,000 shards, next to TFDS if it is installed.

    python benchmarks/resolve.py [--shards 1024 10000 100000 1000000] [--no-peer] [--no-catalog]

Three tables. The resolver: a plan alone, the plan as a full list of file instructions, and TFDS's own list for the same
layout; the ratios are TFDS's time divided by ours. The catalog: opening an SQLite file of that many shards, and, with
nothing cached, the look-up with the first plan, with the first plan of ten shards, and the look-up with the full list.
Memory (Linux): how much a process grows by such a version, held in memory and out of the catalog. Fastest of several
rounds, of TFDS and the catalog of fewer. Publishing a million shards for it takes about half a minute.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from registry.model import ShardedFileTemplate, ShardLengths, Split
from registry.splits import FileInstruction, Layout, resolve

EXPRESSION = "train[67%:84%]"
EXAMPLES_PER_SHARD = 1251.14

GROWTH = """
import re, sys
from pathlib import Path
from registry.catalog import open_catalog
from registry.splits import resolve
from registry.model import ShardLengths
path, what, expression, number = sys.argv[1:]

def peak():  # not ru_maxrss, which a child inherits from the process that started it
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

catalog = open_catalog(path)
small = catalog.find("small")
list(resolve(expression, small.layout))
before = peak()
if what == "lengths":
    kept = ShardLengths([1251] * int(number))
else:
    kept = catalog.find("large")
    plan = resolve(expression, kept.layout)
    if what == "list":
        for file in plan:
            pass
print((peak() - before) / 1024)
"""


def lengths_of(num_shards: int) -> list[int]:
    """Shards as TFDS's writer cuts them: boundaries at round(n * i / shards)."""
    total = round(EXAMPLES_PER_SHARD * num_shards)
    bounds = [round(total * index / num_shards) for index in range(num_shards + 1)]
    return [stop - start for start, stop in pairwise(bounds)]


def fastest(action: Callable[[], Any], rounds: int) -> float:
    """Seconds of the fastest of several rounds."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


def list_files(expression: str, layout: Layout) -> list[FileInstruction]:
    """The plan, made whole."""
    return list(resolve(expression, layout))


def duration(seconds: float) -> str:
    """Three figures and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def find_peer() -> Callable[[list[int]], Callable[[], Any]] | None:
    """A function that makes TFDS's splits of a layout, and a function of what is to be timed; None without TFDS."""
    try:
        naming = import_module("tensorflow_datasets.core.naming")
        tfds = import_module("tensorflow_datasets.core.splits")
    except ImportError:
        return None

    def prepare(lengths: list[int]) -> Callable[[], Any]:
        files = naming.ShardedFileTemplate(
            dataset_name="ds", data_dir="/data", split="train", filetype_suffix="tfrecord"
        )
        splits = tfds.SplitDict([tfds.SplitInfo("train", lengths, 0, files)])
        return lambda: splits[EXPRESSION].file_instructions

    return prepare


def show_resolver(num_shards: list[int], peer: Callable[[list[int]], Callable[[], Any]] | None) -> None:
    """The first table."""
    print(f"{EXPRESSION}{'plan':>18}{'full list':>12}{'TFDS':>12}{'plan x':>12}{'list x':>9}")
    for number in num_shards:
        lengths = lengths_of(number)
        layout = {"train": ShardLengths(lengths)}
        plan = fastest(partial(resolve, EXPRESSION, layout), 2000)
        full = fastest(partial(list_files, EXPRESSION, layout), 200 if number < 20_000 else 10)
        line = f"{number:>14,}{duration(plan):>18}{duration(full):>12}"
        if peer is not None:
            theirs = fastest(peer(lengths), 10 if number < 20_000 else 2)
            line += f"{duration(theirs):>12}{theirs / plan:>12,.0f}{theirs / full:>9,.0f}"
        print(line)


def publish(path: Path, number: int) -> None:
    """A catalog with a version of the given number of shards, and a small version."""
    import hashlib

    from registry.catalog import open_catalog
    from registry.model import DatasetVersion, Shard, Version

    with open_catalog(path) as catalog:
        for name, lengths in (("small", ShardLengths([10, 10])), ("large", ShardLengths(lengths_of(number)))):
            split = Split(name="train", shard_lengths=lengths, files=ShardedFileTemplate(dataset=name))
            version = DatasetVersion(
                name=name,
                version=Version(1, 0, 0),
                splits=(split,),
                features_json="{}",
                location=f"{name}/1.0.0",
                content_digest=hashlib.sha256(name.encode()).hexdigest(),
            )
            shards = tuple(
                Shard(
                    index=index,
                    first_example=lengths.start(index),
                    num_examples=length,
                    num_bytes=length,
                    sha256="0" * 64,
                )
                for index, length in enumerate(lengths)
            )
            catalog.publish(version, {"train": shards}, promote=True, actor="benchmark")


def show_catalog(path: Path, number: int) -> None:
    """One row of the second table."""
    from registry.catalog import CatalogBackend, open_catalog

    middle = round(EXAMPLES_PER_SHARD * number / 2)
    ten = f"train[{middle}:{middle + round(9.5 * EXAMPLES_PER_SHARD)}]"

    def fresh(action: Callable[[CatalogBackend], Any]) -> float:
        times = []
        for _ in range(5):
            with open_catalog(path) as catalog:
                catalog.find("small")  # connect, and compile the queries: what comes first in any process
                times.append(fastest(partial(action, catalog), 1))
        return min(times)

    def opening() -> None:
        with open_catalog(path) as catalog:
            catalog.find("small")

    opened = fastest(opening, 5)
    plan = fresh(lambda catalog: resolve(EXPRESSION, catalog.find("large").layout))
    few = fresh(lambda catalog: list(resolve(ten, catalog.find("large").layout)))
    full = fresh(lambda catalog: list(resolve(EXPRESSION, catalog.find("large").layout)))
    print(f"{number:>14,}{duration(opened):>18}{duration(plan):>16}{duration(few):>16}{duration(full):>16}")


def show_memory(path: Path, number: int) -> None:
    """One row of the third table."""
    grown = []
    for what in ("lengths", "plan", "list"):
        command = [sys.executable, "-c", GROWTH, str(path), what, EXPRESSION, str(number)]
        grown.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    print(f"{number:>14,}{grown[0]:>14.1f} MB{grown[1]:>21.1f} MB{grown[2]:>21.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, nargs="+", default=[1024, 10_000, 100_000, 1_000_000])
    parser.add_argument("--no-peer", action="store_true", help="leave TFDS out")
    parser.add_argument("--no-catalog", action="store_true", help="only the first table")
    arguments = parser.parse_args()
    show_resolver(arguments.shards, None if arguments.no_peer else find_peer())
    if arguments.no_catalog:
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = {number: Path(folder) / f"{number}.db" for number in arguments.shards}
        for number, path in paths.items():
            publish(path, number)
        print(f"\nfresh catalog{'open':>19}{'first plan':>16}{'ten shards':>16}{'full list':>16}")
        for number, path in paths.items():
            show_catalog(path, number)
        print(f"\nmemory{'all in memory':>25}{'catalog, plan':>24}{'catalog, walked':>24}")
        for number, path in paths.items():
            show_memory(path, number)


if __name__ == "__main__":
    main()
