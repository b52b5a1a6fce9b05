"""A cache that several users of one machine share: whose blocks are used, and what nobody can make others read."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import registry
from registry.api.locations import known_versions_folder
from registry.storage.cache import BLOCK_BYTES, CachedBlocks, FileCache, blocks

CONTENT = os.urandom(2 * BLOCK_BYTES + 1000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()

needs_root = pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="becomes two users, as root may")


def open_blocks(cache: FileCache, sha256: str = SHA256) -> CachedBlocks:
    return CachedBlocks(cache, sha256, len(CONTENT))


def keep(cache: FileCache, *numbers: int, content: bytes = CONTENT) -> None:
    kept = open_blocks(cache)
    for number in numbers or range(kept.num_blocks):
        start, stop = kept.range_of(number)
        kept.keep(number, memoryview(content[start:stop]))


def load(cache: FileCache, number: int) -> bytes | None:
    kept = open_blocks(cache)
    found = kept.load(number, *kept.range_of(number))
    return None if found is None else bytes(found)


def expected(number: int) -> bytes:
    return CONTENT[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]


def forget_this_process() -> None:
    blocks._TRUSTED.clear()


def as_user(uid: int, gid: int, call: Callable[[], Any]) -> Any:
    """The result of a call that a child process makes as another user."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        result: Any = None
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            os.umask(0o077)
            forget_this_process()
            result = (True, call())
        except BaseException as error:  # noqa: BLE001 (the parent raises it)
            result = (False, repr(error))
        finally:
            os.write(sender, pickle.dumps(result))
            os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as pipe:
        is_right, result = pickle.loads(pipe.read())  # noqa: S301 (the child wrote it)
    os.waitpid(child, 0)
    assert is_right, result
    return result


