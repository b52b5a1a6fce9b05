"""The bytes of a shard in order: a mapped file, a file read piece by piece, or a gzip file that is inflated.

The first bytes decide between plain and gzip. Memory is bounded: a mapped file costs address space, the others a piece
at a time. A gzip file may be many members, one after the other, and every reader of gzip takes it for one content. The
members that ``write_gzip_records`` writes end where a record ends, and the extra field of the header gives the length
and the number of records of each, so that a reader may start in the middle of the file. Other readers ignore the field.

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
from registry.engines.engine import in_order
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
"""Small, because what a damaged piece yields is lost, and the record named is the first of those lost."""

_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_FORMAT: Final = 16 + zlib.MAX_WBITS
_MEMBERS_AHEAD: Final = 4
_MEMBERS_ASKED: Final = 16
MOST_INFLATION: Final = 1032
"""Deflate turns one byte into at most so many: 258 bytes take two bits at least."""


@contextmanager
def open_stream(store: Store, name: str) -> Iterator[ByteStream]:
    """The bytes of a stored file, mapped where it is a plain file on this machine."""
    with store.open(name) as file:
        start = file.read(HEADER_BYTES)
        mapped = None if is_gzip(start) else file.mapping()
        if mapped is None:
            yield stream_pieces(file.read, start, size=file.num_bytes, path=store.locate(name))
        else:
            yield ByteStream(path=store.locate(name), start=mapped, more=bytes, limit=len(mapped), compressed=False)


def stream_pieces(read: Callable[[int], bytes], start: bytes, *, size: int, path: str) -> ByteStream:
    """The bytes of a file of ``size`` bytes that ``read`` gives in order, after ``start``, which has been read."""
    if not is_gzip(start):
        return ByteStream(path=path, start=start, more=partial(read, _PIECE_BYTES), limit=size, compressed=False)
    inflate = _Inflater(start, partial(read, _GZIP_PIECE_BYTES))
    return ByteStream(path=path, start=b"", more=inflate, limit=size * MOST_INFLATION, compressed=True)


def is_gzip(start: bytes) -> bool:
    """Whether a file begins as gzip does. A plain record of 35,615 bytes (0x8b1f) does so too: its checksum tells."""
    return start.startswith(_GZIP_MAGIC) and not is_header(start)


class MembersAhead:
    """Called again and again, gives the content of one gzip member after the other; the next ones by threads, ahead.

    Where a member is not what it claims, the rest is inflated piece by piece, so that what can be read is.
    """

    def __init__(self, file: StoredFile, members: Sequence[Member]) -> None:
        self._file = file
        self._members = members
        self._end = members[-1].start + members[-1].num_bytes
        pieces = (Piece(_inflate_member, found) for found in _read_members(file, members))
        self._inflated = in_order(_start, pieces, most=_MEMBERS_AHEAD)
        self._rest: Callable[[], bytes] | None = None

    def __call__(self) -> bytes:
        """The next content; ``b""`` at the end, after every member."""
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
        """What reads on after the last member that says what it holds."""
        self._file.seek(self._end)
        start = self._read()
        if not start:
            return bytes
        if not start.startswith(_GZIP_MAGIC):
            raise DamagedStreamError("other bytes follow the gzip stream")
        return _Inflater(start, self._read)


def _read_members(file: StoredFile, members: Sequence[Member]) -> Iterator[tuple[Member, bytes]]:
    """The members as they are stored; many are asked for at once.

    Copied: a thread must not look at the mapping of a file that may be cut short meanwhile.
    """
    for first in range(0, len(members), _MEMBERS_ASKED):
        asked = members[first : first + _MEMBERS_ASKED]
        for index, data in file.read_ranges([(one.start, one.start + one.num_bytes) for one in asked], in_order=True):
            yield asked[index], bytes(data)


def _inflate_member(found: tuple[Member, bytes]) -> bytes | None:
    """The content of one gzip member; None where it is damaged, or not as long as it claims."""
    claimed, data = found
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
    """Called again and again, gives the next piece of a gzip file's content: ``b""`` at its end, after every member."""

    def __init__(self, start: bytes, read: Callable[[], bytes]) -> None:
        self._new, self._error = _inflate_library()
        self._read = read
        self._input = start
        self._member: Any = self._new(_GZIP_FORMAT)
        self._ended = False

    def __call__(self) -> bytes:
        while not self._ended:
            if self._member.eof:  # only now: what it gave last is handed out, whatever follows it
                self._start_next_member()
                continue
            self._input = self._input or self._read()
            at_end = not self._input  # and still the library may hold output back
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
        """A gzip file is one member or several, each with a checksum of its own; what follows must be one."""
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
    """isal, about twice as fast, where the extra ``gzip`` is installed; else zlib, with the same answers."""
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
"""A member that claims more is not inflated at once."""


class Member(NamedTuple):
    """Where a member begins in the file and in the content, its first record, and what it claims of its sizes."""

    start: int
    content_start: int
    first_record: int
    num_bytes: int
    num_content_bytes: int


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


def find_members(file: StoredFile) -> list[Member]:
    """The members of an open gzip file, as far as they say what they hold: none of other writers.

    Nothing is inflated, so nothing is proved but the claims' own checksums; a reader checks what it comes to read.
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
