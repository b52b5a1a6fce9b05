"""Digests over many records, for pins: sums that locate a changed record, and digests of features.

``measure`` computes them in addition to ``ordered``, the sha256 over the hashes of all records in order, and to that
over the sorted hashes, which does not depend on order or shards (``registry.features.digest_pile``):

    RecordSums   two sums over the hashes. They locate the one record that was changed; they prove nothing.
    hash_leaf    digests over the values of each feature. They do not depend on the serialization.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import UsageError
from registry.tfrecord import RecordBlock
from registry.wire import BlockDecoder, BytesColumn, FlatBlock, NumberColumn
from registry.wire.gather import constant, take, take_ragged

PRIME: Final = 2**256 - 189
LEAF_RECORDS: Final = 1024
_EMPTY_LEAF: Final = hashlib.sha256(b"").digest()
_KINDS: Final = ("bytes", "float", "int64")
_DIGEST_BYTES: Final = 32
_ROWS: Final = 2**16
"""Digests summed at once: 16 bits of place x 16 bits of digest x 2**16 rows stay below 2**64."""

_SMALL_ITEM: Final = 4096
"""Up to this mean size in bytes, copying items together is cheaper than one call for each."""

_TEXT = re.compile(r"([0-9a-f]{64})-([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class RecordSums:
    """Two sums over items, each with a weight and a hash h of 256 bits: of h, and of weight x h, modulo a prime.

    If one item changes, the sums change by d = h' - h and by weight x d. Their quotient is its weight, and h' - d is
    its old hash. If several items change, the quotient is the weight of an item with a probability of 2**-200 only.
    The sums of disjoint sets can be added.

    >>> kept = RecordSums.of_list(b"a" * 32, first=5) + RecordSums.of_list(b"b" * 32, first=9)
    >>> found = RecordSums.of_list(b"a" * 32, first=5) + RecordSums.of_list(b"c" * 32, first=9)
    >>> kept.find_weight(found), kept.hash_before(found, now=b"c" * 32) == b"b" * 32
    (9, True)
    """

    sum: int = 0
    weighted: int = 0

    @classmethod
    def of_list(cls, digests: bytes, *, first: int) -> RecordSums:
        """The sums of concatenated digests of 32 bytes, with the weights ``first``, ``first + 1`` and so on."""
        result = cls()
        for start in range(0, len(digests), _ROWS * _DIGEST_BYTES):
            rows = np.frombuffer(digests, ">u2", offset=start)[: _ROWS * 16].reshape(-1, 16).astype(np.uint64)
            total = _join(rows.sum(axis=0))
            weighted = _join(np.arange(len(rows), dtype=np.uint64) @ rows)
            place = first + start // _DIGEST_BYTES
            result += cls(total % PRIME, (weighted + place * total) % PRIME)
        return result

    @classmethod
    def parse(cls, text: str) -> RecordSums:
        """Parse the text that ``str`` returns. Raises UsageError for any other text."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise UsageError(f"invalid pair of sums: {text[:80]!r}; expected 64 hex digits, '-', 64 hex digits")
        return cls(int(match[1], 16), int(match[2], 16))

    def find_weight(self, sums: RecordSums) -> int | None:
        """The weight of the item that differs between these sums and ``sums``; None if the sums are equal.

        If several items differ, the result is not the weight of any item.
        """
        moved = (sums.sum - self.sum) % PRIME
        return (sums.weighted - self.weighted) * pow(moved, -1, PRIME) % PRIME if moved else None

    def hash_before(self, sums: RecordSums, now: bytes) -> bytes:
        """The old hash of the changed item: its hash in these sums, if it is ``now`` in ``sums``."""
        before = (int.from_bytes(now, "big") - (sums.sum - self.sum)) % PRIME
        return before.to_bytes(_DIGEST_BYTES, "big")

    def __add__(self, other: RecordSums) -> RecordSums:
        return RecordSums((self.sum + other.sum) % PRIME, (self.weighted + other.weighted) % PRIME)

    def __str__(self) -> str:
        return f"{self.sum:064x}-{self.weighted:064x}"


