"""Measures ``registry site``: a first run, a second one without a change, and one after a version was yanked.

    python benchmarks/sites.py [--datasets 1000] [--versions 10] [--records 3]

Every dataset is the same tiny table under another name. For each run: the time, the CPU
time of all its processes, which other work on the machine affects less, and the files that were written.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import os
import shutil
import tempfile
import time
from pathlib import Path

import registry
from registry.catalog import load_shards
from registry.model import Version
from registry.pages import SiteOptions, write_site


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=1000)
    parser.add_argument("--versions", type=int, default=10)
    parser.add_argument("--records", type=int, default=3)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        with registry.connect(folder / "catalog.db", create=True) as catalog:
            publish(catalog, folder, options)
            for name in ("first", "unchanged", "one yank"):
                if name == "one yank":
                    catalog.lifecycle.yank("data0000:1.0.0", reason="to measure")
                measure(name, catalog, folder / "site")
    finally:
        shutil.rmtree(folder)


def publish(catalog: registry.Catalog, folder: Path, options: argparse.Namespace) -> None:
    """Publish a table once with its files, and its row under every other name and version."""
    with (folder / "rows.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerows([("label", "text"), *((index % 3, f"row {index}") for index in range(options.records))])
    catalog.add(folder / "rows.csv", name="tiny")
    tiny = catalog.dataset("tiny").facts
    shards = {split.name: load_shards(catalog.backend.shards, tiny, split.name) for split in tiny.splits}
    for number in range(options.datasets):
        for minor in range(options.versions):
            version = dataclasses.replace(
                tiny, name=f"data{number:04d}", version=Version(1, minor, 0), canonical=None, published_at=None
            )
            catalog.backend.publish(version, shards, promote=True, actor="benchmark")


def measure(name: str, catalog: registry.Catalog, site: Path) -> None:
    started, before = time.perf_counter(), os.times()
    report = write_site(catalog, site, SiteOptions(records=100))
    seconds, after = time.perf_counter() - started, os.times()
    cpu = sum(after[:4]) - sum(before[:4])
    files = f"{report.num_pages:,} pages, {report.written:,} files written, {report.num_bytes / 2**20:,.0f} MiB"
    print(f"{name:<10} {seconds:6.1f} s, {cpu:6.1f} s of CPU: {files}")


if __name__ == "__main__":
    main()
