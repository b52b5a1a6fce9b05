"""Measures the proof that files are the published ones: the first example of a version, each in a new process.

first     no stamp: the file is hashed
later     a stamp is there: one look at the file's state
unproved  the same records of a folder that nobody promised anything of
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

SIZES: Final = {"1 shard of 64 MB": (1, 64), "64 shards of 1 MB": (64, 1)}
WAYS: Final = ("first", "later", "unproved")
RECORD_BYTES: Final = 64 * 1024

_WORKER: Final = """
import json, os, sys, time
import registry
from registry.reading import Reader
from registry.shards import proved
from registry.storage import open_store

task = json.loads(sys.argv[1])
hashed, inner = [0], proved._hash
def counted(file, stop):
    hashed[0] += 1
    return inner(file, stop)
proved._hash = counted
with registry.connect(task["catalog"]) as catalog:
    dataset = catalog.dataset("samples")
    config = registry.ReadConfig(interleave_cycle_length=1)
    reader = dataset.read("train", config)
    starts = [dataset.splits["train"].shard_lengths.start(index) for index in range(task["shards"])]
    if task["way"] == "unproved":
        store = open_store(dataset.folder)
        reader = Reader(dataset.resolve("train"), store=store, features=dataset.features, config=config)
    begin = time.perf_counter()
    reader[starts]
    print(json.dumps({"seconds": time.perf_counter() - begin, "hashed": hashed[0]}))
"""


def measure_proof(root: str, *, rounds: int) -> list[dict[str, Any]]:
    """A row for each size: seconds until one example of each shard was read, and how many files were hashed."""
    rows = []
    for name, (shards, size) in SIZES.items():
        rows.append({"files": name, **_measure(Path(root) / f"proof-{shards}", shards, size, rounds)})
    return rows


def print_proof(rows: list[dict[str, Any]]) -> None:
    """The rows as a table."""
    print("\none example of each shard, in a new process; ms (files hashed)")
    for row in rows:
        told = ", ".join(f"{way} {row[way]['seconds'] * 1000:,.1f} ({row[way]['hashed']:g})" for way in WAYS)
        print(f"  {row['files']}: {told}; {row['gb_per_second']:.2f} GB/s")


def _measure(folder: Path, shards: int, megabytes: int, rounds: int) -> dict[str, Any]:
    import registry

    shutil.rmtree(folder, ignore_errors=True)
    _write(folder / "datasets" / "samples" / "1.0.0", shards, megabytes * 10**6 // RECORD_BYTES)
    time.sleep(0.2)  # a stamp wants files that were left alone for a moment
    with registry.connect(folder / "catalog.db") as catalog:
        catalog.publish(folder / "datasets" / "samples" / "1.0.0")
    found: dict[str, Any] = {}
    for way in WAYS:
        runs = []
        for _ in range(rounds):
            if way == "first":
                shutil.rmtree(folder / "cache", ignore_errors=True)
            runs.append(_run(folder, way, shards))
        found[way] = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    num_bytes = sum(path.stat().st_size for path in (folder / "datasets").rglob("*.tfrecord-*"))
    found["gb_per_second"] = num_bytes / 1e9 / found["first"]["seconds"]
    return found


def _run(folder: Path, way: str, shards: int) -> dict[str, Any]:
    task = {"catalog": str(folder / "catalog.db"), "way": way, "shards": shards}
    environment = os.environ | {"REGISTRY_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", _WORKER, json.dumps(task)], capture_output=True, text=True, check=True, env=environment
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _write(folder: Path, shards: int, num_records: int) -> None:
    """Records of random bytes, as many in each shard."""
    import numpy as np

    from registry.features import FeaturesDict, Text, codec_of
    from registry.model import DatasetMetadata, ShardedFileTemplate, ShardLengths, Split, Version
    from registry.prepared import PreparedDataset, write_prepared
    from registry.storage import open_store
    from registry.tfrecord import RecordWriter

    store = open_store(folder)
    features = FeaturesDict({"data": Text()})
    files = ShardedFileTemplate(dataset="samples")
    split = Split(name="train", shard_lengths=ShardLengths([num_records] * shards), files=files)
    generator = np.random.default_rng(0)
    for name in split.filenames:
        with store.create(name) as file:
            writer = RecordWriter(file)
            for _ in range(num_records):
                writer.write(codec_of(features).encode({"data": generator.bytes(RECORD_BYTES // 2).hex()}))
    prepared = PreparedDataset(
        name="samples",
        config=None,
        version=Version(1, 0, 0),
        splits=(split,),
        features=features,
        metadata=DatasetMetadata(description="Random bytes."),
    )
    write_prepared(store, prepared)
