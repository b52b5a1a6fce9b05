"""Computes the content digest of a version, and defines the fingerprints of its decoded values.

``content_digest`` covers everything that decides which records a reader gets: schema, labels, slicing rule and shards.
``SplitFingerprint`` covers the decoded records in blocks, independent of sharding and compression, so that a comparison
of two versions finds the first block that differs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from registry.errors import UsageError
from registry.model.dataset_version import SlicingRule
from registry.model.split import Shard, Split

_BATCH: Final = 10_000


class ContentHasher:
    """The content digest of a version, from its shards one after the other, in bounded memory.

    >>> hasher = ContentHasher(
    ...     features_json="{}", labels={}, file_format="tfrecord", slicing="documented", disable_shuffling=False
    ... )
    >>> hasher.start_split("train")
    >>> hasher.add([(3, 51, "0" * 64)])
    >>> hasher.hexdigest()[:12]
    '9c41413451a2'
    """

    def __init__(
        self,
        *,
        features_json: str,
        labels: Mapping[str, Sequence[str]],
        file_format: str,
        slicing: str,
        disable_shuffling: bool,
    ) -> None:

        text = _canonical(
            {
                "algorithm": "registry.content/1",
                "features": json.loads(features_json),
                "labels": {stem: list(names) for stem, names in labels.items()},
                "file_format": file_format,
                "slicing": slicing,
                "disable_shuffling": disable_shuffling,
                "splits": [],  # must be the last key: start_split and add continue here
            }
        )
        self._hash = hashlib.sha256(text.removesuffix("]}").encode("ascii"))
        self._num_splits = 0
        self._is_first_shard = True

    def start_split(self, name: str) -> None:
        """Start the split ``name``: the next shards belong to it."""
        before = "]]," if self._num_splits else ""
        self._hash.update(f"{before}[{_canonical(name)},[".encode("ascii"))
        self._num_splits += 1
        self._is_first_shard = True

    def add(self, shards: Sequence[tuple[int, int, str]]) -> None:
        """Add the next shards of the split: number of examples, number of bytes and sha256 of each."""
        if shards:
            comma = "" if self._is_first_shard else ","
            self._hash.update(f"{comma}{_canonical(list(shards))[1:-1]}".encode("ascii"))
            self._is_first_shard = False

    def hexdigest(self) -> str:
        """The digest, 64 hex digits."""
        whole = self._hash.copy()
        whole.update(b"]]]}" if self._num_splits else b"]}")
        return whole.hexdigest()


def content_digest(
    *,
    features_json: str,
    labels: Mapping[str, Sequence[str]],
    file_format: str,
    slicing: SlicingRule,
    disable_shuffling: bool,
    splits: Iterable[Split],
    shards: Mapping[str, tuple[Shard, ...]],
) -> str:
    """The content digest of a version: sha256, 64 hex digits, over schema, labels, slicing rule and shards.

    ``shards`` are the shards of each split, in order. Names, descriptions, folders and times are not included, so the
    same content has the same digest wherever it is published.
    """
    hasher = ContentHasher(
        features_json=features_json,
        labels=labels,
        file_format=file_format,
        slicing=slicing.value,
        disable_shuffling=disable_shuffling,
    )
    for split in splits:
        hasher.start_split(split.name)
        told = ((shard.num_examples, shard.num_bytes, shard.sha256) for shard in shards[split.name])
        while batch := list(islice(told, _BATCH)):
            hasher.add(batch)
    return hasher.hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


LEAF_EXAMPLES: Final = 1024
"""Number of records in one leaf of the hash. Every block is a whole number of leaves."""

_MOST_BLOCKS: Final = 1024
_DIGEST_BYTES: Final = 32


def block_size(num_examples: int) -> int:
    """Number of records in each stored block of a split: 1,024, doubled until there are at most 1,024 blocks.

    >>> block_size(1797), block_size(1_281_167)
    (1024, 2048)
    """
    size = LEAF_EXAMPLES
    while -(-num_examples // size) > _MOST_BLOCKS:
        size *= 2
    return size


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureFingerprint:
    """One feature of one split: the digest of all its values, and of each block; 64 hex digits each."""

    digest: str
    blocks: tuple[str, ...]

    @classmethod
    def of_leaves(cls, leaves: bytes | bytearray, *, num_examples: int) -> FeatureFingerprint:
        """The fingerprint from the sha256 digests of the leaves, 1,024 records each, joined: 32 bytes for each."""
        group = block_size(num_examples) // LEAF_EXAMPLES * _DIGEST_BYTES
        view = memoryview(leaves)  # slicing does not copy the data, which may be gigabytes
        return cls(
            digest=hashlib.sha256(view).hexdigest(),
            blocks=tuple(
                hashlib.sha256(view[first : first + group]).hexdigest() for first in range(0, len(view), group)
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFingerprint:
    """The content of a split: the fingerprint of each feature, by its path (nested names joined by ``/``).

    It depends on the order of records. It does not depend on shard boundaries, compression, file format or the order of
    map keys, because it is computed from decoded values.

    Raises:
        UsageError: a feature does not have one digest for each block.
    """

    num_examples: int
    features: Mapping[str, FeatureFingerprint]

    def __post_init__(self) -> None:
        for path, feature in self.features.items():
            if len(feature.blocks) != self.num_blocks:
                raise UsageError(f"feature {path!r}: {len(feature.blocks)} block digests for {self.num_blocks} blocks")

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return -(-self.num_examples // block_size(self.num_examples))

    @property
    def digest(self) -> str:
        """One digest over the whole records of the split, in order."""
        told = {path: feature.digest for path, feature in self.features.items()}
        return hashlib.sha256(_canonical(told).encode("ascii")).hexdigest()

    def block(self, index: int) -> range:
        """The positions of the records in block ``index``."""
        size = block_size(self.num_examples)
        return range(index * size, min((index + 1) * size, self.num_examples))
