"""Measures the statistics of a version beside its publication: CPU time of this process, which does both alone.

    python benchmarks/describing.py [--records 200000] [--only int64] [--pairs 3]

"fold" is the fold of statistics over blocks of records, with the search for duplicates, "digests" the fold of
fingerprints over the same blocks, and "publish" the whole of ``catalog.add``, with both; each in nanoseconds a record.
"share" is fold / publish.

"added" is what statistics add to a publication: the median difference between ``catalog.add`` and the same without the
fold of statistics, which alternate. It includes what the fold alone does not show, such as memory and caches that both
need, and it varies more. "of without" is its share of the publications without statistics.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

import registry
from registry.features import ClassLabel, FeaturesDict, Image, Scalar, Sequence, Tensor, Text, codec_of
from registry.features.fold import FingerprintFold, SplitFold
from registry.images import encode_png
from registry.statistics import StatisticsFold, statistics_of
from registry.statistics.fold import FoldedSplit
from registry.tfrecord import frame_records

BLOCK = 4096
WIDTHS = (9, 9, 9, 7, 9, 11)
CHANCE = np.random.default_rng(0)
WORDS = np.array(["data", "set", "of", "many", "words", "that", "repeat", "in", "every", "row"])


def texts(count: int) -> list[str]:
    """Texts of eight words and a number."""
    words = CHANCE.choice(WORDS, (count, 8))
    return [f"{' '.join(row)} {number}" for number, row in enumerate(words.tolist())]


def images(count: int) -> list[bytes]:
    """PNG files of 28 x 28 pixels."""
    files = [encode_png(CHANCE.integers(0, 256, (28, 28, 1), np.uint8)) for _ in range(100)]
    return [files[place % 100] for place in range(count)]


SETS: dict[str, tuple[FeaturesDict, Callable[[int], dict[str, Any]]]] = {
    "int64, few values": (FeaturesDict({"x": "int64"}), lambda n: {"x": CHANCE.integers(0, 100, n)}),
    "int64": (FeaturesDict({"x": "int64"}), lambda n: {"x": CHANCE.integers(0, 10**9, n)}),
    "float32": (FeaturesDict({"x": "float32"}), lambda n: {"x": CHANCE.normal(size=n).astype(np.float32)}),
    "float64": (
        FeaturesDict({"x": Scalar("float64", encoding="bytes")}),
        lambda n: {"x": CHANCE.normal(size=n)},
    ),
    "8 numbers": (
        FeaturesDict({f"x{place}": "float32" if place % 2 else "int64" for place in range(8)}),
        lambda n: {
            f"x{place}": CHANCE.normal(size=n).astype(np.float32) if place % 2 else CHANCE.integers(0, 10**6, n)
            for place in range(8)
        },
    ),
    "text": (FeaturesDict({"x": Text()}), lambda n: {"x": texts(n)}),
    "text, few values": (FeaturesDict({"x": Text()}), lambda n: {"x": CHANCE.choice(WORDS, n).tolist()}),
    "label": (FeaturesDict({"x": ClassLabel(num_classes=10)}), lambda n: {"x": CHANCE.integers(0, 10, n)}),
    "image": (FeaturesDict({"x": Image(shape=(28, 28, 1))}), lambda n: {"x": images(n)}),
    "64 float32": (
        FeaturesDict({"x": Tensor(shape=(64,), dtype="float32")}),
        lambda n: {"x": CHANCE.normal(size=(n, 64)).astype(np.float32)},
    ),
    "sequence": (
        FeaturesDict({"x": Sequence("int64")}),
        lambda n: {"x": [list(range(number % 5)) for number in range(n)]},
    ),
}


def measure(features: FeaturesDict, columns: dict[str, Any], count: int) -> list[float]:
    """Nanoseconds of CPU a record of the two folds and of the publication."""
    codec = codec_of(features)
    examples = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    frames = frame_records([codec.encode(example) for example in examples])
    result = []
    for kind in (StatisticsFold, FingerprintFold):
        fold = SplitFold(features, [kind])
        blocks = [
            codec.flat_records(*frames.part(start, min(start + BLOCK, count)).payloads(), start=start)
            for start in range(0, count, BLOCK)
        ]
        start = time.process_time()
        for block in blocks:
            fold.add_block(block)
        for folded in fold.results() or ():
            if isinstance(folded, FoldedSplit):
                statistics_of({"train": folded})
        result.append(time.process_time() - start)
    result.append(publish(features, columns))
    return [seconds / count * 1e9 for seconds in result]


def publish(features: FeaturesDict, columns: dict[str, Any]) -> float:
    """Seconds of CPU of a publication."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = registry.connect(f"{folder}/catalog.db", data_dir=f"{folder}/data")
        start = time.process_time()
        catalog.add(columns, "measured", features=dict(features), processes=1, show=0)
        return time.process_time() - start


def compare(features: FeaturesDict, columns: dict[str, Any], pairs: int) -> tuple[float, float]:
    """Seconds of CPU that statistics add to a publication, and of publications without them: medians of ``pairs``."""
    added, without = [], []
    for _ in range(pairs):
        with mock.patch.object(StatisticsFold, "add", return_value=None):
            without.append(publish(features, columns))
        added.append(publish(features, columns) - without[-1])
    return statistics.median(added), statistics.median(without)


def main() -> int:
    """Print a line for each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--pairs", type=int, default=3, help="publications with and without statistics")
    arguments = parser.parse_args()
    names = ("fold", "digests", "publish", "share", "added", "of without")
    print(
        f"{'set':20}", *(f"{name:>{width}}" for name, width in zip(names, WIDTHS, strict=True)), "  ns of CPU a record"
    )
    for name, (features, make) in SETS.items():
        if arguments.only in name:
            count = arguments.records // (10 if name in ("image", "64 float32") else 1)
            columns = make(count)
            fold, digests, whole = measure(features, columns, count)
            cells = [f"{fold:,.0f}", f"{digests:,.0f}", f"{whole:,.0f}", f"{fold / whole:.1%}"]
            if arguments.pairs:
                added, without = compare(features, columns, arguments.pairs)
                cells += [f"{added / count * 1e9:,.0f}", f"{added / without:.1%}"]
            print(f"{name:20}", *(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=False)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
