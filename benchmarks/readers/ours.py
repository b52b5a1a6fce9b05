"""Runs the jobs of benchmarks/reading.py with this software: a class for each way to read, and the limit."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from fastcrc import crc32

from benchmarks.readers.peer import BATCH, Example, Peer


class Registry(Peer):
    """This software, from the shards."""

    reads_gzip = True
    threads = "one for gzip, beside the reader's own"
    options: ClassVar[dict[str, Any]] = {"keep": None}

    def open(self) -> None:
        """Look the version up."""
        import registry

        folder = self.sample.folder / "tfrecord"
        self._config = registry.ReadConfig(interleave_cycle_length=1)
        self._dataset = registry.connect(folder / "catalog.db", data_dir=folder).dataset(self.sample.dataset)
        self._reader = self._read("train")

    def _read(self, split: str) -> Any:
        return self._dataset.read(split, self._config, **self.options)

    def records(self) -> Iterator[Any]:
        return iter(self._reader.records())

    def examples(self) -> Iterator[Example]:
        return iter(self._reader)

    def batches(self) -> Iterator[Example]:
        return iter(self._reader.batches(BATCH))

    def one(self, index: int) -> Example:
        found: Example = self._reader[index]
        return found

    def many(self, indices: list[int]) -> Any:
        return self._reader[indices]

    def seek(self) -> Example:
        return next(iter(self._read("train[50%:]")))


class RegistryRecord(Registry):
    """With a checksum for each record, not for each block of them."""

    options: ClassVar = {"keep": None, "verify": "record"}


class RegistryView(Registry):
    """With views of the mapped files instead of copies."""

    options: ClassVar = {"keep": None, "copy": False}


class RegistryOff(Registry):
    """With views and without checksums."""

    options: ClassVar = {"keep": None, "copy": False, "verify": "off"}


class RegistryKept(Registry):
    """With columns that ``registry cache build`` kept: what a second epoch costs."""

    options: ClassVar = {"keep": "disk"}

    def open(self) -> None:
        """Keep the columns, unless they are kept."""
        super().open()
        self._dataset.keep_columns("train")


class RegistryKeptView(RegistryKept):
    """With views of kept columns instead of copies."""

    options: ClassVar = {"keep": "disk", "copy": False}


class Take(Peer):
    """The limit of kept columns: views and ``numpy.take`` of arrays in memory, and rows of them. Texts are bytes."""

    def open(self) -> None:
        """Make an array of each column."""
        places = np.arange(self.sample.num_examples)
        self._columns = {name: pool[places % len(pool)] for name, pool in self.sample.columns.items()}
        if "id" in self._columns:
            self._columns["id"] = self._columns["id"].astype(bytes)

    def batches(self) -> Iterator[Example]:
        for start in range(0, self.sample.num_examples, BATCH):
            yield {name: column[start : start + BATCH] for name, column in self._columns.items()}

    def one(self, index: int) -> Example:
        return {name: column[index] for name, column in self._columns.items()}

    def many(self, indices: list[int]) -> Any:
        return {name: column.take(indices, axis=0) for name, column in self._columns.items()}


class Limit(Peer):
    """The physical limit of whoever checks: CRC32C over files that are mapped already, and nothing else."""

    reads_gzip = True

    def open(self) -> None:
        """Map the files."""
        self._maps = []
        for path in self.paths:
            with Path(path).open("rb") as file:
                self._maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def records(self) -> Iterator[Any]:
        """Checksums of whole files."""
        return map(crc32.iscsi, self._maps)

    examples = batches = records
