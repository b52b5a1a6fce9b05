"""How many files does a split get, and which records go into which? Arithmetic only.

Follows TFDS 4.9, so that the same records give the same shards: files between 64 MiB and 1 GiB, 1024 of them where that
fits, and boundaries spread evenly. Exact integers throughout.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from registry.errors import BuildError
from registry.model import ShardLengths

MIN_SHARD_BYTES: Final = 64 * 2**20
MAX_SHARD_BYTES: Final = 2**30
_FRAMING_BYTES: Final = 16  # of one TFRecord: length, its checksum, the payload's checksum
_PREFERRED: Final = 1024  # spreads over many readers, and every smaller power of two divides it


def plan_num_shards(*, num_examples: int, num_payload_bytes: int, beam: bool = False) -> int:
    """How many shards ``num_examples`` records get whose serialized lengths sum to ``num_payload_bytes``.

    ``beam`` gives the number of TFDS's writer for Apache Beam, which keeps files below 0.9 GiB: its shards differ in
    length, because each record goes where its hash says (``beam_bucket``).

    >>> plan_num_shards(num_examples=1797, num_payload_bytes=400_000)
    1
    >>> plan_num_shards(num_examples=1_281_167, num_payload_bytes=150 * 2**30)
    1024

    Raises:
        BuildError: more than 1 TiB in fewer records than shards are needed for it (TFDS searches for ever).
    """
    num_bytes = num_payload_bytes + _FRAMING_BYTES * num_examples
    fewest = num_bytes * 10 // (9 * MAX_SHARD_BYTES) if beam else num_bytes // MAX_SHARD_BYTES
    most = num_bytes // MIN_SHARD_BYTES
    if fewest > _PREFERRED:
        num_shards = max(2, -(-fewest // _PREFERRED)) * _PREFERRED
        if num_shards > num_examples:
            raise BuildError(
                f"{num_bytes} bytes need {num_shards} shards, and there are only {num_examples} examples to spread",
                hint="Give the number of shards yourself, or split the examples into smaller ones.",
                details={"num_bytes": num_bytes, "num_examples": num_examples, "num_shards": num_shards},
            )
        return num_shards
    for num_shards in (_PREFERRED, 512, 256, 128, 64, 32, 16, 8, 4, 2):
        if fewest <= num_shards <= most and num_shards <= num_examples:
            return num_shards
    return 1


def plan_shards(*, num_examples: int, num_shards: int) -> ShardLengths:
    """Number of records in each of ``num_shards`` shards: shard i starts at ``num_examples * i / num_shards``, rounded.

    A tie goes to the even neighbour.

    >>> list(plan_shards(num_examples=10, num_shards=4))
    [2, 3, 3, 2]

    Raises:
        BuildError: no shard, or more shards than examples: every shard holds one record or more.
    """
    if not 1 <= num_shards <= num_examples:
        raise BuildError(
            f"{num_examples} examples cannot be written as {num_shards} shards",
            hint="Every shard holds one example or more: choose a number from 1 to the number of examples.",
            details={"num_examples": num_examples, "num_shards": num_shards},
        )
    starts = [_round_half_even(num_examples * index, num_shards) for index in range(num_shards + 1)]
    return ShardLengths(stop - start for start, stop in pairwise(starts))


def beam_bucket(key_hash: int, *, num_buckets: int, max_hash: int = 2**128 - 1) -> int:
    """Which of ``num_buckets`` files, or buckets of its sorter, TFDS gives a record whose key hashes to ``key_hash``.

    A division of floats, because TFDS's is one.

    >>> beam_bucket(2**127, num_buckets=1000)
    500
    """
    return min(int(key_hash * num_buckets / max_hash), num_buckets - 1)


def _round_half_even(numerator: int, denominator: int) -> int:
    quotient, remainder = divmod(numerator, denominator)
    return quotient + (2 * remainder + (quotient & 1) > denominator)
