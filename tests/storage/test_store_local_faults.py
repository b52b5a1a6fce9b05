"""A local store with a full disk, killed processes and hostile folders."""

from __future__ import annotations

import errno
import io
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import warm_python

from registry.errors import AlreadyStoredError, StorageError
from registry.storage import FolderExistsError, Store, local, open_store
from registry.storage.faults import RawFile


class FullDisk(io.FileIO):
    """A file on a disk with room for 300,000 bytes."""

    def write(self, data: Any) -> int:
        content = bytes(data)
        if self.tell() + len(content) > 300_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(content)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file that is opened for writing is on a full disk."""

    def open_full(path: str, mode: str) -> RawFile:
        return FullDisk(path, mode) if "x" in mode else io.FileIO(path, mode)

    monkeypatch.setattr(local, "open_raw", open_full)


def put(store: Store, name: str, *pieces: bytes) -> None:
    with store.create(name) as file:
        for piece in pieces:
            file.write(piece)


def run_script(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a process of its own, with ``store`` open on ``folder``."""
    head = f"import os, signal\nfrom registry.storage import open_store\nstore = open_store({str(folder)!r})\n"
    return warm_python.run([sys.executable, "-c", head + code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("num_bytes", [310_000, 5_000_000])
def test_a_full_disk_is_a_storage_error_with_a_hint(local_store: Store, full_disk: None, num_bytes: int) -> None:
    # Of 310,000 bytes the last are still in the buffer when the block ends; 5,000,000 fail within it.
    with pytest.raises(StorageError) as caught:
        put(local_store, "folder/file", *[bytes(1000)] * (num_bytes // 1000))
    path = local_store.locate("folder/file")
    assert str(caught.value) == f"cannot write {path}: No space left on device"
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.details == {"path": path, "errno": errno.ENOSPC, "doing": "write"}
    assert (caught.value.hint or "").startswith("The disk is full.")
    assert isinstance(caught.value.__cause__, OSError)
    assert list(Path(path).parent.iterdir()) == []


def test_a_full_disk_leaves_the_old_file_unchanged(local_store: Store, full_disk: None) -> None:
    with local_store.create("file") as file:
        file.write(b"old")
    with pytest.raises(StorageError), local_store.create("file", overwrite=True) as file:
        file.write(bytes(1_000_000))
    assert local_store.read_bytes("file") == b"old"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A folder that really cannot hold a megabyte, and the errno of the failure.

    A tmpfs of 64 KiB if the tests may mount one, otherwise the kernel's limit on the size of a file.
    """
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "false", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if mount and subprocess.run(command, capture_output=True, check=False).returncode == 0:
        yield folder, errno.ENOSPC
        subprocess.run(["umount", folder], check=True)
        return
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, before[1]))
    yield folder, errno.EFBIG
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_is_really_full_leaves_nothing_behind(small_disk: tuple[Path, int]) -> None:
    folder, expected = small_disk
    store = open_store(folder)
    with pytest.raises(StorageError) as caught, store.stage("mnist/3.0.1") as staged:
        put(staged.store, "shard", bytes(1_000_000))
    assert caught.value.errno == expected
    assert store.folders("mnist") == []


def test_an_error_of_fsync_is_not_a_success(local_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    put(local_store, "there", b"before")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match="Input/output error"):
        put(local_store, "file", b"content")
    assert local_store.list() == ["there"]
    assert not local_store.exists("file")


def test_a_file_is_synced_before_it_is_renamed_and_its_folder_after(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    sync, link = os.fsync, os.link

    def record_sync(descriptor: int) -> None:
        calls.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        sync(descriptor)

    def record_link(source: str, target: str) -> None:
        calls.append("name")
        link(source, target)

    with local_store.create("folder/file") as file:
        file.write(b"content")
        monkeypatch.setattr(os, "fsync", record_sync)
        monkeypatch.setattr(os, "link", record_link)
    assert calls == ["sync file", "name", "sync folder"]


def test_every_file_and_folder_is_synced_before_a_staged_folder_is_renamed(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    sync, rename, renamed_after = os.fsync, os.rename, set[str]()

    def record_sync(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    def record_rename(source: str, target: str) -> None:
        renamed_after.update(synced)
        rename(source, target)

    names = [f"{folder}/{name}" for folder in ("a", "b") for name in range(30)]
    with local_store.stage("folder") as staged:
        for name in names:
            with staged.store.create(name) as file:
                file.write(b"content")
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", record_sync)
            patched.setattr(os, "rename", record_rename)
            staged.commit()
    assert renamed_after >= {"a", "b", *map(str, range(30)), Path(staged.name).name}
    assert local_store.list() == sorted(f"folder/{name}" for name in names)


def test_an_error_of_the_disk_is_reported_for_a_staged_folder(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with local_store.stage("folder") as staged:
        for name in ("a", "b"):
            with staged.store.create(name) as file:
                file.write(b"content")

        def fail(_descriptor: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fail)
            with pytest.raises(StorageError):
                staged.commit()
    assert local_store.list() == []


def test_without_hard_links_a_file_is_renamed(local_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    with local_store.create("file") as file:
        file.write(b"content")
    assert local_store.read_bytes("file") == b"content"
    with pytest.raises(AlreadyStoredError), local_store.create("other") as file:
        Path(local_store.locate("other")).write_bytes(b"theirs")
    assert local_store.read_bytes("other") == b"theirs"


@pytest.mark.parametrize("death", ["os._exit(9)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_killed_process_leaves_nothing_visible(tmp_path: Path, death: str) -> None:
    done = run_script(
        f"with store.create('folder/file') as file:\n    file.write(bytes(10**6)); file.flush(); {death}", tmp_path
    )
    assert done.returncode in (9, -signal.SIGKILL), done.stderr
    store = open_store(tmp_path)
    assert store.list() == []
    assert not store.exists("folder/file")
    with store.create("folder/file") as file:
        file.write(b"second run")


def test_the_staged_folder_of_a_killed_process_is_cleared(tmp_path: Path) -> None:
    done = run_script(
        "staged = store.stage('mnist/3.0.1')\n"
        "with staged.store.create('a') as file: file.write(b'a')\n"
        "print(staged.name, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)",
        tmp_path,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    store = open_store(tmp_path)
    assert store.list() == []
    with store.stage("mnist/3.0.1") as live:
        assert store.clear_abandoned("mnist") == [done.stdout.strip()]
        assert store.folders("mnist") == [live.name.removeprefix("mnist/")]


def test_a_discarded_folder_leaves_no_folder_that_did_not_exist_before(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data")
    with store.stage("mnist/rotated/3.0.1") as staged:
        put(staged.store, "a", b"a")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "data/mnist").mkdir(parents=True)
    with store.stage("mnist/rotated/3.0.1"):
        pass
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "data", tmp_path / "data/mnist"]


def test_a_discarded_folder_leaves_the_folders_that_others_use_meanwhile(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data")
    with store.stage("mnist/rotated/3.0.1"), store.stage("mnist/plain/3.0.1") as other:
        put(other.store, "a", b"a")
        other.commit()
    assert store.list() == ["mnist/plain/3.0.1/a"]
    assert store.folders("mnist") == ["plain"]


def test_of_many_publishers_of_one_folder_exactly_one_wins(local_store: Store) -> None:
    outcomes: list[str] = []
    start = threading.Barrier(8)

    def publish(number: int) -> None:
        with local_store.stage("mnist/3.0.1") as staged:
            with staged.store.create("by") as file:
                file.write(b"%d" % number)
            start.wait()
            try:
                staged.commit()
                outcomes.append("published")
            except FolderExistsError:
                outcomes.append("exists")

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["exists"] * 7 + ["published"]
    assert local_store.list() == ["mnist/3.0.1/by"]
    assert local_store.folders("mnist") == ["3.0.1"]


def test_an_empty_folder_gives_way(local_store: Store) -> None:
    Path(local_store.locate("mnist/3.0.1")).mkdir(parents=True)
    with local_store.stage("mnist/3.0.1") as staged:
        with staged.store.create("a") as file:
            file.write(b"a")
        staged.commit()
    assert local_store.list() == ["mnist/3.0.1/a"]


def test_links_that_lead_out_are_refused(local_store: Store, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "file").write_bytes(b"secret")
    root = Path(local_store.locate("inside")).parent
    root.mkdir()
    (root / "inside").mkdir()
    (root / "inside" / "file").write_bytes(b"ours")
    (root / "out").symlink_to(secret)
    (root / "out-file").symlink_to(secret / "file")
    (root / "in").symlink_to("inside")
    assert local_store.read_bytes("in/file") == b"ours"
    for ask in (local_store.open, local_store.size, local_store.exists):
        for name in ("out/file", "out-file"):
            with pytest.raises(StorageError, match="leads out of"):
                ask(name)
    with pytest.raises(StorageError, match="leads out of"):
        local_store.child("out")
    with pytest.raises(StorageError, match="leads out of"), local_store.create("out/new"):
        pytest.fail("the block must not run")
    with pytest.raises(StorageError, match="leads out of"):
        local_store.list("out")
    local_store.remove_tree("out")
    assert not (root / "out").exists()
    assert (secret / "file").read_bytes() == b"secret"


def test_a_named_pipe_is_not_waited_for(local_store: Store) -> None:
    Path(local_store.locate("x")).parent.mkdir()
    os.mkfifo(local_store.locate("pipe"))
    with pytest.raises(StorageError, match="Not a file"):
        local_store.open("pipe")


def test_a_root_that_is_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with open_store(tmp_path / "link").create("file") as file:
        file.write(b"x")
    assert (tmp_path / "real" / "file").read_bytes() == b"x"


def test_a_file_in_the_way_of_a_folder_is_an_error(local_store: Store) -> None:
    with local_store.create("file") as file:
        file.write(b"x")
    with pytest.raises(StorageError), local_store.create("file/below"):
        pytest.fail("the block must not run")


def test_a_name_of_255_bytes_can_be_created(local_store: Store) -> None:
    name = "é" * 127 + "x"
    with local_store.create(name) as file:
        file.write(b"x")
    assert local_store.list() == [name]
    with pytest.raises(StorageError, match="File name too long"), local_store.create(name + "y") as file:
        file.write(b"x")


def test_permission_denied_has_a_hint(local_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(path: str, _: str) -> RawFile:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(local, "open_raw", deny)
    with pytest.raises(StorageError) as caught, local_store.create("file"):
        pytest.fail("the block must not run")
    assert str(caught.value) == f"cannot write {local_store.locate('file')}: Permission denied"
    assert caught.value.errno == errno.EACCES
    assert (caught.value.hint or "").startswith("Permission is missing.")


def test_a_file_written_by_path_appears_only_when_complete(tmp_path: Path) -> None:
    local_store = local.LocalStore(tmp_path)
    with local_store.create_path("folder/file") as path:
        assert Path(path).parent == tmp_path / "folder"
        Path(path).write_bytes(b"content")
        assert local_store.list() == []
    assert local_store.read_bytes("folder/file") == b"content"
    with pytest.raises(AlreadyStoredError), local_store.create_path("folder/file"):
        pytest.fail("the name is taken")
    with local_store.create_path("folder/file", overwrite=True) as path:
        Path(path).write_bytes(b"other")
    assert local_store.read_bytes("folder/file") == b"other"
    assert [one.name for one in (tmp_path / "folder").iterdir()] == ["file"]


def test_a_file_that_failed_to_be_written_by_path_leaves_nothing_behind(tmp_path: Path) -> None:
    local_store = local.LocalStore(tmp_path)

    def fail(*, write: bool) -> None:
        with local_store.create_path("file") as path:
            if write:
                Path(path).write_bytes(b"half")
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail(write=True)
    with pytest.raises(StorageError):  # not written by a store
        fail(write=False)
    with pytest.raises(StorageError, match="does not name a file"), local_store.create_path("../file"):
        pytest.fail("it leads out")
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_or_a_device_is_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (
        pytest.raises(StorageError, match=r"cannot replace .*/pipe: it is not a regular file"),
        open_store(tmp_path).create("pipe", overwrite=True) as file,
    ):
        file.write(b"x")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert [one.name for one in tmp_path.iterdir()] == ["pipe"]


def test_a_folder_is_removed_while_another_process_writes_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, remove = open_store(tmp_path), os.rmdir
    store.write_bytes("incomplete.1/inner/a", b"1")
    written = []

    def write_first(path: Any, **options: Any) -> None:
        if len(written) < 3:
            written.append(path)
            (tmp_path / "incomplete.1" / f"late{len(written)}").write_bytes(b"2")
        remove(path, **options)

    monkeypatch.setattr(os, "rmdir", write_first)
    store.remove_tree("incomplete.1")
    assert len(written) == 3
    assert list(tmp_path.iterdir()) == []
