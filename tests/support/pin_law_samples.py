"""Dataset versions in memory, pinned in every possible way, for laws of pin files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any
from uuid import uuid4

import numpy as np

from registry.features import ClassLabel, FeaturesDict, Image, Text, codec_of
from registry.features import Sequence as SequenceFeature
from registry.features.schema import features_to_json
from registry.model import (
    DatasetMetadata,
    DatasetVersion,
    Reference,
    Shard,
    ShardedFileTemplate,
    ShardLengths,
    SlicingRule,
    Split,
    Version,
    VersionState,
)
from registry.order import ReadConfig
from registry.pins import AliasEntry, BuilderEntry, PinFile, PinSource, make_entry
from registry.reading import make_readable
from registry.splits import resolve
from registry.storage import Store, open_store
from registry.tfrecord import RecordWriter

FLAT = FeaturesDict({"id": "int64"})
NESTED = FeaturesDict(
    {
        "image": Image(shape=(2, 2, 1), dtype="uint8"),
        "objects": SequenceFeature({"kind": ClassLabel(names=["cat", "no", "1.0"]), "area": "float32"}),
        "text.é": Text(),
    }
)


FILES = ReadConfig(shuffle_files=True, global_seed=3, op_seed_index=1)
FILES_EACH_TIME = ReadConfig(shuffle_files=True, shuffle_seed=-5, shuffle_reshuffle_each_iteration=False)


def make_record(number: int) -> bytes:
    return codec_of(FLAT).encode({"id": number})


def make_source(
    lengths: Mapping[str, Sequence[int]],
    *,
    request: str = "numbers",
    config: str | None = None,
    features: FeaturesDict = FLAT,
    record: Callable[[int], bytes] = make_record,
    store: Store | None = None,
    alias: AliasEntry | None = None,
    **fields: Any,
) -> PinSource:
    """A version of ``numbers`` with these shards; record ``n`` of all its splits together is ``record(n)``."""
    kept = open_store(f"memory://{uuid4().hex}") if store is None else store
    splits, shards, number = [], {}, 0
    for name, counts in lengths.items():
        split = Split(name=name, shard_lengths=ShardLengths(counts), files=ShardedFileTemplate(dataset="numbers"))
        found, num_bytes, first = [], 0, 0
        for index, count in enumerate(counts):
            with kept.create(split.filename(index)) as file:
                writer = RecordWriter(file)
                for _ in range(count):
                    writer.write(record(number))
                    number += 1
            found.append(
                Shard(
                    index=index,
                    first_example=first,
                    num_examples=count,
                    num_bytes=writer.num_bytes,
                    sha256=writer.sha256(),
                )
            )
            num_bytes, first = num_bytes + writer.num_payload_bytes, first + count
        shards[name] = found
        splits.append(Split(name=name, shard_lengths=split.shard_lengths, num_bytes=num_bytes, files=split.files))
    version = DatasetVersion(
        name="numbers",
        config=config,
        version=Version(1, 2, 3),
        splits=tuple(splits),
        features_json=features_to_json(features),
        labels={stem: tuple(names) for stem, names in features.labels().items()},
        location="numbers/1.2.3",
        content_digest=hashlib.sha256(repr(lengths).encode()).hexdigest(),
        canonical=Version(1, 2, 3),
        **fields,
    )
    return PinSource(
        readable=make_readable(version, kept),
        request=Reference.parse(request),
        why=["it is the canonical version.", f"{request} names it."],
        shards=shards.__getitem__,
        alias=alias,
        builder=BuilderEntry(
            code="numbers.Numbers", package="numbers-builder", version="1.0.0", sha256="sha256:" + "0f" * 32
        ),
        packages={"numpy": "2.0.0", "odd.name": "1.0"},
    )


def pin(source: PinSource, name: str, split: str, *, rounding: str | None = None, **options: Any) -> dict[str, Any]:
    """The entry of ``split``."""
    plan = resolve(split, source.readable.facts.layout, slicing=source.readable.facts.slicing, rounding=rounding)
    return make_entry(source, name, plan, processes=1, **options)


def nested_record(number: int) -> bytes:
    kinds = [place % 3 for place in range(number % 4)]
    objects = {"kind": kinds, "area": [0.5 * number] * len(kinds)}
    pixels = np.full((2, 2, 1), number, np.uint8)
    return codec_of(NESTED).encode({"image": pixels, "objects": objects, "text.é": "é" * number})


@cache
def whole_file() -> str:
    """The text of a pin file with everything in it."""
    plain = make_source({"train": [4, 0, 3, 5], "test": [2, 2], "unused": [1]}, request="numbers:1.*")
    rich = make_source(
        {"train": [60, 0, 71], "dev_shard": [1, 0, 1]},
        request="numbers/rich@paper",
        config="rich",
        features=NESTED,
        record=nested_record,
        alias=AliasEntry(name="paper", set_at="2026-01-02T03:04:05Z", set_by="me", message="as\nsubmitted"),
        state=VersionState.YANKED,
        state_message="a label was wrong",
        experiments={"faster": True, "older": False},
        slicing=SlicingRule.TFDS_4,
        disable_shuffling=True,
        version_to_prepare="1.2.0",
        metadata=DatasetMetadata(
            homepage="https://example.org",
            citation="@misc{a,\n  title = {No \N{COMBINING ACUTE ACCENT}\t%}\n}",
            license="CC BY 4.0",
            extra={
                "downloadChecksums": {"https://example.org/a.zip": {"checksum": "ab" * 32, "size": "12"}, "b": "md5"}
            },
        ),
    )
    entries = [
        pin(plain, "most", "train[:80%]", locations=["https://example.org/numbers", "elsewhere/numbers", "/data"]),
        pin(plain, "union", "test[1:3]+train[8:]+train[2:6]+test"),
        pin(plain, "gap", "train[:1]+train[9:10]", read_config=ReadConfig(shuffle="global", seed=2**64 - 1)),
        pin(plain, "none", "train[3:3]"),
        pin(plain, "shards", "train[2shard:]+even(all, 2shard)[0]", read_config=FILES),
        pin(plain, "all", "all", read_config=FILES_EACH_TIME),
        pin(rich, "rich", "train[:50%]+dev_shard", rounding="pct1_dropremainder"),
        pin(rich, "part", "even(train, 2)[1]"),
    ]  # fmt: skip
    for entry in entries[:1]:  # of a later release
        entry["future"] = {"of a pin": [1, {"deep": None}], "empty": {}, "float": 1.5}
        for key in ("records", "order", "features", "provenance"):
            entry[key]["future"] = key
        for key in ("ranges", "splits", "files"):
            entry[key][0]["future"] = [key]
        entry["records"]["first"]["future"] = 1
        entry["files"][0]["locations"] = ["https://example.org/one-file"]
    content = PinFile.of(entries, created_by="shardbook 1.0.0").content
    future = {"future": {"a": 1}, "later": ["x", 2**70]}
    base = PinFile.of(entries, created_by="x")
    base.content.update(future)  # type: ignore[attr-defined]
    return PinFile.of(content["pins"], created_by="shardbook 1.0.0", base=base).to_yaml()
