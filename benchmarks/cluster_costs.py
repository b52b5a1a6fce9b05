"""Calculates what builds of terabytes on a cluster cost, and runs the work of the program that starts them for real.

    python benchmarks/cluster_costs.py                        0.1, 1 and 10 TB on 100 nodes
    python benchmarks/cluster_costs.py --terabytes 10 --nodes 20

The inputs are files of 10 MB. No record is made: the tables of the runs are random sort keys, as hashes are. With these
tables, the script does what the program does between the tasks: it chooses the sizes of runs, divides them into tasks
that merge, orders their blocks, and makes the input of each shard. "driver s" and "driver MB" are measured. The other
figures follow from the numbers of tasks and requests, and from the options:

    --generate   MB/s at which one CPU generates examples and writes runs
    --copy       MB/s at which one CPU merges runs, writes, verifies and uploads shards
    --request    seconds that a request takes in which nothing else is done
    --get --put  dollars for 1,000 requests
"""

from __future__ import annotations

import argparse
import pickle
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from registry.building.block_order import BlockOrder
from registry.building.keys import SORT_KEY_BYTES
from registry.building.piece_runs import GroupFacts, _GroupSize
from registry.building.run_files import ChainedRunFile, NamedRunFile
from registry.building.run_folder import SplitRuns
from registry.building.run_format import BlockTable, Run
from registry.building.run_merging import _group, _pieces, are_too_many, merge_range
from registry.building.sorter import DEFAULT_BUDGET_BYTES
from registry.building.writing import plan_num_shards, plan_shards
from registry.engines import ThisProcess
from registry.storage import open_store
from registry.storage.remote import REQUEST_BYTES

COLUMNS = (
    "TB",
    "inputs",
    "runs",
    "shards",
    "parts",
    "parts after merging",
    "requests",
    "minutes",
    "dollars",
    "driver s",
    "driver MB",
    "kB for a shard",
)
_INPUT_BYTES = 10 * 10**6
_RECORD_BYTES = 10_000
_BLOCK_BYTES = 2**18
_PART_REQUEST_BYTES = 2**20
_PUT_BYTES = 8 * 2**20
_KEY_READS = 3  # requests for keys at both ends of a part, beside one that opens the file
_STORE = open_store("memory://cluster-costs")
_PLACE = SplitRuns(_STORE, "train", "")


class Work(NamedTuple):
    """Requests of one phase, the bytes that pass through its tasks, and the speed of one CPU in MB/s."""

    num_gets: int
    num_puts: int
    num_bytes: int
    speed: float


def run_sizes(num_bytes: int, width: int, speed: float) -> list[int]:
    """The sizes of the runs in bytes: groups of inputs, as a build divides them."""
    size = _GroupSize(DEFAULT_BUDGET_BYTES, ThisProcess(threads=width))
    left, waiting, made = num_bytes // _INPUT_BYTES, deque[int](), []
    while left or waiting:
        if left and len(waiting) < 2 * width + 1:
            count = min(size.count, left)
            waiting.append(count)
            left -= count
            continue
        count = waiting.popleft()
        made.append(count * _INPUT_BYTES)
        size.learn(count, GroupFacts("", None, None, made[-1], None, [], made[-1] / (speed * 10**6)))
    return made


