"""A provider of records that are numbers, shared by the tests of providers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from registry.errors import CorruptExampleError
from registry.slim.data_decoder import DataDecoder
from registry.slim.dataset_data_provider import DatasetDataProvider
from registry.tfrecord import RecordBlock, frame_record

NUM_RECORDS = 40
RECORD_BYTES = 3 + 16


class Numbers(DataDecoder):
    """A record holds a number; negative ones are bad. Counts the decoded records."""

    def __init__(self) -> None:
        self.decoded: list[tuple[str, ...]] = []
        self.most_together = 0

    def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[Any]:
        names = self.check_items(items)
        self.decoded.append(tuple(names))
        number = int(data)
        if number < 0:
            raise CorruptExampleError("it is below zero", hint="Count up.", details={"number": number})
        return [{"number": number, "double": 2 * number, "text": data}[name] for name in names]

    def list_items(self) -> list[str]:
        return ["number", "double", "text"]

    def decode_rows(self, block: RecordBlock, items: Sequence[str]) -> Iterator[list[Any]]:
        self.most_together = max(self.most_together, block.num_records)
        return super().decode_rows(block, items)


def write(name: str, numbers: Sequence[int]) -> None:
    Path(name).write_bytes(b"".join(frame_record(b"%3d" % number) for number in numbers))


def provider_of(sources: Any = "f", *, reader: Any = None, decoder: Any = None, **options: Any) -> DatasetDataProvider:
    dataset = SimpleNamespace(
        data_sources=sources, reader=reader, decoder=Numbers() if decoder is None else decoder, num_samples=7
    )
    return DatasetDataProvider(dataset, **{"shuffle": False, "num_epochs": 1, **options})
