"""Publishes generated schemas in every way, and compares the statistics with brute force and with each other. By hand:

python tests/support/statistics_matrix.py [--cases 0 40] [--engines threads processes ray]     prints a report

Each case is built from three orders of its files, by three numbers of workers of each engine, in orders of records that
differ. It is also published and imported as a prepared folder, described where it stays, copied, and added from Parquet
files. All must have the bytes of one ``statistics.json``. ``test_statistics_matrix.py`` tries a few cases every day.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if __name__ == "__main__":  # pytest finds these by itself
    sys.path.append(str(Path(__file__).parents[1]))

import registry
from registry.cli.main import run
from registry.engines import Engine, ThisProcess
from registry.engines.workers import WorkerProcesses
from registry.features import ClassLabel, Scalar, Text, codec_of
from registry.features import Sequence as SequenceFeature
from support.prepared_samples import prepare
from support.statistics_brute_force import describe, require_equal
from support.statistics_cases import NUM_CASES, ORDERS, builder_of, case, rows_of

WORKERS: Final = (1, 2, 5)
ENGINES: Final = ("threads", "processes")


@contextmanager
def open_engines(names: Sequence[str] = ENGINES) -> Iterator[dict[str, Engine]]:
    """Engines by name and number of workers. They stay open for all cases, because starting one takes a second."""
    with ExitStack() as stack:
        engines: dict[str, Engine] = {}
        for name in names:
            if name == "ray":
                cluster = stack.enter_context(registry.use_engine("ray"))
                assert cluster is not None
                engines |= {f"{name} {workers}": cluster for workers in WORKERS}
            else:
                kinds = {"threads": lambda workers: ThisProcess(threads=workers), "processes": WorkerProcesses}
                engines |= {f"{name} {workers}": stack.enter_context(kinds[name](workers)) for workers in WORKERS}
        yield engines


def documents_of(
    number: int, folder: Path, engines: Mapping[str, Engine], *, is_sample: bool = False
) -> dict[str, bytes]:
    """The documents of a case by the way in which it was published.

    A sample builds from each order with one number of workers of each engine; otherwise with every number.
    """
    features, splits = case(number)
    codec = codec_of(features)
    records = {split: list(map(codec.encode, examples)) for split, examples in splits.items()}
    documents: dict[str, bytes] = {}
    url = f"sqlite:///{folder}/catalog.db"
    with registry.connect(url, data_dir=folder / "data", create=True) as catalog:

        def read(way: str, name: str) -> None:
            documents[way] = catalog.dataset(name).read_attachment("statistics", "statistics.json")

        for order in range(len(ORDERS)):
            for place, (engine_name, engine) in enumerate(engines.items()):
                if is_sample and (place - order) % len(WORKERS):
                    continue
                name = f"built_{order}_{engine_name.replace(' ', '_')}"
                workers = max(2, int(engine_name.split()[-1]))  # 1 would be this process, whatever the engine
                with registry.use_engine(engine):
                    catalog.build(builder_of(name, number, order), processes=workers)
                read(f"built from order {order} by {engine_name}", name)
        for order, files in enumerate(ORDERS):
            rows = {
                split: [encoded[row] for file in files for row in rows_of(file, len(encoded))]
                for split, encoded in records.items()
            }
            for way in ("published", "in_place", *["imported"] * (order == 0)):
                name = f"{way}_{order}"
                prepared = prepare(
                    folder / name, splits=rows, features=features, shards=order + 1, compress=order == 1, name=name
                )
                if way == "published":
                    catalog.publish(prepared)
                else:
                    catalog.import_tfds(prepared, copy=way == "imported").require_all()
                if way == "in_place":
                    assert catalog.dataset(name).attachments == ()
                    with registry.use_engine(workers_of(order, engines)):
                        compute_by_command(url, name)
                read(f"{way}, order {order}", name)
        with registry.connect(f"sqlite:///{folder}/copy.db", data_dir=folder / "copy", create=True) as target:
            list(catalog.copy("published_0", target))
            documents["copied"] = target.dataset("published_0").read_attachment("statistics", "statistics.json")
    return documents


def workers_of(order: int, engines: Mapping[str, Engine]) -> Engine | None:
    """The engine whose workers are not in this process, with another number of them for each order."""
    return engines.get(f"processes {WORKERS[order]}") or engines.get(f"ray {WORKERS[order]}")


def compute_by_command(url: str, name: str) -> None:
    """Run ``registry stats NAME --compute``, with the workers of the block."""
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output), pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGISTRY_CATALOG", url)
        status = run(["stats", name, "--compute", "-j", "2"])
    assert status == 0, output.getvalue()


def added_documents(number: int, folder: Path, engines: Mapping[str, Engine]) -> tuple[dict[str, bytes], Any]:
    """The documents of a case's numbers and of a text, added from Parquet files, and what brute force expects."""
    features, splits = case(number)
    numbers = {name: feature for name, feature in features.items() if is_table_column(feature)}
    rows = {
        split: [
            {**{name: example[name] for name in numbers}, "shop": f"grün {place % 70}"}
            for place, example in enumerate(splits[split])
        ]
        for split in ("train", "test")
    }
    types = {name: arrow_type(feature) for name, feature in numbers.items()} | {"shop": pa.string()}
    documents: dict[str, bytes] = {}
    with registry.connect(f"sqlite:///{folder}/added.db", data_dir=folder / "added", create=True) as catalog:
        for order, files in enumerate(ORDERS):
            source = folder / f"files {order}"
            source.mkdir()
            for split, examples in rows.items():
                for place, file in enumerate(files):
                    part = [examples[row] for row in rows_of(file, len(examples))]
                    table = {name: pa.array([row[name] for row in part], kind) for name, kind in types.items()}
                    pq.write_table(pa.table(table), source / f"{split}-{place}.parquet")
            name = f"added_{order}"
            with registry.use_engine(workers_of(order, engines)):
                catalog.add(source, name, features={**numbers, "shop": Text()}, processes=2, show=0)
            dataset = catalog.dataset(name)
            documents[f"added, order {order}"] = dataset.read_attachment("statistics", "statistics.json")
        return documents, describe(dataset.features, {split: rows[split] for split in dataset.splits})


