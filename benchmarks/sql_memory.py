"""Measures the memory of a process in which DuckDB scans many records through a reader.

    python benchmarks/sql_memory.py [GIB]

It publishes float64 records of that size (default: 2) in a temporary folder, scans all columns in a fresh process, and
prints seconds and the most memory of that process, sampled every 20 ms: its own, and with the pages of mapped shards,
which the system takes back when others need memory.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import registry

WIDTH = 1_000
SCAN = """
import re, sys, threading, time, registry
most = {"RssAnon": 0, "VmRSS": 0}

def watch():
    while True:
        status = open("/proc/self/status").read()
        for name in most:
            most[name] = max(most[name], int(re.search(name + r":\\s+(\\d+)", status)[1]))
        time.sleep(0.02)

threading.Thread(target=watch, daemon=True).start()
dataset = registry.connect(sys.argv[1], data_dir=sys.argv[2]).dataset("wide")
print(dataset.sql("SELECT count(*), sum(list_sum(v)) FROM train").fetchall())
print(f"{most['RssAnon'] / 1024:.0f} MiB, with mapped shards {most['VmRSS'] / 1024:.0f} MiB")
"""


def batches(num_rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, num_rows, 1_000):
        values = np.random.default_rng(start).random(WIDTH * min(1_000, num_rows - start))
        yield pa.record_batch({"v": pa.FixedSizeListArray.from_arrays(values, WIDTH)})


def main() -> None:
    num_rows = int(float(sys.argv[1] if len(sys.argv) > 1 else "2") * 2**30 / (8 * WIDTH))
    with tempfile.TemporaryDirectory() as folder:
        schema = pa.schema({"v": pa.list_(pa.float64(), WIDTH)})
        stream = pa.RecordBatchReader.from_batches(schema, batches(num_rows))
        with registry.connect(f"{folder}/c.db", data_dir=folder, create=True) as catalog:
            catalog.add(stream, "wide", processes=1)
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", SCAN, f"{folder}/c.db", folder], check=True)
        print(f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
