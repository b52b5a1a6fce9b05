"""Measures the decoding of records: by block and one by one, compared with protobuf, in one run.

    python benchmarks/decoding.py [--seconds 0.5] [--only A]
    python benchmarks/decoding.py --images

Nanoseconds a record, fastest of five rounds each; differences below a third mean little. The sets: A, 100 bytes in four
features; B, 800 bytes, an image as bytes or as text, and a label; C, 110 KB. "any" has keys in four orders, integers of
one to ten bytes and texts of 1 to 20; "shuffled" has the records of a block in random order.

``--images`` measures blocks of 192 pictures of 224 x 224 pixels instead, in Sequences of four, too, as images a second
and as milliseconds of all processors for each: by a block, at a part of the size, one by one, and by the library alone
(libjpeg-turbo in simplejpeg for JPEG, Pillow for PNG) in as many threads as there are cores. Where TensorFlow is
installed, a process of its own parses and decodes the same records by tf.data with parallel calls that it tunes itself.
On a busy machine compare the milliseconds.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import time
import timeit
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from registry.features import ClassLabel, FeaturesDict, Image, ImageDecoding, Scalar, Sequence, Tensor, Text, codec_of
from registry.wire import encode_example
from registry.wire.varint import write_varint

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks.encoding import read_with_protobuf

Block = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]

A = FeaturesDict(
    {"label": Scalar("int64"), "vec": Tensor(shape=(8,), dtype="float32"), "id": Text(), "score": "float32"}
)
B = FeaturesDict(
    {"image": Tensor(shape=(28, 28), dtype="uint8", encoding="bytes"), "label": ClassLabel(num_classes=10)}
)
B_TEXT = FeaturesDict({"image": Text(), "label": ClassLabel(num_classes=10)})
C = FeaturesDict({"image": Tensor(shape=(192, 192, 3), dtype="uint8", encoding="bytes"), "label": Scalar("int64")})


def example_of(features: FeaturesDict, number: int, chance: np.random.Generator, *, any_size: bool) -> dict[str, Any]:
    """An example of A, B or C."""
    if features is A:
        return {
            "label": int(chance.integers(-(2**63), 2**63)) >> int(chance.integers(0, 64)) if any_size else number % 10,
            "vec": chance.random(8, np.float32),
            "id": chance.bytes(int(chance.integers(1, 21))) if any_size else f"example-{number:07}",
            "score": chance.random(dtype=np.float32),
        }
    size = 28 * 28 if features is not C else 192 * 192 * 3
    image = np.frombuffer(chance.bytes(size), np.uint8)
    return {
        "label": number % 10,
        "image": image.tobytes() if features is B_TEXT else image.reshape(features["image"].shape),
    }


def block_of(features: FeaturesDict, count: int, *, any_size: bool = False, shuffled: bool = False) -> Block:
    """Records as stored in a shard, with 16 bytes of framing between them."""
    chance = np.random.default_rng(0)
    orders = [chance.permutation(len(features)) for _ in range(4 if any_size else 1)]
    if not any_size:
        orders[0].sort()
    records = []
    for number in range(count):
        flat = codec_of(features).flatten(example_of(features, number, chance, any_size=any_size))
        entries = [encode_example({key: value}) for key, value in flat.items()]
        entries = [entry[1 + len(write_varint(len(entry) - 2)) :] for entry in entries]
        content = b"".join(entries[place] for place in orders[chance.integers(len(orders))])
        records.append(b"\x0a" + write_varint(len(content)) + content)
    data = np.frombuffer(b"".join(bytes(12) + record + bytes(4) for record in records), np.uint8)
    lengths = np.array([len(record) for record in records])
    offsets = (lengths + 16).cumsum() - lengths - 4
    order = chance.permutation(count) if shuffled else np.arange(count)
    return data, offsets[order], lengths[order]


def records_of(block: Block) -> Iterator[bytes]:
    """The records one by one."""
    data, offsets, lengths = block
    for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True):
        yield data[offset : offset + length].tobytes()


def exhaust(iterator: Iterator[Any]) -> None:
    """Takes everything from it."""
    deque(iterator, maxlen=0)


def ways(features: FeaturesDict, block: Block) -> dict[str, Callable[[], Any]]:
    """What is measured, by its name."""
    return {
        "columns": lambda: codec_of(features).decode_block(*block).columns(),
        "col. no copy": lambda: codec_of(features).decode_block(*block, copy=False).columns(),
        "examples": lambda: exhaust(codec_of(features).decode_block(*block).examples()),
        "ex. no copy": lambda: exhaust(codec_of(features).decode_block(*block, copy=False).examples()),
        "one by one": lambda: exhaust(map(codec_of(features).decode, records_of(block))),
        "protobuf": lambda: exhaust(map(read_with_protobuf, records_of(block))),
    }


def fastest(call: Callable[[], Any], seconds: float) -> float:
    """Seconds of one ``call()``: the fastest of five rounds that together take about ``seconds``."""
    timer = timeit.Timer(call)
    number = max(1, int(seconds / 5 / min(timer.repeat(number=1, repeat=2))))
    return min(timer.repeat(number=number, repeat=5)) / number


def picture(chance: np.random.Generator, form: str) -> bytes:
    """A picture with slopes and noise, as a file."""
    from PIL import Image as Pillow

    y, x = np.mgrid[:224, :224]
    smooth = np.stack([(np.sin(y / 17 + color) + np.cos(x / (11 + color))) * 60 + 128 for color in range(3)], 2)
    file = io.BytesIO()
    noisy = np.clip(smooth + chance.normal(0, 8, smooth.shape), 0, 255).astype(np.uint8)
    Pillow.fromarray(noisy).save(file, form, quality=90)
    return file.getvalue()


def decode_alone(files: list[bytes], threads: ThreadPoolExecutor) -> None:
    """Decode ``files`` by the library alone, into one array."""
    import simplejpeg
    from PIL import Image as Pillow

    batch = np.empty((len(files), 224, 224, 3), np.uint8)

    def decode(start: int) -> None:
        for place in range(start, min(start + 12, len(files))):
            if files[place].startswith(b"\xff\xd8"):
                simplejpeg.decode_jpeg(files[place], "RGB", buffer=batch[place])
            else:
                batch[place] = np.asarray(Pillow.open(io.BytesIO(files[place])))

    deque(threads.map(decode, range(0, len(files), 12)), maxlen=0)


def image_ways(form: str, threads: ThreadPoolExecutor) -> dict[str, Callable[[], Any]]:
    """What is measured of 192 images, by its name."""
    chance = np.random.default_rng(0)
    files = [picture(chance, form) for _ in range(192)]
    features = FeaturesDict({"image": Image(shape=(224, 224, 3))})
    clips = FeaturesDict({"image": Sequence(Image(shape=(224, 224, 3)))})
    records = [codec_of(features).encode({"image": file}) for file in files]
    lists = [codec_of(clips).encode({"image": files[start : start + 4]}) for start in range(0, len(files), 4)]

    def read(features: FeaturesDict, records: list[bytes]) -> Callable[[], Any]:
        lengths = np.array(list(map(len, records)))
        block = np.frombuffer(b"".join(records), np.uint8), lengths.cumsum() - lengths, lengths
        return lambda: codec_of(features).decode_block(*block).columns()

    scaled = {
        f"1/{ratio}": read(features.decode_images({"image": ImageDecoding(ratio=ratio)}), records)
        for ratio in (2, 4, 8)
    }
    return {
        "block": read(features, records),
        **scaled,
        "sequences": read(clips, lists),
        "one by one": lambda: exhaust(map(codec_of(features).decode, records)),
        "library": lambda: decode_alone(files, threads),
    }


def records_of_images(form: str) -> list[bytes]:
    """192 records with a picture each."""
    chance = np.random.default_rng(0)
    features = FeaturesDict({"image": Image(shape=(224, 224, 3))})
    return [codec_of(features).encode({"image": picture(chance, form)}) for _ in range(192)]


def decode_by_tensorflow(form: str) -> None:
    """For each line of standard input, print the time that tf.data takes for 192 pictures, of the clock and of cores.

    tf.data decodes ahead. Its answer is therefore the mean of many batches after those that were ready, and comes when
    it has stopped, so that it neither gains from the time of others nor takes it.
    """
    import tensorflow as tf

    def decode(record: Any) -> Any:
        parsed = tf.io.parse_single_example(record, {"image": tf.io.FixedLenFeature([], tf.string)})
        return (tf.io.decode_jpeg if form == "JPEG" else tf.io.decode_png)(parsed["image"], 3)

    records = tf.data.Dataset.from_tensor_slices(records_of_images(form)).repeat()
    batches = iter(records.map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(192))
    for _ in sys.stdin:
        deque(islice(batches, 5), maxlen=0)
        seconds, processors = timed(lambda: deque((batch.numpy() for batch in islice(batches, 20)), maxlen=0))
        time.sleep(0.3)
        print(seconds / 20, processors / 20, flush=True)


def timed(call: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of ``call()``, by the clock and of all cores of this process."""
    start, processors = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - start, time.process_time() - processors


