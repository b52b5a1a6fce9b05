"""A staged folder is cleared only if the process that created it is known to be dead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import pytest
from support import warm_python

from registry.errors import StorageError
from registry.storage import Store, open_store
from registry.storage.local import LocalStore, StagedOnDisk
from registry.storage.names import Owner
from registry.storage.object_store import ObjectStore
from registry.storage.staged import clear_abandoned

HERE = Owner.this_process()


def leave_folder(store: Store, owner: bytes | Owner | None) -> str:
    """A staged folder as a process may have left it."""
    name = "mnist/incomplete.0a1b2c3d_3.0.1"
    with store.create(f"{name}/shard") as file:
        file.write(b"x")
    if owner is not None:
        with store.create(f"{name}/.owner.json") as file:
            file.write(owner if isinstance(owner, bytes) else json.dumps(asdict(owner)).encode())
    return name


@pytest.mark.parametrize(
    "owner",
    [
        replace(HERE, pid=2**22 + 1),  # above the kernel's largest number
        replace(HERE, started="1"),  # the number was given to another process since
        replace(HERE, boot="another boot"),
    ],
    ids=["not running", "number reused", "machine restarted"],
)
def test_the_folder_of_a_dead_process_is_cleared(store: Store, owner: Owner) -> None:
    name = leave_folder(store, owner)
    assert clear_abandoned(store, "mnist") == [name]
    assert store.folders("mnist") == []


@pytest.mark.parametrize(
    "owner",
    [
        HERE,
        replace(HERE, host="another", pid=2**22 + 1),
        replace(HERE, machine="another", pid=2**22 + 1),
        replace(HERE, namespace="pid:[1]", pid=2**22 + 1),
        replace(HERE, boot="", pid=2**22 + 1),
        None,
        b"",
        b"[]",
        b"{}",
        b"null",
        b"\xff\xfe",
        b"{" * 9000,
        json.dumps(asdict(HERE) | {"pid": "1"}).encode(),
        json.dumps(asdict(HERE) | {"pid": -1}).encode(),
        json.dumps(asdict(HERE) | {"pid": True}).encode(),
        json.dumps(asdict(HERE) | {"started": 5}).encode(),
        json.dumps(asdict(HERE) | {"more": 5}).encode(),
        b" " * 20_000,
    ],
)
def test_every_other_folder_stays(store: Store, owner: bytes | Owner | None) -> None:
    leave_folder(store, owner)
    assert clear_abandoned(store, "mnist") == []
    assert store.exists("mnist/incomplete.0a1b2c3d_3.0.1/shard")


def test_published_folders_are_never_cleared(store: Store) -> None:
    with store.create("mnist/3.0.1/.owner.json") as file:
        file.write(json.dumps(asdict(replace(HERE, pid=2**22 + 1))).encode())
    assert clear_abandoned(store, "mnist") == []
    assert store.exists("mnist/3.0.1/.owner.json")
    assert store.list() == []


def test_urls_lead_to_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a b%20c"
    store = open_store(folder)
    assert (store.local_root, open_store(store.url).local_root) == (folder, folder)
    assert open_store(str(folder)).url == store.url
    assert open_store(f"file://localhost{folder}".replace("%", "%25")).local_root == folder
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store("~/data").local_root == tmp_path / "data"
    monkeypatch.chdir(tmp_path)
    assert open_store("data").local_root == tmp_path / "data"
    assert open_store("memory://x").local_root is None


@pytest.mark.parametrize("url", ["", "a\0b", "file://other/data", "nonsense://x", "simplecache::memory://x"])
def test_an_invalid_store_url_is_refused(url: str) -> None:
    with pytest.raises(StorageError) as caught:
        open_store(url)
    assert caught.value.hint


def test_a_missing_package_is_named() -> None:
    script = (  # in a process of its own, which has not loaded it before
        "import sys\n"
        "sys.modules['obstore'] = None\n"
        "from registry.errors import MissingExtraError\n"
        "from registry.storage import open_store\n"
        "try:\n    open_store('s3://bucket/datasets')\n"
        "except MissingExtraError as error:\n    print(error.details['package'], error.details['extra'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["obstore", "cloud"]


def test_messages_hide_passwords() -> None:
    store = open_store("memory://user:secret@host/data")
    assert "secret" not in store.locate("file")
    with pytest.raises(StorageError) as caught:
        open_store("nonsense://user:secret@host/data")
    assert "secret" not in str(caught.value)


def test_a_folder_of_a_process_that_died_before_it_wrote_its_owner_is_cleared(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for name in ("incomplete.0a1b2c3d_3.0.1", "incomplete.0a1b2c3e_3.0.1"):
        (tmp_path / "mnist" / name).mkdir(parents=True)
    (tmp_path / "mnist/incomplete.0a1b2c3e_3.0.1/incomplete.5f0a9c31_.owner.json").write_bytes(b"{")
    (tmp_path / "mnist/incomplete.AB12CD_3.0.1").mkdir()  # TFDS's own, perhaps alive
    assert store.clear_abandoned("mnist") == ["mnist/incomplete.0a1b2c3d_3.0.1", "mnist/incomplete.0a1b2c3e_3.0.1"]
    assert store.folders("mnist") == ["incomplete.AB12CD_3.0.1"]


def test_clearing_over_and_over_never_takes_the_folder_of_a_live_process(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from registry.storage import open_store\n"
        "store = open_store(sys.argv[1])\n"
        "while not store.exists('stop'):\n"
        "    store.clear_abandoned('mnist')\n"
        "    time.sleep(0.05)\n"
    )
    store = open_store(tmp_path)
    with warm_python.Popen([sys.executable, "-c", script, str(tmp_path)]) as rival:
        try:
            for _ in range(200):
                with store.stage("mnist/3.0.1") as staged:
                    assert store.exists(f"{staged.name}/.owner.json")
        finally:
            (tmp_path / "stop").touch()
    assert rival.returncode == 0
    assert store.folders("mnist") == []


def test_the_owner_file_is_the_last_to_be_removed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(store, ObjectStore):
        pytest.skip("its requests are looked at: test_object_store.py")
    name = leave_folder(store, replace(HERE, pid=2**22 + 1))
    removed: list[str] = []
    if store.local_root is not None:
        unlink = os.unlink

        def remember(path: Any, **options: Any) -> None:
            removed.append(Path(path).name)
            unlink(path, **options)

        monkeypatch.setattr(os, "unlink", remember)
    else:
        files = cast("Any", store)._files
        remove = files.rm_file
        monkeypatch.setattr(files, "rm_file", lambda path: (removed.append(path.rpartition("/")[2]), remove(path)))
    store.remove_tree(name)
    assert [part for part in removed if part in ("shard", ".owner.json")] == ["shard", ".owner.json"]


def test_a_retracted_folder_leaves_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with store.stage("mnist/3.0.1") as staged:
        staged.store.write_bytes("shard", b"x")
        staged.commit()
        assert isinstance(staged, StagedOnDisk)
        staged.retract()
        assert store.folders("mnist") != ["3.0.1"]
        assert staged.store.exists(".owner.json")  # another process does not take it for its own
    assert store.folders("") == []


def test_a_retracted_folder_can_get_another_name(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with store.stage("mnist/3.0.1") as staged:
        staged.store.write_bytes("shard", b"x")
        staged.commit()
        assert isinstance(staged, StagedOnDisk)
        staged.retract()
        staged.final = "mnist/3.0.2"
        staged.commit()
    assert list(store.child("mnist").list("3.0.2")) == ["3.0.2/shard"]
    assert store.folders("mnist") == ["3.0.2"]
