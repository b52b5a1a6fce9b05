"""What is the digest of a set of records, whatever their order? That of their sorted digests, in bounded memory."""

from __future__ import annotations

import hashlib
import tempfile
from typing import IO, Final, Self

import numpy as np

_DIGEST_BYTES: Final = 32
_MOST_IN_MEMORY: Final = 4 * 2**20
"""Digests that are sorted at once, and kept in memory: 128 MiB."""


class DigestPile:
    """Digests of 32 bytes, as they come; beyond four million they wait in a temporary file without a name.

    >>> with DigestPile() as pile:
    ...     pile.add(b"b" * 32 + b"a" * 32)
    ...     pile.sorted_digest() == hashlib.sha256(b"a" * 32 + b"b" * 32).hexdigest()
    True
    """

    def __init__(self, *, most_in_memory: int = _MOST_IN_MEMORY) -> None:
        self._most = most_in_memory
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=most_in_memory * _DIGEST_BYTES)  # noqa: SIM115 (closed by __exit__)
        self._count = 0

    def add(self, digests: bytes) -> None:
        """More digests, one after the other."""
        self._file.write(digests)
        self._count += len(digests) // _DIGEST_BYTES

    def sorted_digest(self) -> str:
        """sha256, 64 hex digits, over all digests, sorted."""
        hasher = hashlib.sha256()
        # Digests are spread evenly: each bucket of first bytes holds about as many.
        buckets = 1
        while buckets * self._most < self._count and buckets < 2**16:
            buckets *= 2
        for bucket in range(buckets):
            hasher.update(self._sorted_bucket(bucket, buckets))
        return hasher.hexdigest()

    def _sorted_bucket(self, bucket: int, buckets: int) -> bytes:
        """The sorted digests whose first 16 bits fall into this of ``buckets`` equal parts."""
        self._file.seek(0)
        found = []
        while piece := self._file.read(self._most * _DIGEST_BYTES):
            rows = np.frombuffer(piece, ">u8").reshape(-1, 4)
            found.append(rows if buckets == 1 else rows[(rows[:, 0] >> 48) * buckets >> 16 == bucket])
        columns = np.concatenate([np.empty((0, 4), np.uint64), *found])  # numbers in the order of this machine's bytes
        order = np.argsort(columns[:, 0], kind="stable")
        firsts = columns[order, 0]
        if (firsts[1:] == firsts[:-1]).any():  # the same record twice, or somebody who looked for it
            order = np.lexsort(tuple(columns.T[::-1]))
        # Joined rows are in the byte order of the machine; what is hashed are the bytes as they came.
        return columns[order].astype(">u8").tobytes()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
