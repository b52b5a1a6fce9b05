"""Croissant documents of a small version, and MLCommons' package as their reader."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from registry.features import ClassLabel, FeaturesDict, Image, features_to_json
from registry.interop.croissant import croissant_to_json, describe_croissant
from registry.model import DatasetMetadata, DatasetVersion, Shard, ShardedFileTemplate, ShardLengths, Split, Version
from registry.statistics import Statistics

TOLD = DatasetMetadata(
    description="Handgeschriebene Ziffern, größer als früher.",
    homepage="https://example.org/mnist",
    citation="@misc{mnist}",
    license="CC-BY-4.0",
    config_tags=("images", "größe"),
)
PLAIN = FeaturesDict({"image": Image(shape=(28, 28, 1)), "label": ClassLabel(names=["null", "eins"])})


def published(
    features: FeaturesDict = PLAIN,
    *,
    config: str | None = None,
    metadata: DatasetMetadata = TOLD,
    lengths: Mapping[str, tuple[int, ...]] | None = None,
    template: str = ShardedFileTemplate(dataset="mnist").template,
    file_format: str = "tfrecord",
) -> DatasetVersion:
    files = ShardedFileTemplate(dataset="mnist", template=template, file_format=file_format)
    return DatasetVersion(
        name="mnist",
        config=config,
        version=Version(3, 0, 1),
        splits=tuple(
            Split(name=name, shard_lengths=ShardLengths(found), num_bytes=100, files=files)
            for name, found in ({"train": (3, 2), "test": (1,)} if lengths is None else lengths).items()
        ),
        features_json=features_to_json(features),
        location="mnist/3.0.1",
        content_digest="0" * 64,
        file_format=file_format,
        metadata=metadata,
        published_at=datetime(2026, 11, 21, 10, 30, tzinfo=UTC),
        published_by="ada",
    )


def shards_of(version: DatasetVersion) -> dict[str, tuple[Shard, ...]]:
    return {
        split.name: tuple(
            Shard(index=index, first_example=0, num_examples=1, num_bytes=10 + index, sha256=f"{index:064x}")
            for index in range(split.num_shards)
        )
        for split in version.splits
    }


def describe(
    features: FeaturesDict = PLAIN,
    *,
    base_url: str | None = None,
    creators: tuple[str, ...] = (),
    statistics: Statistics | None = None,
    **changed: Any,
) -> dict[str, Any]:
    version = published(features, **changed)
    shards = shards_of(version)
    return describe_croissant(version, features, shards, statistics=statistics, base_url=base_url, creators=creators)


def read_by_mlcroissant(document: dict[str, Any]) -> Any:
    """The document as parsed by MLCommons' package, which raises an exception for errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its dependencies use their own deprecated names
        import mlcroissant

        return mlcroissant.Dataset(jsonld=json.loads(croissant_to_json(document)))


def fields_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    (examples,) = [one for one in document["recordSet"] if one["@id"] == "examples"]
    return {field["@id"]: field for field in examples["field"]}
