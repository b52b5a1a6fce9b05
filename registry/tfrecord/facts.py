"""What is a whole shard file, to one who wrote it or walked it?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What a whole shard file was found to be.

    Attributes:
        num_records: records in it, every one with sound checksums.
        num_payload_bytes: sum of their lengths, without framing: what TFDS calls a split's ``numBytes``.
        num_bytes: size of the file as it is stored, compressed or not.
        sha256: 64 hex digits over the file as it is stored.
    """

    num_records: int
    num_payload_bytes: int
    num_bytes: int
    sha256: str
