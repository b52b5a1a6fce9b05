"""Does a split hold the same records as another one? Digests of decoded content, one for each feature and each block.

Ordered, and independent of shard boundaries, compression, file format and the order of map keys: they are taken over
what a reader gets. A block of records has a digest of its own, so that a difference has a place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from registry.errors import UsageError

LEAF_EXAMPLES: Final = 1024
"""Records that are hashed into one leaf; every block is a whole number of leaves."""

_MOST_BLOCKS: Final = 1024


def block_size(num_examples: int) -> int:
    """Records in each stored block of a split: 1,024, doubled until there are at most 1,024 blocks.

    >>> block_size(1797), block_size(1_281_167)
    (1024, 2048)
    """
    size = LEAF_EXAMPLES
    while -(-num_examples // size) > _MOST_BLOCKS:
        size *= 2
    return size


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureFingerprint:
    """One feature of one split: ``digest`` over all its values, ``blocks`` one for each block; 64 hex digits each."""

    digest: str
    blocks: tuple[str, ...]

    @classmethod
    def of_leaves(cls, leaves: Sequence[bytes], *, num_examples: int) -> FeatureFingerprint:
        """The fingerprint of a feature whose leaves, 1,024 records each, have these sha256 digests."""
        group = block_size(num_examples) // LEAF_EXAMPLES
        blocks = (leaves[first : first + group] for first in range(0, len(leaves), group))
        return cls(
            digest=hashlib.sha256(b"".join(leaves)).hexdigest(),
            blocks=tuple(hashlib.sha256(b"".join(block)).hexdigest() for block in blocks),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFingerprint:
    """The content of a split: the fingerprint of each feature, by its path (nested names joined by ``/``).

    Raises:
        UsageError: a feature has not one digest for each block.
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
        text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def block(self, index: int) -> range:
        """The records of block ``index``."""
        size = block_size(self.num_examples)
        return range(index * size, min((index + 1) * size, self.num_examples))
