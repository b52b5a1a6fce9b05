"""Hostile Parquet and ArrayRecord files: valid small files with a seeded change, and the result of reading them.

    PYTHONPATH=tests python tests/support/mutated_files.py FIRST COUNT FOLDER

reads the files of COUNT seeds from FIRST on, and prints the number of each error as JSON. The seed is written to
FOLDER/seed before its file is read, so that the caller knows which file ended the process.
"""

from __future__ import annotations

import base64
import copy
import io
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from array_record.python import array_record_module
from pyarrow import parquet

from registry.errors import RegistryError
from registry.interop.parquet import describe_parquet
from registry.shards import decode_block, open_shard, read_records, walk_file
from registry.storage import open_store
from support.riegeli_chunks import Chunk, change_chunk, find_chunks
from support.thrift_trees import Node, change, field, read_struct, write_struct

COUNT: Final = 30
VARIANTS: Final[dict[str, dict[str, Any]]] = {
    "plain": {"compression": "none"},
    "v2": {"compression": "none", "data_page_version": "2.0"},
    "snappy": {"compression": "snappy", "row_group_size": 11},
    "zstd": {"compression": "zstd", "data_page_version": "2.0", "row_group_size": 11},
    "gzip": {"compression": "gzip", "write_page_checksum": True},
    "lz4": {"compression": "lz4"},
    "brotli": {"compression": "brotli", "use_dictionary": False},
    "bare": {"compression": "none", "use_dictionary": False, "write_statistics": False, "store_schema": False},
    "pages": {"compression": "none", "write_page_index": True, "data_page_size": 64},
}
WRITER_OPTIONS: Final = (
    "group_size:1",
    "group_size:1,uncompressed",
    "group_size:4,snappy",
    "group_size:8,brotli:6",
    "group_size:5,zstd:3,transpose",
    "group_size:3,uncompressed,transpose",
)


def tables() -> dict[str, pa.Table]:
    """Rows of every kind of column that an import knows, some with the metadata of Hugging Face."""
    numbers = range(COUNT)
    pair = pa.struct({"p": pa.int8(), "q": pa.string()})
    hugging_face = {
        "image": {"_type": "Image"},
        "label": {"names": ["a", "b", "c"], "_type": "ClassLabel"},
        "tokens": {"feature": {"dtype": "string", "_type": "Value"}, "_type": "Sequence"},
        "array": {"shape": [2, 2], "dtype": "float32", "_type": "Array2D"},
    }
    return {
        "flat": pa.table(
            {
                "id": pa.array(numbers, pa.int64()),
                "some": pa.array([None if number % 3 else number for number in numbers], pa.int32()),
                "x": pa.array([number / 7 for number in numbers], pa.float32()),
                "y": pa.array([number / 7 for number in numbers], pa.float64()),
                "flag": [number % 2 == 0 for number in numbers],
                "text": [f"text {number % 5}" for number in numbers],
                "raw": [bytes([number]) * (number % 4) for number in numbers],
                "when": pa.array(numbers, pa.timestamp("us", tz="UTC")),
            }
        ),
        "nested": pa.table(
            {
                "list": pa.array([list(range(number % 4)) for number in numbers], pa.list_(pa.int32())),
                "lists": [[["a" * place for place in range(number % 3)]] for number in numbers],
                "fixed": pa.array([[[number, 1], [2, 3]] for number in numbers], pa.list_(pa.list_(pa.int16(), 2), 2)),
                "in": [{"a": number, "b": {"c": str(number)}} for number in numbers],
                "pairs": pa.array([[{"p": 1, "q": "z"}] * (number % 3) for number in numbers], pa.list_(pair)),
            }
        ),
        "hub": pa.table(
            {
                "image": [{"bytes": b"\x89PNG" + bytes([number]), "path": None} for number in numbers],
                "label": [number % 3 for number in numbers],
                "tokens": [["a", "b"][: number % 3] for number in numbers],
                "array": pa.array([[[1.0, 2.0], [3.0, 4.0]]] * COUNT, pa.list_(pa.list_(pa.float32()))),
            }
        ).replace_schema_metadata(
            {b"huggingface": json.dumps({"info": {"features": hugging_face, "license": "mit"}}).encode()}
        ),
        "kinds": pa.table(
            {
                "kind": pa.array([f"kind {number % 3}" for number in numbers]).dictionary_encode(),
                "large": pa.array([f"l{number}" for number in numbers], pa.large_string()),
                "width": pa.array([bytes([number]) * 5 for number in numbers], pa.binary(5)),
                "half": pa.array(np.arange(COUNT, dtype=np.float16)),
                "u64": pa.array(numbers, pa.uint64()),
                "took": pa.array(numbers, pa.duration("ms")),
                "view": pa.array([f"v{number}" for number in numbers], pa.string_view()),
                "uuid": pa.ExtensionArray.from_storage(
                    pa.uuid(), pa.array([bytes([number]) * 16 for number in numbers], pa.binary(16))
                ),
            }
        ),
        "data": pa.table({"data": [b"record %d" % number * (number % 3) for number in numbers]}),
    }


