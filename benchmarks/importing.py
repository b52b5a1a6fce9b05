"""Measures the import of a TFDS folder, next to sha256 over the same files on all cores.

    python benchmarks/importing.py [--bytes 2e9] [--sets A B C] [--rounds 3]

A: examples of about 100 bytes. B: of about 800. C: of about 110 KB. "import" hashes every file, checks and counts every
record and fingerprints every value; with --trust-lengths files are hashed, and nothing more. ``sha256sum`` runs in one
process for each core; "hashlib" is Python's, with the processor's own instructions where it has them, in one process
for each core, each file read once: the limit of anything that hashes each byte once. Wall clock, the fastest round;
files in memory.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import registry
from benchmarks.pins import run, timed
from benchmarks.readers.sets import SampleSet, prepare
from registry.engines import num_cpus

_RECORD_BYTES = {"A": 120, "B": 820, "C": 110_700}
_SHARDS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=float, default=2e9, help="size of each set")
    parser.add_argument("--sets", nargs="+", choices=list(_RECORD_BYTES), default=list(_RECORD_BYTES))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    root = tempfile.mkdtemp(prefix="bench-import-")
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
    numbers = count()

    def take_in(*, trust_lengths: bool) -> None:
        with registry.connect(sample.folder / f"catalog{next(numbers)}.db") as catalog:
            (found,) = catalog.import_tfds(paths[0].parent, trust_lengths=trust_lengths)
            assert str(found.outcome) == "imported"

    ways: dict[str, Callable[[], object]] = {
        "sha256sum, all cores": lambda: run(
            ["xargs", "-0", "-P", str(num_cpus()), "-n", "1", "sha256sum"], "\0".join(files)
        ),
        "hashlib, all cores": lambda: hash_files(files),
        "import --trust-lengths": lambda: take_in(trust_lengths=True),
        "import": lambda: take_in(trust_lengths=False),
    }
    times = {way: min(timed(call) for _ in range(rounds)) for way, call in ways.items()}
    for way, seconds in times.items():
        ratios = (times[other] / seconds for other in list(ways)[:2])
        print(
            f"  {way:<24} {seconds:6.2f} s  {num_bytes / seconds / 1e9:5.2f} GB/s   "
            + "  ".join(f"{ratio:5.2f}x" for ratio in ratios)
        )


def hash_files(files: list[str]) -> None:
    """Hash the files, one process for each core."""
    with ProcessPoolExecutor(num_cpus()) as pool:
        list(pool.map(hash_file, files))


def hash_file(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    main()
