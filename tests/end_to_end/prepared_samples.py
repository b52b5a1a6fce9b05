"""Prepared version folders made by hand: the same records in any number of shards, gzip or not, of any schema."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from registry.features import ClassLabel, FeaturesDict, Text
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
    """Write a version folder and give it back. ``shards``: a number for each split, or the lengths. Bytes are records."""
    found: list[Split] = []
    store = open_store(folder)
    for split_name, examples in ({"train": animals(20)} if splits is None else splits).items():
        records = [one if isinstance(one, bytes) else features.encode_example(one) for one in examples]
        lengths = cut_evenly(len(records), shards) if isinstance(shards, int) else list(shards)
        split = Split(
            name=split_name,
            shard_lengths=ShardLengths(lengths),
            num_bytes=sum(map(len, records)),
            files=ShardedFileTemplate(dataset=name),
        )
        left = iter(records)
        for filename, length in zip(split.filenames, lengths, strict=True):
            shard = io.BytesIO()
            writer = RecordWriter(shard)
            for _ in range(length):
                writer.write(next(left))
            with store.create(filename) as file:
                file.write(gzip.compress(shard.getvalue(), 1, mtime=0) if compress else shard.getvalue())
        found.append(split)
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
