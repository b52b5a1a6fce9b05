"""Compares the speed of this checkout with another one: the same public operations, in turns, in fresh processes.

    python benchmarks/checkouts.py ../before                  all operations, 5 rounds
    python benchmarks/checkouts.py ../before --only read      those whose name holds "read"

The other checkout runs with the interpreter in its own ``.venv``. In each round both run one after the other, and each
time begins with the other one, so that a busy machine slows both. Prints the fastest time of each, the ratio of these,
and the median of the rounds' ratios: above 1 this checkout is slower.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NUM_SMALL = 200_000
NUM_BUILT = 20_000


def small_examples(count: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Examples of about 100 bytes."""
    for number in range(count):
        yield number, {"id": number, "score": number / 7, "name": f"example number {number}"}


def builder(count: int) -> Any:
    """A builder of ``count`` small examples."""
    import registry
    from registry.features import FeaturesDict, Text

    class Small(registry.DatasetBuilder):
        VERSION = "1.0.0"

        def features(self) -> FeaturesDict:
            return FeaturesDict({"id": "int64", "score": "float32", "name": Text()})

        def splits(self) -> Mapping[str, Any]:
            return {"train": small_examples(count)}

    return Small


def prepared(folder: Path, count: int) -> Any:
    """A catalog in which a small dataset is published."""
    import registry

    catalog = registry.connect(folder / "catalog.db", data_dir=folder / "data")
    catalog.build(builder(count), num_shards=8, processes=1)
    return catalog


def first_read(folder: Path) -> Callable[[], object]:
    """Look digits up and list a tenth of them."""
    import registry

    catalog = registry.connect(folder / "catalog.db", data_dir=folder / "data")
    catalog.build("digits")
    return lambda: [list(catalog.dataset("digits").read("train[:10%]")) for _ in range(20)]


def read_examples(folder: Path) -> Callable[[], object]:
    """Iterate over 200,000 small examples."""
    dataset = prepared(folder, NUM_SMALL).dataset("small")
    return lambda: sum(1 for _ in dataset.read("train"))


def read_batches(folder: Path) -> Callable[[], object]:
    """Batches of 256 of the same, five times."""
    dataset = prepared(folder, NUM_SMALL).dataset("small")
    return lambda: [sum(1 for _ in dataset.read("train").batches(256)) for _ in range(5)]


def read_shuffled(folder: Path) -> Callable[[], object]:
    """Batches of 256 in a global shuffle."""
    import registry

    dataset = prepared(folder, NUM_SMALL).dataset("small")
    config = registry.ReadConfig(shuffle="global", seed=1)
    return lambda: [sum(1 for _ in dataset.read("train", config).batches(256)) for _ in range(3)]


def read_by_number(folder: Path) -> Callable[[], object]:
    """20,000 examples one by one, by their numbers."""
    reader = prepared(folder, NUM_SMALL).dataset("small").read("train")
    return lambda: [reader[number * 7919 % NUM_SMALL] for number in range(20_000)]


def resolve(folder: Path) -> Callable[[], object]:
    """Slices of a split of 1,000 shards, with all their file instructions."""
    del folder
    import registry

    layout = {"train": [1000 + number % 7 for number in range(1000)]}
    return lambda: [len(list(registry.resolve(f"train[{percent}%:]", layout))) for percent in range(100)]


def look_up(folder: Path) -> Callable[[], object]:
    """1,000 look-ups of a range."""
    catalog = prepared(folder, 100)
    return lambda: [catalog.dataset("small:1.*") for _ in range(1000)]


def build(folder: Path) -> Callable[[], object]:
    """Build and publish 20,000 small examples in one process."""
    import registry

    catalog = registry.connect(folder / "catalog.db", data_dir=folder / "data")
    made = builder(NUM_BUILT)
    return lambda: catalog.build(made, processes=1)


