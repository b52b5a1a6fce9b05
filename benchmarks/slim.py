"""Measures items per second of a provider of the TF-Slim layer, next to tf-slim itself and tf.data, in one run.

    python benchmarks/slim.py                            every set, each peer once
    python benchmarks/slim.py --rounds 3 --sets vectors,png      the figures to quote, on an idle machine

Each figure is a process of its own that reads records one by one, or in batches of 128, on a warm page cache, and
is timed from the first item on: start-up time is not included. Sets: ``vectors`` (16 floats and a
label), ``boxes`` (a label and up to five boxes in lists of any length), ``png`` (28 by 28, grey), ``jpeg`` (224 by 224,
in colour). The same features and handlers everywhere; tf.data parses and decodes them in one ``map``, by one thread and
by as many as it likes ("tf.data, tuned"); for batches it parses what was batched, or batches decoded images.

tf-slim and TensorFlow are in the extra ``peers``. Its package does not import beside Keras 3, so that its data modules
are imported past it; where they use what TensorFlow no longer has, as for images, no figure is given.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

SIZES: Final = {"vectors": 200_000, "boxes": 100_000, "png": 40_000, "jpeg": 6_000}
ITEMS: Final = {
    "vectors": ["vector", "label"],
    "boxes": ["label", "boxes"],
    "png": ["image", "label"],
    "jpeg": ["image", "label"],
}
PEERS: Final = ["registry", "registry, 2 readers", "tf-slim", "tf.data", "tf.data, tuned"]
BATCH_PEERS: Final = ["registry, batches", "tf.data, batches", "tf.data, batches, tuned"]
BATCH_SIZE: Final = 128
SIDES: Final = ("ymin", "xmin", "ymax", "xmax")
FILES: Final = 4
QUIET: Final = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SIZES))
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of records")
    parser.add_argument("--seconds", type=float, default=4.0, help="that each figure takes at most")
    parser.add_argument("--rounds", type=int, default=1, help="number of counts; the fastest is reported")
    parser.add_argument("--folder", help="for the files, which are kept then")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, peer, shuffled = arguments.child
        seconds = arguments.seconds
        print(json.dumps(measure(name, peer, Path(arguments.folder), shuffled=shuffled == "True", seconds=seconds)))
        return
    with tempfile.TemporaryDirectory() as made:
        folder = Path(arguments.folder or made)
        for name in arguments.sets.split(","):
            write_set(name, folder, max(100, int(SIZES[name] * arguments.scale)))
            for shuffled in (False, True):
                report(name, folder, shuffled=shuffled, rounds=arguments.rounds, seconds=arguments.seconds)


def report(name: str, folder: Path, *, shuffled: bool, rounds: int, seconds: float) -> None:
    """Run every peer, and print what it reaches beside the first one."""
    print(f"\n{name}, {'shuffled in memory' if shuffled else 'as stored'}: records/s")
    for all_peers in (PEERS, BATCH_PEERS):
        peers = all_peers if find_spec("tensorflow") else [peer for peer in all_peers if peer.startswith("registry")]
        best: dict[str, float] = {}
        for _ in range(rounds):
            for peer in peers:
                found = run_child(name, peer, folder, shuffled=shuffled, seconds=seconds)
                if found is not None:
                    best[peer] = max(found, best.get(peer, 0.0))
        for peer in peers:
            speed = best.get(peer)
            beside = "does not run" if speed is None else f"{speed:12,.0f}   {best[peers[0]] / speed:6.2f}x"
            print(f"  {peer:24} {beside}")


def run_child(name: str, peer: str, folder: Path, *, shuffled: bool, seconds: float) -> float | None:
    """Records per second of one process; None where the peer does not run."""
    options = ["--folder", str(folder), "--seconds", str(seconds), "--child", name, peer, str(shuffled)]
    command = [sys.executable, __file__, *options]
    done = subprocess.run(command, env={**os.environ, **QUIET}, capture_output=True, text=True, check=False)
    if done.returncode:
        if not peer.startswith("tf-slim"):
            raise SystemExit(done.stderr)
        return None
    return float(json.loads(done.stdout.splitlines()[-1]))


def measure(name: str, peer: str, folder: Path, *, shuffled: bool, seconds: float) -> float:
    """Records per second from the first record, for this number of seconds or until the last record."""
    files = sorted(str(path) for path in folder.glob(f"{name}-*"))
    records = read_records(name, peer, files, shuffled=shuffled)
    in_batches = "batches" in peer
    next(records)
    start, count = time.perf_counter(), 0
    for element in records:
        count += len(element[0]) if in_batches else 1
        if (in_batches or count % 256 == 0) and time.perf_counter() - start > seconds:
            break
    return count / (time.perf_counter() - start)


def read_records(name: str, peer: str, files: list[str], *, shuffled: bool) -> Iterator[Any]:
    match peer.partition(",")[0]:
        case "registry":
            num_readers = 2 if "2" in peer else 1
            return read_with_registry(
                name, files, num_readers=num_readers, shuffled=shuffled, in_batches="batches" in peer
            )
        case "tf-slim":
            return read_with_tf_slim(name, files, shuffled=shuffled)
    return read_with_tf_data(name, files, shuffled=shuffled, in_batches="batches" in peer, tuned="tuned" in peer)


def read_with_registry(
    name: str, files: list[str], *, num_readers: int, shuffled: bool, in_batches: bool
) -> Iterator[Any]:
    from registry import slim

    dataset = slim.Dataset(
        files, slim.TFRecordReader, make_decoder(name, slim, "string", "float32", "int64"), None, None
    )
    with slim.DatasetDataProvider(dataset, num_readers=num_readers, shuffle=shuffled, num_epochs=1, seed=1) as provider:
        items = ITEMS[name]
        if in_batches:
            yield from provider.batches(items, BATCH_SIZE)
            return
        while True:
            try:
                yield provider.get(items)
            except slim.OutOfRangeError:
                return


def read_with_tf_slim(name: str, files: list[str], *, shuffled: bool) -> Iterator[Any]:
    import tensorflow as tf

    package = types.ModuleType("tf_slim")
    found = find_spec("tf_slim")
    assert found is not None
    package.__path__ = list(found.submodule_search_locations or ())
    sys.modules["tf_slim"] = package
    from tf_slim.data import dataset, dataset_data_provider, tfexample_decoder

    names = types.SimpleNamespace(
        FixedLenFeature=tf.io.FixedLenFeature,
        VarLenFeature=tf.io.VarLenFeature,
        **{one: getattr(tfexample_decoder, one) for one in ("Tensor", "Image", "BoundingBox", "TFExampleDecoder")},
    )
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        decoder = make_decoder(name, names, tf.string, tf.float32, tf.int64)
        described = dataset.Dataset(files, v1.TFRecordReader, decoder, 0, None)
        provider = dataset_data_provider.DatasetDataProvider(described, shuffle=shuffled, num_epochs=1)
        tensors = provider.get(ITEMS[name])
        with v1.Session() as session:
            session.run(v1.local_variables_initializer())
            coordinator = tf.train.Coordinator()
            threads = v1.train.start_queue_runners(session, coordinator)
            try:
                while True:
                    yield session.run(tensors)
            except tf.errors.OutOfRangeError:
                return
            finally:
                coordinator.request_stop()
                coordinator.join(threads)


def read_with_tf_data(name: str, files: list[str], *, shuffled: bool, in_batches: bool, tuned: bool) -> Iterator[Any]:
    import tensorflow as tf

    features = make_features(name, tf.io, tf.string, tf.float32, tf.int64)

    def decode(record: Any) -> Any:
        parsed = tf.io.parse_single_example(record, features)
        match name:
            case "vectors":
                return parsed["vector"], parsed["label"]
            case "boxes":
                return parsed["label"], tf.stack([parsed[f"bbox/{side}"].values for side in SIDES], 1)
            case "png":
                return tf.io.decode_image(parsed["image/encoded"], channels=1), parsed["label"]
        return tf.io.decode_jpeg(parsed["image/encoded"], 3), parsed["label"]

    records = tf.data.TFRecordDataset(files)
    if shuffled:
        records = records.shuffle(256)

    def decode_many(batch: Any) -> Any:
        parsed = tf.io.parse_example(batch, features)
        if name == "vectors":
            return parsed["vector"], parsed["label"]
        ragged = [tf.RaggedTensor.from_sparse(parsed[f"bbox/{side}"]) for side in SIDES]
        return parsed["label"], tf.stack(ragged, 2)

    num_calls = tf.data.AUTOTUNE if tuned else None
    if in_batches and name in ("vectors", "boxes"):
        decoded = records.batch(BATCH_SIZE).map(decode_many, num_parallel_calls=num_calls)
    else:
        decoded = records.map(decode, num_parallel_calls=num_calls)
        decoded = decoded.batch(BATCH_SIZE) if in_batches else decoded
    return iter((decoded.prefetch(tf.data.AUTOTUNE) if tuned else decoded).as_numpy_iterator())


def make_features(name: str, names: Any, string: Any, float32: Any, int64: Any) -> dict[str, Any]:
    """The features of a set, by anybody's classes of that name."""
    label = {"label": names.FixedLenFeature((), int64)}
    match name:
        case "vectors":
            return {"vector": names.FixedLenFeature((16,), float32), **label}
        case "boxes":
            return {f"bbox/{side}": names.VarLenFeature(float32) for side in SIDES} | label
    image = {key: names.FixedLenFeature((), string, default_value="") for key in ("image/encoded", "image/format")}
    return {**image, **label}


