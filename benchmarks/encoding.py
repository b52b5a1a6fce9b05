"""Measures deterministic encoding, always two ways in one run.

    python benchmarks/encoding.py [--seconds 0.5]

    records   our Example codec and protobuf's
    blocks    many examples at once and one after the other; rows of an Arrow table at once and as Python rows
    PNG       our encoder and Pillow's

Fastest of five rounds each, in processor time; the ratio (first / second) is what can be compared between machines.
Needs the extras `image` and `arrow`.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.build import Images, Rows
from registry.features import BBox, ClassLabel, FeaturesDict, Sequence, Tensor, Text, codec_of
from registry.images.png import encode_png
from registry.shards.arrow_schema import features_of_schema
from registry.shards.blocks import TableBlock
from registry.wire import FlatValue, decode_example, encode_example
from registry.wire.example_pb2 import Example

RECORDS: dict[str, dict[str, FlatValue]] = {
    "100 bytes, 4 features": {
        "label": np.array([7]),
        "vector": np.linspace(0, 1, 8, dtype=np.float32),
        "id": [b"example-0000001"],
        "score": np.array([0.5], np.float32),
    },
    "800 bytes, 2 features": {"image": [bytes(784)], "label": np.array([7])},
    "2,000 numbers": {"floats": np.linspace(0, 1, 1000, dtype=np.float32), "ints": np.arange(1000)},
}


def fastest(call: Callable[[Any], Any], value: Any, seconds: float) -> float:
    """Seconds of one ``call(value)``: the fastest of five rounds that together take about ``seconds``."""
    timer = timeit.Timer(lambda: call(value), timer=time.process_time)
    number = max(1, int(seconds / 5 / min(timer.repeat(number=1, repeat=3))))
    return min(timer.repeat(number=number, repeat=5)) / number


def with_protobuf(values: dict[str, FlatValue]) -> bytes:
    """The same record, written by protobuf."""
    example = Example()
    for key, value in values.items():
        feature = example.features.feature[key]
        if isinstance(value, list):
            feature.bytes_list.value.extend(value)
        elif value.dtype == np.float32:
            feature.float_list.value.extend(value.tolist())
        else:
            feature.int64_list.value.extend(value.tolist())
    return example.SerializeToString(deterministic=True)


def read_with_protobuf(record: bytes) -> dict[str, Any]:
    """The record's values as arrays, read by protobuf."""
    values: dict[str, Any] = {}
    for key, feature in Example.FromString(record).features.feature.items():
        kind = feature.WhichOneof("kind")
        content = getattr(feature, str(kind)).value
        values[key] = (
            list(content)
            if kind == "bytes_list"
            else np.fromiter(content, np.float32 if kind == "float_list" else np.int64)
        )
    return values


BLOCK_EXAMPLES = 512
TABLE_ROWS = 4096


def blocks() -> dict[str, tuple[FeaturesDict, list[Any]]]:
    """Schemas and examples, as a builder gives them."""
    numbers, chance = range(BLOCK_EXAMPLES), np.random.default_rng(0)
    words = [f"word{number}" for number in range(20)]
    found = {}
    for name, builder in {"row of 1 KB (benchmarks/build.py)": Rows(), "PNG 28x28": Images()}.items():
        builder.num_examples = BLOCK_EXAMPLES
        (examples,) = builder.splits().values()
        found[name] = (builder.features(), [example for _, example in examples])
    files = [codec_of(Images().features()).flatten(example)["image"][0] for example in found["PNG 28x28"][1]]
    found["PNG 28x28 as files"] = (Images().features(), [{"image": file, "label": 3} for file in files])
    found["number and text"] = (
        FeaturesDict({"id": "int64", "text": Text()}),
        [{"id": number, "text": "é" * (number % 50)} for number in numbers],
    )
    found["lists of 0..29 tokens and words"] = (
        FeaturesDict({"tokens": Sequence("int32"), "words": Sequence(Text())}),
        [{"tokens": list(range(number % 30)), "words": words[: number % 9]} for number in numbers],
    )
    found["0..4 boxes with labels"] = (
        FeaturesDict({"objects": Sequence({"box": BBox(), "label": ClassLabel(num_classes=9)})}),
        [{"objects": [{"box": [0.1, 0.2, 0.3, 0.4], "label": 1}] * (number % 5)} for number in numbers],
    )
    found["pixels 28x28 as numbers"] = (
        FeaturesDict({"pixels": Tensor(shape=(28, 28), dtype="uint8")}),
        [{"pixels": pixels} for pixels in chance.integers(0, 200, (BLOCK_EXAMPLES, 28, 28), np.uint8)],
    )
    return found


