"""Measures publishing to a bucket and reading from it over a slow line, beside other libraries: requests and seconds.

    python benchmarks/remote.py                                       32 MB, 30 ms for each request, 50 MB/s
    python benchmarks/remote.py --old ../before --old-python ../before/.venv/bin/python
    python benchmarks/remote.py --hf-python ../hf/bin/python --mosaic-python ../mosaic/bin/python

The server is moto on this machine, behind ``slow_proxy.py``. Every row is a fresh process; its imports and the making
of the data are not measured. The jobs, in this order:

    publish     the folder of a prepared version, 8 shards
    first       the first record of a version that this machine has never read
    sequence    all records in the order of the files
    random      8 times 256 records anywhere in the split
    shuffle     all records in a seeded global order
    again       all records once more, from the cache on this disk where the library has one

"registry" has an empty cache at first; "registry, no cache" keeps nothing but the index of records. "old" is another
checkout of this project, "obstore" the library below it, used directly with offsets that are known beforehand:
64 requests at once, neighbours merged, so what the line allows. "datasets" streams Parquet files, "mosaic" MDS files.
A library's row is left out where its interpreter is not given.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
JOBS = ("publish", "first", "sequence", "random", "shuffle", "again")
NUM_SHARDS = 8
RECORD_BYTES = 4000
BATCHES, BATCH = 8, 256
SEED = 7
BUCKET = "measured"


def payload(number: int) -> bytes:
    return np.random.default_rng(number).bytes(RECORD_BYTES)


def num_records(arguments: argparse.Namespace) -> int:
    return max(NUM_SHARDS, int(arguments.size * 1e6) // RECORD_BYTES)


def drawn(count: int) -> list[list[int]]:
    """The positions of the records of the job ``random``."""
    found: list[list[int]] = np.random.default_rng(SEED).integers(0, count, (BATCHES, BATCH)).tolist()
    return found


# The work of one process: it prints the seconds of its job.


def clock(work: Callable[[], int]) -> tuple[float, int]:
    started = time.perf_counter()
    found = work()
    return time.perf_counter() - started, found


def run_registry(job: str, folder: Path, count: int) -> tuple[float, int]:
    """One job with the checkout of the interpreter that runs this file."""
    import registry

    for name in ("registry.reading.reader", "registry.publishing", "registry.catalog", "registry.storage"):
        importlib.import_module(name)  # else the first call would import them
    with registry.connect(folder / "catalog.db", data_dir=f"s3://{BUCKET}/{folder.name}") as catalog:
        if job == "publish":
            return clock(lambda: len(catalog.publish(folder / "prepared/blobs/1.0.0").version.splits))
        if job == "first":
            return clock(lambda: sum(1 for _ in catalog.dataset("blobs").read("train[:1]").records()))
        if job == "random":
            reader = catalog.dataset("blobs").read("train")
            return clock(lambda: sum(len(reader[batch]["data"]) for batch in drawn(count)))
        order = registry.ReadConfig(shuffle="global", seed=SEED) if job == "shuffle" else None
        reader = catalog.dataset("blobs").read("train", order)
        return clock(lambda: sum(1 for _ in reader.records()))


def run_obstore(job: str, folder: Path, count: int) -> tuple[float, int]:
    """The same bytes by the library alone; it knows the place of every record."""
    import asyncio

    import obstore
    from obstore.store import S3Store

    store = S3Store(BUCKET, client_options={"allow_http": True}, retry_config={"max_retries": 0})
    files = sorted((folder / "prepared/blobs/1.0.0").iterdir())
    shards = [path for path in files if "tfrecord" in path.name]
    frame = (shards[0].stat().st_size * NUM_SHARDS) // count
    ends = np.cumsum([path.stat().st_size // frame for path in shards])

    def place(record: int) -> tuple[int, int]:
        shard = int(np.searchsorted(ends, record, "right"))
        return shard, record - (int(ends[shard - 1]) if shard else 0)

    async def fetch(ranges: list[tuple[int, int, int]]) -> None:
        slots = asyncio.Semaphore(64)

        async def one(shard: int, start: int, stop: int) -> None:
            async with slots:
                await obstore.get_range_async(store, f"obstore/{shards[shard].name}", start=start, end=stop)

        await asyncio.gather(*(one(*item) for item in ranges))

    async def publish() -> None:
        await asyncio.gather(*(obstore.put_async(store, f"obstore/{path.name}", path) for path in files))

    def pieces() -> list[tuple[int, int, int]]:
        step = 4 * 2**20
        sizes = [path.stat().st_size for path in shards]
        return [
            (shard, start, min(start + step, size))
            for shard, size in enumerate(sizes)
            for start in range(0, size, step)
        ]

    def scattered(records: list[int]) -> list[tuple[int, int, int]]:
        merged: list[list[int]] = []
        for shard, number in sorted(map(place, records)):
            start = number * frame
            if merged and merged[-1][0] == shard and start - merged[-1][2] < 2**18:
                merged[-1][2] = max(merged[-1][2], start + frame)
            else:
                merged.append([shard, start, start + frame])
        return [(shard, start, stop) for shard, start, stop in merged]

    def work() -> int:
        if job == "publish":
            asyncio.run(publish())
        elif job == "first":
            asyncio.run(fetch([(0, 0, frame)]))
        elif job == "random":
            for batch in drawn(count):
                asyncio.run(fetch(scattered(batch)))
        else:
            asyncio.run(fetch(pieces()))
        return count

    return clock(work)


def run_datasets(job: str, folder: Path, _count: int) -> tuple[float, int]:
    """Hugging Face's streaming of Parquet files through s3fs."""
    import datasets

    options = {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]}
    if job == "publish":
        import s3fs  # type: ignore[import-not-found]

        files = s3fs.S3FileSystem(**options)
        return clock(lambda: files.put(str(folder / "parquet"), f"{BUCKET}/parquet", recursive=True) and 0)
    paths = [f"s3://{BUCKET}/parquet/{path.name}" for path in sorted((folder / "parquet").iterdir())]

    def work() -> int:
        data = datasets.load_dataset(
            "parquet", data_files={"train": paths}, streaming=True, split="train", storage_options=options
        )
        if job == "first":
            return sum(1 for _ in data.take(1))
        if job == "shuffle":
            data = data.shuffle(seed=SEED, buffer_size=1000)
        return sum(1 for _ in data)

    return clock(work)


