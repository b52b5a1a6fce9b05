"""Behaviour that every kind of store shares."""

from __future__ import annotations

import errno
import io
import threading
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path

import pytest

from registry.errors import AlreadyStoredError, NotStoredError, StorageError
from registry.storage import FolderExistsError, Store, open_parent, open_store


def put(store: Store, name: str, content: bytes = b"content") -> None:
    with store.create(name) as file:
        file.write(content)


def fail_to_put(store: Store, name: str, *, overwrite: bool = False) -> None:
    """Start to write a file of 2 MB, and end with a ZeroDivisionError."""
    with store.create(name, overwrite=overwrite) as file:
        file.write(b"x" * 2_000_000)
        raise ZeroDivisionError


def test_what_is_created_can_be_read(store: Store) -> None:
    put(store, "mnist/3.0.1/features.json", b"{}")
    assert store.read_bytes("mnist/3.0.1/features.json") == b"{}"
    assert store.size("mnist/3.0.1/features.json") == 2
    assert store.exists("mnist/3.0.1/features.json")
    assert store.exists("mnist/3.0.1")
    assert not store.exists("mnist/3.0.2")


def test_an_open_file_seeks_and_is_read_in_pieces(store: Store) -> None:
    put(store, "file", bytes(range(256)) * 5000)
    with store.open("file") as file:
        assert file.read(3) == b"\x00\x01\x02"
        assert file.seek(-2, io.SEEK_END) == 1_279_998
        assert file.read() == b"\xfe\xff"
        assert file.seek(256) == 256
        assert file.seek(1, io.SEEK_CUR) == 257
        assert (file.read(1), file.tell()) == (b"\x01", 258)


def test_two_readers_of_one_file_have_places_of_their_own(store: Store) -> None:
    put(store, "file", b"abcdef")
    with store.open("file") as one, store.open("file") as other:
        assert (one.read(2), other.read(3), one.read(2)) == (b"ab", b"abc", b"cd")


def test_an_empty_file_is_a_file(store: Store) -> None:
    put(store, "empty", b"")
    assert (store.read_bytes("empty"), store.size("empty"), store.list()) == (b"", 0, ["empty"])


def test_list_gives_every_file_below_a_folder_sorted(store: Store) -> None:
    for name in ("b/2", "a", "b/1/x", "b-c", "b/10"):
        put(store, name)
    assert store.list() == ["a", "b-c", "b/1/x", "b/10", "b/2"]
    assert store.list("b") == ["b/1/x", "b/10", "b/2"]
    assert store.list("nowhere") == []
    assert store.folders() == ["b"]
    assert store.folders("b") == ["1"]
    assert store.folders("nowhere") == []


def test_a_child_is_rooted_at_its_folder(store: Store) -> None:
    put(store, "mnist/3.0.1/file")
    child = store.child("mnist").child("3.0.1")
    assert child.list() == ["file"]
    assert child.url == f"{store.url}/mnist/3.0.1"
    assert open_store(child.url).read_bytes("file") == b"content"
    assert child.locate("file").endswith("mnist/3.0.1/file")


def test_nothing_is_visible_while_a_file_is_written(store: Store) -> None:
    with store.create("file") as file:
        file.write(b"x" * 2_000_000)
        assert not store.exists("file")
        assert store.list() == []
    assert store.list() == ["file"]


