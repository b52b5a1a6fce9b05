"""The folder of the cache: what it keeps, what it deletes, and what happens if its disk or its files fail."""

from __future__ import annotations

import fcntl
import hashlib
import json
import multiprocessing
import os
import pickle
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support import TESTS, warm_python
from support.cache_samples import (
    CONTENT,
    KEPT_BLOCK_BYTES,
    SHA256,
    SIZE,
    Source,
    block_files,
    num_bytes_of,
    open_cached,
    read_block,
)

from registry.errors import StorageError, UsageError
from registry.storage.cache import BLOCK_BYTES, CachedBlocks, CachedFile, FileCache, folder, parse_bytes
from registry.storage.faults import Range

ALL = list(range(7))


@pytest.fixture
def cache(tmp_path: Path) -> FileCache:
    """A cache without blocks, large enough for the whole file."""
    return FileCache(tmp_path / "blocks", max_bytes=100 * KEPT_BLOCK_BYTES)


def small(cache: FileCache, num_blocks: int) -> FileCache:
    return FileCache(cache.folder, max_bytes=num_blocks * KEPT_BLOCK_BYTES)


def read_all(cache: FileCache) -> list[int]:
    """Read the whole file through the cache; the blocks that were fetched."""
    with open_cached(cache, source := Source()) as file:
        assert file.read() == CONTENT
    return source.blocks


def test_blocks_are_fetched_as_a_whole_and_only_once(cache: FileCache) -> None:
    with open_cached(cache, source := Source()) as file:
        ranges = [(5, 10), (2 * BLOCK_BYTES - 1, 2 * BLOCK_BYTES + 1), (SIZE - 1, SIZE)]
        assert [bytes(view) for _, view in file.read_ranges(ranges, in_order=True)] == [
            CONTENT[slice(*one)] for one in ranges
        ]
        assert source.blocks == [0, 1, 2, 6]
        assert len(source.fetched) == 4
        assert list(block_files(cache)) == [0, 1, 2, 6]
        assert [bytes(view) for _, view in file.read_ranges([(7, BLOCK_BYTES)])] == [CONTENT[7:BLOCK_BYTES]]
    assert read_all(cache) == [3, 4, 5]
    assert read_all(cache) == []


def test_an_empty_file_is_complete(cache: FileCache) -> None:
    blocks = CachedBlocks(cache, SHA256, 0)
    assert (blocks.is_complete(), blocks.num_blocks, blocks.num_missing_bytes()) == (True, 0, 0)


def test_a_file_is_complete_with_its_last_block(cache: FileCache) -> None:
    for number in ALL:
        assert not CachedBlocks(cache, SHA256, SIZE).is_complete()
        read_block(cache, number)
    assert CachedBlocks(cache, SHA256, SIZE).is_complete()


