"""Laws of TFRecord files, over any records."""

from __future__ import annotations

import gzip
import hashlib
import io
import uuid
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import CorruptRecordError
from registry.storage import Store, open_store
from registry.tfrecord import RecordWriter, frame_record, masked_crc32c, read_records, walk_file
from registry.tfrecord.block import _walk_each as walk_one_by_one
from registry.tfrecord.block import walk_frames
from registry.tfrecord.framing import crc32c
from registry.tfrecord.reader import _walk_each, walk_whole

records = st.lists(st.binary(max_size=200), max_size=12)


def store_of(content: bytes) -> Store:
    store = open_store(f"memory://{uuid.uuid4().hex}")
    with store.create("shard") as file:
        file.write(content)
    return store


@given(records)
def test_what_is_written_is_read(written: list[bytes]) -> None:
    file = io.BytesIO()
    writer = RecordWriter(file)
    for record in written:
        writer.write(record)
    store = store_of(file.getvalue())
    assert list(read_records(store, "shard", num_records=len(written))) == written
    facts = walk_file(store, "shard")
    assert (facts.num_records, facts.num_payload_bytes, facts.num_bytes, facts.sha256) == (
        writer.num_records,
        writer.num_payload_bytes,
        writer.num_bytes,
        writer.sha256(),
    )
    assert facts.sha256 == hashlib.sha256(file.getvalue()).hexdigest()


@given(records, st.data())
def test_a_range_is_a_slice(written: list[bytes], data: st.DataObject) -> None:
    skip = data.draw(st.integers(0, len(written)))
    take = data.draw(st.integers(0, len(written) - skip))
    compress = data.draw(st.booleans())
    content = b"".join(map(frame_record, written))
    store = store_of(gzip.compress(content) if compress else content)
    assert list(read_records(store, "shard", skip=skip, take=take)) == written[skip : skip + take]


@given(records.filter(bool), st.data())
def test_another_byte_anywhere_is_found(written: list[bytes], data: st.DataObject) -> None:
    content = bytearray(b"".join(map(frame_record, written)))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    found: list[bytes] = []
    with pytest.raises(CorruptRecordError) as caught:
        found.extend(read_records(store_of(bytes(content)), "shard"))  # extend keeps the records before the error
    assert caught.value.details["offset"] <= place
    assert found == written[: caught.value.details["record"]]


@given(st.lists(st.binary(max_size=5000), max_size=12), st.sampled_from([16, 64, 1000, 2**20]), st.data())
def test_a_file_walked_in_pieces_equals_the_file_read_record_by_record(
    written: list[bytes], piece: int, data: st.DataObject
) -> None:
    content = bytearray(b"".join(map(frame_record, written * data.draw(st.sampled_from([1, 20])))))
    if content and data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            del content[place:]
        else:
            content[place] ^= data.draw(st.integers(1, 255))
    store = store_of(bytes(content))
    try:
        with store.open("shard") as file:
            expected = _walk_each(file, "shard", promised=None)
    except CorruptRecordError:
        expected = None
    with mock.patch("registry.storage.remote.REQUEST_BYTES", piece), store.open("shard") as file:
        assert walk_whole(file) == expected
        with mock.patch.object(type(file), "num_bytes", len(content) + 1):  # as one that is cut short meanwhile
            assert walk_whole(file) is None


@given(st.binary(max_size=300))
def test_any_bytes_are_records_or_an_error(content: bytes) -> None:
    store = store_of(content)
    try:
        found = list(read_records(store, "shard"))
    except CorruptRecordError:
        return
    assert b"".join(map(frame_record, found)) == content or content[:2] == b"\x1f\x8b"


@given(st.binary(max_size=64))
def test_the_mask_can_be_taken_off(content: bytes) -> None:
    rotated = (masked_crc32c(content) - 0xA282EAD8) % 2**32
    assert (rotated >> 17 | rotated << 15) % 2**32 == crc32c(content)


INNER = b"".join(map(frame_record, (b"abc", b"", b"12345678")))
PAYLOADS = [bytes(2), bytes(300), INNER, INNER * 20, b"x" * 5000, *(bytes([value]) * value for value in range(1, 256))]


@given(
    st.integers(0, 2**32),
    st.sampled_from([PAYLOADS, PAYLOADS[:4], PAYLOADS[4:100], PAYLOADS[80:]]),
    st.sampled_from([2100, 5000, 10**9]),
    st.data(),
)
def test_frames_walked_in_step_equal_frames_walked_one_by_one(
    seed: int, payloads: list[bytes], most: int, data: st.DataObject
) -> None:
    chosen = np.random.default_rng(seed).integers(0, len(payloads), 8000).tolist()
    content = bytearray(b"".join(frame_record(payloads[number]) for number in chosen))
    if data.draw(st.booleans()):  # damage anywhere: also of lengths, after which nothing is a header
        for place in np.random.default_rng(seed).integers(0, len(content), 200).tolist():
            content[place] ^= 255
    limit = data.draw(st.integers(len(content) // 2, len(content)))
    view = memoryview(content)
    starts, end = walk_one_by_one(view, 0, limit, most)
    walked = walk_frames(np.frombuffer(content, np.uint8), 0, limit=limit, most=most)
    assert walked.tolist() == [*starts, end]


@pytest.mark.parametrize("byte", range(8))
def test_frames_walked_in_step_end_at_a_length_that_has_any_damaged_byte(byte: int) -> None:
    chosen = np.random.default_rng(3).integers(80, len(PAYLOADS), 8000).tolist()
    content = bytearray(b"".join(frame_record(PAYLOADS[number]) for number in chosen))
    whole, _ = walk_one_by_one(memoryview(content), 0, len(content), 8000)
    content[whole[3000] + byte] ^= 255
    starts, end = walk_one_by_one(memoryview(content), 0, len(content), 8000)
    walked = walk_frames(np.frombuffer(content, np.uint8), 0, limit=len(content), most=8000)
    assert walked.tolist() == [*starts, end]