def ask(peer: subprocess.Popen[str]) -> tuple[float, float]:
    """The times of the next batch of ``decode_by_tensorflow``."""
    assert peer.stdin is not None
    assert peer.stdout is not None
    peer.stdin.write("\n")
    peer.stdin.flush()
    seconds, processors = map(float, peer.stdout.readline().split())
    return seconds, processors


def measure_images(form: str, rounds: int = 15) -> None:
    """Print two lines; the ways take turns, so that each meets the same other load."""
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(os.cpu_count()))
        calls = {way: partial(timed, call) for way, call in image_ways(form, threads).items()}
        if find_spec("tensorflow"):
            command = [sys.executable, __file__, "--tensorflow", form]
            quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
            peer = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=quiet)
            )
            ask(peer)  # it starts, and tunes itself
            calls["tf.data"] = partial(ask, peer)
        times: dict[str, list[tuple[float, float]]] = {way: [] for way in calls}
        for _ in range(rounds):
            for way, call in calls.items():
                times[way].append(call())
    print(f"{form:<16}" + "".join(f"{way:>12}" for way in calls))
    print(f"{'images/s':<16}" + "".join(f"{192 / min(pairs)[0]:>12,.0f}" for pairs in times.values()))
    least = [min(processors for _, processors in pairs) for pairs in times.values()]
    print(f"{'ms of cores':<16}" + "".join(f"{1000 * seconds / 192:>12.3f}" for seconds in least), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--only", default="", help="sets whose name starts so")
    parser.add_argument("--images", action="store_true", help="measure JPEG and PNG instead")
    parser.add_argument("--tensorflow", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.tensorflow:
        decode_by_tensorflow(arguments.tensorflow)
        return
    if arguments.images:
        measure_images("JPEG")
        measure_images("PNG")
        return
    sets: dict[str, tuple[FeaturesDict, int, dict[str, bool]]] = {
        "A": (A, 8192, {}),
        "A shuffled": (A, 8192, {"shuffled": True}),
        "A any": (A, 8192, {"any_size": True}),
        "A any shuffled": (A, 8192, {"any_size": True, "shuffled": True}),
        "B": (B, 8192, {}),
        "B shuffled": (B, 8192, {"shuffled": True}),
        "B text": (B_TEXT, 8192, {}),
        "C": (C, 512, {}),
        "C shuffled": (C, 512, {"shuffled": True}),
    }
    names = list(ways(A, block_of(A, 1)))
    print(f"{'ns a record':<16}" + "".join(f"{name:>14}" for name in names))
    for name, (features, count, options) in sets.items():
        if name.startswith(arguments.only):
            block = block_of(features, count, **options)
            calls = ways(features, block)
            found = [fastest(calls[way], arguments.seconds) / count * 1e9 for way in names]
            print(f"{name:<16}" + "".join(f"{time:>14,.0f}" for time in found), flush=True)


if __name__ == "__main__":
    main()