@pytest.mark.parametrize(
    "damage", ["cut", "changed", "digest", "longer", "of another block", "of another file", "folder"]
)
def test_a_damaged_block_is_fetched_again(cache: FileCache, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    read_all(cache)
    path = block_files(cache)[2]
    content = path.read_bytes()
    if damage == "of another block":
        shutil.copy(block_files(cache)[3], path)
    elif damage == "of another file":
        other = Source(bytes(SIZE))
        with open_cached(cache, other) as file:
            file.read()
        (found,) = (one for one in cache.folder.glob(f"??/*/{path.name}") if one != path)
        shutil.copy(found, path)
    elif damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        changed = {
            "cut": content[:-1],
            "changed": content[:1000] + bytes([content[1000] ^ 1]) + content[1001:],
            "digest": bytes([content[0] ^ 1]) + content[1:],
            "longer": content + b"0",
        }
        path.write_bytes(changed[damage])
    assert read_all(cache) == [2]
    assert f"{path} is damaged and will be made again" in caplog.messages
    if damage != "folder":
        assert path.read_bytes() == content
        assert read_all(cache) == []


@pytest.mark.parametrize("change", ["group", "others", "owner"])
def test_a_folder_that_others_may_have_written_is_not_used(
    cache: FileCache, change: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read_all(cache)
    assert cache.is_usable
    if change == "owner":
        owner = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    else:
        cache.folder.chmod(0o720 if change == "group" else 0o702)
    assert not cache.is_usable
    assert not cache.is_usable
    reason = "it belongs to another user, or others can write to it"
    command = f"chmod 700 {cache.folder}"
    assert caplog.messages == [f"the cache folder {cache.folder} is not used: {reason}. If it is yours: {command}"]
    with pytest.raises(StorageError, match=f"cannot write {cache.folder}: {reason}"):
        cache.require_writable()


def test_a_link_is_not_followed_out_of_the_folder(cache: FileCache, tmp_path: Path) -> None:
    read_all(cache)
    path = block_files(cache)[2]
    outside = path.rename(tmp_path / "outside")
    content = outside.read_bytes()
    path.symlink_to(outside)
    (cache.folder / "ff").mkdir(exist_ok=True)
    (cache.folder / "ff" / ("f" * 64)).symlink_to(path.parent)
    assert cache.usage().num_blocks == 6
    assert open_cached(cache).read() == CONTENT
    read_block(small(cache, 1), 0, Source())
    cache.clear()
    assert outside.read_bytes() == content


def test_a_folder_in_place_of_a_file_that_the_cache_needs_is_named(cache: FileCache) -> None:
    (cache.folder / "size").mkdir(parents=True)
    assert read_all(cache) == ALL
    with pytest.raises(StorageError, match=f"cannot write {cache.folder}: .*[Ii]s a directory"):
        cache.require_writable()


def test_a_folder_that_was_deleted_and_made_again_is_used_by_those_that_know_the_old_one(cache: FileCache) -> None:
    read_all(cache)
    shutil.rmtree(cache.folder)
    assert read_all(FileCache(cache.folder)) == ALL
    assert read_all(cache) == []


def test_nobody_else_can_read_what_is_kept(cache: FileCache) -> None:
    read_all(cache)
    for path in (cache.folder, *cache.folder.rglob("*")):
        is_inner = path.is_dir() and path != cache.folder
        assert is_inner or not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_a_cache_that_is_smaller_than_a_file_holds_a_part_of_it(cache: FileCache) -> None:
    limited = small(cache, 3)
    for _ in range(3):
        read_all(limited)
        assert num_bytes_of(cache) <= 3 * KEPT_BLOCK_BYTES
    assert len(block_files(cache)) == 3


def test_a_cache_that_is_smaller_than_a_block_fetches_what_is_needed(cache: FileCache) -> None:
    with open_cached(FileCache(cache.folder, max_bytes=1000), source := Source()) as file:
        assert [bytes(view) for _, view in file.read_ranges([(5, 10), (50, 70)], in_order=True)] == [
            CONTENT[5:10],
            CONTENT[50:70],
        ]
    assert source.fetched == [(5, 70)]
    assert num_bytes_of(cache) == 0


def test_a_block_that_another_process_reads_is_not_deleted(cache: FileCache) -> None:
    limited = small(cache, 2)
    read_block(limited, 0)
    read_block(limited, 1)
    with block_files(cache)[0].open("rb") as used:
        fcntl.flock(used, fcntl.LOCK_SH)
        read_block(limited, 2)
        assert list(block_files(cache)) == [0, 2]
        with block_files(cache)[2].open("rb") as also_used:
            fcntl.flock(also_used, fcntl.LOCK_SH)
            assert read_block(limited, 3) == CONTENT[3 * BLOCK_BYTES : 4 * BLOCK_BYTES]
            assert list(block_files(cache)) == [0, 2]
    read_block(limited, 3)
    assert list(block_files(cache)) == [2, 3]


def test_a_block_that_is_about_to_be_deleted_is_fetched(cache: FileCache) -> None:
    read_all(cache)
    with block_files(cache)[0].open("rb") as evicting:
        fcntl.flock(evicting, fcntl.LOCK_EX)
        assert read_all(cache) == [0]


def test_a_large_cache_frees_more_than_it_needs_at_a_time(cache: FileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_SMALL_BYTES", 0)
    monkeypatch.setattr(folder, "_SPARE_PART", 2)
    limited = small(cache, 4)
    for number in range(4):
        read_block(limited, number)
    read_block(limited, 4)
    assert list(block_files(cache)) == [3, 4]


def test_the_size_of_all_files_is_right_after_the_note_of_it_was_lost(cache: FileCache) -> None:
    limited = small(cache, 4)
    for number in range(4):
        read_block(limited, number)
    for place, wrong in enumerate((b"", b"none", b"9" * 30, b"0" * 19)):
        (cache.folder / "size").write_bytes(wrong)
        assert read_block(limited, place % 2 + 4)
        assert num_bytes_of(cache) <= 4 * KEPT_BLOCK_BYTES
        assert len(block_files(cache)) == 4
        assert int((cache.folder / "size").read_bytes()) == num_bytes_of(cache)
        read_block(limited, 5 - place % 2)
        read_block(limited, 3)
        read_block(limited, 2)
        read_block(limited, 1)
        read_block(limited, 0)


def test_what_killed_processes_left_is_deleted_after_an_hour(cache: FileCache) -> None:
    limited = small(cache, 2)
    read_block(limited, 0)
    folder = block_files(cache)[0].parent
    young, old = folder / f"00000005.{'0' * 16}", folder / f"00000005.{'1' * 16}"
    for path, age in ((young, 60), (old, 4000)):
        path.write_bytes(bytes(KEPT_BLOCK_BYTES // 2))
        os.utime(path, (time.time() - age,) * 2)
    (cache.folder / "size").unlink()
    read_block(limited, 1)
    assert (young.exists(), old.exists()) == (True, False)
    assert list(block_files(cache)) == [1]


def test_other_files_in_the_folder_are_left_alone(cache: FileCache) -> None:
    read_all(cache)
    strangers = [
        cache.folder / "readme",
        block_files(cache)[0].with_name("readme"),
        cache.folder / "ab" / "readme",
    ]
    for path in strangers:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    read_block(small(cache, 1), 0, Source())
    cache.clear()
    assert [path.read_text() for path in strangers] == ["mine"] * 3
    assert block_files(cache) == {}


def test_what_is_kept_while_it_is_hashed_is_visible_if_the_digest_is_right(cache: FileCache) -> None:
    for is_right in (False, True):
        with CachedBlocks(cache, SHA256, SIZE).fill() as filling:
            for piece in Source().pieces():
                filling.add(piece)
            assert block_files(cache) == {}
            filling.is_right = is_right
        assert CachedBlocks(cache, SHA256, SIZE).is_complete() is is_right
        assert num_bytes_of(cache) == (SIZE + 8 * 32 if is_right else 0)
    assert read_all(cache) == []


def test_bytes_that_were_damaged_on_their_way_are_found_when_all_blocks_are_there(cache: FileCache) -> None:
    damaged = CONTENT[:1000] + bytes([CONTENT[1000] ^ 1]) + CONTENT[1001:]
    blocks = CachedBlocks(cache, SHA256, SIZE)
    with CachedFile(blocks, Source(damaged)) as file:
        file.read()
    assert blocks.is_complete()
    assert not blocks.is_proved()
    assert not blocks.prove()
    assert block_files(cache) == {}
    read_all(cache)
    assert blocks.prove()
    assert CachedBlocks(cache, SHA256, SIZE).is_proved()
    assert read_all(cache) == []


def test_a_file_is_proved_again_after_a_block_was_fetched(cache: FileCache) -> None:
    read_all(cache)
    blocks = CachedBlocks(cache, SHA256, SIZE)
    assert blocks.prove()
    block_files(cache)[3].unlink()
    assert not blocks.is_complete()
    read_all(cache)
    assert blocks.is_complete()
    assert not blocks.is_proved()


@pytest.mark.parametrize("damage", ["changed", "of another file"])
def test_a_damaged_note_of_a_proof_does_not_count(cache: FileCache, damage: str) -> None:
    read_all(cache)
    blocks = CachedBlocks(cache, SHA256, SIZE)
    assert blocks.prove()
    note = block_files(cache)[0].with_name("proved")
    if damage == "changed":
        note.write_bytes(bytes(32))
    else:
        other = Source(bytes(SIZE))
        with open_cached(cache, other) as file:
            file.read()
        other_blocks = CachedBlocks(cache, hashlib.sha256(other.content).hexdigest(), SIZE)
        assert other_blocks.prove()
        (found,) = (path for path in cache.folder.glob("??/*/proved") if path != note)
        shutil.copy(found, note)
    assert not CachedBlocks(FileCache(cache.folder), SHA256, SIZE).is_proved()


def test_a_file_is_forgotten_although_one_block_cannot_be_deleted(cache: FileCache) -> None:
    read_all(cache)
    path = block_files(cache)[0]
    path.unlink()
    path.mkdir()
    assert CachedBlocks(cache, SHA256, SIZE).forget()
    assert list(block_files(cache)) == [0]


def test_a_proof_ends_with_its_read(cache: FileCache) -> None:
    read_all(cache)
    stop = threading.Event()
    stop.set()
    with pytest.raises(InterruptedError):
        CachedBlocks(cache, SHA256, SIZE).prove(stop)


def test_nothing_is_kept_of_a_file_whose_hashing_failed(cache: FileCache) -> None:
    with pytest.raises(InterruptedError), CachedBlocks(cache, SHA256, SIZE).fill() as filling:  # noqa: PT012 (as a hash fails)
        filling.add(memoryview(CONTENT))
        raise InterruptedError
    assert num_bytes_of(cache) == 0


def test_the_first_blocks_of_a_hashed_file_that_is_larger_than_the_cache_are_kept(cache: FileCache) -> None:
    limited = small(cache, 3)
    with CachedBlocks(limited, SHA256, SIZE).fill() as filling:
        for piece in Source().pieces():
            filling.add(piece)
        filling.is_right = True
    assert list(block_files(cache)) == [0, 1, 2]


def test_nothing_is_kept_from_a_source_without_an_entity_tag(cache: FileCache) -> None:
    """It may be replaced at any time."""
    with open_cached(cache, Source(entity_tag=None)) as file:
        assert file.read() == CONTENT
    assert block_files(cache) == {}


def test_an_iterator_continues_after_its_file_is_closed(cache: FileCache) -> None:
    read_block(cache, 0)
    with open_cached(cache) as file:
        begun = file.read_ranges([(0, 10), (BLOCK_BYTES, BLOCK_BYTES + 10)], in_order=True)
    assert [bytes(view) for _, view in begun] == [CONTENT[:10], CONTENT[BLOCK_BYTES : BLOCK_BYTES + 10]]
    for ask in (lambda: file.read_ranges([(0, 10)]), lambda: list(file.pieces()), lambda: file.read(10), file.read):
        with pytest.raises(ValueError, match="closed file"):
            ask()


def test_a_read_that_waits_for_a_fetch_that_fails_fetches_by_itself(cache: FileCache) -> None:
    class FailingOnce(Source):
        def read_ranges(self, ranges: Sequence[Range], *, in_order: bool = False) -> Iterator[tuple[int, memoryview]]:
            is_first = not self.fetched
            for index, view in super().read_ranges(ranges, in_order=in_order):
                if is_first and index == 1:
                    raise StorageError("the connection was lost")
                yield index, view

    with open_cached(cache, FailingOnce()) as file:
        first, second = file.read_ranges([(0, SIZE)]), file.read_ranges([(2 * BLOCK_BYTES, 3 * BLOCK_BYTES)])
        with pytest.raises(StorageError, match="the connection was lost"):
            list(first)
        assert [bytes(view) for _, view in second] == [CONTENT[2 * BLOCK_BYTES : 3 * BLOCK_BYTES]]
        assert [bytes(view) for _, view in file.read_ranges([(0, SIZE)])] == [CONTENT]


def test_a_range_that_leaves_the_file_is_refused(cache: FileCache) -> None:
    with open_cached(cache) as file, pytest.raises(StorageError) as caught:
        file.read_ranges([(0, 10), (SIZE, SIZE + 1)])
    assert (
        str(caught.value)
        == f"cannot read memory://source: bytes {SIZE} to {SIZE + 1} were requested, but the file has {SIZE} bytes"
    )


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk with room for three blocks; if only root may mount one, no file may be as large as a block."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "false", "-t", "tmpfs", "-o", "size=800k", "tmpfs", str(folder)]
    if mount and subprocess.run(command, capture_output=True, check=False).returncode == 0:
        yield folder
        subprocess.run(["umount", folder], check=True)
        return
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (BLOCK_BYTES // 2, before[1]))
    yield folder
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_costs_only_speed(full_disk: Path) -> None:
    cache = FileCache(full_disk / "blocks", max_bytes=100 * KEPT_BLOCK_BYTES)
    assert read_all(cache) == ALL
    assert cache.is_paused
    kept = list(block_files(cache))
    assert len(kept) < 4
    assert all(path.stat().st_size == KEPT_BLOCK_BYTES for path in cache.folder.glob("??/*/*"))
    assert read_all(FileCache(cache.folder)) == [number for number in ALL if number not in kept]


def test_the_disk_fills_while_a_block_is_written(cache: FileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int, *parts: bytes) -> None:
        os.write(descriptor, b"a part")
        os.close(descriptor)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("registry.storage.cache.blocks._write", fail)
        assert read_all(cache) == ALL
    assert num_bytes_of(cache) == 0
    cache = FileCache(cache.folder)
    assert read_all(cache) == ALL
    assert read_all(cache) == []


@pytest.mark.parametrize("obstacle", ["a file", "a file in a part"])
def test_a_folder_that_cannot_be_written_costs_only_speed(cache: FileCache, obstacle: str) -> None:
    if obstacle == "a file":
        cache.folder.write_text("in the way")
    else:
        cache.folder.mkdir()
        (cache.folder / SHA256[:2]).write_text("in the way")
    assert read_all(cache) == ALL
    assert read_all(cache) == ALL
    with CachedBlocks(cache, SHA256, SIZE).fill() as filling:
        filling.add(memoryview(CONTENT))
        filling.is_right = True
    assert not CachedBlocks(cache, SHA256, SIZE).is_complete()
    assert not CachedBlocks(cache, SHA256, SIZE).forget()
    if obstacle == "a file":
        with pytest.raises(StorageError, match=f"cannot write {cache.folder}: "):
            cache.require_writable()


def test_a_folder_that_cannot_be_written_can_be_read(cache: FileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    read_all(cache)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    assert read_all(cache) == []


def test_a_folder_that_is_deleted_meanwhile_costs_only_speed(cache: FileCache) -> None:
    read_all(cache)
    with open_cached(cache, source := Source()) as file:
        pieces = file.read_ranges([(place, place + 10) for place in range(0, SIZE - 10, BLOCK_BYTES)], in_order=True)
        assert bytes(next(pieces)[1]) == CONTENT[:10]
        shutil.rmtree(cache.folder)
        assert len(list(pieces)) == 6
    assert source.blocks == [1, 2, 3, 4, 5, 6]
    assert read_all(cache) == [0]


def test_a_process_that_stops_while_it_has_the_lock_delays_the_others_once(
    cache: FileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "_LOCK_SECONDS", 0.02)
    waits: list[int] = []
    wait = folder._wait_for_lock
    monkeypatch.setattr(folder, "_wait_for_lock", lambda descriptor: (waits.append(descriptor), wait(descriptor)))
    cache.folder.mkdir()
    with (cache.folder / "size").open("wb") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        assert read_all(cache) == ALL
        assert len(waits) < 7
    assert block_files(cache) == {}


def test_a_file_that_is_being_written_counts(cache: FileCache) -> None:
    limited = small(cache, 2)
    limited.folder.mkdir()
    first = limited.folder / "00" / ("0" * 64) / f"00000000.{'0' * 16}"
    descriptors = [limited.room.create(first, KEPT_BLOCK_BYTES)]
    for number in range(1, 5):  # each needs a walk to find room
        assert read_block(limited, number) == CONTENT[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]
        assert num_bytes_of(cache) == 2 * KEPT_BLOCK_BYTES
    descriptors.append(limited.room.create(first.with_name(f"00000001.{'0' * 16}"), KEPT_BLOCK_BYTES))
    assert limited.room.create(first.with_name(f"00000002.{'0' * 16}"), KEPT_BLOCK_BYTES) is None
    for one in descriptors:
        assert one is not None
        os.close(one)


def test_threads_share_a_cache(cache: FileCache) -> None:
    limited, failed = small(cache, 4), []

    def read(first: int) -> None:
        try:
            for step in range(20):
                number = (first + step * 3) % 7
                assert read_block(limited, number) == CONTENT[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]
        except BaseException as error:  # noqa: BLE001 (shown below)
            failed.append(error)

    threads = [threading.Thread(target=read, args=(first,)) for first in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert num_bytes_of(cache) <= 4 * KEPT_BLOCK_BYTES


PROCESS = """
import json, sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from support.cache_samples import Source, open_cached
from registry.storage.cache import BLOCK_BYTES, FileCache
content = Path(sys.argv[2]).read_bytes()
cache = FileCache(sys.argv[1], max_bytes=int(sys.argv[4]))
source = Source(content)
wrong = 0
for step in range(40):
    number = (step * int(sys.argv[5])) % 7
    start, stop = number * BLOCK_BYTES, min((number + 1) * BLOCK_BYTES, len(content))
    [(_, view)] = open_cached(cache, source).read_ranges([(start, stop)])
    wrong += bytes(view) != content[start:stop]
print(json.dumps([wrong, len(source.fetched)]))
"""


@pytest.mark.parametrize("num_blocks", [2, 50])
def test_processes_share_a_cache(cache: FileCache, tmp_path: Path, num_blocks: int) -> None:
    (tmp_path / "content").write_bytes(CONTENT)
    arguments = [str(cache.folder), str(tmp_path / "content"), str(TESTS)]
    running = [
        warm_python.Popen(
            [sys.executable, "-c", PROCESS, *arguments, str(num_blocks * KEPT_BLOCK_BYTES), str(step)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for step in (1, 2, 3, 5)
    ]
    found = [json.loads(process.communicate()[0]) for process in running]
    assert [wrong for wrong, _ in found] == [0] * 4
    assert num_bytes_of(cache) <= num_blocks * KEPT_BLOCK_BYTES
    if num_blocks == 50:
        assert sum(fetched for _, fetched in found) <= 4 * 7
        assert read_all(cache) == []


def test_a_forked_child_continues_with_the_cache(cache: FileCache) -> None:
    read_block(cache, 0)
    file = open_cached(cache)
    views = file.read_ranges([(place, place + 10) for place in range(0, SIZE - 10, BLOCK_BYTES)], in_order=True)
    assert bytes(next(views)[1]) == CONTENT[:10]
    here, there = multiprocessing.Pipe()
    child = os.fork()
    if not child:
        rest = [bytes(view) for _, view in views]
        there.send(rest == [CONTENT[place : place + 10] for place in range(BLOCK_BYTES, SIZE - 10, BLOCK_BYTES)])
        os._exit(0)
    assert len(list(views)) == 6
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert here.recv()
    assert read_all(cache) == []


def test_a_cache_that_was_sent_to_another_process_is_the_same(cache: FileCache) -> None:
    read_all(cache)
    sent = pickle.loads(pickle.dumps(small(cache, 2)))  # noqa: S301 (our own)
    assert (sent.folder, sent.usage().max_bytes) == (cache.folder, 2 * KEPT_BLOCK_BYTES)
    assert read_all(sent) == []


def test_usage_and_clear(cache: FileCache) -> None:
    empty = cache.usage()
    assert (empty.num_files, empty.num_blocks, empty.num_bytes) == (0, 0, 0)
    assert empty.max_bytes == 100 * KEPT_BLOCK_BYTES
    cache.clear()
    assert not cache.folder.exists()
    read_all(cache)
    found = cache.usage()
    assert (found.num_files, found.num_blocks, found.num_bytes) == (1, 7, num_bytes_of(cache))
    cache.clear()
    assert cache.usage() == empty
    assert read_all(cache) == ALL


def test_the_default_limit_is_a_tenth_of_what_the_disk_has_free(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    assert FileCache(tmp_path / "no" / "folder").usage().max_bytes == pytest.approx(
        disk.f_bavail * disk.f_frsize / 10, rel=0.2
    )


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("0", 0),
        ("1000", 1000),
        ("20GB", 20 * 10**9),
        ("20 gb", 20 * 10**9),
        ("1.5TiB", 3 * 2**39),
        ("500M", 5 * 10**8),
        ("0.1KB", 100),
        (" 7 B ", 7),
    ],
)
def test_a_size_has_a_unit(text: str, num_bytes: int) -> None:
    assert parse_bytes(text, "REGISTRY_CACHE_BYTES") == num_bytes


@pytest.mark.parametrize("text", ["", "GB", "-1", "1e9", "1,5GB", "20 GBit", "1.GB", "٣", "1" * 30, "nan"])
def test_another_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_bytes(text, "REGISTRY_CACHE_BYTES")
    assert str(caught.value) == f"REGISTRY_CACHE_BYTES is {text!r}: expected a number of bytes"
    assert caught.value.hint == (
        "Write the number alone or with a unit, e.g. REGISTRY_CACHE_BYTES=500MB, 20GB or 1.5TiB; 0 switches the "
        "cache off."
    )
