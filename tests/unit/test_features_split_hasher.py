"""The fingerprint of a split is computed in little more memory than the digests of its leaves."""

from __future__ import annotations

import hashlib
import pickle
import tracemalloc

from registry.features import FeaturesDict, codec_of
from registry.features.split_hasher import LeafHasher, SplitHasher
from registry.model import LEAF_EXAMPLES
from registry.tfrecord import frame_records

LEAVES, TIMES = 60, 1000


def test_a_hasher_holds_32_bytes_for_each_leaf_and_feature() -> None:
    features = FeaturesDict({"id": "int64", "price": "int64"})
    encoded = codec_of(features).encode({"id": 7, "price": 3})
    payloads = frame_records([encoded] * (LEAVES * LEAF_EXAMPLES)).payloads()
    leaf_hasher, hasher = LeafHasher(features), SplitHasher(features)
    digests = LEAVES * TIMES * 32 * len(features)
    tracemalloc.start()
    try:
        sent = pickle.dumps(leaf_hasher(payloads))
        for _ in range(TIMES):  # each result of a worker has memory of its own
            hasher.add_leaves(pickle.loads(sent), num_examples=LEAVES * LEAF_EXAMPLES)  # noqa: S301 (our own)
        held, _ = tracemalloc.get_traced_memory()
        found = hasher.fingerprint()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1.3 * digests
    assert most < 1.6 * digests + 4 * 2**20, "the digests are not copied"
    assert found is not None
    assert found.features["id"].digest == hashlib.sha256(pickle.loads(sent)[0] * TIMES).hexdigest()  # noqa: S301 (our own)
    assert len(found.features["id"].blocks) == found.num_blocks
