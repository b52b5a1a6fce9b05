"""Reads the bytes of a shard in order: from a mapped file, a file read in pieces, or a gzip file.

The first bytes decide between plain and gzip. Memory is bounded: a mapped file uses address space, other files one
piece at a time. A gzip file may have several members, whose contents gzip readers join. Members that
``write_gzip_records`` writes end at the end of a record, and the extra field of their header states the member's size
and number of records, so that a reader may start in the middle of the file. Other readers ignore the field.

    extra field: "RS", length 28 | u64 bytes of the member | u64 of its content | u64 records | u32 CRC32C of these
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple

from registry.engines import Piece, shared_threads, submit
from registry.engines.engine import in_order, result_of
from registry.storage import Store
from registry.storage.faults import StoredFile
from registry.tfrecord.framing import (
    HEADER_BYTES,
    ByteStream,
    DamagedStreamError,
    FileFacts,
    crc32c,
    frame_record,
    is_header,
)

_PIECE_BYTES: Final = 2**20
_GZIP_PIECE_BYTES: Final = 2**16
"""Small, because the content of a damaged piece is lost, and the error names the first record that was lost."""

_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_FORMAT: Final = 16 + zlib.MAX_WBITS
_MEMBERS_AHEAD: Final = 4
_MEMBERS_ASKED: Final = 16
MOST_INFLATION: Final = 1032
"""The highest compression ratio of deflate: 258 bytes need at least two bits."""


@contextmanager
def open_stream(store: Store, name: str) -> Iterator[ByteStream]:
    """Open the bytes of a stored file; a plain local file is mapped."""
    with store.open(name) as file:
        start = file.read(HEADER_BYTES)
        mapped = None if is_gzip(start) else file.mapping()
        if mapped is None:
            yield stream_pieces(file.read, start, size=file.num_bytes, path=store.locate(name))
        else:
            yield ByteStream(path=store.locate(name), start=mapped, more=bytes, limit=len(mapped), compressed=False)


def stream_pieces(read: Callable[[int], bytes], start: bytes, *, size: int, path: str) -> ByteStream:
    """Make the stream of a file of ``size`` bytes: ``start`` was already read, ``read`` returns the rest in order."""
    if not is_gzip(start):
        return ByteStream(path=path, start=start, more=partial(read, _PIECE_BYTES), limit=size, compressed=False)
    inflate = _Inflater(start, partial(read, _GZIP_PIECE_BYTES))
    return ByteStream(path=path, start=b"", more=inflate, limit=size * MOST_INFLATION, compressed=True)


def is_gzip(start: bytes) -> bool:
    """Whether a file is gzip. A plain record of 35,615 bytes (0x8b1f) begins alike; its checksum tells them apart."""
    return start.startswith(_GZIP_MAGIC) and not is_header(start)


class MembersAhead:
    """Each call returns the content of the next gzip member; threads decompress the following members ahead.

    If a member does not match its claim, the rest is decompressed piece by piece, to read as much as possible.
    """

    def __init__(self, file: StoredFile, members: Sequence[Member]) -> None:
        self._file = file
        self._members = members
        self._end = members[-1].start + members[-1].num_bytes
        pieces = (Piece(_inflate_member, member) for member in _read_members(file, members))
        self._inflated = in_order(_start, pieces, most=_MEMBERS_AHEAD, finish=result_of)
        self._rest: Callable[[], bytes] | None = None

    def __call__(self) -> bytes:
        """Return the next content; ``b""`` at the end, after all members."""
        while self._rest is None:
            found = next(self._inflated, None)
            if found is None:
                self._rest = self._read_on()
                break
            (member, _), content = found
            if content:
                return content
            self._file.seek(member.start)
            self._rest = _Inflater(b"", self._read)
        return self._rest()

    def _read(self) -> bytes:
        return self._file.read(_GZIP_PIECE_BYTES)

    def _read_on(self) -> Callable[[], bytes]:
        """Return a function that reads on after the last member with a claim."""
        self._file.seek(self._end)
        start = self._read()
        if not start:
            return bytes
        if not start.startswith(_GZIP_MAGIC):
            raise DamagedStreamError("other bytes follow the gzip stream")
        return _Inflater(start, self._read)


def _read_members(file: StoredFile, members: Sequence[Member]) -> Iterator[tuple[Member, bytes]]:
    """Yield the compressed members; many are requested at once.

    They are copied: a thread must not read the mapping of a file that may be truncated meanwhile.
    """
    for first in range(0, len(members), _MEMBERS_ASKED):
        asked = members[first : first + _MEMBERS_ASKED]
        for index, data in file.read_ranges(
            [(frame.start, frame.start + frame.num_bytes) for frame in asked], in_order=True
        ):
            yield asked[index], bytes(data)


def _inflate_member(members: tuple[Member, bytes]) -> bytes | None:
    """Decompress one gzip member; None if it is damaged, or does not have the size that it claims."""
    claimed, data = members
    new, error = _inflate_library()
    member = new(_GZIP_FORMAT)
    try:
        content: bytes = member.decompress(data, claimed.num_content_bytes + 1)
    except error:
        return None
    return content if member.eof and not member.unused_data and len(content) == claimed.num_content_bytes else None


def _start(piece: Piece[tuple[Member, bytes], bytes | None]) -> Future[bytes | None]:
    return submit(shared_threads(os.getpid()), piece.function, piece.input)


class _Inflater:
    """Each call returns the next piece of a gzip file's content; ``b""`` at its end, after all members."""

    def __init__(self, start: bytes, read: Callable[[], bytes]) -> None:
        self._new, self._error = _inflate_library()
        self._read = read
        self._input = start
        self._member: Any = self._new(_GZIP_FORMAT)
        self._ended = False

    def __call__(self) -> bytes:
        while not self._ended:
            if self._member.eof:  # only now, so that its last piece is returned even if the bytes after it are damaged
                self._start_next_member()
                continue
            self._input = self._input or self._read()
            at_end = not self._input  # the library may still have buffered output
            try:
                piece: bytes = self._member.decompress(self._input, _GZIP_PIECE_BYTES)
            except self._error as error:
                raise DamagedStreamError(f"the gzip stream is damaged ({error})") from error
            self._input = self._member.unconsumed_tail
            if piece:
                return piece
            if at_end and not self._member.eof:
                raise DamagedStreamError("the gzip stream ends too early")
        return b""

    def _start_next_member(self) -> None:
        """Start the next member; a gzip file has one or more, and nothing else may follow."""
        self._input = self._member.unused_data or self._read()
        while 0 < len(self._input) < len(_GZIP_MAGIC) and (more := self._read()):
            self._input += more
        if not self._input:
            self._ended = True
        elif not self._input.startswith(_GZIP_MAGIC):
            raise DamagedStreamError("other bytes follow the gzip stream")
        else:
            self._member = self._new(_GZIP_FORMAT)


