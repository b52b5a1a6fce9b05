"""Measures builds in pieces on Ray clusters of this machine, beside worker processes, Ray Data and TFDS on Beam.

    python benchmarks/cluster.py                         400,000 examples of 1 KB in 40 pieces
    python benchmarks/cluster.py --gigabytes 20          one build on two nodes of 1 GB each, watched
    python benchmarks/cluster.py --empty --pieces 1000000    that many pieces without examples

Each row is a fresh process with a cluster of its own: "ray 2" has two nodes of one CPU each. A node's object store has
80 MB, less than the data. The seconds exclude the start of the interpreter and of the cluster, and include all else.
Afterwards, the records of the files are counted.

- "peak MB" is the most memory that the process, its workers and those of Ray had at one moment, without pages that they
  share; "driver MB" is that of the process that starts the build (benchmarks/process_memory.py).
- "spilled MB" is what Ray wrote to disk from its object stores.
- "runs" are the sorted files that a build on a cluster writes to the data directory, one for each task that generates,
  and "tables kB" the tables at their ends, which the driver holds.
- "sha256" is the beginning of a digest of all TFRecord files, which must be the same in rows of the registry. TFDS
  writes the same records in the same order, but the order of the features in a record changes from one process to
  another. So records are compared by how often each byte is in them.

"local", "ray" and "tfds" sort their records by the hash of the key, and write the same shards. Ray Data's
``write_parquet`` does not sort. A build computes sha256 and fingerprints of all shards, and registers the version in a
catalog; the others do not. "tfds beam" is TFDS on Beam's DirectRunner in one process, "tfds beam 2" in two, each in the
environment of ``--peer`` (benchmarks/beam_peer.py). TFDS on Beam's FlinkRunner needs a Flink cluster, which is out of
reach here.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import registry
from registry.features import FeaturesDict, Scalar, Text

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.process_memory import MemorySampler  # noqa: E402 (found through the line above)

ROWS = ("local 1", "local 2", "ray 1", "ray 2", "ray 4", "ray data", "tfds beam", "tfds beam 2")
TABLE = (
    *("row", "seconds", "records/s", "MB/s", "peak MB", "driver MB", "spilled MB"),
    *("runs", "tables kB", "files", "records", "sha256"),
)
_RUN = re.compile(r"/[0-9]+-[0-9]+\.[0-9a-f]{16}\.[0-9a-f]{8}\Z")
_STORE_BYTES = 80 * 2**20  # the least that Ray accepts is 75 MB
_LETTERS = base64.b64encode(random.Random(0).randbytes(3 * 2**18)).decode()  # noqa: S311 (no secret); as in beam_peer.py


def text_of(number: int, num_bytes: int) -> str:
    """The text of an example. Texts differ, because Parquet stores equal ones only once."""
    start = number * 7919 % (len(_LETTERS) - num_bytes)
    return _LETTERS[start : start + num_bytes]


class Texts(registry.DatasetBuilder):
    """Examples of a number and a text."""

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
        for number in range(first, min(first + size, self.num_examples)):
            yield number, {"number": number, "text": text_of(number, self.num_bytes)}


class Empty(Texts):
    """Pieces without examples; only the first has one."""

    def generate(self, first: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """One example, or none."""
        if first == 0:
            yield 0, {"number": 0, "text": ""}


def spilled_bytes(text: str) -> int:
    """Read from Ray's summary of its memory how much it has spilled."""
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
            # With 1, or if examples are generated quickly, this process would work instead of the cluster.
            catalog.build(builder, processes=max(2, int(count)))


def write_with_ray_data(arguments: argparse.Namespace, folder: Path) -> None:
    """Write the same records as Parquet files, unsorted."""
    import ray.data

    make, num_bytes = import_module(Path(__file__).stem).text_of, arguments.bytes  # workers cannot import __main__
    ray.data.DataContext.get_current().enable_progress_bars = False
    made = ray.data.range(arguments.examples, override_num_blocks=arguments.pieces)
    made.map(lambda row: {"number": row["id"], "text": make(row["id"], num_bytes)}).write_parquet(
        str(folder / "parquet")
    )


