"""Measures the pages of ``registry browse``: server time of every kind of page, and two of them beside Datasette.

    python benchmarks/pages.py [--datasets 1000] [--versions 3] [--older 100] [--records 100000] [--rounds 30]
    python benchmarks/pages.py --datasets 10000 --versions 1 --older 2000 --records 10000000 --rounds 100

The catalog has the digits with their statistics, ten equal older versions of them and others without files, datasets
of a few versions without files, two versions of photographs and of 200 columns, and a table of numbers whose columns
are kept. The pages are those that links reach from home, some questions, the first visits after an event, the pages of
the photographs and of the 200 columns, and pages of the table. ``first byte`` is what the server needs for a page,
because it makes a page before it sends it; ``complete`` includes the style, the script and the pictures of the page,
all from one connection. ``CPU`` is what the process of the server used for a page, so other work on the machine matters
less; ``first`` is that of the first request, before anything about the page is remembered. The last line of the table
is the most memory that the server had.

Datasette (from the extra ``peers``) serves the same digits from a table of SQLite, in a process of its own: label and
image of each record. Its table is asked for as many records as a page of ours has. Both are asked in turn.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.browse_process import Browse  # type: ignore[import-not-found]  # a module of the tests
from support.catalog_samples import sample  # type: ignore[import-not-found]  # the same
from support.page_walk import Html, kind_of, walk  # type: ignore[import-not-found]  # the same

import registry
from registry.builders.digits import Digits
from registry.catalog import PublicationDetails, open_catalog
from registry.features import ClassLabel, FeaturesDict, Image, Scalar, Text, features_to_json
from registry.model import FeatureFingerprint, SplitFingerprint

QUERIES: Final = (
    "?q=digits",
    "datasets/digits/1.0.0/records/?split=train%5B10%25%3A%5D",
    "datasets/digits/1.0.0/records/?split=train&where=label+%3D%3D+3",
    "datasets/digits/1.0.0/records/?split=train&sort=label",
    "datasets/digits/1.0.0/splits/?split=train%5B%3A80%25%5D",
    "datasets/digits/1.0.0/records/index.json",
    "datasets/digits/1.0.0/media/train/0/image/small.png",
)
TABLE: Final = "datasets/table/1.0.0/records/"
FILTER: Final = f"{TABLE}?split=train&where=price+%3E+{{}}"
VERSION: Final = "datasets/{}/2.0.0/"
PARTS: Final = ("", "records/", "records/train/1/", "statistics/", "splits/", "changes/", "files/")
WIDE: Final = ("records/?split=train&where=value_000+%3E+0.5", "records/?split=train&sort=value_005")


class Server:
    """One kept connection to a server, and the CPU time of its process."""

    def __init__(self, url: str, pid: int) -> None:
        self.url, self.pid = url, pid
        place = urlsplit(url)
        self._connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)

    def cpu_seconds(self) -> float:
        """The CPU time of the threads of the server until now."""
        spent = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with suppress(OSError):  # it has ended
                spent += int((task / "schedstat").read_text(encoding="ascii").split()[0])
        return spent / 1e9

    def get(self, address: str) -> tuple[float, bytes]:
        """The seconds to the first byte of an answer, and its body."""
        url = urlsplit(urljoin(self.url, address))
        target = url.path + (f"?{url.query}" if url.query else "")
        start = time.perf_counter()
        try:
            response = self._ask(target)
        except ConnectionError:  # the server has closed it, because it was idle for some seconds
            self._connection.close()
            start = time.perf_counter()
            response = self._ask(target)
        first = time.perf_counter() - start
        body = response.read()
        assert response.status == 200, (address, response.status)
        return first, body

    def _ask(self, target: str) -> http.client.HTTPResponse:
        self._connection.request("GET", target)
        return self._connection.getresponse()

    def open(self, address: str, loaded: list[str]) -> tuple[float, float]:
        """The seconds to the first byte of a page, and until it is complete."""
        start = time.perf_counter()
        first, _ = self.get(address)
        for target in loaded:
            self.get(target)
        return first, time.perf_counter() - start

    def loaded_by(self, address: str) -> list[str]:
        """What a browser loads for a page: styles, scripts and pictures."""
        base = urljoin(self.url, address)
        targets = [urljoin(base, link) for link in Html(self.get(address)[1].decode()).loaded]
        place = urlsplit(self.url).netloc
        return [target for target in dict.fromkeys(targets) if urlsplit(target).netloc == place]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=1000, help="datasets beside the digits")
    parser.add_argument("--versions", type=int, default=3, help="versions of each of them")
    parser.add_argument("--older", type=int, default=100, help="older versions of the digits")
    parser.add_argument("--records", type=int, default=100_000, help="records of the table")
    parser.add_argument("--rounds", type=int, default=30, help="how often each page is asked for")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        os.environ |= {"REGISTRY_CACHE_DIR": str(folder / "cache"), "REGISTRY_CACHE_BYTES": "10GB"}
        file = make_catalog(folder, options.datasets, options.versions)
        with registry.connect(file) as catalog:
            add_older(catalog, options.older)
            add_table(catalog, options.records)
            for builder in (_Photographs, _OtherPhotographs, _Wide, _OtherWide):
                catalog.build(builder)
                catalog.dataset(f"{builder.name}:{builder.VERSION}").compute_statistics()
        with Browse(file, "--no-open") as browse, registry.connect(file) as catalog:
            ours = Server(browse.url, browse.process.pid)
            pages = walk(browse, most=1, follows=is_representative).pages
            kinds = {kind_of(browse.url, page): page for page in reversed(pages)}
            print(f"{options.datasets + 1:,} datasets; {options.rounds} rounds; milliseconds", flush=True)
            print(f"{'page':<44} {'p50':>7} {'p95':>7} {'CPU p50':>8} {'CPU p95':>8} {'first':>7} {'KB':>7}")
            for page in sorted({*kinds.values(), *map(browse.url.__add__, QUERIES)}, key=len):
                measure(ours, page, options.rounds)
            for name, parts in (("photographs", PARTS), ("wide", PARTS + WIDE)):
                for part in parts:
                    measure(ours, VERSION.format(name) + part, options.rounds)
            numbers = iter(range(10**9))

            def note() -> None:
                catalog.describe(f"set_00000:1.0.{options.versions - 1}", description=f"Note {next(numbers)}")

            measure(ours, "", min(20, options.rounds), "home after an event", note)
            print(f"\nthe table, {options.records:,} records", flush=True)
            middle = f"&after={options.records // 2}"
            for query in ("", f"?split=train{middle}", "?split=train&sort=price", f"?split=train&sort=-price{middle}"):
                measure(ours, TABLE + query, options.rounds)
            measure(ours, FILTER.format("0.5"), options.rounds, "a filter again")
            limits = iter(range(1, 10**9))
            measure(ours, lambda: FILTER.format(next(limits) / 10_000), options.rounds, "a new filter")
            measure(ours, f"{TABLE}train/{options.records - 1}/", options.rounds, "its last record")
            status = Path(f"/proc/{ours.pid}/status").read_text(encoding="ascii")
            print("\nmost memory:", re.findall(r"VmHWM:\s*(.*)", status)[0], flush=True)
            if find_spec("datasette") is None:
                print("Datasette is not installed, so nothing is compared: pip install -e '.[peers]'")
                return
            compare(ours, folder, options.rounds)
    finally:
        shutil.rmtree(folder)


def make_catalog(folder: Path, num_datasets: int, num_versions: int) -> Path:
    file = folder / "catalog.db"
    with registry.connect(file, create=True) as catalog:
        catalog.build("digits")
        digits = catalog.dataset("digits")
        digits.compute_statistics()
        features, label = features_to_json(digits.features), FeatureFingerprint.of_leaves(b"\0" * 32, num_examples=7)
    with open_catalog(f"sqlite:///{file}") as backend:
        for number in range(num_datasets * num_versions):
            reference = f"set_{number // num_versions:05}:1.0.{number % num_versions}"
            version, shards = sample(reference, content=reference, features_json=features)
            proof = {
                split.name: SplitFingerprint(num_examples=split.num_examples, features={"label": label})
                for split in version.splits
            }
            details = PublicationDetails(fingerprints=proof)
            backend.publish(version, shards, promote=True, actor="benchmark", details=details)
    return file


def add_older(catalog: registry.Catalog, number: int) -> None:
    """Versions below the digits: ten that are equal to them, and others without files."""
    features = features_to_json(catalog.dataset("digits").features)
    for patch in range(1, min(number, 10) + 1):
        note = {f"0.9.{patch}": "The same images"}
        catalog.build(type("Digits", (Digits,), {"name": "digits", "VERSION": f"0.9.{patch}", "RELEASE_NOTES": note}))
    for patch in range(number - 10):
        version, shards = sample(f"digits:0.1.{patch}", content=f"{patch}", features_json=features)
        catalog.backend.publish(version, shards, promote=False, actor="benchmark", details=PublicationDetails())


def add_table(catalog: registry.Catalog, num_records: int) -> None:
    """A table of numbers and short texts; the columns of numbers are kept."""

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, num_records, 100_000):
            size, chance = min(100_000, num_records - start), np.random.default_rng(start)
            texts = [f"item {number}" for number in range(start, start + size)]
            yield pa.record_batch({"price": chance.random(size), "count": chance.integers(0, 100, size), "name": texts})

    schema = pa.schema({"price": pa.float64(), "count": pa.int64(), "name": pa.string()})
    catalog.add(pa.RecordBatchReader.from_batches(schema, batches()), "table")
    catalog.dataset("table").keep_columns(columns=["price", "count"])


class _Photographs(registry.DatasetBuilder):
    """Twenty photographs of 640 x 480 pixels, of which two differ between its versions."""

    name, VERSION, RELEASE_NOTES = "photographs", "1.0.0", {"1.0.0": "First", "2.0.0": "Two were retouched"}

    def features(self) -> FeaturesDict:
        return FeaturesDict({"image": Image(shape=(480, 640, 3), encoding_format="jpeg"), "text": Text()})

    def splits(self) -> dict[str, Iterator[tuple[int, dict[str, Any]]]]:
        return {"train": self._rows()}

    def _rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        rows, columns = np.mgrid[:480, :640]
        for number in range(20):
            waves = [np.sin(columns / (20 + number) + rows / 50), np.cos(rows / (30 + number)), np.sin(rows * columns)]
            picture = (np.stack(waves, axis=-1) * 100 + 128).astype(np.uint8)
            if self.VERSION != "1.0.0" and number % 10 == 3:
                picture[100:160, 200:300] = 255 - picture[100:160, 200:300]
            yield number, {"image": picture, "text": f"photograph {number}"}


class _OtherPhotographs(_Photographs):
    name = "photographs"
    VERSION = "2.0.0"


class _Wide(registry.DatasetBuilder):
    """3,000 records of 200 columns: numbers, texts, classes and bools; some differ between its versions."""

    name, VERSION, RELEASE_NOTES = "wide", "1.0.0", {"1.0.0": "First", "2.0.0": "Some values"}

    def features(self) -> FeaturesDict:
        kinds = [Scalar("float64"), Scalar("int64"), Text(), ClassLabel(names=["x", "y", "z"]), Scalar("bool")]
        return FeaturesDict({f"value_{place:03}": kinds[place % 5] for place in range(200)})

    def splits(self) -> dict[str, Iterator[tuple[int, dict[str, Any]]]]:
        return {"train": self._rows(3000), "test": self._rows(500)}

    def _rows(self, num_records: int) -> Iterator[tuple[int, dict[str, Any]]]:
        for number in range(num_records):
            shift = 0 if self.VERSION == "1.0.0" or number % 7 else 0.5
            values = (np.random.default_rng(number).random(200) + shift) % 1
            row = [[it, int(it * 1000), f"word {it:.2f}", int(it * 3), it > 0.5] for it in values.tolist()]
            yield number, {f"value_{place:03}": kinds[place % 5] for place, kinds in enumerate(row)}


class _OtherWide(_Wide):
    name = "wide"
    VERSION = "2.0.0"


def is_representative(page: str) -> bool:
    """Whether a page is of the digits, or of the whole catalog, and asks no question."""
    return "?" not in page and ("/datasets/" not in page or "/datasets/digits/" in page)


def measure(
    server: Server,
    page: str | Callable[[], str],
    rounds: int,
    name: str = "",
    prepare: Callable[[], None] = lambda: None,
) -> None:
    """Ask for a page, and print a line; ``prepare`` is called before each request."""
    address: Callable[[], str] = page if callable(page) else lambda: str(page)
    begin = server.cpu_seconds()
    server.get(address())
    first_cpu = server.cpu_seconds() - begin
    times, spent, body = list[float](), list[float](), b""
    for _ in range(rounds):
        prepare()
        begin = server.cpu_seconds()
        first, body = server.get(address())
        times.append(first)
        spent.append(max(0.0, server.cpu_seconds() - begin))
    wall, cpu = statistics.quantiles(times, n=20), statistics.quantiles(spent, n=20)
    name = name or address().removeprefix(server.url) or "home"
    print(
        f"{name:<44.44} {wall[9] * 1e3:7.1f} {wall[18] * 1e3:7.1f} {cpu[9] * 1e3:8.1f} {cpu[18] * 1e3:8.1f} "
        f"{first_cpu * 1e3:7.1f} {len(body) / 1e3:7.1f}",
        flush=True,
    )


def compare(ours: Server, folder: Path, rounds: int) -> None:
    """The page of records and that of one record, beside Datasette's pages of the table and of a row."""
    with registry.connect(folder / "catalog.db") as catalog:
        digits = catalog.dataset("digits")
        rows = [(row["label"], row["image"]) for row in digits.read("train").files_as_bytes()]
    with closing(sqlite3.connect(folder / "rows.db")) as database:
        database.execute("CREATE TABLE digits (id INTEGER PRIMARY KEY, label INTEGER, image BLOB)")
        database.executemany("INSERT INTO digits (label, image) VALUES (?, ?)", [(int(a), bytes(b)) for a, b in rows])
        database.commit()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "datasette", str(folder / "rows.db"), "--port", str(port), "--nolock"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            theirs = Server(f"http://127.0.0.1:{port}/", process.pid)
            wait_for(theirs)
            records = "datasets/digits/1.0.0/records/train/"
            num_records = len(
                {link for link in Html(ours.get(records)[1].decode()).links if link.strip("./").isdigit()}
            )
            print(f"\n{len(rows):,} records: ours, Datasette's, and ours divided by it (p50)")
            pairs = {
                f"{num_records} records": (records, f"rows/digits?_size={max(1, num_records)}"),
                "a record": (f"{records}100/", "rows/digits/101"),
            }
            for name, (page, peer) in pairs.items():
                beside(name, ours, page, theirs, peer, rounds)
        finally:
            process.terminate()


def wait_for(server: Server) -> None:
    place = urlsplit(server.url)
    for _ in range(300):
        with suppress(OSError), socket.create_connection((place.hostname, place.port)):
            return
        time.sleep(0.1)
    raise SystemExit("Datasette does not answer")


def beside(name: str, ours: Server, page: str, theirs: Server, peer: str, rounds: int) -> None:
    sides = {"ours": (ours, page, ours.loaded_by(page)), "peer": (theirs, peer, theirs.loaded_by(peer))}
    times: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, (server, address, loaded) in sides.items():
            times[side].append(server.open(address, loaded))
    for column, what in enumerate(("first byte", "complete")):
        mine, other = (statistics.median(pair[column] for pair in times[side]) * 1e3 for side in ("ours", "peer"))
        print(f"{name:<14} {what:<12} {mine:8.1f} ms {other:8.1f} ms {mine / other:6.2f}", flush=True)


if __name__ == "__main__":
    main()
