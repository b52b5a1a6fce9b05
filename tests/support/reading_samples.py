"""Small stored splits in which record ``n`` contains ``n``, for tests of reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import uuid4

from registry.features import FeaturesDict, codec_of
from registry.model import ShardedFileTemplate, ShardLengths, Split, Version
from registry.order import ReadConfig
from registry.prepared import PreparedDataset
from registry.reading import ReadableVersion, Reader, readable_folder
from registry.splits import resolve
from registry.storage import Store, open_store
from registry.tfrecord import RecordWriter

FEATURES = FeaturesDict({"id": "int64"})


class Stored(NamedTuple):
    store: Store
    split: Split


def stored(lengths: Sequence[int], where: str | None = None) -> Stored:
    """A split in its own store: in memory, or in the folder ``where``."""
    store = open_store(where or f"memory://{uuid4().hex}")
    split = Split(name="train", shard_lengths=ShardLengths(lengths), files=ShardedFileTemplate(dataset="ids"))
    number = 0
    for index, length in enumerate(lengths):
        with store.create(split.filename(index)) as file:
            writer = RecordWriter(file)
            for _ in range(length):
                writer.write(codec_of(FEATURES).encode({"id": number}))
                number += 1
    return Stored(store, split)


def readable(
    store: Store, splits: Sequence[Split], features: FeaturesDict = FEATURES, *, published: str | None = None
) -> ReadableVersion:
    """The content of ``store`` as an unpublished version, or as the version ``published``."""
    version = readable_folder(
        store,
        PreparedDataset(
            name="ids",
            version=Version(1, 0, 0),
            splits=tuple(splits),
            features=features,
            file_format=splits[0].files.file_format,
        ),
    )
    if published is None:
        return version
    facts = replace(version.facts, version=Version.parse(published), content_digest="0f" * 32)
    return replace(version, facts=facts)


def reader_of(
    expression: str, files: Stored, config: ReadConfig | None = None, *, published: str | None = None, **options: Any
) -> Reader:
    """The reader of ``expression``; of the version ``published`` if it is given."""
    plan = resolve(expression, {"train": files.split})
    return Reader(readable(files.store, [files.split], published=published), plan, read_config=config, **options)
