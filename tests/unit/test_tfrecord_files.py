"""TFRecord files: written by us, and by others, read and walked."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import sys
import tracemalloc
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.golden import check_errors
from support.levels import either

from registry.errors import BuildError, ShardMismatchError, StorageError, UsageError
from registry.storage import Store, open_store
from registry.tfrecord import (
    FileFacts,
    RecordBlock,
    RecordWriter,
    frame_record,
    hash_file,
    masked_crc32c,
    read_records,
    streams,
    walk_file,
    window,
)
from registry.tfrecord.framing import crc32c

GOLDEN = Path(__file__).with_name("golden")


CONFORMANCE = Path(__file__).parents[1] / "conformance" / "tfrecord"
PROVENANCE = re.findall(
    r"^\| (\S+tfrecord\S*) \| (\d+) \| (\d+) \| (\w{64}) \|$", (CONFORMANCE / "PROVENANCE.md").read_text(), re.MULTILINE
)
RECORDS = [b"", b"a", bytes(100), b"\xff" * 3000, *(f"record {index}".encode() for index in range(40))]


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(tmp_path if request.param == "local" else f"memory://{uuid.uuid4().hex}")


def put(store: Store, name: str, content: bytes) -> None:
    with store.create(name, overwrite=True) as file:
        file.write(content)


def framed(records: list[bytes]) -> bytes:
    return b"".join(map(frame_record, records))


@pytest.mark.parametrize(
    ("content", "expected"),
    [  # RFC 3720, B.4, and the check value of the algorithm
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"", 0),
    ],
)
def test_crc32c_known_answers(content: bytes, expected: int) -> None:
    assert crc32c(content) == expected
    assert masked_crc32c(content) == ((expected >> 15 | expected << 17) + 0xA282EAD8) % 2**32
    assert masked_crc32c(bytearray(content)) == masked_crc32c(memoryview(content)) == masked_crc32c(content)


def test_a_frame_is_length_crc_payload_crc() -> None:
    frame = frame_record(b"payload")
    assert frame[:8] == (7).to_bytes(8, "little")
    assert frame[8:12] == masked_crc32c(frame[:8]).to_bytes(4, "little")
    assert frame[12:-4] == b"payload"
    assert frame[-4:] == masked_crc32c(b"payload").to_bytes(4, "little")


def test_the_files_of_others_are_all_known() -> None:
    assert sorted(name for name, *_ in PROVENANCE) == [
        name for name in open_store(CONFORMANCE).list() if "tfrecord" in name
    ]


@pytest.mark.parametrize(("name", "records", "payload", "sha256"), PROVENANCE)
def test_files_of_others_are_read_and_written_alike(name: str, records: str, payload: str, sha256: str) -> None:
    store = open_store(CONFORMANCE)
    content = store.read_bytes(name)
    assert walk_file(store, name) == FileFacts(
        num_records=int(records), num_payload_bytes=int(payload), num_bytes=len(content), sha256=sha256
    )
    found = list(read_records(store, name, num_records=int(records)))
    assert len(found) == int(records)
    assert framed(found) == (gzip.decompress(content) if name.endswith(".gz") else content)


def test_the_writer_counts_and_hashes_what_it_writes(store: Store) -> None:
    with store.create("shard") as file:
        writer = RecordWriter(file)
        for record in RECORDS:
            writer.write(record)
    content = framed(RECORDS)
    assert store.read_bytes("shard") == content
    assert writer.sha256() == hashlib.sha256(content).hexdigest()
    assert (writer.num_records, writer.num_bytes) == (len(RECORDS), len(content))
    assert writer.num_payload_bytes == len(content) - 16 * len(RECORDS) == sum(map(len, RECORDS))
    assert walk_file(store, "shard") == FileFacts(
        num_records=writer.num_records,
        num_payload_bytes=writer.num_payload_bytes,
        num_bytes=writer.num_bytes,
        sha256=writer.sha256(),
    )


def test_a_record_too_long_for_protobuf_is_refused_by_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("registry.tfrecord.framing.MAX_RECORD_BYTES", 10)
    file = io.BytesIO()
    with pytest.raises(BuildError, match="record 0 is 11 bytes long; expected at most 10"):
        RecordWriter(file).write(bytes(11))
    assert file.getvalue() == b""


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("num_records", [None, len(RECORDS)])
@pytest.mark.parametrize(
    ("skip", "take"), [(0, None), (0, 0), (3, 0), (2, 2), (44, None), (44, 0), (0, 44), (43, 1), (7, None), (1, 43)]
)
def test_skip_and_take_choose_a_range(
    store: Store, compress: type[bytes], num_records: int | None, skip: int, take: int | None
) -> None:
    put(store, "shard", compress(framed(RECORDS)))
    stop = len(RECORDS) if take is None else skip + take
    assert list(read_records(store, "shard", skip=skip, take=take, num_records=num_records)) == RECORDS[skip:stop]


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_another_number_of_records_is_a_mismatch(store: Store, compress: type[bytes]) -> None:
    put(store, "shard", compress(framed([b"a", b"b", b"c"])))
    wrong: list[dict[str, int]] = [
        *(
            {"skip": 5},
            {"skip": 2, "take": 2},
            {"take": 4},
            {"take": 3, "num_records": 2},
            {"skip": 3, "num_records": 2},
        ),
        *({"num_records": 4}, {"skip": 3, "take": 1, "num_records": 4}, {"num_records": 2}, {"num_records": 0}),
        {"skip": 1, "take": 1, "num_records": 2},
    ]
    calls = {f"{options}": lambda options=options: list(read_records(store, "shard", **options)) for options in wrong}
    folder = store.locate("shard").removesuffix("/shard")
    check_errors(GOLDEN / "tfrecord_files.txt", calls, details=["path"], folder=folder)


def test_records_after_the_range_are_not_looked_at(store: Store) -> None:
    put(store, "shard", framed([b"a", b"b"]) + b"damage")
    assert list(read_records(store, "shard", take=2, num_records=9)) == [b"a", b"b"]
    assert list(read_records(store, "shard", take=2)) == [b"a", b"b"]


@pytest.mark.parametrize("content", [b"", gzip.compress(b"")], ids=["plain", "gzip"])
def test_an_empty_file_holds_no_records(store: Store, content: bytes) -> None:
    put(store, "shard", content)
    assert list(read_records(store, "shard", num_records=0)) == []
    facts = walk_file(store, "shard")
    assert (facts.num_records, facts.num_payload_bytes, facts.num_bytes) == (0, 0, len(content))
    assert facts.sha256 == hashlib.sha256(content).hexdigest()
    with pytest.raises(ShardMismatchError):
        list(read_records(store, "shard", take=1))


@pytest.mark.parametrize("option", ["skip", "take", "num_records"])
def test_negative_numbers_are_refused_at_the_call(store: Store, option: str) -> None:
    with pytest.raises(UsageError, match=f"{option} must be 0 or more, not -1"):
        read_records(store, "shard", **{option: -1})


def test_a_missing_file_is_a_storage_error(store: Store) -> None:
    with pytest.raises(StorageError, match="No such file"):
        list(read_records(store, "shard"))


def test_a_gzip_file_may_have_several_members(store: Store) -> None:
    content = b"".join(gzip.compress(frame_record(record)) for record in RECORDS) + gzip.compress(b"")
    put(store, "shard", content)
    assert list(read_records(store, "shard", num_records=len(RECORDS))) == RECORDS
    assert walk_file(store, "shard").num_bytes == len(content)


def test_zlib_reads_what_isal_reads(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [bytes(70_000), *RECORDS, zlib.compress(bytes(5000), 0) * 30]
    put(store, "shard", gzip.compress(framed(records)))
    assert list(read_records(store, "shard")) == records
    monkeypatch.setitem(sys.modules, "isal", None)
    assert list(read_records(store, "shard")) == records


def test_a_plain_file_that_begins_like_gzip_is_plain(store: Store) -> None:
    records = [b"x" * 0x88B1F, b"y"]  # its length begins 1f 8b 08
    assert frame_record(records[0]).startswith(b"\x1f\x8b\x08")
    put(store, "shard", framed(records))
    assert list(read_records(store, "shard")) == records
    assert walk_file(store, "shard").num_records == 2


@pytest.mark.parametrize("number", either(12_000, 40_000))
def test_memory_holds_a_record_at_a_time(tmp_path: Path, number: int) -> None:
    store = open_store(tmp_path)
    record = bytes(1000)
    with store.create("shard") as file:
        writer = RecordWriter(file)
        for _ in range(number):
            writer.write(record)
    put(store, "shard.gz", gzip.compress(store.read_bytes("shard"), 1))
    tracemalloc.start()
    for name in ("shard", "shard.gz"):
        assert sum(1 for _ in read_records(store, name)) == number
        assert walk_file(store, name).num_records == number
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 2**20  # of 12 or 40 MB


@pytest.mark.parametrize(
    ("content", "file_format", "most"),
    [
        (b"", "tfrecord", 0),
        (framed([b""] * 10), "tfrecord", 10),
        (framed([b"some content"] * 4), "tfrecord", 7),
        (gzip.compress(framed([b""] * 10), mtime=0), "tfrecord", None),
        (b"", "array_record", 0),
        (b"PAR1", "parquet", 2**40),
    ],
)
def test_more_records_than_a_file_has_room_for_are_not_believed(
    store: Store, content: bytes, file_format: str, most: int | None
) -> None:
    put(store, "shard", content)
    most = len(content) * 1032 // 16 if most is None else most
    facts = hash_file(store, "shard", num_records=most, file_format=file_format)
    assert (facts.num_records, facts.num_bytes) == (most, len(content))
    assert facts.sha256 == hashlib.sha256(content).hexdigest()
    with pytest.raises(ShardMismatchError) as caught:
        hash_file(store, "shard", num_records=most + 1, file_format=file_format)
    assert caught.value.message == f"shard: it is {len(content)} bytes long, too few for {most + 1} records"


def test_the_smallest_gzip_stream_has_room_for_its_records(store: Store) -> None:
    put(store, "shard", gzip.compress(framed([b""] * 100_000), 9, mtime=0))
    assert hash_file(store, "shard", num_records=100_000).num_records == 100_000


def test_a_small_gzip_file_of_millions_of_records_is_walked_to_the_first_too_many(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """124 KB hold 4 million empty records: of these no more are looked at, or inflated, than one piece holds."""
    packed = zlib.compressobj(9, wbits=31)
    some = frame_record(b"") * 40_000
    content = b"".join(packed.compress(some) for _ in range(100)) + packed.flush()
    assert 100_000 < len(content) < 140_000
    put(store, "shard", content)
    inflated: list[int] = []
    seen: list[int] = []
    inflate, take = streams._Inflater.__call__, window.Window.take

    def counted(inflater: streams._Inflater) -> bytes:
        piece = inflate(inflater)
        inflated.append(len(piece))
        return piece

    def counting(*args: Any) -> RecordBlock:
        block = take(*args)
        seen.extend(block.lengths.tolist())
        return block

    monkeypatch.setattr(streams._Inflater, "__call__", counted)
    monkeypatch.setattr(window.Window, "take", counting)
    for num_records in (0, 3, 1000):
        seen.clear()
        inflated.clear()
        with pytest.raises(ShardMismatchError) as refused:
            walk_file(store, "shard", num_records=num_records)
        expected = f"expected {num_records} records, found more than {num_records}"
        assert str(refused.value) == f"{store.locate('shard')}: {expected}"
        assert len(seen) == num_records
        assert sum(inflated) < 2**20


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_walk_tells_another_number_of_records_than_was_promised(store: Store, pack: Callable[[bytes], bytes]) -> None:
    put(store, "shard", pack(framed(RECORDS)))
    count = len(RECORDS)
    assert walk_file(store, "shard", num_records=count) == walk_file(store, "shard")
    with pytest.raises(ShardMismatchError) as fewer:
        walk_file(store, "shard", num_records=count + 1)
    assert str(fewer.value) == (f"{store.locate('shard')}: expected {count + 1} records, found {count}")
    with pytest.raises(ShardMismatchError, match=f"expected {count - 1} records, found "):
        walk_file(store, "shard", num_records=count - 1)
