"""How is a gzip file written so that a reader may start in its middle? As members that say what they hold.

A gzip file may be many members, one after the other; every reader of gzip takes it for one content. Ours end where a
record ends, and each says in the extra field of its header how long it is and how many records it holds, so that a
reader goes from head to head. Who does not know the field passes it over.

    extra field: "RS", length 28 | u64 bytes of the member | u64 of its content | u64 records | u32 CRC32C of these
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable
from typing import BinaryIO, Final, NamedTuple

from registry.tfrecord.crc import crc32c
from registry.tfrecord.facts import FileFacts
from registry.tfrecord.framing import frame_record

_FIXED: Final = b"\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff"  # deflate, an extra field, no time, no system
_EXTRA: Final = struct.Struct("<H2sH")
_CLAIM: Final = struct.Struct("<QQQ")
_CRC: Final = struct.Struct("<I")
_TAIL: Final = struct.Struct("<II")
_HEAD_BYTES: Final = len(_FIXED) + _EXTRA.size + _CLAIM.size + _CRC.size
_MEMBER_BYTES: Final = 2**20


MOST_CONTENT_BYTES: Final = 2**26
"""A member that claims more is not inflated at once."""


class Member(NamedTuple):
    """Where a member begins in the file and in the content, its first record, and what it claims of its sizes."""

    start: int
    content_start: int
    first_record: int
    num_bytes: int
    num_content_bytes: int

    @property
    def claim(self) -> tuple[int, int]:
        """The bytes of the member, and of its content."""
        return self.num_bytes, self.num_content_bytes


def write_gzip_records(
    file: BinaryIO, records: Iterable[bytes], *, member_bytes: int = _MEMBER_BYTES, level: int = 6
) -> FileFacts:
    """Write ``records`` as a gzip file of members of about ``member_bytes`` bytes of content each.

    The bytes depend on the installed zlib. No records at all give an empty file.
    """
    digest, num_records, num_payload_bytes, num_bytes = hashlib.sha256(), 0, 0, 0
    frames: list[bytes] = []
    size = 0

    def end_member() -> None:
        nonlocal num_bytes, size
        member = _member(b"".join(frames), len(frames), level)
        file.write(member)
        digest.update(member)
        num_bytes += len(member)
        frames.clear()
        size = 0

    for record in records:
        frames.append(frame_record(record))
        size += len(frames[-1])
        num_records += 1
        num_payload_bytes += len(record)
        if size >= member_bytes:
            end_member()
    if frames:
        end_member()
    return FileFacts(
        num_records=num_records,
        num_payload_bytes=num_payload_bytes,
        num_bytes=num_bytes,
        sha256=digest.hexdigest(),
    )


def find_members(file: BinaryIO, size: int) -> list[Member]:
    """The members of an open gzip file of ``size`` bytes, as far as they say what they hold: none of other writers.

    Nothing is inflated, so nothing is proved but the claims' own checksums; a reader checks what it comes to read.
    """
    members: list[Member] = []
    start = content_start = first_record = 0
    while start < size:
        file.seek(start)
        claim = _read_claim(file.read(_HEAD_BYTES))
        if claim is None or not _HEAD_BYTES < claim[0] <= size - start or claim[1] > MOST_CONTENT_BYTES:
            break
        num_bytes, num_content_bytes, num_records = claim
        members.append(Member(start, content_start, first_record, num_bytes, num_content_bytes))
        start += num_bytes
        content_start += num_content_bytes
        first_record += num_records
    return members


def _member(content: bytes, num_records: int, level: int) -> bytes:
    deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(content) + deflate.flush()
    tail = _TAIL.pack(zlib.crc32(content), len(content) & 0xFFFFFFFF)
    claim = _CLAIM.pack(_HEAD_BYTES + len(body) + len(tail), len(content), num_records)
    extra = claim + _CRC.pack(crc32c(claim))
    return b"".join((_FIXED, _EXTRA.pack(4 + len(extra), b"RS", len(extra)), extra, body, tail))


def _read_claim(head: bytes) -> tuple[int, int, int] | None:
    """What the head of a member claims: its bytes, those of its content, its records; None for any other head."""
    if len(head) < _HEAD_BYTES or not head.startswith(_FIXED):
        return None
    if _EXTRA.unpack_from(head, len(_FIXED)) != (4 + _CLAIM.size + _CRC.size, b"RS", _CLAIM.size + _CRC.size):
        return None
    claim = head[len(_FIXED) + _EXTRA.size : _HEAD_BYTES - _CRC.size]
    if _CRC.unpack(head[-_CRC.size :])[0] != crc32c(claim):
        return None
    member_bytes, content_bytes, num_records = _CLAIM.unpack(claim)
    return member_bytes, content_bytes, num_records