def _inflate_library() -> tuple[Callable[[int], Any], type[Exception]]:
    """Return isal if the extra ``gzip`` is installed (about twice as fast), else zlib; the results are the same."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.decompressobj, zlib.error
    return isal_zlib.decompressobj, isal_zlib.error  # type: ignore[return-value] # the stub says an instance


_FIXED: Final = b"\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff"  # deflate, an extra field, no time, no system
_EXTRA: Final = struct.Struct("<H2sH")
_CLAIM: Final = struct.Struct("<QQQ")
_CRC: Final = struct.Struct("<I")
_TAIL: Final = struct.Struct("<II")
_HEAD_BYTES: Final = len(_FIXED) + _EXTRA.size + _CLAIM.size + _CRC.size
_MEMBER_BYTES: Final = 2**20


MOST_CONTENT_BYTES: Final = 2**26
"""A member that claims more bytes of content is not decompressed in one call."""


class Member(NamedTuple):
    """A gzip member: its starts in the file and in the content, its first record, and the sizes that it claims."""

    start: int
    content_start: int
    first_record: int
    num_bytes: int
    num_content_bytes: int


def write_gzip_records(
    file: BinaryIO, records: Iterable[bytes], *, member_bytes: int = _MEMBER_BYTES, level: int = 6
) -> FileFacts:
    """Write ``records`` as a gzip file with members of about ``member_bytes`` bytes of content each.

    The bytes depend on the installed zlib. Without records the file is empty.
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


def find_members(file: StoredFile) -> list[Member]:
    """Find the members of an open gzip file that state their size and records; files of other writers have none.

    Nothing is decompressed, so only the checksums of the claims are checked; a reader checks the members that it reads.
    """
    members: list[Member] = []
    start = content_start = first_record = 0
    size = file.num_bytes
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
    """Read a member's claim: its bytes, its bytes of content, its records; None for other headers."""
    if len(head) < _HEAD_BYTES or not head.startswith(_FIXED):
        return None
    if _EXTRA.unpack_from(head, len(_FIXED)) != (4 + _CLAIM.size + _CRC.size, b"RS", _CLAIM.size + _CRC.size):
        return None
    claim = head[len(_FIXED) + _EXTRA.size : _HEAD_BYTES - _CRC.size]
    if _CRC.unpack(head[-_CRC.size :])[0] != crc32c(claim):
        return None
    member_bytes, content_bytes, num_records = _CLAIM.unpack(claim)
    return member_bytes, content_bytes, num_records
