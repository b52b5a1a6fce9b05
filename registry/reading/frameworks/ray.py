"""Converts a reader for Ray Data: a ``Datasource`` whose tasks read ranges of positions, in the order of the reader.

    reader -> pickle, stored in Ray once -> read tasks (start, stop) on any node -> Arrow tables -> ray.data.Dataset

The environment that reads need, with the credentials of stores, is stored together with the reader. It is not in Ray's
``runtime_env``, which Ray logs, and a task holds only a reference to it.

Follows Ray 2.60 (docs.ray.io, "Datasource" and "ReadTask"). Imported by ``Reader.to_ray`` only, because it imports Ray.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import ray
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from registry.engines.ray.worker import Setting, dump, environment_on_node, pickler_class
from registry.errors import UsageError
from registry.features import Audio, FeaturesDict, Image, RawFeature
from registry.features.containers import Column, columns_of
from registry.features.feature import TEXT
from registry.reading.frameworks.arrays import read_features
from registry.reading.frameworks.tables import columns_for, reader_for
from registry.reading.state import Intervals, cut, divide, size_of

if TYPE_CHECKING:
    from registry.reading.examples import ExampleReader
    from registry.reading.frameworks.arrays import TextForm

_DECODED_SIZE: Final = 8
"""The estimated size of decoded pictures and sounds, as a multiple of their size in the files: JPEG takes a tenth."""


class ReaderDatasource(Datasource):
    """The examples of one epoch of a reader as rows. ``Reader.to_ray`` describes them.

    Raises:
        UsageError: the reader cannot be sent to another machine, or no feature has a type in Arrow.
    """

    def __init__(self, reader: ExampleReader, *, text: TextForm, epoch: int) -> None:
        super().__init__()
        features = read_features(reader)
        self._schema = columns_for(reader, text=text, labels="numbers", decode=True).schema
        self._num_examples = len(reader)
        self._share = _share_of(reader)
        self._row_bytes = _estimate_bytes(reader, features)
        self._text: TextForm = text
        self._epoch = epoch
        self._content = _pack(reader)
        self._name = f"[{reader.readable.facts.name} {reader.plan.expression:.80}]"

    def get_name(self) -> str:
        """The name that Ray Data displays after ``Read``: the dataset and the split expression."""
        return self._name

    def estimate_inmemory_data_size(self) -> int | None:
        """Estimated size of all rows in bytes; None if the sizes of the stored records are unknown."""
        return None if self._row_bytes is None else self._num_examples * self._row_bytes

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: Any = None,  # noqa: ARG002 (Ray 2.60 passes it)
    ) -> list[ReadTask]:
        """Divide the positions into ``parallelism`` equal ranges, or into one for each row if there are fewer.

        Args:
            parallelism: number of tasks.
            per_task_row_limit: the maximum number of rows that a task reads.
            data_context: not used.
        """
        content = ray.put(self._content)
        count = max(1, min(parallelism, self._num_examples))  # without rows, one task gives the schema
        tasks = []
        for index in range(count):
            part = divide(self._share, index=index, count=count)
            if per_task_row_limit is not None:
                part = cut(part, 0, min(per_task_row_limit, size_of(part)))
            num_rows = size_of(part)
            metadata = BlockMetadata(
                num_rows=num_rows,
                size_bytes=None if self._row_bytes is None else num_rows * self._row_bytes,
                input_files=None,
                exec_stats=None,
            )
            read = _ReadPart(content, self._epoch, part, self._text)
            tasks.append(ReadTask(read, metadata, schema=self._schema))
        return tasks

    def __repr__(self) -> str:
        return f"<ReaderDatasource {self._name}: {self._num_examples} examples>"


class _ReadPart:
    """The function of a read task, which reads some positions. ``content`` refers to the packed reader in Ray."""

    __name__ = "read_part"  # Ray names the function of a task in a warning

    def __init__(self, content: Any, epoch: int, part: Intervals, text: TextForm) -> None:
        self._content = content
        self._epoch = epoch
        self._part = part
        self._text = text

    def __call__(self) -> Iterator[pa.Table]:
        """Yield tables of a few MB, or one table without rows if there are no positions."""
        setting, packed = pickle.loads(ray.get(self._content))  # noqa: S301 - from the program that started the task
        setting.prepare_imports()
        with _environment_of(environment_on_node(setting.environment)):
            reader: ExampleReader = pickle.loads(packed)  # noqa: S301
            columns = columns_for(reader, text=self._text, labels="numbers", decode=True)
            if not self._part:
                yield columns.schema.empty_table()
                return
            reader = reader_for(columns, reader)
            reader.seek(self._epoch, self._part)
            for block in reader.blocks():
                yield pa.Table.from_batches([columns.batch(block)])

    def __repr__(self) -> str:
        return f"<read of {size_of(self._part)} examples>"


def read_dataset(
    reader: ExampleReader, *, text: TextForm, epoch: int, num_blocks: int | None, concurrency: int | None
) -> ray.data.Dataset:
    """One epoch as a Ray dataset; see ``Reader.to_ray``."""
    source = ReaderDatasource(reader, text=text, epoch=epoch)
    return ray.data.read_datasource(source, override_num_blocks=num_blocks, concurrency=concurrency)


def _share_of(reader: ExampleReader) -> Intervals:
    """The positions of an epoch that the reader reads: one interval, or none."""
    size = reader.num_examples
    index, count = reader.process
    return divide(((0, size),) if size else (), index=index, count=count)


def _pack(reader: ExampleReader) -> bytes:
    """Pickle the reader at its beginning, with the setting that a worker needs before it unpickles the reader."""
    location = reader.readable.store.url
    if location.startswith("memory:"):
        raise UsageError(
            "the files are in the memory of this process, which no node of a cluster can read",
            hint="Build or copy the version into a folder or an object store that all nodes can read.",
        )
    pickler = pickler_class(ray)
    return dump(pickler, (Setting.of_program(), dump(pickler, reader.reopened())))


def _estimate_bytes(reader: ExampleReader, features: FeaturesDict) -> int | None:
    """Estimated bytes of a row in Arrow: exact for features of known size, else from the size of stored records."""
    known, is_open, is_coded = 0, False, False
    for column in columns_of(features):
        if _has_known_size(column):
            known += prod((*column.lengths, *column.leaf.shape)) * column.leaf.dtype.itemsize
        elif not isinstance(column.leaf, RawFeature):
            is_open = True
            is_coded = is_coded or isinstance(column.leaf, Audio | Image)
    if not is_open:
        return max(1, known)
    splits: Any = reader.plan.splits
    num_bytes: int = sum(getattr(split, "num_bytes", 0) for split in splits)  # a pin does not record the size
    num_records: int = sum(split.shard_lengths.num_examples for split in splits)
    if not num_bytes:
        return None
    return max(1, known + num_bytes * (_DECODED_SIZE if is_coded else 1) // max(1, num_records))


def _has_known_size(column: Column) -> bool:
    leaf = column.leaf
    return not isinstance(leaf, RawFeature) and leaf.dtype != TEXT and None not in (*column.lengths, *leaf.shape)


@contextmanager
def _environment_of(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables in the block. They are restored for later tasks in this worker."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
