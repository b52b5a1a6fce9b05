"""Runs the jobs of benchmarks/reading.py with Grain, Hugging Face datasets, tfrecord and MosaicML streaming.

Each in the fastest form found; block sizes were tried out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import chain
from typing import Any

import numpy as np

from benchmarks.readers.peer import BATCH, Example, Peer, in_batches, split_batch, stack
from benchmarks.readers.sets import import_streaming


class Grain(Peer):
    """Grain's array_record source, parsed by protobuf. Its datasets with prefetch threads were slower here."""

    modules = ("grain", "array_record")
    format = "array_record"
    threads = "array_record's pool"

    def open(self) -> None:
        """Open the source."""
        from registry.wire.example_pb2 import Example as Message

        self._grain: Any = import_module("grain")
        self._message = Message
        self._source = self._open()

    def _open(self) -> Any:
        return self._grain.sources.ArrayRecordDataSource(self.paths)

    def _parse(self, record: bytes) -> Example:
        fields = self._message.FromString(record).features.feature
        label = np.int64(fields["label"].int64_list.value[0])
        if self.sample.kind != "A":
            pixels = np.frombuffer(fields["image"].bytes_list.value[0], np.uint8)
            return {"image": pixels.reshape(self.sample.image_shape), "label": label}
        vec, score = fields["vec"].float_list.value, fields["score"].float_list.value[0]
        name = fields["id"].bytes_list.value[0]
        return {"label": label, "vec": np.array(vec, np.float32), "id": name, "score": np.float32(score)}

    def records(self) -> Iterator[Any]:
        if self.sample.kind == "C":
            return map(self._source.__getitem__, range(len(self._source)))
        parts = in_batches(range(len(self._source)), 4096)
        return chain.from_iterable(self._source.__getitems__(part) for part in parts)

    def examples(self) -> Iterator[Example]:
        return map(self._parse, self.records())

    def batches(self) -> Iterator[Example]:
        return map(stack, in_batches(self.examples(), BATCH))

    def one(self, index: int) -> Example:
        return self._parse(self._source[index])

    def many(self, indices: list[int]) -> Any:
        return [self._parse(record) for record in self._source.__getitems__(indices)]

    def seek(self) -> Example:
        return self._parse(self._open()[self.middle])


class HuggingFace(Peer):
    """Hugging Face datasets over mapped Arrow. Columns are views of it wherever its types allow; nothing is checked."""

    modules = ("datasets", "pyarrow")
    format = "arrow"

    def open(self) -> None:
        """Map the file."""
        dataset: Any = import_module("datasets").Dataset
        self._arrow: Any = import_module("pyarrow")
        self._plain = dataset.from_file(self.paths[0])
        self._dataset = self._plain.with_format("arrow")

    def _columns(self, table: Any) -> Example:
        return {name: self._to_numpy(table.column(name)) for name in table.column_names}

    def _to_numpy(self, column: Any) -> Any:
        if isinstance(column, self._arrow.ChunkedArray):
            column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if not self._arrow.types.is_fixed_size_list(column.type):
            return column.to_numpy(zero_copy_only=False)
        shape = (8,) if self.sample.kind == "A" else self.sample.image_shape
        return column.flatten().to_numpy().reshape(len(column), *shape)

    def examples(self) -> Iterator[Example]:
        size = 100 if self.sample.kind == "C" else 1000
        return chain.from_iterable(map(split_batch, map(self._columns, self._dataset.iter(size))))

    def batches(self) -> Iterator[Example]:
        return map(self._columns, self._plain.data.table.to_batches(max_chunksize=BATCH))

    def one(self, index: int) -> Example:
        return next(split_batch(self._columns(self._dataset[index])))

    def many(self, indices: list[int]) -> Any:
        return self._columns(self._dataset[indices])

    def seek(self) -> Example:
        half = self._plain.select(range(self.middle, len(self._plain)))
        return next(split_batch(self._columns(half.with_format("arrow")[0])))


