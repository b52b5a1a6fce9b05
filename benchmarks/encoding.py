"""Measures deterministic encoding: our Example codec next to protobuf's, our PNG encoder next to Pillow's, in one run.

    python benchmarks/encoding.py [--seconds 0.5]

Fastest of five rounds each; the ratio (ours / theirs) is what can be compared between machines. Needs the extra
`image`.
"""

from __future__ import annotations

import argparse
import io
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from registry.features.png import encode_png
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
    timer = timeit.Timer(lambda: call(value))
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
    print(f"\n{'PNG, MB/s of raw pixels':<28}{'ours':>10}{'Pillow':>10}{'ratio':>8}{'our size':>10}{'its size':>10}")
    for name, picture in pictures().items():
        ours, theirs = (picture.nbytes / fastest(call, picture, seconds) / 1e6 for call in (encode_png, with_pillow))
        our_size, its_size = (len(call(picture)) / picture.nbytes for call in (encode_png, with_pillow))
        print(f"{name:<28}{ours:>10.1f}{theirs:>10.1f}{ours / theirs:>8.2f}{our_size:>10.3f}{its_size:>10.3f}")


if __name__ == "__main__":
    main()