@cache
def parquet_files() -> dict[str, bytes]:
    """Sound files, by name: each table in each way to write it."""
    made = {}
    for name, table in tables().items():
        for variant, options in VARIANTS.items():
            sink = io.BytesIO()
            parquet.write_table(table, sink, **options)
            made[f"{name} {variant}"] = sink.getvalue()
    return made


@cache
def array_record_files(folder: Path) -> dict[str, bytes]:
    """Sound files of ArrayRecord, by the options of their writer."""
    made = {}
    for options in WRITER_OPTIONS:
        writer = array_record_module.ArrayRecordWriter(str(folder / "made"), options)
        for number in range(COUNT):
            writer.write(b"record %d " % number * (number % 5))
        writer.close()
        made[options] = (folder / "made").read_bytes()
    return made


def change_parquet(rng: random.Random, name: str) -> bytes:
    """A Parquet file with a change: bytes anywhere, its Arrow schema, a field of its footer or of a page header."""
    content = parquet_files()[name]
    chance = rng.random()
    if chance < 0.3:
        return _change_bytes(rng, content)
    if chance < 0.4 and (changed := _change_arrow_schema(rng, content)) is not None:
        return changed
    body, footer, pages = _parts(name)
    footer = copy.deepcopy(footer)
    if chance < 0.75:
        change(rng, footer)
        return _join(body, footer)
    start, data, stop = rng.choice(pages)
    if chance < 0.9:
        header, _ = read_struct(body, start)
        change(rng, header)
        written = write_struct(header)
        _move_pages(footer, start, len(written) - (data - start))
        return _join(body[:start] + written + body[data:], footer)
    changed_body = bytearray(body)
    for _ in range(rng.choice([1, 1, 2, 3, 8])):
        if stop > data:
            _change_byte(
                rng, changed_body, rng.choice([rng.randrange(data, stop), min(stop - 1, data + rng.randrange(12))])
            )
    return _join(bytes(changed_body[: len(body)]), footer)


def change_array_record(rng: random.Random, name: str, folder: Path) -> bytes:
    """An ArrayRecord file with a change, most often under right hashes: others are met by them at once."""
    content = array_record_files(folder)[name]
    if rng.random() < 0.85:
        return change_chunk(rng, content, rng.choice(_chunks(content)))
    changed = bytearray(content)
    for _ in range(rng.choice([1, 2, 8])):
        chunk = rng.choice(_chunks(content))
        _change_byte(rng, changed, rng.randrange(chunk.place, chunk.stop))
    return bytes(changed[: rng.choice([len(changed), len(changed), rng.randrange(len(changed))])])


def read_everything(seed: int, folder: Path) -> str:
    """The result of reading the file of ``seed`` in every way: "values", or the code of the first error."""
    rng = random.Random(seed)
    store = open_store(folder)
    try:
        if rng.random() < 0.15:
            name = rng.choice(WRITER_OPTIONS)
            (folder / "shard").write_bytes(change_array_record(rng, name, folder))
            return _read_shard(store, "shard", "array_record")
        name = rng.choice(sorted(parquet_files()))
        (folder / "train.parquet").write_bytes(change_parquet(rng, name))
        if name.startswith("data"):
            return _read_shard(store, "train.parquet", "parquet")
        return _read_columns(store, name, rng)
    except RegistryError as error:
        return error.code


def _read_shard(store: Any, name: str, file_format: str) -> str:
    found = walk_file(store, name, file_format=file_format).num_records
    shard = open_shard(store, name, file_format=file_format, num_records=found)
    places = np.arange(min(found, 1000))
    records = shard.read(0, places.size).records()
    if places.size:
        assert shard.gather(places[::-1]).records() == records[::-1]
    return "values"


def _read_columns(store: Any, name: str, rng: random.Random) -> str:
    sound = _features(name)
    reported = "values"
    try:
        features = describe_parquet(store, name="mutated").features
        found = walk_file(store, "train.parquet", file_format="parquet_columns").num_records
        num_records = len(list(read_records(store, "train.parquet", file_format="parquet_columns", features=features)))
        assert num_records == found
    except RegistryError as error:  # a version that was published before has features of its own
        reported = error.code
    shard = open_shard(store, "train.parquet", file_format="parquet_columns", features=sound, num_records=COUNT)
    block = decode_block(sound, shard.read(0, COUNT))
    list(block.sound.examples())
    decode_block(sound, shard.gather(np.array(rng.sample(range(COUNT), 5))))
    return reported if block.fault is None else block.fault.code