class Lance(HuggingFace):
    """Lance: Arrow in a format of its own for random access. Nothing is checked."""

    modules = ("lance", "pyarrow")
    format = "lance"
    threads = "Lance's own pool"

    def open(self) -> None:
        """Open the dataset."""
        self._arrow = import_module("pyarrow")
        self._dataset = self._open()

    def _open(self) -> Any:
        return import_module("lance").dataset(str(self.sample.folder / self.format / "data.lance"))

    def examples(self) -> Iterator[Example]:
        return chain.from_iterable(map(split_batch, self._batches(100 if self.sample.kind == "C" else 1000)))

    def batches(self) -> Iterator[Example]:
        return self._batches(BATCH)

    def _batches(self, size: int) -> Iterator[Example]:
        names = self._dataset.schema.names
        for batch in self._dataset.to_batches(batch_size=size):
            yield {name: self._to_numpy(batch.column(name)) for name in names}

    def one(self, index: int) -> Example:
        return next(split_batch(self.many([index])))

    def many(self, indices: list[int]) -> Any:
        return self._columns(self._dataset.take(indices))

    def seek(self) -> Example:
        return next(split_batch(self._columns(self._open().take([self.middle]))))


class WebDataset(Peer):
    """webdataset: a pickled example in each member of a tar file. Nothing is checked."""

    modules = ("webdataset",)
    format = "webdataset"

    def open(self) -> None:
        """Name the files."""
        module: Any = import_module("webdataset")
        self._dataset = module.WebDataset(self.paths, shardshuffle=False, empty_check=False).decode()

    def examples(self) -> Iterator[Example]:
        return (sample["pyd"] for sample in self._dataset)

    def batches(self) -> Iterator[Example]:
        return map(stack, in_batches(self.examples(), BATCH))


class TfRecord(Peer):
    """The package tfrecord. A record is a view of a buffer that the next one overwrites."""

    modules = ("tfrecord",)
    reads_gzip = True

    def open(self) -> None:
        """Make its index."""
        self._reader: Any = import_module("tfrecord.reader")
        self._compression = "gzip" if self.sample.is_gzip else None
        floats = {"label": "int", "vec": "float", "id": "byte", "score": "float"}
        self._kinds = floats if self.sample.kind == "A" else {"label": "int", "image": "byte"}
        self._index = None
        if len(self.paths) == 1 and not self.sample.is_gzip:
            self._index = str(self.sample.folder / "tfrecord.index")
            import_module("tfrecord.tools.tfrecord2idx").create_index(self.paths[0], self._index)

    def _read(self, paths: Iterable[str], *options: Any) -> Iterator[Example]:
        loads = (self._reader.tfrecord_loader(path, *options, compression_type=self._compression) for path in paths)
        found = chain.from_iterable(loads)
        return found if self.sample.kind == "A" else map(self._shape, found)

    def _shape(self, example: Example) -> Example:
        image = np.frombuffer(example["image"], np.uint8).reshape(self.sample.image_shape)
        return {"image": image, "label": example["label"]}

    def records(self) -> Iterator[Any]:
        options = {"compression_type": self._compression}
        return chain.from_iterable(self._reader.tfrecord_iterator(path, **options) for path in self.paths)

    def examples(self) -> Iterator[Example]:
        return self._read(self.paths, None, self._kinds)

    def batches(self) -> Iterator[Example]:
        return map(stack, in_batches(self.examples(), BATCH))

    def seek(self) -> Example:
        if self.sample.is_gzip:
            raise NotImplementedError("its index has no place for gzip files")
        if self._index is None:  # an even number of shards: the middle is where a file begins
            return next(self._read(self.paths[len(self.paths) // 2 :], None, self._kinds))
        return next(self._read(self.paths, self._index, self._kinds, (1, 2)))


class Mds(Peer):
    """MosaicML streaming's own format, read from a local folder."""

    modules = ("streaming", "torch", "transformers")
    format = "mds"

    def open(self) -> None:
        """Open the folder."""
        self._streaming = import_streaming()
        self._dataset = self._open()

    def _open(self) -> Any:
        return self._streaming.LocalDataset(str(self.sample.folder / "mds"))

    def examples(self) -> Iterator[Example]:
        return map(self._dataset.__getitem__, range(len(self._dataset)))

    def batches(self) -> Iterator[Example]:
        return map(stack, in_batches(self.examples(), BATCH))

    def one(self, index: int) -> Example:
        return dict(self._dataset[index])

    def many(self, indices: list[int]) -> Any:
        return self._dataset[indices]

    def seek(self) -> Example:
        return dict(self._open()[self.middle])
