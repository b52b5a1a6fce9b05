"""Computes the fingerprint of a split while its records are written, so that publishing need not read them again.

    framed records -> leaves of 1,024 records -> digests -> SplitFingerprint

``registry.model`` defines the digests. ``registry.publishing.fingerprint`` computes the same from stored files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
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

    Attributes:
        features: the schema.
        is_possible: whether the fingerprint can be computed in this way, as far as is known.
    """

    def __init__(self, features: FeaturesDict) -> None:
        self.features = features
        self._reader = ContentReader(features)
        # One buffer for each feature: objects for each leaf would take two times the memory of their 32 bytes.
        self._digests = [bytearray() for _ in self._reader.paths]
        self._leaves: list[list[Any]] = []  # the hashes of those that may get more records
        self._num_examples = 0
        self.is_possible = self._reader.reads_blocks

    def add(self, data: Octets, offsets: Places, lengths: Places) -> None:
        """Hash the next records: record i is ``data[offsets[i] : offsets[i] + lengths[i]]``."""
        runs: list[tuple[int, list[Any]]] = []
        left = offsets.size
        while self.is_possible and left:
            before = self._num_examples % LEAF_EXAMPLES
            if not before:
                self._leaves.append([hashlib.sha256() for _ in self._digests])
            count = min(left, LEAF_EXAMPLES - before)
            runs.append((count, self._leaves[-1]))
            self._num_examples += count
            left -= count
        self.is_possible = self.is_possible and self._reader.hash_block(data, offsets, lengths, runs)
        self._end_leaves(self._leaves[:-1])
        del self._leaves[:-1]

    def add_leaves(self, leaves: Sequence[bytes | bytearray] | None, *, num_examples: int) -> None:
        """Add the result of ``LeafHasher`` for the next ``num_examples`` records, after whole leaves."""
        self._num_examples += num_examples
        if leaves is None or not self.is_possible:
            self.is_possible = False
            return
        for digests, leaf in zip(self._digests, leaves, strict=True):
            digests.extend(leaf)

    def fingerprint(self) -> SplitFingerprint | None:
        """The fingerprint of the records so far, or None if it has to be computed from the files."""
        leaves = self.leaves()
        if leaves is None:
            return None
        return SplitFingerprint(
            num_examples=self._num_examples,
            features={
                path: FeatureFingerprint.of_leaves(digests, num_examples=self._num_examples)
                for path, digests in zip(self._reader.paths, leaves, strict=True)
            },
        )

    def leaves(self) -> list[bytearray] | None:
        """The digests of all leaves, joined, for each feature; or None if they have to be computed from the files.

        No record can be added to the last leaf afterwards.
        """
        if not self.is_possible:
            return None
        self._end_leaves(self._leaves)
        self._leaves.clear()
        return self._digests

    def _end_leaves(self, leaves: list[list[Any]]) -> None:
        for hashers in leaves:
            for digests, hasher in zip(self._digests, hashers, strict=True):
                digests.extend(hasher.digest())


class LeafHasher:
    """The function of a piece of work: hashes records that start at a leaf. It keeps what it learns about records."""

    def __init__(self, features: FeaturesDict) -> None:
        self._features = features
        self._reader = ContentReader(features)

    def __reduce__(self) -> tuple[type[LeafHasher], tuple[FeaturesDict]]:
        return LeafHasher, (self._features,)

    def __call__(self, records: tuple[Octets, Places, Places]) -> list[bytes] | None:
        """Return the digests of the leaves, joined, for each feature; None if a record may be corrupt."""
        data, offsets, lengths = records
        leaves = [
            (min(LEAF_EXAMPLES, offsets.size - start), [hashlib.sha256() for _ in self._reader.paths])
            for start in range(0, offsets.size, LEAF_EXAMPLES)
        ]
        if not self._reader.hash_block(data, offsets, lengths, leaves):
            return None
        places = range(len(self._reader.paths))
        return [b"".join(hashers[place].digest() for _, hashers in leaves) for place in places]
