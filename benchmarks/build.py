"""Measures how long it takes to build and publish a made-up dataset, and how much memory that needs.

    python benchmarks/build.py                          200,000 examples of about 1 KB, in 1, 2 and chosen processes
    python benchmarks/build.py --kind images -n 20000   small PNG images, which are slow to encode
    python benchmarks/build.py --budget-mb 8            less memory for sorting
    python benchmarks/build.py --rounds 5               the least of five rounds, in which the rows take turns

``catalog.build`` runs the generator, keys, encodes and sorts the records, writes and verifies the shards with their
sha256, computes the fingerprints and writes the row. "limit" reads the files and computes their sha256. Peers are used
if they are installed: Hugging Face's ``datasets`` (``from_generator``, cached as Arrow), and TFDS
(``download_and_prepare``); neither computes sha256 or fingerprints of the content.

"generator" only draws the examples: what every row spends before it does anything. "CPU us/example" is the time of all
cores, of the process and its workers. It hardly depends on other programs; the other figures do.

Every row is a fresh process. "peak" is the most resident memory of that process, "with workers" the most that it and
its workers had at one moment, sampled every 20 ms; pages that they share count several times.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import json
import pstats
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from registry.building import DEFAULT_BUDGET_BYTES, DatasetBuilder, build_dataset
from registry.features import ClassLabel, FeaturesDict, Image, Scalar, Tensor, Text

ROW_FLOATS = 240
TABLE = ("processes or peer", "seconds", "examples/s", "MB/s", "CPU us/example", "peak MB", "with workers MB")


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


def builder_of(kind: str, num_examples: int) -> Rows:
    """The builder of a kind of examples."""
    builder_class = {"rows": Rows, "images": Images}[kind]
    builder_class.num_examples = num_examples
    return builder_class()


def build(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Build and publish in a catalog of its own, in a number of processes or in as many as it chooses."""
    import registry

    processes = None if arguments.row == "auto" else int(arguments.row)
    builder = builder_of(arguments.kind, arguments.examples)
    defaults: Any = build_dataset.__kwdefaults__
    defaults["budget_bytes"] = arguments.budget_mb * 2**20  # the catalog does not pass it on
    with registry.connect(folder / "catalog.db", data_dir=folder) as catalog:
        started, used = time.perf_counter(), cpu_seconds()
        version = catalog.build(builder, processes=processes).version
        seconds, cpu = time.perf_counter() - started, cpu_seconds() - used
    paths = sorted((folder / version.location).glob("*.tfrecord-*"))
    started = time.perf_counter()
    digests = [digest_of(path) for path in paths]
    return {
        "seconds": seconds,
        "cpu": cpu,
        "limit": time.perf_counter() - started,
        "num_bytes": sum(path.stat().st_size for path in paths),
        "digests": digests,
    }


