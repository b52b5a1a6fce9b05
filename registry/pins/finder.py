"""Which one of many things was changed, where only one digest over all of them is kept? Two sums find it.

Each thing has a weight and a hash h (256 bits). Kept are the sums of h and of weight x h, modulo a prime. Where one
thing is changed, both move: by d = h' - h, and by weight x d. So their quotient is the weight, and h' - d the hash that
the thing had. Where several were changed the quotient is the weight of nothing, but for a chance of 2**-200.

The sums prove nothing, for they can be forged: sha256 digests beside them do. They say where to look.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from registry.errors import UsageError

PRIME: Final = 2**256 - 189
_DIGEST_BYTES: Final = 32
_ROWS: Final = 2**16
"""So many digests are summed at once: 16 bits of place x 16 bits of digest x 2**16 of them stay below 2**64."""

_TEXT = re.compile(r"([0-9a-f]{64})-([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Finder:
    """The two sums of some things. Sums of disjoint sets of things are added.

    >>> kept = Finder.of_item(5, b"a" * 32) + Finder.of_item(9, b"b" * 32)
    >>> found = Finder.of_item(5, b"a" * 32) + Finder.of_item(9, b"c" * 32)
    >>> kept.find_weight(found), kept.hash_before(found, now=b"c" * 32) == b"b" * 32
    (9, True)
    """

    sum: int = 0
    weighted: int = 0

    @classmethod
    def of_item(cls, weight: int, digest: bytes) -> Finder:
        """The sums of one thing."""
        value = int.from_bytes(digest, "big")
        return cls(value % PRIME, weight * value % PRIME)

    @classmethod
    def of_list(cls, digests: bytes, *, first: int) -> Finder:
        """The sums of a list of digests, 32 bytes each, with the weights ``first``, ``first + 1`` and so on."""
        found = cls()
        for start in range(0, len(digests), _ROWS * _DIGEST_BYTES):
            rows = np.frombuffer(digests, ">u2", offset=start)[: _ROWS * 16].reshape(-1, 16).astype(np.uint64)
            total = _join(rows.sum(axis=0))
            weighted = _join(np.arange(len(rows), dtype=np.uint64) @ rows)
            place = first + start // _DIGEST_BYTES
            found += cls(total % PRIME, (weighted + place * total) % PRIME)
        return found

    @classmethod
    def parse(cls, text: str) -> Finder:
        """The sums that ``str`` wrote; UsageError for any other text."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise UsageError(f"{text[:80]!r} is no pair of sums: 64 hex digits, '-', 64 hex digits")
        return cls(int(match[1], 16), int(match[2], 16))

    def find_weight(self, found: Finder) -> int | None:
        """The weight of what was changed between these sums and ``found``, if it was one thing; None for no change."""
        moved = (found.sum - self.sum) % PRIME
        return (found.weighted - self.weighted) * pow(moved, -1, PRIME) % PRIME if moved else None

    def hash_before(self, found: Finder, now: bytes) -> bytes:
        """The hash that the one changed thing had, whose hash is ``now`` in ``found``."""
        before = (int.from_bytes(now, "big") - (found.sum - self.sum)) % PRIME
        return before.to_bytes(_DIGEST_BYTES, "big")

    def __add__(self, other: Finder) -> Finder:
        return Finder((self.sum + other.sum) % PRIME, (self.weighted + other.weighted) % PRIME)

    def __str__(self) -> str:
        return f"{self.sum:064x}-{self.weighted:064x}"


def _join(limbs: npt.NDArray[np.uint64]) -> int:
    """The number whose digits to the base 2**16, the highest first, are ``limbs``; they may be larger than that."""
    total = 0
    for limb in limbs.tolist():
        total = (total << 16) + limb
    return total
