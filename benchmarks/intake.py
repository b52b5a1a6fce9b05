"""Measures how long it takes to publish data that comes without a builder class, beside Hugging Face's ``datasets``.

    python benchmarks/intake.py                          every kind, in small
    python benchmarks/intake.py csv --size 1000          a CSV of 1 GB
    python benchmarks/intake.py images --count 100000    100,000 small images
    python benchmarks/intake.py texts --count 1000000    1,000,000 tiny files

``registry add`` reads all rows for the schema, reads them again, encodes, keys, sorts and writes them, verifies the
shards, and proves the number. ``datasets`` loads and calls ``save_to_disk``. Every row is a fresh process, which finds
the modules of both compiled, as after an installation. "peak" is the most resident memory of the process and its
workers at one moment, sampled every 20 ms. "CPU seconds" are those of all threads and processes; other programs on the
machine change them less than the time. They start after the import of the package, which imports most modules of
``datasets``, and few of ``registry``, which imports the others as it adds; "with start" counts from the start of the
interpreter. "limit" reads every file once and computes the sha256 of its bytes.
``docs/adding.md`` shows figures of large sources.
"""

from __future__ import annotations

import argparse
import compileall
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.build import MemoryWatch

KINDS = ("csv", "jsonl", "frame", "images", "texts")
WAYS = ("add", "datasets", "limit")
TABLE = (
    *("kind", "way", "seconds", "CPU seconds", "with start", "records/s", "MB/s", "peak MB"),
    *("times as fast as datasets", "by CPU", "with start"),
)


