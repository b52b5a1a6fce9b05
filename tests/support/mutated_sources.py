"""Files of every kind that ``registry add`` accepts, with a seeded change, and the outcome of adding them.

    PYTHONPATH=tests python tests/support/mutated_sources.py FIRST COUNT FOLDER

adds the sources of COUNT seeds from FIRST on, and prints the number of each error as JSON; ``mutated_files.main`` runs
it. Each source is either planned, and one in ten published, or refused without a publication, by an error that names
one of its files and has a hint. A source that writes to stderr, or takes longer than ``MOST_SECONDS``, is reported as
well.
"""

from __future__ import annotations

import bz2
import faulthandler
import gzip
import io
import json
import logging
import lzma
import os
import random
import re
import shutil
import signal
import sys
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import feather

import registry
from registry.errors import NotFoundError, RegistryError, RegistryWarning
from registry.tfrecord import RecordWriter
from registry.wire import encode_example
from support.media_samples import IMAGES, SOUNDS, VIDEOS, picture
from support.mutated_files import change_array_record, change_parquet, main, parquet_files

MOST_SECONDS: Final = 60
MOST_ADDRESSES: Final = 16 * 2**30
"""Of the address space, which is larger than the memory; ``test_mutated_files`` limits the memory."""

Tree = Mapping[str, bytes]
ROWS: Final = [
    {"id": number, "x": number / 7, "text": f'"text" {number},\nü', "flag": number % 2 == 0, "none": None}
    for number in range(20)
]
NESTED: Final = [
    {"id": number, "list": list(range(number % 4)), "in": {"a": number, "b": [{"c": "z"}] * (number % 3)}}
    for number in range(20)
]
SCHEMA: Final = b"columns:\n  name: Text\n  size: float32\n  image: skip\n"
TOKENS: Final = (
    b'"', b"'", b",", b";", b"\t", b"\n", b"\r", b"\r\n", b"\0", b"{", b"}", b"[", b"]", b":", b"null", b"NaN", b"-",
    b"1e999", b"9" * 30, b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b'"\\ud800"', b"[" * 200,
    b"\xe2\x80\xa8", b"../", b"/", b"\\", b"*", b"true", b"2022-02-30", b"=", b"---\n", b"&a", b"*a",
    b"!!python/object", b"#",
)  # fmt: skip


