"""Damaged shard files: for any damage, the error names file, record and byte, or the records are right."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import uuid
from pathlib import Path

import pytest
from support.levels import either

from registry.errors import CorruptRecordError
from registry.storage import Store, open_store
from registry.tfrecord import frame_record, masked_crc32c, read_records, walk_file

RECORDS = [b"first", b"", b"the third record"]
STARTS = [0, 21, 37, 69]
CONTENT = b"".join(map(frame_record, RECORDS))


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(tmp_path if request.param == "local" else f"memory://{uuid.uuid4().hex}")


def read_damaged(store: Store, content: bytes) -> tuple[list[bytes], CorruptRecordError]:
    """The records before the damage, and the error; walking the file finds the same error."""
    with store.create("shard", overwrite=True) as file:
        file.write(content)
    found: list[bytes] = []
    with pytest.raises(CorruptRecordError) as caught:
        found.extend(read_records(store, "shard"))  # extend keeps the records before the error
    with pytest.raises(CorruptRecordError) as walked:
        walk_file(store, "shard")
    assert str(walked.value) == str(caught.value)
    assert caught.value.details["path"] == store.locate("shard")
    return found, caught.value


def header(length: int) -> bytes:
    content = struct.pack("<Q", length)
    return content + struct.pack("<I", masked_crc32c(content))


def test_truncation_at_every_byte(store: Store) -> None:
    for size in set(range(1, len(CONTENT))) - set(STARTS):
        found, error = read_damaged(store, CONTENT[:size])
        record = max(index for index, start in enumerate(STARTS) if start < size)
        assert found == RECORDS[:record]
        assert (error.details["record"], error.details["offset"]) == (record, STARTS[record])
        assert "the file ends after" in str(error)


@pytest.mark.parametrize("step", either(5, 1))
def test_a_flipped_bit_anywhere(store: Store, step: int) -> None:
    for bit in range(0, 8 * len(CONTENT), step):
        damaged = bytearray(CONTENT)
        damaged[bit // 8] ^= 1 << bit % 8
        found, error = read_damaged(store, bytes(damaged))
        record = max(index for index, start in enumerate(STARTS) if start <= bit // 8)
        assert found == RECORDS[:record]
        assert (error.details["record"], error.details["offset"]) == (record, STARTS[record])


def test_the_messages_say_what_is_wrong(store: Store) -> None:
    path = store.locate("shard")
    damaged = bytearray(CONTENT)
    damaged[40] ^= 1
    _, error = read_damaged(store, bytes(damaged))
    assert str(error) == (
        f"{path}: record 2 at byte 37: its length and the checksum of the length disagree: one of them is damaged"
    )
    damaged = bytearray(CONTENT)
    damaged[50] ^= 1
    _, error = read_damaged(store, bytes(damaged))
    assert str(error) == (
        f"{path}: record 2 at byte 37: its 16 bytes and their checksum disagree: one of them is damaged"
    )
    _, error = read_damaged(store, CONTENT[:-1])
    assert str(error) == f"{path}: record 2 at byte 37: the file ends after 31 of its 32 bytes"
    _, error = read_damaged(store, CONTENT[:40])
    assert str(error) == f"{path}: record 2 at byte 37: the file ends after 3 of the 12 bytes of its header"
    _, error = read_damaged(store, gzip.compress(CONTENT[:40]))
    assert str(error) == (
        f"{path}: record 2 at byte 37: the file ends after 3 of the 12 bytes of its header"
        " (the offset counts decompressed bytes)"
    )
    assert error.hint


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**40, 2**31, 2**31 - 1, 100_000_000, 17])
def test_a_huge_length_asks_for_no_memory(store: Store, length: int) -> None:
    # The checksum of the length is valid, so only the size of the file can reveal that the length is wrong.
    content = frame_record(b"first") + header(length) + b"sixteen bytes...1234"[: 12 + 4]
    for stored in (content, gzip.compress(content)):
        tracemalloc.start()
        found, error = read_damaged(store, stored)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found == [b"first"]
        assert (error.details["record"], error.details["offset"]) == (1, 21)
        assert peak < 16 * 2**20


def test_a_gzip_bomb_under_a_huge_length_is_not_inflated_beyond_it(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    content = gzip.compress(header(2**40) + bytes(50_000_000))
    tracemalloc.start()
    found, error = read_damaged(store, content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == []
    assert error.details["record"] == 0
    assert peak < 8 * 2**20


@pytest.mark.parametrize("garbage", [b"\0", b"\0" * 12, b"\0" * 100, b"garbage that is longer than a header"])
def test_trailing_garbage(store: Store, garbage: bytes) -> None:
    for stored in (CONTENT + garbage, gzip.compress(CONTENT + garbage), gzip.compress(CONTENT) + garbage):
        found, error = read_damaged(store, stored)
        # In a gzip stream that ends in something else, the record that is lost with it is named.
        assert found == RECORDS[: error.details["record"]]
        assert error.details["offset"] == STARTS[error.details["record"]]


def test_trailing_garbage_is_found_when_the_last_record_is_read(store: Store) -> None:
    with store.create("shard") as file:
        file.write(CONTENT + b"garbage that is longer than a header")
    with pytest.raises(CorruptRecordError):
        list(read_records(store, "shard", skip=1, take=2, num_records=3))


def test_a_gzip_file_cut_anywhere(store: Store) -> None:
    content = gzip.compress(CONTENT, mtime=0)
    for size in range(1, len(content)):
        found, error = read_damaged(store, content[:size])
        assert found == RECORDS[: error.details["record"]]
        assert error.details["offset"] == STARTS[error.details["record"]]


@pytest.mark.parametrize("step", either(5, 1))
def test_a_flipped_bit_anywhere_in_a_gzip_file_is_found_or_changes_nothing(store: Store, step: int) -> None:
    content = gzip.compress(CONTENT, mtime=0)
    harmless = 0
    for bit in range(0, 8 * len(content), step):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        with store.create("shard", overwrite=True) as file:
            file.write(bytes(damaged))
        found: list[bytes] = []
        record = len(RECORDS)
        try:
            found.extend(read_records(store, "shard"))  # extend keeps the records before the error
        except CorruptRecordError as error:
            record = error.details["record"]
        else:
            harmless += 1
            assert bit // 8 < 10  # gzip's header: time, flags, operating system
        assert found == RECORDS[:record]
    assert harmless < 80 // step


def test_only_the_header_of_a_skipped_record_is_checked(store: Store) -> None:
    damaged = bytearray(CONTENT)
    damaged[13] ^= 1  # the first record's payload
    with store.create("shard") as file:
        file.write(bytes(damaged))
    assert list(read_records(store, "shard", skip=1)) == RECORDS[1:]
    damaged[3] ^= 1  # the first record's length
    with store.create("shard", overwrite=True) as file:
        file.write(bytes(damaged))
    with pytest.raises(CorruptRecordError, match="record 0 at byte 0"):
        list(read_records(store, "shard", skip=1))