@cache
def _features(name: str) -> Any:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.parquet").write_bytes(parquet_files()[name])
        return describe_parquet(open_store(folder), name="sound").features


@cache
def _parts(name: str) -> tuple[bytes, Node, list[tuple[int, int, int]]]:
    """The pages of a file, its footer, and where each page's header, its data and the next page begin."""
    content = parquet_files()[name]
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    footer, _ = read_struct(content, start)
    pages = []
    for column in _columns(footer):
        place = min(offset[1] for offset in _offsets(column))
        stop = place + _number(column, 7)
        while place < stop:
            header, data = read_struct(content, place)
            pages.append((place, data, data + _number(header, 3)))
            place = pages[-1][2]
    return content[:start], footer, pages


def _columns(footer: Node) -> list[Node]:
    groups = field(footer, 4)
    return [metadata for group in groups[1] for chunk in field(group, 1)[1] if (metadata := field(chunk, 3))]  # type: ignore[index]


def _offsets(column: Node) -> list[Node]:
    return [offset for number in (9, 11) if (offset := field(column, number)) is not None]


def _number(node: Node, number: int) -> int:
    found = field(node, number)
    return int(found[1])


def _move_pages(footer: Node, place: int, count: int) -> None:
    """Change the footer as if everything after ``place`` had moved by ``count`` bytes."""
    for column in _columns(footer):
        start, size = min(offset[1] for offset in _offsets(column)), field(column, 7)
        if start <= place < start + size[1]:
            size[1] += count
        for offset in _offsets(column):
            if offset[1] > place:
                offset[1] += count


def _join(body: bytes, footer: Node) -> bytes:
    written = write_struct(footer)
    return body + written + len(written).to_bytes(4, "little") + b"PAR1"


def _change_bytes(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    first, last = (start, len(content) - 8) if rng.random() < 0.5 else (0, len(content))
    if rng.random() < 0.8:
        for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
            _change_byte(rng, changed, rng.randrange(first, last))
    else:
        place, count = rng.randrange(first, last), rng.randrange(1, 20)
        changed[place : place + rng.choice([0, count])] = rng.choice([b"", rng.randbytes(count), content[:count]])
    return bytes(changed)


def _change_arrow_schema(rng: random.Random, content: bytes) -> bytes | None:
    """Bytes of the flatbuffer that Arrow keeps in the footer."""
    start = content.rfind(b"/////")
    if start < 0 or content.rfind(b"ARROW:schema") < 0:
        return None
    stop = start
    while content[stop : stop + 1].isalnum() or content[stop : stop + 1] in (b"+", b"/", b"="):
        stop += 1
    stop -= (stop - start) % 4
    raw = bytearray(base64.b64decode(content[start:stop]))
    for _ in range(rng.choice([1, 1, 2, 4, 8])):
        _change_byte(rng, raw, rng.randrange(8, len(raw)))
    return content[:start] + base64.b64encode(raw[: len(raw)])[: stop - start] + content[stop:]


def _change_byte(rng: random.Random, content: bytearray, place: int) -> None:
    chance = rng.random()
    if chance < 0.5:
        content[place] ^= 1 << rng.randrange(8)
    elif chance < 0.8:
        content[place] = rng.choice([0, 1, 0x0F, 0x10, 0x40, 0x7F, 0x80, 0xFE, 0xFF, rng.randrange(256)])
    else:
        wide = rng.choice([b"\xff" * 8, bytes(8), b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x0f"])
        content[place : place + len(wide)] = wide[: len(content) - place]


@cache
def _chunks(content: bytes) -> list[Chunk]:
    return find_chunks(content)


def main(first: int, count: int, folder: Path, read: Callable[[int, Path], str] = read_everything) -> None:
    """Read the files of ``count`` seeds, and print the results."""
    reported: Counter[str] = Counter()
    untyped: list[str] = []
    seed_file = os.open(folder / "seed", os.O_WRONLY | os.O_CREAT)
    for seed in range(first, first + count):
        os.pwrite(seed_file, b"%12d" % seed, 0)
        try:
            reported[read(seed, folder)] += 1
        except Exception as error:  # noqa: BLE001 - what is not typed is what the test is after
            untyped.append(f"{seed}: {type(error).__name__}: {error}"[:500])
    memory = 0
    if sys.platform == "linux":  # not ru_maxrss, which starts at the memory of the parent process
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        memory = int(status["VmHWM"].split()[0]) * 1024
    print(json.dumps({"told": reported, "untyped": untyped, "memory": memory}))  # noqa: T201 - its starter reads it


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