def test_a_file_that_failed_to_be_written_leaves_nothing_behind(store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        fail_to_put(store, "folder/file")
    assert store.list() == []
    assert not store.exists("folder/file")
    put(store, "folder/file")


def test_a_stored_file_is_replaced_only_on_request(store: Store) -> None:
    put(store, "file", b"old")
    with pytest.raises(AlreadyStoredError) as caught, store.create("file"):
        pytest.fail("the block must not run")
    assert str(caught.value) == f"cannot write {store.locate('file')}: it exists already"
    assert isinstance(caught.value, FileExistsError)
    with store.create("file", overwrite=True) as file:
        file.write(b"new")
    assert store.read_bytes("file") == b"new"


def test_of_two_writers_of_one_name_the_second_to_end_is_refused(store: Store) -> None:
    with pytest.raises(AlreadyStoredError), store.create("file"):
        put(store, "file", b"fast")
    assert store.read_bytes("file") == b"fast"
    assert store.list() == ["file"]


def test_a_failed_replacement_leaves_the_old_file(store: Store) -> None:
    put(store, "file", b"old")
    with pytest.raises(ZeroDivisionError):
        fail_to_put(store, "file", overwrite=True)
    assert store.read_bytes("file") == b"old"


def test_a_missing_file_is_named(store: Store) -> None:
    with pytest.raises(NotStoredError) as caught:
        store.open("missing")
    assert str(caught.value) == f"cannot read {store.locate('missing')}: No such file or directory"
    assert caught.value.errno == errno.ENOENT
    assert caught.value.details == {"path": store.locate("missing"), "errno": errno.ENOENT, "doing": "read"}
    assert caught.value.hint
    with pytest.raises(NotStoredError):
        store.size("missing")


def test_a_folder_is_not_a_file(store: Store) -> None:
    put(store, "folder/file")
    for ask in (store.open, store.size, store.read_bytes):
        with pytest.raises(StorageError, match="Not a file"):
            ask("folder")


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../x", "a/../../x", "a/..", ".", "./a", "a//b", "a/", "a\0b", "a\\b", ".."]
)
def test_names_that_could_leave_the_store_are_refused(store: Store, name: str) -> None:
    for ask in (store.open, store.size, store.exists, store.child, store.remove_tree, store.create, store.stage):
        with pytest.raises(StorageError, match="does not name a file inside its store"):
            ask(name)
    if name:
        with pytest.raises(StorageError):
            store.list(name)
        with pytest.raises(StorageError):
            store.folders(name)


def test_names_may_contain_special_characters(store: Store) -> None:
    names = ["*", "[a]?", "a b", "x..y", "~", "%2e%2e", "é", "#1", "..."]
    for name in names:
        put(store, name, name.encode())
    assert store.list() == sorted(names)
    assert [store.read_bytes(name).decode() for name in names] == names
    store.remove_tree("*")
    assert store.list() == sorted(set(names) - {"*"})


def test_a_file_longer_than_the_limit_is_not_read(store: Store) -> None:
    put(store, "file", b"12345")
    assert store.read_bytes("file", limit=5) == b"12345"
    with pytest.raises(StorageError, match="longer than 4 bytes"):
        store.read_bytes("file", limit=4)


def test_copy_keeps_name_and_content(store: Store) -> None:
    put(store, "a/b", b"x" * 3_000_000)
    store.child("target").create_from("a/b", store, "a/b")
    assert store.read_bytes("target/a/b") == b"x" * 3_000_000
    with pytest.raises(AlreadyStoredError):
        store.child("target").create_from("a/b", store, "a/b")


def test_remove_tree_removes_files_and_folders_and_ignores_missing_ones(store: Store) -> None:
    for name in ("a/1", "a/b/2", "ab", "c"):
        put(store, name)
    store.remove_tree("a")
    store.remove_tree("c")
    store.remove_tree("c")
    store.remove_tree("never/was")
    assert store.list() == ["ab"]


def test_a_staged_folder_becomes_visible_when_it_is_committed(store: Store) -> None:
    with store.stage("mnist/3.0.1") as staged:
        put(staged.store, "a")
        put(staged.store, "b/c")
        assert staged.store.list() == ["a", "b/c"]
        assert store.list() == []
        assert not store.exists("mnist/3.0.1")
        staged.commit()
    assert store.list() == ["mnist/3.0.1/a", "mnist/3.0.1/b/c"]
    assert store.folders("mnist") == ["3.0.1"]
    assert not store.exists("mnist/3.0.1/.owner.json")


def test_a_staged_folder_that_is_not_committed_is_gone(store: Store) -> None:
    with store.stage("mnist/3.0.1") as staged:
        put(staged.store, "a")
    with pytest.raises(ZeroDivisionError), store.stage("mnist/3.0.1") as staged:
        fail_to_put(staged.store, "a")
    assert store.folders("mnist") == []
    staged.discard()
    with pytest.raises(StorageError, match="was already committed or discarded"):
        staged.commit()


def test_a_staged_folder_never_replaces_a_published_one(store: Store) -> None:
    put(store, "mnist/3.0.1/old")
    with store.stage("mnist/3.0.1") as staged:
        put(staged.store, "new")
        with pytest.raises(FolderExistsError) as caught:
            staged.commit()
        assert staged.store.list() == ["new"]
    assert str(caught.value) == f"cannot publish {store.locate('mnist/3.0.1')}: it exists already"
    assert caught.value.errno is None or caught.value.errno == errno.EEXIST
    assert store.list() == ["mnist/3.0.1/old"]
    assert store.folders("mnist") == ["3.0.1"]


