"""Shards that are read by position: no fault of the file or its index leads to wrong records."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.levels import either

from registry.errors import CorruptRecordError, ShardMismatchError, VerificationError
from registry.storage import Store, open_store
from registry.storage.memory import FileState
from registry.tfrecord import IndexFolder, MappedShard, RecordBlock, Verify, frame_record, open_shard

RECORDS = [b"first", b"", b"the third record", b"12345", b"54321", b"abcde"]
CONTENT = b"".join(map(frame_record, RECORDS))
STARTS = np.cumsum([0, *(len(record) + 16 for record in RECORDS)])
WAYS: dict[str, Callable[[Any, int, int], RecordBlock]] = {
    "read": lambda shard, first, count: shard.read(first, count),
    "gather": lambda shard, first, count: shard.gather(np.arange(first, first + count)),
    "backwards": lambda shard, first, count: shard.gather(np.arange(first, first + count)[::-1]).take(
        np.arange(count)[::-1]
    ),
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "data")


@pytest.fixture
def indexes(tmp_path: Path) -> IndexFolder:
    return IndexFolder(tmp_path / "indexes")


def put(store: Store, content: bytes, name: str = "shard") -> None:
    path = Path(store.locate(name))  # not through the store, which syncs: thousands of damaged files are written
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def read_up_to_the_fault(
    store: Store, *, verify: Verify, way: str, indexes: IndexFolder | None = None
) -> tuple[list[bytes], VerificationError | None]:
    """The records before the first that is refused, read one by one, and why that one is."""
    shard = open_shard(store, "shard", num_records=len(RECORDS), verify=verify, indexes=indexes)
    found: list[bytes] = []
    for record in range(len(RECORDS)):
        try:
            found += WAYS[way](shard, record, 1).records()
        except VerificationError as error:
            return found, error
    return found, None


@pytest.mark.parametrize(
    ("way", "verify"), [("read", "block"), ("read", "record"), ("gather", "block"), ("backwards", "block")]
)
@pytest.mark.parametrize("step", either(17, 1))
def test_every_flipped_bit_is_detected_and_its_record_named(
    store: Store, verify: Verify, way: str, record_property: Callable[[str, object], None], step: int
) -> None:
    for bit in range(0, 8 * len(CONTENT), step):
        damaged = bytearray(CONTENT)
        damaged[bit // 8] ^= 1 << bit % 8
        put(store, bytes(damaged))
        bad = int(np.searchsorted(STARTS, bit // 8, side="right")) - 1
        found, error = read_up_to_the_fault(store, verify=verify, way=way)
        assert found == RECORDS[:bad]
        assert isinstance(error, CorruptRecordError)
        assert (error.details["record"], error.details["offset"]) == (bad, STARTS[bad])
        with pytest.raises(CorruptRecordError) as whole:
            WAYS[way](open_shard(store, "shard", num_records=len(RECORDS), verify=verify), 0, len(RECORDS))
        assert whole.value.details["record"] >= bad  # backwards, the first that is met
    record_property(f"flipped bits caught, {way}, verify={verify}", len(range(0, 8 * len(CONTENT), step)))


def test_views_are_of_undamaged_records_only(store: Store) -> None:
    put(store, CONTENT)
    shard = open_shard(store, "shard", num_records=len(RECORDS), verify="block")
    assert isinstance(shard, MappedShard)
    last = len(RECORDS) - 1  # is read with the end of the file
    assert [shard.view(record) for record in range(last + 1)] == [None] * (last + 1)  # their places are not known yet
    shard.read(0, last + 1)
    assert [bytes(shard.view(record) or b"") for record in range(last)] == RECORDS[:last]
    with Path(store.locate("shard")).open("r+b", buffering=0) as file:
        for bit in range(8 * int(STARTS[last])):
            bad = int(np.searchsorted(STARTS, bit // 8, side="right")) - 1
            file.seek(bit // 8)
            file.write(bytes([CONTENT[bit // 8] ^ 1 << bit % 8]))
            assert [record for record in range(last) if shard.view(record) is None] == [bad]
            file.seek(bit // 8)
            file.write(CONTENT[bit // 8 : bit // 8 + 1])
        assert bytes(shard.view(2) or b"") == RECORDS[2]
        file.truncate(len(CONTENT) - 1)
    assert shard.view(2) is None


@pytest.mark.parametrize("way", WAYS)
def test_without_verify_every_flipped_bit_of_a_length_is_caught_all_the_same(store: Store, way: str) -> None:
    for start in STARTS[:-1].tolist():
        for bit in range(8 * start, 8 * (start + 12)):
            damaged = bytearray(CONTENT)
            damaged[bit // 8] ^= 1 << bit % 8
            put(store, bytes(damaged))
            _, error = read_up_to_the_fault(store, verify="off", way=way)
            assert isinstance(error, CorruptRecordError)
            assert error.details["offset"] == start


@pytest.mark.parametrize("way", WAYS)
def test_truncation_at_every_byte_is_caught(store: Store, way: str) -> None:
    for size in range(len(CONTENT)):
        put(store, CONTENT[:size])
        bad = int(np.searchsorted(STARTS, size, side="right")) - 1
        found, error = read_up_to_the_fault(store, verify="block", way=way)
        assert found == RECORDS[:bad]
        assert isinstance(error, ShardMismatchError if size in STARTS else CorruptRecordError)


def test_what_follows_the_last_record_is_refused_with_it(store: Store) -> None:
    for more, message in (
        (frame_record(b"one more"), "expected 6 records, found more than 6"),
        (b"\0" * 5, "record 6 at byte 132: the file ends after 5 of the 12 bytes of its header"),
        (
            b"\0" * 40,
            "record 6 at byte 132: its length and the checksum of the length disagree: one of them is damaged",
        ),
    ):
        put(store, CONTENT + more)
        shard = open_shard(store, "shard", num_records=6)
        assert shard.read(0, 5).records() == RECORDS[:5]
        with pytest.raises(VerificationError) as caught:
            shard.read(5, 1)
        assert str(caught.value) == f"{store.locate('shard')}: {message}"


# An index is kept if a file has thousands of records.

MANY = [b"%d" % (number**3 % 1000003) for number in range(5000)]
MANY_CONTENT = b"".join(map(frame_record, MANY))
ALL = np.arange(len(MANY))


def open_many(store: Store, indexes: IndexFolder, verify: Verify = "block") -> Any:
    return open_shard(store, "many", num_records=len(MANY), verify=verify, indexes=indexes)


def kept_file(tmp_path: Path) -> Path:
    (file,) = (tmp_path / "indexes").glob("*/*.index")
    return file


@pytest.fixture
def many(store: Store, indexes: IndexFolder) -> Store:
    put(store, MANY_CONTENT, "many")
    assert open_many(store, indexes).read(0, len(MANY)).records() == MANY
    return store


def test_an_index_is_made_when_a_shard_is_first_read(many: Store, indexes: IndexFolder, tmp_path: Path) -> None:
    path = many.locate("many")
    kept = indexes.load(path, FileState.of(Path(path).stat()))
    assert kept.tolist() == np.cumsum([0, *(len(record) + 16 for record in MANY)]).tolist()
    shard = open_many(many, indexes)
    assert shard.read(4990, 10).records() == MANY[4990:]
    assert shard.gather(np.array([17, 4999, 17])).records() == [MANY[17], MANY[4999], MANY[17]]
    assert kept_file(tmp_path).stat().st_size < 9 * len(MANY)


def test_an_index_grows_with_the_records_read(store: Store, indexes: IndexFolder) -> None:
    put(store, MANY_CONTENT, "many")
    path = store.locate("many")
    assert open_many(store, indexes).read(0, 10).records() == MANY[:10]
    assert indexes.load(path, FileState.of(Path(path).stat())) is None
    assert open_many(store, indexes).read(4200, 10).records() == MANY[4200:4210]
    kept = indexes.load(path, FileState.of(Path(path).stat()))
    assert kept.size == 4211
    assert open_many(store, indexes).read(0, 5000).records() == MANY
    kept = indexes.load(path, FileState.of(Path(path).stat()))
    assert kept.size == 5001


@pytest.mark.parametrize("step", either(9, 1))
def test_every_flipped_bit_of_an_index_is_caught_or_does_not_matter(
    many: Store, indexes: IndexFolder, tmp_path: Path, record_property: Callable[[str, object], None], step: int
) -> None:
    file = kept_file(tmp_path)
    sound = file.read_bytes()
    bits = sorted({*range(0, 8 * 120, 3 * step), *range(8 * 120, 8 * len(sound), 997 * step)})
    for bit in bits:
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(bytes(damaged))
        assert open_many(many, indexes).gather(ALL[::-7]).records() == MANY[::-7]
    record_property("flipped bits of an index, none of which was believed", len(bits))


def test_a_truncated_index_is_made_again(many: Store, indexes: IndexFolder, tmp_path: Path) -> None:
    file = kept_file(tmp_path)
    sound = file.read_bytes()
    for size in (0, 1, 27, 28, 31, 32, 33, 40, 120, len(sound) // 2, len(sound) - 1):
        file.write_bytes(sound[:size])
        assert open_many(many, indexes).read(100, 4900).records() == MANY[100:]
        assert file.read_bytes() == sound


def test_the_index_of_another_file_is_not_believed(many: Store, indexes: IndexFolder, tmp_path: Path) -> None:
    others = list(reversed(MANY))
    own = kept_file(tmp_path)
    kept = own.read_bytes()
    shutil.rmtree(own.parent)
    put(many, b"".join(map(frame_record, others)), "many")
    assert open_many(many, indexes).gather(ALL[::3]).records() == others[::3]
    kept_file(tmp_path).write_bytes(kept)  # of the file that was there before: as long, with other records
    assert open_many(many, indexes).gather(ALL[::3]).records() == others[::3]


def test_a_stale_index_is_not_believed_though_size_and_time_are_the_same(many: Store, indexes: IndexFolder) -> None:
    path = Path(many.locate("many"))
    facts = path.stat()
    others = list(reversed(MANY))
    with path.open("r+b") as file:
        file.write(b"".join(map(frame_record, others)))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert path.stat().st_size == facts.st_size
    assert path.stat().st_mtime_ns == facts.st_mtime_ns
    assert open_many(many, indexes).gather(ALL[::3]).records() == others[::3]


def test_a_false_index_with_a_valid_checksum_returns_no_wrong_bytes(
    many: Store, indexes: IndexFolder, record_property: Callable[[str, object], None]
) -> None:
    path = many.locate("many")
    sound = np.cumsum([0, *(len(record) + 16 for record in MANY)])
    lies = []
    for place in (1, 2, 77, 2500, 4998, 4999):
        for step in (-16, -1, 1, 3, 16):
            moved = sound.copy()
            moved[place] += step
            lies.append(moved)
        lies += [np.delete(sound, place), np.insert(sound, place, sound[place])]
    lies += [sound + 16, sound[::-1].copy(), np.zeros_like(sound), sound * 2**40, -sound, sound - 2**62]
    for lie in lies:
        indexes.keep(path, FileState.of(Path(path).stat()), lie)
        assert open_many(many, indexes).read(0, len(MANY)).records() == MANY
        indexes.keep(path, FileState.of(Path(path).stat()), lie)
        assert open_many(many, indexes).gather(ALL).records() == MANY
    record_property("lies of an index that were caught", 2 * len(lies))


def test_a_damaged_file_is_named_although_its_index_is_intact(many: Store, indexes: IndexFolder) -> None:
    path = Path(many.locate("many"))
    damaged = bytearray(MANY_CONTENT)
    start = sum(len(record) + 16 for record in MANY[:3000])
    damaged[start + 13] ^= 1
    path.write_bytes(bytes(damaged))
    indexes.keep(str(path), FileState.of(path.stat()), np.cumsum([0, *(len(record) + 16 for record in MANY)]))
    shard = open_many(many, indexes)
    assert shard.read(0, 3000).records() == MANY[:3000]
    with pytest.raises(CorruptRecordError) as caught:
        shard.read(2990, 100)
    assert caught.value.details["record"] == 3000
    assert shard.read(3001, 1999).records() == MANY[3001:]


def test_a_shard_is_readable_if_its_index_cannot_be_stored(store: Store, tmp_path: Path) -> None:
    put(store, MANY_CONTENT, "many")
    (tmp_path / "file").write_bytes(b"")
    assert open_many(store, IndexFolder(tmp_path / "file" / "below")).read(0, 5000).records() == MANY


def test_gzip_members_may_be_followed_only_by_other_gzip_members(store: Store) -> None:
    sound = b"".join(gzip.compress(frame_record(record)) for record in RECORDS)
    put(store, sound + gzip.compress(frame_record(b"more")))
    assert open_shard(store, "shard", num_records=7).read(0, 7).records() == [*RECORDS, b"more"]
    put(store, sound)
    with pytest.raises(ShardMismatchError, match=r"record 6 was requested, but the file has 6 records(?m:$)"):
        open_shard(store, "shard").read(0, 7)
    put(store, sound + b"other bytes")
    with pytest.raises(CorruptRecordError) as caught:
        open_shard(store, "shard").read(0, 7)
    assert str(caught.value) == (
        f"{store.locate('shard')}: record 6 at byte 132: other bytes follow the gzip stream, here or after "
        "(the offset counts decompressed bytes)"
    )


@pytest.mark.parametrize("step", either(37, 1))
def test_every_flipped_bit_of_a_gzip_file_of_members_is_caught_or_does_not_matter(store: Store, step: int) -> None:
    frames = list(map(frame_record, RECORDS * 3))
    sound = b"".join(gzip.compress(b"".join(frames[start : start + 2]), mtime=0) for start in range(0, 18, 2))
    caught = 0
    for bit in range(0, 8 * len(sound), step):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        put(store, bytes(damaged))
        for first in (0, 9):
            found: list[bytes] = []
            try:
                shard = open_shard(store, "shard", num_records=18)
                for record in range(first, 18):
                    found += shard.read(record, 1).records()
            except VerificationError:
                caught += 1
            assert found == (RECORDS * 3)[first : first + len(found)]
    assert caught > 4000 // step


def test_two_at_once_make_one_index(many: Store, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    folder = IndexFolder(tmp_path / "fresh")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: open_many(many, folder).read(0, 5000).records(), range(16)))
    assert all(one == MANY for one in found)
    assert len([path for path in (tmp_path / "fresh").rglob("*") if path.is_file()]) == 1


ALIKE = [b"%05d" % number for number in range(12)]


@pytest.mark.parametrize("verify", ["record", "block"])
@pytest.mark.parametrize("step", either(17, 1))
def test_every_flipped_bit_of_records_of_one_length_is_caught(store: Store, verify: Verify, step: int) -> None:
    content = b"".join(map(frame_record, ALIKE))
    for bit in range(0, 8 * len(content), step):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        put(store, bytes(damaged))
        bad = bit // 8 // (len(content) // len(ALIKE))
        with pytest.raises(CorruptRecordError) as caught:
            open_shard(store, "shard", num_records=len(ALIKE), verify=verify).read(0, len(ALIKE))
        assert caught.value.details["record"] == bad


def test_a_flipped_bit_among_thousands_of_records_of_several_lengths_is_caught(store: Store) -> None:
    starts = np.cumsum([0, *(len(record) + 16 for record in MANY)])
    for bad in (0, 1, 2, 9, 2500, 3333, 4998, 4999):
        for byte in (0, 9, 12, int(starts[bad + 1] - starts[bad]) - 1):  # length, its checksum, content, its checksum
            damaged = bytearray(MANY_CONTENT)
            damaged[int(starts[bad]) + byte] ^= 4
            put(store, bytes(damaged), "many")
            for order in (ALL, ALL[::-1]):
                with pytest.raises(CorruptRecordError) as caught:
                    open_shard(store, "many", num_records=5000, verify="block").gather(order)
                assert caught.value.details["record"] == bad


def test_an_index_with_a_forged_identity_is_not_trusted(store: Store, indexes: IndexFolder, tmp_path: Path) -> None:
    put(store, MANY_CONTENT, "many")
    assert open_shard(store, "many", indexes=indexes).read(0, 5000).records() == MANY
    kept = bytearray(kept_file(tmp_path).read_bytes())
    joined = frame_record(MANY[0]) + frame_record(MANY[1])
    others = [joined[12:-4], *MANY[2:]]  # as long, and from record 1 on the same frames in the same places, one earlier
    put(store, b"".join(map(frame_record, others)), "many")
    assert open_shard(store, "many", indexes=indexes).read(0, 4999).records() == others
    kept[:28] = kept_file(tmp_path).read_bytes()[:28]
    kept_file(tmp_path).write_bytes(kept)
    assert open_shard(store, "many", indexes=indexes).read(100, 1).records() == [others[100]]


def test_a_damaged_end_of_a_gzip_file_is_detected_with_its_last_record(store: Store) -> None:
    sound = gzip.compress(CONTENT)
    for damaged in (sound[:-1], sound[:-5] + bytes([sound[-5] ^ 1]) + sound[-4:], sound + b"more"):
        put(store, damaged)
        with pytest.raises(CorruptRecordError, match=r"gzip stream"):
            open_shard(store, "shard", num_records=len(RECORDS)).read(0, len(RECORDS))
