"""Measures the catalog: publishes and look-ups per second, and look-ups among 10 and among 100,000 versions.

    python benchmarks/catalog.py [--seconds 5] [--processes 4] [--versions 10 100000]

On SQLite and on a PostgreSQL of its own (from the extra ``test``), both on this machine's disk, both with fsync. A
publish is one small version (two splits, four shards, fingerprints) in one transaction. Look-ups are exact, of a range
and without a version, in turn; each is a whole ``find``: version, splits and shard lengths.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import sqlalchemy as sa
from support.catalog_samples import sample  # type: ignore[import-not-found]  # a module of the tests
from support.catalog_server import PostgresServer  # type: ignore[import-not-found]  # the same

from registry.catalog import CatalogBackend, PublicationDetails, open_catalog, schema
from registry.catalog.session import open_engine
from registry.model import FeatureFingerprint, SplitFingerprint


def main() -> None:
    if sys.argv[1:2] == ["work"]:
        work(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each part runs")
    parser.add_argument("--processes", type=int, default=4, help="publishers and readers at once")
    parser.add_argument("--versions", type=int, nargs="+", default=[10, 100_000])
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    server = PostgresServer(folder)
    try:
        server.start(fsync=True)
        for name in ("sqlite", "postgresql"):
            url = f"sqlite:///{folder / 'catalog.db'}" if name == "sqlite" else server.create_database()
            schema.upgrade(url)
            measure(name, url, options)
            for number in options.versions:
                url = f"sqlite:///{folder / f'{number}.db'}" if name == "sqlite" else server.create_database()
                schema.upgrade(url)
                among(name, url, number, options.seconds)
    finally:
        server.stop()
        shutil.rmtree(folder)


def measure(name: str, url: str, options: argparse.Namespace) -> None:
    for what in ("publish", "find"):
        for processes in (1, options.processes):
            times = run_workers(what, url, processes, options.seconds)
            rate = len(times) / options.seconds
            show(f"{name:<11} {what:<8} {processes} process{'es' if processes > 1 else ' '}", rate, times)


def among(name: str, url: str, number: int, seconds: float) -> None:
    """Look-ups in a dataset of ``number`` versions, which are written past the API: a million publishes take long."""
    with open_catalog(url) as catalog:
        publish(catalog, "big:0.0.1")
    engine = open_engine(url)
    with engine.begin() as connection:
        copy_versions(connection, number)
    engine.dispose()
    with open_catalog(url) as catalog:
        for kind in ("exact", "range", "none"):
            reference = {"exact": f"big:{number // 2}.0.0", "range": f"big:^{number // 2}.0", "none": "big"}[kind]
            times = look_up(catalog, [reference], seconds / 3)
            show(f"{name:<11} {kind:<8} among {number:>7,} versions", len(times) / (seconds / 3), times)


def copy_versions(connection: sa.Connection, number: int) -> None:
    columns = ", ".join(
        column["name"]
        for column in sa.inspect(connection).get_columns("dataset_version")
        if column["name"] not in ("id", "major", "minor", "patch")
    )
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < CAST(:last AS INTEGER))"
    statement = (
        f"INSERT INTO dataset_version (major, minor, patch, {columns}) {numbers} "  # noqa: S608 (columns of our table)
        f"SELECT i, 0, 0, {columns} FROM dataset_version, n"
    )
    connection.execute(sa.text(statement), {"last": number - 1})
    connection.exec_driver_sql(
        "INSERT INTO split (version_id, position, name, num_examples, num_bytes, num_shards, filename_template,"
        " filename_dataset, filename_format) SELECT v.id, s.position, s.name, s.num_examples, s.num_bytes,"
        " s.num_shards, s.filename_template, s.filename_dataset, s.filename_format FROM dataset_version v, split s"
        " WHERE v.major > 0"
    )
    connection.exec_driver_sql(
        "INSERT INTO shard SELECT s.id, h.shard_index, h.first_example, h.num_examples, h.num_bytes, h.sha256"
        " FROM split s JOIN split f ON f.name = s.name AND f.id <= 2 JOIN shard h ON h.split_id = f.id WHERE s.id > 2"
    )
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("ANALYZE")


def run_workers(what: str, url: str, processes: int, seconds: float) -> list[float]:
    """The seconds that each call took, of all processes."""
    started = [
        subprocess.Popen(
            [sys.executable, __file__, "work", what, url, str(number), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()
    for process in started:  # all are ready: go
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate()[0] for process in started]
    return [float(line) for output in outputs for line in output.split()]


def work(what: str, url: str, number: str, seconds: str) -> None:
    """One process: publish or look up until the time is over, then print what each call took."""
    name = f"data_{number}_{time.monotonic_ns()}"
    with open_catalog(url) as catalog:
        publish(catalog, f"{name}:1.0.0")
        print("ready", flush=True)
        sys.stdin.readline()
        if what == "publish":
            times, end, patch = list[float](), time.perf_counter() + float(seconds), 0
            while (start := time.perf_counter()) < end:
                patch += 1
                publish(catalog, f"{name}:1.0.{patch}")
                times.append(time.perf_counter() - start)
        else:
            times = look_up(catalog, [f"{name}:1.0.0", f"{name}:1.*", name], float(seconds))
    print("\n".join(map(repr, times)))


def look_up(catalog: CatalogBackend, references: list[str], seconds: float) -> list[float]:
    times, end = list[float](), time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        catalog.find(references[len(times) % len(references)])
        times.append(time.perf_counter() - start)
    return times


def publish(catalog: CatalogBackend, reference: str) -> None:
    version, shards = sample(reference, content=reference)
    label = FeatureFingerprint.of_leaves(b"\0" * 32, num_examples=7)
    found = {
        split.name: SplitFingerprint(num_examples=split.num_examples, features={"label": label})
        for split in version.splits
    }
    catalog.publish(version, shards, promote=True, actor="benchmark", details=PublicationDetails(fingerprints=found))


def show(what: str, rate: float, times: list[float]) -> None:
    cuts = statistics.quantiles(times, n=100)
    print(f"{what:<40} {rate:>8,.0f}/s   p50 {cuts[49] * 1e3:6.2f} ms   p99 {cuts[98] * 1e3:6.2f} ms", flush=True)


if __name__ == "__main__":
    main()
