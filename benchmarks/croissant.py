"""Reads a Croissant document of one CSV with ``mlcroissant`` and with ``registry add``'s reader.

    pip install mlcroissant
    python benchmarks/croissant.py [ROWS]

Each way runs in a process of its own: records a second, memory before and after, the first text, and what becomes of a
path that leads out of the folder. Decision 54 has the figures.
"""

from __future__ import annotations

import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COLUMNS = {"id": "Integer", "price": "Float", "zip": "Text", "text": "Text"}


def write_document(folder: Path, num_rows: int, url: str = "f.csv") -> Path:
    """A CSV and its document; ``url`` is where the document says that the file is."""
    lines = (f"{n},{n * 0.1:.3f},0{n % 9000 + 1000},words that repeat in every row {n}\n" for n in range(num_rows))
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / url
    with data.open("w") as file:
        file.write(",".join(COLUMNS) + "\n")
        file.writelines(lines)
    document = {
        "@context": {
            "@language": "en",
            "@vocab": "https://schema.org/",
            "cr": "http://mlcommons.org/croissant/",
            "sc": "https://schema.org/",
            "conformsTo": "http://purl.org/dc/terms/conformsTo",
            "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
            **{one: f"cr:{one}" for one in ("column", "extract", "field", "fileObject", "recordSet", "source")},
        },
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": "rows",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": "f",
                "name": "f",
                "contentUrl": url,
                "encodingFormat": "text/csv",
                "sha256": hashlib.sha256(data.read_bytes()).hexdigest(),
            }
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "r",
                "name": "r",
                "field": [
                    {
                        "@type": "cr:Field",
                        "@id": f"r/{name}",
                        "name": name,
                        "dataType": f"sc:{kind}",
                        "source": {"fileObject": {"@id": "f"}, "extract": {"column": name}},
                    }
                    for name, kind in COLUMNS.items()
                ],
            }
        ],
    }
    path = folder / "croissant.json"
    path.write_text(json.dumps(document))
    return path


def read(way: str, document: Path) -> Iterator[tuple[int, Any]]:
    """The number of records of each block, and its first text."""
    if way == "mlcroissant":
        import mlcroissant  # type: ignore[import-untyped]

        for record in mlcroissant.Dataset(jsonld=str(document)).records("r"):
            yield 1, record["r/zip"]
        return
    from registry.intake.detect import open_source

    for part in open_source(document).parts:
        for rows in part.read():
            yield rows.table.num_rows, rows.table.column("zip")[0].as_py()


def measure(way: str, document: Path, outside: Path) -> None:
    """Print what one way does."""
    next(read(way, document))  # imports
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    start, count, first = time.perf_counter(), 0, None
    for number, text in read(way, document):
        count, first = count + number, text if first is None else first
    seconds = time.perf_counter() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 - memory
    try:
        led_out = f"is read: {next(read(way, outside))}"
    except Exception as error:  # noqa: BLE001 (each library has its own)
        led_out = f"is refused: {type(error).__name__}"
    print(f"{way:>12} {count / seconds:12,.0f} records/s {grown:5} MB more, first {first!r}; a path out {led_out}")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        measure(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        with tempfile.TemporaryDirectory() as name:
            made = write_document(Path(name, "in"), int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
            other = write_document(Path(name, "in", "sub"), 10, "../f.csv.outside")
            for each in ("mlcroissant", "registry"):
                subprocess.run([sys.executable, __file__, each, str(made), str(other)], check=False)
