"""Readers: keys, places and faults of files, compressed or not."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.golden import check_errors

from registry.errors import CorruptRecordError, ReaderFailedError, RegistryError, UsageError, WrongTypeError
from registry.slim.data_files import DataFile
from registry.slim.parallel_reader import single_pass_read
from registry.slim.readers import TextLineReader, TFRecordReader
from registry.storage import open_store
from registry.tfrecord import frame_record

GOLDEN = Path(__file__).parent / "golden" / "slim_readers"
RECORDS = [b"first", b"", b"the third record"]
OFFSETS = [0, 21, 37]
CONTENT = b"".join(map(frame_record, RECORDS))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("shard")


@pytest.mark.parametrize("write", [bytes, gzip.compress])
@pytest.mark.parametrize("verify", ["record", "block", "off"])
def test_keys_are_path_and_offset_in_the_content(path: Path, write: Any, verify: Any) -> None:
    path.write_bytes(write(CONTENT))
    keys = [b"shard:%d" % offset for offset in OFFSETS]
    assert list(TFRecordReader(path, verify=verify)) == list(zip(keys, RECORDS, strict=True))


def test_offsets_go_on_beyond_the_window(path: Path) -> None:
    records = [bytes([number % 251]) * (number % 7 * 4000) for number in range(300)] + [b"x" * 2_400_000, b"end"]
    path.write_bytes(b"".join(map(frame_record, records)))
    content = path.read_bytes()
    for (key, record), expected in zip(TFRecordReader(path), records, strict=True):
        offset = int(key.split(b":")[1])
        assert record == expected
        assert content[offset : offset + 8] == len(record).to_bytes(8, "little")


def test_a_data_file_skips_and_takes(path: Path) -> None:
    path.write_bytes(CONTENT)
    file = DataFile(store=open_store("."), filename="shard", skip=1, take=2, num_records=3, path="shard")
    assert list(TFRecordReader(file)) == [(b"shard:21", b""), (b"shard:37", b"the third record")]
    assert list(TFRecordReader(DataFile(store=file.store, filename="shard", skip=2, path="s"))) == [
        (b"s:37", b"the third record")
    ]


def test_a_file_that_holds_another_number_of_records_is_refused(path: Path) -> None:
    path.write_bytes(CONTENT)
    for num_records, message in ((2, "more than 2"), (4, "3")):
        file = DataFile(store=open_store("."), filename="shard", num_records=num_records, path="shard")
        with pytest.raises(RegistryError) as caught:
            list(TFRecordReader(file))
        assert str(caught.value) == f"shard: expected {num_records} records, found {message}"


@pytest.mark.parametrize(
    "options", [None, "GZIP", 2, SimpleNamespace(compression_type="GZIP"), SimpleNamespace(compression_type=2)]
)
def test_gzip_may_be_said_or_found_out(path: Path, options: Any) -> None:
    path.write_bytes(gzip.compress(CONTENT))
    assert [record for _, record in TFRecordReader(path, options)] == RECORDS


@pytest.mark.parametrize("options", [None, "", 0, SimpleNamespace(compression_type=None)])
def test_no_compression_may_be_said_or_found_out(path: Path, options: Any) -> None:
    path.write_bytes(CONTENT)
    assert [record for _, record in TFRecordReader(path, options)] == RECORDS


@pytest.mark.parametrize("options", [None, "", "GZIP", "ZLIB"])
def test_an_empty_file_holds_no_records(path: Path, options: Any) -> None:
    path.touch()
    assert list(TFRecordReader(path, options)) == []


def test_another_compression_is_named(path: Path) -> None:
    packed, deflated = gzip.compress(CONTENT), zlib.compress(CONTENT)
    rows: list[tuple[bytes, str | None]] = [
        (CONTENT, "GZIP"),
        *((packed, options) for options in ("", "ZLIB")),
        *((deflated, options) for options in (None, "ZLIB", "GZIP")),
        (bz2.compress(CONTENT), None),
        (lzma.compress(CONTENT), None),
        (b"\x28\xb5\x2f\xfd" + bytes(20), None),
        (b"PK\x03\x04" + bytes(20), None),
        (b"0:cat\r\n1:dog\r\n", None),
        ("0\tcat and dog, élève".encode(), None),
        (b"cat\ndog\n", "GZIP"),
    ]

    def read(content: bytes, options: str | None) -> None:
        path.write_bytes(content)
        list(TFRecordReader(path, options))

    calls = (partial(read, *row) for row in rows)
    check_errors(GOLDEN / "another_compression_is_named.txt", calls, details=("path", "offset"))


def test_a_file_of_records_that_was_cut_off_is_not_taken_for_text(path: Path) -> None:
    content = frame_record(b"x" * 0x6161)  # of the first bytes of its length two are letters
    for stop in range(1, 13):
        path.write_bytes(content[:stop])
        with pytest.raises(CorruptRecordError, match="the file ends"):
            list(TFRecordReader(path))


@pytest.mark.parametrize("options", ["gzip", "LZ4", 3, True, object()])
def test_unknown_options_are_refused(path: Path, options: Any) -> None:
    path.touch()
    with pytest.raises(UsageError, match=r"^unknown compression "):
        TFRecordReader(path, options)


def test_records_before_a_damaged_one_come_first(path: Path) -> None:
    damaged = bytearray(CONTENT)
    damaged[-5] ^= 1
    path.write_bytes(damaged)
    found = []
    with pytest.raises(CorruptRecordError, match=r"^shard: record 2 at byte 37: its 16 bytes and their checksum"):
        found.extend(TFRecordReader(path))
    assert [record for _, record in found] == RECORDS[:2]


def test_lines_are_records(path: Path) -> None:
    path.write_bytes(b"a,b\r\nc\rd\n\n  x \nlast")
    lines = [(b"shard:2", b"c\rd"), (b"shard:3", b""), (b"shard:4", b"  x "), (b"shard:5", b"last")]
    assert list(TextLineReader(path)) == [(b"shard:1", b"a,b"), *lines]
    assert list(TextLineReader(path, skip_header_lines=1)) == lines
    assert list(single_pass_read("shard", TextLineReader, {"skip_header_lines": 4})) == lines[3:]
    assert list(TextLineReader(path, skip_header_lines=9)) == []
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert list(TextLineReader(path)) == [(b"shard:1", b"a,b"), *lines]


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:40] + b"xxxx" + data[44:]])
def test_lines_of_a_damaged_gzip_file_end_in_an_error_that_names_it(path: Path, damage: Any) -> None:
    path.write_bytes(damage(gzip.compress(b"".join(b"%d\n" % number for number in range(1000)))))
    with pytest.raises(CorruptRecordError, match=r"^shard: record \d+: after line \d+ the gzip stream is damaged"):
        list(TextLineReader(path))
    with pytest.raises(UsageError, match=r"^skip_header_lines must be 0 or more, not -1(?m:$)"):
        TextLineReader(path, -1)


def test_a_reader_may_be_a_partial_with_its_options(path: Path) -> None:
    path.write_bytes(CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]))
    file = DataFile(store=open_store("."), filename="shard", skip=1, path="shard")
    trusting = partial(TFRecordReader, verify="off")
    assert [record for _, record in single_pass_read(file, trusting)] == RECORDS[1:]


def read_words(path: str, *, upper: bool = False) -> Iterator[tuple[str, bytes]]:
    for word in Path(path).read_bytes().split():
        yield word.decode(), word.upper() if upper else word


def test_any_function_can_be_a_reader(path: Path) -> None:
    path.write_bytes(b"one two")
    assert list(single_pass_read("shard", read_words)) == [(b"one", b"one"), (b"two", b"two")]
    assert list(single_pass_read("shard", read_words, {"upper": True})) == [(b"one", b"ONE"), (b"two", b"TWO")]


@pytest.mark.parametrize("given", [b"text", ("key",), ("key", 3), (None, b""), ("a", b"b", b"c"), None])
def test_a_reader_that_does_not_give_pairs_of_bytes_is_refused(path: Path, given: Any) -> None:
    path.touch()

    def read_wrong(_: str) -> Any:
        return None if given is None else iter([given])

    with pytest.raises(WrongTypeError) as caught:
        list(single_pass_read("shard", read_wrong))
    words = "must return pairs of key and record, and returned"
    assert str(caught.value) == f"shard: the reader read_wrong {words} {given!r}"


def test_an_error_of_a_reader_names_the_file_and_how_far_it_came(path: Path) -> None:
    path.touch()

    def read_badly(_: str) -> Iterator[tuple[bytes, bytes]]:
        yield b"k", b"v"
        raise KeyError("mine")

    reader = single_pass_read("shard", read_badly)
    assert reader.read() == (b"k", b"v")
    for _ in range(2):
        with pytest.raises(ReaderFailedError) as caught:
            reader.read()
        assert caught.value.message == (
            "shard: the reader read_badly failed after 1 record (the last one is 'k'): KeyError: 'mine'"
        )
        assert (
            caught.value.hint
            == "The reader's own exception is the cause of this error. All records before it were returned."
        )
        assert caught.value.details == {"path": "shard", "reader": "read_badly", "record": 1, "key": "k"}
        assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("raised", [OSError("no tape"), SystemExit(3), StopIteration("early")], ids=repr)
def test_an_immediate_exception_of_a_reader_is_wrapped_like_a_later_one(path: Path, raised: BaseException) -> None:
    path.touch()

    def refuse(_: str) -> Iterator[tuple[bytes, bytes]]:
        raise raised

    with pytest.raises(ReaderFailedError) as caught:
        single_pass_read("shard", refuse).read()
    assert caught.value.message == (
        f"shard: the reader refuse failed before its first record: {type(raised).__name__}: {raised}"
    )
    assert caught.value.__cause__ is raised


def test_a_registry_error_in_a_reader_is_raised_unchanged(path: Path) -> None:
    path.write_bytes(frame_record(b"1")[:-1])
    with pytest.raises(CorruptRecordError):
        single_pass_read("shard", lambda file: iter(TFRecordReader(file))).read()


def test_a_function_cannot_read_a_part_of_a_file(path: Path) -> None:
    path.touch()
    file = DataFile(store=open_store("."), filename="shard", skip=1, path="shard")
    with pytest.raises(UsageError) as caught:
        list(single_pass_read(file, read_words))
    assert str(caught.value) == "shard: read_words cannot read a part of a file"


def test_bytes_after_a_gzip_stream_are_an_error_after_all_of_its_records(path: Path) -> None:
    path.write_bytes(gzip.compress(CONTENT) + b"other bytes")
    records = iter(TFRecordReader(path))
    assert [next(records)[1] for _ in RECORDS] == RECORDS
    with pytest.raises(CorruptRecordError) as caught:
        next(records)
    assert str(caught.value) == (
        f"shard: record 3 at byte {len(CONTENT)}: other bytes follow the gzip stream, here or after "
        "(the offset counts decompressed bytes)"
    )
