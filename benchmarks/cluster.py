"""Measures builds in pieces on Ray clusters of this machine, beside worker processes and Ray Data's own write.

    python benchmarks/cluster.py                         400,000 examples of 1 KB in 40 pieces
    python benchmarks/cluster.py --gigabytes 20          one build on two nodes of 1 GB each, watched
    python benchmarks/cluster.py --empty --pieces 1000000    that many pieces without examples

Each row is a fresh process with a cluster of its own: "ray 2" has two nodes of one CPU each. A node's object store has
80 MB, less than the data. "peak MB" is the most memory that the process, its workers and those of Ray had at one
moment, without pages that they share, sampled five times a second; "driver MB" is that of the process that starts the
build. "spilled MB" is what Ray wrote to disk from its object stores. A build sorts its records, and computes sha256 and
fingerprints; Ray Data's ``write_parquet`` does none of these.

TFDS on Beam's FlinkRunner needs a Flink cluster, which is out of reach here.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import registry
from registry.features import FeaturesDict, Scalar, Text

ROWS = ("local 1", "local 2", "ray 1", "ray 2", "ray 4", "ray data")
TABLE = ("row", "seconds", "records/s", "MB/s", "peak MB", "driver MB", "spilled MB")
_STORE_BYTES = 80 * 2**20  # the least that Ray accepts is 75 MB


class Texts(registry.DatasetBuilder):
    """Examples of a number and a text that does not repeat."""

    VERSION = "1.0.0"
    num_examples = 0
    num_pieces = 1
    num_bytes = 1000

    def features(self) -> FeaturesDict:
        """A number and a text."""
        return FeaturesDict({"number": Scalar("int64"), "text": Text()})

    def splits(self) -> Mapping[str, Any]:
        """One split in pieces of equal size."""
        size = -(-self.num_examples // self.num_pieces)
        return {"train": registry.Pieces((place * size for place in range(self.num_pieces)), self.generate)}

    def generate(self, first: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The examples from number ``first`` on."""
        size = -(-self.num_examples // self.num_pieces)
        text = "0123456789" * (self.num_bytes // 10)
        for number in range(first, min(first + size, self.num_examples)):
            yield number, {"number": number, "text": text}


class Empty(Texts):
    """Pieces without examples; only the first has one."""

    def generate(self, first: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """One example, or none."""
        if first == 0:
            yield 0, {"number": 0, "text": ""}


class Memory(threading.Thread):
    """The most memory of this process and of all that it started, in bytes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._session = os.getsid(0)
        self._ended = threading.Event()

    def run(self) -> None:
        """Sample until ``end``."""
        while not self._ended.wait(0.2):
            self.peak = max(self.peak, sum(map(own_bytes, session_pids(self._session))))

    def end(self) -> int:
        """The peak."""
        self._ended.set()
        self.join()
        return self.peak


def session_pids(session: int) -> list[int]:
    """The processes of a session, and those below them: Ray starts sessions of its own."""
    parents: dict[int, list[int]] = {}
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(OSError, IndexError):
                fields = (path / "stat").read_text().rpartition(") ")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(path.name))
                if int(fields[3]) == session:
                    found.append(int(path.name))
    waiting = list(found)
    while waiting:
        for child in parents.get(waiting.pop(), []):
            if child not in found:
                found.append(child)
                waiting.append(child)
    return found


def own_bytes(pid: int) -> int:
    """The memory that only this process has."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
    return 0


def spilled_bytes(text: str) -> int:
    """What Ray's summary of its memory says about spilling."""
    for line in text.splitlines():
        if line.startswith("Spilled "):
            return int(line.split()[1]) * 2**20
    return 0


def start_cluster(num_nodes: int) -> Any:
    """A cluster of nodes with one CPU each, whose object stores are small."""
    from ray.cluster_utils import Cluster

    options = {"num_cpus": 1, "object_store_memory": _STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False})
    for _ in range(num_nodes - 1):
        cluster.add_node(**options)
    return cluster


def builder_of(arguments: argparse.Namespace) -> Texts:
    """The builder with the asked sizes."""
    module = import_module(Path(__file__).stem)  # workers cannot import __main__
    builder: Texts = module.Empty() if arguments.empty else module.Texts()
    builder.num_examples, builder.num_pieces, builder.num_bytes = arguments.examples, arguments.pieces, arguments.bytes
    return builder


def build(arguments: argparse.Namespace, folder: Path) -> None:
    """Build and publish."""
    kind, count = arguments.row.split()
    builder = builder_of(arguments)
    with registry.connect(folder / "catalog.db", data_dir=folder / "data") as catalog:
        if kind == "local":
            catalog.build(builder, processes=int(count))
            return
        with registry.use_engine("ray"):
            catalog.build(builder, processes=int(count))


def write_with_ray_data(arguments: argparse.Namespace, folder: Path) -> None:
    """Write the same records as Parquet files, unsorted."""
    import ray.data

    text = "0123456789" * (arguments.bytes // 10)
    ray.data.DataContext.get_current().enable_progress_bars = False
    made = ray.data.range(arguments.examples, override_num_blocks=arguments.pieces)
    made.map(lambda row: {"number": row["id"], "text": text}).write_parquet(str(folder / "parquet"))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one row in this process."""
    kind, _, count = arguments.row.partition(" ")
    cluster = None
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder, spilled = Path(name), 0
        memory = Memory()
        if kind == "ray":
            import ray

            cluster = start_cluster(2 if count == "data" else int(count))
            ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
        memory.start()
        started = time.perf_counter()
        if arguments.row == "ray data":
            write_with_ray_data(arguments, folder)
        else:
            build(arguments, folder)
        seconds = time.perf_counter() - started
        peak = memory.end()
        if cluster is not None:
            from ray._private.internal_api import memory_summary

            spilled = spilled_bytes(memory_summary(cluster.address, stats_only=True))
            ray.shutdown()
            cluster.shutdown()
        num_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {
        "seconds": seconds,
        "num_bytes": num_bytes,
        "peak": peak,
        "driver": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "spilled": spilled,
    }


def run_row(row: str, arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Run one row in a fresh process."""
    command = [sys.executable, __file__, "--row", row, "--folder", arguments.folder]
    command += [f"--{name}={getattr(arguments, name)}" for name in ("examples", "pieces", "bytes")]
    command += ["--empty"] if arguments.empty else []
    done = subprocess.run(command, check=False, capture_output=True, text=True, start_new_session=True)
    if done.returncode:
        print(f"{row}: {done.stderr.strip().splitlines()[-1:]}")
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def show(row: str, found: dict[str, Any], num_examples: int) -> dict[str, Any]:
    """Print one row of the table."""
    figures = (
        f"{found['seconds']:.1f}",
        f"{num_examples / found['seconds']:,.0f}",
        f"{found['num_bytes'] / found['seconds'] / 1e6:.0f}",
        f"{found['peak'] / 2**20:.0f}",
        f"{found['driver'] / 2**20:.0f}",
        f"{found['spilled'] / 2**20:.0f}",
    )
    print("| " + " | ".join([row, *figures]) + " |", flush=True)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--examples", type=int, default=400_000)
    parser.add_argument("--pieces", type=int, default=40)
    parser.add_argument("--bytes", type=int, default=1000, help="of the text of an example")
    parser.add_argument("--gigabytes", type=int, help="build this much on two nodes")
    parser.add_argument("--empty", action="store_true", help="pieces have no examples")
    parser.add_argument("--rows", nargs="+", default=list(ROWS))
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    arguments = parser.parse_args()
    if arguments.row:
        print(json.dumps(measure(arguments)))
        return
    rows = arguments.rows
    if arguments.gigabytes:
        arguments.bytes, rows = 10_000, ["ray 2"]
        arguments.examples = arguments.gigabytes * 10**9 // arguments.bytes
        arguments.pieces = 10 * arguments.gigabytes
    if arguments.empty:
        rows = ["local 1", "ray 1"]
    print("| " + " | ".join(TABLE) + " |\n" + "|---" * len(TABLE) + "|", flush=True)
    for row in rows:
        found = run_row(row, arguments)
        if found is not None:
            show(row, found, arguments.examples)


if __name__ == "__main__":
    main()