def rows(size_mb: int) -> Any:
    """Tables of about 8 MB with a number, a float, a short and a long text, until there are ``size_mb``."""
    rng = np.random.default_rng(0)
    words = np.array(
        [
            "data",
            "set",
            "of",
            "many",
            "words",
            "that",
            "repeat",
            "in",
            "every",
            "row",
            "like",
            "those",
            "of",
            "people",
            "do",
        ]
    )
    step = 50_000
    for start in range(0, max(1, size_mb // 8) * step, step):
        texts = words[rng.integers(0, len(words), (step, 20))]
        yield {
            "id": list(range(start, start + step)),
            "price": np.round(rng.random(step) * 1000, 2).tolist(),
            "name": [f"item {n}" for n in range(start, start + step)],
            "text": [" ".join(one) for one in texts.tolist()],
        }


def make_csv(folder: Path, size_mb: int, _count: int) -> int:
    """One CSV file."""
    number = 0
    with (folder / "data.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "price", "name", "text"])
        for table in rows(size_mb):
            writer.writerows(zip(*table.values(), strict=True))
            number += len(table["id"])
    return number


def make_jsonl(folder: Path, size_mb: int, _count: int) -> int:
    """One file of JSON lines."""
    number = 0
    with (folder / "data.jsonl").open("w") as file:
        for table in rows(size_mb):
            for values in zip(*table.values(), strict=True):
                file.write(json.dumps(dict(zip(table, values, strict=True))) + "\n")
                number += 1
    return number


def make_frame(folder: Path, size_mb: int, _count: int) -> int:
    """A Parquet file, which each process loads as a frame of pandas before the time starts."""
    import pyarrow as pa
    from pyarrow import parquet

    tables = [pa.table(one) for one in rows(size_mb)]
    parquet.write_table(pa.concat_tables(tables), folder / "data.parquet")
    return sum(one.num_rows for one in tables)


def make_images(folder: Path, _size_mb: int, count: int) -> int:
    """PNG images of 64x64 pixels in ten folders."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for label in range(10):
        (folder / "data" / f"class{label}").mkdir(parents=True)
    for number in range(count):
        pixels = (rng.random((16, 16, 3)) * 255).astype(np.uint8).repeat(4, 0).repeat(4, 1)
        Image.fromarray(pixels).save(folder / "data" / f"class{number % 10}" / f"{number:07}.png")
    return count


def make_texts(folder: Path, _size_mb: int, count: int) -> int:
    """Tiny text files in folders of a thousand."""
    for number in range(count):
        place = folder / "data" / f"{number // 1000:04}"
        if number % 1000 == 0:
            place.mkdir(parents=True)
        (place / f"{number:07}.txt").write_text(f"the text of file {number}")
    return count


MAKERS: dict[str, Callable[[Path, int, int], int]] = {
    "csv": make_csv,
    "jsonl": make_jsonl,
    "frame": make_frame,
    "images": make_images,
    "texts": make_texts,
}


def data_files(folder: Path) -> list[Path]:
    """The files that were made, sorted."""
    found = []
    for parent, _, names in os.walk(folder):
        found += [Path(parent, name) for name in names]
    return sorted(found)


Seconds = npt.NDArray[np.float64]


def now() -> Seconds:
    """The time, and the CPU time of this process and of its workers that ended, in seconds."""
    return np.array([time.perf_counter(), sum(os.times()[:4])])


def run_add(kind: str, folder: Path, scratch: Path) -> Seconds:
    """Seconds of ``catalog.add``."""
    import registry

    given: Any = next(folder.iterdir())
    if kind == "frame":
        import pandas as pd

        given = pd.read_parquet(given)
    with registry.connect(scratch / "catalog.db", data_dir=scratch / "data") as catalog:
        started = now()
        catalog.add(given, "measured")
        return now() - started


def run_datasets(kind: str, folder: Path, scratch: Path) -> Seconds:
    """Seconds of ``load_dataset`` or ``from_pandas``, and ``save_to_disk``."""
    import datasets

    datasets.disable_progress_bars()
    cache = str(scratch / "cache")
    path = next(folder.iterdir())
    frame: Any = None
    if kind == "frame":
        import pandas as pd

        frame = pd.read_parquet(path)
    started = now()
    if kind == "frame":
        datasets.Dataset.from_pandas(frame).save_to_disk(str(scratch / "saved"))
    elif kind in ("csv", "jsonl"):
        loader = {"csv": "csv", "jsonl": "json"}[kind]
        datasets.load_dataset(loader, data_files=str(path), cache_dir=cache).save_to_disk(str(scratch / "saved"))
    else:
        loader = {"images": "imagefolder", "texts": "text"}[kind]
        more = {"data_dir": str(path)} if kind == "images" else {"data_files": f"{path}/**/*.txt"}
        if kind == "texts":
            more["sample_by"] = "document"
        datasets.load_dataset(loader, cache_dir=cache, **more).save_to_disk(str(scratch / "saved"))
    return now() - started


def run_limit(_kind: str, folder: Path, _scratch: Path) -> Seconds:
    """Seconds to read every file and compute its sha256."""
    started = now()
    for path in data_files(folder):
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")
    return now() - started


RUNNERS: dict[str, Callable[[str, Path, Path], Seconds]] = {
    "add": run_add,
    "datasets": run_datasets,
    "limit": run_limit,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help=f"of: {', '.join(KINDS)}")
    parser.add_argument("--size", type=int, default=64, help="size of tables in MB")
    parser.add_argument("--count", type=int, default=5000, help="number of images or texts")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        way, kind, folder = arguments.one
        with tempfile.TemporaryDirectory(dir=".", prefix="measured-") as scratch, MemoryWatch() as memory:
            seconds = RUNNERS[way](kind, Path(folder), Path(scratch).resolve())
        times = {"seconds": seconds[0], "cpu_seconds": seconds[1], "started_cpu_seconds": now()[1]}
        print(json.dumps({**times, "peak_bytes": memory.most}))
        return
    compileall.compile_dir(Path(__file__).resolve().parent.parent / "registry", quiet=1)
    print("  ".join(f"{title:>12}" for title in TABLE))
    for kind in arguments.kinds or KINDS:
        with tempfile.TemporaryDirectory(dir=".", prefix="measured-") as made:
            folder = Path(made).resolve()
            number = MAKERS[kind](folder, arguments.size, arguments.count)
            num_bytes = sum(path.stat().st_size for path in data_files(folder))
            found = {}
            for way in arguments.ways:
                command = [sys.executable, __file__, "--one", way, kind, str(folder)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
                found[way] = json.loads(done.stdout.splitlines()[-1])
            for way, one in found.items():
                peer = found.get("datasets")
                cells = (
                    kind,
                    way,
                    f"{one['seconds']:.2f}",
                    f"{one['cpu_seconds']:.2f}",
                    f"{one['started_cpu_seconds']:.2f}",
                    f"{number / one['seconds']:,.0f}",
                    f"{num_bytes / 1e6 / one['seconds']:.1f}",
                    f"{one['peak_bytes'] / 2**20:.0f}",
                    "" if peer is None else f"{peer['seconds'] / one['seconds']:.2f}",
                    "" if peer is None else f"{peer['cpu_seconds'] / one['cpu_seconds']:.2f}",
                    "" if peer is None else f"{peer['started_cpu_seconds'] / one['started_cpu_seconds']:.2f}",
                )
                print("  ".join(f"{cell:>12}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