def saved(write: Callable[[Any], Any]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def zipped(members: Tree) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def tarred(members: Tree) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def ipc(table: pa.Table, *, is_stream: bool) -> bytes:
    sink = pa.BufferOutputStream()
    make = pa.ipc.new_stream if is_stream else pa.ipc.new_file
    with make(sink, table.schema) as writer:
        writer.write(table)
    return bytes(sink.getvalue())


def separated(delimiter: str) -> bytes:
    import csv

    file = io.StringIO()
    writer = csv.DictWriter(file, list(ROWS[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    return file.getvalue().encode()


def record_file() -> bytes:
    file = io.BytesIO()
    frames = RecordWriter(file)
    for number in range(20):
        frames.write(encode_example({"name": [b"%d" % number], "size": np.array([number / 2], np.float32)}))
    return file.getvalue()


def croissant(content: bytes) -> bytes:
    source = {"fileObject": {"@id": "rows.csv"}}
    fields = [
        {"@type": "cr:Field", "@id": f"r/{name}", "name": name, "dataType": kind,
         "source": {**source, "extract": {"column": name}}}
        for name, kind in (("id", "sc:Integer"), ("x", "sc:Float"), ("text", "sc:Text"), ("flag", "sc:Boolean"))
    ]  # fmt: skip
    import hashlib

    from registry.interop.croissant import _CONTEXT

    document = {
        "@context": _CONTEXT, "@type": "sc:Dataset", "name": "d", "conformsTo": "http://mlcommons.org/croissant/1.1",
        "description": "About it.", "license": "MIT", "url": "https://example.org", "citeAs": "@misc{x}",
        "distribution": [
            {"@type": "cr:FileObject", "@id": "rows.csv", "name": "rows.csv", "contentUrl": "rows.csv",
             "encodingFormat": "text/csv", "sha256": hashlib.sha256(content).hexdigest()}
        ],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "r", "name": "r", "field": fields}],
    }  # fmt: skip
    return json.dumps(document).encode()


def saved_dataset() -> Tree:
    """What ``save_to_disk`` of Hugging Face writes."""
    import datasets

    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        rows = datasets.Dataset.from_list([{"id": one["id"], "text": one["text"]} for one in ROWS])
        datasets.DatasetDict({"train": rows, "test": rows}).save_to_disk(folder)
        return {str(one.relative_to(folder)): one.read_bytes() for one in Path(folder).rglob("*") if one.is_file()}


@cache
def sources() -> dict[str, Tree]:
    """Sound sources, by name: the files of each."""
    csv, lines = separated(","), "".join(json.dumps(one) + "\n" for one in ROWS).encode()
    nested = "".join(json.dumps(one) + "\n" for one in NESTED).encode()
    table, deep = pa.Table.from_pylist(ROWS), pa.Table.from_pylist(NESTED)
    images = {f"{label}/{number}.{suffix}": IMAGES[suffix] for label in "ab" for number in range(2)
              for suffix in ("png", "jpg")}  # fmt: skip
    sounds = {f"{number}.{suffix}": content for number, (suffix, content) in enumerate(sorted(SOUNDS.items()))}
    samples = {
        f"{number}.{suffix}": content
        for number in range(4)
        for suffix, content in (("png", picture("PNG")), ("cls", b"%d" % number), ("json", lines.splitlines()[number]))
    }  # fmt: skip
    texts = {f"{split}/{label}/{number}.txt": f"text {number}\nü\n".encode()
             for split in ("train", "test") for label in "ab" for number in range(2)}  # fmt: skip
    described = ("file_name,n\n" + "".join(f"{one},1\n" for one in images)).encode()
    card = (
        b"---\nlicense: mit\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: data/a.csv\n"
        b"  - split: test\n    path: [data/b.csv]\ndataset_info:\n  features:\n  - {name: id, dtype: int64}\n"
        b"  - {name: text, dtype: string}\n---\n## Summary\nRows.\n"
    )
    return {
        "csv": {"rows.csv": csv},
        "csv files": {"train.csv": csv, "test.csv": csv},
        "folders of columns": {f"year={year}/rows.csv": csv for year in (2021, 2022)},
        "tsv": {"rows.tsv": separated("\t")},
        "csv.gz": {"rows.csv.gz": gzip.compress(csv)},
        "csv.bz2": {"rows.csv.bz2": bz2.compress(csv)},
        "csv.xz": {"rows.csv.xz": lzma.compress(csv)},
        "csv.zst": {"rows.csv.zst": bytes(pa.compress(csv, "zstd", asbytes=True))},
        "jsonl": {"rows.jsonl": lines},
        "nested jsonl": {"rows.jsonl": nested},
        "jsonl.gz": {"rows.jsonl.gz": gzip.compress(nested)},
        "json": {"rows.json": json.dumps(ROWS).encode()},
        "nested json": {"rows.json": json.dumps(NESTED, indent=1).encode()},
        "text": {"rows.txt": "".join(f"line {one['id']}\n" for one in ROWS).encode()},
        "texts": texts,
        "arrow": {"rows.arrow": ipc(deep, is_stream=False)},
        "arrow stream": {"rows.arrow": ipc(table, is_stream=True)},
        "feather": {"rows.feather": saved(lambda file: feather.write_feather(deep, file, compression="zstd"))},
        "npy": {"rows.npy": saved(lambda file: np.save(file, np.arange(60.0).reshape(20, 3)))},
        "text npy": {"rows.npy": saved(lambda file: np.save(file, np.array(["ab", "ü", "c"])))},
        "npz": {"rows.npz": saved(lambda file: np.savez(file, x=np.arange(20), y=np.array(["a", "b"] * 10)))},
        "small npz": {"rows.npz": saved(lambda file: np.savez_compressed(file, x=np.arange(20), y=np.ones((20, 2))))},
        "images": images,
        "more images": {f"{number}.{one}": IMAGES[one] for number, one in enumerate(sorted(IMAGES))},
        "described images": {**images, "metadata.csv": described},
        "sounds": sounds,
        "videos": {f"{number}.{suffix}": content for number, (suffix, content) in enumerate(sorted(VIDEOS.items()))},
        "zip": {"rows.zip": zipped({"rows.csv": csv})},
        "zip of images": {"images.zip": zipped(images)},
        "tar": {"rows.tar": tarred({"rows.jsonl": nested})},
        "tar.gz": {"rows.tar.gz": gzip.compress(tarred(texts))},
        "webdataset": {"samples.tar": tarred(samples)},
        "croissant": {"croissant.json": croissant(csv), "rows.csv": csv},
        "card": {"README.md": card, "data/a.csv": b"id,text\n1,a\n2,b\n", "data/b.csv": b"id,text\n3,c\n"},
        "saved dataset": saved_dataset(),
        "tfrecord": {"rows-train.tfrecord-00000-of-00001": record_file()},
    }  # fmt: skip


SPECIAL: Final = ("parquet", "parquet in place", "array_record")


def change_source(rng: random.Random, name: str, folder: Path) -> dict[str, bytes]:
    """The files of a source, one of them with a change."""
    if name in ("parquet", "parquet in place"):
        return {"train.parquet": change_parquet(rng, rng.choice(sorted(parquet_files())))}
    if name == "array_record":
        return {"rows-train.array_record-00000-of-00001": change_array_record(rng, "group_size:1", folder)}
    files = dict(sources()[name])
    file = rng.choice(sorted(files))
    if rng.random() < 0.02:
        del files[file]
    else:
        files[file] = _change_file(rng, file, files[file])
    return files


def _change_file(rng: random.Random, name: str, content: bytes) -> bytes:
    """``content`` with a change; every second file in a container is changed inside of it."""
    if rng.random() < 0.5:
        for suffix, unpack, pack in (
            (".gz", gzip.decompress, gzip.compress), (".bz2", bz2.decompress, bz2.compress),
            (".xz", lzma.decompress, lzma.compress),
        ):  # fmt: skip
            if name.endswith(suffix):
                return pack(_change_file(rng, name.removesuffix(suffix), unpack(content)))
        if name.endswith((".zip", ".npz")):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                return zipped(_change_members(rng, {one: archive.read(one) for one in archive.namelist()}))
        if name.endswith(".tar"):
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                members = {one.name: tar.extractfile(one).read() for one in tar if one.isfile()}  # type: ignore[union-attr]
            return tarred(_change_members(rng, members))
    return change_bytes(rng, content)


def _change_members(rng: random.Random, members: dict[str, bytes]) -> Tree:
    chosen = rng.choice(sorted(members))
    if rng.random() < 0.2:
        name = change_bytes(rng, chosen.encode()).decode(errors="replace").replace("\0", "") or "x"
        members[name] = members.pop(chosen)
    else:
        members[chosen] = change_bytes(rng, members[chosen])
    return members


def change_bytes(rng: random.Random, content: bytes) -> bytes:
    """``content`` cut, or with bytes set, left out, inserted, repeated or moved; half of the time near its start."""
    if not content or rng.random() < 0.2:
        return content[: rng.randrange(len(content) + 1)]
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        place = rng.randrange(max(1, min(len(changed), rng.choice([200, len(changed)]))))
        length = rng.choice([1, 1, 2, 4, 8, rng.randrange(1, 300)])
        chance = rng.random()
        if chance < 0.3 and changed:
            changed[place] = rng.choice(
                [changed[place] ^ 1 << rng.randrange(8), 0, 0x7F, 0x80, 0xFF, rng.randrange(256)]
            )
        elif chance < 0.4:
            changed[place : place + 4] = rng.choice([b"\xff" * 4, bytes(4), b"\xff\xff\xff\x7f", b"\0\0\0\x80"])
        elif chance < 0.65:
            changed[place:place] = rng.choice(TOKENS)
        elif chance < 0.75:
            changed[place : place + length] = rng.choice(TOKENS)
        elif chance < 0.85:
            del changed[place : place + length]
        else:
            copied = rng.randrange(len(changed) + 1)
            changed[copied:copied] = changed[place : place + length]
    return bytes(changed)


def add_source(seed: int, folder: Path) -> str:
    """The outcome of the source of ``seed``: "planned", "published", or the code of the error."""
    rng = random.Random(seed)
    name = rng.choice([*sources(), *SPECIAL, *SPECIAL])
    files = change_source(rng, name, folder)
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    for file, content in files.items():
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        (source / file).write_bytes(content)
    options: dict[str, Any] = {}
    if name in ("parquet in place", "tfrecord", "array_record"):
        (folder / "schema.yaml").write_bytes(SCHEMA)
        options = {"in_place": True}
        if name != "parquet in place" and rng.random() < 0.8:
            options["schema"] = folder / "schema.yaml"
    is_file = len(files) == 1 and not options and rng.random() < 0.5
    place = source / next(iter(files)) if is_file else source
    dataset = f"d{seed}"
    catalog = _catalog(folder)
    with watched():
        try:
            addition = catalog.plan_add(place, dataset, **options)
            if seed % 10:
                return "planned"
            addition.publish()
        except RegistryError as error:
            _check_refusal(error, name, {*files, *sources().get(name, {})})
            try:
                catalog.look_up(dataset)
            except NotFoundError:
                assert not (left := _files_of(folder / "data", dataset)), f"it left {left}"
                return error.code
            raise AssertionError(f"{name}: published beside the error {error}") from error
        return "published"


def _files_of(data_dir: Path, dataset: str) -> list[str]:
    """Everything in a data directory whose path has the name of a dataset; a digest may have it as a part."""
    paths = sorted(path.relative_to(data_dir).as_posix() for path in data_dir.rglob("*"))
    return [path for path in paths if dataset in re.split(r"[\W_]+", path)]


def _check_refusal(error: RegistryError, name: str, files: set[str]) -> None:
    assert error.hint, f"{name}: no hint: {error!r}"
    assert "fault of the registry" not in error.message.lower(), f"{name}: {error!r}"
    # A file, a member of an archive, a column or the folder of the source.
    parts = {part for file in files for part in (file, file.rpartition("/")[2])} | {"source"}
    members = {".csv", ".jsonl", ".npy", ".json", ".txt", ".png", ".jpg", "column "}
    if not any(part in error.message for part in parts | members):
        raise AssertionError(f"{name}: no file is named: {error!r}")


@contextmanager
def watched() -> Iterator[None]:
    """Fail if the block writes to stderr; stop it after ``MOST_SECONDS``, and the process soon after."""
    faulthandler.dump_traceback_later(2 * MOST_SECONDS, exit=True)
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(MOST_SECONDS)
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            signal.alarm(0)
            faulthandler.cancel_dump_traceback_later()
        file.seek(0)
        written = file.read(1000)
    assert not written, f"written to stderr: {written!r}"


def _stop(*_: object) -> None:
    raise AssertionError(f"it takes more than {MOST_SECONDS} seconds")


@cache
def _catalog(folder: Path) -> registry.Catalog:
    return registry.connect(folder / "catalog.db", data_dir=folder / "data")


if __name__ == "__main__":
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
    logging.getLogger("registry").addHandler(logging.NullHandler())  # our own notes are not faults
    warnings.simplefilter("always")
    warnings.simplefilter("ignore", RegistryWarning)
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), add_source)
