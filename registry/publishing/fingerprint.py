"""What is the fingerprint of a prepared version? Every record decoded and hashed, split by split, feature by feature.

See ``registry.model.fingerprint`` for what the digests are over, ``registry.features.content`` for what of a record.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from registry.errors import CorruptExampleError
from registry.features.content import BlockContentReader, ContentReader
from registry.model import LEAF_EXAMPLES, FeatureFingerprint, SplitFingerprint
from registry.publishing.ranges import Advance, RecordRun, StoredSplits, call_on_runs, choose_processes, plan_runs
from registry.tfrecord import RecordBlock

_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class LeafHasher:
    """Hashes the records of a run: for each leaf of 1,024 records, for each feature, 32 bytes of sha256."""

    stored: StoredSplits

    def __call__(self, run: RecordRun) -> bytes:
        """The digests, leaf by leaf, in each leaf in the order of the features' paths."""
        if self.stored.has_columns(run):  # in one go: a row group that reaches over many leaves is decoded once
            return b"".join(self._hash_each(run))
        reader = BlockContentReader(self.stored.features)
        digests: list[bytes] = []
        leaf = _Leaf(reader)
        for position, block in self.stored.blocks(run):
            leaf.add(block)
            end = position + block.num_records
            if (end - run.start) % LEAF_EXAMPLES == 0 or end == run.stop:
                start = run.start + (end - run.start - 1) // LEAF_EXAMPLES * LEAF_EXAMPLES
                digests += leaf.digests() or self._hash_each(RecordRun(run.place, start, end))
                leaf = _Leaf(reader)
        return b"".join(digests)

    def _hash_each(self, run: RecordRun) -> list[bytes]:
        """The same record by record, which says of a bad one which it is and what is wrong."""
        reader = ContentReader(self.stored.features)
        digests: list[bytes] = []
        hashers = [hashlib.sha256() for _ in reader.paths]
        for position, contents in enumerate(self.stored.contents(run, reader), start=1):
            for hasher, content in zip(hashers, contents, strict=True):
                hasher.update(content)
            if position % LEAF_EXAMPLES == 0 or position == run.stop - run.start:
                digests += [hasher.digest() for hasher in hashers]
                hashers = [hashlib.sha256() for _ in reader.paths]
        return digests


class _Leaf:
    """Hashes one leaf, block by block, unless a record of it may not be sound."""

    def __init__(self, reader: BlockContentReader) -> None:
        self._reader = reader
        self._hashers = [hashlib.sha256() for _ in reader.paths]
        self._is_sound = True

    def add(self, block: RecordBlock) -> None:
        """Hash the next records."""
        try:
            contents = self._reader.read(*block) if self._is_sound else None
            if contents is not None:
                for hasher, buffers in zip(self._hashers, contents, strict=True):
                    for buffer in buffers:
                        hasher.update(buffer)
        except CorruptExampleError:
            contents = None
        self._is_sound = contents is not None

    def digests(self) -> list[bytes] | None:
        """The digest of each feature; None where the records have to be told one by one."""
        return [hasher.digest() for hasher in self._hashers] if self._is_sound else None


def fingerprint_splits(
    stored: StoredSplits, *, processes: int | None = None, advance: Advance | None = None
) -> dict[str, SplitFingerprint]:
    """The fingerprint of each split, by name: the same for the same records, whatever files they are in.

    Args:
        stored: the splits, their files and their features.
        processes: how many decode; None takes as many as there are cores where there is enough to do.
        advance: called with the number of records done since the last call.

    Raises:
        CorruptRecordError, CorruptExampleError, ShardMismatchError: a record cannot be read; file and record are named.
        StorageError: a file cannot be read.
    """
    chosen = choose_processes(stored, processes)
    paths = ContentReader(stored.features).paths
    leaves: dict[str, list[list[bytes]]] = {split.name: [[] for _ in paths] for split in stored.splits}
    runs = plan_runs(stored.splits, processes=chosen)
    for run, digests in call_on_runs(LeafHasher(stored), runs, processes=chosen, advance=advance):
        of_features = leaves[stored.splits[run.place].name]
        for place in range(0, len(digests), _DIGEST_BYTES):
            of_features[place // _DIGEST_BYTES % len(paths)].append(digests[place : place + _DIGEST_BYTES])
    return {
        split.name: SplitFingerprint(
            num_examples=split.num_examples,
            features={
                path: FeatureFingerprint.of_leaves(found, num_examples=split.num_examples)
                for path, found in zip(paths, leaves[split.name], strict=True)
            },
        )
        for split in stored.splits
    }