def table() -> pa.Table:
    """A table of numbers and texts."""
    chance, rows = np.random.default_rng(0), range(TABLE_ROWS)
    return pa.table(
        {
            "id": pa.array(rows),
            "price": pa.array(chance.random(TABLE_ROWS)),
            "count": pa.array(chance.integers(0, 1000, TABLE_ROWS), pa.int32()),
            "is_new": pa.array(chance.random(TABLE_ROWS) < 0.5),
            "city": pa.array([f"city {row % 90}" for row in rows]),
            "text": pa.array([f"a sentence of row {row} " * (row % 6) for row in rows]),
        }
    )


def print_blocks(seconds: float) -> None:
    print(f"\n{'block of 512, us an example':<36}{'block':>10}{'each':>10}{'ratio':>8}{'a second':>12}")
    for name, (features, examples) in blocks().items():
        codec = codec_of(features)
        records = [codec.encode(example) for example in examples]
        assert codec.encode_block(examples).records() == records
        block, each = (
            fastest(call, examples, seconds) * 1e6 / len(examples)
            for call in (codec.encode_block, lambda examples, codec=codec: list(map(codec.encode, examples)))
        )
        print(f"{name:<36}{block:>10.2f}{each:>10.2f}{block / each:>8.3f}{1e6 / block:>12,.0f}")
    rows = TableBlock(table(), features_of_schema(table().schema))
    codec = codec_of(rows.features)
    records = list(map(codec.encode, rows.table.to_pylist()))
    assert rows.records() == records
    block, each = (
        fastest(call, rows, seconds) * 1e6 / TABLE_ROWS
        for call in (TableBlock.record_block, lambda rows: list(map(codec.encode, rows.table.to_pylist())))
    )
    print(f"{'Arrow table of 6 columns':<36}{block:>10.2f}{each:>10.2f}{block / each:>8.3f}{1e6 / block:>12,.0f}")


def pictures() -> dict[str, np.ndarray[Any, np.dtype[np.uint8]]]:
    """A smooth picture with noise, a mask, and a digit."""
    chance = np.random.default_rng(0)
    rows, columns = np.mgrid[0:1000, 0:1000]
    smooth = 127 + 60 * np.sin(rows / 90) + 60 * np.cos(columns / 70)
    photo = (smooth[..., None] + chance.normal(0, 3, (1000, 1000, 3))).clip(0, 255).astype(np.uint8)
    mask = ((rows // 200 + columns // 250) % 5).astype(np.uint8)[..., None]
    digit = chance.integers(0, 17, (8, 8, 1), np.uint8)
    return {"photo 1000x1000x3": photo, "mask 1000x1000x1": mask, "digit 8x8x1": digit}


def with_pillow(picture: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    """The picture as PNG, written by Pillow."""
    file = io.BytesIO()
    Image.fromarray(picture if picture.shape[2] == 3 else picture[:, :, 0]).save(file, "png")
    return file.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.5)
    seconds = parser.parse_args().seconds
    print(f"{'Example, us a record':<28}{'ours':>10}{'protobuf':>10}{'ratio':>8}")
    for name, values in RECORDS.items():
        record = encode_example(values)
        for verb, value, calls in (
            ("write", values, (encode_example, with_protobuf)),
            ("read", record, (decode_example, read_with_protobuf)),
        ):
            ours, theirs = (fastest(call, value, seconds) * 1e6 for call in calls)
            print(f"{verb + ' ' + name:<28}{ours:>10.1f}{theirs:>10.1f}{ours / theirs:>8.2f}")
    print_blocks(seconds)
    print(f"\n{'PNG, MB/s of raw pixels':<28}{'ours':>10}{'Pillow':>10}{'ratio':>8}{'our size':>10}{'its size':>10}")
    for name, picture in pictures().items():
        ours, theirs = (picture.nbytes / fastest(call, picture, seconds) / 1e6 for call in (encode_png, with_pillow))
        our_size, its_size = (len(call(picture)) / picture.nbytes for call in (encode_png, with_pillow))
        print(f"{name:<28}{ours:>10.1f}{theirs:>10.1f}{ours / theirs:>8.2f}{our_size:>10.3f}{its_size:>10.3f}")


if __name__ == "__main__":
    main()