def is_table_column(feature: Any) -> bool:
    """Whether it holds numbers, or lists of them, which Parquet files can hold as they are."""
    if isinstance(feature, SequenceFeature):
        return feature.length is None and is_table_column(feature.feature)
    return type(feature) in (Scalar, ClassLabel) and feature.dtype.name != "bfloat16"


def arrow_type(feature: Any) -> pa.DataType:
    """The Arrow type of such a feature."""
    is_list = isinstance(feature, SequenceFeature)
    return pa.list_(arrow_type(feature.feature)) if is_list else pa.from_numpy_dtype(feature.dtype)


def check_case(number: int, folder: Path, engines: Mapping[str, Engine], *, is_sample: bool = False) -> list[str]:
    """Require that all documents of a case are equal, and say what brute force says; returns the ways."""
    documents = documents_of(number, folder, engines, is_sample=is_sample)
    check_documents(documents, describe(*case(number)))
    added, expected = added_documents(number, folder, engines)
    check_documents(added, expected)
    return [*documents, *added]


def check_documents(documents: Mapping[str, bytes], expected: Any) -> None:
    """Require that documents say what is expected, and have the same bytes for the same split."""
    first: dict[str, tuple[str, bytes]] = {}
    for way, document in documents.items():
        tree = json.loads(document)
        assert as_bytes(tree) == document, f"the document {way} is not canonical"
        for split, inner in tree["splits"].items():
            if split not in first:
                require_equal(inner, expected["splits"][split], split)
                first[split] = way, as_bytes(inner)
            other, content = first[split]
            assert as_bytes(inner) == content, f"the split {split} {way} differs from the one {other}"
    assert first.keys() == expected["splits"].keys()


def as_bytes(tree: Any) -> bytes:
    """A part of a document as bytes."""
    return json.dumps(tree, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def main() -> int:
    """Check the cases, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, nargs=2, default=(0, NUM_CASES), metavar=("FROM", "TO"))
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=[*ENGINES, "ray"])
    arguments = parser.parse_args()
    problems, num_documents, started = [], 0, time.monotonic()
    with open_engines(arguments.engines) as engines:
        for number in range(*arguments.cases):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    num_documents += len(check_case(number, Path(folder), engines))
                except Exception as error:  # noqa: BLE001 (the other cases are checked, too)
                    problems.append(f"case {number}: {type(error).__name__}: {error}")
            sys.stderr.write(f"case {number}, {num_documents} documents, {len(problems)} problems\n")
    report = {
        "cases": arguments.cases[1] - arguments.cases[0],
        "engines": list(engines),
        "documents": num_documents,
        "seconds": round(time.monotonic() - started),
        "problems": problems,
    }
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return min(1, len(problems))


if __name__ == "__main__":
    sys.exit(main())
