"""Folds: computations over all records of a split, in their stored order, that many processes can share.

    records -> FlatRecords -> Fold.add -> state;  states of consecutive parts -> Fold.merge -> Fold.end -> result

A part starts at a multiple of 1,024 records. The same folds run while shards are written (``registry.building``) and
over stored shards of any format (``registry.publishing.fingerprint``): each block is flattened once for all of them,
and their results do not depend on files, workers or machines. To compute something else of every version, write a fold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, Protocol, TypeAlias, TypeVar

from registry.errors import CorruptExampleError
from registry.features.codec import FlatRecords, codec_of
from registry.features.containers import FeaturesDict
from registry.features.content import ContentReader
from registry.model import LEAF_EXAMPLES, FeatureFingerprint, SplitFingerprint
from registry.wire.gather import Octets, Places

S = TypeVar("S")


class Fold(Protocol[S]):
    """One computation over the records of a split. It is made from a schema, and a state can be pickled.

    Attributes:
        is_quick: whether the records of a block are processed together. If not, as for images, workers are worthwhile.
    """

    is_quick: bool

    def start(self) -> S:
        """The state before the first record."""

    def add(self, state: S, block: FlatRecords) -> None:
        """Add the next records to ``state``.

        Raises:
            CorruptExampleError: a record does not hold the features. The state is useless.
        """

    def merge(self, state: S, later: S) -> None:
        """Add the state of the records that follow those of ``state``, which are a multiple of 1,024."""

    def end(self, state: S) -> Any:
        """The result for all records."""


FoldKinds: TypeAlias = Sequence[Callable[[FeaturesDict], Fold[Any]]]
"""The classes of folds, or functions that make them from a schema. They can be sent to other processes."""


class LeafDigests:
    """The state of ``FingerprintFold``: for each feature, 32 bytes of sha256 for each leaf of 1,024 records, joined.

    One buffer for each feature: objects for each leaf would take twice the memory of their 32 bytes. Pickling ends the
    last leaf, as a hash cannot be sent.
    """

    def __init__(self, of_features: list[bytearray], num_examples: int = 0) -> None:
        self.of_features = of_features
        self.num_examples = num_examples
        self._leaf: list[Any] = []

    def __reduce__(self) -> tuple[type[LeafDigests], tuple[list[bytearray], int]]:
        self.end_leaf()
        return LeafDigests, (self.of_features, self.num_examples)

    def leaves(self, num_records: int) -> list[tuple[int, list[Any]]]:
        """For the next ``num_records`` records, the number in each leaf and a hash for each feature."""
        result = []
        while num_records:
            before = self.num_examples % LEAF_EXAMPLES
            if not before:
                self._leaf = [hashlib.sha256() for _ in self.of_features]
            count = min(num_records, LEAF_EXAMPLES - before)
            result.append((count, self._leaf))
            self.num_examples += count
            num_records -= count
        return result

    def end_leaves(self, leaves: Sequence[tuple[int, list[Any]]]) -> None:
        """Keep the digests of ``leaves``, whose records are hashed; the last may get more records."""
        for _, hashers in leaves[:-1]:
            self._keep(hashers)
        if self.num_examples % LEAF_EXAMPLES == 0:
            self.end_leaf()

    def end_leaf(self) -> None:
        """Keep the digest of the last leaf, which gets no more records."""
        self._keep(self._leaf)
        self._leaf = []

    def extend(self, later: LeafDigests) -> None:
        """Add the digests of the records that follow."""
        if self.num_examples % LEAF_EXAMPLES and later.num_examples:
            raise AssertionError(f"a part of a split ends within a leaf, after {self.num_examples} records")
        later.end_leaf()
        for digests, leaf in zip(self.of_features, later.of_features, strict=True):
            digests.extend(leaf)
        self.num_examples += later.num_examples

    def _keep(self, hashers: Sequence[Any]) -> None:
        for digests, hasher in zip(self.of_features, hashers, strict=False):  # no hashers: no leaf is open
            digests.extend(hasher.digest())


class FingerprintFold:
    """Computes the fingerprint of a split: ``registry.model`` defines its digests, ``content`` the bytes they cover."""

    def __init__(self, features: FeaturesDict) -> None:
        self._reader = ContentReader(features)
        self.is_quick = self._reader.reads_blocks

    def start(self) -> LeafDigests:
        """No digests."""
        return LeafDigests([bytearray() for _ in self._reader.paths])

    def add(self, state: LeafDigests, block: FlatRecords) -> None:
        """Hash the content of the next records."""
        leaves = state.leaves(block.num_records)
        self._reader.hash_block(block, leaves)
        state.end_leaves(leaves)

    def merge(self, state: LeafDigests, later: LeafDigests) -> None:
        """Join the digests."""
        state.extend(later)

    def end(self, state: LeafDigests) -> SplitFingerprint:
        """The fingerprint. No record can be added to the last leaf afterwards."""
        state.end_leaf()
        return SplitFingerprint(
            num_examples=state.num_examples,
            features={
                path: FeatureFingerprint.of_leaves(digests, num_examples=state.num_examples)
                for path, digests in zip(self._reader.paths, state.of_features, strict=True)
            },
        )


class SplitFold:
    """Folds over the records of one split.

    >>> import numpy as np
    >>> fold = SplitFold(FeaturesDict({"id": "int64"}), [FingerprintFold])
    >>> record = codec_of(fold.features).encode({"id": 7})
    >>> fold.add(np.frombuffer(record, np.uint8), np.array([0]), np.array([len(record)]))
    >>> [fingerprint] = fold.results()
    >>> fingerprint.features["id"].digest[:8]
    'ebca7050'

    Attributes:
        features: the schema.
        kinds: the classes of the folds.
        states: the state of each fold. None after a record that cannot be decoded: the reader of the files names it.
        is_quick: whether all folds are.
    """

    def __init__(self, features: FeaturesDict, kinds: FoldKinds) -> None:
        self.features = features
        self.kinds = tuple(kinds)
        self._folds = [kind(features) for kind in kinds]
        self.is_quick = all(fold.is_quick for fold in self._folds)
        self.states: list[Any] | None = [fold.start() for fold in self._folds]
        self._num_records = 0

    def before_records(self) -> SplitFold:
        """The same folds before the first record. They share the known forms of records."""
        result = copy(self)
        result.states, result._num_records = [fold.start() for fold in self._folds], 0
        return result

    def add(self, data: Octets, offsets: Places, lengths: Places) -> None:
        """Add the next records: record i is ``data[offsets[i] : offsets[i] + lengths[i]]``."""
        if self.states is None:
            return
        try:
            self.add_block(codec_of(self.features).flat_records(data, offsets, lengths, start=self._num_records))
        except CorruptExampleError:
            self.states = None

    def add_block(self, block: FlatRecords) -> None:
        """Add the next records. Raises the error of ``Fold.add``."""
        for fold, state in zip(self._folds, self.states or (), strict=True):
            fold.add(state, block)
        self._num_records += block.num_records

    def merge(self, states: Sequence[Any] | None) -> None:
        """Add the states of the records that follow a multiple of 1,024; None if they are not known."""
        if states is None or self.states is None:
            self.states = None
            return
        for fold, state, later in zip(self._folds, self.states, states, strict=True):
            fold.merge(state, later)

    def of_records(self) -> RecordsFold:
        """A function that folds consecutive records elsewhere; ``merge`` takes its results in order."""
        return RecordsFold(self.features, self.kinds)

    def results(self) -> list[Any] | None:
        """The result of each fold, or None if they have to be computed from the files."""
        if self.states is None:
            return None
        return [fold.end(state) for fold, state in zip(self._folds, self.states, strict=True)]


class RecordsFold:
    """The function of a piece of work: folds records that start at a leaf. It remembers the forms of records."""

    def __init__(self, features: FeaturesDict, kinds: FoldKinds) -> None:
        self._fold = SplitFold(features, kinds)

    def __reduce__(self) -> tuple[type[RecordsFold], tuple[FeaturesDict, FoldKinds]]:
        return RecordsFold, (self._fold.features, self._fold.kinds)

    def __call__(self, parts: Iterable[tuple[Octets, Places, Places]]) -> list[Any] | None:
        """Return the states of the records of all ``parts``, or None if one is damaged."""
        fold = self._fold.before_records()  # threads may share this function
        for part in parts:
            fold.add(*part)
        return fold.states
