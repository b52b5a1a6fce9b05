"""Folds over the records of a split: their memory, and states of parts that are merged."""

from __future__ import annotations

import hashlib
import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from registry.features import FeaturesDict, Image, codec_of
from registry.features.fold import FingerprintFold, RecordsFold, SplitFold
from registry.model import LEAF_EXAMPLES
from registry.statistics import StatisticsFold, statistics_of
from registry.tfrecord import frame_records

LEAVES, TIMES = 60, 1000
FINGERPRINTS: list[Any] = [FingerprintFold]
KINDS: list[Any] = [FingerprintFold, StatisticsFold]


def test_a_fold_holds_32_bytes_for_each_leaf_and_feature() -> None:
    features = FeaturesDict({"id": "int64", "price": "int64"})
    encoded = codec_of(features).encode({"id": 7, "price": 3})
    payloads = frame_records([encoded] * (LEAVES * LEAF_EXAMPLES)).payloads()
    folder, fold = RecordsFold(features, FINGERPRINTS), SplitFold(features, FINGERPRINTS)
    digests = LEAVES * TIMES * 32 * len(features)
    tracemalloc.start()
    try:
        sent = pickle.dumps(folder([payloads]))
        for _ in range(TIMES):  # each result of a worker has memory of its own
            fold.merge(pickle.loads(sent))  # noqa: S301 (our own)
        current, _ = tracemalloc.get_traced_memory()
        results = fold.results()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert current < 1.3 * digests
    assert most < 1.6 * digests + 4 * 2**20, "the digests are not copied"
    fingerprint = results[0]
    state = pickle.loads(sent)[0]  # noqa: S301 (our own)
    assert fingerprint.features["id"].digest == hashlib.sha256(state.of_features[0] * TIMES).hexdigest()
    assert len(fingerprint.features["id"].blocks) == fingerprint.num_blocks


@pytest.mark.parametrize("num_records", [1, LEAF_EXAMPLES - 1, LEAF_EXAMPLES, LEAF_EXAMPLES + 1, 3 * LEAF_EXAMPLES + 7])
def test_parts_that_are_merged_give_the_result_of_the_whole(num_records: int) -> None:
    features = FeaturesDict({"id": "int64", "image": Image(shape=(1, 1, 1))})
    encode = codec_of(features).encode
    records = [encode({"id": i, "image": np.full((1, 1, 1), i, np.uint8)}) for i in range(251)]
    frames = frame_records([records[i % 251] for i in range(num_records)])
    whole, merged = SplitFold(features, KINDS), SplitFold(features, KINDS)
    for start in range(0, num_records, 700):
        whole.add(*frames.part(start, min(start + 700, num_records)).payloads())
    folder = pickle.loads(pickle.dumps(RecordsFold(features, KINDS)))  # noqa: S301 (our own)
    for start in range(0, num_records, 2 * LEAF_EXAMPLES):
        part = frames.part(start, min(start + 2 * LEAF_EXAMPLES, num_records))
        merged.merge(pickle.loads(pickle.dumps(folder([part.payloads()]))))  # noqa: S301 (our own)
    assert comparable(whole) == comparable(merged)


def comparable(fold: SplitFold) -> list[Any]:
    """The results, with the number of equal records instead of their digests."""
    fingerprint, statistics = fold.results() or ()
    return [fingerprint, statistics_of({"train": statistics})]


def test_threads_can_share_the_function_of_a_piece() -> None:
    features = FeaturesDict({"id": "int64"})
    encode = codec_of(features).encode
    parts = [frame_records([encode({"id": i})] * (20 * LEAF_EXAMPLES)).payloads() for i in range(8)]
    folder = RecordsFold(features, KINDS)
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda part: folder([part]), parts * 5))
    digests = [states[0].of_features for states in results if states is not None]
    assert digests == [RecordsFold(features, KINDS)([part])[0].of_features for part in parts] * 5  # type: ignore[index]


def test_a_part_within_a_leaf_cannot_be_followed_by_another() -> None:
    features = FeaturesDict({"id": "int64"})
    payloads = frame_records([codec_of(features).encode({"id": 7})]).payloads()
    fold = SplitFold(features, KINDS)
    fold.merge(RecordsFold(features, KINDS)([payloads]))
    with pytest.raises(AssertionError, match="ends within a leaf, after 1 records"):
        fold.merge(RecordsFold(features, KINDS)([payloads]))


def test_a_damaged_record_leaves_the_results_to_the_reader_of_the_files() -> None:
    features = FeaturesDict({"id": "int64"})
    good = codec_of(features).encode({"id": 7})
    for bad in (b"\xff", codec_of(FeaturesDict({"id": "str"})).encode({"id": "x"})):
        fold = SplitFold(features, KINDS)
        fold.add(*frame_records([good, bad]).payloads())
        fold.add(*frame_records([good]).payloads())
        assert fold.results() is None