ANN, BOB, GROUP, OTHERS = 54321, 54322, 54320, 54319


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that a group may write to, as an admin makes one: chgrp, chmod 2770."""
    top = Path(tempfile.mkdtemp(prefix="shared-cache-"))
    top.chmod(0o755)
    made = top / "cache"
    made.mkdir()
    os.chown(made, 0, GROUP)
    made.chmod(0o2770)
    try:
        yield made
    finally:
        shutil.rmtree(top)


def shared(place: Path, **options: Any) -> FileCache:
    return FileCache(place / "blocks", is_shared=True, **{"max_bytes": 2**24, **options})


@needs_root
def test_a_file_of_one_user_is_read_by_another_one_without_the_store(place: Path) -> None:
    cache = shared(place)
    as_user(ANN, GROUP, lambda: keep(cache))
    assert as_user(ANN, GROUP, lambda: open_blocks(cache).prove())

    def read() -> tuple[bool, bool, list[bytes | None]]:
        kept = open_blocks(cache)
        before = kept.is_proved()
        return before, kept.is_complete() and kept.prove(), [load(cache, number) for number in range(3)]

    assert as_user(BOB, GROUP, read) == (False, True, [expected(number) for number in range(3)])
    for path in (place / "blocks").rglob("*"):
        facts = path.lstat()
        mode = {"size": 0o660}.get(path.name, 0o640) if stat.S_ISREG(facts.st_mode) else 0o2770
        assert (stat.S_IMODE(facts.st_mode), facts.st_gid) == (mode, GROUP), path


@needs_root
def test_wrong_bytes_of_another_user_are_never_read(place: Path) -> None:
    cache = shared(place)
    wrong = bytes(len(CONTENT))
    as_user(ANN, GROUP, lambda: (keep(cache, content=wrong), open_blocks(cache).note_proof()))
    seen = as_user(BOB, GROUP, lambda: (open_blocks(cache).is_proved(), [load(cache, number) for number in range(3)]))
    assert seen == (False, [None] * 3)
    assert as_user(BOB, GROUP, lambda: (open_blocks(cache).prove(), open_blocks(cache).is_complete())) == (False, False)
    as_user(BOB, GROUP, lambda: keep(cache))
    assert as_user(ANN, GROUP, lambda: (open_blocks(cache).prove(), load(cache, 1))) == (True, expected(1))


@needs_root
def test_a_block_that_its_owner_changes_after_it_was_compared_is_not_read(place: Path) -> None:
    cache = shared(place)
    as_user(ANN, GROUP, lambda: keep(cache))
    path = place / "blocks" / SHA256[:2] / SHA256 / "00000001"

    def change() -> None:
        facts = path.stat()
        content = bytes(BLOCK_BYTES)
        with path.open("r+b") as file:
            file.write(open_blocks(cache)._digest("00000001", content) + content)
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))

    def read() -> tuple[bool, bytes | None, bytes | None]:
        is_right = open_blocks(cache).prove()
        first = load(cache, 1)
        before = path.stat()
        # its owner changes it between two reads of this process
        ready.write_bytes(b"")
        while not done.exists():
            time.sleep(0.01)
        assert path.stat().st_size == before.st_size
        return is_right, first, load(cache, 1)

    ready, done = place / "ready", place / "done"
    receiver = os.fork()
    if receiver == 0:
        while not ready.exists():
            time.sleep(0.01)
        as_user(ANN, GROUP, change)
        done.write_bytes(b"")
        done.chmod(0o644)
        os._exit(0)
    assert as_user(BOB, GROUP, read) == (True, expected(1), None)
    os.waitpid(receiver, 0)


@needs_root
@pytest.mark.parametrize("mode", [0o2770, 0o3770], ids=["group", "sticky"])
def test_the_limit_of_the_cache_holds_for_all_users(place: Path, mode: int) -> None:
    place.chmod(mode)
    cache = shared(place, max_bytes=BLOCK_BYTES + 5000)
    as_user(ANN, GROUP, lambda: keep(cache, 0))
    as_user(BOB, GROUP, lambda: keep(cache, 1))
    kept = as_user(BOB, GROUP, lambda: [load(cache, number) is not None for number in range(2)])
    # In a sticky folder, nobody deletes the files of another user.
    assert kept == ([False, True] if mode == 0o2770 else [False, False])
    assert as_user(ANN, GROUP, lambda: cache.usage().num_bytes) <= BLOCK_BYTES + 5000
    as_user(BOB, GROUP, cache.clear)
    assert as_user(ANN, GROUP, lambda: cache.usage().num_blocks) == (0 if mode == 0o2770 else 1)
    as_user(ANN, GROUP, cache.clear)
    assert cache.usage().num_blocks == 0


@needs_root
def test_users_outside_of_the_group_go_on_without_the_cache(place: Path) -> None:
    cache = shared(place)
    as_user(ANN, GROUP, lambda: keep(cache))

    def read() -> tuple[bool, bytes | None]:
        keep(cache, 0)
        return open_blocks(cache).is_complete(), load(cache, 0)

    assert as_user(BOB, OTHERS, read) == (False, None)


@needs_root
def test_a_folder_that_is_not_shared_is_not_used_by_another_user(place: Path) -> None:
    assert not as_user(ANN, GROUP, lambda: FileCache(place, max_bytes=2**24).is_usable)
    assert as_user(ANN, GROUP, lambda: FileCache(place, max_bytes=2**24, is_shared=True).is_usable)
    place.chmod(0o2777)
    assert not as_user(ANN, GROUP, lambda: FileCache(place, max_bytes=2**24, is_shared=True).is_usable)


def test_blocks_of_others_are_used_once_their_digests_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = FileCache(tmp_path / "blocks", max_bytes=2**24, is_shared=True)
    keep(cache)
    monkeypatch.setattr(FileCache, "owns", lambda *_: False)  # as if another user had written all of it
    forget_this_process()
    kept = open_blocks(cache)
    assert (kept.is_complete(), kept.is_proved(), kept.holds(0), load(cache, 0)) == (True, False, False, None)
    keep(cache, 0)  # fetched again: it is the block that is there, which is not replaced
    assert (load(cache, 0), load(cache, 1)) == (expected(0), None)
    assert kept.prove()
    assert [load(cache, number) for number in range(3)] == [expected(number) for number in range(3)]
    assert kept.is_proved()


@pytest.mark.skipif(sys.platform == "win32", reason="makes links")
def test_a_link_in_the_place_of_a_folder_harms_no_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, others = FileCache(tmp_path / "blocks", max_bytes=2**24, is_shared=True), tmp_path / "others"
    others.mkdir(mode=0o700)
    (others / "notes.txt").write_text("mine")
    keep(cache)
    folder = tmp_path / "blocks" / SHA256[:2] / SHA256
    shutil.rmtree(folder)
    folder.symlink_to(others)
    assert not open_blocks(cache).forget()
    assert (others / "notes.txt").read_text() == "mine"

    folder.unlink()
    mkdir = Path.mkdir

    def lose(made: Path, *args: Any, **options: Any) -> None:  # another user is faster
        mkdir(made, *args, **options)
        made.rmdir()
        made.symlink_to(others)

    monkeypatch.setattr(Path, "mkdir", lose)
    (tmp_path / "blocks").chmod(0o2777)
    with pytest.raises(OSError, match="symbolic links"):
        cache.room.make_folder(folder)
    assert stat.S_IMODE(others.stat().st_mode) == 0o700


def test_decoded_columns_are_not_kept_in_a_shared_cache(tmp_path: Path) -> None:
    with pytest.raises(PermissionError, match="decoded columns need a cache that is not shared"):
        FileCache(tmp_path, is_shared=True).require_own()
    FileCache(tmp_path / "own").require_own()
    assert pickle.loads(pickle.dumps(FileCache(tmp_path, is_shared=True))).is_shared  # noqa: S301 (made here)


def test_the_variable_shares_the_bytes_of_files_and_not_what_a_token_may_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "10MB")
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "group"))
    assert not registry.cache().is_shared
    assert known_versions_folder() == tmp_path / "group" / "catalogs"
    monkeypatch.setenv("REGISTRY_CACHE_SHARED", "1")
    assert (registry.cache().is_shared, registry.cache().folder) == (True, tmp_path / "group" / "blocks")
    assert known_versions_folder() == tmp_path / "own" / "catalogs"