def run_mosaic(job: str, folder: Path, count: int) -> tuple[float, int]:
    """MosaicML's streaming of MDS files, with its own cache."""
    os.environ["S3_ENDPOINT_URL"] = os.environ["AWS_ENDPOINT_URL"]
    from streaming import MDSWriter, StreamingDataset  # type: ignore[import-not-found]

    remote = f"s3://{BUCKET}/mosaic"
    if job == "publish":

        def write() -> int:
            with MDSWriter(out=remote, columns={"data": "bytes"}, size_limit=2**22) as writer:
                for number in range(count):
                    writer.write({"data": payload(number)})
            return 0

        return clock(write)
    local = folder / f"mosaic-{job if job in ('first', 'random', 'shuffle') else 'kept'}"

    def work() -> int:
        data = StreamingDataset(
            remote=remote, local=str(local), shuffle=job == "shuffle", shuffle_seed=SEED, batch_size=1
        )
        if job == "first":
            return len(data[0])
        if job == "random":
            return sum(len(data[number]) for batch in drawn(count) for number in batch)
        return sum(1 for _ in data)

    return clock(work)


RUNNERS: dict[str, Callable[[str, Path, int], tuple[float, int]]] = {
    "registry": run_registry,
    "registry, no cache": run_registry,
    "old": run_registry,
    "obstore": run_obstore,
    "datasets": run_datasets,
    "mosaic": run_mosaic,
}

WITHOUT = {("datasets", "random"), ("obstore", "again"), ("old", "again")}
"""What a library cannot do, or does as in another job."""


# The table.


