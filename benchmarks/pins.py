"""Measures how fast a slice is pinned and verified, next to sha256sum and to sha256 in memory on all cores.

    python benchmarks/pins.py [--bytes 2e9] [--sets B C] [--rounds 3]

B: examples of about 800 bytes. C: of about 110 KB. "create" hashes every file and every record, and digests what the
records hold; "verify" hashes every file and every record, with --quick the files alone; --deep does all of that and
decodes. ``sha256sum`` runs in one process, and in one for each core; "in memory" is what hashlib gives on all cores at
once, without a disk: the limit of anything that hashes each byte once. Wall clock, the fastest round; files in memory.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import registry
from benchmarks.readers.sets import SampleSet, prepare
from registry.engines import num_cpus

_RECORD_BYTES = {"B": 820, "C": 110_700}
_SHARDS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=float, default=2e9, help="size of each set")
    parser.add_argument("--sets", nargs="+", choices=["B", "C"], default=["B", "C"])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    root = tempfile.mkdtemp(prefix="bench-pins-")
    try:
        for name in options.sets:
            show(SampleSet(name, int(options.bytes / _RECORD_BYTES[name]), _SHARDS, root), options.rounds)
    finally:
        shutil.rmtree(root)


def show(sample: SampleSet, rounds: int) -> None:
    """Print a line for each way."""
    prepare(sample, "tfrecord")
    paths = sample.files("tfrecord")
    files, num_bytes = list(map(str, paths)), sum(path.stat().st_size for path in paths)
    print(f"{sample.name}: {sample.num_examples:,} records, {num_bytes / 1e9:.2f} GB in {len(files)} files")
    folder = sample.folder / "tfrecord"
    with registry.connect(folder / "catalog.db", data_dir=folder) as catalog:
        dataset = catalog.dataset(sample.dataset)
        pins = dataset.pin("train")
        pin = pins["train"]
        ways: dict[str, Callable[[], object]] = {
            "sha256sum": lambda: run(["sha256sum", *files]),
            f"sha256sum x {num_cpus()}": lambda: run(
                ["xargs", "-0", "-P", str(num_cpus()), "-n", "1", "sha256sum"], "\0".join(files)
            ),
            "sha256 in memory, all cores": lambda: hash_in_memory(num_bytes),
            "create": lambda: dataset.pin("train"),
            "verify": lambda: pin.verify().require_sound(),
            "verify --quick": lambda: pin.verify(quick=True).require_sound(),
            "verify --deep": lambda: pin.verify(deep=True).require_sound(),
        }
        times = {way: min(timed(call) for _ in range(rounds)) for way, call in ways.items()}
    for way, seconds in times.items():
        ratios = (times[other] / seconds for other in list(ways)[:3])
        print(
            f"  {way:<28} {seconds:6.2f} s  {num_bytes / seconds / 1e9:5.2f} GB/s   "
            + "  ".join(f"{r:5.2f}x" for r in ratios)
        )


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def run(command: list[str], text: str = "") -> None:
    subprocess.run(command, input=text, text=True, stdout=subprocess.DEVNULL, check=True)


def hash_in_memory(num_bytes: int) -> None:
    """Hash this number of bytes, divided among the cores."""
    cores = num_cpus()
    with ProcessPoolExecutor(cores) as pool:
        list(pool.map(hash_share, [num_bytes // cores] * cores))


def hash_share(num_bytes: int) -> str:
    hasher, piece = hashlib.sha256(), bytes(4 * 2**20)
    for _ in range(num_bytes // len(piece)):
        hasher.update(piece)
    return hasher.hexdigest()


if __name__ == "__main__":
    main()
