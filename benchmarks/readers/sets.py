"""Writes the sets that benchmarks/reading.py reads, once in every format that a reader needs.

A: 1,000,000 examples of about 100 bytes (a label, 8 floats, an id, a score). B: 200,000 of about 800 (28x28 pixels,
mostly black as in handwriting, and a label). C: 20,000 of about 110 KB (192x192x3 pixels). A.gz and B.gz are A and B in
gzip. Examples repeat a pool of distinct ones, further apart than gzip's window.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import numpy as np
from numpy.typing import NDArray

from registry.catalog import open_catalog
from registry.features import ClassLabel, FeaturesDict, Scalar, Tensor, Text, codec_of, features_to_json
from registry.model import DatasetVersion, Shard, ShardedFileTemplate, ShardLengths, Split, Version
from registry.prepared import PreparedDataset, write_prepared
from registry.storage import open_store
from registry.tfrecord import RecordWriter

FULL_SIZES: Final = {"A": 1_000_000, "B": 200_000, "C": 20_000, "A.gz": 1_000_000, "B.gz": 200_000}
VERSION: Final = Version(1, 0, 0)
_POOL_SIZES: Final = {"A": 20_000, "B": 20_000, "C": 200}


@dataclass(frozen=True)
class SampleSet:
    """One set at one size, and the folder where its files lie, a folder below it for each format."""

    name: str
    num_examples: int
    num_shards: int
    root: str

    @property
    def folder(self) -> Path:
        """Where the files of all formats lie."""
        return Path(self.root) / f"{self.name}-{self.num_examples}-{self.num_shards}"

    @property
    def dataset(self) -> str:
        """The dataset's name in the catalog."""
        return f"bench_{self.name[0].lower()}"

    @property
    def kind(self) -> str:
        """A, B or C."""
        return self.name[0]

    @property
    def is_gzip(self) -> bool:
        """Whether the shards are compressed."""
        return self.name.endswith(".gz")

    @property
    def features(self) -> FeaturesDict:
        """The schema."""
        if self.kind == "A":
            fields: dict[str, Any] = {
                "label": Scalar("int64"),
                "vec": Tensor(shape=(8,), dtype="float32"),
                "id": Text(),
            }
            return FeaturesDict({**fields, "score": Scalar("float32")})
        image = Tensor(shape=self.image_shape, dtype="uint8", encoding="bytes")
        return FeaturesDict({"image": image, "label": ClassLabel(num_classes=10)})

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Of the feature ``image`` of B and C."""
        return (28, 28) if self.kind == "B" else (192, 192, 3)

    @cached_property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The pool of distinct examples, one array a feature."""
        size, rng = _POOL_SIZES[self.kind], np.random.default_rng(5)
        if self.kind == "A":
            return {
                "label": rng.integers(0, 1000, size),
                "vec": rng.standard_normal((size, 8), dtype=np.float32),
                "id": np.array([b"id-%012d" % number for number in rng.permutation(10**6)[:size]], dtype=object),
                "score": rng.random(size, dtype=np.float32),
            }
        pixels = rng.integers(0, 256, (size, *self.image_shape), dtype=np.uint8)
        if self.kind == "B":
            pixels *= rng.random(pixels.shape, dtype=np.float32) < 0.2
        return {"image": pixels, "label": rng.integers(0, 10, size)}

    def example(self, index: int) -> dict[str, Any]:
        """Example ``index``."""
        return {name: column[index % len(column)] for name, column in self.columns.items()}

    @cached_property
    def bounds(self) -> list[tuple[int, int]]:
        """First example and end of each shard."""
        edges = [round(self.num_examples * index / self.num_shards) for index in range(self.num_shards + 1)]
        return list(pairwise(edges))

    def files(self, format_name: str) -> list[Path]:
        """The files that hold the examples in one format, in order."""
        patterns = {
            "tfrecord": "**/*.tfrecord-*",
            "array_record": "**/*.array_record-*",
            "arrow": "*.arrow",
            "mds": "*.mds",
            "lance": "**/*.lance",
            "webdataset": "*.tar",
        }
        return sorted(path for path in (self.folder / format_name).glob(patterns[format_name]) if path.is_file())


