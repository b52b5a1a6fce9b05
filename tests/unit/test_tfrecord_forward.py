"""Reading forwards in blocks: the records, and the errors, of reading one record after the other."""

from __future__ import annotations

import gzip
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from registry.errors import RegistryError, UsageError
from registry.storage import Store, open_store
from registry.tfrecord import frame_record, read_blocks, read_records

RECORDS = [b"first", b"", b"the third record", b"x" * 30]
CONTENT = b"".join(map(frame_record, RECORDS))
STARTS = [0, 21, 37, 69]


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(tmp_path if request.param == "local" else f"memory://{uuid.uuid4().hex}")


def write(store: Store, content: bytes) -> None:
    with store.create("shard", overwrite=True) as file:
        file.write(content)


def all_blocks(store: Store, **options: int) -> tuple[list[bytes], list[int], str | None]:
    """Records, places, and the message of the error."""
    records: list[bytes] = []
    places: list[int] = []
    try:
        for block, starts in read_blocks(store, "shard", **options):  # type: ignore[arg-type]  # they are all numbers
            assert block.num_records > 0
            records += block.records()
            places += starts.tolist()
    except RegistryError as error:
        return records, places, str(error)
    return records, places, None


def one_by_one(store: Store, **options: int) -> tuple[list[bytes], str | None]:
    records: list[bytes] = []
    try:
        records.extend(read_records(store, "shard", **options))
    except RegistryError as error:
        return records, str(error)
    return records, None


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("most", [1, 2, 100])
def test_blocks_hold_the_records_and_their_places(store: Store, pack: Callable[[bytes], bytes], most: int) -> None:
    write(store, pack(CONTENT))
    assert all_blocks(store, most=most) == (RECORDS, STARTS, None)
    for skip in range(5):
        for take in range(5 - skip):
            expected = RECORDS[skip : skip + take], STARTS[skip : skip + take], None
            assert all_blocks(store, most=most, skip=skip, take=take) == expected
            assert all_blocks(store, most=most, skip=skip, take=take, num_records=4) == expected


def test_what_was_promised_is_held_to(store: Store) -> None:
    write(store, CONTENT)
    for options in (
        {"num_records": 3},
        {"num_records": 5},
        {"skip": 2, "take": 3},
        {"skip": 5},
        {"skip": 1, "num_records": 3},
    ):
        found, _, message = all_blocks(store, **options)
        assert (found, message) == one_by_one(store, **options)
        assert message is not None


def test_damage_anywhere_is_the_same_error_after_the_same_records(store: Store) -> None:
    for size in range(len(CONTENT)):
        write(store, CONTENT[:size])
        found, places, message = all_blocks(store)
        assert (found, message) == one_by_one(store)
        assert places == STARTS[: len(found)]
    for place in range(len(CONTENT)):
        damaged = bytearray(CONTENT)
        damaged[place] ^= 1 << place % 8
        write(store, bytes(damaged))
        found, _, message = all_blocks(store)
        assert (found, message) == one_by_one(store)
        assert message is not None


def test_the_first_bytes_may_be_refused(store: Store) -> None:
    write(store, CONTENT)
    seen = []

    def refuse(start: bytes) -> None:
        seen.append(start)
        raise UsageError("no")

    with pytest.raises(UsageError, match=r"^no(?m:$)"):
        next(read_blocks(store, "shard", check_start=refuse))
    assert seen == [CONTENT[:12]]


def test_the_path_in_errors_may_be_another(store: Store) -> None:
    write(store, CONTENT[:-1])
    pattern = r"^mine: record 3 at byte 69: the file ends after 45 of its 46 bytes(?m:$)"
    with pytest.raises(RegistryError, match=pattern):
        list(read_blocks(store, "shard", path="mine"))