def publish(folder: Path) -> Callable[[], object]:
    """Build and publish 20 versions of 100 examples: catalog work above all."""
    import registry

    catalog = registry.connect(folder / "catalog.db", data_dir=folder / "data")
    made = builder(100)
    versions = [type(f"Small{number}", (made,), {"name": f"small_{number}"}) for number in range(20)]
    return lambda: [catalog.build(one, processes=1) for one in versions]


def import_tfds(folder: Path) -> Callable[[], object]:
    """Import 200,000 small examples where they are."""
    import registry

    prepared(folder, NUM_SMALL).close()
    catalog = registry.connect(folder / "other.db", data_dir=folder / "other")
    return lambda: list(catalog.import_tfds(folder / "data"))


def verify(folder: Path) -> Callable[[], object]:
    """Verify every record of 200,000."""
    dataset = prepared(folder, NUM_SMALL).dataset("small")
    return lambda: dataset.verify(deep=True)


def pin(folder: Path) -> Callable[[], object]:
    """Pin 80% of 20,000 examples, and verify the pin."""
    dataset = prepared(folder, NUM_BUILT).dataset("small")
    return lambda: next(iter(dataset.pin("train[:80%]", processes=1).values())).verify(processes=1)


OPERATIONS = {
    "first read of digits": first_read,
    "read examples": read_examples,
    "read batches": read_batches,
    "read batches, global shuffle": read_shuffled,
    "read by number": read_by_number,
    "resolve": resolve,
    "look up": look_up,
    "build": build,
    "publish": publish,
    "import TFDS": import_tfds,
    "verify --deep": verify,
    "pin, and verify it": pin,
}
COMMANDS = {
    "import registry": ["-c", "import registry"],
    "registry --help": ["-m", "registry", "--help"],
    "registry resolve digits": ["-m", "registry", "resolve", "digits", "train[:10%]"],
}
RUNS_OF_COMMANDS = 5


def run(checkout: Path, name: str, folder: Path) -> float:
    """Seconds of one operation of a checkout."""
    python = str(checkout / ".venv/bin/python")
    environment = {**os.environ, "REGISTRY_CACHE": str(folder / "cache"), "REGISTRY_CATALOG": str(folder / "quick.db")}
    if name in COMMANDS:
        quickstart = [python, "-m", "registry", "quickstart"]
        subprocess.run(quickstart, cwd=checkout, env=environment, check=True, capture_output=True)
        started = time.perf_counter()
        for _ in range(RUNS_OF_COMMANDS):
            command = [python, *COMMANDS[name]]
            subprocess.run(command, cwd=checkout, env=environment, check=True, capture_output=True)
        return (time.perf_counter() - started) / RUNS_OF_COMMANDS
    command = [python, __file__, str(checkout), "--operation", name, "--folder", str(folder)]
    return float(subprocess.run(command, cwd=checkout, env=environment, check=True, capture_output=True).stdout)


def compare(other: Path, name: str, rounds: int) -> tuple[float, float, float]:
    """The fastest times of the other checkout and of this one, and the median ratio of a round."""
    before: list[float] = []
    now: list[float] = []
    for number in range(rounds):
        for checkout, times in sorted(
            ((other, before), (ROOT, now)), key=lambda pair: pair[0], reverse=number % 2 == 1
        ):
            with tempfile.TemporaryDirectory() as folder:
                times.append(run(checkout, name, Path(folder)))
    return min(before), min(now), statistics.median(new / old for old, new in zip(before, now, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="operations whose name holds this")
    parser.add_argument("--operation", choices=OPERATIONS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.operation:
        operation = OPERATIONS[options.operation](options.folder)
        started = time.perf_counter()
        operation()
        print(time.perf_counter() - started)
        return
    print(f"{'':<32}{'before, s':>12}{'now, s':>12}{'ratio':>8}{'median':>8}")
    for name in (*COMMANDS, *OPERATIONS):
        if options.only in name:
            before, now, median = compare(options.other.resolve(), name, options.rounds)
            print(f"{name:<32}{before:>12.3f}{now:>12.3f}{now / before:>8.2f}{median:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