def make_decoder(name: str, names: Any, string: Any, float32: Any, int64: Any) -> Any:
    """The decoder of a set, by anybody's classes of that name."""
    label = {"label": names.Tensor("label")}
    match name:
        case "vectors":
            handlers = {"vector": names.Tensor("vector"), **label}
        case "boxes":
            handlers = {"boxes": names.BoundingBox(prefix="bbox/"), **label}
        case _:
            handlers = {"image": names.Image(channels=1 if name == "png" else 3), **label}
    return names.TFExampleDecoder(make_features(name, names, string, float32, int64), handlers)


def write_set(name: str, folder: Path, num_records: int) -> None:
    """The set's files, of records that differ."""
    from registry.tfrecord import RecordWriter
    from registry.wire import encode_example

    random = np.random.default_rng(7)
    some = [
        encode_example(make_example(name, random)) for _ in range(min(num_records, 500 if name == "jpeg" else 5000))
    ]
    for number in range(FILES):
        filename = f"{name}-{number:05d}-of-{FILES:05d}"
        with (folder / filename).open("wb") as file:
            writer = RecordWriter(file)
            for place in range(number, num_records, FILES):
                writer.write(some[place % len(some)])


def make_example(name: str, random: np.random.Generator) -> dict[str, Any]:
    label = {"label": random.integers(10, size=1)}
    match name:
        case "vectors":
            return {"vector": random.random(16, np.float32), **label}
        case "boxes":
            count = int(random.integers(6))
            return {f"bbox/{side}": random.random(count, np.float32) for side in SIDES} | label
        case "png":
            return {"image/encoded": [make_png(random)], "image/format": [b"png"], **label}
    return {"image/encoded": [make_jpeg(random)], "image/format": [b"jpeg"], **label}


def make_png(random: np.random.Generator) -> bytes:
    """A stroke on black, as in MNIST, compressed as TensorFlow does."""
    from PIL import Image

    pixels = np.zeros((28, 28), np.uint8)
    row, column = random.integers(4, 20, size=2)
    pixels[row : row + 6, column - 3 : column + 6] = random.integers(100, 256, (6, 9))[: 28 - row, : 31 - column]
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def make_jpeg(random: np.random.Generator) -> bytes:
    """Soft patches of colour with some noise: about as many bytes as a photograph of this size."""
    from PIL import Image

    small = Image.fromarray(random.integers(0, 256, (14, 14, 3), dtype=np.uint8))
    pixels = np.asarray(small.resize((224, 224), Image.Resampling.BICUBIC)).astype(np.int16)
    noisy = (pixels + random.integers(-12, 13, pixels.shape)).clip(0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(noisy).save(file, "JPEG", quality=90)
    return file.getvalue()


if __name__ == "__main__":
    main()
