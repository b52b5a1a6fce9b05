"""A stored split with a feature of every kind, and its examples as plain Python values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from registry.features import (
    Audio,
    BBox,
    ClassLabel,
    Dataset,
    FeaturesDict,
    Image,
    LabeledImage,
    NestedExamples,
    Ragged,
    Scalar,
    Tensor,
    Text,
    Translation,
    TranslationVariableLanguages,
    Video,
    codec_of,
)
from registry.features import Sequence as SequenceOf
from registry.model import ShardedFileTemplate, ShardLengths, Split
from registry.order import ReadConfig
from registry.reading import Reader
from registry.reading.frameworks.arrays import missing_rows
from registry.reading.frameworks.sharing import EpochCounter, IterationKey
from registry.splits import resolve
from registry.storage import open_store
from registry.tfrecord import RecordWriter
from support.reading_samples import readable

FEATURES = FeaturesDict(
    {
        "id": "int64",
        "label": ClassLabel(names=["cat", "dog"]),
        "half": "float16",
        "flag": "bool",
        **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
        "name": Text(),
        "key": "string",
        "image": Image(shape=(2, 3, 1)),
        "picture": Image(shape=(None, None, 3)),
        "mat": Tensor(shape=(2, None), dtype="float32"),
        "none": Tensor(shape=(0, 2), dtype="int32"),
        "words": SequenceOf(Text()),
        "three": SequenceOf("int32", length=3),
        "any": SequenceOf("int16"),
        "pictures": SequenceOf(Image(shape=(None, 2, 1))),
        "boxes": SequenceOf({"box": BBox(), "tag": Text(), "inside": {"n": "uint8"}}),
        "deep": SequenceOf(SequenceOf(SequenceOf("int64"))),
        "lines": SequenceOf(SequenceOf(Text())),
        "place": {"x": "float64", "far": {"y": Tensor(shape=(2,), dtype="uint16")}},
        "zip": Tensor(shape=(2,), dtype="float64", encoding="zlib"),
        "grid": Tensor(shape=(None, None), dtype="int16", encoding="zlib"),
        "brain": Tensor(shape=(), dtype="bfloat16", encoding="bytes"),
        "maybe": Scalar("int32", optional=True),
        "corners": Tensor(shape=(2,), dtype="int8", optional=True),
        "mask": LabeledImage(num_classes=3, shape=(2, 2, 1)),
        "film": Video(shape=(None, 2, 2, 1)),
        "sound": Audio(shape=(None, 2), dtype="int16"),
        "said": Translation(languages=["de", "en"]),
        "heard": TranslationVariableLanguages(),
        "steps": Dataset({"reward": "float32", "seen": Tensor(shape=(2,), dtype="uint8"), "what": Text()}),
        "numbers": Dataset("int64"),
    }
)


def example(n: int) -> dict[str, Any]:
    """Example ``n``: its parts differ in size with ``n``."""
    return {
        "id": n,
        "label": n % 2,
        "half": n / 2,
        "flag": n % 3 == 0,
        **{f"u{bits}": 2**bits - 1 - n % 256 for bits in (8, 16, 32, 64)},
        "name": f"grün {n}",
        "key": b"\xff\x00" + bytes([n % 256]),
        "image": np.full((2, 3, 1), n % 256, np.uint8),
        "picture": np.full((1 + n % 2, 1 + n % 3, 3), n % 256, np.uint8),
        "mat": np.full((2, n % 3), n, np.float32),
        "none": np.empty((0, 2), np.int32),
        "words": [f"w{place}" for place in range(n % 3)],
        "three": [n, n + 1, n + 2],
        "any": list(range(n % 4)),
        "pictures": [np.full((1 + place, 2, 1), n % 256, np.uint8) for place in range(n % 3)],
        "boxes": [{"box": (0, 0, 0.5, 1), "tag": f"t{place}", "inside": {"n": place}} for place in range(n % 3)],
        "deep": [[[n], []], []][: n % 3],
        "lines": [["a", "ö"], [], [str(n)]][: n % 4],
        "place": {"x": n / 4, "far": {"y": [n, 65535]}},
        "zip": [n / 3, -n],
        "grid": np.full((n % 3, 2), n, np.int16),
        "brain": n % 8 / 4,
        "maybe": None if n % 3 else n,
        "corners": None if n % 2 else [n % 100, -1],
        "mask": np.full((2, 2, 1), n % 3, np.uint8),
        "film": np.full((n % 3, 2, 2, 1), n % 256, np.uint8),
        "sound": np.full((n % 4, 2), n, np.int16),
        "said": {"de": f"grün {n}", "en": f"green {n}"},
        "heard": {"de": [f"grün {n}", "ö"], "en": "x"} if n % 2 else {},
        "steps": [{"reward": n / 2, "seen": [place, n % 256], "what": f"s{place}"} for place in range(n % 4)],
        "numbers": range(n % 3),
    }


def wide_reader(
    lengths: Sequence[int],
    config: ReadConfig | None = None,
    *,
    where: Path | None = None,
    features: FeaturesDict = FEATURES,
    published: str | None = None,
    **options: Any,
) -> Reader:
    """The reader of examples 0, 1, 2, ... in shards of ``lengths``, with all features or some."""
    store = open_store(f"memory://{uuid4().hex}" if where is None else str(where))
    split = Split(name="train", shard_lengths=ShardLengths(lengths), files=ShardedFileTemplate(dataset="wide"))
    number = 0
    for index, length in enumerate(lengths):
        if where is not None and store.exists(split.filename(index)):
            continue
        with store.create(split.filename(index)) as file:
            writer = RecordWriter(file)
            for n in range(number, number + length):
                whole = example(n)
                writer.write(codec_of(features).encode({name: whole[name] for name in features}))
        number += length
    plan = resolve("train", {"train": split})
    return Reader(readable(store, [split], features, published=published), plan, read_config=config, **options)


def stored(examples: Sequence[dict[str, Any]], features: FeaturesDict) -> Reader:
    """The reader of these examples, in one shard."""
    return stored_records([codec_of(features).encode(example) for example in examples], features)


def stored_records(records: Sequence[bytes], features: FeaturesDict) -> Reader:
    """The reader of these records, in one shard."""
    store = open_store(f"memory://{uuid4().hex}")
    split = Split(name="train", shard_lengths=ShardLengths([len(records)]), files=ShardedFileTemplate(dataset="wide"))
    with store.create(split.filename(0)) as file:
        writer = RecordWriter(file)
        for record in records:
            writer.write(record)
    return Reader(readable(store, [split], features), resolve("train", {"train": split}))


def plain(value: Any, *, texts: bool = False) -> Any:
    """``value`` as lists, dicts and numbers; with ``texts``, bytes that are UTF-8 as text.

    A nested dataset becomes a sequence, as in every framework.
    """
    if isinstance(value, dict):
        return {name: plain(inner, texts=texts and name != "key") for name, inner in value.items()}
    if isinstance(value, np.ma.MaskedArray):
        missing = missing_rows(value).tolist()
        return [None if lost else plain(one, texts=texts) for one, lost in zip(value.data, missing, strict=True)]
    if isinstance(value, NestedExamples):
        return plain(value.columns(), texts=texts)
    if isinstance(value, Ragged):
        return [plain(inner, texts=texts) for inner in value]
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(inner, texts=texts) for inner in value]
    if isinstance(value, (bytes, memoryview)):
        return str(value, "utf-8") if texts else bytes(value)
    return value.item() if isinstance(value, np.generic) else value


def read_twice(reader: Reader) -> list[list[int]]:
    """The ids of two iterations; here, so that another process finds it."""
    return [[int(example["id"]) for example in reader] for _ in range(2)]


def negative(example: dict[str, Any]) -> dict[str, Any]:
    """A transform of an example; here, so that a spawned worker can import it."""
    return {"id": -example["id"], "text": f"number {int(example['id'])}", "twice": (int(example["id"]), 0.5)}


_kept: list[EpochCounter] = []


def keep_counter(counter: EpochCounter) -> None:
    """Keep the arguments that a worker process received when it started."""
    _kept.append(counter)


def take_epoch(drawn: int, before: int) -> int:
    """An epoch of the counter that was kept, for one of two workers."""
    return _kept[-1].take(IterationKey(drawn, before), workers=2)


class WithMaps:
    """A ``collate_fn`` that adds how many arrays of kept columns below ``folder`` the worker maps."""

    def __init__(self, collate: Any, folder: Path) -> None:
        self.collate = collate
        self.folder = str(folder)

    def __call__(self, examples: Any) -> Any:
        batch = self.collate(examples)
        paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(".npy")}
        return batch, sum(path.startswith(self.folder) for path in paths)