def make_data(folder: Path, count: int) -> None:
    """The prepared version, and Parquet files with the same records."""
    import pyarrow as pa
    from pyarrow import parquet

    import registry
    from registry.features import FeaturesDict

    class Blobs(registry.DatasetBuilder):
        VERSION = "1.0.0"

        def features(self) -> FeaturesDict:
            return FeaturesDict({"data": registry.features.Scalar("string")})

        def splits(self) -> dict[str, Iterator[tuple[int, dict[str, bytes]]]]:
            return {"train": ((number, {"data": payload(number)}) for number in range(count))}

    with registry.connect(folder / "made.db", data_dir=folder / "prepared") as catalog:
        catalog.build(Blobs, num_shards=NUM_SHARDS, processes=1)
    (folder / "parquet").mkdir()
    for shard in range(NUM_SHARDS):
        rows = [payload(number) for number in range(count * shard // NUM_SHARDS, count * (shard + 1) // NUM_SHARDS)]
        parquet.write_table(pa.table({"data": rows}), folder / "parquet" / f"{shard}.parquet", compression="none")


@contextmanager
def server(arguments: argparse.Namespace) -> Iterator[dict[str, str]]:
    """The variables of a client of moto behind the slow proxy."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.s3_server import S3Server  # type: ignore[import-not-found]  # a module of the tests

    with S3Server() as s3:
        s3.create_bucket(BUCKET)
        command = [sys.executable, str(ROOT / "benchmarks/slow_proxy.py"), str(s3.port)]
        command += ["--delay-ms", str(arguments.delay_ms), "--mb-per-second", str(arguments.mb_per_second)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as proxy:
            assert proxy.stdout is not None
            assert proxy.stdin is not None
            yield s3.environment(int(proxy.stdout.readline()))
            proxy.stdin.close()


def counted(environment: dict[str, str]) -> dict[str, int]:
    with urllib.request.urlopen(f"{environment['AWS_ENDPOINT_URL']}/_counts") as answer:  # noqa: S310 (the proxy)
        found: dict[str, int] = json.load(answer)
    return found


def measure(
    row: str, interpreter: str, folder: Path, arguments: argparse.Namespace, environment: dict[str, str]
) -> None:
    """Run the jobs of one row, and print a line for each."""
    own = folder / row.replace(", ", "-").replace(" ", "-")
    own.mkdir()
    for name in ("prepared", "parquet"):
        (own / name).symlink_to(folder / name)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "REGISTRY_"))}
    variables |= environment | {
        "HF_HOME": str(own / "hf"),
        "HF_DATASETS_OFFLINE": "1",
        "XDG_CACHE_HOME": str(own / "cache"),
    }
    variables |= {
        "REGISTRY_CACHE_BYTES": "10GB" if row == "registry" else "0",
        "REGISTRY_CACHE_DIR": str(own / "blocks"),
    }
    if row == "old":
        variables["PYTHONPATH"] = str(Path(arguments.old).resolve())
    for job in JOBS:
        if (row, job) in WITHOUT:
            continue
        if job != "again":
            shutil.rmtree(own / "blocks", ignore_errors=True)
        counted(environment)
        command = [interpreter, str(Path(__file__).resolve()), "--row", row, "--job", job, "--folder", str(own)]
        command += ["--size", str(arguments.size)]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, cwd=own, check=False)
        if done.returncode:
            print(f"{row:>20} {job:>10}  failed: {done.stderr.strip()[-300:]}")
            continue
        seconds = json.loads(done.stdout.splitlines()[-1])["seconds"]
        counts = counted(environment)
        mega_bytes = counts.pop("bytes", 0) / 1e6
        told = " ".join(f"{method} {number}" for method, number in sorted(counts.items()))
        print(f"{row:>20} {job:>10} {seconds:>9.2f} {sum(counts.values()):>9} {mega_bytes:>9.1f}  {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=float, default=32, help="size of the records in MB")
    parser.add_argument("--delay-ms", type=float, default=30)
    parser.add_argument("--mb-per-second", type=float, default=50)
    parser.add_argument("--old", help="another checkout of this project")
    parser.add_argument("--old-python", help="its interpreter")
    parser.add_argument("--hf-python", help="an interpreter with datasets and s3fs")
    parser.add_argument("--mosaic-python", help="an interpreter with mosaicml-streaming")
    for hidden in ("--row", "--job", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    count = num_records(arguments)
    if arguments.row:
        if arguments.row != "old":
            sys.path.insert(0, str(ROOT))
        seconds, found = RUNNERS[arguments.row](arguments.job, Path(arguments.folder), count)
        print(json.dumps({"seconds": seconds, "found": found}), flush=True)
        os._exit(0)  # threads of obstore and Arrow abort a process that ends while they hand over an answer
    rows = {"registry": sys.executable, "registry, no cache": sys.executable, "obstore": sys.executable}
    if arguments.old:
        rows["old"] = arguments.old_python or str(Path(arguments.old) / ".venv/bin/python")
    if arguments.hf_python:
        rows["datasets"] = arguments.hf_python
    if arguments.mosaic_python:
        rows["mosaic"] = arguments.mosaic_python
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory(dir=".", prefix="measured-") as name, server(arguments) as environment:
        folder = Path(name).resolve()
        make_data(folder, count)
        print(
            f"{count:,} records of {RECORD_BYTES:,} bytes in {NUM_SHARDS} shards; {arguments.delay_ms:g} ms, "
            f"{arguments.mb_per_second:g} MB/s"
        )
        print(f"{'':>20} {'job':>10} {'seconds':>9} {'requests':>9} {'MB':>9}")
        for row, interpreter in rows.items():
            measure(row, interpreter, folder, arguments, environment)


if __name__ == "__main__":
    main()