@contextmanager
def counted_runs() -> Iterator[dict[str, int]]:
    """Count the files of runs, just before a build removes them."""
    from registry.building.run_files import NamedRunFile
    from registry.building.run_folder import RunFolder
    from registry.building.run_format import read_end

    counts: dict[str, int] = {}
    remove = RunFolder.remove

    def count_and_remove(folder: RunFolder, **options: bool) -> None:
        ends = [read_end(NamedRunFile(folder.store, name)) for name in folder.store.list() if _RUN.search(name)]
        tables = [end[0] for end in ends if end is not None]
        if tables:  # worker processes write files without names
            counts.update(runs=len(tables), tables=sum(array.nbytes for table in tables for array in table))
        remove(folder, **options)

    with patch.object(RunFolder, "remove", count_and_remove):
        yield counts


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one row in this process."""
    kind, _, count = arguments.row.partition(" ")
    cluster, folder = None, Path(arguments.folder)
    if kind == "ray":
        import ray

        cluster = start_cluster(2 if count == "data" else int(count))
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    with counted_runs() as counts:
        started = time.perf_counter()
        if arguments.row == "ray data":
            write_with_ray_data(arguments, folder)
        else:
            build(arguments, folder)
        found: dict[str, Any] = {"seconds": time.perf_counter() - started, **counts}
    if cluster is not None:
        from ray._private.internal_api import memory_summary

        found["spilled"] = spilled_bytes(memory_summary(cluster.address, stats_only=True))
        ray.shutdown()
        cluster.shutdown()
    return found


def run_row(row: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one row in a fresh process. Returns its figures, or why it was not measured."""
    sizes = [f"--{name}={getattr(arguments, name)}" for name in ("examples", "pieces", "bytes")]
    if row.startswith("tfds beam"):
        if not Path(arguments.peer).is_file():
            return {"why": f"there is no {arguments.peer}; benchmarks/beam_peer.py says how to make it"}
        workers = row.removeprefix("tfds beam").strip() or "1"
        command = [arguments.peer, str(ROOT / "benchmarks/beam_peer.py"), f"--workers={workers}", *sizes]
    else:
        command = [sys.executable, __file__, "--row", row, *sizes, *(["--empty"] if arguments.empty else [])]
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        command += ["--folder", folder]
        with (
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
            ) as process,
            MemorySampler(process.pid) as memory,
        ):
            output, errors = process.communicate()
        if process.returncode:
            return {"why": (errors.strip().splitlines() or [f"exit code {process.returncode}"])[-1]}
        found: dict[str, Any] = json.loads(output.splitlines()[-1])
        return {**found, "peak": memory.most_bytes, "driver": memory.driver_bytes, **look_at_files(Path(folder))}


def look_at_files(folder: Path) -> dict[str, Any]:
    """The number of files that a row wrote, and of their records and bytes; digests of TFRecord files and records."""
    num_records, files_digest, records_digest = 0, hashlib.sha256(), hashlib.sha256()
    shards = sorted(folder.rglob("*.tfrecord*"))
    for path in shards:
        with path.open("rb") as file:
            files_digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
        for record in read_tfrecords(path):
            num_records += 1
            records_digest.update(np.bincount(np.frombuffer(record, np.uint8), minlength=256).tobytes())
    tables = sorted(folder.rglob("*.parquet"))
    if tables:
        from pyarrow import parquet

        num_records += sum(parquet.read_metadata(path).num_rows for path in tables)
    return {
        "files": len(shards) + len(tables),
        "records": num_records,
        "num_bytes": sum(path.stat().st_size for path in shards + tables),
        "sha256": files_digest.hexdigest() if shards else "",
        "content": records_digest.hexdigest() if shards else "",
    }


def read_tfrecords(path: Path) -> Iterator[bytes]:
    """The records of a file: each has 8 bytes of length, a checksum, its bytes, and another checksum."""
    with path.open("rb") as file:
        while head := file.read(12):
            (length,) = struct.unpack("<Q", head[:8])
            record = file.read(length)
            assert len(file.read(4)) == 4, f"{path} is cut off"
            yield record


def run_row_and_show(row: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one row, and print its line of the table."""
    found = run_row(row, arguments)
    show(row, found, arguments.examples)
    return found


def show(row: str, found: dict[str, Any], num_examples: int) -> None:
    """Print one line of the table."""
    if "why" in found:
        print(f"| {row} | not measured: {found['why']} |" + " |" * (len(TABLE) - 2), flush=True)
        return
    figures = (
        f"{found['seconds']:.1f}",
        f"{num_examples / found['seconds']:,.0f}",
        f"{found['num_bytes'] / found['seconds'] / 1e6:.0f}",
        f"{found['peak'] / 2**20:.0f}",
        f"{found['driver'] / 2**20:.0f}",
        f"{found['spilled'] / 2**20:.0f}" if "spilled" in found else "",
        f"{found['runs']:,}" if "runs" in found else "",
        f"{found['tables'] / 1e3:,.0f}" if "tables" in found else "",
        str(found["files"]),
        f"{found['records']:,}",
        found["sha256"][:8],
    )
    runner = f" ({found['runner']})" if "runner" in found else ""
    print("| " + " | ".join([row + runner, *figures]) + " |", flush=True)


def main() -> None:
    """Print the table. The exit code is 1 if a row wrote other records than it should."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--examples", type=int, default=400_000)
    parser.add_argument("--pieces", type=int, default=40)
    parser.add_argument("--bytes", type=int, default=1000, help="size of the text of an example")
    parser.add_argument("--gigabytes", type=int, help="build this much on two nodes")
    parser.add_argument("--empty", action="store_true", help="pieces have no examples")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS, metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--peer", default=str(ROOT / ".venv-beam/bin/python"), help="the Python that has TFDS and Beam")
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
        arguments.examples = arguments.pieces  # of which only the first exists
    print("| " + " | ".join(TABLE) + " |\n" + "|---" * len(TABLE) + "|", flush=True)
    measured = {row: run_row_and_show(row, arguments) for row in rows}
    found = {row: one for row, one in measured.items() if "why" not in one}
    wrong_counts = {one["records"] for one in found.values()} - {1 if arguments.empty else arguments.examples}
    contents = {one["content"] for one in found.values()} - {""}
    digests = {one["sha256"] for row, one in found.items() if row.split()[0] in {"local", "ray"}} - {""}
    if wrong_counts or len(contents) > 1 or len(digests) > 1:
        sys.exit("The rows did not write the same records.")


if __name__ == "__main__":
    main()