def _join(limbs: npt.NDArray[np.uint64]) -> int:
    """The number with the digits ``limbs`` to the base 2**16, highest first. A digit may exceed the base."""
    total = 0
    for limb in limbs.tolist():
        total = (total << 16) + limb
    return total


def hash_leaf(block: RecordBlock, decoder: BlockDecoder) -> dict[str, bytes] | None:
    """The leaf of each key of at most 1,024 records; None if one of them is not a tf.train.Example.

    The values are hashed, not the records, so the order of map keys and the packing of numbers do not matter. A key
    joins the names of nested features with ``/``. For each kind of values that the records have under the key, in the
    order bytes, float, int64, a leaf is the sha256 of

        the kind's name and a zero byte, the number of values of each record, then the values of all records:
        of bytes, the length of each, then their bytes; of float, 4 bytes each; of int64, 8 bytes each

    Numbers and lengths have 8 bytes, and everything is little-endian. A kind without values is left out.
    """
    flat = decoder.decode(*block)
    if flat.fault is not None:
        return None
    leaves = {}
    for key in {key for key, _ in flat.columns}:
        hasher = hashlib.sha256()
        for kind in _KINDS:
            column = flat.columns.get((key, kind))
            if column is not None:
                _add_column(hasher, kind, column, flat)
        leaves[key] = hasher.digest()
    return leaves


class KeyDigests:
    """The digest of each key of a slice: sha256 over the leaves of all its records, in order, 32 bytes each.

    A leaf without a key counts as the sha256 of nothing. Leaves are hashed as they are added, and not kept.

    >>> digests = KeyDigests()
    >>> digests.add({"a": b"1" * 32})
    >>> digests.add({"b": b"2" * 32})
    >>> digests.result()["a"] == "sha256:" + hashlib.sha256(b"1" * 32 + _EMPTY_LEAF).hexdigest()
    True
    """

    def __init__(self) -> None:
        self._hashers: dict[str, tuple[Any, int]] = {}  # with the number of leaves that each has received
        self._count = 0

    def add(self, leaf: Mapping[str, bytes]) -> None:
        """Add the next leaf, a result of ``hash_leaf``."""
        for key, digest in leaf.items():
            hasher = self._up_to_now(key)
            hasher.update(digest)
            self._hashers[key] = hasher, self._count + 1
        self._count += 1

    def result(self) -> dict[str, str]:
        """The digest of each key, sorted by key. More leaves may be added afterwards."""
        return {key: "sha256:" + self._up_to_now(key).hexdigest() for key in sorted(self._hashers)}

    def _up_to_now(self, key: str) -> Any:
        """The hasher of a key, after a leaf for each one that the key was not in."""
        hasher, count = self._hashers.get(key) or (hashlib.sha256(), 0)
        for start in range(count, self._count, _ROWS):
            hasher.update(_EMPTY_LEAF * min(_ROWS, self._count - start))
        self._hashers[key] = hasher, self._count
        return hasher


def _add_column(hasher: Any, kind: str, column: NumberColumn | BytesColumn, block: FlatBlock) -> None:
    counts = np.zeros(block.num_records, "<u8")
    counts[slice(None) if column.rows is None else column.rows] = column.counts
    if not counts.any():
        return
    hasher.update(kind.encode() + b"\0")
    hasher.update(counts.data)
    if isinstance(column, NumberColumn):
        hasher.update(_little_endian(column.values))
        return
    hasher.update(np.ascontiguousarray(column.sizes, "<u8").data)
    size = constant(column.sizes)
    if size is not None and 0 < size < _SMALL_ITEM:
        hasher.update(take(block.data, column.starts, size).tobytes())
        return
    if int(column.sizes.sum()) < _SMALL_ITEM * column.sizes.size:
        hasher.update(take_ragged(block.data, column.starts, column.sizes).data)
        return
    view = block.data.data
    for start, size in zip(column.starts.tolist(), column.sizes.tolist(), strict=True):
        hasher.update(view[start : start + size])


def _little_endian(values: npt.NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(values, values.dtype.newbyteorder("<")).data
