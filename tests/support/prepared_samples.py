"""Prepared version folders made by hand: the same records in any number of shards, gzip or not, of any schema."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from registry.features import ClassLabel, FeaturesDict, Text, codec_of
from registry.model import DatasetMetadata, ShardedFileTemplate, ShardLengths, Split, Version
from registry.prepared import PreparedDataset, write_prepared
from registry.storage import open_store
from registry.tfrecord import RecordWriter

ANIMALS = FeaturesDict({"name": Text(), "kind": ClassLabel(names=["cat", "dog"]), "age": "int32"})


def animals(count: int, **changed: Any) -> list[dict[str, Any]]:
    """Examples of ``ANIMALS`` that all differ; ``changed`` replaces values of the one in the middle."""
    examples = [{"name": f"animal {number}", "kind": number % 2, "age": number} for number in range(count)]
    examples[count // 2] |= changed
    return examples


def cut_evenly(count: int, shards: int) -> list[int]:
    """Shard lengths that differ by at most one."""
    return [count // shards + (index < count % shards) for index in range(shards)]


def _records(features: FeaturesDict, examples: Iterable[Mapping[str, Any] | bytes]) -> Iterator[bytes]:
    """The records of ``examples``; those of a list are encoded together, which takes a tenth of the time."""
    codec = codec_of(features)
    if not isinstance(examples, list):
        return (one if isinstance(one, bytes) else codec.encode(one) for one in examples)
    block = codec.encode_block([one for one in examples if not isinstance(one, bytes)])
    if block.fault is not None:
        raise block.fault
    encoded = iter(block.records())
    return (one if isinstance(one, bytes) else next(encoded) for one in examples)


def prepare(
    folder: Path,
    version: str = "1.0.0",
    splits: Mapping[str, Iterable[Mapping[str, Any] | bytes]] | None = None,
    *,
    features: FeaturesDict = ANIMALS,
    shards: int | Sequence[int] = 1,
    compress: bool = False,
    name: str = "animals",
    config: str | None = None,
    description: str = "Animals.",
    disable_shuffling: bool = False,
) -> Path:
    """Write a version folder and return it. Examples that are bytes are written as records unchanged.

    ``shards`` is their number in each split, or the lengths; then examples are taken one at a time.
    """
    found: list[Split] = []
    store = open_store(folder)
    for split_name, examples in ({"train": animals(20)} if splits is None else splits).items():
        given = list(examples) if isinstance(shards, int) else examples
        lengths = cut_evenly(len(given), shards) if isinstance(given, list) and isinstance(shards, int) else shards
        assert not isinstance(lengths, int)
        files = ShardedFileTemplate(dataset=name)
        split = Split(name=split_name, shard_lengths=ShardLengths(lengths), files=files)
        left = _records(features, given)
        num_bytes = 0
        for filename, length in zip(split.filenames, lengths, strict=True):
            shard = io.BytesIO()
            writer = RecordWriter(shard)
            for _ in range(length):
                record = next(left)
                num_bytes += len(record)
                writer.write(record)
            with store.create(filename) as file:
                file.write(gzip.compress(shard.getvalue(), 1, mtime=0) if compress else shard.getvalue())
        found.append(replace(split, num_bytes=num_bytes))
    prepared = PreparedDataset(
        name=name,
        config=config,
        version=Version.parse(version),
        splits=tuple(found),
        features=features,
        metadata=DatasetMetadata(description=description),
        disable_shuffling=disable_shuffling,
    )
    write_prepared(store, prepared)
    return folder
