"""Stamps: which files need not be hashed again, and which stamps do not count."""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import registry
from registry.errors import ShardMismatchError, StorageUnavailableError
from registry.model import KnownShards, Shard
from registry.shards import ProvedStore, proved
from registry.storage import memory, open_store
from registry.storage.memory import FileState, StampFolder, Watch
from registry.tfrecord import IndexFolder, RecordWriter

SECOND = 10**9
LINE_BYTES = 57
"""A stamp, and the end of its line."""


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sha256 of every file that was hashed by a proof since; each test begins as a new process does."""
    found: list[str] = []
    inner = proved._hash

    def counted(file: Any, stop: Any) -> str:
        found.append(inner(file, stop))
        return found[-1]

    monkeypatch.setattr(proved, "_hash", counted)
    monkeypatch.setattr(proved, "_proofs", proved._Proofs())
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two shards of equal size, which settled before they are hashed."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name, record in (("one", b"first"), ("two", b"other")):
        with (folder / name).open("wb") as file:
            RecordWriter(file).write(record)
    settle()
    return folder


def settle() -> None:
    """Wait until a change of a file is sure to change its times."""
    time.sleep(0.15)


def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proved, "_proofs", proved._Proofs())


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def promise(folder: Path, **sha256: str) -> KnownShards:
    """The promises for ``one`` and ``two``: their current content, unless another sha256 is given."""
    return KnownShards(
        {
            name: Shard(
                index=index,
                first_example=index,
                num_examples=1,
                num_bytes=(folder / name).stat().st_size,
                sha256=sha256.get(name) or digest(folder / name),
            )
            for index, name in enumerate(("one", "two"))
        }
    )


def opened(folder: Path, promises: KnownShards, indexes: IndexFolder | None) -> ProvedStore:
    return ProvedStore(open_store(folder), promises, file_format="tfrecord", indexes=indexes, hint="Fetch it again.")


def test_a_file_is_hashed_once_and_later_recognised_by_its_stamp(
    folder: Path, tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    promises = promise(folder)
    for _ in range(2):
        with opened(folder, promises, IndexFolder(tmp_path / "cache")).open("one") as file:
            assert file.read() == (folder / "one").read_bytes()
    assert len(hashed) == 1
    new_process(monkeypatch)
    opened(folder, promises, IndexFolder(tmp_path / "cache")).open("one").close()
    assert len(hashed) == 1


def test_without_a_folder_for_stamps_each_process_hashes_once(
    folder: Path, tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder can be made here")
    for indexes in (None, IndexFolder(tmp_path / "file" / "cache")):
        new_process(monkeypatch)
        hashed.clear()
        store = opened(folder, promise(folder), indexes)
        store.open("one").close()
        store.open("one").close()
        assert len(hashed) == 1


def test_a_stamp_goes_with_the_file_when_its_folder_is_renamed(
    folder: Path, tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    promises = promise(folder)
    opened(folder, promises, IndexFolder(tmp_path / "cache")).open("one").close()
    new_process(monkeypatch)
    moved = folder.rename(tmp_path / "moved")
    opened(moved, promises, IndexFolder(tmp_path / "cache")).open("one").close()
    assert len(hashed) == 1


@pytest.mark.parametrize("way", ["rewritten", "replaced", "touched", "of another mode"])
def test_a_file_that_changed_is_hashed_again(
    folder: Path, tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    promises, path = promise(folder), folder / "one"
    opened(folder, promises, IndexFolder(tmp_path / "cache")).open("one").close()
    facts, content = path.stat(), path.read_bytes()
    if way == "rewritten":
        path.write_bytes(content)
    elif way == "replaced":
        path.unlink()
        path.write_bytes(content)
    elif way == "of another mode":
        path.chmod(0o600)
    if way != "of another mode":
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    for _ in range(2):  # in this process, and in another one
        settle()
        opened(folder, promises, IndexFolder(tmp_path / "cache")).open("one").close()
        assert len(hashed) == 2
        new_process(monkeypatch)


def stamps_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.stamp"))


@pytest.mark.parametrize("change", ["group", "others", "owner"])
def test_stamps_that_another_user_may_have_written_do_not_count(
    folder: Path,
    tmp_path: Path,
    hashed: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    change: str,
) -> None:
    """Who can write into the folder could have a wrong file trusted."""
    cache, promises = tmp_path / "cache", promise(folder, one="0" * 64)
    IndexFolder(cache).stamps.keep(FileState.of((folder / "one").stat()), "0" * 64)
    opened(folder, promises, IndexFolder(cache)).open("one").close()
    assert cache.stat().st_mode & 0o777 == 0o700
    new_process(monkeypatch)
    if change == "owner":
        monkeypatch.setattr(os, "geteuid", lambda: cache.stat().st_uid + 1)
    else:
        cache.chmod(0o720 if change == "group" else 0o702)
    with pytest.raises(ShardMismatchError):
        opened(folder, promises, IndexFolder(cache)).open("one")
    assert len(hashed) == 1
    before = [path.read_bytes() for path in stamps_in(cache)]
    IndexFolder(cache).stamps.keep(FileState.of((folder / "two").stat()), "0" * 64)
    assert [path.read_bytes() for path in stamps_in(cache)] == before
    reason = "it belongs to another user, or others can write to it"
    message = f"{cache} is not used: {reason}. If it is yours: chmod 700 {cache}"
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        f"the cache folder {message}"
    ]


def test_the_stamp_of_another_file_or_of_another_sha256_does_not_count(
    folder: Path, tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    store = opened(folder, promise(folder), IndexFolder(cache))
    store.open("one").close()
    store.open("two").close()
    new_process(monkeypatch)
    swapped = promise(folder, one=digest(folder / "two"), two=digest(folder / "one"))
    for name in ("one", "two"):
        with pytest.raises(ShardMismatchError):
            opened(folder, swapped, IndexFolder(cache)).open(name)
    assert len(hashed) == 4


@pytest.mark.parametrize("content", [b"", b"torn", bytes(32)])
def test_a_damaged_stamp_is_made_again(
    folder: Path, tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    cache, promises = tmp_path / "cache", promise(folder)
    opened(folder, promises, IndexFolder(cache)).open("one").close()
    (stamp,) = stamps_in(cache)
    stamp.write_bytes(content)
    for _ in range(2):
        new_process(monkeypatch)
        opened(folder, promises, IndexFolder(cache)).open("one").close()
    assert len(hashed) == 2


def test_no_stamp_is_kept_of_a_file_that_changed_just_now(
    folder: Path, tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be changed again within one tick of the clock that its times are taken from."""
    promises, cache = promise(folder), tmp_path / "cache"
    now = (folder / "one").stat().st_ctime_ns
    monkeypatch.setattr(time, "time_ns", lambda: now + 50 * 10**6)
    for number in range(1, 4):
        opened(folder, promises, IndexFolder(cache)).open("one").close()
        assert len(hashed) == number
    assert stamps_in(cache) == []
    monkeypatch.undo()
    opened(folder, promises, IndexFolder(cache)).open("one").close()
    assert len(stamps_in(cache)) == 1


