"""Measures how long a new user waits for the first version: ten realistic sources, each added with one line.

    python benchmarks/first_minute.py              all ten
    python benchmarks/first_minute.py --scale 10   ten times the records

Each line runs in a fresh process with an empty catalog. The seconds include the start of the process, the imports, and
the verification of the shards. A line of Python is preceded by the line that makes its object, which counts, too.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

RNG = np.random.default_rng(0)
TABLE = ("source", "line", "seconds", "records")


@dataclass(frozen=True, slots=True)
class Case:
    """A source.

    Attributes:
        about: what it is.
        make: writes it to the working folder; receives the number of records.
        count: the number of records.
        line: the command, or the line of Python that calls ``registry.add``.
        before: for Python, the lines that make the object.
    """

    about: str
    make: Callable[[int], None]
    count: int
    line: str
    before: str = ""


def picture(side: int, kind: str) -> bytes:
    """The bytes of an image file of noise."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (side, side, 3), np.uint8)).save(file, kind)
    return file.getvalue()


def write(name: str, data: bytes) -> None:
    """Write a file below the working folder, and make its folders."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def make_csv(count: int) -> None:
    """Dates, empty fields, ZIP codes with leading zeros, texts with quotes."""
    with Path("house_sales.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Id", "SaleDate", "Zip Code", "Price", "Garage", "Has Pool", "Condition", "Notes"])
        for n in range(count):
            date = f"20{10 + n % 10}-{n % 12 + 1:02}-{n % 28 + 1:02}"
            price, garage = round(RNG.uniform(5e4, 9e5), 2), n % 4 if n % 7 else ""
            writer.writerow([n, date, f"{n * 37 % 100_000:05}", price, garage, n % 2 == 1, "NA", 'a "quoted", note'])


def make_tsv(count: int) -> None:
    """Ratings of films, compressed."""
    with gzip.open("ratings.tsv.gz", "wt") as file:
        file.write("tconst\taverageRating\tnumVotes\n")
        file.writelines(f"tt{n:07}\t{n % 100 / 10}\t{n * 13}\n" for n in range(count))


def make_chats(count: int) -> None:
    """Nested messages, some fields of which are null."""
    with Path("chats.jsonl").open("w") as file:
        for n in range(count):
            messages = [{"role": role, "content": f"{role} says {n}"} for role in ("user", "assistant") * (1 + n % 3)]
            source = None if n % 4 == 0 else "web"
            file.write(json.dumps({"id": f"c-{n}", "messages": messages, "source": source, "score": n / 7}) + "\n")


def make_classes(count: int) -> None:
    """JPEGs in folders of split and class, and what operating systems leave behind."""
    for n in range(count):
        split, label = "val" if n % 5 == 0 else "train", f"n{n % 10:08}"
        write(f"photos/{split}/{label}/{n:05}.JPEG", picture(64, "JPEG"))
    write("photos/train/Thumbs.db", b"")


def make_boxes(count: int) -> None:
    """Images next to a table with their bounding boxes."""
    rows = ["file_name,xmin,ymin,xmax,ymax,colour"]
    for n in range(count):
        write(f"cars/car {n}.png", picture(32, "PNG"))
        rows.append(f"car {n}.png,{n % 10},{n % 5},{n % 10 + 5},{n % 5 + 7.5},{('red', 'blue')[n % 2]}")
    write("cars/metadata.csv", "\n".join(rows).encode())


def make_sounds(count: int) -> None:
    """WAV files of a second in folders of classes."""
    for n in range(count):
        file = io.BytesIO()
        with wave.open(file, "wb") as sound:
            sound.setparams((1, 2, 8000, 0, "NONE", ""))
            sound.writeframes(RNG.integers(-9999, 9999, 8000, np.int16).tobytes())
        write(f"sounds/{('dog bark', 'siren')[n % 2]}/{n}.wav", file.getvalue())


def make_webdataset(count: int) -> None:
    """Two tars of images with captions."""
    Path("captions").mkdir()
    for shard in range(2):
        with tarfile.open(f"captions/{shard:06}.tar", "w") as tar:
            for n in range(shard, count, 2):
                for extension, data in (("jpg", picture(64, "JPEG")), ("txt", f"a photo of {n}".encode())):
                    member = tarfile.TarInfo(f"{n:06}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def make_npz(count: int) -> None:
    """Images and labels as Keras stores them."""
    test = count // 6
    arrays = {"x_train": count - test, "x_test": test}
    pixels: dict[str, Any] = {name: RNG.integers(0, 256, (number, 28, 28), np.uint8) for name, number in arrays.items()}
    labels: dict[str, Any] = {name.replace("x", "y"): RNG.integers(0, 10, number) for name, number in arrays.items()}
    np.savez("digits.npz", **pixels, **labels)


def make_frame(count: int) -> None:
    """A pickled frame with categories, nullable integers and times with a zone."""
    import pandas as pd

    when = pd.date_range("2020-01-01", periods=count, freq="min", tz="Europe/Berlin")
    city = pd.Categorical([["Berlin", "Aachen", "Köln"][n % 3] for n in range(count)])
    amount = pd.array([None if n % 9 == 0 else n for n in range(count)], dtype="Int64")
    pd.DataFrame({"city": city, "amount": amount, "when": when}).to_pickle("frame.pickle")


def make_saved(count: int) -> None:
    """A ``DatasetDict`` with images and class names, as ``save_to_disk`` writes it."""
    import datasets

    datasets.disable_progress_bars()
    values = {"image": [picture(32, "PNG") for _ in range(count)], "label": [n % 3 for n in range(count)]}
    features = datasets.Features(
        {"image": datasets.Value("binary"), "label": datasets.ClassLabel(names=["zebra", "apple", "mango"])}
    )
    data = datasets.Dataset.from_dict(values, features=features).cast_column("image", datasets.Image())
    data.train_test_split(test_size=0.2, seed=0).save_to_disk("fruit")


CASES = (
    Case("CSV with dates, gaps and ZIP codes", make_csv, 50_000, "registry add house_sales.csv"),
    Case("TSV, compressed", make_tsv, 50_000, "registry add ratings.tsv.gz"),
    Case("JSON lines of chats", make_chats, 20_000, "registry add chats.jsonl"),
    Case("images by split and class", make_classes, 2_000, "registry add photos"),
    Case("images with a table of boxes", make_boxes, 2_000, "registry add cars"),
    Case("sounds by class", make_sounds, 500, "registry add sounds"),
    Case("WebDataset with captions", make_webdataset, 2_000, "registry add captions"),
    Case("arrays in an .npz file", make_npz, 60_000, "registry add digits.npz"),
    Case(
        "frame of pandas",
        make_frame,
        100_000,
        'registry.add(frame, "sales")',
        'import pandas, registry; frame = pandas.read_pickle("frame.pickle")',
    ),
    Case("saved dataset of Hugging Face", make_saved, 2_000, "registry add fruit"),
)


def measure(case: Case, scale: float) -> tuple[str, str, str, str]:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            case.make(int(case.count * scale))
            if case.line.startswith("registry "):
                command = [sys.executable, "-m", "registry", *case.line.split()[1:], "--format", "json"]
            else:
                command = [sys.executable, "-c", f"{case.before}; print({case.line}.num_examples)"]
            environment = {**os.environ, "REGISTRY_CATALOG": str(Path(folder, "catalog.db"))}
            environment.pop("REGISTRY_DATA_DIR", None)
            started = time.perf_counter()
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            seconds = time.perf_counter() - started
        finally:
            os.chdir("/")
    if done.returncode:
        raise SystemExit(f"{case.line}: {done.stderr}")
    found = json.loads(done.stdout)
    records = found if isinstance(found, int) else found["data"]["num_examples"]
    return case.about, f"`{case.line}`", f"{seconds:.1f}", f"{records:,}"


def main() -> None:
    """Measure every source, and print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help="multiply the numbers of records")
    scale = parser.parse_args().scale
    print(f"| {' | '.join(TABLE)} |")
    print("|---|---|---:|---:|")
    for case in CASES:
        print(f"| {' | '.join(measure(case, scale))} |", flush=True)


if __name__ == "__main__":
    main()
