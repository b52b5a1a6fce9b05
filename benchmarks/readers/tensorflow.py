"""Runs the jobs of benchmarks/reading.py with tf.data and TFDS, in the fastest form found; batch sizes were tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
from itertools import chain
from typing import Any, ClassVar

from benchmarks.readers.peer import BATCH, Example, Peer, in_batches, split_batch, stack
from benchmarks.readers.sets import VERSION


class TfData(Peer):
    """tf.data as it is: every record or example crosses into Python by itself."""

    modules = ("tensorflow",)
    reads_gzip = True
    threads = "TensorFlow's own pool, no parallel calls, no prefetch"
    parallel_calls: ClassVar[int | None] = None

    def open(self) -> None:
        """What is to be parsed."""
        self._tf: Any = import_module("tensorflow")
        fixed = self._tf.io.FixedLenFeature
        self._spec = {"label": fixed([], self._tf.int64)}
        if self.sample.kind == "A":
            floats = {"vec": fixed([8], self._tf.float32), "score": fixed([], self._tf.float32)}
            self._spec |= {**floats, "id": fixed([], self._tf.string)}
        else:
            self._spec["image"] = fixed([], self._tf.string)
        self._made: dict[str, Any] = {}

    def _keep(self, name: str, make: Callable[[], Any]) -> Iterator[Any]:
        """An iterator over a dataset, whose graph is made before the first of the passes that are timed."""
        if name not in self._made:
            self._made[name] = make()
        return iter(self._made[name].as_numpy_iterator())

    def _records(self) -> Any:
        compression = "GZIP" if self.sample.is_gzip else None
        return self._tf.data.TFRecordDataset(self.paths, compression_type=compression, buffer_size=8 << 20)

    def _parse(self, records: Any, shape: tuple[int, ...] = ()) -> Any:
        example = self._tf.io.parse_example(records, self._spec)
        if "image" in example:
            pixels = self._tf.io.decode_raw(example["image"], self._tf.uint8)
            example["image"] = self._tf.reshape(pixels, (*shape, *self.sample.image_shape))
        return example

    def _batches(self, size: int) -> Any:
        found = self._records().batch(size).map(lambda some: self._parse(some, (-1,)), self.parallel_calls)
        return found if self.parallel_calls is None else found.prefetch(self.parallel_calls)

    def records(self) -> Iterator[Any]:
        return self._keep("i", self._records)

    def examples(self) -> Iterator[Example]:
        return self._keep("ii", lambda: self._records().map(self._parse))

    def batches(self) -> Iterator[Example]:
        return self._keep("iii", lambda: self._batches(BATCH))

    def seek(self) -> Example:
        record = next(iter(self._records().skip(self.middle)))  # parsed eagerly: tracing a map takes longer
        return {name: value.numpy() for name, value in self._parse(record).items()}


class TfDataUnbatched(TfData):
    """The fair form of tf.data for jobs (i) and (ii): into Python once a batch, and split there."""

    def records(self) -> Iterator[Any]:
        size = 32 if self.sample.kind == "C" else 1024
        return chain.from_iterable(self._keep("i", lambda: self._records().batch(size)))

    def examples(self) -> Iterator[Example]:
        size = 128 if self.sample.kind == "C" else 1024
        return chain.from_iterable(map(split_batch, self._keep("ii", lambda: self._batches(size))))


class TfDataAutotuned(TfDataUnbatched):
    """The same with as many threads as tf.data likes."""

    threads = "AUTOTUNE"
    parallel_calls = -1


class TfDataCached(TfDataUnbatched):
    """Batches that ``cache()`` keeps in memory after a first epoch, which is not timed."""

    records = Peer.records  # examples are cached

    def _cached(self, size: int) -> Any:
        batches = self._batches(size).cache()
        for _ in batches:
            pass
        return batches

    def examples(self) -> Iterator[Example]:
        size = 128 if self.sample.kind == "C" else 1024
        return chain.from_iterable(map(split_batch, self._keep("ii", lambda: self._cached(size))))

    def batches(self) -> Iterator[Example]:
        return self._keep("iii", lambda: self._cached(BATCH))


class Tfds(Peer):
    """TFDS on the TFRecord files."""

    modules = ("tensorflow", "tensorflow_datasets")
    threads = "TensorFlow's own pool, TFDS's defaults (AUTOTUNE)"

    def open(self) -> None:
        """Find the builder."""
        self._tfds: Any = import_module("tensorflow_datasets")
        folder = self.sample.folder / self.format / self.sample.dataset / str(VERSION)
        self._builder = self._tfds.builder_from_directory(str(folder))
        self._config = self._tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)

    def _make(self, split: str = "train", **options: Any) -> Any:
        return self._builder.as_dataset(split=split, read_config=self._config, **options)

    @cached_property
    def _examples(self) -> Any:
        return self._make()

    @cached_property
    def _batches(self) -> Any:
        return self._make(batch_size=BATCH)

    def examples(self) -> Iterator[Example]:
        return iter(self._tfds.as_numpy(self._examples))

    def batches(self) -> Iterator[Example]:
        return iter(self._tfds.as_numpy(self._batches))

    def seek(self) -> Example:
        return next(iter(self._tfds.as_numpy(self._make("train[50%:]"))))


class TfdsSource(Tfds):
    """TFDS's random access, on array_record files."""

    modules = ("tensorflow_datasets", "array_record")
    format = "array_record"
    threads = "array_record's pool"

    def open(self) -> None:
        """Open the source."""
        super().open()
        self._source = self._builder.as_data_source("train")

    def examples(self) -> Iterator[Example]:
        return map(self._source.__getitem__, range(len(self._source)))

    def batches(self) -> Iterator[Example]:
        return (stack(self._source.__getitems__(list(part))) for part in in_batches(range(len(self._source)), BATCH))

    def one(self, index: int) -> Example:
        return dict(self._source[index])

    def many(self, indices: list[int]) -> Any:
        return self._source.__getitems__(indices)

    def seek(self) -> Example:
        return dict(self._builder.as_data_source("train[50%:]")[0])