def test_how_long_a_file_must_have_been_left_alone_depends_on_its_clock() -> None:
    fine = FileState(size=1, mtime_ns=5, ctime_ns=SECOND + 4_000_000, inode=1, device=1)
    assert not fine.is_settled(fine.ctime_ns + 100 * 10**6)
    assert fine.is_settled(fine.ctime_ns + 101 * 10**6)
    coarse = fine._replace(ctime_ns=2 * SECOND)  # whole seconds, as old file systems count
    assert not coarse.is_settled(coarse.ctime_ns + 2 * SECOND)
    assert coarse.is_settled(coarse.ctime_ns + 3 * SECOND)
    assert not fine._replace(mtime_ns=2**62).is_settled(fine.ctime_ns + SECOND)  # dated in the future
    assert not fine._replace(inode=0).may_be_kept


def test_a_file_that_changes_while_it_is_hashed_gets_no_stamp(folder: Path, tmp_path: Path) -> None:
    indexes, store = IndexFolder(tmp_path / "cache"), open_store(folder)
    watch = Watch(store, "one")
    before = digest(folder / "one")
    (folder / "one").write_bytes((folder / "two").read_bytes())
    indexes.stamps.keep_watched(watch, before)
    assert stamps_in(tmp_path / "cache") == []


def test_the_file_that_was_proved_is_the_one_that_is_read(
    folder: Path, tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file gets its name right after it was hashed; the hashed file is still the one that is read."""
    right, inner = (folder / "one").read_bytes(), proved._hash

    def replace_afterwards(file: Any, stop: Any) -> str:
        found = inner(file, stop)
        if (folder / "two").exists():
            (folder / "two").replace(folder / "one")
        return found

    promises = promise(folder)
    monkeypatch.setattr(proved, "_hash", replace_afterwards)
    with opened(folder, promises, None).open("one") as file:
        assert file.read() == right
    monkeypatch.setattr(proved, "_hash", inner)
    with pytest.raises(ShardMismatchError):
        opened(folder, promises, None).open("one")


def test_threads_that_open_one_file_hash_it_once(folder: Path, hashed: list[str]) -> None:
    store = opened(folder, promise(folder), None)
    with ThreadPoolExecutor(8) as pool:
        for file in pool.map(lambda _: store.open("one"), range(32)):
            file.close()
    assert len(hashed) == 1


def test_a_fork_in_the_middle_of_a_proof_leaves_no_lock_behind(folder: Path, hashed: list[str]) -> None:
    promises = promise(folder)
    promised = promises.find("one")
    assert promised is not None
    with proved._proofs.alone(FileState.of((folder / "one").stat())):
        pid = os.fork()
        if pid == 0:
            proved._proofs.free()
            try:
                opened(folder, promises, None).open("one").close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_files_that_are_opened_together_are_proved_together(folder: Path, hashed: list[str]) -> None:
    store = opened(folder, promise(folder), None)
    store.prove(["one", "two"])
    for name in ("one", "two"):
        store.open(name).close()
    assert sorted(hashed) == sorted(digest(folder / name) for name in ("one", "two"))
    opened(folder, promise(folder, one="0" * 64), None).prove(["one", "missing"])  # said when they are opened


def test_ctrl_c_does_not_wait_until_files_are_hashed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, begun, ended = opened(folder, promise(folder), None), Event(), Event()

    def hash_for_ever(_file: Any, stop: Any) -> str:
        begun.set()
        stop.wait()
        raise InterruptedError

    def interrupt() -> None:
        begun.wait(30)
        while not ended.is_set():  # a signal just before the main thread starts to wait does not wake it up
            os.kill(os.getpid(), signal.SIGINT)
            ended.wait(1)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(proved, "_hash", hash_for_ever)
    thread = Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            store.prove(["one", "two"])
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGINT, before)


def test_a_store_that_does_not_answer_is_waited_for_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(folder, promise(folder), None)

    def refuse(_file: Any, _stop: Any) -> str:
        raise StorageUnavailableError("no answer")

    monkeypatch.setattr(proved, "_hash", refuse)
    with pytest.raises(StorageUnavailableError, match="no answer"):
        store.prove(["one", "two"])


def states(count: int, *, device: int = 1) -> list[FileState]:
    return [FileState(size=1, mtime_ns=1, ctime_ns=1, inode=number + 1, device=device) for number in range(count)]


def stamps_of(folder: Path) -> StampFolder:
    return IndexFolder(folder).stamps


def test_stamps_of_many_files_are_kept_in_few(tmp_path: Path) -> None:
    stamps = stamps_of(tmp_path)
    for state in states(3000):
        stamps.keep(state, "0" * 64)
        stamps.keep(state, "0" * 64)  # checking a dataset again adds nothing
    assert len(stamps_in(tmp_path)) <= 256
    assert sum(path.stat().st_size for path in stamps_in(tmp_path)) == 3000 * LINE_BYTES
    other = stamps_of(tmp_path)
    assert all(other.holds(state, "0" * 64) for state in states(3000))
    assert not any(other.holds(state, "0" * 64) for state in states(100, device=2))
    assert not any(other.holds(state, "1" * 64) for state in states(100))


def test_verifying_many_shards_leaves_no_file_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "cache"))
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.add([{"n": n} for n in range(300)], "rows", num_shards=300)
        settle()
        assert not catalog.dataset("rows").verify().faults
    assert len([one for one in (tmp_path / "cache").rglob("*") if one.is_file()]) <= 256


def test_processes_that_keep_stamps_at_the_same_time_lose_none(tmp_path: Path) -> None:
    children = []
    for number in range(4):
        child = os.fork()
        if not child:
            stamps = stamps_of(tmp_path)
            for state in states(400, device=number):
                stamps.keep(state, "0" * 64)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    stamps = stamps_of(tmp_path)
    assert all(stamps.holds(state, "0" * 64) for number in range(4) for state in states(400, device=number))


@pytest.mark.parametrize("torn", [b"x", b"x" * 19, b"x" * 56, b"x" * 58])
def test_an_entry_that_a_killed_process_left_half_written_hides_no_other(tmp_path: Path, torn: bytes) -> None:
    stamps = stamps_of(tmp_path)
    for state in states(600)[:300]:
        stamps.keep(state, "0" * 64)
    for path in stamps_in(tmp_path):
        with path.open("ab") as file:
            file.write(torn)
    for state in states(600)[300:]:
        stamps.keep(state, "0" * 64)
    other = stamps_of(tmp_path)
    assert all(other.holds(state, "0" * 64) for state in states(600))


def test_a_file_of_stamps_stays_small_and_keeps_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_LINE_BYTES", 10 * LINE_BYTES)
    stamps = stamps_of(tmp_path)
    for state in states(3000):
        stamps.keep(state, "0" * 64)
        assert stamps.holds(state, "0" * 64)
    assert max(path.stat().st_size for path in stamps_in(tmp_path)) <= 12 * LINE_BYTES
    assert stamps_of(tmp_path).holds(states(3000)[-1], "0" * 64)


def test_stamps_of_earlier_releases_are_ignored_and_collected_with_the_others(tmp_path: Path) -> None:
    (tmp_path / "ab").mkdir()
    (tmp_path / "ab" / f"ab{'0' * 38}.stamp").write_bytes(bytes(32))
    (tmp_path / "key").write_bytes(bytes(32))
    stamps = stamps_of(tmp_path)
    stamps.keep(states(1)[0], "0" * 64)
    assert stamps_of(tmp_path).holds(states(1)[0], "0" * 64)


def test_a_pickled_folder_of_stamps_has_no_entries(tmp_path: Path) -> None:
    folder = IndexFolder(tmp_path)
    for state in states(1000):
        folder.stamps.keep(state, "0" * 64)
        assert folder.stamps.holds(state, "0" * 64)
    sent = pickle.dumps(folder)
    assert len(sent) < 1000
    assert pickle.loads(sent).stamps.holds(states(1)[0], "0" * 64)  # noqa: S301 (made here)