def random_run(file: Any, num_bytes: int, rng: np.random.Generator) -> Run:
    """A run of hashed keys."""
    count = max(1, num_bytes // _BLOCK_BYTES)
    keys = np.sort(np.frombuffer(rng.bytes(count * SORT_KEY_BYTES), f"S{SORT_KEY_BYTES}"))
    places = np.linspace(0, num_bytes, count + 1).astype(np.int64)
    first_keys = np.frombuffer(keys.tobytes(), np.uint8).reshape(-1, SORT_KEY_BYTES)
    return Run(file, 0, BlockTable(first_keys, places // _RECORD_BYTES, places))


def tables_bytes(runs: Sequence[Run]) -> int:
    """The memory of the tables."""
    return sum(array.nbytes for run in runs for array in run.table)


def requests_of(num_parts: int, num_bytes: int) -> int:
    """The number of requests that read ``num_parts`` parts with ``num_bytes`` in all."""
    return num_parts * (1 + _KEY_READS) + max(num_parts, num_bytes // _PART_REQUEST_BYTES)


def shard_inputs(runs: Sequence[Run], num_shards: int, num_records: int) -> Iterator[tuple[int, tuple[Run, ...]]]:
    """The input of each shard."""
    lengths = plan_shards(num_examples=num_records, num_shards=num_shards)
    order = BlockOrder(runs)
    for index in range(num_shards):
        first = lengths.start(index)
        yield order.parts(first, first + lengths[index])


def calculate(num_bytes: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """One row of the table."""
    width, rng = arguments.nodes * arguments.cpus, np.random.default_rng(0)
    sizes = run_sizes(num_bytes, width, arguments.generate)
    runs = [random_run(NamedRunFile(_STORE, f"train/{index}"), size, rng) for index, size in enumerate(sizes)]
    num_records = sum(run.num_records for run in runs)
    num_shards = plan_num_shards(num_examples=num_records, num_payload_bytes=num_bytes)
    phases = [Work(0, 2 * len(runs) + num_bytes // _PUT_BYTES, num_bytes, arguments.generate)]
    peak, seconds, before = tables_bytes(runs), 0.0, len(runs)  # merged runs have as many blocks
    while are_too_many(runs, num_shards):
        started = time.perf_counter()
        groups = _group(runs, _PLACE, width=width)
        num_parts, num_tasks, num_sent = 0, 0, 0
        for piece in _pieces(groups, partial(merge_range, "train", DEFAULT_BUDGET_BYTES), _PLACE):
            if num_tasks % 100 == 0:
                num_sent = max(num_sent, len(pickle.dumps(piece.input, 5)))
            num_parts += len(piece.input.runs)
            num_tasks += 1
        seconds += time.perf_counter() - started
        num_puts = num_tasks + num_bytes // _PUT_BYTES
        phases.append(Work(requests_of(num_parts, num_bytes), num_puts, num_bytes, arguments.copy))
        files = [ChainedRunFile(_STORE, group.name, [2**29] * len(group.ranges)) for group in groups]
        runs = [
            random_run(file, sum(run.num_bytes for run in group.runs), rng)
            for file, group in zip(files, groups, strict=True)
        ]
    started = time.perf_counter()
    num_parts, num_sent = 0, 0
    for index, given in enumerate(shard_inputs(runs, num_shards, num_records)):
        num_parts += len(given[1])
        if index % max(1, num_shards // 50) == 0:
            num_sent = max(num_sent, len(pickle.dumps(given, 5)))
    seconds += time.perf_counter() - started
    num_puts = num_shards + num_bytes // _PUT_BYTES
    phases.append(Work(requests_of(num_parts, num_bytes), num_puts, num_bytes, arguments.copy))
    # Each shard is read once to verify it, and once to upload it to its place.
    num_gets = 2 * (num_shards + num_bytes // REQUEST_BYTES)
    phases.append(Work(num_gets, num_puts, 2 * num_bytes, arguments.copy))
    num_gets, num_puts = sum(one.num_gets for one in phases), sum(one.num_puts for one in phases)
    busy = sum(one.num_bytes / (one.speed * 10**6) for one in phases) + num_gets * arguments.request
    return {
        "TB": f"{num_bytes / 10**12:g}",
        "inputs": f"{num_bytes // _INPUT_BYTES:,}",
        "runs": f"{before:,}",
        "shards": f"{num_shards:,}",
        "parts": f"{before * num_shards:,}",
        "parts after merging": f"{num_parts:,}" if len(runs) != before else "not merged",
        "requests": f"{num_gets + num_puts:,}",
        "minutes": f"{busy / width / 60:.0f}",
        "dollars": f"{(num_gets * arguments.get + num_puts * arguments.put) / 1000:.0f}",
        "driver s": f"{seconds:.1f}",
        "driver MB": f"{peak / 2**20:.0f}",
        "kB for a shard": f"{num_sent / 1000:.0f}",
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--terabytes", type=float, nargs="+", default=[0.1, 1, 10])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--cpus", type=int, default=8, help="of each node")
    parser.add_argument("--generate", type=float, default=50.0)
    parser.add_argument("--copy", type=float, default=100.0)
    parser.add_argument("--request", type=float, default=0.02)
    parser.add_argument("--get", type=float, default=0.0004)
    parser.add_argument("--put", type=float, default=0.005)
    arguments = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---:" * len(COLUMNS) + "|", flush=True)
    for terabytes in arguments.terabytes:
        row = calculate(int(terabytes * 10**12), arguments)
        print("| " + " | ".join(row[name] for name in COLUMNS) + " |", flush=True)


if __name__ == "__main__":
    main()