def draw(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:  # noqa: ARG001 (nothing is written)
    """Only run the generator."""
    builder = builder_of(arguments.kind, arguments.examples)
    started, used = time.perf_counter(), cpu_seconds()
    for _ in builder._examples():
        pass
    return {"seconds": time.perf_counter() - started, "cpu": cpu_seconds() - used, "num_bytes": 0}


def cpu_seconds() -> float:
    """The time that all cores spent on this process and on its workers that have ended."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found)


def digest_of(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_with_datasets(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """``Dataset.from_generator`` with the features that it infers."""
    import datasets

    datasets.disable_progress_bars()
    builder = builder_of(arguments.kind, arguments.examples)
    started, used = time.perf_counter(), cpu_seconds()
    made = datasets.Dataset.from_generator(lambda: (one for _, one in builder._examples()), cache_dir=str(folder))
    seconds, cpu = time.perf_counter() - started, cpu_seconds() - used
    return {
        "seconds": seconds,
        "cpu": cpu,
        "num_bytes": sum(Path(one["filename"]).stat().st_size for one in made.cache_files),
    }


def write_with_tfds(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """``download_and_prepare`` of a builder with the same features and examples."""
    tfds: Any = import_module("tensorflow_datasets")
    ours = builder_of(arguments.kind, arguments.examples)
    if arguments.kind == "rows":
        features = {
            "vector": tfds.features.Tensor(shape=(ROW_FLOATS,), dtype=np.float32),
            "number": tfds.features.Scalar(np.int64),
            "label": tfds.features.ClassLabel(num_classes=10),
            "text": tfds.features.Text(),
        }
    else:
        features = {
            "image": tfds.features.Image(shape=(28, 28, 1)),
            "label": tfds.features.ClassLabel(num_classes=10),
        }

    class Made(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]  # its types are not installed
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = folder

        def _info(self) -> Any:
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager: Any) -> Any:  # noqa: ARG002 (nothing is downloaded)
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Any:
            return ours._examples()

    tfds.disable_progress_bar()
    builder = Made(data_dir=str(folder))
    started, used = time.perf_counter(), cpu_seconds()
    builder.download_and_prepare()
    seconds, cpu = time.perf_counter() - started, cpu_seconds() - used
    return {
        "seconds": seconds,
        "cpu": cpu,
        "num_bytes": sum(path.stat().st_size for path in folder.rglob("*.tfrecord-*")),
    }


OTHERS = {"generator": draw, "datasets": write_with_datasets, "tensorflow_datasets": write_with_tfds}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Make one row in this process."""
    profiler = cProfile.Profile()
    with tempfile.TemporaryDirectory(dir=".", prefix="measured-") as folder, MemoryWatch() as memory:
        if arguments.profile:
            profiler.enable()
        found = OTHERS.get(arguments.row, build)(arguments, Path(folder).resolve())
        profiler.disable()
    if arguments.profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {**found, "peak_bytes": peak, "sum_bytes": memory.most}


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
            try:
                children = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
            except OSError:  # a thread ended meanwhile
                continue
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
    parser.add_argument("--budget-mb", type=int, default=DEFAULT_BUDGET_BYTES // 2**20, help="memory for sorting")
    parser.add_argument("--rounds", type=int, default=1, help="rounds, in which the rows take turns")
    parser.add_argument("--profile", action="store_true", help="build once in this process and print where time goes")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.profile or arguments.row:
        arguments.row = arguments.row or arguments.processes[0]
        print(json.dumps(measure(arguments)))
        return
    rows = [*arguments.processes, *(name for name in OTHERS if name == "generator" or find_spec(name) is not None)]
    found: dict[str, list[dict[str, Any]]] = {row: [] for row in rows}
    for _ in range(arguments.rounds):
        for row in rows:
            command = [sys.executable, __file__, "--row", row, "-n", str(arguments.examples), "--kind", arguments.kind]
            command += ["--budget-mb", str(arguments.budget_mb)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            found[row].append(json.loads(done.stdout.splitlines()[-1]))
    print(f"{arguments.examples:,} examples ({arguments.kind}), {arguments.budget_mb} MB for sorting")
    print("  ".join(f"{title:>20}" for title in TABLE))
    for row, results in found.items():
        print_row(row, arguments.examples, {name: min(one[name] for one in results) for name in results[0]})
    limits = [one for results in found.values() for one in results if "limit" in one]
    fastest = min(limits, key=lambda one: one["limit"])
    print_row("limit", arguments.examples, {"seconds": fastest["limit"], "num_bytes": fastest["num_bytes"]})
    digests = {tuple(one["digests"]) for one in limits}
    assert len(digests) == 1, "the bytes depend on the number of processes"


def print_row(title: str, num_examples: int, one: dict[str, Any]) -> None:
    cells = [
        title,
        f"{one['seconds']:.2f}",
        f"{num_examples / one['seconds']:,.0f}",
        f"{one['num_bytes'] / 1e6 / one['seconds']:.1f}",
        f"{one['cpu'] / num_examples * 1e6:.1f}" if "cpu" in one else "",
        *(f"{one[name] / 2**20:.0f}" for name in ("peak_bytes", "sum_bytes") if name in one),
    ]
    print("  ".join(f"{cell:>20}" for cell in cells))


if __name__ == "__main__":
    main()