def prepare(sample: SampleSet, format_name: str) -> int:
    """Write a set in one format, unless it is there whole; the number of bytes of its files."""
    folder, marker = sample.folder / format_name, sample.folder / f"{format_name}.json"
    sizes = {path.name: path.stat().st_size for path in sample.files(format_name)}
    if not marker.exists() or json.loads(marker.read_text()) != sizes:
        shutil.rmtree(folder, ignore_errors=True)
        marker.unlink(missing_ok=True)
        folder.mkdir(parents=True)
        _WRITERS[format_name](sample, folder)
        sizes = {path.name: path.stat().st_size for path in sample.files(format_name)}
        marker.write_text(json.dumps(sizes))
    stored = sum(sizes.values())
    least = sum(column[0].nbytes for column in _numbers(sample)) * sample.num_examples
    assert sample.is_gzip or format_name == "lance" or stored >= least, stored  # Lance packs small numbers
    return stored


def flip_bit(sample: SampleSet, format_name: str) -> None:
    """Change one bit of the middle example's floats, where they lie as they are; else the middle bit of a file."""
    wanted = sample.example(sample.num_examples // 2)["vec"].tobytes()
    for path in sample.files(format_name):
        data = bytearray(path.read_bytes())
        place = data.find(wanted)
        if place >= 0 or path == sample.files(format_name)[-1]:
            data[place + 9 if place >= 0 else len(data) // 2] ^= 1
            path.write_bytes(data)
            return


def _numbers(sample: SampleSet) -> list[NDArray[Any]]:
    return [column for column in sample.columns.values() if column.dtype != object]


def _records(sample: SampleSet) -> list[bytes]:
    """The pool as records."""
    features = sample.features
    return [codec_of(features).encode(sample.example(index)) for index in range(len(sample.columns["label"]))]


def _describe(sample: SampleSet, folder: Path, records: list[bytes], file_format: str) -> PreparedDataset:
    """Writes what describes a version folder, for this software and for TFDS."""
    lengths = np.array([len(record) for record in records])[np.arange(sample.num_examples) % len(records)]
    split = Split(
        name="train",
        shard_lengths=ShardLengths([stop - start for start, stop in sample.bounds]),
        num_bytes=int(lengths.sum()),
        files=ShardedFileTemplate(dataset=sample.dataset, file_format=file_format),
    )
    prepared = PreparedDataset(
        name=sample.dataset,
        version=VERSION,
        splits=(split,),
        features=sample.features,
        file_format=file_format,
    )
    write_prepared(open_store(folder), prepared)
    return prepared


def _write_tfrecord(sample: SampleSet, folder: Path) -> None:
    """Shards, the description that TFDS reads, and a catalog that names them.

    The row is written by itself, not by ``Catalog.publish``, which decodes every record to prove the number.
    """
    place = folder / sample.dataset / str(VERSION)
    place.mkdir(parents=True)
    records = _records(sample)
    prepared = _describe(sample, place, records, "tfrecord")
    shards = []
    for index, (start, stop) in enumerate(sample.bounds):
        path = place / prepared.splits[0].filename(index)
        part = (records[number % len(records)] for number in range(start, stop))
        with path.open("wb") as file:
            _write_shard(sample, file, part)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        num_bytes = path.stat().st_size
        shards.append(
            Shard(index=index, first_example=start, num_examples=stop - start, num_bytes=num_bytes, sha256=digest)
        )
    version = DatasetVersion(
        name=sample.dataset,
        version=VERSION,
        splits=prepared.splits,
        features_json=features_to_json(sample.features),
        location=f"{sample.dataset}/{VERSION}",
        content_digest=hashlib.sha256(b"".join(shard.sha256.encode() for shard in shards)).hexdigest(),
    )
    with open_catalog(folder / "catalog.db") as catalog:
        catalog.publish(version, {"train": tuple(shards)}, promote=True, actor="benchmark")


def _write_shard(sample: SampleSet, file: BinaryIO, records: Iterator[bytes]) -> None:
    with gzip.GzipFile("", "wb", 6, file, mtime=0) if sample.is_gzip else nullcontext(file) as target:
        writer = RecordWriter(cast("BinaryIO", target))
        for record in records:
            writer.write(record)


def _write_array_record(sample: SampleSet, folder: Path) -> None:
    """The same records as TFDS writes them to this format, each readable by itself, for Grain and TFDS."""
    module: Any = import_module("array_record.python.array_record_module")
    place = folder / sample.dataset / str(VERSION)
    place.mkdir(parents=True)
    records = _records(sample)
    prepared = _describe(sample, place, records, "array_record")
    for index, (start, stop) in enumerate(sample.bounds):
        path = place / prepared.splits[0].filename(index)
        with closing(module.ArrayRecordWriter(str(path), "group_size:1,uncompressed")) as writer:
            for number in range(start, stop):
                writer.write(records[number % len(records)])


def _write_arrow(sample: SampleSet, folder: Path) -> None:
    """One stream in batches of 1,000 (of 100 for large examples), as Hugging Face's writer cuts them."""
    arrow: Any = import_module("pyarrow")
    schema, batches = _record_batches(sample)
    with arrow.OSFile(str(folder / "data.arrow"), "wb") as file, arrow.ipc.new_stream(file, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)


def _write_lance(sample: SampleSet, folder: Path) -> None:
    lance: Any = import_module("lance")
    schema, batches = _record_batches(sample)
    lance.write_dataset(batches, str(folder / "data.lance"), schema=schema)


def _write_webdataset(sample: SampleSet, folder: Path) -> None:
    module: Any = import_module("webdataset")
    for index, (start, stop) in enumerate(sample.bounds):
        with module.TarWriter(str(folder / f"train-{index:05}.tar")) as writer:
            for number in range(start, stop):
                writer.write({"__key__": f"{number:09}", "pyd": sample.example(number)})


def _record_batches(sample: SampleSet) -> tuple[Any, Iterator[Any]]:
    """The schema, and record batches of 1,000 examples, or of 100 large ones."""
    arrow: Any = import_module("pyarrow")
    fields = []
    for name, column in sample.columns.items():
        number = arrow.binary() if column.dtype == object else arrow.from_numpy_dtype(column.dtype)
        fields.append((name, number if column.ndim == 1 else arrow.list_(number, column[0].size)))
    schema = arrow.schema(fields)

    def batches() -> Iterator[Any]:
        step = 100 if sample.kind == "C" else 1000
        for start in range(0, sample.num_examples, step):
            rows = np.arange(start, min(start + step, sample.num_examples)) % len(sample.columns["label"])
            arrays = []
            for name, column in sample.columns.items():
                values = arrow.array(
                    column[rows].reshape(-1), type=schema.field(name).type if column.ndim == 1 else None
                )
                arrays.append(
                    values if column.ndim == 1 else arrow.FixedSizeListArray.from_arrays(values, column[0].size)
                )
            yield arrow.record_batch(arrays, schema=schema)

    return schema, batches()


def _write_mds(sample: SampleSet, folder: Path) -> None:
    streaming = import_streaming()
    columns = {}
    for name, column in sample.columns.items():
        shape = ",".join(map(str, column.shape[1:]))
        columns[name] = (
            "bytes" if column.dtype == object else f"ndarray:{column.dtype}:{shape}" if shape else str(column.dtype)
        )
    with streaming.MDSWriter(out=str(folder), columns=columns) as writer:
        for number in range(sample.num_examples):
            writer.write(sample.example(number))


def import_streaming() -> Any:
    """MosaicML streaming; where there is no torchvision, without it: only its ready-made vision datasets need that."""
    import_module("torch")
    try:
        import_module("torchvision")
    except (ImportError, RuntimeError):
        import_module("transformers.feature_extraction_utils")  # asks for torchvision itself, so it comes first
        for name, needed in {
            "": "",
            ".datasets": "VisionDataset",
            ".transforms": "",
            ".transforms.functional": "to_tensor",
        }.items():
            module = sys.modules[f"torchvision{name}"] = types.ModuleType(f"torchvision{name}")
            setattr(module, needed or "__path__", type(needed, (), {}) if needed else [])
    return import_module("streaming")


_WRITERS: Final[dict[str, Callable[[SampleSet, Path], None]]] = {
    "tfrecord": _write_tfrecord,
    "array_record": _write_array_record,
    "arrow": _write_arrow,
    "mds": _write_mds,
    "lance": _write_lance,
    "webdataset": _write_webdataset,
}
