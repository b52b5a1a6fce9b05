"""Builds every kind on clusters of 1, 2 and 4 raylets with small object stores. Run by hand:

python tests/support/ray_matrix.py  all kinds on each number of raylets, and the large ones
python tests/support/ray_matrix.py --nodes 4 --kinds Nested Skewed  some
python tests/support/ray_matrix.py --object-store-memory 40000000  bounds what a build keeps in the object stores

A raylet has one CPU and an object store of 80 MB (Ray's least is 75 MB). Prints the kinds that were built, those whose
shards or fingerprints differ from a local build, what Ray spilled, and the most memory that one worker and this process
had in the large builds. ``test_ray_raylets.py`` tries each kind on one number of raylets.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # pytest finds these by itself
    sys.path.append(str(Path(__file__).parents[1]))

import registry
from support.piece_builders import built
from support.ray_builders import KINDS, LARGE_KINDS
from support.ray_clusters import processes_below, raylets

COUNTS = (1, 2, 4)


class WorkerMemory(threading.Thread):
    """The most memory of one worker below this process that no other process shares, and of this process, in bytes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most_of_worker = 0
        self.most_of_driver = 0
        self._ended = threading.Event()

    def run(self) -> None:
        """Look ten times a second until ``end``."""
        while not self._ended.wait(0.1):
            for pid, title in processes_below():
                if title.startswith("ray::"):
                    self.most_of_worker = max(self.most_of_worker, private_bytes(str(pid)))
            self.most_of_driver = max(self.most_of_driver, private_bytes("self"))

    def end(self) -> None:
        """Stop looking."""
        self._ended.set()
        self.join()


def private_bytes(pid: str) -> int:
    """The memory that only this process has."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
    return 0


def spilled_megabytes(address: str) -> int:
    """What Ray wrote to disk from its object stores."""
    from ray._private.internal_api import memory_summary

    for line in memory_summary(address, stats_only=True).splitlines():
        if line.startswith("Spilled "):
            return int(line.split()[1])
    return 0


def try_kind(
    name: str, count: int, address: str, folder: Path, object_store_memory: int | None = None
) -> dict[str, Any]:
    """Build one kind here and on the cluster."""
    spilled = spilled_megabytes(address)
    kind = {**KINDS, **LARGE_KINDS}[name]
    memory = WorkerMemory()
    gc.collect()
    before, started = private_bytes("self"), time.monotonic()
    memory.start()
    try:
        with registry.use_engine("ray", object_store_memory=object_store_memory):
            found = built(kind(), folder / "cluster", processes=max(2, 2 * count))
    finally:
        memory.end()
    seconds = time.monotonic() - started
    return {
        "kind": name,
        "raylets": count,
        "seconds": round(seconds, 1),
        "is_equal": found == built(kind(), folder / "here", processes=1),
        "left": [str(path) for path in folder.rglob("*") if path.is_file()],
        "worker_megabytes": memory.most_of_worker >> 20,
        "driver_growth_megabytes": max(0, memory.most_of_driver - before) >> 20,
        "spilled_megabytes": spilled_megabytes(address) - spilled,
    }


def main() -> None:
    """Build, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--kinds", nargs="+", default=[*KINDS, *LARGE_KINDS])
    parser.add_argument("--object-store-memory", type=int)
    arguments = parser.parse_args()
    built_kinds, problems = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for count in arguments.nodes:
            with raylets(count) as cluster:
                for name in arguments.kinds:
                    folder = Path(scratch) / f"{count} {name}"
                    try:
                        most_bytes = arguments.object_store_memory
                        built_kinds.append(try_kind(name, count, cluster.address, folder, most_bytes))
                    except Exception as error:  # noqa: BLE001 (the other kinds are tried, too)
                        problems.append(f"{name} on {count}: {type(error).__name__}: {error}")
                    sys.stderr.write(f"{name} on {count}, {len(problems)} problems\n")
    report = {"built": built_kinds, "problems": problems}
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
