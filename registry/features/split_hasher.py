"""Computes the fingerprint of a split while its records are written, so that publishing need not read them again.

    framed records -> leaves of 1,024 records -> digests -> SplitFingerprint

``registry.model`` defines the digests. ``registry.publishing.fingerprint`` computes the same from stored files.
"""

from __future__ import annotations

import hashlib
from typing import Any

from registry.features.containers import FeaturesDict
from registry.features.content import ContentReader
from registry.model import LEAF_EXAMPLES, FeatureFingerprint, SplitFingerprint
from registry.wire.gather import Octets, Places


class SplitHasher:
    """Hashes the records of a split in their stored order.

    It does so only if whole blocks can be hashed at once. Otherwise, for example if images have to be decoded,
    ``fingerprint`` returns None: computing it later, in several processes, takes less time.

    >>> import numpy as np
    >>> from registry.features import codec_of
    >>> hasher = SplitHasher(FeaturesDict({"id": "int64"}))
    >>> record = codec_of(hasher.features).encode({"id": 7})
    >>> hasher.add(np.frombuffer(record, np.uint8), np.array([0]), np.array([len(record)]))
    >>> hasher.fingerprint().features["id"].digest[:8]
    'ebca7050'
    """

    def __init__(self, features: FeaturesDict) -> None:
        self.features = features
        self._reader = ContentReader(features)
        self._digests: list[list[bytes]] = [[] for _ in self._reader.paths]
        self._hashers: list[Any] = []
        self._is_possible = self._reader.reads_blocks
        self._num_examples = 0

    def add(self, data: Octets, offsets: Places, lengths: Places) -> None:
        """Hash the next records: record i is ``data[offsets[i] : offsets[i] + lengths[i]]``."""
        start = 0
        while self._is_possible and start < offsets.size:
            if self._num_examples % LEAF_EXAMPLES == 0:
                self._end_leaf()
                self._hashers = [hashlib.sha256() for _ in self._digests]
            stop = min(offsets.size, start + LEAF_EXAMPLES - self._num_examples % LEAF_EXAMPLES)
            self._is_possible = self._reader.hash_block(data, offsets[start:stop], lengths[start:stop], self._hashers)
            self._num_examples += stop - start
            start = stop

    def fingerprint(self) -> SplitFingerprint | None:
        """The fingerprint of the records so far, or None if it has to be computed from the files."""
        if not self._is_possible:
            return None
        self._end_leaf()
        return SplitFingerprint(
            num_examples=self._num_examples,
            features={
                path: FeatureFingerprint.of_leaves(digests, num_examples=self._num_examples)
                for path, digests in zip(self._reader.paths, self._digests, strict=True)
            },
        )

    def _end_leaf(self) -> None:
        for digests, hasher in zip(self._digests, self._hashers, strict=False):
            digests.append(hasher.digest())
        self._hashers = []
