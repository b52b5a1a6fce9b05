"""Sorting in bounded memory: spilling, merging, duplicates, damaged and full disks."""

from __future__ import annotations

import errno
import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.levels import cases

from registry.building import run_files, sorter
from registry.building.keys import join_sort_keys
from registry.building.run_format import KeyedFrames
from registry.building.sorter import ExternalSorter
from registry.errors import DuplicateKeyError, StorageError
from registry.tfrecord import Frames, frame_records


class Entry(NamedTuple):
    sort_key: bytes
    label: str
    record: bytes


def sort_key(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()[:16]


def entries(count: int, size: int = 10) -> Iterator[Entry]:
    for number in range(count):
        yield Entry(sort_key(number), str(number), bytes([number % 256]) * size)


def block_of(items: Sequence[Entry]) -> KeyedFrames:
    return KeyedFrames(
        join_sort_keys(item.sort_key for item in items),
        [item.label for item in items],
        frame_records([item.record for item in items]),
    )


def records_of(blocks: Iterable[Frames]) -> list[bytes]:
    """The payloads of all frames, cut out by the lengths of their blocks."""
    records = []
    for block in blocks:
        content, start = bytes(block.data), 0
        for length in block.lengths.tolist():
            records.append(content[start + 12 : start + length - 4])
            start += length
        assert start == len(content)
    return records


def sort(items: Iterable[Entry], folder: Path, *, in_block: int = 1, **options: Any) -> list[bytes]:
    left = list(items)
    with ExternalSorter(split="train", folder=folder, **options) as sorter:
        while left:
            sorter.add(block_of(left[:in_block]))
            left = left[in_block:]
        return records_of(sorter.sorted_frames())


@pytest.mark.parametrize(
    ("budget_bytes", "fan_in", "in_block"),
    cases(
        [
            (budget_bytes, fan_in, in_block)
            for budget_bytes, fan_in in [(10**9, 128), (20_000, 128), (1_000, 128), (1, 128), (1, 2), (600, 3)]
            for in_block in (1, 7, 700)
        ],
        everyday=8,
    ),
)
def test_the_order_does_not_depend_on_the_available_memory(
    tmp_path: Path, budget_bytes: int, fan_in: int, in_block: int
) -> None:
    found = sort(entries(700), tmp_path, budget_bytes=budget_bytes, fan_in=fan_in, in_block=in_block)
    assert found == [entry.record for entry in sorted(entries(700))]


@pytest.mark.parametrize("budget_bytes", [10**9, 20_000, 1])
@pytest.mark.parametrize("sizes", [[10], [9000], [0, 1, 5000, 30]])
def test_records_without_labels_and_of_any_size_are_sorted(tmp_path: Path, budget_bytes: int, sizes: list[int]) -> None:
    items = [Entry(sort_key(number), "", bytes([number]) * sizes[number % len(sizes)]) for number in range(200)]
    with ExternalSorter(split="train", folder=tmp_path, budget_bytes=budget_bytes) as sorter:
        for start in range(0, len(items), 30):
            sorter.add(block_of(items[start : start + 30])._replace(labels=None))
        assert records_of(sorter.sorted_frames()) == [item.record for item in sorted(items)]


def test_runs_have_no_names(tmp_path: Path) -> None:
    with ExternalSorter(split="train", folder=tmp_path, budget_bytes=1) as sorter:
        for item in entries(20):
            sorter.add(block_of([item]))
        assert list(tmp_path.iterdir()) == []


def test_open_runs_stay_few(tmp_path: Path) -> None:
    with ExternalSorter(split="train", folder=tmp_path, budget_bytes=1, fan_in=4) as sorter:
        for item in entries(300):
            sorter.add(block_of([item]))
            assert len(sorter._runs) <= 4 * 5  # 3 runs of each size, and 300 < 4 ** 5
        assert len(records_of(sorter.sorted_frames())) == 300


def test_records_that_exceed_a_reduced_budget_leave_memory_at_once(tmp_path: Path) -> None:
    with ExternalSorter(split="train", folder=tmp_path, budget_bytes=10**6) as sorter:
        sorter.add(block_of(list(entries(100, size=1000))))
        sorter.reduce_budget(200_000)
        assert len(sorter.runs) == 0
        sorter.reduce_budget(50_000)
        assert len(sorter.runs) == 1
        assert sorter._held.num_bytes == 0
        assert len(records_of(sorter.sorted_frames())) == 100


def test_counts_equal_those_of_the_records(tmp_path: Path) -> None:
    with ExternalSorter(split="train", folder=tmp_path, budget_bytes=1000) as sorter:
        for item in entries(50, size=7):
            sorter.add(block_of([item]))
        assert (sorter.num_examples, sorter.num_payload_bytes) == (50, 350)


@pytest.mark.parametrize("budget_bytes", [10**9, 1])
def test_a_key_used_twice_is_named(tmp_path: Path, budget_bytes: int) -> None:
    again = Entry(sort_key(3), "3", b"other")
    with pytest.raises(DuplicateKeyError) as caught:
        sort([*entries(10), again], tmp_path, budget_bytes=budget_bytes)
    assert str(caught.value) == "split 'train': the key 3 is used twice"
    assert caught.value.hint == "Yield a key that is unique in the split, e.g. a file name or a row number."
    assert caught.value.details == {"split": "train", "keys": ["3", "3"]}


@pytest.mark.parametrize("budget_bytes", [10**9, 1])
def test_keys_that_hash_alike_are_both_named_in_the_order_they_came(tmp_path: Path, budget_bytes: int) -> None:
    twins = [Entry(b"k" * 16, "1", b"x"), Entry(b"k" * 16, "'1'", b"y")]
    with pytest.raises(DuplicateKeyError) as caught:
        sort([*entries(10), *twins], tmp_path, budget_bytes=budget_bytes, fan_in=2)
    assert str(caught.value) == "split 'train': the keys 1 and '1' are the same key"


def test_empty_records_and_labels_of_any_script_come_back(tmp_path: Path) -> None:
    items = [Entry(b"a" * 16, "'ключ'", b""), Entry(b"b" * 16, "", b"\0" * 70_000)]
    assert sort(items[::-1], tmp_path, budget_bytes=1) == [item.record for item in items]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[sorter.Run]:
    """A run of five entries."""
    with ExternalSorter(split="train", folder=tmp_path, budget_bytes=1) as filled:
        filled.add(block_of(list(entries(5))))
        yield filled._runs[0]


@pytest.mark.parametrize("position", [0, 3, 4, 12, 20, 24, 104, 144, 164, 170, 290])
def test_a_changed_byte_is_noticed(run: sorter.Run, position: int) -> None:
    flip_byte(run, position)
    with pytest.raises(StorageError, match=r"^sorting: a temporary file is damaged at byte \d+(?m:$)"):
        list(run.blocks())


def test_missing_bytes_are_noticed(run: sorter.Run) -> None:
    run.file._opened().truncate(run.num_bytes - 3)
    with pytest.raises(StorageError, match="is damaged"):
        list(run.blocks())


def test_a_full_disk_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk(io.BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run_files.tempfile, "TemporaryFile", lambda **_: FullDisk())
    with pytest.raises(StorageError) as caught:
        sort(entries(5), tmp_path, budget_bytes=1)
    assert str(caught.value) == f"sorting: cannot write a temporary file in {tmp_path}: No space left on device"
    assert caught.value.hint == (
        f"Sorting needs about as much free disk space as the split has bytes. Free space in {tmp_path}."
    )


def flip_byte(run: sorter.Run, position: int) -> None:
    run.file._opened().seek(position)
    (byte,) = run.file._opened().read(1)
    run.file._opened().seek(position)
    run.file._opened().write(bytes([byte ^ 1]))
    run.file._opened().flush()