def test_a_staged_folder_does_not_replace_a_file(store: Store) -> None:
    put(store, "mnist")
    with store.stage("mnist") as staged:
        put(staged.store, "new")
        with pytest.raises(FolderExistsError):
            staged.commit()
    assert store.read_bytes("mnist") == b"content"


def test_the_folder_of_a_living_process_is_not_cleared(store: Store) -> None:
    with store.stage("mnist/3.0.1") as staged:
        assert store.clear_abandoned("mnist") == []
        assert store.clear_abandoned() == []
        put(staged.store, "a")
        staged.commit()


def test_many_threads_write_at_once(store: Store) -> None:
    threads = [threading.Thread(target=put, args=(store, f"folder/{index}")) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.list("folder")) == 16


def test_a_file_is_moved_to_a_name_that_is_free(store: Store) -> None:
    put(store, "staged/one", b"1")
    store.move("staged/one", "export/one")
    assert (store.list(), store.read_bytes("export/one")) == (["export/one"], b"1")


def test_a_file_is_moved_over_no_other(store: Store) -> None:
    put(store, "one", b"1")
    put(store, "two", b"2")
    with pytest.raises(AlreadyStoredError):
        store.move("one", "two")
    assert (store.read_bytes("one"), store.read_bytes("two")) == (b"1", b"2")


def test_what_is_not_there_cannot_be_moved(store: Store) -> None:
    with pytest.raises(NotStoredError):
        store.move("none", "some")
    assert store.list() == []


def test_a_scan_gives_every_file_with_its_size_and_age(store: Store) -> None:
    begun = datetime.now(UTC) - timedelta(seconds=2)  # the times of object stores have no fractions
    put(store, "mnist/1.0.0/shard", b"12345")
    put(store, "mnist/1.0.0/.owner.json", b"{}")
    put(store, "mnist/incomplete.0a1b2c3d_1.0.0/shard", b"")
    put(store, "apes", b"1")

    found = [one for one in store.scan() if not one.is_folder]

    assert {one.name: one.num_bytes for one in found} == {
        "apes": 1,
        "mnist/1.0.0/.owner.json": 2,
        "mnist/1.0.0/shard": 5,
        "mnist/incomplete.0a1b2c3d_1.0.0/shard": 0,
    }
    for one in found:
        assert one.changed_at is not None
        assert begun <= one.changed_at <= datetime.now(UTC) + timedelta(seconds=2)
    assert [one.name for one in store.scan("mnist/1.0.0")] == ["mnist/1.0.0/.owner.json", "mnist/1.0.0/shard"]
    assert list(store.scan("absent")) == []
    first_parts = [one.name.partition("/")[0] for one in store.scan()]
    assert len([part for part, _ in groupby(first_parts)]) == 2


def test_a_store_tells_the_time_by_which_it_dates_files_and_leaves_nothing(store: Store) -> None:
    put(store, "before")
    now = store.now()
    put(store, "mnist/after")

    assert now is not None
    before, after = (one.changed_at for one in store.scan() if not one.is_folder)
    assert before is not None
    assert after is not None
    slack = timedelta(seconds=1)  # the times of object stores have no fractions
    assert before - slack <= now <= after + slack
    assert [one.name for one in store.scan() if not one.is_folder] == ["before", "mnist/after"]


def test_a_scan_of_a_disk_gives_folders_too_and_follows_no_links(local_store: Store, tmp_path: Path) -> None:
    put(local_store, "mnist/1.0.0/shard")
    (tmp_path / "data/mnist/empty").mkdir()
    (tmp_path / "data/link").symlink_to(tmp_path)
    assert {one.name: one.is_folder for one in local_store.scan()} == {
        "link": False,
        "mnist": True,
        "mnist/1.0.0": True,
        "mnist/1.0.0/shard": False,
        "mnist/empty": True,
    }


def test_the_folder_of_a_file_is_found_with_the_separator_of_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("registry.storage.location.os.sep", "\\")
    parent, name = open_parent("out\\papers\\paper.tar")
    assert (parent.locate(""), name) == (str(tmp_path / "out/papers") + "/", "paper.tar")
